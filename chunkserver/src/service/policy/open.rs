//! Requests whose data is still coming: which events are for which, and the answers to effects.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, Sender, unbounded};
use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::StorageRequest;
use towpath_fastpath::wire::WriteHeader;
use towpath_rpc::{Fate, Piece, RequestKey, Responder, Streamed};
use towpath_transport::{Device, LinkId, Region, Time};

use super::staged::Unwanted;
use super::store::Writing;
use super::{Context, Effect, Policy, Staged};
use crate::service::answer::Answer;
use crate::service::ask::{Ask, Asked, Place};
use crate::service::errors::of_unsent;
use crate::service::handlers::Handler;
use crate::service::onward::{Adding, Along, PeerId, Ready, Rebuilding, Trailing};
use crate::service::server::ChunkServer;
use crate::service::stops::{Matter, StopReason, StoppedKind, Stops};
use crate::service::trace::Came;
use crate::store::disks::{Target, Unsent};
use crate::store::{ChunkId, Request};

/// A request that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) responder: Responder,
    pub(super) deadline: Time,
    /// The poll that brought its first piece.
    pub(super) began: Time,
    /// All of it has come.
    pub(super) is_whole: bool,
    pub(super) what: What,
    /// Its client's number for it.
    pub(super) number: u64,
    /// Of a write that is passed on.
    pub(super) along: Option<Box<Along>>,
}

impl Begun {
    /// What it is about.
    fn matter(&self) -> Matter {
        let (kind, place) = match (&self.along, &self.what) {
            (Some(along), _) => return along.matter(),
            (None, What::Write(writing)) => (StoppedKind::Write, writing.place()),
            (None, What::Adding(adding)) => (StoppedKind::Sum, adding.place()),
            (None, What::Rebuilding(rebuilding)) => (StoppedKind::Rebuild, rebuilding.place()),
            (None, What::Other(_) | What::Complete) => (StoppedKind::Other, Place::default()),
        };
        Matter { kind, place }
    }

    /// Others may have made it: whoever still waits for it, it goes on.
    fn must_go_on(&self) -> bool {
        match &self.what {
            What::Rebuilding(rebuilding) => rebuilding.is_released(),
            _ => self.along.as_ref().is_some_and(|along| along.is_released()),
        }
    }
}

#[derive(Debug)]
pub(super) enum What {
    Write(Writing),
    /// It has no data, but its message came in pieces all the same.
    Other(StorageRequest),
    /// A data part that is added up to a parity part.
    Adding(Adding),
    /// A range of a lost part that this server helps to make anew.
    Rebuilding(Box<Rebuilding>),
    /// A write that is passed on, and all of which is here and checked.
    Complete,
}

/// The requests whose data is still coming: no more than links may have under way.
#[derive(Debug)]
pub(in crate::service) struct Open {
    /// In an order, so that a run in virtual time can be repeated.
    pub(super) begun: BTreeMap<RequestKey, Begun>,
    /// Writes that have gone to the store, and still go to servers that are not waited for.
    pub(in crate::service) trailing: BTreeMap<RequestKey, Trailing>,
    pub(super) next_stage: u64,
    /// Where stages are told that are not wanted any more.
    pub(super) unwanted: (Sender<Unwanted>, Receiver<Unwanted>),
    /// One of them whose disk's queue had no room.
    waiting: Option<Unwanted>,
    /// Those that stopped half-way.
    pub(in crate::service) stops: Stops,
    /// When the time of one is over, at the earliest.
    next_expiry: Time,
}

impl Default for Open {
    fn default() -> Self {
        let (waiting, stops) = (None, Stops::default());
        let (begun, trailing) = (BTreeMap::new(), BTreeMap::new());
        let (unwanted, next_expiry) = (unbounded(), Time::NEVER);
        Self { begun, trailing, next_stage: 0, unwanted, waiting, stops, next_expiry }
    }
}

impl Open {
    /// The time of one is over then.
    pub(in crate::service) fn expires(&mut self, deadline: Time) {
        self.next_expiry = self.next_expiry.min(deadline);
    }

    /// When the time of one is over, at the earliest.
    fn first_deadline(&self) -> Time {
        let begun = self.begun.values().filter(|begun| !begun.must_go_on());
        let trailing = self.trailing.values().map(|trailing| trailing.to.deadline);
        begun.map(|begun| begun.deadline).chain(trailing).min().unwrap_or(Time::NEVER)
    }

    /// A write that is passed on.
    pub(in crate::service) fn along(&mut self, request: RequestKey) -> Option<&mut Along> {
        match self.begun.get_mut(&request) {
            Some(begun) => begun.along.as_deref_mut(),
            None => Some(&mut *self.trailing.get_mut(&request)?.along),
        }
    }

    /// The link over which one came.
    pub(in crate::service) fn link_of(&self, request: RequestKey) -> Option<LinkId> {
        Some(self.begun.get(&request)?.responder.link())
    }

    /// Bytes of the ranges that this server helps to make anew for a link.
    pub(in crate::service) fn rebuilding_bytes_of(&self, link: LinkId) -> usize {
        let of_link = self.begun.values().filter(|begun| begun.responder.link() == link);
        let bytes = of_link.map(|begun| match &begun.what {
            What::Rebuilding(rebuilding) => rebuilding.byte_len(),
            _ => 0,
        });
        bytes.sum()
    }

    /// The same, and how its client is told that this server is ready for its last bytes.
    pub(in crate::service) fn passed_on(
        &mut self,
        request: RequestKey,
    ) -> Option<(&mut Along, Ready)> {
        if let Some(Trailing { along, to }) = self.trailing.get_mut(&request) {
            return Some((along, *to));
        }
        let Begun { responder, deadline, number, along, .. } = self.begun.get_mut(&request)?;
        let way = (responder.link(), responder.channel());
        let ready = Ready { request, way, number: *number, deadline: *deadline };
        Some((along.as_deref_mut()?, ready))
    }

    /// Takes a write out that all behind have made.
    pub(in crate::service) fn take_passed(
        &mut self,
        request: RequestKey,
    ) -> Option<((Responder, Time, Time), Box<Along>)> {
        let Begun { responder, deadline, began, along, .. } = self.begun.remove(&request)?;
        Some(((responder, deadline, began), along?))
    }

    /// A data part that is added up.
    pub(in crate::service) fn adding(&mut self, request: RequestKey) -> Option<&mut Adding> {
        match &mut self.begun.get_mut(&request)?.what {
            What::Adding(adding) => Some(adding),
            _ => None,
        }
    }

    /// A range that is made anew, and until when.
    pub(in crate::service) fn rebuilding(
        &mut self,
        request: RequestKey,
    ) -> Option<(&mut Rebuilding, Time)> {
        let Begun { what, deadline, .. } = self.begun.get_mut(&request)?;
        match what {
            What::Rebuilding(rebuilding) => Some((rebuilding, *deadline)),
            _ => None,
        }
    }

    /// Takes it out: its sum is stored by it.
    pub(in crate::service) fn take_adding(
        &mut self,
        request: RequestKey,
    ) -> Option<((Responder, Time, Time), Adding)> {
        let Begun { responder, deadline, began, what, .. } = self.begun.remove(&request)?;
        let What::Adding(adding) = what else { return None };
        Some(((responder, deadline, began), adding))
    }

    /// What is to go to a server, and has not.
    pub(in crate::service) fn unsent_to(&self, peer: PeerId) -> Vec<RequestKey> {
        let is_it = |begun: &Begun| match &begun.what {
            What::Rebuilding(rebuilding) => rebuilding.is_unsent_to(peer),
            _ => begun.along.as_ref().is_some_and(|along| along.is_unsent_to(peer)),
        };
        let begun = self.begun.iter().filter(|(_, begun)| is_it(begun)).map(|(request, _)| request);
        let trailing = self.trailing.iter().filter(|(_, of)| of.along.is_unsent_to(peer));
        begun.chain(trailing.map(|(request, _)| request)).copied().collect()
    }

    /// How many there are, and stages that are to be forgotten.
    #[cfg(test)]
    pub(in crate::service) fn left(&self) -> (usize, usize) {
        let begun = self.begun.len() + self.trailing.len();
        (begun, self.unwanted.1.len() + usize::from(self.waiting.is_some()))
    }

    fn writing(&mut self, request: RequestKey) -> Option<&mut Writing> {
        match &mut self.begun.get_mut(&request)?.what {
            What::Write(writing) => Some(writing),
            What::Other(_) | What::Adding(_) | What::Rebuilding(_) | What::Complete => None,
        }
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A part of a request has come.
    pub(in crate::service) fn on_streamed(&mut self, streamed: Streamed) {
        match streamed {
            Streamed::Begun(head) => {
                let began = self.handler_begins();
                self.begin(head);
                self.handler_ends(Handler::Header, began);
            }
            Streamed::Data { request, offset, piece } => self.on_piece(request, offset, piece),
            Streamed::Whole { request } => self.on_whole(request),
            Streamed::Broken { request } => {
                self.end_begun(request, Some(StopReason::Abandoned));
            }
        }
    }

    pub(super) fn on_whole(&mut self, request: RequestKey) {
        let Some(begun) = self.open.begun.get_mut(&request) else { return };
        begun.is_whole = true;
        if matches!(begun.what, What::Rebuilding(_)) {
            // It goes on with what the next server says.
            return;
        }
        let began = self.handler_begins();
        match self.open.adding(request).map(Adding::complete) {
            None => return self.complete_when_answered(request),
            Some(Ok(())) => self.settle_sum(request),
            Some(Err(answer)) => {
                self.stats.wire_corrupt += 1;
                self.refuse_begun(request, answer);
            }
        }
        self.handler_ends(Handler::Completion, began);
    }

    /// A piece of the data of a request is here.
    pub(super) fn on_piece(&mut self, request: RequestKey, offset: usize, piece: Piece) {
        let began = self.handler_begins();
        self.on_data(request, offset, piece);
        self.handler_ends(Handler::Payload, began);
    }

    fn on_data(&mut self, request: RequestKey, offset: usize, piece: Piece) {
        let Some(link) = self.open.begun.get(&request).map(|begun| begun.responder.link()) else {
            return;
        };
        if let Some(adding) = self.open.adding(request) {
            let whole = self.endpoint.whole_bytes_max(link).unwrap_or(0) as usize;
            let byte_len = piece.len() as u64;
            if let Err(answer) = adding.take(offset, piece, whole) {
                self.stats.wire_corrupt += 1;
                return self.refuse_begun(request, answer);
            }
            return self.sched.tenants().added(self.endpoint.now(), link, byte_len);
        }
        if let Some((rebuilding, _)) = self.open.rebuilding(request) {
            rebuilding.take(offset, piece);
            return self.advance_rebuilding(request);
        }
        let Some(begun) = self.open.begun.get(&request) else { return };
        let What::Write(writing) = &begun.what else { return };
        let mut context = self.context(begun.responder.link(), writing.chunk());
        let (piece, part) = match self.part_of(request, offset, piece) {
            Ok(parts) => parts,
            Err(answer) => return self.refuse_begun(request, answer),
        };
        let Some(writing) = self.open.writing(request) else { return };
        let taken = self.policy.payload(&mut context, writing, offset, piece);
        self.stats.wire_corrupt += u64::from(context.is_corrupt);
        match (taken, context.effect) {
            (Err(answer), _) => self.refuse_begun(request, answer),
            (Ok(()), Some(effect)) => self.act(request, effect),
            (Ok(()), None) => {}
        }
        if let (Some(part), Some(along)) = (part, self.open.along(request)) {
            along.take(part);
            self.advance(request);
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
        let token = self.sched.pass(Asked::Stage { request, offset });
        let asked = Request::Stage { stage, owner, chunk, first_slice, data };
        if let Err(unsent) = self.store.send(class, token as u64, asked) {
            // There was room, so the disk is gone.
            self.sched.take(token);
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
        let at = self.handler_begins();
        self.complete_begun(request, begun);
        self.handler_ends(Handler::Completion, at);
    }

    fn complete_begun(&mut self, request: RequestKey, begun: Begun) {
        if begun.along.is_some() {
            return self.complete_passed(request, begun);
        }
        let Begun { responder, deadline, began, what, .. } = begun;
        let came = Came { began, taken: self.endpoint.now() };
        let asked = match what {
            What::Write(writing) => self.complete_write(writing),
            What::Other(asked) => self.accept(asked),
            What::Adding(_) | What::Rebuilding(_) | What::Complete => return,
        };
        self.take_or_answer(responder, deadline, asked, came);
    }

    /// All of a write that is passed on is here: it goes on with what those behind say.
    fn complete_passed(&mut self, request: RequestKey, mut begun: Begun) {
        let what = std::mem::replace(&mut begun.what, What::Complete);
        self.open.begun.insert(request, begun);
        let What::Write(writing) = what else { return };
        match self.complete_write(writing) {
            Ok(ask) => {
                if let Some(along) = self.open.along(request) {
                    along.complete(ask);
                }
                self.advance(request);
            }
            Err(answer) => self.refuse_begun(request, answer),
        }
    }

    pub(in crate::service) fn complete_write(
        &mut self,
        mut writing: Writing,
    ) -> Result<Ask, Answer> {
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
    ) -> Result<Writing, Answer> {
        // It is here, so it can wait; and nothing is gained by staging.
        let mut context = Context { whole_bytes_max: usize::MAX, ..Context::default() };
        let staged = Staged::default();
        let mut writing = self.policy.header(&mut context, (header, crcs, staged))?;
        let mut offset = 0;
        for piece in pieces {
            let at = offset;
            offset += piece.len();
            let began = self.handler_begins();
            let taken = self.policy.payload(&mut context, &mut writing, at, piece);
            self.handler_ends(Handler::Payload, began);
            if let Err(answer) = taken {
                self.stats.wire_corrupt += u64::from(context.is_corrupt);
                self.policy.cleanup(writing);
                return Err(answer);
            }
        }
        Ok(writing)
    }

    /// Ends a request that is not complete; what still comes of it is dropped.
    fn end_begun(
        &mut self,
        request: RequestKey,
        why: Option<StopReason>,
    ) -> Option<(Responder, Time)> {
        let begun = self.open.begun.remove(&request)?;
        let matter = begun.matter();
        let Begun { responder, deadline, what, along, .. } = begun;
        let began = self.handler_begins();
        match what {
            What::Write(writing) => self.policy.cleanup(writing),
            What::Rebuilding(rebuilding) => {
                self.leave_rebuilding((request, responder.link()), &rebuilding);
            }
            What::Other(_) | What::Adding(_) | What::Complete => {}
        }
        along.iter().for_each(|along| self.leave(along));
        if let Some(reason) = why {
            self.note_stopped(responder.link(), matter, reason);
        }
        self.handler_ends(Handler::Cleanup, began);
        Some((responder, deadline))
    }

    pub(in crate::service) fn refuse_begun(&mut self, request: RequestKey, answer: Answer) {
        let why = StopReason::of(&answer);
        if let Some((responder, deadline)) = self.end_begun(request, why) {
            self.answer(responder, deadline, answer);
        }
    }

    /// Gives up a request that nobody waits for any more; says whether it was one that has begun.
    pub(in crate::service) fn give_up_begun(
        &mut self,
        request: RequestKey,
        why: StopReason,
    ) -> bool {
        if self.open.begun.get(&request).is_some_and(Begun::must_go_on) {
            // What becomes of it is told when it has ended.
            return true;
        }
        let Some((responder, _)) = self.end_begun(request, Some(why)) else { return false };
        self.rpc.abandon(&mut self.endpoint, responder, Fate::DidNotHappen);
        true
    }

    /// A link is gone, and with it what it had begun.
    pub(in crate::service) fn forget_begun(&mut self, link: LinkId) {
        let is_its = |begun: &Begun| begun.responder.link() == link && !begun.must_go_on();
        let begun = self.open.begun.iter().filter(|(_, begun)| is_its(begun));
        let begun: Vec<RequestKey> = begun.map(|(request, _)| *request).collect();
        for request in begun {
            self.end_begun(request, Some(StopReason::ClientGone));
        }
    }

    /// Gives up those whose time is over; says how many they were.
    pub(in crate::service) fn expire_begun(&mut self, now: Time) -> u64 {
        if now < self.open.next_expiry {
            return 0;
        }
        self.expire_trailing(now);
        let begun = self.open.begun.iter();
        let is_over = |begun: &Begun| begun.deadline <= now && !begun.must_go_on();
        let over = begun.filter(|(_, begun)| is_over(begun)).map(|(key, _)| *key);
        let over: Vec<RequestKey> = over.collect();
        let why = StopReason::Deadline;
        let given_up = over.iter().filter(|request| self.give_up_begun(**request, why)).count();
        self.open.next_expiry = self.open.first_deadline();
        given_up as u64
    }

    /// Has the store forget what it staged for writes that were given up.
    pub(in crate::service) fn unstage_unwanted(&mut self) {
        while let Some((stage, disk, class)) =
            self.open.waiting.take().or_else(|| self.open.unwanted.1.try_recv().ok())
        {
            let token = self.sched.pass(Asked::Unstage);
            let sent = self.store.send(class, token as u64, Request::Unstage { stage, disk });
            if let Err(unsent) = sent {
                self.sched.take(token);
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
        let has_room = self.sched.may_write(class)
            && self.store.has_room_for(class, Target::Chunk(chunk), true);
        Context { whole_bytes_max, has_room, ..Context::default() }
    }
}
