//! What must hold whatever happens, judged apart from what a scenario does.
//!
//! The oracle is told what was sent, how each message ended for its sender, and what each reader
//! got. Per flow (one direction of one channel in one life of a link) it demands:
//!
//! - what is delivered was sent in this flow, is intact, and comes no more often than it was sent;
//! - on ordered channels messages come in the order they were sent;
//! - an abandoned message never comes whole;
//! - a delivered one has come, unless its reader's host died or left first;
//! - each message has one outcome.

mod flow;
mod violation;

pub use flow::FlowId;
pub use violation::Violation;

use flow::FlowBook;
use std::collections::BTreeMap;
use towpath_proto::Outcome;

/// How a life of a link ended for one host, for what may be demanded of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both hosts sent and read all that they wanted.
    Orderly,
    /// The host lived on, but lost its peer: its messages have outcomes. Messages that it held may
    /// have waited on an ordered channel for one that never came.
    Bereft,
    /// The host died: it saw no outcomes, and what it held is gone.
    Died,
}

/// The judge of one run.
#[derive(Debug, Default)]
pub struct Oracle {
    flows: BTreeMap<FlowId, FlowBook>,
    violations: Vec<Violation>,
    messages_delivered: u64,
    bytes_delivered: u64,
}

impl Oracle {
    /// One that was told nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number that the next message of a flow will have.
    #[must_use]
    pub fn next_number(&self, flow: FlowId) -> u64 {
        self.flows.get(&flow).map_or(0, |flow| flow.sent())
    }

    /// A message was taken for sending; its number is [`next_number`](Self::next_number).
    pub fn sent(&mut self, flow: FlowId, ordered: bool, len: u32, fingerprint: u64) {
        self.flows.entry(flow).or_insert_with(|| FlowBook::new(ordered)).send(len, fingerprint);
    }

    /// A sender was told how a message ended.
    pub fn outcome(&mut self, id: FlowId, number: u64, outcome: Outcome) {
        let found = self.flows.get_mut(&id).map(|flow| flow.end(number, outcome));
        if found != Some(true) {
            self.violations.push(Violation::OutcomeTwice { flow: id, number });
        }
    }

    /// A reader got a whole message.
    pub fn delivered(&mut self, id: FlowId, len: u32, fingerprint: u64) {
        self.messages_delivered += 1;
        self.bytes_delivered += u64::from(len);
        let judged = match self.flows.get_mut(&id) {
            Some(flow) => flow.deliver(id, len, fingerprint),
            None => Err(Violation::Foreign { flow: id, len, from: None }),
        };
        if let Err(mut violation) = judged {
            if let Violation::Foreign { from, .. } = &mut violation {
                *from = self.origin(len, fingerprint);
            }
            self.violations.push(violation);
        }
    }

    /// Which flow's message these bytes are.
    fn origin(&self, len: u32, fingerprint: u64) -> Option<(FlowId, u64)> {
        let mut found = self.flows.iter();
        found.find_map(|(&id, flow)| Some((id, flow.find(len, fingerprint)?)))
    }

    /// Whether every message of `life` has its outcome, and every delivered one has come.
    #[must_use]
    pub fn is_settled(&self, life: u32) -> bool {
        self.of_life(life).all(|(_, flow)| flow.is_settled())
    }

    /// What would be wrong with `life` if it had ended in order now.
    #[must_use]
    pub fn unsettled(&self, life: u32) -> Vec<Violation> {
        let mut found = Vec::new();
        let orderly = Ending::Orderly;
        self.of_life(life).for_each(|(id, flow)| flow.check(id, orderly, orderly, &mut found));
        found
    }

    fn of_life(&self, life: u32) -> impl Iterator<Item = (FlowId, &FlowBook)> {
        self.flows.iter().filter(move |(id, _)| id.life == life).map(|(&id, flow)| (id, flow))
    }

    /// A life of the link is over: checks what can be demanded of it.
    pub fn end_life(&mut self, life: u32, endings: [Ending; 2]) {
        let mut found = Vec::new();
        for (id, flow) in self.of_life(life) {
            let (sender, reader) = (usize::from(id.from), usize::from(1 - id.from));
            flow.check(id, endings[sender], endings[reader], &mut found);
        }
        self.violations.append(&mut found);
    }

    /// Something beside messages was wrong.
    pub fn report(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    /// What was wrong so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Messages that readers got.
    #[must_use]
    pub fn messages_delivered(&self) -> u64 {
        self.messages_delivered
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes_delivered(&self) -> u64 {
        self.bytes_delivered
    }
}

#[cfg(test)]
mod tests;
