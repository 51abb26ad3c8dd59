//! Whether the kernel hands runs of packets on in one piece, and when it is better not to.

use super::limits::LONE_PACKETS;
use super::sys;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// How runs come in.
///
/// What cuts a run up again comes beside its bytes, so all that may be a run has to be asked for
/// with what the kernel tells beside. While only short packets come, each alone, it is told to cut
/// runs itself: then every datagram is a packet, and the shortest call that tells its sender does.
/// The first packet that is long, or not alone, ends that.
///
/// Until that packet is looked at, each packet of a run is charged to the receive buffer by itself:
/// [`UdpLink`](super::UdpLink) says what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coalescing {
    /// As it was set up: each datagram is asked for with what is told beside it anyway.
    Fixed,
    /// In pieces: the kernel cannot do otherwise, or was not asked to.
    Off,
    /// In one piece. So many short packets in a row have come alone.
    On(u32),
    /// In pieces for the time being.
    Paused,
}

impl Coalescing {
    /// Of a socket that does it, or does not; `with_times` where datagrams bear the kernel's.
    pub(super) fn new(on: bool, with_times: bool) -> Self {
        match (with_times, on) {
            (true, _) => Self::Fixed,
            (false, true) => Self::On(0),
            (false, false) => Self::Off,
        }
    }

    /// Whether each datagram is a packet, of which nothing but its bytes and its sender is told
    /// that one would need.
    #[inline]
    pub(super) fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::Paused)
    }

    /// Takes in that something came: a short packet and nothing else, or more.
    #[inline]
    pub(super) fn note(&mut self, socket: &UdpSocket, is_lone: bool) {
        match *self {
            Self::On(lone) if is_lone && lone + 1 < LONE_PACKETS => *self = Self::On(lone + 1),
            Self::On(_) if is_lone => self.pause(socket),
            Self::On(_) => *self = Self::On(0),
            Self::Paused if !is_lone => self.resume(socket),
            _ => {}
        }
    }

    /// From now on all stays as it was set up.
    pub(super) fn fix(&mut self, socket: &UdpSocket) {
        if *self == Self::Paused {
            self.resume(socket);
        }
        *self = Self::Fixed;
    }

    /// What is queued by then may be a run, whose cut the kernel would keep to itself: then not
    /// now. One that is between the kernel's test and its queue just then is not seen here; it
    /// comes as one packet, which is unsound, and its packets are lost, as on any wire some are.
    #[cold]
    fn pause(&mut self, socket: &UdpSocket) {
        *self = Self::On(0);
        if sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 0).is_ok() {
            *self = Self::Paused;
            if sys::wait_readable([socket.as_raw_fd()], Duration::ZERO) == [true] {
                self.resume(socket);
            }
        }
    }

    #[cold]
    fn resume(&mut self, socket: &UdpSocket) {
        let resumed = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
        *self = if resumed.is_ok() { Self::On(0) } else { Self::Off };
    }
}
