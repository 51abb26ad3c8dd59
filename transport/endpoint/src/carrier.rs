//! Which carrier the paths of links get.

mod rule;

pub(crate) use rule::carrier_for;
pub use rule::{CarrierRule, CarrierRuleError, Prefix, PrefixError};

use std::fmt;
use std::str::FromStr;
use towpath_proto::wire::Hello;
pub use towpath_proto::{Carrier, CarrierReason};
use towpath_verbs::{QpType, RcAttr, VerbSet};

/// What carries the paths of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CarrierChoice {
    /// UC where the device has it, else RC.
    #[default]
    Auto,
    /// UC, or no endpoint.
    Uc,
    /// RC, or no endpoint: a choice for peers close by, over a network that loses nothing.
    Rc,
    /// The set-up connection, which every host has: where RDMA does not get through at all. Bytes
    /// are copied at both ends.
    Tcp,
}

/// The text names no carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("links are carried by auto, uc, rc or tcp")]
pub struct CarrierChoiceError;

impl FromStr for CarrierChoice {
    type Err = CarrierChoiceError;

    fn from_str(text: &str) -> Result<Self, CarrierChoiceError> {
        let all = [Self::Auto, Self::Uc, Self::Rc, Self::Tcp];
        let named = |choice: &Self| choice.to_string().eq_ignore_ascii_case(text);
        all.into_iter().find(named).ok_or(CarrierChoiceError)
    }
}

impl fmt::Display for CarrierChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Uc => "uc",
            Self::Rc => "rc",
            Self::Tcp => "tcp",
        })
    }
}

/// What links fall back to when what they ride on is silent and this is not; the better first, and
/// back when probes say so (docs/protocol.md section 10). The default is everything; a device
/// without RC falls back to TCP.
///
/// Written `none`, `tcp` or `rc,tcp` in configuration files and on command lines:
///
/// ```
/// use towpath_transport::Fallback;
///
/// assert_eq!("rc,tcp".parse(), Ok(Fallback::RcThenTcp));
/// assert_eq!(Fallback::default().to_string(), "rc,tcp");
/// assert!("rc".parse::<Fallback>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fallback {
    /// Nothing: a link whose carrier gets nothing through ends.
    None,
    /// The set-up connection.
    Tcp,
    /// A queue pair of RC, and behind it the set-up connection.
    #[default]
    RcThenTcp,
}

/// The text names no fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("links fall back to none, to tcp, or to rc,tcp")]
pub struct FallbackError;

impl FromStr for Fallback {
    type Err = FallbackError;

    fn from_str(text: &str) -> Result<Self, FallbackError> {
        let text = text.to_ascii_lowercase();
        match text.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            ["none"] => Ok(Self::None),
            ["tcp"] => Ok(Self::Tcp),
            ["rc", "tcp"] => Ok(Self::RcThenTcp),
            _ => Err(FallbackError),
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Tcp => "tcp",
            Self::RcThenTcp => "rc,tcp",
        })
    }
}

impl Fallback {
    /// What of it a device has.
    pub(crate) fn on(self, verbs: &VerbSet) -> Self {
        if verbs.rc { self } else { self.min(Self::Tcp) }
    }

    /// What a peer that refused more falls back to.
    pub(crate) fn of_refusal(rc: bool, tcp: bool) -> Self {
        match (rc, tcp) {
            (_, false) => Self::None,
            (false, true) => Self::Tcp,
            (true, true) => Self::RcThenTcp,
        }
    }

    /// What links on `carrier` get beside it.
    pub(crate) fn below(self, carrier: Carrier) -> &'static [Carrier] {
        match (self, carrier) {
            (Self::None, _) | (_, Carrier::Tcp) => &[],
            (Self::RcThenTcp, Carrier::Uc) => &[Carrier::Rc, Carrier::Tcp],
            (Self::Tcp | Self::RcThenTcp, _) => &[Carrier::Tcp],
        }
    }

    /// What a peer's HELLO asks for.
    pub(crate) fn of(peer: &Hello) -> Self {
        let rides_on = peer.control.carrier;
        let has = |carrier| peer.paths.iter().any(|path| path.carrier == carrier);
        match rides_on {
            Carrier::Uc if has(Carrier::Rc) => Self::RcThenTcp,
            Carrier::Uc | Carrier::Rc if has(Carrier::Tcp) => Self::Tcp,
            _ => Self::None,
        }
    }
}

/// How RC queue pairs insist by default; see [`EndpointConfig::rc`](crate::EndpointConfig::rc),
/// which gives the reasons.
pub(crate) fn rc_default(fallback: Fallback) -> RcAttr {
    let timeout = if fallback == Fallback::None { RC_TIMEOUT_ALONE } else { RC_TIMEOUT };
    RcAttr {
        timeout,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 6,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
    }
}

/// 34 ms: with 7 retries a dead way is known after 0.3 s.
const RC_TIMEOUT: u8 = 13;

/// 1.1 s: with 7 retries a peer may be away for 8.6 s.
const RC_TIMEOUT_ALONE: u8 = 18;

impl CarrierChoice {
    /// What it comes to on a device; the carrier itself where the device lacks it.
    pub(crate) fn settle(self, verbs: &VerbSet) -> Result<Carrier, Carrier> {
        let wanted = match self {
            Self::Auto if !verbs.uc => Carrier::Rc,
            Self::Auto | Self::Uc => Carrier::Uc,
            Self::Rc => Carrier::Rc,
            Self::Tcp => Carrier::Tcp,
        };
        if has(wanted, verbs) { Ok(wanted) } else { Err(wanted) }
    }
}

/// Whether a device's links can ride on it.
pub(crate) fn has(carrier: Carrier, verbs: &VerbSet) -> bool {
    match carrier {
        Carrier::Uc => verbs.uc,
        Carrier::Rc => verbs.rc,
        Carrier::Tcp => true,
    }
}

/// The queue pairs that carry a path; none do where the set-up connection does.
pub(crate) fn qp_type(carrier: Carrier) -> Option<QpType> {
    match carrier {
        Carrier::Uc => Some(QpType::Uc),
        Carrier::Rc => Some(QpType::Rc),
        Carrier::Tcp => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_carrier_follows_from_what_the_device_has() {
        let verbs = |uc, rc| VerbSet { uc, rc, ..VerbSet::default() };
        let settle = |choice: CarrierChoice, uc, rc| choice.settle(&verbs(uc, rc)).ok();
        use CarrierChoice::{Auto, Rc, Uc};
        assert_eq!(settle(Auto, true, true), Some(Carrier::Uc));
        assert_eq!(settle(Auto, false, true), Some(Carrier::Rc));
        assert_eq!(settle(Auto, true, false), Some(Carrier::Uc));
        assert_eq!(settle(Auto, false, false), None);
        assert_eq!((settle(Rc, true, true), settle(Rc, true, false)), (Some(Carrier::Rc), None));
        assert_eq!(settle(CarrierChoice::Tcp, false, false), Some(Carrier::Tcp));
        assert_eq!((settle(Uc, true, true), settle(Uc, false, true)), (Some(Carrier::Uc), None));
    }
}
