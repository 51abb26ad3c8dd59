//! Trains: whole messages of many packets that cost one event a hop.

use core::net::SocketAddr;
use towpath_base::Time;

/// A train to send: it stands for `packets` packets of one message, sent back to back.
///
/// It takes the wire for as long as they would, waits in queues and is dropped, marked and paused
/// as one; it is lost when any of them would have been. It arrives when the last of them would: it
/// goes on at a switch once its first packet is in, and no faster than it comes.
///
/// What differs from packets: a queue counts all its bytes from when its first packet comes in,
/// nothing is sent between its packets, and on a faster wire than it came on it takes its share at
/// once rather than spread over the time that it comes in.
#[derive(Clone, Copy, Debug)]
pub struct TxTrain<'a> {
    /// Where to.
    pub dest: SocketAddr,
    /// The index of the source port that it leaves from.
    pub source_port: u16,
    /// IPv4 ToS or IPv6 traffic class.
    pub tclass: u8,
    /// How many packets, 1 to [`TRAIN_PACKETS_MAX`](crate::limits::TRAIN_PACKETS_MAX); they count
    /// as equally long.
    pub packets: u32,
    /// Their bytes on the wire together, BTH to ICRC; at most
    /// [`TRAIN_BYTES_MAX`](crate::limits::TRAIN_BYTES_MAX).
    pub byte_len: u64,
    /// What the sender wants the receiver to be told.
    pub token: u64,
    /// What is to be carried, such as a header; it takes no time of its own.
    pub bytes: &'a [u8],
}

/// A train that came in; the bytes live until the sink returns.
#[derive(Clone, Copy, Debug)]
pub struct RxTrain<'a> {
    /// Who sent it.
    pub source: SocketAddr,
    /// The local address that it came in on.
    pub dest: SocketAddr,
    /// The traffic class as it came in: an ECN mark shows here.
    pub tclass: u8,
    /// How many packets.
    pub packets: u32,
    /// Their bytes on the wire together, BTH to ICRC.
    pub byte_len: u64,
    /// What the sender said.
    pub token: u64,
    /// What it carried.
    pub bytes: &'a [u8],
    /// A fault changed some of what it stands for; a network card would drop that packet.
    pub is_damaged: bool,
    /// When its last packet came in, as for a packet.
    pub timestamp: Time,
}
