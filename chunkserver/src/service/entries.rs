//! Links that have entered a session, and entries and revocations that are not answered yet.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use towpath_fastpath::ErrorReply;
use towpath_fastpath::cap::Denied;
use towpath_rpc::Responder;
use towpath_transport::{Device, LinkId, Region, Time};

use super::answer::Answer;
use super::server::ChunkServer;
use crate::guard::Revocation;
use crate::store::{Fenced, Pass};

/// The links of this server that have entered a session.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// By the index of the link.
    passes: Vec<Option<Arc<Pass>>>,
    /// Entries that wait until the store has nothing of older links, and revocations.
    waiting: Vec<Entry>,
}

/// Leave of the session of a link for one change, until that has ended. A link without a session
/// needs none.
#[derive(Debug, Default)]
pub(super) struct Leave(Option<Arc<Pass>>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.iter().for_each(|pass| pass.end());
    }
}

#[derive(Debug)]
struct Entry {
    responder: Responder,
    deadline: Time,
    until: Until,
}

/// What an entry waits for.
#[derive(Debug)]
enum Until {
    /// The store has nothing of older links.
    IsClear(Arc<Pass>),
    /// A revocation is on stable media.
    IsRevoked(Receiver<Revocation>),
}

impl Until {
    /// The answer, where it is there.
    fn answer(&self) -> Option<Answer> {
        match self {
            Self::IsClear(pass) => pass.is_clear().then_some(Answer::Done),
            Self::IsRevoked(told) => match told.try_recv() {
                Ok(Revocation::Done) => Some(Answer::Done),
                Ok(Revocation::Full) => Some(Answer::Error(ErrorReply::NoSpace)),
                Ok(Revocation::Failed) | Err(TryRecvError::Disconnected) => {
                    Some(Answer::Error(ErrorReply::Media))
                }
                Err(TryRecvError::Empty) => None,
            },
        }
    }
}

impl Entries {
    /// Counts in a change of `link` that goes to the store.
    pub(super) fn begin(&self, link: LinkId) -> Result<Leave, Fenced> {
        let pass = self.passes.get(link.index()).and_then(Option::as_ref);
        pass.map(|pass| pass.begin()).transpose()?;
        Ok(Leave(pass.cloned()))
    }

    /// The epoch with which a link has entered its session; 0 where it has entered none.
    pub(super) fn epoch(&self, link: LinkId) -> u64 {
        let pass = self.passes.get(link.index()).and_then(Option::as_ref);
        pass.map_or(0, |pass| pass.epoch())
    }

    pub(super) fn forget(&mut self, link: LinkId) {
        if let Some(pass) = self.passes.get_mut(link.index()) {
            *pass = None;
        }
    }

    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A link enters a session. It may enter one, once: work that came before its entry would not
    /// be counted.
    pub(super) fn enter(&mut self, responder: Responder, deadline: Time, id: u128, epoch: u64) {
        let at = responder.link().index();
        let passes = &mut self.entries.passes;
        if passes.len() <= at {
            passes.resize_with(at + 1, || None);
        }
        let entered = match passes[at] {
            Some(_) => Err(Fenced),
            None => self.store.fences().enter(id, epoch).map(Arc::new),
        };
        match entered {
            Ok(pass) => {
                passes[at] = Some(Arc::clone(&pass));
                let until = Until::IsClear(pass);
                self.entries.waiting.push(Entry { responder, deadline, until });
            }
            Err(Fenced) => self.answer(responder, deadline, Answer::Error(ErrorReply::Fenced)),
        }
    }

    /// The capabilities of a serial number hold no more, which is answered when it is durable.
    pub(super) fn revoke(
        &mut self,
        responder: Responder,
        deadline: Time,
        serial: u64,
        until_ms: u64,
    ) {
        let Some(guard) = &self.guard else {
            // It has no keys, so no capability holds anyway.
            let answer = Answer::Error(ErrorReply::Denied { why: Denied::Key });
            return self.answer(responder, deadline, answer);
        };
        match guard.revoke(serial, until_ms) {
            Some(told) => {
                let until = Until::IsRevoked(told);
                self.entries.waiting.push(Entry { responder, deadline, until });
            }
            None => self.answer(responder, deadline, Answer::Error(ErrorReply::Busy)),
        }
    }

    /// Answers the entries that wait for nothing any more, and gives up those whose time is over.
    pub(super) fn answer_entries(&mut self) {
        if !self.entries.are_waiting() {
            return;
        }
        let now = self.endpoint.now();
        for index in (0..self.entries.waiting.len()).rev() {
            let entry = &self.entries.waiting[index];
            let answer = match entry.until.answer() {
                Some(answer) => answer,
                None if now >= entry.deadline => Answer::Error(ErrorReply::Busy),
                None => continue,
            };
            let Entry { responder, deadline, .. } = self.entries.waiting.swap_remove(index);
            self.answer(responder, deadline, answer);
        }
    }
}
