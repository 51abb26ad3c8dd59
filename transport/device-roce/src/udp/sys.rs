//! Socket options and poll: the calls that std does not have.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sets an `int` option.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives through the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that is `N` ints long.
fn options<const N: usize>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<[u32; N]> {
    let mut value = [0_u32; N];
    let mut len = size_of::<[u32; N]>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, and the kernel writes at most `len` bytes.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Reads an `int` option.
pub(super) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    options::<1>(fd, level, name).map(|[value]| value)
}

/// What the kernel holds for a socket's receive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveMemory {
    /// Bytes charged now.
    pub(super) charged_bytes: u32,
    /// Packets dropped since the socket was opened, modulo 2^32.
    pub(super) drops: u32,
}

/// Reads `SO_MEMINFO`.
pub(super) fn receive_memory(fd: BorrowedFd<'_>) -> io::Result<ReceiveMemory> {
    // The order of `SK_MEMINFO_*`: rmem_alloc first, drops ninth.
    const WORDS: usize = 9;
    let words: [u32; WORDS] = options(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(ReceiveMemory { charged_bytes: words[0], drops: words[WORDS - 1] })
}

/// Waits until one of `fds` is readable or `timeout` has passed; says of each whether it is.
pub(super) fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Duration,
) -> [bool; N] {
    let poll =
        |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polls = fds.map(poll);
    // SAFETY: `timespec` is plain integers, for which all zeros is a value.
    let mut limit: libc::timespec = unsafe { zeroed() };
    limit.tv_sec = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
    limit.tv_nsec = timeout.subsec_nanos() as _;
    // SAFETY: `N` entries and one timespec, all alive through the call; no signal mask.
    let rc = unsafe { libc::ppoll(polls.as_mut_ptr(), N as _, &raw const limit, std::ptr::null()) };
    polls.map(|poll| rc > 0 && poll.revents & libc::POLLIN != 0)
}
