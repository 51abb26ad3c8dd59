//! Frames of the captured packets, for tests.

use std::net::{IpAddr, SocketAddr};

/// A captured frame.
pub(crate) struct Frame {
    pub(crate) source: SocketAddr,
    pub(crate) dest: SocketAddr,
    /// The IP ID, zero on IPv6.
    pub(crate) ip_id: u16,
    /// BTH to ICRC.
    pub(crate) packet: Vec<u8>,
}

pub(crate) const UC_SMALL: &[u8] =
    include_bytes!("../../../../tests/vectors/uc_small_mtu1024.pcap");
pub(crate) const FLOW: &[u8] = include_bytes!("../../../../tests/vectors/flow.pcap");
pub(crate) const RC_FADD: &[u8] = include_bytes!("../../../../tests/vectors/rc_fadd.pcap");
pub(crate) const RAW_V4: &[u8] = include_bytes!("../../../../tests/vectors/rawpeer_v4.pcap");
pub(crate) const RAW_V6: &[u8] = include_bytes!("../../../../tests/vectors/rawpeer_v6.pcap");

/// The RoCEv2 frames of a little-endian Ethernet capture.
pub(crate) fn frames(capture: &[u8]) -> Vec<Frame> {
    let mut rest = &capture[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(frame(&rest[16..16 + len]));
        rest = &rest[16 + len..];
    }
    frames
}

fn frame(ethernet: &[u8]) -> Frame {
    let ip = &ethernet[14..];
    let be16 = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let octets16 = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap();
    let octets4 = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap();
    let (source, dest, ip_id, udp): (IpAddr, IpAddr, _, _) = match ip[0] >> 4 {
        4 => (octets4(12).into(), octets4(16).into(), be16(4), 20),
        _ => (octets16(8).into(), octets16(24).into(), 0, 40),
    };
    let end = udp + usize::from(be16(udp + 4));
    Frame {
        source: SocketAddr::new(source, be16(udp)),
        dest: SocketAddr::new(dest, be16(udp + 2)),
        ip_id,
        packet: ip[udp + 8..end].to_vec(),
    }
}
