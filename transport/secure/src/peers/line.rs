//! One peer, and its line in `authorized_peers`.

use super::roles::Roles;
use crate::clock::WallTime;
use crate::identity::{PublicKey, PublicKeyError};
use crate::limits::NAME_BYTES_MAX;
use core::fmt;

/// A peer that this host trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub key: PublicKey,
    /// What people, reports and metrics call it.
    pub name: PeerName,
    /// The first moment at which it is trusted no longer.
    pub expires: Option<WallTime>,
    /// What it may be.
    pub roles: Roles,
    /// What stands behind `#`.
    pub comment: String,
}

/// The name of a peer: up to 64 letters, digits, dots, hyphens and underscores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerName(String);

impl PeerName {
    /// A name, or nothing where the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter);
        is_name.then(|| Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a line of `authorized_peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Its first word.
    #[error(transparent)]
    Key(#[from] PublicKeyError),
    /// It has one word.
    #[error("the key has no name: write the name of the host behind it")]
    NoName,
    /// Its second word.
    #[error(
        "the name is no name: it has up to 64 letters, digits, dots, hyphens and underscores, and \
         stands between the key and the options"
    )]
    Name,
    /// `expires=`.
    #[error("the expiry is no date: write `expires=2027-01-31` or `expires=2027-01-31T12:00:00Z`")]
    Expires,
    /// `roles=`.
    #[error("the roles are none: write `roles=client`, `roles=server` or `roles=client,server`")]
    Roles,
    /// Another option. An option that is not understood might restrict, so the line is refused.
    #[error("an option is unknown: there are `expires=` and `roles=`, and comments begin with `#`")]
    Option,
    /// A character that a terminal would act on. A tab is none.
    #[error("there is a control character in it: write the line anew")]
    Control,
    /// An option twice.
    #[error("an option stands twice: remove one")]
    Repeated,
}

fn is_control(letter: char) -> bool {
    letter.is_control() && letter != '\t'
}

impl Peer {
    /// A peer without restrictions.
    #[must_use]
    pub fn new(key: PublicKey, name: PeerName) -> Self {
        Self { key, name, expires: None, roles: Roles::BOTH, comment: String::new() }
    }

    /// Reads a line: the key, the name, options, and a comment behind `#`. An empty line, or one
    /// with a comment alone, holds nothing.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, LineError> {
        if line.contains(is_control) {
            return Err(LineError::Control);
        }
        let (entry, comment) = line.split_once('#').unwrap_or((line, ""));
        let mut words = entry.split_ascii_whitespace();
        let Some(key) = words.next() else { return Ok(None) };
        let key = key.parse()?;
        let name = words.next().ok_or(LineError::NoName)?;
        let mut peer = Self::new(key, PeerName::parse(name).ok_or(LineError::Name)?);
        peer.comment = comment.trim().to_owned();
        let mut roles = None;
        for option in words {
            let is_repeated = match option.split_once('=') {
                Some(("expires", time)) => {
                    let time = WallTime::parse(time).ok_or(LineError::Expires)?;
                    peer.expires.replace(time).is_some()
                }
                Some(("roles", text)) => {
                    let text = text.parse().map_err(|_| LineError::Roles)?;
                    roles.replace(text).is_some()
                }
                _ => return Err(LineError::Option),
            };
            if is_repeated {
                return Err(LineError::Repeated);
            }
        }
        peer.roles = roles.unwrap_or(Roles::BOTH);
        Ok(Some(peer))
    }
}

impl fmt::Display for Peer {
    /// The line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.name)?;
        if let Some(expires) = self.expires {
            write!(f, " expires={expires}")?;
        }
        if self.roles != Roles::BOTH {
            write!(f, " roles={}", self.roles)?;
        }
        if !self.comment.is_empty() {
            // A comment of several lines would add lines to the file.
            write!(f, " # {}", self.comment.replace(is_control, " "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::roles::Role;
    use super::*;

    fn key() -> PublicKey {
        PublicKey::from_bytes([3; 32])
    }

    #[test]
    fn a_line_reads_back() {
        let plain = Peer::new(key(), PeerName::parse("rack4-a").expect("a name"));
        let full = Peer {
            expires: WallTime::parse("2027-01-31"),
            roles: Roles::only(Role::Client),
            comment: "the third one".to_owned(),
            ..plain.clone()
        };
        for peer in [plain, full] {
            assert_eq!(Peer::parse(&peer.to_string()), Ok(Some(peer.clone())), "{peer}");
        }
        let spaced = format!("  {}\track4-a   roles=server,client  #  x # y ", key());
        let peer = Peer::parse(&spaced).expect("a line").expect("a peer");
        assert_eq!((peer.comment.as_str(), peer.roles), ("x # y", Roles::BOTH));
        let lines = Peer { comment: "one\nbad line".to_owned(), ..peer };
        let read = Peer::parse(&lines.to_string()).expect("a line").expect("a peer");
        assert_eq!(read.comment, "one bad line");
    }

    #[test]
    fn lines_without_a_peer_hold_nothing() {
        for line in ["", "   ", "# a comment", "\t# x", "#"] {
            assert_eq!(Peer::parse(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        let parse = |rest: &str| Peer::parse(&format!("{} {rest}", key()));
        let long = "a".repeat(65);
        assert_eq!(Peer::parse("rack4-a x"), Err(PublicKeyError::Algorithm.into()));
        assert_eq!(parse(""), Err(LineError::NoName));
        assert_eq!(parse("# rack4-a"), Err(LineError::NoName));
        assert_eq!(parse("roles=client"), Err(LineError::Name));
        assert_eq!(parse(&long), Err(LineError::Name));
        assert!(parse(&long[1..]).is_ok());
        assert_eq!(parse("a expires=tomorrow"), Err(LineError::Expires));
        assert_eq!(parse("a roles="), Err(LineError::Roles));
        assert_eq!(parse("a roles=admin"), Err(LineError::Roles));
        assert_eq!(parse("a role=client"), Err(LineError::Option));
        assert_eq!(parse("a b"), Err(LineError::Option));
        assert_eq!(parse("a # \r"), Err(LineError::Control));
        assert_eq!(parse("a # \u{1b}[2J"), Err(LineError::Control));
        assert_eq!(parse("a roles=client roles=server"), Err(LineError::Repeated));
    }
}
