//! A decorator that writes what a link carries as a capture file, for a packet dissector.
//!
//! The Ethernet, IP and UDP headers are made up from the addresses that the link reports, so it
//! goes on a virtual link as well as on real sockets. Where the UDP port is not 4791, tell the
//! dissector to decode that port as RoCEv2.

use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr};
use core::task::Waker;
use std::io;
use towpath_base::{Nanos, Time};
use towpath_verbs::{IpMtu, LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// The pcap magic for time stamps in nanoseconds.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// `DLT_EN10MB`.
const LINK_TYPE_ETHERNET: u32 = 1;
/// The longest packet of a capture: an IP packet cannot be longer.
const SNAP_BYTES: u32 = 65_535 + ETHERNET_BYTES as u32;

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// The longest headers that are made up.
const HEADERS_BYTES_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;
/// The IP protocol number of UDP.
const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// Records each packet that the inner link takes or hands out.
///
/// A write error ends the recording, not the traffic: see [`error`](Self::error).
pub struct PcapLink<L, W> {
    inner: L,
    tape: Tape<W>,
}

struct Tape<W> {
    writer: W,
    record: Vec<u8>,
    error: Option<io::Error>,
}

impl<L: PacketLink, W: io::Write> PcapLink<L, W> {
    /// Writes the head of a capture file to `writer`, and from then on each packet. Every packet
    /// is a write of its own: give it a buffered writer.
    ///
    /// # Errors
    /// The first write failed.
    pub fn new(inner: L, mut writer: W) -> io::Result<Self> {
        let version = [2_u16, 4].map(u16::to_le_bytes).concat();
        // The zeros: local time offset and accuracy, which nobody fills in.
        let sizes = [0, 0, SNAP_BYTES, LINK_TYPE_ETHERNET].map(u32::to_le_bytes).concat();
        writer.write_all(&[&MAGIC_NANOSECONDS.to_le_bytes(), &version[..], &sizes].concat())?;
        Ok(Self { inner, tape: Tape { writer, record: Vec::new(), error: None } })
    }

    /// The write error that ended the recording.
    pub fn error(&self) -> Option<&io::Error> {
        self.tape.error.as_ref()
    }

    /// The decorated link.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Flushes the writer and takes the decoration off.
    ///
    /// # Errors
    /// A write or the flush failed, so that the capture is not whole.
    pub fn finish(mut self) -> io::Result<(L, W)> {
        match self.tape.error {
            Some(error) => Err(error),
            None => self.tape.writer.flush().map(|()| (self.inner, self.tape.writer)),
        }
    }
}

/// A packet as it goes on the tape.
struct Frame<'a> {
    source: SocketAddr,
    dest: SocketAddr,
    tclass: u8,
    parts: &'a [&'a [u8]],
}

impl<W: io::Write> Tape<W> {
    fn write(&mut self, time: Time, frame: &Frame<'_>) {
        if self.error.is_some() {
            return;
        }
        self.record.clear();
        let payload_bytes: usize = frame.parts.iter().map(|part| part.len()).sum();
        let mut headers = Vec::with_capacity(HEADERS_BYTES_MAX);
        frame.push_headers(&mut headers, payload_bytes);
        let frame_bytes = (headers.len() + payload_bytes) as u32;
        // A 32-bit count of seconds: the format has no more.
        let seconds = (time.0 / 1_000_000_000) as u32;
        let nanoseconds = (time.0 % 1_000_000_000) as u32;
        for word in [seconds, nanoseconds, frame_bytes, frame_bytes] {
            self.record.extend_from_slice(&word.to_le_bytes());
        }
        self.record.extend_from_slice(&headers);
        frame.parts.iter().for_each(|part| self.record.extend_from_slice(part));
        self.error = self.writer.write_all(&self.record).err();
    }
}

impl Frame<'_> {
    fn push_headers(&self, out: &mut Vec<u8>, payload_bytes: usize) {
        out.extend_from_slice(&mac_of(self.dest.ip()));
        out.extend_from_slice(&mac_of(self.source.ip()));
        // A length that IP cannot say is cut to what it can; the record's own length is true.
        let udp_bytes = u16::try_from(UDP_BYTES + payload_bytes).unwrap_or(u16::MAX);
        match (self.source.ip(), self.dest.ip()) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                out.extend_from_slice(&[0x08, 0x00]);
                let total = udp_bytes.saturating_add(IPV4_BYTES as u16).to_be_bytes();
                let start = out.len();
                out.extend_from_slice(&[0x45, self.tclass, total[0], total[1]]);
                // ID 0 and "don't fragment": what the ICRC of our own packets is computed with.
                out.extend_from_slice(&[0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL_UDP, 0, 0]);
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&dest.octets());
                let sum = internet_checksum([&out[start..]]);
                out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
                self.push_udp(out, udp_bytes, 0);
            }
            (source, dest) => {
                let (source, dest) = (v6_octets(source), v6_octets(dest));
                out.extend_from_slice(&[0x86, 0xdd, 0x60 | self.tclass >> 4, self.tclass << 4]);
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(&udp_bytes.to_be_bytes());
                out.extend_from_slice(&[PROTOCOL_UDP, HOP_LIMIT]);
                out.extend_from_slice(&source);
                out.extend_from_slice(&dest);
                let checksum = self.udp6_checksum(udp_bytes, &source, &dest);
                self.push_udp(out, udp_bytes, checksum);
            }
        }
    }

    fn push_udp(&self, out: &mut Vec<u8>, udp_bytes: u16, checksum: u16) {
        for word in [self.source.port(), self.dest.port(), udp_bytes, checksum] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// RFC 8200 section 8.1: over IPv6 the UDP checksum is not optional.
    fn udp6_checksum(&self, udp_bytes: u16, source: &[u8; 16], dest: &[u8; 16]) -> u16 {
        let mut head = Vec::with_capacity(IPV6_BYTES + UDP_BYTES);
        head.extend_from_slice(source);
        head.extend_from_slice(dest);
        head.extend_from_slice(&u32::from(udp_bytes).to_be_bytes());
        head.extend_from_slice(&[0, 0, 0, PROTOCOL_UDP]);
        self.push_udp(&mut head, udp_bytes, 0);
        let pieces = core::iter::once(&head[..]).chain(self.parts.iter().copied());
        match internet_checksum(pieces) {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// RFC 1071: the one's complement sum of 16-bit words, over pieces of any length.
fn internet_checksum<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u16 {
    let mut sum = 0_u64;
    let mut odd = false;
    for &byte in pieces.into_iter().flatten() {
        sum += if odd { u64::from(byte) } else { u64::from(byte) << 8 };
        odd = !odd;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A locally administered MAC address that tells the hosts apart.
fn mac_of(ip: IpAddr) -> [u8; 6] {
    let octets = v6_octets(ip);
    [0x02, 0, octets[12], octets[13], octets[14], octets[15]]
}

fn v6_octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl<L: PacketLink, W: io::Write> PacketLink for PcapLink<L, W> {
    fn caps(&self) -> LinkCaps {
        self.inner.caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.inner.nic_addr(nic)
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

    fn packets_too_long(&self) -> u64 {
        self.inner.packets_too_long()
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let taken = self.inner.transmit(packets);
        let now = self.inner.now();
        let source_ports = self.inner.caps().source_ports;
        // One of a source port that does not exist counts as taken but never went out.
        let sent = packets[..taken].iter().filter(|packet| packet.source_port < source_ports);
        for packet in sent {
            let frame = Frame {
                source: self.inner.source_addr(packet.source_port),
                dest: packet.dest,
                tclass: packet.tclass,
                parts: packet.parts(),
            };
            self.tape.write(now, &frame);
        }
        taken
    }

    fn left_at(&mut self) -> Time {
        self.inner.left_at()
    }

    /// The traffic class of a received packet is not known here and stands as 0.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let tape = &mut self.tape;
        self.inner.receive(budget, &mut |packet| {
            let parts = [packet.bytes];
            let frame =
                Frame { source: packet.source, dest: packet.dest, tclass: 0, parts: &parts };
            tape.write(packet.timestamp, &frame);
            sink(packet);
        })
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Option<Waker> {
        self.inner.waker()
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.inner.watch_file(file)
    }

    fn look_at_each_tclass(&mut self) {
        self.inner.look_at_each_tclass();
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }
}
