//! The work-request level: a device whose UC SEND is one burst of the fabric.
//!
//! There are no packets here, so none are built, checksummed or cut: a message travels as one
//! event per hop, whatever its length. What an endpoint can observe is as on a device that cuts:
//! a message that lost any packet does not come, one without a receive work request is dropped,
//! messages of one path come in order, and completions carry the time of the wire. So the same
//! endpoints run on it, ten times as many messages a second.
//!
//! What differs: of a lost message nothing lands, where UC may leave its first packets in a
//! receive buffer that is then used again; and queue pairs are UC alone, with SEND alone.
//!
//! | file | what it does |
//! |---|---|
//! | `device` | the verbs |
//! | `engine` | whose turn it is to send, and where a message goes |
//! | `fabric` | the fabric as a wire for messages |
//! | `frame` | what travels in a burst |
//! | `queues` | completion queues, receive queues, queue pairs by number |

mod device;
mod engine;
mod fabric;
mod frame;
mod queues;

#[cfg(test)]
mod tests;

pub use device::WrDevice;
pub use engine::WrCounters;

use std::net::SocketAddr;
use towpath_base::Time;
use towpath_verbs::LinkCaps;

/// A message on its way into the fabric; the bytes live until the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst<'a> {
    /// Where to.
    pub dest: SocketAddr,
    /// Which source port it leaves from.
    pub source_port: u16,
    /// IPv4 ToS or IPv6 traffic class.
    pub tclass: u8,
    /// Packets that it would be cut into.
    pub packets: u32,
    /// Bytes of those packets, BTH to ICRC.
    pub packet_bytes: u64,
    /// What the receiver needs: its queue pair, and the message.
    pub bytes: &'a [u8],
}

/// A message that came whole.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedBurst<'a> {
    /// Who sent it.
    pub source: SocketAddr,
    /// [`Burst::tclass`], as the fabric left it.
    pub tclass: u8,
    /// [`Burst::bytes`].
    pub bytes: &'a [u8],
    /// One of its packets was damaged on the way.
    pub is_damaged: bool,
    /// When its last packet came in.
    pub timestamp: Time,
}

/// A wire for messages: whole, or not at all.
pub trait BurstLink {
    /// What it can do; [`LinkCaps::packet_bytes_max`] decides the MTU.
    fn caps(&self) -> LinkCaps;

    /// Where peers send to.
    fn local_addr(&self) -> SocketAddr;

    /// The link's clock now.
    fn now(&self) -> Time;

    /// Takes a message; false when there is no room for it now, and it is to be offered again.
    /// What can never be carried counts as taken, and is lost.
    fn send_burst(&mut self, burst: &Burst<'_>) -> bool;

    /// Hands at most `budget` messages to `sink`, in order of arrival; returns how many.
    fn receive_bursts(&mut self, budget: usize, sink: &mut dyn FnMut(ArrivedBurst<'_>)) -> usize;
}
