//! Which carrier the paths of links get.

use crate::error::EndpointError;
pub use towpath_proto::Carrier;
use towpath_proto::wire::Hello;
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

/// What links fall back to when what they ride on is silent and this is not; the better first, and
/// back when probes say so (docs/protocol.md section 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Nothing: a link whose carrier gets nothing through ends.
    #[default]
    None,
    /// The set-up connection.
    Tcp,
    /// A queue pair of RC, and behind it the set-up connection.
    RcThenTcp,
}

impl Fallback {
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
    /// What it comes to on a device.
    pub(crate) fn settle(self, verbs: &VerbSet) -> Result<Carrier, EndpointError> {
        let wanted = match self {
            Self::Auto if !verbs.uc => Carrier::Rc,
            Self::Auto | Self::Uc => Carrier::Uc,
            Self::Rc => Carrier::Rc,
            Self::Tcp => Carrier::Tcp,
        };
        let has_it = has(wanted, verbs);
        if has_it { Ok(wanted) } else { Err(EndpointError::NoCarrier { wanted }) }
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
