//! Both directions of one sealed link.

use super::opener::{Opened, Opener};
use super::sealer::{RollOver, SealError, Sealer};
use crate::limits::{HEADER_BYTES, PATHS_MAX, TAG_BYTES};
use crate::mode::{Mode, Sealing};
use crate::packet::{Mark, Stream};
use crate::peers::{PeerName, Role};
use crate::refusal::{Refusal, Refusals};
use crate::schedule::{LinkSecret, LinkTag};
use core::fmt;
use towpath_base::Time;

/// A link whose packets are sealed. Its owner calls [`seal`](Self::seal) once for each packet that
/// it sends and [`open`](Self::open) once for each that comes, chunks and acks alike, on every
/// carrier. Keys roll over by themselves.
pub struct SealedLink {
    sealing: Sealing,
    sealer: Sealer,
    opener: Opener,
}

impl SealedLink {
    /// A link that begins. `side` is this end, `paths` counts all that the link has, also those
    /// that it may fall back to; more than [`PATHS_MAX`] are taken as that many.
    #[must_use]
    pub fn new(
        link: &LinkSecret,
        side: Role,
        sealing: Sealing,
        paths: usize,
        rule: RollOver,
        now: Time,
    ) -> Self {
        let paths = paths.min(PATHS_MAX) as u8;
        Self {
            sealing,
            sealer: Sealer::new(link, side, sealing, rule, now),
            opener: Opener::new(link, side.other(), sealing, rule.old_key, paths),
        }
    }

    /// Seals a packet in place, and returns the tag that goes behind its body. The header has its
    /// number already; its last eight bytes are written here. A packet that is sent again as it is
    /// keeps header, body and tag; one whose bytes differ needs a number of its own.
    ///
    /// # Errors
    /// [`SealError`]: the packet must not be sent.
    pub fn seal(
        &mut self,
        now: Time,
        stream: Stream,
        header: &mut [u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        let echo = self.opener.newest() as u8 & Mark::ECHO_BITS;
        self.sealer.seal(now, stream, echo, header, body)
    }

    /// Opens a packet in place. `body` is all that came behind the header, with the tag at its end.
    ///
    /// # Errors
    /// [`Refusal`], which is counted. Nothing else changes.
    pub fn open<'a>(
        &mut self,
        now: Time,
        header: &[u8],
        body: &'a mut [u8],
    ) -> Result<Opened<'a>, Refusal> {
        let (opened, mark) = self.opener.open(now, header, body)?;
        self.sealer.on_echo(mark.echo);
        Ok(opened)
    }

    /// What was refused since the link began.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        self.opener.refusals()
    }

    /// What a report says of the link.
    #[must_use]
    pub fn state(&self, now: Time) -> LinkState {
        LinkState {
            mode: self.sealing.mode(),
            epoch: self.sealer.epoch(),
            peer_epoch: self.opener.newest(),
            key_age_s: self.sealer.age(now).0 / 1_000_000_000,
        }
    }

    /// What packets name the link by.
    #[must_use]
    pub fn tag(&self) -> LinkTag {
        self.sealer.link()
    }
}

impl fmt::Debug for SealedLink {
    // Its keys are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedLink").field("tag", &self.tag()).finish_non_exhaustive()
    }
}

/// What a report says of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// How it is protected.
    pub mode: Mode,
    /// How often the key of this end rolled over.
    pub epoch: u64,
    /// How often that of the peer did.
    pub peer_epoch: u64,
    /// Age of the key of this end, seconds.
    pub key_age_s: u64,
}

impl LinkState {
    /// One sentence for people, as in `encrypted, AES-128-GCM, keys of 12 minutes, peer rack4-a`.
    #[must_use]
    pub fn sentence(&self, peer: Option<&PeerName>) -> String {
        let protection = match self.mode {
            Mode::Open => return "open: everybody on the network may read and forge it".to_owned(),
            Mode::Authenticate => "signed but readable, AES-128-GCM",
            Mode::Encrypt => "encrypted, AES-128-GCM",
        };
        let age = match self.key_age_s {
            0..120 => format!("{} seconds", self.key_age_s),
            _ => format!("{} minutes", self.key_age_s / 60),
        };
        let peer = peer.map(|name| format!(", peer {name}")).unwrap_or_default();
        format!("{protection}, keys of {age}{peer}")
    }
}

#[cfg(test)]
mod tests;
