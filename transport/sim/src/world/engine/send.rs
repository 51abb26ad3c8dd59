//! From a host onto its wire, and out of its receive buffer.

use super::Engine;
use crate::limits::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use crate::world::flight::{Flight, NONE};
use crate::world::ids::HostId;
use crate::world::switch::mix;
use crate::world::trace::{PacketFate, content_of};
use crate::world::train::TxTrain;
use core::net::SocketAddr;
use towpath_base::Time;
use towpath_verbs::{TxPacket, dscp_of};

/// What is to be sent, be it a packet or a train.
struct Load<'a> {
    dest: SocketAddr,
    source_port: u16,
    tclass: u8,
    packets: u32,
    byte_len: u32,
    /// A packet has none.
    token: Option<u64>,
    parts: &'a [&'a [u8]],
}

/// A flight that is being read: its bytes are here, its number is not free yet.
pub(in crate::world) struct Taken {
    pub(in crate::world) number: u32,
    pub(in crate::world) bytes: Vec<u8>,
    pub(in crate::world) source: SocketAddr,
    pub(in crate::world) dest: SocketAddr,
    pub(in crate::world) tclass: u8,
    pub(in crate::world) packets: u32,
    pub(in crate::world) byte_len: u64,
    pub(in crate::world) token: u64,
    pub(in crate::world) is_damaged: bool,
    pub(in crate::world) landed_at: Time,
}

impl Engine {
    /// Sends a packet; false when it was not taken, for want of room.
    pub(in crate::world) fn send(&mut self, host: HostId, packet: &TxPacket<'_>) -> bool {
        let end = &mut self.hosts[host.index()];
        let byte_len = packet.byte_len();
        if end.is_too_long(byte_len) {
            end.counters.send_errors += 1;
            return true;
        }
        let load = Load {
            dest: packet.dest,
            source_port: packet.source_port,
            tclass: packet.tclass,
            packets: 1,
            // Checked above against a limit of 32 bits.
            byte_len: byte_len as u32,
            token: None,
            parts: packet.parts(),
        };
        self.send_load(host, &load)
    }

    /// Sends a train; false when it was not taken, for want of room.
    pub(in crate::world) fn send_train(&mut self, host: HostId, train: &TxTrain<'_>) -> bool {
        let is_sound =
            (1..=TRAIN_PACKETS_MAX).contains(&train.packets) && train.byte_len <= TRAIN_BYTES_MAX;
        if !is_sound {
            self.hosts[host.index()].counters.send_errors += 1;
            return true;
        }
        let load = Load {
            dest: train.dest,
            source_port: train.source_port,
            tclass: train.tclass,
            packets: train.packets,
            // Below TRAIN_BYTES_MAX.
            byte_len: train.byte_len as u32,
            token: Some(train.token),
            parts: &[train.bytes],
        };
        self.send_load(host, &load)
    }

    fn send_load(&mut self, host: HostId, load: &Load<'_>) -> bool {
        let now = self.clock.now();
        self.settle(self.hosts[host.index()].wire.0);
        let end = &mut self.hosts[host.index()];
        if load.source_port >= end.source_ports {
            end.counters.send_errors += 1;
            return true;
        }
        let wire = &mut self.wires[end.wire.index()];
        let class = usize::from(self.classes[usize::from(dscp_of(load.tclass))]);
        let bytes = wire.whole_bytes(u64::from(load.byte_len), load.packets);
        // What is larger than the queue goes all the same, alone.
        let goes_alone = end.is_patient && wire.is_idle(class);
        let has_room = goes_alone || wire.has_room(class, bytes);
        if !has_room && end.is_patient && !wire.is_crowded() {
            wire.want_room(class, bytes);
            let wire = end.wire.0;
            self.serve(wire);
            return false;
        }
        end.counters.packets_sent += u64::from(load.packets);
        end.counters.bytes_sent += u64::from(load.byte_len);
        let ready_at = end.leave_software(now);
        end.depart(now, ready_at, wire.span_of(bytes));
        let (source, wire) = (end.source_addr(load.source_port), end.wire.0);
        let dest_host = self.host_at(host, load.dest);
        let flow = flow_of(host.0, dest_host, source.port(), load.dest.port());
        let flight = self.flights.launch(|mut bytes| {
            load.parts.iter().for_each(|part| bytes.extend_from_slice(part));
            let train = load.token.map(|token| (load.packets, token));
            Flight {
                next: NONE,
                wire,
                ingress: NONE,
                dest_host: dest_host.unwrap_or(NONE),
                flow: mix(flow ^ self.ecmp_salt),
                ready_at,
                tail_at: ready_at,
                content: content_of(train, load.parts),
                byte_len: load.byte_len,
                packets: load.packets,
                source_port: load.source_port,
                tclass: load.tclass,
                is_judged: false,
                is_train: train.is_some(),
                is_damaged: false,
                bytes,
                source,
                token: load.token.unwrap_or_default(),
            }
        });
        if has_room {
            self.queue(flight, class);
        } else {
            self.wires[wire as usize].counters.dropped += u64::from(load.packets);
            self.finish(flight, PacketFate::DroppedQueue);
        }
        true
    }

    /// Takes a packet or a train out of the receive buffer.
    pub(in crate::world) fn take(&mut self, host: HostId, is_train: bool) -> Option<Taken> {
        let end = &mut self.hosts[host.index()];
        let number = end.take(&self.flights, is_train)?;
        let flight = &mut self.flights[number];
        Some(Taken {
            number,
            // The bytes go along and come back, for the reader may look at the world meanwhile.
            bytes: core::mem::take(&mut flight.bytes),
            source: flight.source,
            // Nothing else is let in.
            dest: end.addr,
            tclass: flight.tclass,
            packets: flight.packets,
            byte_len: u64::from(flight.byte_len),
            token: flight.token,
            is_damaged: flight.is_damaged,
            landed_at: flight.tail_at,
        })
    }

    /// Takes a flight back that has been read, with its buffer.
    pub(in crate::world) fn give_back(&mut self, taken: Taken) {
        self.flights[taken.number].bytes = taken.bytes;
        self.flights.free(taken.number);
    }
}

/// The four things that tell one flow from another (the protocol is always UDP).
fn flow_of(source: u32, dest: Option<u32>, source_port: u16, dest_port: u16) -> u64 {
    let hosts = u64::from(source) << 32 | u64::from(dest.unwrap_or(NONE));
    mix(hosts) ^ (u64::from(source_port) << 16 | u64::from(dest_port))
}
