//! Seals what this end sends, and rolls its keys over.

use super::aead::SealKey;
use super::nonce::Numbers;
use crate::limits::{EPOCH_NS, HEADER_BYTES, OLD_EPOCH_NS, SEALS_HARD, SEALS_SOFT, TAG_BYTES};
use crate::mode::Sealing;
use crate::packet::{Mark, Stream};
use crate::peers::Role;
use crate::schedule::{EpochSecret, LinkSecret, LinkTag};
use towpath_base::{Nanos, Time};

/// When keys are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollOver {
    /// Seals under a key before the next one takes over. Default: 2^20.
    pub seals: u64,
    /// Age of a key at which the next one takes over. Default: 10 minutes.
    pub age: Nanos,
    /// How long packets under the key before the current one are opened. Default: 10 seconds.
    pub old_key: Nanos,
    /// Seals under a key at which the link ends, because its peer never showed that it has the
    /// key. Never more than 2^24, which is the default.
    pub seals_max: u64,
}

impl Default for RollOver {
    fn default() -> Self {
        Self { seals: SEALS_SOFT, age: EPOCH_NS, old_key: OLD_EPOCH_NS, seals_max: SEALS_HARD }
    }
}

/// Why a packet was not sealed. It must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A number was used before, or is below one that was. To seal another packet under it would
    /// show both, so this is a fault of the caller that ends the link.
    #[error("{stream:?} has sealed number {number} or a later one: a number is used once")]
    NumberUsed {
        /// What counts.
        stream: Stream,
        /// The number.
        number: u64,
    },
    /// The header has no room for the index of a path.
    #[error("there is no path {path} on a sealed link")]
    NoSuchPath {
        /// The index.
        path: u8,
    },
    /// A key was used as often as it may be.
    #[error(
        "the key has sealed all that one key may, and the peer answers nothing under it: the link \
         has to be set up again"
    )]
    Exhausted,
    /// A body that AES-GCM has no room for.
    #[error("the body is too long to be sealed")]
    TooLong,
}

pub(super) struct Sealer {
    side: Role,
    link: LinkTag,
    sealing: Sealing,
    rule: RollOver,
    numbers: Numbers,
    secret: EpochSecret,
    key: SealKey,
    /// Under the current key.
    seals: u64,
    /// When the current key took over.
    since: Time,
    /// The peer can open what the current key seals, so the next key may take over.
    is_confirmed: bool,
}

impl Sealer {
    pub(super) fn new(
        link: &LinkSecret,
        side: Role,
        sealing: Sealing,
        rule: RollOver,
        now: Time,
    ) -> Self {
        let secret = link.direction(side);
        Self {
            side,
            link: link.tag(),
            sealing,
            rule: RollOver { seals_max: rule.seals_max.min(SEALS_HARD), ..rule },
            numbers: Numbers::new(side),
            key: SealKey::new(&secret, sealing),
            secret,
            seals: 0,
            since: now,
            // Both ends have the first two keys from the beginning.
            is_confirmed: true,
        }
    }

    /// Writes the mark into the header, and seals header and body.
    pub(super) fn seal(
        &mut self,
        now: Time,
        stream: Stream,
        echo: u8,
        header: &mut [u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        self.roll_over(now);
        if self.seals >= self.rule.seals_max {
            return Err(SealError::Exhausted);
        }
        let nonce = self.numbers.claim(stream, stream.number(header))?;
        let mark = Mark {
            stream,
            sender: self.side,
            mode: self.sealing.mode().code(),
            // Its low 16 bits.
            epoch: self.secret.epoch() as u16,
            echo,
            link: self.link,
        };
        mark.emit(header);
        self.seals += 1;
        self.key.seal(nonce, header, body).map_err(|_| SealError::TooLong)
    }

    /// Takes the next key where the current one is old, and the peer has shown that it has the
    /// current one: it opens packets of one epoch ahead and not of two.
    fn roll_over(&mut self, now: Time) {
        let is_due = self.seals >= self.rule.seals || self.age(now) >= self.rule.age;
        if is_due && self.is_confirmed && self.seals > 0 {
            self.secret = self.secret.next();
            self.key = SealKey::new(&self.secret, self.sealing);
            self.seals = 0;
            self.since = now;
            self.is_confirmed = false;
        }
    }

    /// The peer's packets bear the newest epoch that it has opened a packet of.
    pub(super) fn on_echo(&mut self, echo: u8) {
        if echo == self.secret.epoch() as u8 & Mark::ECHO_BITS {
            self.is_confirmed = true;
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.secret.epoch()
    }

    pub(super) fn age(&self, now: Time) -> Nanos {
        now.since(self.since)
    }

    pub(super) fn link(&self) -> LinkTag {
        self.link
    }
}

#[cfg(test)]
mod tests;
