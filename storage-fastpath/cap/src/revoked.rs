//! Capabilities that hold no more.

use crate::limits::{REVOKED_MAX, REVOKED_SLACK_MS};
use std::collections::BTreeMap;

/// The capabilities that were revoked, by serial numbers, each until it expires anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Until when each is to be remembered.
    until_ms: BTreeMap<u64, u64>,
}

/// Why a capability is not revoked, or a text is no list of those that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevokedError {
    /// As many are revoked as a server remembers.
    #[error("{REVOKED_MAX} capabilities are revoked and have not expired: change the key")]
    Full,
    /// A line that is not two numbers.
    #[error("line {0} is not a serial number and a time: mend or remove it")]
    Line(usize),
}

impl Revoked {
    /// Revokes the capabilities of a serial number, which all expire by `until_ms`. Those that have
    /// expired a day ago are forgotten.
    ///
    /// # Errors
    /// [`RevokedError::Full`]; nothing is changed but that.
    pub fn revoke(&mut self, now_ms: u64, serial: u64, until_ms: u64) -> Result<(), RevokedError> {
        self.until_ms.retain(|_, until| until.saturating_add(REVOKED_SLACK_MS) >= now_ms);
        if self.until_ms.len() >= REVOKED_MAX && !self.until_ms.contains_key(&serial) {
            return Err(RevokedError::Full);
        }
        let until = self.until_ms.entry(serial).or_default();
        *until = until_ms.max(*until);
        Ok(())
    }

    /// Whether the capabilities of a serial number are revoked.
    #[must_use]
    pub fn contains(&self, serial: u64) -> bool {
        self.until_ms.contains_key(&serial)
    }

    /// How many are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.until_ms.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.until_ms.is_empty()
    }

    /// The text that [`parse`](Self::parse) reads: a serial number and a time on each line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines = self.until_ms.iter().map(|(serial, until)| format!("{serial} {until}\n"));
        lines.collect()
    }

    /// From its text.
    ///
    /// # Errors
    /// [`RevokedError`].
    pub fn parse(text: &str) -> Result<Self, RevokedError> {
        let mut until_ms = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let entry = line.split_once(' ').and_then(|(serial, until)| {
                Some((serial.parse().ok()?, until.trim().parse().ok()?))
            });
            let (serial, until) = entry.ok_or(RevokedError::Line(number))?;
            if until_ms.len() == REVOKED_MAX {
                return Err(RevokedError::Full);
            }
            until_ms.insert(serial, until);
        }
        Ok(Self { until_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_is_remembered_until_it_expires() {
        let mut revoked = Revoked::default();
        assert_eq!(revoked.revoke(10, 1, 20), Ok(()));
        assert_eq!(revoked.revoke(10, 2, u64::MAX), Ok(()));
        assert_eq!(revoked.revoke(10, 2, 5), Ok(()), "for longer, as was asked before");
        assert_eq!(Revoked::parse(&revoked.to_text()), Ok(revoked.clone()));
        assert_eq!(revoked.revoke(21 + REVOKED_SLACK_MS, 3, u64::MAX), Ok(()));
        assert_eq!([1, 2, 3].map(|serial| revoked.contains(serial)), [false, true, true]);
        assert_eq!(Revoked::parse("1 2\nx"), Err(RevokedError::Line(2)));
    }

    #[test]
    fn no_more_are_revoked_than_are_remembered() {
        let mut revoked = Revoked::default();
        for serial in 0..REVOKED_MAX as u64 {
            revoked.until_ms.insert(serial, 10);
        }
        assert_eq!(revoked.revoke(5, u64::MAX, 9), Err(RevokedError::Full));
        assert_eq!(revoked.revoke(5, 7, 9), Ok(()));
        assert_eq!(revoked.revoke(11 + REVOKED_SLACK_MS, u64::MAX, u64::MAX), Ok(()));
        assert_eq!(revoked.len(), 1);
    }
}
