//! The set-up connection of a link: it shows that the peer is there, and carries a path as the last
//! resort (docs/protocol.md section 8).
//!
//! | file | what it does |
//! |---|---|
//! | `frames` | chunks and acks out of and into a stream of bytes, every length checked |
//!
//! `endpoint/streams.rs` reads and writes them in each turn.

mod frames;

pub(crate) use frames::{Frames, FramesError};

use std::io::{Read, Write};
use towpath_base::{Nanos, Time};
use towpath_proto::PathId;

use crate::limits::{NO_NEWS_POLL_NS, TCP_LOOKS_BEFORE_REST, TCP_POLL_LONGEST_NS, TCP_POLL_NS};

/// A stream of bytes that does not block, as a set-up connection is: what the last resort rides on.
/// Reading and writing say [`WouldBlock`](std::io::ErrorKind::WouldBlock) where they would have to
/// wait, and reading nothing at all says that the peer has closed it.
pub trait ByteStream: Read + Write + Send {}

impl<S: Read + Write + Send> ByteStream for S {}

/// The stream of one link.
pub(crate) struct Tcp {
    /// Which of its paths it is; of none it is a sign of life alone.
    pub(crate) path: Option<PathId>,
    pub(crate) frames: Frames<Box<dyn ByteStream>>,
    /// Looks in a row at which nothing had come.
    quiet_looks: u32,
    /// What comes is told of.
    is_told: bool,
    pub(crate) due: Time,
}

impl Tcp {
    pub(crate) fn new(
        path: Option<PathId>,
        frames: Frames<Box<dyn ByteStream>>,
        is_told: bool,
        now: Time,
    ) -> Self {
        Self { path, frames, quiet_looks: 0, is_told, due: now }
    }

    /// Something came.
    pub(crate) fn hurry(&mut self, now: Time) {
        (self.quiet_looks, self.due) = (0, now);
    }

    /// Writes what was pushed in this turn; an answer may come soon. What goes wrong is met again,
    /// and told of, when the stream is looked at.
    pub(crate) fn write_out(&mut self, now: Time) {
        if !self.frames.is_drained() {
            let _ = self.frames.write();
            self.look_again(now, true);
        }
    }

    /// When it is looked at next: soon after something came or while something waits to be
    /// written, later and later in silence, and seldom where what comes is told of. (What has come
    /// and found no buffer is told of no second time.)
    pub(crate) fn look_again(&mut self, now: Time, came: bool) {
        self.quiet_looks = if came { 0 } else { self.quiet_looks.saturating_add(1) };
        if self.quiet_looks > TCP_LOOKS_BEFORE_REST && self.frames.is_idle() {
            self.frames.rest();
            if self.is_told {
                self.due = now + Nanos(NO_NEWS_POLL_NS);
                return;
            }
        }
        let doublings = if self.frames.is_drained() { self.quiet_looks / 16 } else { 0 };
        let span = Nanos(TCP_POLL_NS).saturating_mul(1 << doublings.min(16));
        self.due = now + span.min(Nanos(TCP_POLL_LONGEST_NS));
    }
}
