//! Traffic classes: what the messages of a link are for, and so how urgent they are.

use crate::named;
use alloc::string::ToString;
use core::str::FromStr;

named! {
    /// The class of a link: what everything on it is for. Classes share no link, no queue pair and
    /// no receive buffer, and their packets bear different DSCPs, so that hosts and switches can
    /// keep one from holding up another.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Class {
        /// Monitoring and administration: little, and wanted at once.
        Gold => "gold",
        /// Online traffic, which somebody waits for.
        #[default]
        Silver => "silver",
        /// Offline traffic: much, and none of it urgent.
        Copper => "copper",
    }
}

impl Class {
    /// From the most to the least urgent.
    pub const ALL: [Self; 3] = [Self::Gold, Self::Silver, Self::Copper];

    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Its place in [`ALL`](Self::ALL), for tables by class.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The DSCP of its packets unless another is configured: one that networks know what to do
    /// with, and that harms nobody where they do not.
    ///
    /// - Gold: 46, expedited forwarding (RFC 3246), made for traffic that is little and urgent.
    ///   Switches that go by the upper three bits have a queue for it, below that of routing.
    /// - Silver: 0, default forwarding (RFC 2474), what a network gives that was told nothing: who
    ///   uses no classes changes nothing.
    /// - Copper: 1, lower effort (RFC 8622), which is never better than default. The older CS1 (8)
    ///   may be, where only the upper three bits count.
    #[must_use]
    pub const fn dscp_default(self) -> u8 {
        match self {
            Self::Gold => 46,
            Self::Silver => 0,
            Self::Copper => 1,
        }
    }

    /// In a HELLO: Silver is what an end that knows no classes sends.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Silver => 0,
            Self::Gold => 1,
            Self::Copper => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}

/// A word that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no class of that name: there are gold, silver and copper")]
pub struct ClassNameError;

impl FromStr for Class {
    type Err = ClassNameError;

    fn from_str(name: &str) -> Result<Self, ClassNameError> {
        let named = |class: &Self| class.to_string().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(named).ok_or(ClassNameError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_codes_and_places_lead_back_to_their_class() {
        for (place, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.to_string().parse(), Ok(class));
            assert_eq!(class.to_string().to_uppercase().parse(), Ok(class));
            assert_eq!(Class::from_code(class.code()), Some(class));
            assert_eq!(class.index(), place);
        }
        assert_eq!("bronze".parse::<Class>(), Err(ClassNameError));
        assert_eq!(Class::from_code(3), None);
    }

    #[test]
    fn default_dscps_are_six_bits_and_differ() {
        let mut dscps = Class::ALL.map(Class::dscp_default);
        dscps.sort_unstable();
        assert!(dscps.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(dscps.iter().all(|&dscp| dscp < 64));
        let precedence = Class::ALL.map(|class| class.dscp_default() >> 3);
        assert!(precedence.is_sorted_by(|a, b| a >= b), "no class below is taken for more urgent");
    }
}
