//! The name of the protocol that an application speaks over its channels.

use core::fmt;
use core::str::FromStr;

/// The longest name.
pub(super) const NAME_BYTES_MAX: usize = 32;

/// What the applications at both ends of a link speak over its channels, by name: a link between
/// two that name different ones is refused. A name has up to 32 printable ASCII characters and no
/// space, and best ends with a version, as `towpath-storage/1` does.
///
/// The name of no characters, which is the default, is that of applications that name none. It is
/// a name as any other: such an application gets links to its like alone.
///
/// ```
/// use towpath_proto::wire::AppProtocol;
///
/// const ECHO: AppProtocol = AppProtocol::named("echo/1");
/// assert_eq!("echo/1".parse(), Ok(ECHO));
/// assert_eq!(ECHO.to_string(), "echo/1");
/// assert!("two words".parse::<AppProtocol>().is_err());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AppProtocol {
    len: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

/// Why a text names no protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "the name of a protocol has at most {NAME_BYTES_MAX} printable ASCII characters and no space"
)]
pub struct AppProtocolError;

impl AppProtocol {
    /// The protocol of this name, for constants.
    ///
    /// # Panics
    /// When it is no name. For one that is not known before the program runs use [`str::parse`].
    #[must_use]
    pub const fn named(name: &str) -> Self {
        match Self::from_bytes(name.as_bytes()) {
            Some(named) => named,
            None => panic!("a name has at most 32 printable ASCII characters and no space"),
        }
    }

    pub(super) const fn from_bytes(name: &[u8]) -> Option<Self> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        let mut at = 0;
        while at < name.len() {
            if !name[at].is_ascii_graphic() {
                return None;
            }
            bytes[at] = name[at];
            at += 1;
        }
        Some(Self { len: name.len() as u8, bytes })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl FromStr for AppProtocol {
    type Err = AppProtocolError;

    fn from_str(name: &str) -> Result<Self, AppProtocolError> {
        Self::from_bytes(name.as_bytes()).ok_or(AppProtocolError)
    }
}

impl fmt::Display for AppProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.len == 0 { "no named protocol" } else { self.name() })
    }
}

impl fmt::Debug for AppProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}
