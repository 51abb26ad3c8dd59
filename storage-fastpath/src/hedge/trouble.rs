//! A server that had trouble of late is avoided for a while, longer each time.

use towpath_transport::{ConnectError, DownReason, Nanos, Refusal, Time};

/// How often the time doubles at most: from a second to about a minute.
const DOUBLINGS: u32 = 6;

/// A server without trouble for so long after its time is over begins anew.
const MEMORY: Nanos = Nanos::from_secs(60);

/// The recent trouble of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// How often of late: each time doubles the next span.
    times: u32,
    until: Time,
}

impl Trouble {
    /// Notes trouble at `now`: the server is avoided for `span`, or for longer if it had trouble a
    /// short time ago.
    pub(crate) fn note(&mut self, now: Time, span: Nanos) {
        if now >= self.until + MEMORY {
            self.times = 0;
        }
        self.until = now + span.saturating_mul(1 << self.times.min(DOUBLINGS));
        self.times = self.times.saturating_add(1);
    }

    /// Whether the server is to be avoided at `now`.
    pub(crate) fn is_on(&self, now: Time) -> bool {
        now < self.until
    }
}

/// Whether a failure to connect is the server's; what this side could not do is none of it.
pub(crate) fn blames_server(error: &ConnectError) -> bool {
    !matches!(
        error,
        ConnectError::Local { .. }
            | ConnectError::TooMany { .. }
            | ConnectError::Class { .. }
            | ConnectError::App { .. }
            | ConnectError::Handshake { .. }
            | ConnectError::Refused {
                refusal: Refusal::Paths { .. }
                    | Refusal::Fallback { .. }
                    | Refusal::Carrier { .. }
                    | Refusal::Family
                    | Refusal::Open
                    | Refusal::Sealed { .. },
                ..
            }
            | ConnectError::ShutDown
    )
}

/// Whether a link that ended so was lost, and not closed.
pub(crate) fn was_lost(reason: DownReason) -> bool {
    matches!(reason, DownReason::Silent(_) | DownReason::PeerGone | DownReason::PathsFailed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_transport::Class;

    const SPAN: Nanos = Nanos::from_secs(1);

    #[test]
    fn a_server_is_avoided_for_a_time_that_doubles_and_forgotten_when_it_behaves() {
        let (mut trouble, mut now) = (Trouble::default(), Time::ZERO + Nanos::from_secs(5));
        assert!(!trouble.is_on(now), "nothing is known yet");
        let mut spans = Vec::new();
        for _ in 0..9 {
            trouble.note(now, SPAN);
            assert!(trouble.is_on(now));
            spans.push(trouble.until.since(now).0 / SPAN.0);
            now = trouble.until;
            assert!(!trouble.is_on(now), "its time is over");
        }
        assert_eq!(spans, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        trouble.note(now + MEMORY, SPAN);
        assert_eq!(trouble.until, now + MEMORY + SPAN);
    }

    #[test]
    fn a_server_is_blamed_for_what_it_did_and_not_for_what_this_side_asked() {
        let addr = ([10, 0, 0, 1], 7).into();
        let refused = |refusal| ConnectError::Refused { addr, refusal };
        assert!(blames_server(&ConnectError::Timeout { addr, after: SPAN }));
        assert!(blames_server(&ConnectError::Full { addr }));
        assert!(blames_server(&ConnectError::Broken { addr, source: None }));
        assert!(!blames_server(&refused(Refusal::Family)));
        assert!(!blames_server(&ConnectError::Class { addr, class: Class::Copper }));
        assert!(!blames_server(&ConnectError::TooMany { max: 1 }));
        let (theirs, ours) = ("storage/1".parse().unwrap(), "echo/1".parse().unwrap());
        assert!(!blames_server(&ConnectError::App { addr, theirs, ours }));
    }

    #[test]
    fn a_link_that_was_closed_is_no_trouble() {
        assert!(was_lost(DownReason::PeerGone) && was_lost(DownReason::PathsFailed));
        assert!(!was_lost(DownReason::Local) && !was_lost(DownReason::Goodbye));
    }
}
