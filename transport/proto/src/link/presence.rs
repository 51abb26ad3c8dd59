//! Whether the peer is where its HELLO says (docs/protocol.md section 8).

use super::Link;
use super::control::Control;
use crate::carrier::Carrier;
use crate::config::{LinkConfig, Side};
use crate::event::{DownReason, PathId};
use crate::wire::Kind;
use alloc::collections::VecDeque;
use core::hint::cold_path;
use towpath_base::Time;

/// What the peer has shown of itself.
#[derive(Debug)]
pub(super) struct Presence {
    /// Something of the peer has come, on any path.
    is_heard: bool,
    /// And from each address that it has named, or nobody wants to know.
    is_certain: bool,
    pub(super) probe_at: Time,
    pub(super) probes_unanswered: u32,
    pub(super) last_heard: Time,
    /// When it was last looked at timers.
    pub(super) looked_at: Time,
    /// Silence before this is our own: nobody looked.
    pub(super) excused_until: Time,
}

impl Presence {
    pub(super) fn new(now: Time) -> Self {
        Self {
            is_heard: false,
            is_certain: false,
            probe_at: Time::NEVER,
            probes_unanswered: 0,
            last_heard: now,
            looked_at: now,
            excused_until: now,
        }
    }
}

impl LinkConfig {
    /// Whether nothing goes to an address of the peer before something has come from there.
    pub(crate) fn awaits_address(&self) -> bool {
        self.rules.checks_address && self.side == Side::Server
    }
}

/// The client says at once what the server waits for: that it is there.
pub(super) fn greeting(config: &LinkConfig) -> VecDeque<Control> {
    let greets = config.rules.checks_address && config.side == Side::Client;
    greets.then(|| Control::of(Kind::Ping, 0)).into_iter().collect()
}

impl Link {
    /// A chunk of this life came on a path.
    #[inline(always)]
    pub(super) fn hear(&mut self, now: Time, index: usize) {
        self.presence.last_heard = now;
        if !self.presence.is_certain {
            cold_path();
            self.get_to_know(index);
        }
    }

    /// The generation of what came was told to the peer alone, over the connection of the HELLOs;
    /// and a device takes in only what comes from the address that the peer has named.
    #[inline(never)]
    fn get_to_know(&mut self, index: usize) {
        self.presence.is_heard = true;
        self.paths.show(index);
        self.presence.is_certain = self.paths.unshown() == 0;
    }

    /// Whether nothing may go out on a carrier yet, to no address of the peer.
    #[inline]
    pub(super) fn has_to_wait(&self, carrier: Carrier) -> bool {
        let unshown = self.paths.unshown();
        unshown != 0 && self.paths.all_of(carrier) & !unshown == 0
    }

    /// Whether something may be sent to the address of the peer that a path leads to.
    #[must_use]
    pub fn may_send_to(&self, path: PathId) -> bool {
        !self.paths.is_unshown(usize::from(path.0))
    }

    /// Since when the link has been there, while no chunk of the peer has come on any path.
    #[must_use]
    pub fn unheard_since(&self) -> Option<Time> {
        (!self.presence.is_heard).then_some(self.presence.last_heard)
    }

    /// Ends the link of a peer that is silent, sooner than [`LinkConfig::peer_timeout`] would: its
    /// place is needed.
    pub fn give_way(&mut self, now: Time) {
        self.settle_piggyback();
        self.go_down(DownReason::Silent(now.since(self.presence.last_heard)));
    }
}
