//! Whether packets carry an ICRC beside the checksums of chunks.

use std::fmt;
use std::str::FromStr;
use towpath_verbs::DeviceCaps;

/// When the packets of a link carry an ICRC, the checksum of RoCEv2 over each packet.
///
/// Chunks have checksums of their own, over all that they say. Where both ends use the userspace
/// NIC, the ICRC is a second pass over the same bytes at each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Icrc {
    /// Packets over UC go without one where both ends can do so and both send payloads with a
    /// CRC32C. Packets over RC, and those of one-sided operations, carry one.
    #[default]
    Auto,
    /// All packets carry one.
    Always,
}

impl Icrc {
    /// Whether an endpoint on this device tells its peers that packets may go without one.
    pub(crate) fn may_omit(self, caps: &DeviceCaps, notices_damage: bool) -> bool {
        self == Self::Auto && caps.omits_icrc && notices_damage
    }
}

/// A text that is no [`Icrc`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not say when packets carry an ICRC: use auto or always")]
pub struct IcrcError(String);

impl FromStr for Icrc {
    type Err = IcrcError;

    fn from_str(text: &str) -> Result<Self, IcrcError> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            _ => Err(IcrcError(text.to_owned())),
        }
    }
}

impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Always => "always",
        })
    }
}
