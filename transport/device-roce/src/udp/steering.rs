//! How packets find their link where several have one port: by the queue pair that they are for.

use super::sys;
use crate::wire::BTH_BYTES;
use std::io;
use std::os::fd::BorrowedFd;
use towpath_verbs::{QpNum, QpShare};

/// How packets come to the link of a group that they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// One link has the port.
    Alone,
    /// The kernel brings them, by the destination queue pair. What it joined that is for several
    /// links they hand over.
    Kernel,
    /// The kernel spreads them by addresses and ports, and the links hand them to each other.
    HandedOver {
        /// Why the kernel does not do it (an errno); none where it was not asked to.
        refused: Option<i32>,
    },
}

/// Where in a packet the destination queue pair stands: the last three bytes of this word.
const DEST_QP_WORD: usize = 4;

const _: () = assert!(DEST_QP_WORD + 4 <= BTH_BYTES);

/// The destination queue pair of a packet; `None` of one that is too short to have any.
#[inline]
pub(super) fn dest_qp(parts: &[&[u8]]) -> Option<QpNum> {
    let word = match parts {
        // The device writes its headers in one piece.
        [first, ..] if first.len() >= DEST_QP_WORD + 4 => {
            first[DEST_QP_WORD..].first_chunk::<4>().copied()
        }
        _ => {
            let mut bytes = parts.iter().copied().flatten().skip(DEST_QP_WORD).copied();
            let mut next = || bytes.next();
            next().and_then(|first| Some([first, next()?, next()?, next()?]))
        }
    };
    word.map(|word| QpNum(u32::from_be_bytes(word) & QpNum::MAX.0))
}

/// Has the kernel choose among the sockets that share a port with `fd`, which were bound in the
/// order of the shares.
///
/// The program sees a datagram from behind its UDP header. One that is too short for the word that
/// is loaded ends the program, which then returns the first socket. A run that was sent as one is
/// looked at once, by its first packet.
pub(super) fn attach(fd: BorrowedFd<'_>, share: QpShare) -> io::Result<()> {
    let step = |code: u32, jump_true, jump_false, k| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    };
    let load = |k| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, k);
    let and = |k| step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, k);
    let at_least = |k, yes, no| step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, yes, no, k);
    // `QpShare::owner_of`, as the kernel reads it: jumps count the instructions that they pass.
    let mut program = [
        load(DEST_QP_WORD as u32),
        and(QpNum::MAX.0),
        at_least(QpNum::MAX.0, 4, 0),
        at_least(2, 0, 3),
        and((1 << share.bits()) - 1),
        at_least(u32::from(share.count()), 1, 0),
        step(libc::BPF_RET | BPF_A, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    sys::choose_by(fd, &mut program)
}

/// Return what was computed, in a `BPF_RET`.
const BPF_A: u32 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_pair_is_read_from_packets_in_pieces_too() {
        let packet: Vec<u8> = (0..20).collect();
        let whole = Some(QpNum(0x05_0607));
        for first in 0..packet.len() {
            for second in first..packet.len() {
                let parts = [&packet[..first], &packet[first..second], &packet[second..]];
                assert_eq!(dest_qp(&parts), whole, "cut at {first} and {second}");
            }
        }
        assert_eq!(dest_qp(&[&packet[..7]]), None);
        assert_eq!(dest_qp(&[]), None);
    }
}
