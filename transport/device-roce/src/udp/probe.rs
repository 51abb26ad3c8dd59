//! What this kernel grants and charges, found out on a pair of sockets that nobody else uses.
//!
//! Kernel 6.18 charges a receiver, over loopback, per message of `n` bytes:
//!
//! | sent as                               | charged beyond `n`            |
//! |---------------------------------------|-------------------------------|
//! | run of 15 x 4,112, 128 x 144, 16 x 64 | 832                           |
//! | one packet, as a run of one           | 832                           |
//! | one packet up to 192, linear          | 832 - `n` + its header room   |
//! | one packet of 1,040 / 2,064, linear   | 1,264 / 2,288                 |
//! | one packet of 3,900 / 4,112, linear   | 4,548 / 4,336                 |
//! | any run, receiver does not coalesce   | 832 for each packet           |
//!
//! It drops what would pass `SO_RCVBUF`, but lets go of read messages late: up to a quarter of
//! the buffer stays charged while others wait. So three quarters are sound to fill.

use super::limits::{
    LINEAR_BYTES_MAX, RX_CHARGE_BYTES_DEFAULT, RX_CHARGE_BYTES_MIN, RX_CHARGE_LINEAR_BYTES,
    RX_SPLIT_PACKETS, SEGMENTS_MAX, SEGMENTS_OLD_MAX,
};
use super::mmsg::{SendBatch, Usual};
use super::sys;
use core::net::SocketAddr;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    /// Segments of one send; 0 where the kernel has no segmentation offload.
    pub(super) segments_max: usize,
    /// Bytes charged beyond those of a message that is sent as a run.
    pub(super) paged_charge_bytes: u32,
    /// Bytes charged beyond those of a packet that is sent plainly, up to 4 KiB and headers.
    pub(super) linear_charge_bytes: u32,
}

impl Probe {
    /// A kernel without offload, of which nothing could be measured.
    const UNKNOWN: Self = Self {
        segments_max: 0,
        paged_charge_bytes: RX_CHARGE_BYTES_DEFAULT,
        linear_charge_bytes: RX_CHARGE_LINEAR_BYTES,
    };

    /// Asks the kernel, by packets to itself on `local`'s IP.
    pub(super) fn run(local: SocketAddr, batch: &mut SendBatch) -> Self {
        let mut any_port = local;
        any_port.set_port(0);
        let (Ok(tx), Ok(rx)) = (UdpSocket::bind(any_port), UdpSocket::bind(any_port)) else {
            return Self::UNKNOWN;
        };
        let Ok(dest) = rx.local_addr() else { return Self::UNKNOWN };
        // Without coalescing a run is charged by the packet, which is not what is measured here.
        let coalescing = sys::set_option(rx.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        let mut trial = Trial { tx, rx, dest, batch };
        let segments_max = [SEGMENTS_MAX, SEGMENTS_OLD_MAX]
            .into_iter()
            .find(|&count| trial.send(count, Some(1)))
            .unwrap_or(0);
        let paged = [(4_112, 4_112), (300, 300), (4 * 4_112, 4_112)]
            .map(|(bytes, segment)| trial.charge(bytes, Some(segment)));
        let linear = [(LINEAR_BYTES_MAX, None), (3_900, None), (4_112, None)]
            .map(|(bytes, segment)| trial.charge(bytes, segment));
        Self {
            segments_max,
            paged_charge_bytes: if segments_max > 0 && coalescing {
                worst(&paged, RX_CHARGE_BYTES_DEFAULT).max(RX_CHARGE_BYTES_MIN)
            } else {
                RX_CHARGE_BYTES_DEFAULT
            },
            linear_charge_bytes: worst(&linear, 0).max(RX_CHARGE_LINEAR_BYTES),
        }
    }

    /// What each message is charged beyond its bytes, where both ends are set up as this one.
    pub(super) fn rx_charge_bytes(&self, segmentation: bool, coalescing: bool) -> u32 {
        match (segmentation, coalescing) {
            (false, _) => self.linear_charge_bytes,
            (true, true) => self.paged_charge_bytes,
            (true, false) => self.paged_charge_bytes * RX_SPLIT_PACKETS,
        }
    }
}

/// What of a granted `SO_RCVBUF` may be filled, in bytes of messages and their charge.
pub(super) fn rx_buffer_bytes(granted_bytes: u32, local: SocketAddr) -> u64 {
    let sound = u64::from(granted_bytes) / 4 * 3;
    // A NIC's driver charges whole buffers, up to twice the bytes that came in.
    if local.ip().is_loopback() { sound } else { sound / 2 }
}

/// The largest of `charges`, or `default` where one could not be measured.
fn worst(charges: &[Option<u32>], default: u32) -> u32 {
    charges.iter().map(|charge| charge.unwrap_or(default)).max().unwrap_or(default)
}

struct Trial<'b> {
    tx: UdpSocket,
    rx: UdpSocket,
    dest: SocketAddr,
    batch: &'b mut SendBatch,
}

impl Trial<'_> {
    /// Sends `bytes` bytes; says whether the kernel took them.
    fn send(&mut self, bytes: usize, segment: Option<u16>) -> bool {
        let payload = vec![0_u8; bytes];
        let mut fill = self.batch.fill(Usual::default());
        fill.push(&payload);
        fill.end(self.dest, 0, segment);
        let sent = fill.send(self.tx.as_fd(), 0).is_ok();
        if sent {
            self.drain();
        }
        sent
    }

    /// What a message is charged beyond its bytes.
    fn charge(&mut self, bytes: usize, segment: Option<u16>) -> Option<u32> {
        let payload = vec![0_u8; bytes];
        let mut fill = self.batch.fill(Usual::default());
        fill.push(&payload);
        fill.end(self.dest, 0, segment);
        fill.send(self.tx.as_fd(), 0).ok()?;
        // Loopback delivers within the send, as a rule; a loaded system may take a little longer.
        sys::wait_readable([self.rx.as_raw_fd()], Duration::from_millis(20));
        let held = sys::receive_memory(self.rx.as_fd()).ok()?.charged_bytes;
        self.drain();
        held.checked_sub(u32::try_from(bytes).ok()?)
    }

    fn drain(&self) {
        sys::wait_readable([self.rx.as_raw_fd()], Duration::from_millis(20));
        let mut byte = [0_u8; 1];
        while sys::wait_readable([self.rx.as_raw_fd()], Duration::ZERO) == [true] {
            if self.rx.recv(&mut byte).is_err() {
                return;
            }
        }
    }
}
