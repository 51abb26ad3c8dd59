//! Requests whose data is still coming: which events are for which, and the answers to effects.
//!
//! Of a request its header comes first, then its data piece by piece in any order, then that all of
//! it is here; or nothing more comes, and what was done for it is undone. Nothing is published
//! before a request is complete.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the requests that have begun, event by event |
//! | `begin` | how one begins, and those of which all is here at once |
//! | `writing` | a write: check, hold or stage, store |
//! | `staged` | what the store has of a write before the write is asked for |

mod begin;
mod staged;
mod writing;

use std::collections::BTreeMap;

use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::StorageRequest;
use towpath_fastpath::wire::WriteHeader;
use towpath_rpc::{Fate, Piece, RequestKey, Responder, Streamed};
use towpath_transport::{Buf, Class, Device, LinkId, Region, Time};

use super::answer::Answer;
use super::ask::{Ask, Asked, Place};
use super::errors::of_unsent;
use super::handlers::Handler;
use super::onward::{Adding, Along, Hop, PeerId, Ready, Rebuilding, Trailing, part_of};
use super::server::ChunkServer;
use super::spare::Spare;
use super::stops::{Matter, StopReason, StoppedKind};
use super::trace::Came;
use crate::store::Request;
use crate::store::disks::{Target, Unsent};

pub(super) use staged::Staged;
use staged::Stages;
use writing::{Stage, Writing};

/// Puts pieces of data, each with where it begins, in order: those that follow each other are a
/// run.
pub(super) fn runs(pieces: &mut [(usize, Piece)]) -> impl Iterator<Item = &[(usize, Piece)]> {
    pieces.sort_unstable_by_key(|(offset, _)| *offset);
    pieces.chunk_by(|a, b| a.0 + a.1.len() == b.0)
}

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
pub(super) struct Open {
    /// In an order, so that a run in virtual time can be repeated.
    begun: BTreeMap<RequestKey, Begun>,
    /// Writes that have gone to the store, and still go to servers that are not waited for.
    trailing: BTreeMap<RequestKey, Trailing>,
    stages: Stages,
    spare: Spare,
    /// When the time of one is over, at the earliest.
    next_expiry: Time,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            begun: BTreeMap::new(),
            trailing: BTreeMap::new(),
            stages: Stages::default(),
            spare: Spare::default(),
            next_expiry: Time::NEVER,
        }
    }
}

impl Open {
    /// When the time of one is over, at the earliest.
    fn first_deadline(&self) -> Time {
        let begun = self.begun.values().filter(|begun| !begun.must_go_on());
        let trailing = self.trailing.values().map(|trailing| trailing.to.deadline);
        begun.map(|begun| begun.deadline).chain(trailing).min().unwrap_or(Time::NEVER)
    }

    /// Lists that are used again.
    pub(super) fn spare(&mut self) -> &mut Spare {
        &mut self.spare
    }

    /// One that has begun.
    pub(super) fn get(&mut self, request: RequestKey) -> Option<&mut Begun> {
        self.begun.get_mut(&request)
    }

    /// The same, which is not open any more.
    pub(super) fn take(&mut self, request: RequestKey) -> Option<Begun> {
        self.begun.remove(&request)
    }

    /// A write that has gone to the store goes on to servers that are not waited for.
    pub(super) fn trail(&mut self, request: RequestKey, trailing: Trailing) {
        self.next_expiry = self.next_expiry.min(trailing.to.deadline);
        self.trailing.insert(request, trailing);
    }

    /// Those that do so.
    pub(super) fn trailing(&self) -> &BTreeMap<RequestKey, Trailing> {
        &self.trailing
    }

    pub(super) fn take_trailing(&mut self, request: RequestKey) -> Option<Trailing> {
        self.trailing.remove(&request)
    }

    /// A write that is passed on.
    pub(super) fn along(&mut self, request: RequestKey) -> Option<&mut Along> {
        self.passed_on(request).map(|(along, _)| along)
    }

    /// Bytes of the ranges that this server helps to make anew for a link.
    pub(super) fn rebuilding_bytes_of(&self, link: LinkId) -> usize {
        let of_link = self.begun.values().filter(|begun| begun.responder.link() == link);
        let bytes = of_link.map(|begun| match &begun.what {
            What::Rebuilding(rebuilding) => rebuilding.byte_len(),
            _ => 0,
        });
        bytes.sum()
    }

    /// The same, and how its client is told that this server is ready for its last bytes.
    pub(super) fn passed_on(&mut self, request: RequestKey) -> Option<(&mut Along, Ready)> {
        let Some(begun) = self.begun.get_mut(&request) else {
            let Trailing { along, to } = self.trailing.get_mut(&request)?;
            return Some((along, *to));
        };
        let Begun { responder, deadline, number, along, .. } = begun;
        let way = (responder.link(), responder.channel());
        let ready = Ready { request, way, number: *number, deadline: *deadline };
        Some((along.as_deref_mut()?, ready))
    }

    /// The server that has a request as that one of its own.
    pub(super) fn hop(&mut self, request: RequestKey, sent: (PeerId, u64)) -> Option<&mut Hop> {
        match self.begun.get_mut(&request) {
            Some(Begun { what: What::Rebuilding(rebuilding), .. }) => {
                Some(&mut rebuilding.hop).filter(|hop| hop.is(sent))
            }
            Some(begun) => begun.along.as_deref_mut()?.find(sent),
            None => self.trailing.get_mut(&request)?.along.find(sent),
        }
    }

    /// A data part that is added up.
    pub(super) fn adding(&mut self, request: RequestKey) -> Option<&mut Adding> {
        match &mut self.begun.get_mut(&request)?.what {
            What::Adding(adding) => Some(adding),
            _ => None,
        }
    }

    /// A range that is made anew, for which link, and until when.
    pub(super) fn rebuilding(
        &mut self,
        request: RequestKey,
    ) -> Option<(&mut Rebuilding, LinkId, Time)> {
        let Begun { what, responder, deadline, .. } = self.begun.get_mut(&request)?;
        match what {
            What::Rebuilding(rebuilding) => Some((rebuilding, responder.link(), *deadline)),
            _ => None,
        }
    }

    /// What is to go to a server, and has not.
    pub(super) fn unsent_to(&self, peer: PeerId) -> Vec<RequestKey> {
        let is_it = |begun: &Begun| match &begun.what {
            What::Rebuilding(rebuilding) => rebuilding.hop.is_unsent_to(peer),
            _ => begun.along.as_ref().is_some_and(|along| along.is_unsent_to(peer)),
        };
        let begun = self.begun.iter().filter(|(_, begun)| is_it(begun)).map(|(request, _)| request);
        let trailing = self.trailing.iter().filter(|(_, of)| of.along.is_unsent_to(peer));
        begun.chain(trailing.map(|(request, _)| request)).copied().collect()
    }

    /// How many there are, and stages that are to be forgotten.
    #[cfg(test)]
    pub(super) fn left(&self) -> (usize, usize) {
        (self.begun.len() + self.trailing.len(), self.stages.left())
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A part of a request has come.
    pub(super) fn on_streamed(&mut self, streamed: Streamed) {
        match streamed {
            Streamed::Begun(head) => {
                let began = self.handler_begins();
                self.on_head(head);
                self.handler_ends(Handler::Header, began);
            }
            Streamed::Data { request, offset, piece } => self.on_piece(request, offset, piece),
            Streamed::Whole { request } => self.on_whole(request),
            Streamed::Broken { request } => {
                self.end_begun(request, Some(StopReason::Abandoned));
            }
        }
    }

    fn on_whole(&mut self, request: RequestKey) {
        let Some(begun) = self.open.get(request) else { return };
        begun.is_whole = true;
        let added = match &mut begun.what {
            // It goes on with what the next server says.
            What::Rebuilding(_) => return,
            What::Adding(adding) => adding.complete(),
            _ => return self.complete_when_answered(request),
        };
        let began = self.handler_begins();
        match added {
            Ok(()) => self.advance(request),
            Err(error) => self.refuse_data(request, error),
        }
        self.handler_ends(Handler::Completion, began);
    }

    /// A piece of the data of a request is here.
    fn on_piece(&mut self, request: RequestKey, offset: usize, piece: Piece) {
        let began = self.handler_begins();
        if let Err(error) = self.on_data(request, offset, piece) {
            self.refuse_data(request, error);
        }
        self.handler_ends(Handler::Payload, began);
    }

    fn on_data(
        &mut self,
        request: RequestKey,
        offset: usize,
        piece: Piece,
    ) -> Result<(), ErrorReply> {
        let Self { open, endpoint, sched, store, .. } = self;
        let Some(Begun { responder, what, along, .. }) = open.get(request) else { return Ok(()) };
        let link = responder.link();
        let whole = endpoint.whole_bytes_max(link).unwrap_or(0) as usize;
        let writing = match what {
            What::Write(writing) => writing,
            What::Adding(adding) => {
                let bytes = piece.len() as u64;
                adding.take(offset, piece, whole)?;
                sched.tenants().added(endpoint.now(), link, bytes);
                return Ok(());
            }
            What::Rebuilding(rebuilding) => {
                rebuilding.take(offset, piece);
                self.advance(request);
                return Ok(());
            }
            What::Other(_) | What::Complete => return Ok(()),
        };
        let (piece, part) = match along.as_ref().is_some_and(|along| along.goes_on()) {
            true => part_of(endpoint, link, offset, piece)?,
            false => (piece, None),
        };
        let stage = writing.take(offset, piece, whole, |writing| {
            let (class, target) = (writing.class(), Target::Chunk(writing.chunk()));
            sched.may_write(class) && store.has_room_for(class, target, true)
        })?;
        let goes_on = along.as_mut().zip(part).map(|(along, part)| along.take(part)).is_some();
        if let Some(stage) = stage {
            self.stage(request, offset, stage)?;
        }
        if goes_on {
            self.advance_along(request);
        }
        Ok(())
    }

    /// Has the store take slices of a write before all of it is here.
    fn stage(
        &mut self,
        request: RequestKey,
        offset: usize,
        stage: Stage,
    ) -> Result<(), ErrorReply> {
        let Stage { name: stage, class, first_slice, piece } = stage;
        let Some(begun) = self.open.begun.get_mut(&request) else { return Ok(()) };
        let What::Write(writing) = &mut begun.what else { return Ok(()) };
        let (chunk, disk) = (writing.chunk(), self.store.disk_of(writing.chunk()));
        writing.ask(disk);
        // Its client, as far as that can be told: a link names no other one while it is up.
        let owner = begun.responder.link().index();
        let mut data = self.open.spare.take_data();
        data.push(piece);
        let asked = Request::Stage { stage, owner, chunk, first_slice, data };
        // There was room, so a disk that does not take it is gone.
        self.send(class, Asked::Stage { request, offset }, asked)
    }

    /// Sends the store something past the queues.
    pub(super) fn send(
        &mut self,
        class: Class,
        asked: Asked,
        request: Request<Piece, Buf>,
    ) -> Result<(), ErrorReply> {
        let (target, token) = (Target::of(&request), self.sched.pass(asked));
        self.store.send(class, token as u64, request).map_err(|unsent| {
            self.sched.take(token);
            of_unsent(Some(target), unsent)
        })
    }

    /// The store has taken a piece, or has not.
    pub(super) fn on_stage(
        &mut self,
        request: RequestKey,
        offset: usize,
        is_staged: bool,
        mut data: Vec<Piece>,
    ) {
        let byte_len = data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let piece = data.pop().filter(|_| !is_staged);
        self.open.spare.put_data(data);
        self.stats.staged_bytes += if is_staged { byte_len } else { 0 };
        let Some(begun) = self.open.begun.get_mut(&request) else { return };
        let What::Write(writing) = &mut begun.what else { return };
        writing.on_staged(offset, piece);
        let whole = self.endpoint.whole_bytes_max(begun.responder.link()).unwrap_or(0) as usize;
        if begun.is_whole || writing.can_wait(whole) {
            self.complete_when_answered(request);
        } else {
            // The store has no room for it now.
            self.refuse_begun(request, Answer::Error(ErrorReply::Busy));
        }
    }

    /// Goes on with a request that is whole, once every effect has had its answer.
    fn complete_when_answered(&mut self, request: RequestKey) {
        let is_complete = self.open.get(request).is_some_and(|begun| match &begun.what {
            What::Write(writing) => begun.is_whole && !writing.waits(),
            _ => begun.is_whole,
        });
        if !is_complete {
            return;
        }
        let at = self.handler_begins();
        self.complete(request);
        self.handler_ends(Handler::Completion, at);
    }

    fn complete(&mut self, request: RequestKey) {
        let Some(begun) = self.open.get(request) else { return };
        let asked = match std::mem::replace(&mut begun.what, What::Complete) {
            What::Write(writing) => self.complete_write(writing),
            What::Other(asked) => self.accept(asked),
            What::Adding(_) | What::Rebuilding(_) | What::Complete => return,
        };
        match (self.open.along(request), asked) {
            (None, asked) => {
                let Some(begun) = self.open.take(request) else { return };
                let Begun { responder, deadline, began, .. } = begun;
                let came = Came { began, taken: self.endpoint.now() };
                self.take_or_answer(responder, deadline, asked, came);
            }
            // It goes on with what those behind say.
            (Some(along), Ok(ask)) => {
                along.complete(ask);
                self.advance(request);
            }
            (Some(_), Err(answer)) => self.refuse_begun(request, answer),
        }
    }

    /// All of a write is here.
    pub(super) fn complete_write(&mut self, writing: Writing) -> Result<Ask, Answer> {
        writing.complete(&mut self.open.spare).map_err(|error| self.damaged(error))
    }

    /// All of a write has come at once.
    pub(super) fn write_at_once(
        &mut self,
        (header, crcs): (WriteHeader, Vec<u32>),
        pieces: impl IntoIterator<Item = Piece>,
    ) -> Result<Writing, Answer> {
        let mut writing = Writing::new(header, crcs, Staged::default());
        let mut offset = 0;
        for piece in pieces {
            let at = offset;
            offset += piece.len();
            let began = self.handler_begins();
            // It is here, so it can wait; and nothing is gained by staging.
            let taken = writing.take(at, piece, usize::MAX, |_| false);
            self.handler_ends(Handler::Payload, began);
            taken.map_err(|error| self.damaged(error))?;
        }
        Ok(writing)
    }

    /// What is answered where data is refused.
    fn damaged(&mut self, error: ErrorReply) -> Answer {
        self.stats.wire_corrupt += u64::from(matches!(error, ErrorReply::WireCorrupt { .. }));
        Answer::Error(error)
    }

    fn refuse_data(&mut self, request: RequestKey, error: ErrorReply) {
        let answer = self.damaged(error);
        self.refuse_begun(request, answer);
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
        if let What::Rebuilding(rebuilding) = &what {
            self.leave_rebuilding((request, responder.link()), rebuilding);
        }
        // Pieces give their credit back, and what is staged is forgotten.
        drop(what);
        along.iter().for_each(|along| self.leave(along));
        if let Some(reason) = why {
            self.note_stopped(responder.link(), matter, reason);
        }
        self.handler_ends(Handler::Cleanup, began);
        Some((responder, deadline))
    }

    pub(super) fn refuse_begun(&mut self, request: RequestKey, answer: Answer) {
        let why = StopReason::of(&answer);
        if let Some((responder, deadline)) = self.end_begun(request, why) {
            self.answer(responder, deadline, answer);
        }
    }

    /// Gives up a request that nobody waits for any more; says whether it was one that has begun.
    pub(super) fn give_up_begun(&mut self, request: RequestKey, why: StopReason) -> bool {
        if self.open.begun.get(&request).is_some_and(Begun::must_go_on) {
            // What becomes of it is told when it has ended.
            return true;
        }
        let Some((responder, _)) = self.end_begun(request, Some(why)) else { return false };
        self.rpc.abandon(&mut self.endpoint, responder, Fate::DidNotHappen);
        true
    }

    /// A link is gone, and with it what it had begun.
    pub(super) fn forget_begun(&mut self, link: LinkId) {
        let is_its = |begun: &Begun| begun.responder.link() == link && !begun.must_go_on();
        let begun = self.open.begun.iter().filter(|(_, begun)| is_its(begun));
        let begun: Vec<RequestKey> = begun.map(|(request, _)| *request).collect();
        for request in begun {
            self.end_begun(request, Some(StopReason::ClientGone));
        }
    }

    /// Gives up those whose time is over; says how many they were.
    pub(super) fn expire_begun(&mut self, now: Time) -> u64 {
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
    pub(super) fn unstage_unwanted(&mut self) {
        while let Some((stage, disk, class)) = self.open.stages.next_unwanted() {
            let token = self.sched.pass(Asked::Unstage);
            let sent = self.store.send(class, token as u64, Request::Unstage { stage, disk });
            if let Err(unsent) = sent {
                self.sched.take(token);
                if matches!(unsent, Unsent::Full) {
                    return self.open.stages.put_back((stage, disk, class));
                }
            }
        }
    }
}
