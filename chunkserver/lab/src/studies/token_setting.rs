//! What the experiments with tokens have in common.

use super::setting::{self, PERIOD};
use super::system::TICKS;
use towpath_lab::studies::{Param, Params};

/// A period, at each level with as many ticks as [`TICKS`] has there.
pub(super) const LONG: Param = Param { defaults: ["40", "100", "1000"], ..PERIOD };

/// Ticks of a period from which on throughput is judged. What happens between two periods takes
/// some ticks: of fewer they are too large a share.
const TICKS_JUDGED: u64 = 1_000;

/// Whether periods are long enough to judge throughput.
pub(super) fn tells_of_throughput(params: &Params) -> bool {
    params.count(TICKS.name) >= TICKS_JUDGED
}

/// What everybody should know.
pub(super) fn notes(params: &Params) -> Vec<String> {
    let mut notes = setting::notes(params);
    notes.push(
        "a client misses a period in which it gets less than its reservation; one that wants no \
         more than that, when it gets less than it wants but for the I/Os under way at the end"
            .to_owned(),
    );
    notes.push(
        "published and basic follow the text of the paper: an engine gives up what it has not used \
         of an even use, so a server that divides equally takes large reservations away; whether \
         the paper's own system does so cannot be told"
            .to_owned(),
    );
    if !tells_of_throughput(params) {
        notes.push(format!(
            "throughput is not judged: what happens between two periods takes some ticks, and \
             these have {} of them; --full has {TICKS_JUDGED}",
            params.count(TICKS.name)
        ));
    }
    notes
}
