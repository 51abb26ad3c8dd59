//! Whom this host trusts: `authorized_peers`.
//!
//! | module | content |
//! |---|---|
//! | `line` | one peer, and its line |
//! | `roles` | what a peer may be |
//! | `file` | the file, read again when it changes |
//! | `refused` | why a peer is refused |

mod file;
mod line;
mod refused;
mod roles;

pub use file::{Change, PeersFile, PeersFileError};
pub use line::{LineError, Peer, PeerName};
pub use refused::PeerRefused;
pub use roles::{Role, Roles, UnknownRole};

use crate::clock::WallTime;
use crate::identity::PublicKey;
use crate::limits::PEERS_MAX;
use std::collections::HashMap;

/// The peers of a file.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    by_key: HashMap<PublicKey, Peer>,
    /// A moment that has passed: when the file was written.
    evidence: Option<WallTime>,
}

/// What is wrong with the text of `authorized_peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeersError {
    /// A line.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        error: LineError,
    },
    /// A key twice. One of the lines might say less than the other.
    #[error("line {line} has the key of line {first}: remove one of them")]
    Twice {
        /// The second line.
        line: usize,
        /// The first line.
        first: usize,
    },
    /// Too many peers.
    #[error(
        "line {line} is the {}th peer, and {PEERS_MAX} are taken: trust a certificate authority \
         instead",
        PEERS_MAX + 1
    )]
    TooMany {
        /// The line of the first peer too many.
        line: usize,
    },
    /// Not text.
    #[error("it is not UTF-8 text: save it as such")]
    NotText,
}

impl Peers {
    /// From the text of the file.
    ///
    /// # Errors
    /// [`PeersError`].
    pub fn parse(text: &str) -> Result<Self, PeersError> {
        let mut by_key = HashMap::new();
        let mut lines: HashMap<PublicKey, usize> = HashMap::new();
        for (line, entry) in (1..).zip(text.lines()) {
            let peer = Peer::parse(entry).map_err(|error| PeersError::Line { line, error })?;
            let Some(peer) = peer else { continue };
            if let Some(&first) = lines.get(&peer.key) {
                return Err(PeersError::Twice { line, first });
            }
            if by_key.len() == PEERS_MAX {
                return Err(PeersError::TooMany { line });
            }
            lines.insert(peer.key, line);
            by_key.insert(peer.key, peer);
        }
        Ok(Self { by_key, evidence: None })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.by_key.values()
    }

    /// The peer with that key.
    #[must_use]
    pub fn find(&self, key: &PublicKey) -> Option<&Peer> {
        self.by_key.get(key)
    }

    /// The peer with that key, if it may have that role now. A link that stands is held to the same
    /// rule: its owner asks again when the file changed and when the peer's time is over.
    ///
    /// # Errors
    /// [`PeerRefused`].
    pub fn admit(&self, key: &PublicKey, role: Role, now: WallTime) -> Result<&Peer, PeerRefused> {
        let peer = self.find(key).ok_or(PeerRefused::Unknown { key: *key })?;
        let name = || peer.name.clone();
        if let Some(expired) = peer.expires {
            if let Some(evidence) = self.evidence.filter(|evidence| now.is_behind(*evidence)) {
                return Err(PeerRefused::ClockBehind { name: name(), now, evidence });
            }
            if now >= expired {
                return Err(PeerRefused::Expired { name: name(), expired, now });
            }
        }
        if !peer.roles.contains(role) {
            return Err(PeerRefused::Role { name: name(), role });
        }
        Ok(peer)
    }

    /// The same peers, with a moment that has passed for certain: a clock that is more than a day
    /// behind it is wrong, and peers with an expiry are refused under it.
    #[must_use]
    pub fn with_evidence(self, evidence: WallTime) -> Self {
        Self { evidence: Some(evidence), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-29";
    const YEARS_10_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1_000;

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32])
    }

    fn now() -> WallTime {
        WallTime::parse(NOW).expect("a day")
    }

    #[test]
    fn mistakes_are_named_by_their_line() {
        let parse = |text: &str| Peers::parse(text).map(|peers| peers.len());
        assert_eq!(parse(""), Ok(0));
        let (one, two) = (key(1), key(2));
        assert_eq!(parse(&format!("# ours\n\n{one} a\n{two} a # the same name\n")), Ok(2));
        let error = LineError::NoName;
        assert_eq!(parse(&format!("\n{one}\n")), Err(PeersError::Line { line: 2, error }));
        let twice = Err(PeersError::Twice { line: 3, first: 1 });
        assert_eq!(parse(&format!("{one} a\n\n{one} b\n")), twice);
        let line = |n: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            format!("{} a\n", PublicKey::from_bytes(bytes))
        };
        let many: String = (0..PEERS_MAX).map(line).collect();
        assert_eq!(parse(&many), Ok(PEERS_MAX));
        let more = many + &line(PEERS_MAX);
        assert_eq!(parse(&more), Err(PeersError::TooMany { line: PEERS_MAX + 1 }));
    }

    #[test]
    fn the_refusal_of_an_unknown_key_has_the_line_to_add() {
        let nobody = Peers::default();
        let refused = nobody.admit(&key(1), Role::Client, now());
        let text = refused.expect_err("unknown").to_string();
        assert!(text.contains(&key(1).fingerprint().to_string()), "{text}");
        let line = text.lines().last().expect("a line").replace("NAME", "rack4-a");
        let peers = Peers::parse(&line).expect("the line");
        let peer = peers.admit(&key(1), Role::Client, now()).expect("trusted");
        assert_eq!(peer.name.as_str(), "rack4-a");
    }

    #[test]
    fn a_role_is_held_to() {
        let peers = Peers::parse(&format!("{} a roles=server", key(1))).expect("peers");
        assert!(peers.admit(&key(1), Role::Server, now()).is_ok());
        let refused = peers.admit(&key(1), Role::Client, now());
        assert!(matches!(refused, Err(PeerRefused::Role { role: Role::Client, .. })));
    }

    #[test]
    fn expiry_holds_from_its_first_millisecond() {
        let peers = Peers::parse(&format!("{} a expires={NOW}", key(1))).expect("peers");
        assert!(peers.admit(&key(1), Role::Client, WallTime(now().0 - 1)).is_ok());
        let refused = peers.admit(&key(1), Role::Client, now());
        assert!(matches!(refused, Err(PeerRefused::Expired { .. })), "{refused:?}");
    }

    #[test]
    fn a_clock_ten_years_off_trusts_nobody_whose_time_is_limited() {
        let text = format!("{} a expires=2027-01-31\n{} b", key(1), key(2));
        let peers = Peers::parse(&text).expect("peers").with_evidence(now());
        assert!(peers.admit(&key(1), Role::Client, now()).is_ok());
        for (ms, is_ahead) in [(now().0 + YEARS_10_MS, true), (now().0 - YEARS_10_MS, false)] {
            let refused = peers.admit(&key(1), Role::Client, WallTime(ms)).expect_err("refused");
            let text = refused.to_string();
            assert_eq!(matches!(refused, PeerRefused::Expired { .. }), is_ahead, "{text}");
            assert_eq!(matches!(refused, PeerRefused::ClockBehind { .. }), !is_ahead, "{text}");
            assert!(text.contains("set the clock"), "{text}");
            // Who is trusted for ever does not depend on a clock.
            assert!(peers.admit(&key(2), Role::Client, WallTime(ms)).is_ok());
        }
    }
}
