//! The keys that servers and whoever grants share.

use crate::capability::Capability;
use crate::grant::{Grant, SECRET_BYTES};
use crate::hex;
use crate::limits::{KEY_FILE_BYTES_MAX, KEYS_MAX};
use core::fmt;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const KEY_BYTES: usize = 32;

/// The keys of a file, each with its number. The last one makes new capabilities; all of them are
/// valid at servers. So a key is replaced without a gap: the new one goes to the end of the file of
/// every server and then of the one who grants, and the old one goes when what it made has expired.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<(u32, Key)>,
}

/// One key.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    /// The secret of the capability with these bytes.
    pub(crate) fn secret(&self, capability: &[u8]) -> [u8; SECRET_BYTES] {
        let mut mac = self.0.clone();
        mac.update(capability);
        let mut secret = [0; SECRET_BYTES];
        secret.copy_from_slice(&mac.finalize().into_bytes()[..SECRET_BYTES]);
        secret
    }
}

/// Why a text is no file of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key in it.
    #[error("there is no key in it: `towpath cap key` makes a line of it")]
    Empty,
    /// Too long.
    #[error("it has more than {KEY_FILE_BYTES_MAX} bytes or {KEYS_MAX} keys: remove old ones")]
    TooLong,
    /// A line that is no key.
    #[error("line {0} is not a number and 64 hexadecimal digits: `towpath cap key` makes one")]
    Line(usize),
    /// A number twice.
    #[error("line {0} has the number of another key: give it another one")]
    Twice(usize),
}

impl KeyError {
    /// Whether there is nothing in the file, rather than something wrong.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::Empty
    }
}

/// Why no capability was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// Its range overflows.
    #[error("the bytes of the capability end beyond what offsets can say: ask for fewer")]
    Range,
    /// There is no key.
    #[error("there is no key to make it with")]
    NoKey,
}

impl KeyRing {
    /// From the text of a file: a key on each line, its number and 64 hexadecimal digits. Empty
    /// lines and what follows a `#` are left out.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.len() > KEY_FILE_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        let mut keys: Vec<(u32, Key)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("");
            let mut words = line.split_ascii_whitespace();
            let Some(id) = words.next() else { continue };
            let (Ok(id), Some(key), None) = (id.parse::<u32>(), words.next(), words.next()) else {
                return Err(KeyError::Line(number));
            };
            let key = hex::decode::<KEY_BYTES>(key).ok_or(KeyError::Line(number))?;
            if keys.iter().any(|(other, _)| *other == id) {
                return Err(KeyError::Twice(number));
            }
            if keys.len() == KEYS_MAX {
                return Err(KeyError::TooLong);
            }
            let mac = Hmac::new_from_slice(&key).map_err(|_| KeyError::Line(number))?;
            keys.push((id, Key(mac)));
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(Self { keys }) }
    }

    /// No key at all: nothing that needs one is allowed.
    #[must_use]
    pub fn none() -> Self {
        Self { keys: Vec::new() }
    }

    /// A line of a key file with a new key: `random` bytes of the system, and a number that none of
    /// the file's keys has.
    #[must_use]
    pub fn line(id: u32, random: &[u8; KEY_BYTES]) -> String {
        format!("{id} {}", hex::encode(random))
    }

    /// The numbers of the keys, the newest last.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().map(|(id, _)| *id)
    }

    /// Makes a grant of a capability, with the newest key.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint(&self, capability: Capability) -> Result<Grant, MintError> {
        let Capability { offset, byte_len, .. } = capability;
        if byte_len != u64::MAX && offset.checked_add(byte_len).is_none() {
            return Err(MintError::Range);
        }
        let newest = self.ids().last().unwrap_or(0);
        let capability = Capability { key: newest, ..capability };
        let key = self.key(newest).ok_or(MintError::NoKey)?;
        let secret = key.secret(&capability.emit());
        Ok(Grant { capability, secret })
    }

    /// The key of that number.
    pub(crate) fn key(&self, id: u32) -> Option<Key> {
        self.keys.iter().find(|(other, _)| *other == id).map(|(_, key)| key.clone())
    }
}

impl fmt::Debug for KeyRing {
    // Keys are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ids: &[u32]) -> String {
        let lines = ids.iter().map(|id| KeyRing::line(*id, &[*id as u8; KEY_BYTES]));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_last_key_of_a_file_makes_capabilities() {
        let ring = KeyRing::parse(&format!("# keys\n\n{} # old\n", text(&[4, 2]))).expect("keys");
        assert_eq!(ring.ids().collect::<Vec<_>>(), [4, 2]);
        let grant = ring.mint(Capability::everything()).expect("a grant");
        assert_eq!(grant.capability.key, 2);
        let older = KeyRing::parse(&text(&[4])).expect("keys");
        let other = older.mint(Capability::everything()).expect("a grant");
        assert_ne!(other.secret, grant.secret);
        let over = Capability { offset: 2, byte_len: u64::MAX - 1, ..Capability::everything() };
        assert_eq!(ring.mint(over), Err(MintError::Range));
    }

    #[test]
    fn what_is_no_key_is_named_by_its_line() {
        let parse = |text: &str| KeyRing::parse(text).map(|ring| ring.keys.len());
        assert_eq!(parse("# nothing\n"), Err(KeyError::Empty));
        assert_eq!(parse(&format!("\n{}0", text(&[1]))), Err(KeyError::Line(2)));
        assert_eq!(parse("x 00"), Err(KeyError::Line(1)));
        assert_eq!(parse(&format!("{} more", text(&[1]))), Err(KeyError::Line(1)));
        assert_eq!(parse(&text(&[1, 2, 1])), Err(KeyError::Twice(3)));
        let many: Vec<u32> = (0..=KEYS_MAX as u32).collect();
        assert_eq!(parse(&text(&many)), Err(KeyError::TooLong));
        assert_eq!(parse(&"#".repeat(KEY_FILE_BYTES_MAX + 1)), Err(KeyError::TooLong));
        assert_eq!(parse(&text(&many[1..])), Ok(KEYS_MAX));
    }

    /// RFC 4231, test case 2, cut to the length of a secret; its key is shorter than ours.
    #[test]
    fn secrets_are_hmac_sha256() {
        let mac = Hmac::<Sha256>::new_from_slice(b"Jefe").expect("any length");
        let secret = Key(mac).secret(b"what do ya want for nothing?");
        assert_eq!(hex::encode(&secret), "5bdcc146bf60754e6a042426089575c7");
    }
}
