//! Which carrier links to a peer use, by the peer's address.

use super::CarrierChoice;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses, as in `10.1.0.0/16`, `fd00::/8` or, for a single address, `10.1.2.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    ip: IpAddr,
    bits: u8,
}

/// The text is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Not an address, a slash and a number of bits.
    #[error("a range of addresses is written as in 10.1.0.0/16 or fd00::/8")]
    Form,
    /// The address has bits behind the prefix, so that it is not clear what is meant.
    #[error("the address has bits behind its prefix: write {0}")]
    Host(Prefix),
}

impl Prefix {
    /// The range of all addresses that begin with the first `bits` bits of `ip`.
    fn of(ip: IpAddr, bits: u8) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((u32::from(ip) & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((u128::from(ip) & mask).into())
            }
        };
        Self { ip, bits }
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.ip.is_ipv4() && Self::of(ip, self.bits) == *self
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (text, None),
        };
        let ip: IpAddr = ip.trim().parse().map_err(|_| PrefixError::Form)?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.trim().parse());
        let bits = bits.ok().filter(|&bits| bits <= most).ok_or(PrefixError::Form)?;
        let prefix = Self::of(ip, bits);
        if prefix.ip == ip { Ok(prefix) } else { Err(PrefixError::Host(prefix)) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

/// Links to the peers of a range use this carrier. Of several ranges that have a peer the longest
/// prefix counts. Written `10.1.0.0/16=rc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CarrierRule {
    /// The addresses at which peers are connected to, or from which they connect.
    pub peers: Prefix,
    /// What links to them use.
    pub carrier: CarrierChoice,
}

/// The text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarrierRuleError {
    /// There is no equals sign.
    #[error("a rule is written as in 10.1.0.0/16=rc")]
    Form,
    /// The range is none.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The carrier is none.
    #[error(transparent)]
    Carrier(#[from] super::CarrierChoiceError),
}

impl FromStr for CarrierRule {
    type Err = CarrierRuleError;

    fn from_str(text: &str) -> Result<Self, CarrierRuleError> {
        let (peers, carrier) = text.split_once('=').ok_or(CarrierRuleError::Form)?;
        Ok(Self { peers: peers.trim().parse()?, carrier: carrier.trim().parse()? })
    }
}

impl fmt::Display for CarrierRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.peers, self.carrier)
    }
}

/// What the rules say of a peer, if one has it.
pub(crate) fn carrier_for(rules: &[CarrierRule], peer: IpAddr) -> Option<CarrierChoice> {
    let of_peer = rules.iter().filter(|rule| rule.peers.contains(peer));
    of_peer.max_by_key(|rule| rule.peers.bits).map(|rule| rule.carrier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> CarrierRule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_longest_prefix_that_has_a_peer_counts() {
        let rules = ["0.0.0.0/0=tcp", "10.1.0.0/16=rc", "10.1.2.3=uc", "fd00::/8=rc"].map(rule);
        let of = |ip: &str| carrier_for(&rules, ip.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), Some(CarrierChoice::Tcp));
        assert_eq!(of("10.1.255.255"), Some(CarrierChoice::Rc));
        assert_eq!(of("::ffff:10.1.0.1"), Some(CarrierChoice::Rc), "an IPv4 address in IPv6");
        assert_eq!(of("10.1.2.3"), Some(CarrierChoice::Uc));
        assert_eq!((of("fd12::1"), of("fe80::1")), (Some(CarrierChoice::Rc), None));
        assert_eq!(carrier_for(&rules[1..], "10.2.0.0".parse().expect("an address")), None);
    }

    #[test]
    fn rules_are_shown_as_they_are_written_and_others_are_refused() {
        for text in ["10.1.0.0/16=rc", "10.1.2.3/32=uc", "fd00::/8=tcp", "::/0=auto"] {
            assert_eq!(rule(text).to_string(), text);
        }
        let refused = |text: &str| text.parse::<CarrierRule>().expect_err(text).to_string();
        assert!(refused("10.1.2.3/16=rc").contains("write 10.1.0.0/16"));
        for text in ["10.1.0.0/33=rc", "pod=rc", "10.1.0.0/16", "10.1.0.0/16=ud", "::/129=rc"] {
            let _ = refused(text);
        }
    }
}
