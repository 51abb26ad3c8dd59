//! What an endpoint counts.

use towpath_verbs::{Wc, WcStatus};

/// What an endpoint did beside what its links count; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Receives that completed in error (a message longer than its buffer, say).
    pub recv_errors: u64,
    /// Received messages shorter than a chunk header.
    pub runts: u64,
    /// Chunks of data that came while receive buffers were short and their links held their shares
    /// ([`receive_buffers_max`](crate::EndpointConfig::receive_buffers_max)): what of them takes a
    /// buffer comes again.
    pub over_share: u64,
    /// Sends that completed in error.
    pub send_errors: u64,
    /// How the last send or receive ended of those that completed in error.
    pub last_error: Option<WcStatus>,
    /// Work requests that the device refused.
    pub posts_refused: u64,
    /// Completions of work requests that are not known.
    pub strays: u64,
    /// Links that were never heard of and gave their places to newcomers, all places being taken.
    pub links_gave_way: u64,
    /// Set-up connections that brought what no frame is: their links are down.
    pub tcp_breaches: u64,
    /// Links that were ended because of what came on the channel of their lane, which was nothing
    /// that a lane says.
    pub lane_breaches: u64,
}

impl EndpointStats {
    pub(crate) fn note_send(&mut self, wc: &Wc) {
        self.send_errors += self.note(wc);
    }

    pub(crate) fn note_recv(&mut self, wc: &Wc) {
        self.recv_errors += self.note(wc);
    }

    fn note(&mut self, wc: &Wc) -> u64 {
        if !is_error(wc) {
            return 0;
        }
        self.last_error = Some(wc.status);
        1
    }
}

/// A flush is how destroyed queue pairs give back what was posted: no error.
pub(crate) fn is_error(wc: &Wc) -> bool {
    !matches!(wc.status, WcStatus::Success | WcStatus::WrFlushErr)
}
