//! Servers of a file that are waited for while it is read.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::PartError;
use crate::layout::Layout;
use crate::notice::Notice;
use crate::servers::Servers;
use crate::state::parts_by_layout;

/// How often it is looked whether servers are there.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// A server that owes a read for this long is told of.
const QUIET_TOLD: Duration = Duration::from_secs(3);

/// How long nothing was read, and whom that was told of.
pub(crate) struct Quiet {
    since: Instant,
    told: Vec<SocketAddr>,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), told: Vec::new() }
    }

    /// Nothing goes on without one of these.
    pub(crate) fn look(&mut self, servers: &Servers, waited_for: impl Iterator<Item = SocketAddr>) {
        if self.since.elapsed() < QUIET_TOLD {
            return;
        }
        for server in waited_for {
            if !self.told.contains(&server) {
                self.told.push(server);
                servers.tell(&Notice::Away { server });
            }
        }
    }

    /// A read of a server has ended.
    pub(crate) fn heard(&mut self, servers: &Servers, server: SocketAddr, is_answer: bool) {
        if !is_answer {
            return;
        }
        self.since = Instant::now();
        if let Some(at) = self.told.iter().position(|told| *told == server) {
            self.told.swap_remove(at);
            servers.tell(&Notice::Back { server });
        }
    }
}

impl Servers {
    /// Waits until servers are there again without which too few parts can be read, and says
    /// whether they are: not by `until`, nor where parts are missing for another reason.
    pub(crate) fn wait_for_enough(&self, layout: &Layout, until: Instant) -> bool {
        let enough = layout.policy.enough();
        let mut told: Vec<SocketAddr> = Vec::new();
        loop {
            let parts = parts_by_layout(self, layout, enough);
            let there = parts.iter().filter(|part| part.is_ok()).count();
            let is_away = |error: &PartError| matches!(error, PartError::Gone | PartError::Told(_));
            let nodes = || parts.iter().zip(&layout.nodes);
            if there >= enough {
                for (_, node) in nodes().filter(|(part, _)| part.is_ok()) {
                    if told.contains(&node.server) {
                        self.tell(&Notice::Back { server: node.server });
                    }
                }
                return !told.is_empty();
            }
            let away = nodes().filter(|(part, _)| part.as_ref().is_err_and(is_away));
            let away: Vec<SocketAddr> = away.map(|(_, node)| node.server).collect();
            if there + away.len() < enough || Instant::now() >= until {
                return false;
            }
            for server in away {
                if !told.contains(&server) {
                    told.push(server);
                    self.tell(&Notice::Away { server });
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}
