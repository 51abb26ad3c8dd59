//! The difference between two moments of a cluster: goodput, fairness, repair.

use super::{Cluster, FlowCount};
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::LinkStats;
use towpath_verbs::Device;

/// What a cluster had counted at a moment.
#[derive(Clone, Debug)]
pub struct Moment {
    at: Time,
    flows: Vec<FlowCount>,
    links: LinkStats,
}

/// What a cluster did between two moments.
#[derive(Clone, Debug)]
pub struct Window {
    /// How long it was.
    pub span: Nanos,
    /// What each flow did.
    pub flows: Vec<FlowCount>,
    /// Payload bytes that all endpoints sent, those sent again included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Retransmission timeouts.
    pub rtos: u64,
    /// Tail-loss probes.
    pub tail_probes: u64,
}

impl<D: Device<Memory = Region>> Cluster<D> {
    /// What is counted now.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let mut links = LinkStats::default();
        self.runner.machines().for_each(|host| links += host.endpoint.stats_of_all_links());
        let flows = self.runner.shared.flows.iter().map(|flow| flow.count).collect();
        Moment::new(self.now(), flows, links)
    }

    /// What was done since a moment of this cluster.
    #[must_use]
    pub fn since(&self, begin: &Moment) -> Window {
        Window::between(begin, &self.moment())
    }
}

impl Moment {
    pub(crate) fn new(at: Time, flows: Vec<FlowCount>, links: LinkStats) -> Self {
        Self { at, flows, links }
    }
}

impl Window {
    pub(crate) fn between(begin: &Moment, end: &Moment) -> Self {
        // Flows that were added since began with nothing.
        let earlier = begin.flows.iter().copied().chain(core::iter::repeat(FlowCount::default()));
        Self {
            span: end.at.since(begin.at),
            flows: end.flows.iter().zip(earlier).map(|(now, then)| now.since(&then)).collect(),
            bytes_sent: end.links.bytes_sent - begin.links.bytes_sent,
            bytes_retransmitted: end.links.bytes_retransmitted - begin.links.bytes_retransmitted,
            rtos: end.links.rtos - begin.links.rtos,
            tail_probes: end.links.tail_probes - begin.links.tail_probes,
        }
    }

    /// Goodput of each flow in bits a second.
    pub fn goodputs(&self) -> impl Iterator<Item = f64> {
        let seconds = self.span.as_secs_f64();
        self.flows.iter().map(move |flow| flow.bytes as f64 * 8.0 / seconds)
    }

    /// Goodput of all flows together in bits a second.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.goodputs().sum()
    }

    /// Jain's fairness index of the flows' goodputs.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        jain(self.goodputs())
    }

    /// Bytes sent again, of all that were sent.
    #[must_use]
    pub fn retransmitted(&self) -> f64 {
        if self.bytes_sent == 0 {
            0.0
        } else {
            self.bytes_retransmitted as f64 / self.bytes_sent as f64
        }
    }
}

/// Jain's fairness index: the square of the sum over n times the sum of the squares. 1 when all
/// shares are equal, 1/n when one has everything; 1 of nothing.
#[must_use]
pub fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equal_shares_and_one_nth_for_one_that_has_all() {
        assert_eq!(jain([3.0; 7].into_iter()), 1.0);
        assert_eq!(jain([5.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert!((jain([1.0, 2.0].into_iter()) - 0.9).abs() < 1e-12);
        assert_eq!(jain(core::iter::empty()), 1.0);
    }
}
