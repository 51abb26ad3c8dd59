//! Which carriers the links of an endpoint went to, when and why.

use crate::ids::LinkId;
use crate::limits::RIDES_MAX;
use std::collections::VecDeque;
use std::fmt;
use towpath_base::{Nanos, Time};
use towpath_proto::{Carrier, CarrierReason};

/// A change of carrier. Shown it is a line for whoever waits for what the link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ride {
    /// The link.
    pub link: LinkId,
    /// When, since the endpoint was made.
    pub at: Nanos,
    /// The carrier before.
    pub from: Carrier,
    /// The carrier from then on.
    pub to: Carrier,
    /// Why.
    pub why: CarrierReason,
}

impl fmt::Display for Ride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, why, .. } = self;
        let at = self.at.0 / 100_000_000;
        write!(f, "rode on {to} from {}.{} s on: ", at / 10, at % 10)?;
        match why {
            CarrierReason::Silent => {
                write!(f, "no packet over UDP ({from}) was acknowledged; is UDP blocked?")
            }
            CarrierReason::Lossy => write!(f, "too many packets over UDP ({from}) were lost"),
            CarrierReason::Peer => write!(f, "the other end went there"),
            CarrierReason::Recovered => write!(f, "packets over UDP arrive again"),
            why => write!(f, "{why}"),
        }
    }
}

/// The changes of carrier of an endpoint's links, the latest of them.
#[derive(Clone, Debug)]
pub struct Rides {
    since: Time,
    latest: VecDeque<Ride>,
    count: u64,
}

impl Rides {
    pub(crate) fn new(since: Time) -> Self {
        Self { since, latest: VecDeque::new(), count: 0 }
    }

    pub(crate) fn note(
        &mut self,
        now: Time,
        link: LinkId,
        (from, to, why): (Carrier, Carrier, CarrierReason),
    ) {
        let ride = Ride { link, at: now.since(self.since), from, to, why };
        if self.latest.len() == RIDES_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(ride);
        self.count += 1;
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Those that came after the first `seen`, as far as they are kept.
    pub fn after(&self, seen: u64) -> impl Iterator<Item = &Ride> {
        let new = self.count.saturating_sub(seen).min(self.latest.len() as u64) as usize;
        self.latest.iter().skip(self.latest.len() - new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_in_a_line_with_its_reason() {
        let mut rides = Rides::new(Time::ZERO);
        let link = LinkId { index: 0, life: 1 };
        let down = (Carrier::Uc, Carrier::Tcp, CarrierReason::Silent);
        let up = (Carrier::Tcp, Carrier::Uc, CarrierReason::Recovered);
        for (number, (from, to, why)) in [down, up].into_iter().cycle().take(200).enumerate() {
            let at = Nanos::from_millis(2_150 * (number as u64 + 1));
            rides.note(Time::ZERO + at, link, (from, to, why));
        }
        assert_eq!((rides.count(), rides.after(0).count(), rides.after(200).count()), (200, 64, 0));
        let shown: Vec<String> = rides.after(198).map(Ride::to_string).collect();
        assert_eq!(
            shown,
            [
                "rode on TCP from 427.8 s on: no packet over UDP (UC) was acknowledged; is UDP \
                 blocked?",
                "rode on UC from 430.0 s on: packets over UDP arrive again",
            ]
        );
    }
}
