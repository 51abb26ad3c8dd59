//! The error queue of a socket, on which the kernel says when packets left.
#![allow(unsafe_code)]

use super::mmsg::{each_control, stamps_of};
use std::io;
use std::mem::{size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What the error queue of a socket had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TxStamp {
    /// How many stamps the socket was asked for before this one, where it is one of a send.
    pub(super) id: Option<u32>,
    /// When the packet was given to the interface, on the kernel's wall clock.
    pub(super) wall_ns: Option<u64>,
    /// When it left, on the clock of the network card.
    pub(super) card_ns: Option<u64>,
}

/// The kernel's own stamp of a packet that goes to its driver; others are of the packet's place in
/// a queue, and of acknowledgements.
const TSTAMP_SND: u32 = 0;

/// Takes the next entry from the error queue.
pub(super) fn recv_stamp(fd: BorrowedFd<'_>) -> io::Result<TxStamp> {
    // Of a stamp and a `sock_extended_err` with an address of IPv6, 128 bytes, and what else the
    // socket tells.
    let mut words = [0_u64; 32];
    // SAFETY: a header of null pointers and zero lengths is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = words.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&words) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the one pointer leads to `words`, which live through the call, and has their length.
    let rc = unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut message, flags) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut stamp = TxStamp::default();
    each_control(&words, message.msg_controllen, |header, value| {
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                (stamp.wall_ns, stamp.card_ns) = stamps_of(value);
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                stamp.id = id_of(value);
            }
            _ => {}
        }
    });
    Ok(stamp)
}

/// The count in a `sock_extended_err` that comes with a stamp of a send: errno, origin, type, code,
/// a byte, info, data.
fn id_of(value: &[u8]) -> Option<u32> {
    let word = |at: usize| {
        let bytes = value.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let is_stamp = word(0) == Some(libc::ENOMSG as u32)
        && value.get(4) == Some(&libc::SO_EE_ORIGIN_TIMESTAMPING)
        && word(8) == Some(TSTAMP_SND);
    word(12).filter(|_| is_stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel gives beside a stamp: errno, origin, type, code, info and data of a
    /// `sock_extended_err`.
    fn extended(errno: i32, origin: u8, info: u32, data: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&errno.to_ne_bytes());
        bytes[4] = origin;
        bytes[8..12].copy_from_slice(&info.to_ne_bytes());
        bytes[12..].copy_from_slice(&data.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_what_is_a_stamp_of_a_send_has_a_count() {
        let origin = libc::SO_EE_ORIGIN_TIMESTAMPING;
        let stamp = extended(libc::ENOMSG, origin, TSTAMP_SND, u32::MAX);
        assert_eq!(id_of(&stamp), Some(u32::MAX));
        for len in 0..16 {
            assert_eq!(id_of(&stamp[..len]), None, "{len} bytes");
        }
        let others = [
            extended(libc::ECONNREFUSED, origin, TSTAMP_SND, 1),
            extended(libc::ENOMSG, libc::SO_EE_ORIGIN_ICMP, TSTAMP_SND, 1),
            extended(libc::ENOMSG, origin, 1, 1),
        ];
        assert!(others.iter().all(|other| id_of(other).is_none()));
    }

    #[test]
    fn of_three_stamps_the_first_is_the_kernels_and_the_third_the_cards() {
        let words = |values: &[i64]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_ne_bytes()).collect()
        };
        let all = words(&[1, 2, 9, 9, 3, 4]);
        assert_eq!(stamps_of(&all), (Some(1_000_000_002), Some(3_000_000_004)));
        assert_eq!(stamps_of(&all[..16]), (Some(1_000_000_002), None));
        assert_eq!(stamps_of(&words(&[0, 0, 0, 0, 3, 4])), (None, Some(3_000_000_004)));
        assert_eq!(stamps_of(&words(&[-1, 5, 0, 0, 7, -1])), (None, None));
        for len in 0..48 {
            let (wall, card) = stamps_of(&all[..len]);
            assert_eq!((wall.is_some(), card.is_some()), (len >= 16, false), "{len} bytes");
        }
    }

    #[test]
    fn control_messages_of_any_lengths_come_to_an_end_within_themselves() {
        let mut words = [0_u64; 6];
        for len in [0, 1, 15, 16, 17, 40, 48, u64::MAX] {
            (words[0], words[3]) = (len, len);
            for told in [0, 7, 16, 40, 48, usize::MAX] {
                let mut seen = 0;
                each_control(&words, told, |_, value| seen += 16 + value.len());
                assert!(seen <= 48, "{len} of {told}: {seen}");
            }
        }
    }
}
