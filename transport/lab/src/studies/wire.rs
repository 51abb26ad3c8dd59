//! The wire that studies have in common, and its round trip as a parameter.

use super::{Kind, Param, Params};
use towpath_base::Nanos;

/// Of every wire, in bits a second, where a study does not vary it.
pub(super) const RATE_BITS_PER_S: u64 = 100_000_000_000;

/// There and back with nothing in the way.
pub(super) const BASE_RTT: Param = Param {
    name: "rtt-us",
    what: "Base round trip",
    unit: "us",
    kind: Kind::Count(2..=10_000),
    many: false,
    defaults: ["10"; 3],
};

/// What was asked for by [`BASE_RTT`].
pub(super) fn base_rtt_of(params: &Params) -> Nanos {
    Nanos::from_micros(params.count(BASE_RTT.name))
}
