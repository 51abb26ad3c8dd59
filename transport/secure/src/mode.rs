//! How much of a link is protected, which configuration says and nobody negotiates.

use core::fmt;
use core::str::FromStr;

/// What is done with what a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing: everybody on the network may read and forge it.
    Open,
    /// Signed: everybody may read it, nobody may forge it.
    Authenticate,
    /// Hidden and signed. Hosts with a key use it unless they say otherwise.
    Encrypt,
}

/// What is done with the packets of a link that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sealing {
    /// They are signed.
    Authenticate,
    /// They are signed, and their bodies hidden.
    Encrypt,
}

impl Sealing {
    /// The mode of links that do so.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            Self::Authenticate => Mode::Authenticate,
            Self::Encrypt => Mode::Encrypt,
        }
    }
}

/// Both ends of a link must use one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer's links are in mode `{theirs}` and those of this host in mode `{ours}`: write the \
     same mode into both configurations; nothing is negotiated, so that nobody can ask for less"
)]
pub struct ModesDiffer {
    /// The mode of this host.
    pub ours: Mode,
    /// The mode of the peer.
    pub theirs: Mode,
}

impl Mode {
    /// The code of the mode in handshakes and packets.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Authenticate => 1,
            Self::Encrypt => 2,
        }
    }

    /// What is done with packets; nothing where the mode is open.
    #[must_use]
    pub fn sealing(self) -> Option<Sealing> {
        match self {
            Self::Open => None,
            Self::Authenticate => Some(Sealing::Authenticate),
            Self::Encrypt => Some(Sealing::Encrypt),
        }
    }

    /// The mode of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Open, Self::Authenticate, Self::Encrypt].into_iter().find(|mode| mode.code() == code)
    }

    /// Compares the modes of two ends.
    ///
    /// # Errors
    /// [`ModesDiffer`].
    pub fn agree(self, theirs: Self) -> Result<(), ModesDiffer> {
        if self == theirs { Ok(()) } else { Err(ModesDiffer { ours: self, theirs }) }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Authenticate => "authenticate",
            Self::Encrypt => "encrypt",
        })
    }
}

/// A text names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are the modes `open`, `authenticate` and `encrypt`")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let modes = [Self::Open, Self::Authenticate, Self::Encrypt];
        modes.into_iter().find(|mode| mode.to_string() == text).ok_or(UnknownMode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_read_back() {
        for mode in [Mode::Open, Mode::Authenticate, Mode::Encrypt] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(Mode::from_code(mode.code()), Some(mode));
            assert_eq!(mode.agree(mode), Ok(()));
            assert_eq!(mode.sealing().map_or(Mode::Open, Sealing::mode), mode);
        }
        assert_eq!("none".parse::<Mode>(), Err(UnknownMode));
        assert_eq!(Mode::from_code(3), None);
    }

    #[test]
    fn neither_end_gives_way() {
        let (ours, theirs) = (Mode::Encrypt, Mode::Open);
        assert_eq!(ours.agree(theirs), Err(ModesDiffer { ours, theirs }));
        assert_eq!(theirs.agree(ours), Err(ModesDiffer { ours: theirs, theirs: ours }));
    }
}
