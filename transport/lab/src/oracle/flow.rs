//! One direction of one channel in one life of a link: what was sent, and what came.

use super::Ending;
use super::violation::Violation;
use core::fmt;
use std::collections::BTreeMap;
use towpath_proto::Outcome;

/// One direction of one channel in one life of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// The life of the link, from 0.
    pub life: u32,
    /// The host that sends, 0 or 1.
    pub from: u8,
    /// The channel.
    pub channel: u32,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "life {} channel {} from host {}", self.life, self.channel, self.from)
    }
}

/// Messages that cannot be told apart: of the same bytes. Nearly always one, but there are only
/// 256 messages of one byte.
#[derive(Debug, Default)]
struct Class {
    numbers: Vec<u64>,
    delivered: usize,
}

#[derive(Debug)]
pub(super) struct FlowBook {
    ordered: bool,
    outcomes: Vec<Option<Outcome>>,
    classes: BTreeMap<(u32, u64), Class>,
    /// The number after the newest one that came, as far as order tells.
    next: u64,
    delivered: u64,
}

impl FlowBook {
    pub(super) fn new(ordered: bool) -> Self {
        let (outcomes, classes) = (Vec::new(), BTreeMap::new());
        Self { ordered, outcomes, classes, next: 0, delivered: 0 }
    }

    pub(super) fn sent(&self) -> u64 {
        self.outcomes.len() as u64
    }

    pub(super) fn send(&mut self, len: u32, fingerprint: u64) {
        let number = self.sent();
        self.outcomes.push(None);
        self.classes.entry((len, fingerprint)).or_default().numbers.push(number);
    }

    /// False when the message does not exist or has ended before.
    pub(super) fn end(&mut self, number: u64, outcome: Outcome) -> bool {
        match self.outcomes.get_mut(number as usize) {
            Some(ended @ None) => {
                *ended = Some(outcome);
                true
            }
            _ => false,
        }
    }

    pub(super) fn deliver(
        &mut self,
        flow: FlowId,
        len: u32,
        fingerprint: u64,
    ) -> Result<(), Violation> {
        let Some(class) = self.classes.get_mut(&(len, fingerprint)) else {
            return Err(Violation::Foreign { flow, len, from: None });
        };
        class.delivered += 1;
        self.delivered += 1;
        let newest = *class.numbers.last().expect("a class has a message");
        if class.delivered > class.numbers.len() {
            return Err(Violation::Duplicate { flow, number: newest });
        }
        if self.ordered {
            // The first that fits leaves most room for those that follow.
            let next = class.numbers.iter().copied().find(|&number| number >= self.next);
            let Some(number) = next else {
                return Err(Violation::OutOfOrder { flow, number: newest, after: self.next - 1 });
            };
            self.next = number + 1;
        }
        Ok(())
    }

    pub(super) fn find(&self, len: u32, fingerprint: u64) -> Option<u64> {
        self.classes.get(&(len, fingerprint))?.numbers.first().copied()
    }

    pub(super) fn is_settled(&self) -> bool {
        let delivered = |outcome: &&Option<Outcome>| **outcome == Some(Outcome::Delivered);
        self.outcomes.iter().all(Option::is_some)
            && self.delivered >= self.outcomes.iter().filter(delivered).count() as u64
    }

    /// What can be demanded at the end.
    pub(super) fn check(
        &self,
        flow: FlowId,
        sender: Ending,
        reader: Ending,
        found: &mut Vec<Violation>,
    ) {
        let saw_outcomes = sender != Ending::Died;
        let read_all = match reader {
            Ending::Orderly => true,
            Ending::Bereft => !self.ordered,
            Ending::Died => false,
        };
        let outcome = |&number: &u64| self.outcomes[number as usize];
        for class in self.classes.values() {
            let count = |wanted| class.numbers.iter().filter(|n| outcome(n) == wanted).count();
            let first = |wanted| class.numbers.iter().copied().find(|n| outcome(n) == wanted);
            if let Some(number) = first(None).filter(|_| saw_outcomes) {
                found.push(Violation::NoOutcome { flow, number });
            }
            let (delivered, abandoned) =
                (count(Some(Outcome::Delivered)), count(Some(Outcome::Abandoned)));
            if class.delivered + abandoned > class.numbers.len()
                && let Some(number) = first(Some(Outcome::Abandoned))
            {
                found.push(Violation::AbandonedCame { flow, number });
            }
            if read_all
                && class.delivered < delivered
                && let Some(number) = first(Some(Outcome::Delivered))
            {
                found.push(Violation::DeliveredMissing { flow, number });
            }
        }
    }
}
