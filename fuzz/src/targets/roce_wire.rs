//! What the targets of the RoCE device share: a wire without another end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use towpath_base::{Nanos, Time};
use towpath_device_roce::wire::{BTH_BYTES, ICRC_BYTES, IcrcBase};
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, QpShare, RxPacket, TxPacket};

pub(super) const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 49_152);
pub(super) const HERE: ([u8; 4], u16) = ([10, 0, 0, 2], 4791);

/// A wire that keeps what is sent, and hands over what it is given.
pub(super) struct Wire {
    pub(super) coming: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) sent: Vec<Vec<u8>>,
    /// How many packets it takes in one call.
    pub(super) room: usize,
    pub(super) now: Time,
}

impl Default for Wire {
    fn default() -> Self {
        Self { coming: VecDeque::new(), sent: Vec::new(), room: 64, now: Time(1) }
    }
}

impl PacketLink for Wire {
    fn caps(&self) -> LinkCaps {
        LinkCaps {
            packet_bytes_max: 4096 + 64,
            source_ports: 1,
            rx_buffer_bytes: None,
            rx_charge_bytes: 0,
            delay_noise: Nanos::ZERO,
            foreign_peers: false,
            qp_share: QpShare::ALL,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        HERE.into()
    }

    fn now(&self) -> Time {
        self.now
    }

    fn source_addr(&self, _: u16) -> SocketAddr {
        HERE.into()
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let taken = packets.len().min(self.room);
        self.sent.extend(packets[..taken].iter().map(|packet| packet.parts().concat()));
        taken
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let count = budget.min(self.coming.len());
        for (source, bytes) in self.coming.drain(..count) {
            let timestamp = self.now;
            sink(RxPacket { source, dest: HERE.into(), tclass: Some(0), bytes: &bytes, timestamp });
        }
        count
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters::default()
    }
}

/// Makes the ICRC right.
pub(super) fn seal(source: SocketAddr, bytes: &mut [u8]) {
    let Some((bth, _)) = bytes.split_first_chunk::<BTH_BYTES>() else { return };
    let dest_qp = u32::from_be_bytes([0, bth[5], bth[6], bth[7]]);
    let at = bytes.len() - ICRC_BYTES;
    bytes[at..].fill(0);
    let base = IcrcBase::new(source, HERE.into(), dest_qp);
    if let Some(difference) = base.difference(bytes) {
        bytes[at..].copy_from_slice(&difference.to_le_bytes());
    }
}
