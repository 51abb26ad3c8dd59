//! Frames of the captured packets, for tests.

use super::{ICRC_BYTES, PacketRepr};
use std::net::{IpAddr, SocketAddr};

/// A captured frame.
pub(crate) struct Frame {
    /// Since the capture began.
    pub(crate) time_us: u64,
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

macro_rules! rc_captures {
    ($($name:literal)*) => {
        /// The captures of RC: their names and bytes.
        pub(crate) const RC: &[(&str, &[u8])] = &[$((
            $name,
            include_bytes!(concat!("../../../../tests/vectors/rc/", $name, ".pcap")),
        )),*];
    };
}

rc_captures! {
    "ops_mtu256"
    "ops_mtu1024_v6"
    "large_mtu4096"
    "invalidate"
    "pipeline"
    "rnr_1"
    "rnr_14"
    "rnr_22"
    "rnr_exhausted"
    "rnr_write_imm"
    "rnr_middle"
    "bad_rkey_write"
    "bad_rkey_write_long"
    "bad_rkey_write_zero"
    "bad_rkey_read"
    "bad_rkey_atomic"
    "bounds_write"
    "bounds_read"
    "mr_no_write"
    "no_access_write"
    "no_access_read"
    "no_access_atomic"
    "send_too_long"
    "send_too_long_multi"
    "recv_bad_lkey"
    "error_after_good"
    "lost_middle_requester"
    "lost_middle_responder"
    "lost_many_requester"
    "lost_many_responder"
    "lost_only_twice_requester"
    "lost_only_twice_responder"
    "lost_ack_then_next_requester"
    "lost_ack_then_next_responder"
    "lost_ack_timeout_requester"
    "lost_ack_timeout_responder"
    "lost_atomic_ack_requester"
    "lost_atomic_ack_responder"
    "lost_read_middle_requester"
    "lost_read_middle_responder"
    "lost_read_request_requester"
    "lost_read_request_responder"
    "lost_read_then_send_acks_requester"
    "lost_read_then_send_acks_responder"
    "unanswered_requester"
    "unanswered_responder"
    "retry_exhausted_requester"
    "dup_answers_requester"
    "read_retry_only_requester"
    "read_retry_first_requester"
    "nak_seq_spurious_requester"
    "ack_for_unsent_requester"
    "ack_of_the_past_requester"
    "ack_wrong_msn_requester"
    "nak_remote_op_requester"
    "rd_atomic_limit_requester"
    "fence_requester"
    "lost_last_responder"
    "swapped_responder"
    "lost_read_first_responder"
    "lost_nak_responder"
    "late_request_responder"
    "dup_requests_responder"
    "dup_old_responder"
    "dup_before_read_responder"
    "dup_atomic_forgotten_responder"
    "forged_last_without_first_responder"
    "forged_middle_without_first_responder"
    "forged_first_in_message_responder"
    "forged_write_in_send_responder"
    "forged_short_first_responder"
    "forged_no_ackreq_responder"
    "forged_misaligned_atomic_responder"
    "long_write_tail"
}

/// The frames of RC's capture of this name.
pub(crate) fn rc_frames(name: &str) -> Vec<Frame> {
    let capture = RC.iter().find(|(it, _)| *it == name);
    frames(capture.unwrap_or_else(|| panic!("no capture {name}")).1)
}

impl Frame {
    /// What the frame's sender makes of a packet: the ICRC covers the IP ID too.
    pub(crate) fn emit(&self, repr: &PacketRepr) -> Vec<u8> {
        let mut bytes = repr.emit(self.source, self.dest);
        let at = bytes.len() - ICRC_BYTES;
        let off = id_difference(self.ip_id, &bytes).to_le_bytes();
        bytes[at..].iter_mut().zip(off).for_each(|(byte, off)| *byte ^= off);
        bytes
    }
}

/// The CRC difference that `ip_id` makes, computed the long way: over all bytes.
pub(crate) fn id_difference(ip_id: u16, packet: &[u8]) -> u32 {
    let crc = |id: [u8; 2]| {
        let mut bytes = vec![0; 8 + 4];
        bytes.extend(id);
        bytes.resize(8 + 20 + 8, 0);
        bytes.extend(&packet[..packet.len() - ICRC_BYTES]);
        let mut crc = towpath_base::crc::Crc32::new();
        crc.update(&bytes);
        crc.value()
    };
    crc(ip_id.to_be_bytes()) ^ crc([0, 0])
}

/// The RoCEv2 frames of a little-endian Ethernet capture.
pub(crate) fn frames(capture: &[u8]) -> Vec<Frame> {
    let mut rest = &capture[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let time_us = u64::from(word(0)) * 1_000_000 + u64::from(word(4));
        let len = word(8) as usize;
        frames.push(frame(time_us, &rest[16..16 + len]));
        rest = &rest[16 + len..];
    }
    frames
}

fn frame(time_us: u64, ethernet: &[u8]) -> Frame {
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
        time_us,
        source: SocketAddr::new(source, be16(udp)),
        dest: SocketAddr::new(dest, be16(udp + 2)),
        ip_id,
        packet: ip[udp + 8..end].to_vec(),
    }
}
