//! What a link asks its peer for, and with how much less it asks again.

use crate::carrier::{CarrierChoice, Fallback, has};
use crate::config::EndpointConfig;
use crate::error::ConnectError;
use towpath_proto::Carrier;
use towpath_proto::wire::Refusal;
use towpath_verbs::VerbSet;

/// What a HELLO asks for beside its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asks {
    pub(crate) carrier: Carrier,
    /// Paths on that carrier.
    pub(crate) paths: usize,
    pub(crate) fallback: Fallback,
    /// Whether it tells of further NICs than the first; false where there are none.
    pub(crate) further_nics: bool,
}

impl Asks {
    /// What to ask for after a refusal, where that may help: nothing is given up that the owner of
    /// the endpoint has chosen, but for what a link falls back to, which both ends must have.
    pub(crate) fn after(
        self,
        error: &ConnectError,
        config: &EndpointConfig,
        verbs: &VerbSet,
    ) -> Option<Self> {
        let ConnectError::Refused { refusal, .. } = error else { return None };
        match *refusal {
            Refusal::Paths { most }
                if !config.carriers.has_paths && usize::from(most) < self.paths =>
            {
                Some(Self { paths: most.into(), ..self })
            }
            Refusal::Fallback { rc, tcp } => {
                let fallback = Fallback::of_refusal(rc, tcp).min(self.fallback);
                (fallback < self.fallback).then_some(Self { fallback, ..self })
            }
            // An older server does not say that its links do not fall back to RC.
            Refusal::Limits if !config.carriers.has_fallback && self.fallback > Fallback::Tcp => {
                Some(Self { fallback: Fallback::Tcp, ..self })
            }
            // An older server knows of one NIC an end.
            Refusal::Malformed if self.further_nics => Some(Self { further_nics: false, ..self }),
            Refusal::Carrier { wanted } => {
                let is_free =
                    config.carriers.choice == CarrierChoice::Auto && wanted != self.carrier;
                (is_free && has(wanted, verbs)).then_some(Self { carrier: wanted, ..self })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn less_is_asked_for_where_that_was_refused_and_not_chosen() {
        let (carrier, fallback) = (Carrier::Uc, Fallback::RcThenTcp);
        let asks = Asks { carrier, paths: 4, fallback, further_nics: true };
        let verbs = VerbSet { uc: true, rc: true, ..VerbSet::default() };
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7400));
        let after = |config: &EndpointConfig, refusal| {
            asks.after(&ConnectError::Refused { addr, refusal }, config, &verbs)
        };
        let free = EndpointConfig::new();
        let chosen =
            EndpointConfig::new().paths(4).fallback(Fallback::RcThenTcp).carrier(CarrierChoice::Uc);
        let paths = Refusal::Paths { most: 2 };
        assert_eq!(after(&free, paths), Some(Asks { paths: 2, ..asks }));
        assert_eq!(after(&chosen, paths), None);
        assert_eq!(after(&free, Refusal::Paths { most: 4 }), None, "it was that many already");
        for config in [&free, &chosen] {
            let tcp = after(config, Refusal::Fallback { rc: false, tcp: true });
            assert_eq!(tcp, Some(Asks { fallback: Fallback::Tcp, ..asks }));
            let same = after(config, Refusal::Fallback { rc: true, tcp: true });
            assert_eq!((same, after(config, Refusal::Full)), (None, None));
        }
        assert_eq!(after(&free, Refusal::Limits), Some(Asks { fallback: Fallback::Tcp, ..asks }));
        assert_eq!(after(&free, Refusal::Malformed), Some(Asks { further_nics: false, ..asks }));
        let rc = Refusal::Carrier { wanted: Carrier::Rc };
        assert_eq!(after(&free, rc), Some(Asks { carrier: Carrier::Rc, ..asks }));
        assert_eq!(after(&chosen, rc), None);
    }
}
