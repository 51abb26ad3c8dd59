//! A call of a client that is under way: when it was sent, how often, and what is next.

use super::TransportError;
use super::patience::ClientConfig;
use std::time::{Duration, Instant};

/// Another connection is tried at once where the first one of a call fails, after the least pause
/// where that one fails as well, and so on; the pause is doubled up to the most.
const RENEW_PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// A request that has no reply yet.
#[derive(Debug)]
pub(super) struct Call {
    /// When it fails without.
    pub(super) end: Instant,
    /// How often it was sent.
    pub(super) tries: u32,
    /// Of these so many one after the other on this connection, without any reply.
    pub(super) silent: u32,
    /// When it was sent last; none where it is to be sent.
    pub(super) sent: Option<Instant>,
    /// How long a reply to that is still waited for.
    pub(super) left: Duration,
    /// When that is over, or it is to be sent.
    pub(super) until: Instant,
    /// The time before another connection is tried once more.
    pub(super) pause: Duration,
    /// Why the last one failed, or could not be made.
    pub(super) failed: Option<TransportError>,
    /// The greeting is sent, and the request after its reply.
    pub(super) greets: bool,
    /// The client has another number since the call began.
    pub(super) is_renumbered: bool,
}

impl Call {
    pub(super) fn new(begin: Instant, config: &ClientConfig) -> Self {
        let (tries, silent, sent, left) = (0, 0, None, Duration::ZERO);
        let (end, until, pause) = (begin + config.timeout, begin, Duration::ZERO);
        let (greets, is_renumbered) = (false, false);
        Self { end, tries, silent, sent, left, until, pause, failed: None, greets, is_renumbered }
    }

    /// Another request is sent, at once.
    pub(super) fn begin_anew(&mut self, greets: bool) {
        (self.greets, self.tries, self.sent) = (greets, 0, None);
        self.until = Instant::now();
    }

    /// Another connection is tried after a pause.
    pub(super) fn put_off(&mut self, failed: TransportError) {
        self.until = (Instant::now() + self.pause).min(self.end);
        self.pause = (self.pause * 2).clamp(RENEW_PAUSES[0], RENEW_PAUSES[1]);
        self.failed = Some(failed);
    }
}
