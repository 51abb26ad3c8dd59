//! Buffers that an application watches: what it keeps before it sends, and after it received.

use super::{App, FlowId, Planned, make};
use crate::content::differing;
use crate::oracle::{Oracle, Violation};
use towpath_base::{Nanos, Prng, Time};
use towpath_memory::Region;
use towpath_transport::{Chunk, Endpoint, Message, Payload};
use towpath_verbs::Device;

/// Messages that lie in their buffers before they are sent, at most.
const DRAFTS_MAX: usize = 8;

/// What was received and is not given back yet.
pub(super) enum Received {
    Message(Message),
    Chunk(Chunk),
}

impl Received {
    /// How many of its bytes are not those of `copy` any more.
    fn changed(&self, copy: &[u8]) -> u64 {
        match self {
            Self::Message(message) => {
                let (mut rest, mut changed) = (copy, 0);
                for part in message.parts() {
                    let (of_part, after) = rest.split_at(part.len().min(rest.len()));
                    (changed, rest) = (changed + differing(part, of_part), after);
                }
                changed
            }
            Self::Chunk(chunk) => differing(chunk, copy),
        }
    }
}

/// What a reader that has stopped, or looks again, holds on to.
pub(super) struct Shelved {
    item: Received,
    pub(super) until: Time,
    /// What it was when it came, where it is looked at again.
    copy: Option<Vec<u8>>,
}

/// How an application watches its buffers.
pub(super) struct Watch {
    pub(super) span_max: Nanos,
    pub(super) prng: Prng,
}

impl Watch {
    fn span(&mut self) -> Nanos {
        Nanos(self.prng.below(self.span_max.0 + 1))
    }
}

/// A message that lies in its buffers for a while before it is sent.
pub(super) struct Draft {
    planned: Planned,
    flow: FlowId,
    payload: Payload,
    fingerprint: u64,
    pub(super) until: Time,
}

impl App {
    pub(super) fn shelve<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        item: Received,
    ) {
        let now = endpoint.now();
        if let Some(watch) = &mut self.watch {
            let copy = match &item {
                Received::Message(message) => message.parts().flatten().copied().collect(),
                Received::Chunk(chunk) => chunk.to_vec(),
            };
            self.shelf.push(Shelved { item, until: now + watch.span(), copy: Some(copy) });
        } else if now < self.reads_again_at {
            self.shelf.push(Shelved { item, until: now, copy: None });
        } else {
            give_back(endpoint, item);
        }
    }

    /// Gives back what it has kept long enough, and looks whether it is still what it was.
    pub(super) fn read_again<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        oracle: &mut Oracle,
    ) {
        let now = endpoint.now();
        if now < self.reads_again_at {
            return;
        }
        let host = usize::from(self.host);
        for shelved in self.shelf.extract_if(.., |shelved| shelved.until <= now) {
            let bytes = shelved.copy.map_or(0, |copy| shelved.item.changed(&copy));
            if bytes > 0 {
                oracle.report(Violation::Changed { host, bytes });
            }
            give_back(endpoint, shelved.item);
        }
    }

    /// Fills buffers ahead of time, as far as there are any.
    pub(super) fn draft<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        oracle: &Oracle,
    ) {
        let now = endpoint.now();
        while self.watch.is_some()
            && self.drafts.len() < DRAFTS_MAX
            && let Some(&planned) = self.script.front().filter(|planned| planned.at <= now)
            && let Some((_, flow)) = self.open(&planned)
        {
            let ahead = self.drafts.iter().filter(|draft| draft.flow == flow).count() as u64;
            let content = self.content(flow, oracle.next_number(flow) + ahead);
            let Some((payload, fingerprint)) = make(endpoint, &planned, content) else { return };
            let until = now + self.watch.as_mut().map_or(Nanos::ZERO, Watch::span);
            self.drafts.push_back(Draft { planned, flow, payload, fingerprint, until });
            self.script.pop_front();
        }
    }

    /// Sends what has lain long enough, and looks first whether it is still what it was.
    pub(super) fn send_drafts<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        oracle: &mut Oracle,
    ) {
        let now = endpoint.now();
        while self.out.len() < self.depth
            && let Some(draft) = self.drafts.pop_front_if(|draft| draft.until <= now)
        {
            let host = usize::from(self.host);
            let bytes = self.changed_in(&draft, oracle);
            if bytes > 0 {
                oracle.report(Violation::Changed { host, bytes });
            }
            let Some(place) = self.open(&draft.planned) else { continue };
            let Draft { planned, payload, fingerprint, .. } = draft;
            self.submit(endpoint, &planned, place, (payload, fingerprint), oracle);
        }
    }

    fn changed_in(&self, draft: &Draft, oracle: &Oracle) -> u64 {
        let content = self.content(draft.flow, oracle.next_number(draft.flow));
        let (mut offset, mut changed, mut wanted) = (0, 0, Vec::new());
        for segment in draft.payload.segments() {
            wanted.resize(segment.len(), 0);
            content.fill(offset, &mut wanted);
            changed += differing(segment, &wanted);
            offset += segment.len() as u64;
        }
        changed
    }
}

fn give_back<D: Device<Memory = Region>>(endpoint: &mut Endpoint<D>, item: Received) {
    match item {
        Received::Message(message) => endpoint.release(message),
        Received::Chunk(chunk) => endpoint.release_chunk(chunk),
    }
}
