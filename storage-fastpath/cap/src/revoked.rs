//! Capabilities that hold no more.

use crate::limits::{REVOKED_MAX, REVOKED_SLACK_MS};
use std::collections::BTreeMap;
use towpath_base::crc::crc32c;

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
    /// The last line is not the count and the checksum of the others: nobody knows what is missing.
    #[error(
        "it was emptied, cut or changed, as its last line, the checksum, tells: put back a copy; \
         without one, replace the lines of the key file by a new key, whose capabilities nobody \
         has revoked, and then remove this file"
    )]
    Changed,
    /// A line that is not two numbers.
    #[error("line {0} is not a serial number and a time: put back a copy of the file")]
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

    /// The text that [`parse`](Self::parse) reads: a serial number and a time on each line, and a
    /// last line with how many they are and the CRC-32C of all before it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines = self.until_ms.iter().map(|(serial, until)| format!("{serial} {until}\n"));
        let text: String = lines.collect();
        let end = end_line(self.until_ms.len(), &text);
        text + &end
    }

    /// From its text. One that is not whole to the last bit is refused, and so is an empty one: a
    /// capability that was revoked must not be taken again.
    ///
    /// # Errors
    /// [`RevokedError`].
    pub fn parse(text: &str) -> Result<Self, RevokedError> {
        let last = text.trim_end_matches('\n').rfind('\n').map_or(0, |before| before + 1);
        let (text, end) = text.split_at(last);
        if end != end_line(text.lines().count(), text) {
            return Err(RevokedError::Changed);
        }
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

/// The last line of a text with so many lines before it.
fn end_line(count: usize, text: &str) -> String {
    format!("end {count} {:08x}\n", crc32c(text.as_bytes()))
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
        let text = String::from("1 2\nx\n");
        let text = text.clone() + &end_line(2, &text);
        assert_eq!(Revoked::parse(&text), Err(RevokedError::Line(2)));
    }

    #[test]
    fn a_text_with_one_bit_or_one_byte_less_or_more_is_refused() {
        let none = Revoked::default();
        assert_eq!(Revoked::parse(&none.to_text()), Ok(none.clone()));
        let mut revoked = none;
        for serial in [9, 10, 77] {
            revoked.revoke(0, serial, 1_000 * serial).expect("there is room");
        }
        let text = revoked.to_text();
        for bit in 0..8 * text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = Revoked::parse(&String::from_utf8_lossy(&bytes));
            assert_eq!(found, Err(RevokedError::Changed), "bit {bit}");
        }
        for len in 0..text.len() {
            assert_eq!(Revoked::parse(&text[..len]), Err(RevokedError::Changed), "{len} bytes");
        }
        assert_eq!(Revoked::parse(&(text + "\n")), Err(RevokedError::Changed));
        assert_eq!(Revoked::parse("1 2\n"), Err(RevokedError::Changed), "without a checksum");
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
