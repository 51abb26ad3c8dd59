//! Servers of a file that are waited for while it is read.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::PartError;
use crate::layout::Layout;
use crate::servers::Servers;
use crate::state::parts_by_layout;

/// How often it is looked whether servers are there.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// A server that owes an answer for this long is told of, though its link is up: the link of a host
/// that stands still goes down only after 10 s of silence.
pub(crate) const QUIET_TOLD: Duration = Duration::from_secs(3);

/// Since when nothing was read.
pub(crate) struct Quiet {
    since: Instant,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now() }
    }

    /// Nothing goes on without one of these.
    pub(crate) fn look(&self, servers: &Servers, waited_for: impl Iterator<Item = SocketAddr>) {
        if self.since.elapsed() >= QUIET_TOLD {
            waited_for.for_each(|server| servers.tell_away(server));
        }
    }

    /// A read of a server has ended.
    pub(crate) fn heard(&mut self, servers: &Servers, server: SocketAddr, is_answer: bool) {
        if is_answer {
            self.since = Instant::now();
            servers.tell_back(server);
        }
    }
}

impl Servers {
    /// Waits until servers are there again without which too few parts can be read, and says
    /// whether they are: not by `until`, nor where parts are missing for another reason.
    pub(crate) fn wait_for_enough(&self, layout: &Layout, until: Instant) -> bool {
        let enough = layout.policy.enough();
        let mut has_waited = false;
        loop {
            let parts = parts_by_layout(self, layout, enough);
            let there = parts.iter().filter(|part| part.is_ok()).count();
            let nodes = || parts.iter().zip(&layout.nodes);
            if there >= enough {
                let back = nodes().filter(|(part, _)| part.is_ok());
                back.for_each(|(_, node)| self.tell_back(node.server));
                return has_waited;
            }
            let is_away = |error: &PartError| matches!(error, PartError::Gone | PartError::Told(_));
            let away = nodes().filter(|(part, _)| part.as_ref().is_err_and(is_away));
            let away: Vec<SocketAddr> = away.map(|(_, node)| node.server).collect();
            if there + away.len() < enough || Instant::now() >= until {
                return false;
            }
            away.into_iter().for_each(|server| self.tell_away(server));
            has_waited = true;
            std::thread::sleep(LOOK);
        }
    }
}
