//! How long the handlers of requests with data take, where somebody wants to know.

use std::ops::AddAssign;
use std::time::Instant;

use towpath_fastpath::control::HandlerInfo;
use towpath_transport::{Device, Region};

use super::server::ChunkServer;

/// The handlers of a request with data, in the order in which they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Its header is here: it is checked, and begun at those that it is passed on to.
    Header,
    /// A piece of its data is here.
    Payload,
    /// All of it is here: what is left to check is, and the request goes on.
    Completion,
    /// It has ended without that: what was done for it is undone.
    Cleanup,
}

impl Handler {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Header, Self::Payload, Self::Completion, Self::Cleanup];

    /// As a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Completion => "completion",
            Self::Cleanup => "cleanup",
        }
    }
}

/// How often each handler was called, and how long all calls took, in nanoseconds, by
/// [`Handler::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerTimes {
    /// Calls.
    pub calls: [u64; Handler::ALL.len()],
    /// Nanoseconds.
    pub ns: [u64; Handler::ALL.len()],
}

impl HandlerTimes {
    /// For clients that ask.
    pub(super) fn info(&self) -> Vec<HandlerInfo> {
        let of = |(&calls, &ns): (&u64, &u64)| HandlerInfo { calls, ns };
        self.calls.iter().zip(&self.ns).map(of).collect()
    }
}

impl AddAssign for HandlerTimes {
    fn add_assign(&mut self, other: Self) {
        self.calls.iter_mut().zip(other.calls).for_each(|(sum, more)| *sum += more);
        self.ns.iter_mut().zip(other.ns).for_each(|(sum, more)| *sum += more);
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// When a handler begins; none where nobody wants to know how long it takes.
    pub(super) fn handler_begins(&self) -> Option<Instant> {
        self.config.time_handlers.then(Instant::now)
    }

    /// It ends.
    pub(super) fn handler_ends(&mut self, handler: Handler, began: Option<Instant>) {
        let Some(began) = began else { return };
        let times = &mut self.stats.handlers;
        times.calls[handler as usize] += 1;
        times.ns[handler as usize] += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}
