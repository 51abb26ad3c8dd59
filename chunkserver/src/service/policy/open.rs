//! Requests whose data is still coming: which events are for which, and the answers to effects.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, Sender, unbounded};
use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::{StorageRequest, shown_head};
use towpath_fastpath::wire::WriteHeader;
use towpath_rpc::{Fate, Head, Piece, RequestKey, Responder, Streamed};
use towpath_transport::{Device, LinkId, Region, Time};

use super::staged::Unwanted;
use super::store::Writing;
use super::{Context, Effect, Policy, Staged};
use crate::service::answer::Answer;
use crate::service::ask::Ask;
use crate::service::errors::of_unsent;
use crate::service::server::{Asked, ChunkServer};
use crate::service::trace::Came;
use crate::store::disks::{Target, Unsent};
use crate::store::{ChunkId, Request};

/// A request that has begun.
#[derive(Debug)]
struct Begun {
    responder: Responder,
    deadline: Time,
    /// The poll that brought its first piece.
    began: Time,
    /// All of it has come.
    is_whole: bool,
    what: What,
}

#[derive(Debug)]
enum What {
    Write(Writing),
    /// It has no data, but its message came in pieces all the same.
    Other(StorageRequest),
}

/// The requests whose data is still coming: no more than links may have under way.
#[derive(Debug)]
pub(in crate::service) struct Open {
    begun: HashMap<RequestKey, Begun>,
    next_stage: u64,
    /// Where stages are told that are not wanted any more.
    unwanted: (Sender<Unwanted>, Receiver<Unwanted>),
    /// One of them whose disk's queue had no room.
    waiting: Option<Unwanted>,
}

impl Default for Open {
    fn default() -> Self {
        Self { begun: HashMap::new(), next_stage: 0, unwanted: unbounded(), waiting: None }
    }
}

impl Open {
    /// A link is gone, and with it what it had begun.
    pub(in crate::service) fn forget(&mut self, link: LinkId) {
        self.begun.retain(|_, begun| begun.responder.link() != link);
    }

    /// When the time of one is over, at the earliest.
    pub(in crate::service) fn next_expiry(&self) -> Time {
        self.begun.values().map(|begun| begun.deadline).min().unwrap_or(Time::NEVER)
    }

    fn writing(&mut self, request: RequestKey) -> Option<&mut Writing> {
        match &mut self.begun.get_mut(&request)?.what {
            What::Write(writing) => Some(writing),
            What::Other(_) => None,
        }
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A part of a request has come.
    pub(in crate::service) fn on_streamed(&mut self, streamed: Streamed) {
        match streamed {
            Streamed::Begun(head) => self.begin(head),
            Streamed::Data { request, offset, piece } => self.on_data(request, offset, piece),
            Streamed::Whole { request } => {
                if let Some(begun) = self.open.begun.get_mut(&request) {
                    begun.is_whole = true;
                    self.complete_when_answered(request);
                }
            }
            Streamed::Broken { request } => drop(self.end_begun(request)),
        }
    }

    fn begin(&mut self, head: Head) {
        let (request, deadline) = (head.request_key(), head.deadline());
        let parsed = self.checked(head.link(), shown_head(&head));
        let responder = head.into_responder();
        let what = parsed.and_then(|parsed| match parsed {
            StorageRequest::Write { header, crcs } => {
                self.open.next_stage += 1;
                let class = self.class_of(responder.link());
                let unwanted = self.open.unwanted.0.clone();
                let staged = Staged::new(self.open.next_stage, class, unwanted);
                let mut context = Context::default();
                self.policy.header(&mut context, (header, crcs, staged)).map(What::Write)
            }
            other => Ok(What::Other(other)),
        });
        match what {
            Ok(what) => {
                self.next_expiry = self.next_expiry.min(deadline);
                let began = self.polled;
                let begun = Begun { responder, deadline, began, is_whole: false, what };
                self.open.begun.insert(request, begun);
            }
            Err(answer) => self.answer(responder, deadline, answer),
        }
    }

    fn on_data(&mut self, request: RequestKey, offset: usize, piece: Piece) {
        let Some(begun) = self.open.begun.get(&request) else { return };
        let What::Write(writing) = &begun.what else { return };
        let mut context = self.context(begun.responder.link(), writing.chunk());
        let Some(writing) = self.open.writing(request) else { return };
        let taken = self.policy.payload(&mut context, writing, offset, piece);
        self.stats.wire_corrupt += u64::from(context.is_corrupt);
        match (taken, context.effect) {
            (Err(answer), _) => self.refuse_begun(request, answer),
            (Ok(()), Some(effect)) => self.act(request, effect),
            (Ok(()), None) => {}
        }
    }

    /// Does what a handler wants done.
    fn act(&mut self, request: RequestKey, effect: Effect) {
        let Effect::Stage { stage, chunk, first_slice, offset, piece } = effect;
        let disk = self.store.disk_of(chunk);
        let Some(begun) = self.open.begun.get(&request) else { return };
        // Its client, as far as that can be told: a link names no other one while it is up.
        let owner = begun.responder.link().index();
        let Some(writing) = self.open.writing(request) else { return };
        writing.staged.ask(disk);
        let class = writing.staged.class();
        let mut data = self.policy.spare.take_data();
        data.push(piece);
        let token = self.staged.insert(Asked::Stage { request, offset });
        let asked = Request::Stage { stage, owner, chunk, first_slice, data };
        if let Err(unsent) = self.store.send(class, token as u64, asked) {
            // There was room, so the disk is gone.
            self.staged.remove(token);
            let error = of_unsent(Some(Target::Chunk(chunk)), unsent);
            self.refuse_begun(request, Answer::Error(error));
        }
    }

    /// The store has taken a piece, or has not.
    pub(in crate::service) fn on_stage(
        &mut self,
        request: RequestKey,
        offset: usize,
        is_staged: bool,
        mut data: Vec<Piece>,
    ) {
        let byte_len = data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let piece = data.pop().filter(|_| !is_staged);
        self.policy.spare.put_data(data);
        self.stats.staged_bytes += if is_staged { byte_len } else { 0 };
        let Some(begun) = self.open.begun.get(&request) else { return };
        let (is_whole, link) = (begun.is_whole, begun.responder.link());
        let Some(writing) = self.open.writing(request) else { return };
        writing.on_staged(offset, piece);
        let chunk = writing.chunk();
        let context = self.context(link, chunk);
        let Some(writing) = self.open.writing(request) else { return };
        if is_whole || writing.can_wait(&context) {
            self.complete_when_answered(request);
        } else {
            // The store has no room for it now.
            self.refuse_begun(request, Answer::Error(ErrorReply::Busy));
        }
    }

    /// Goes on with a request that is whole, once every effect has had its answer.
    fn complete_when_answered(&mut self, request: RequestKey) {
        let is_complete = self.open.begun.get(&request).is_some_and(|begun| {
            let asked = if let What::Write(writing) = &begun.what { writing.asked } else { 0 };
            begun.is_whole && asked == 0
        });
        if !is_complete {
            return;
        }
        let Some(begun) = self.open.begun.remove(&request) else { return };
        let Begun { responder, deadline, began, what, .. } = begun;
        let came = Came { began, taken: self.endpoint.now() };
        let asked = match what {
            What::Write(writing) => self.complete_write(writing),
            What::Other(asked) => self.accept(asked),
        };
        self.take_or_answer(responder, deadline, asked, came);
    }

    fn complete_write(&mut self, mut writing: Writing) -> Result<Ask, Answer> {
        let mut context = Context::default();
        let completed = self.policy.complete(&mut context, &mut writing);
        self.stats.wire_corrupt += u64::from(context.is_corrupt);
        completed.inspect_err(|_| self.policy.cleanup(writing))
    }

    /// All of a write has come at once.
    pub(in crate::service) fn write_at_once(
        &mut self,
        (header, crcs): (WriteHeader, Vec<u32>),
        pieces: impl IntoIterator<Item = Piece>,
    ) -> Result<Ask, Answer> {
        // It is here, so it can wait; and nothing is gained by staging.
        let mut context = Context { whole_bytes_max: usize::MAX, ..Context::default() };
        let staged = Staged::default();
        let mut writing = self.policy.header(&mut context, (header, crcs, staged))?;
        let mut offset = 0;
        for piece in pieces {
            let at = offset;
            offset += piece.len();
            let taken = self.policy.payload(&mut context, &mut writing, at, piece);
            if let Err(answer) = taken {
                self.stats.wire_corrupt += u64::from(context.is_corrupt);
                self.policy.cleanup(writing);
                return Err(answer);
            }
        }
        self.complete_write(writing)
    }

    /// Ends a request that is not complete; what still comes of it is dropped.
    fn end_begun(&mut self, request: RequestKey) -> Option<(Responder, Time)> {
        let Begun { responder, deadline, what, .. } = self.open.begun.remove(&request)?;
        if let What::Write(writing) = what {
            self.policy.cleanup(writing);
        }
        Some((responder, deadline))
    }

    pub(in crate::service) fn refuse_begun(&mut self, request: RequestKey, answer: Answer) {
        if let Some((responder, deadline)) = self.end_begun(request) {
            self.answer(responder, deadline, answer);
        }
    }

    /// Gives up a request that nobody waits for any more; says whether it was one that has begun.
    pub(in crate::service) fn give_up_begun(&mut self, request: RequestKey) -> bool {
        let Some((responder, _)) = self.end_begun(request) else { return false };
        self.rpc.abandon(&mut self.endpoint, responder, Fate::DidNotHappen);
        true
    }

    /// Gives up those whose time is over; says how many they were.
    pub(in crate::service) fn expire_begun(&mut self, now: Time) -> usize {
        let begun = self.open.begun.iter();
        let over = begun.filter(|(_, begun)| begun.deadline <= now).map(|(key, _)| *key);
        let over: Vec<RequestKey> = over.collect();
        over.iter().filter(|request| self.give_up_begun(**request)).count()
    }

    /// Has the store forget what it staged for writes that were given up.
    pub(in crate::service) fn unstage_unwanted(&mut self) {
        while let Some((stage, disk, class)) =
            self.open.waiting.take().or_else(|| self.open.unwanted.1.try_recv().ok())
        {
            let token = self.staged.insert(Asked::Unstage);
            let sent = self.store.send(class, token as u64, Request::Unstage { stage, disk });
            if let Err(unsent) = sent {
                self.staged.remove(token);
                if matches!(unsent, Unsent::Full) {
                    self.open.waiting = Some((stage, disk, class));
                    return;
                }
            }
        }
    }

    /// What handlers may know of the server, for a write to a chunk that came over a link.
    fn context(&self, link: LinkId, chunk: ChunkId) -> Context {
        let whole_bytes_max = self.endpoint.whole_bytes_max(link).unwrap_or(0) as usize;
        let class = self.class_of(link);
        let may_write = self.control.as_ref().is_none_or(|control| control.may_write(class));
        let has_room = may_write && self.store.has_room_for(class, Target::Chunk(chunk));
        Context { whole_bytes_max, has_room, ..Context::default() }
    }
}
