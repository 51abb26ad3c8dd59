//! Slow fabrics, on which times are round, and numbered packets to send over them.

use super::number_of;
use towpath_base::{Nanos, Time};
use towpath_sim::{CableConfig, HostConfig, HostId, LeafSpine, TxTrain, World};
use towpath_verbs::{PacketLink, TxPacket};

/// Both ECN bits of a sender that is capable of marks.
pub(crate) const CAPABLE: u8 = 0b10;

/// Sends a packet of `byte_len` bytes that says `number`; true when it was taken.
pub(crate) fn send(
    world: &World,
    [from, to]: [HostId; 2],
    source_port: u16,
    number: u32,
    byte_len: usize,
) -> bool {
    let mut bytes = vec![0; byte_len];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    let mut packet = TxPacket::new(world.end(to).local_addr(), source_port, CAPABLE);
    packet.push(&bytes);
    world.end(from).transmit(&[packet]) == 1
}

/// Sends a train of packets of `packet_bytes` each; true when it was taken.
pub(crate) fn send_train(
    world: &World,
    [from, to]: [HostId; 2],
    packets: u32,
    packet_bytes: u64,
    token: u64,
) -> bool {
    let train = TxTrain {
        dest: world.end(to).local_addr(),
        source_port: 0,
        tclass: CAPABLE,
        packets,
        byte_len: u64::from(packets) * packet_bytes,
        token,
        bytes: &token.to_be_bytes(),
    };
    world.end(from).transmit_trains(&[train]) == 1
}

/// A packet or a train that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// When software saw it.
    pub(crate) at: Time,
    pub(crate) host: HostId,
    /// The number of a packet, the token of a train.
    pub(crate) number: u64,
    pub(crate) timestamp: Time,
    pub(crate) tclass: u8,
    pub(crate) is_damaged: bool,
}

/// Everything that comes in until `limit`, which [`Time::NEVER`] makes until nothing is under way.
pub(crate) fn run(world: &World, limit: Time) -> Vec<Seen> {
    let (mut seen, mut woken) = (Vec::new(), Vec::new());
    while world.advance_to_next(limit, &mut woken) {
        for host in woken.drain(..) {
            let at = world.now();
            world.end(host).receive(usize::MAX, &mut |packet| {
                // A fault may have cut the number off.
                let whole = packet.bytes.len() >= 4;
                let number = if whole { number_of(packet.bytes).into() } else { u64::MAX };
                let is_damaged = false;
                let (timestamp, tclass) =
                    (packet.timestamp, packet.tclass.expect("seen in a fabric"));
                seen.push(Seen { at, host, number, timestamp, tclass, is_damaged });
            });
            world.end(host).receive_trains(usize::MAX, &mut |train| {
                assert_eq!(train.bytes, train.token.to_be_bytes());
                let (number, is_damaged) = (train.token, train.is_damaged);
                let (timestamp, tclass) = (train.timestamp, train.tclass);
                seen.push(Seen { at, host, number, timestamp, tclass, is_damaged });
            });
        }
    }
    seen
}

pub(crate) fn settle(world: &World) -> Vec<Seen> {
    run(world, Time::NEVER)
}

pub(crate) fn numbers(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|seen| seen.number).collect()
}

/// 1 Gb/s is 8 ns a byte.
pub(crate) fn slow_host() -> HostConfig {
    HostConfig { rate_bits_per_s: 1_000_000_000, overhead_bytes: 0, ..HostConfig::default() }
}

/// 2 Gb/s is 4 ns a byte.
pub(crate) fn slow_cable() -> CableConfig {
    CableConfig {
        rate_bits_per_s: 2_000_000_000,
        delay: Nanos(1_000),
        overhead_bytes: 0,
        ..CableConfig::default()
    }
}

pub(crate) fn slow_pod() -> LeafSpine {
    LeafSpine { host: slow_host(), uplink: slow_cable(), ..LeafSpine::default() }
}
