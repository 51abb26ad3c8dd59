//! A packet link that remembers what it sent, and throws mutants of it.

use std::net::SocketAddr;

use towpath_base::crc::crc32c;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::wire::{BTH_BYTES, ICRC_BYTES, IcrcBase, NO_ICRC};
use towpath_verbs::{IpMtu, LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// Packets remembered: enough for every kind of chunk and ack.
const REMEMBERED_MAX: usize = 512;
/// Longest mutant: more than any sound packet.
const MUTANT_BYTES_MAX: usize = 4500;
/// Mutants handed to the socket at a time.
const BATCH: usize = 32;
/// Bytes of a chunk header, the last four its checksum (docs/protocol.md section 3).
const CHUNK_HEADER_BYTES: usize = 64;

pub struct Tap {
    inner: UdpLink,
    remembered: Vec<Vec<u8>>,
    dest: Option<SocketAddr>,
    prng: Prng,
}

impl Tap {
    pub fn new(inner: UdpLink, seed: u64) -> Self {
        Self { inner, remembered: Vec::new(), dest: None, prng: Prng::new(seed) }
    }

    fn remember(&mut self, packet: &TxPacket<'_>) {
        self.dest = Some(packet.dest);
        let bytes = packet.parts().concat();
        if self.remembered.len() < REMEMBERED_MAX {
            self.remembered.push(bytes);
        } else {
            let place = self.prng.below(REMEMBERED_MAX as u64) as usize;
            self.remembered[place] = bytes;
        }
    }

    /// Throws so many mutants of what was sent at where it was sent; returns how many the socket
    /// took.
    pub fn throw(&mut self, count: usize) -> usize {
        let Some(dest) = self.dest else { return 0 };
        let mut taken = 0;
        while taken < count {
            let mutants: Vec<Vec<u8>> =
                (0..BATCH.min(count - taken)).map(|_| self.mutant(dest)).collect();
            let packets: Vec<TxPacket<'_>> = mutants
                .iter()
                .map(|bytes| {
                    let mut packet = TxPacket::new(dest, 0, 0);
                    packet.push(bytes);
                    packet
                })
                .collect();
            match self.inner.transmit(&packets) {
                0 => break,
                sent => taken += sent,
            }
        }
        taken
    }

    fn pick(&mut self) -> Vec<u8> {
        let place = self.prng.below(self.remembered.len() as u64) as usize;
        self.remembered[place].clone()
    }

    fn mutant(&mut self, dest: SocketAddr) -> Vec<u8> {
        let mut bytes = self.pick();
        let has_icrc = !bytes.ends_with(&NO_ICRC.to_le_bytes());
        match self.prng.below(8) {
            0 => {}
            1 => {
                for _ in 0..1 + self.prng.below(8) {
                    let at = self.prng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.prng.below(8);
                }
            }
            2 => bytes.truncate(1 + self.prng.below(bytes.len() as u64) as usize),
            3 => {
                let mut more = vec![0; self.prng.below(400) as usize * 4];
                self.prng.fill(&mut more);
                bytes.extend(more);
                bytes.truncate(MUTANT_BYTES_MAX);
            }
            4 => {
                let other = self.pick();
                let cut = self.prng.below(bytes.len().min(other.len()) as u64) as usize;
                bytes.truncate(cut);
                bytes.extend_from_slice(&other[cut..]);
            }
            5 => {
                bytes = vec![0; 1 + self.prng.below(MUTANT_BYTES_MAX as u64) as usize];
                self.prng.fill(&mut bytes);
            }
            // Fields of the headers at their edges.
            _ => {
                for _ in 0..1 + self.prng.below(3) {
                    let at = self.prng.below(80) as usize;
                    let width = 1 << self.prng.below(4);
                    let value = [0x00, 0xff, 0x7f, 0x80, 0x01][self.prng.below(5) as usize];
                    bytes.iter_mut().skip(at).take(width).for_each(|byte| *byte = value);
                }
            }
        }
        self.seal(&mut bytes, dest, has_icrc);
        bytes
    }

    /// Makes the checksums right most of the time, so that mutants come past them.
    fn seal(&mut self, bytes: &mut [u8], dest: SocketAddr, has_icrc: bool) {
        let header = BTH_BYTES..BTH_BYTES + CHUNK_HEADER_BYTES;
        if self.prng.chance(0.7)
            && let Some(header) = bytes.get_mut(header)
        {
            let (content, crc) = header.split_at_mut(CHUNK_HEADER_BYTES - 4);
            crc.copy_from_slice(&crc32c(content).to_le_bytes());
        }
        if self.prng.chance(0.8) && bytes.len() >= BTH_BYTES + ICRC_BYTES {
            let qp_num = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
            let base = IcrcBase::new(self.inner.source_addr(0), dest, qp_num);
            if let (Some(difference), Some(icrc)) =
                (base.difference(bytes), bytes.last_chunk_mut::<ICRC_BYTES>())
            {
                let right = u32::from_le_bytes(*icrc) ^ difference;
                *icrc = if has_icrc { right } else { NO_ICRC }.to_le_bytes();
            }
        }
    }
}

impl PacketLink for Tap {
    fn caps(&self) -> LinkCaps {
        self.inner.caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.inner.source_addr(source_port)
    }

    fn ip_mtu(&self, dest: Option<SocketAddr>) -> Option<IpMtu> {
        self.inner.ip_mtu(dest)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        packets.iter().for_each(|packet| self.remember(packet));
        self.inner.transmit(packets)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.inner.receive(budget, sink)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.inner.wait(timeout)
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }
}
