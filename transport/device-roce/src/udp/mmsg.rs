//! `sendmmsg` and `recvmmsg` with their headers, addresses and control messages.
//!
//! A [`SendBatch`] is filled through a [`Fill`], which borrows every piece until it is gone; a
//! [`RecvBatch`] owns its buffers. Both allocate when made and never again.
//!
//! Calls for one message are made without the wrappers of the C library, which turn cancellation
//! of the thread on and off around each: no thread of ours is cancelled, and these never block.
#![allow(unsafe_code)]

use super::limits::{RECV_BUFFER_BYTES, RECV_MESSAGES_MAX, SEND_IOVECS_MAX, SEND_MESSAGES_MAX};
use super::sys::{self, tclass_option};
use core::marker::PhantomData;
use core::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use core::ptr::with_exposed_provenance_mut;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// An address as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    /// The address and its length.
    pub(super) fn of(addr: SocketAddr) -> (Self, libc::socklen_t) {
        match addr {
            SocketAddr::V4(addr) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (Self { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(addr) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                };
                (Self { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address, where it is of a family that a UDP socket has.
    fn addr(&self) -> Option<SocketAddr> {
        // SAFETY: every byte of a `Name` is initialised, and any bytes are a `sockaddr_in`.
        let v4 = unsafe { self.v4 };
        // SAFETY: as above, for `sockaddr_in6`.
        let v6 = unsafe { self.v6 };
        match i32::from(v4.sin_family) {
            libc::AF_INET => {
                let ip = v4.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddrV4::new(ip.into(), u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let ip = v6.sin6_addr.s6_addr.into();
                let port = u16::from_be(v6.sin6_port);
                // Peers are known by their HELLOs, which name no interface of ours: the socket is
                // bound to that of its own address.
                Some(SocketAddrV6::new(ip, port, 0, 0).into())
            }
            _ => None,
        }
    }
}

/// One control message with room for an `int`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: libc::cmsghdr,
    value: [u8; size_of::<usize>()],
}

impl Control {
    fn new<const N: usize>(level: i32, kind: i32, bytes: [u8; N]) -> Self {
        const { assert!(N <= size_of::<usize>()) };
        let mut value = [0; size_of::<usize>()];
        value[..N].copy_from_slice(&bytes);
        let cmsg_len = size_of::<libc::cmsghdr>() + N;
        let header = libc::cmsghdr { cmsg_len: cmsg_len as _, cmsg_level: level, cmsg_type: kind };
        Self { header, value }
    }
}

/// Control messages of one send: the segment size, the traffic class and the question for a stamp.
const SEND_CONTROLS_MAX: usize = 3;

/// What a socket gives packets by itself, so that it is not said with each.
#[derive(Clone, Copy, Default)]
pub(super) struct Usual {
    pub(super) tclass: u8,
    /// Where the socket is connected to.
    pub(super) dest: Option<SocketAddr>,
}

/// Room for one `sendmmsg`.
pub(super) struct SendBatch {
    headers: Vec<libc::mmsghdr>,
    names: Vec<Name>,
    controls: Vec<[Control; SEND_CONTROLS_MAX]>,
    iovecs: Vec<libc::iovec>,
}

// SAFETY: the pointers in `headers` and `iovecs` lead into the batch's own heap blocks, or are
// left over from a `Fill` that is gone and are overwritten before the next use.
unsafe impl Send for SendBatch {}

impl SendBatch {
    pub(super) fn new() -> Self {
        // SAFETY: a header of null pointers and zero lengths is a value, and is what we mean.
        let empty: libc::mmsghdr = unsafe { zeroed() };
        let no_control = Control::new(0, 0, [0; 4]);
        let no_iovec = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![empty; SEND_MESSAGES_MAX],
            names: vec![
                Name::of((core::net::Ipv6Addr::UNSPECIFIED, 0).into()).0;
                SEND_MESSAGES_MAX
            ],
            controls: vec![[no_control; SEND_CONTROLS_MAX]; SEND_MESSAGES_MAX],
            iovecs: vec![no_iovec; SEND_IOVECS_MAX],
        }
    }

    /// Starts over, for a socket that gives packets what is `usual`.
    pub(super) fn fill<'a>(&mut self, usual: Usual) -> Fill<'_, 'a> {
        Fill {
            batch: self,
            usual,
            messages: 0,
            iovecs: 0,
            message_iovec: 0,
            piece_end: core::ptr::null(),
            pieces: PhantomData,
        }
    }
}

/// A batch being filled and sent; the pieces live as long as it does.
pub(super) struct Fill<'b, 'a> {
    batch: &'b mut SendBatch,
    usual: Usual,
    messages: usize,
    iovecs: usize,
    /// The first entry of the message under way.
    message_iovec: usize,
    /// Behind the last piece of the message under way; null before its first.
    piece_end: *const u8,
    pieces: PhantomData<&'a [u8]>,
}

impl<'a> Fill<'_, 'a> {
    /// Whether another message can be begun.
    pub(super) fn has_message_room(&self) -> bool {
        self.messages < SEND_MESSAGES_MAX
    }

    /// Whether a packet of so many pieces can be added to the message under way: each takes an
    /// entry at most.
    pub(super) fn has_room(&self, parts: usize) -> bool {
        self.iovecs + parts <= SEND_IOVECS_MAX
    }

    /// Adds a piece to the message under way. There must be room.
    ///
    /// What lies right behind the piece before it takes no entry of its own: the kernel copies one
    /// entry after the other, and a device that writes its packets one behind the other has whole
    /// runs in one.
    pub(super) fn push(&mut self, part: &'a [u8]) {
        let (start, len) = (part.as_ptr(), part.len());
        start.expose_provenance();
        if start == self.piece_end {
            self.batch.iovecs[self.iovecs - 1].iov_len += len;
        } else {
            // Exposed, as are all pieces: the entry may come to hold those behind it, too.
            let iov_base = with_exposed_provenance_mut(start.addr());
            self.batch.iovecs[self.iovecs] = libc::iovec { iov_base, iov_len: len };
            self.iovecs += 1;
        }
        self.piece_end = start.wrapping_add(len);
    }

    /// Ends the message under way; `segment` is the packet size to cut it by.
    pub(super) fn end(&mut self, dest: SocketAddr, tclass: u8, segment: Option<u16>) {
        let index = self.messages;
        let (name, name_len) = if self.usual.dest == Some(dest) {
            (core::ptr::null_mut(), 0)
        } else {
            let (name, len) = Name::of(dest);
            self.batch.names[index] = name;
            (self.batch.names.as_mut_ptr().wrapping_add(index), len)
        };
        let controls = &mut self.batch.controls[index];
        let mut count = 0;
        if let Some(bytes) = segment {
            controls[count] = Control::new(libc::SOL_UDP, libc::UDP_SEGMENT, bytes.to_ne_bytes());
            count += 1;
        }
        if tclass != self.usual.tclass {
            let (level, kind) = tclass_option(dest);
            controls[count] = Control::new(level, kind, i32::from(tclass).to_ne_bytes());
            count += 1;
        }
        let iovecs = self.batch.iovecs.as_mut_ptr().wrapping_add(self.message_iovec);
        let control = if count == 0 {
            core::ptr::null_mut()
        } else {
            self.batch.controls.as_mut_ptr().wrapping_add(index).cast()
        };
        let header = &mut self.batch.headers[index].msg_hdr;
        header.msg_name = name.cast();
        header.msg_namelen = name_len;
        header.msg_iov = iovecs;
        header.msg_iovlen = (self.iovecs - self.message_iovec) as _;
        header.msg_control = control;
        header.msg_controllen = (count * size_of::<Control>()) as _;
        self.messages += 1;
        self.message_iovec = self.iovecs;
        self.piece_end = core::ptr::null();
    }

    /// Asks for a stamp of when the message leaves that was ended last: that of a `card`, if there
    /// is one, and then the kernel gives none of its own.
    #[cold]
    pub(super) fn stamp_last(&mut self, card: bool) {
        let Some(index) = self.messages.checked_sub(1) else { return };
        let header = &mut self.batch.headers[index].msg_hdr;
        let count = header.msg_controllen / size_of::<Control>();
        let of_card = if card { libc::SOF_TIMESTAMPING_TX_HARDWARE } else { 0 };
        let asked = (libc::SOF_TIMESTAMPING_TX_SOFTWARE | of_card).to_ne_bytes();
        let controls = &mut self.batch.controls[index];
        controls[count] = Control::new(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, asked);
        header.msg_control = self.batch.controls.as_mut_ptr().wrapping_add(index).cast();
        header.msg_controllen = ((count + 1) * size_of::<Control>()) as _;
    }

    /// Sends the messages from `first` on; says how many the kernel took, at least one.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, first: usize) -> io::Result<usize> {
        let headers = &mut self.batch.headers[first..self.messages];
        if let [only] = headers {
            // Calls that do less around one message: that is what latency is made of.
            let (fd, flags, message) = (fd.as_raw_fd(), libc::MSG_DONTWAIT, &only.msg_hdr);
            let rc = if message.msg_iovlen == 1 && message.msg_controllen == 0 {
                let (name, name_len) = (message.msg_name, message.msg_namelen);
                // SAFETY: as below; its one entry is in the batch.
                unsafe {
                    let libc::iovec { iov_base, iov_len } = *message.msg_iov;
                    libc::syscall(libc::SYS_sendto, fd, iov_base, iov_len, flags, name, name_len)
                }
            } else {
                // SAFETY: as below.
                unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const *message, flags) }
            };
            return if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(1) };
        }
        // SAFETY: each header points to a name, controls and entries of this batch, written by
        // `end`; the entries hold pieces that live for 'a, which outlasts self.
        let rc = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as _,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(rc).map_err(|_| io::Error::last_os_error())
    }
}

/// Control bytes of one received datagram: coalesced size, a time stamp and the traffic class need
/// 80.
type RecvControl = [u64; 16];

/// A received datagram.
pub(super) struct Datagram<'a> {
    /// The bytes.
    pub(super) bytes: &'a [u8],
    /// The sender, unless of an unknown family.
    pub(super) source: Option<SocketAddr>,
    /// The size that a coalesced run is to be cut by.
    pub(super) segment: Option<usize>,
    /// IPv4 ToS or IPv6 traffic class, where the kernel says it.
    pub(super) tclass: Option<u8>,
    /// The kernel's time stamp on its wall clock.
    pub(super) wall_ns: Option<u64>,
    /// The network card's on its own.
    pub(super) card_ns: Option<u64>,
    /// The kernel cut off bytes or control messages.
    pub(super) truncated: bool,
}

/// Room for one `recvmmsg`.
pub(super) struct RecvBatch {
    headers: Vec<libc::mmsghdr>,
    names: Vec<Name>,
    controls: Vec<RecvControl>,
    /// Kept because `headers` points into it.
    _iovecs: Vec<libc::iovec>,
    buffers: Vec<u8>,
    received: usize,
}

// SAFETY: the pointers in `headers` and `_iovecs` lead only into the batch's own heap blocks.
unsafe impl Send for RecvBatch {}

impl RecvBatch {
    pub(super) fn new() -> Self {
        let mut buffers = vec![0_u8; RECV_MESSAGES_MAX * RECV_BUFFER_BYTES];
        let mut names =
            vec![Name::of((core::net::Ipv6Addr::UNSPECIFIED, 0).into()).0; RECV_MESSAGES_MAX];
        let mut controls: Vec<RecvControl> = vec![[0; 16]; RECV_MESSAGES_MAX];
        let base = buffers.as_mut_ptr();
        let mut iovecs: Vec<libc::iovec> = (0..RECV_MESSAGES_MAX)
            .map(|slot| libc::iovec {
                iov_base: base.wrapping_add(slot * RECV_BUFFER_BYTES).cast(),
                iov_len: RECV_BUFFER_BYTES,
            })
            .collect();
        let headers = (0..RECV_MESSAGES_MAX)
            .map(|slot| {
                // SAFETY: a header of null pointers and zero lengths is a value.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_name = names.as_mut_ptr().wrapping_add(slot).cast();
                header.msg_hdr.msg_iov = iovecs.as_mut_ptr().wrapping_add(slot);
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = controls.as_mut_ptr().wrapping_add(slot).cast();
                header
            })
            .collect();
        Self { headers, names, controls, _iovecs: iovecs, buffers, received: 0 }
    }

    /// Receives up to `limit` datagrams in place of those held; says how many.
    pub(super) fn recv(&mut self, fd: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
        self.received = 0;
        let limit = limit.min(RECV_MESSAGES_MAX);
        for header in &mut self.headers[..limit] {
            header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = size_of::<RecvControl>() as _;
            header.msg_hdr.msg_flags = 0;
        }
        if limit == 1 {
            let only = &mut self.headers[0];
            let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT);
            // SAFETY: as below.
            let rc = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut only.msg_hdr, flags) };
            only.msg_len = u32::try_from(rc).map_err(|_| io::Error::last_os_error())?;
            self.received = 1;
            return Ok(1);
        }
        // SAFETY: every header points to a name, an entry and controls of its own slot, and every
        // entry to its own buffer; all of them are owned by self and stay where they are.
        let rc = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                limit as _,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        };
        self.received = usize::try_from(rc).map_err(|_| io::Error::last_os_error())?;
        Ok(self.received)
    }

    /// Receives one datagram in place of those held, by the shortest call that tells its sender:
    /// what the kernel would tell beside is not asked for. No datagram is too long for its place.
    #[inline]
    pub(super) fn recv_plain(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        let only = &mut self.headers[0];
        (only.msg_hdr.msg_controllen, only.msg_hdr.msg_flags) = (0, 0);
        let bytes = &mut self.buffers[..RECV_BUFFER_BYTES];
        only.msg_len = sys::recv_from(fd, bytes, &mut self.names[0])? as u32;
        self.received = 1;
        Ok(1)
    }

    /// Bytes of the first datagram that is held.
    pub(super) fn first_bytes(&self) -> usize {
        self.headers[0].msg_len as usize
    }

    /// How many datagrams are held.
    pub(super) fn len(&self) -> usize {
        self.received
    }

    /// The datagram, where it is the only one and the kernel told nothing beside its bytes and its
    /// sender: one packet, of which nothing was cut off.
    #[inline]
    pub(super) fn plain(&self) -> Option<(&[u8], SocketAddr)> {
        let header = &self.headers[0];
        let told = header.msg_hdr.msg_controllen == 0 && header.msg_hdr.msg_flags == 0;
        if self.received != 1 || !told {
            return None;
        }
        let bytes = self.buffers.get(..header.msg_len as usize)?;
        Some((bytes, self.names[0].addr()?))
    }

    /// The datagram in `slot`, which is below [`len`](Self::len).
    pub(super) fn datagram(&self, slot: usize) -> Datagram<'_> {
        assert!(slot < self.received, "only received slots are read");
        let header = &self.headers[slot];
        let len = (header.msg_len as usize).min(RECV_BUFFER_BYTES);
        let start = slot * RECV_BUFFER_BYTES;
        let cut = libc::MSG_TRUNC | libc::MSG_CTRUNC;
        let mut datagram = Datagram {
            bytes: &self.buffers[start..start + len],
            source: self.names[slot].addr(),
            segment: None,
            tclass: None,
            wall_ns: None,
            card_ns: None,
            truncated: header.msg_hdr.msg_flags & cut != 0,
        };
        self.read_controls(slot, &mut datagram);
        datagram
    }

    fn read_controls(&self, slot: usize, datagram: &mut Datagram<'_>) {
        let len = self.headers[slot].msg_hdr.msg_controllen;
        each_control(&self.controls[slot], len, |header, value| {
            note_control(header, value, datagram);
        });
    }
}

/// Hands each control message of those on to `note`, which take `len` bytes of `words`.
#[inline(always)]
pub(super) fn each_control(words: &[u64], len: usize, mut note: impl FnMut(&libc::cmsghdr, &[u8])) {
    let mut left = len.min(size_of_val(words));
    let head = size_of::<libc::cmsghdr>();
    let mut at = words.as_ptr().cast::<u8>();
    while left >= head {
        // SAFETY: `left` says that a whole header lies at `at`, within `words`.
        let header = unsafe { at.cast::<libc::cmsghdr>().read_unaligned() };
        let len = header.cmsg_len;
        if len < head || len > left {
            return;
        }
        // SAFETY: the `len` bytes at `at` lie within `words` and are initialised.
        let value = unsafe { core::slice::from_raw_parts(at.add(head), len - head) };
        note(&header, value);
        let step = len.next_multiple_of(size_of::<usize>()).min(left);
        at = at.wrapping_add(step);
        left -= step;
    }
}

/// The kernel's stamp, and the card's: the first and the third of three, or one alone.
pub(super) fn stamps_of(value: &[u8]) -> (Option<u64>, Option<u64>) {
    let card = value.get(2 * size_of::<libc::timespec>()..);
    (timespec_ns(value), card.and_then(timespec_ns))
}

/// A `timespec` as nanoseconds; none where it says nothing.
fn timespec_ns(value: &[u8]) -> Option<u64> {
    let (seconds, nanos) = value.split_at_checked(size_of::<libc::time_t>())?;
    let ns = signed(seconds)?.wrapping_mul(1_000_000_000).wrapping_add(signed(nanos)?);
    Some(ns).filter(|&ns| ns > 0)
}

/// Takes what a received control message says.
fn note_control(header: &libc::cmsghdr, value: &[u8], datagram: &mut Datagram<'_>) {
    let int = value.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes));
    match (header.cmsg_level, header.cmsg_type) {
        (libc::SOL_UDP, libc::UDP_GRO) => datagram.segment = int.map(|bytes| bytes as usize),
        // One byte on IPv4, an int on IPv6.
        (libc::IPPROTO_IP, libc::IP_TOS) => datagram.tclass = value.first().copied(),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => datagram.tclass = int.map(|class| class as u8),
        // The latter has that of the card behind it.
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS | libc::SCM_TIMESTAMPING) => {
            (datagram.wall_ns, datagram.card_ns) = stamps_of(value);
        }
        _ => {}
    }
}

/// A C `long` that is not negative.
fn signed(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.first_chunk::<{ size_of::<libc::c_long>() }>()?;
    u64::try_from(libc::c_long::from_ne_bytes(*bytes)).ok()
}
