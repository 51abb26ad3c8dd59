//! Sealed links: ends those of peers that are trusted no longer, and tells how they are protected.

use super::Endpoint;
use crate::conn::Phase;
use crate::ids::LinkId;
use crate::secure::Secure;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::DownReason;
use towpath_secure::{LinkState, Mode, PeerIdentity, Refusals, WallTime};
use towpath_verbs::Device;

/// How a link is protected.
#[derive(Clone, Copy, Debug)]
pub struct Security<'a> {
    /// Who the peer is.
    pub peer: &'a PeerIdentity,
    /// Its mode and its keys.
    pub state: LinkState,
    /// What was refused on it.
    pub refusals: &'a Refusals,
}

impl Security<'_> {
    /// One sentence for people, as in `encrypted, AES-128-GCM, keys of 12 minutes, peer rack4-a`.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.state.sentence(Some(&self.peer.name))
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// How a link is protected; none for one that is open, or gone.
    #[must_use]
    pub fn security(&self, link: LinkId) -> Option<Security<'_>> {
        let seal = self.links.find(link)?.seal.as_deref()?;
        let state = seal.state(self.device.now());
        Some(Security { peer: seal.peer(), state, refusals: seal.refusals() })
    }

    /// How a link is protected, in one sentence for people; of an open one that it is.
    #[must_use]
    pub fn protection(&self, link: LinkId) -> String {
        let open = || LinkState { mode: Mode::Open, epoch: 0, peer_epoch: 0, key_age_s: 0 };
        self.security(link).map_or_else(|| open().sentence(None), |security| security.sentence())
    }

    /// What the seals of all links have refused, of those that are gone too.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        let seals = self.links.iter().filter_map(|conn| conn.seal.as_deref());
        let mut sum = self.tally.refused;
        seals.for_each(|seal| sum.add(seal.refusals()));
        sum
    }

    /// Ends the links of peers that are trusted no longer.
    pub(super) fn look_at_trust(&mut self, keys: &Secure, now: Time) {
        let (version, wall) = (keys.refresh(now), WallTime::now());
        let has_changed = version != self.tally.trust_version;
        self.tally.trust_version = version;
        let mut ended = Vec::new();
        for conn in self.links.iter_mut().filter(|conn| conn.phase == Phase::Up) {
            let Some(seal) = conn.seal.as_deref_mut() else { continue };
            if has_changed {
                match keys.admits(seal.peer(), seal.peer_role()) {
                    Some(expires) => seal.peer_mut().expires = expires,
                    None => ended.push(conn.id),
                }
            }
            if seal.peer().has_expired(wall) && ended.last() != Some(&conn.id) {
                ended.push(conn.id);
            }
        }
        for id in ended {
            keys.note_revoked();
            if let Some(link) = self.links.up(id).filter(|link| !link.is_down()) {
                link.give_up(DownReason::Untrusted);
                self.links.touch(id.index);
            }
        }
    }
}
