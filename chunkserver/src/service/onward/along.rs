//! One write that is passed on: who has how much of it, and what each has said.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use towpath_fastpath::cap::Capability;
use towpath_fastpath::wire::{Sender, WriteHeader, class_number, emit_crcs};
use towpath_fastpath::{ErrorReply, Route, RouteKind};
use towpath_rpc::Fate;
use towpath_transport::{Class, Frozen, PageCrcs};

use super::hop::Hop;
use super::peers::PeerId;
use super::{Ready, is_for_later};
use crate::service::answer::Answer;
use crate::service::ask::{Ask, Place};
use crate::service::clients::Leave;
use crate::service::stops::{Matter, StoppedKind};
use crate::store::{ChunkId, Claim, Hold};

/// Data that goes on.
#[derive(Clone, Debug)]
pub(in crate::service) struct Part {
    pub(super) offset: usize,
    pub(super) bytes: Frozen,
    pub(super) crcs: PageCrcs,
}

/// A server that the write is passed on to.
#[derive(Debug)]
pub(super) struct Next {
    /// The route as it gets it.
    pub(super) route: Route,
    pub(super) hop: Hop,
    /// What is here and was not given to the link yet.
    pub(super) queue: VecDeque<Part>,
    is_ready: bool,
}

/// A write that is passed on, from its header to the answers of those behind.
#[derive(Debug)]
pub(in crate::service) struct Along {
    route: Route,
    pub(super) next: SmallVec<[Next; 2]>,
    /// What it was proved with; none where nobody has to prove anything.
    pub(super) capability: Option<Capability>,
    /// Header and checksums, as those behind get them.
    pub(super) body: Vec<u8>,
    pub(super) byte_len: u32,
    chunk: ChunkId,
    offset: u64,
    class: Class,
    arrived: usize,
    /// The store would make it.
    is_allowed: bool,
    /// The server before was told that this one is ready.
    is_told: bool,
    /// The data that came last: those behind get it once nothing here is in the way.
    last: Option<Part>,
    is_released: bool,
    /// What the store is asked once all behind have made it.
    ask: Option<Ask>,
    held: Arc<Held>,
}

/// What a write has until it has ended at this server.
#[derive(Debug)]
struct Held {
    _claim: Claim,
    _leave: Leave,
}

/// A write that is made here and answered, while servers whose copies are not waited for still get
/// it.
#[derive(Debug)]
pub(in crate::service) struct Trailing {
    pub(in crate::service) along: Box<Along>,
    pub(in crate::service) to: Ready,
}

/// What a write that all behind have made is told by from others.
#[derive(Debug)]
pub(in crate::service) struct Passed {
    kind: StoppedKind,
    /// Of this server.
    rank: u8,
    /// Others have made it.
    is_made_elsewhere: bool,
    /// Others wait for it.
    sum: Option<Hold>,
    _held: Option<Arc<Held>>,
}

impl Drop for Passed {
    fn drop(&mut self) {
        // Of a disk that is gone nobody hears.
        self.sum.iter().for_each(|sum| sum.finish(Err(0)));
    }
}

impl Passed {
    /// Whether it must be made here too, whoever still waits for it.
    pub(in crate::service) fn must_be_made(&self) -> bool {
        self.is_made_elsewhere || self.sum.is_some()
    }

    /// What it is, where others have made it and it was answered so here.
    pub(in crate::service) fn unmade(&self, answer: &Answer) -> Option<StoppedKind> {
        (self.is_made_elsewhere && !answer.is_good()).then_some(self.kind)
    }

    /// Of a sum that is stored for all who have added to it.
    pub(super) fn of_sum(rank: u8, sum: Hold) -> Self {
        let kind = StoppedKind::Sum;
        Self { kind, rank, is_made_elsewhere: false, sum: Some(sum), _held: None }
    }

    /// What its client is told: that this server failed where others have made it.
    pub(in crate::service) fn answer(&self, answer: Answer) -> Answer {
        if let Some(sum) = &self.sum {
            sum.finish(match &answer {
                Answer::Changed(version) => Ok(*version),
                Answer::Error(error) => Err(error.code()),
                _ => Err(0),
            });
        }
        match answer {
            Answer::Error(error) if self.is_made_elsewhere => {
                tracing::error!(%error, rank = self.rank, "a write that others have made failed");
                Answer::Error(ErrorReply::ReplicaLost { rank: self.rank.into() })
            }
            answer => answer,
        }
    }
}

impl Along {
    pub(super) fn new(
        route: Route,
        peers: impl IntoIterator<Item = PeerId>,
        (header, crcs): (&WriteHeader, &[u32]),
        (class, capability): (Class, Option<Capability>),
        (claim, leave): (Claim, Leave),
    ) -> Self {
        let next = route.onward().zip(peers).map(|((route, _), peer)| Next {
            hop: Hop::new(peer, route.rank()),
            route,
            queue: VecDeque::new(),
            is_ready: false,
        });
        let next: SmallVec<[Next; 2]> = next.collect();
        // Nobody waits for what it says, and nobody behind makes what it refuses.
        let is_last = next.is_empty() && route.kind() != RouteKind::Tree;
        // Those behind know neither this link's session nor its tenant.
        let sender = Sender { class: class_number(class), ..Sender::default() };
        let mut body = WriteHeader { sender, ..*header }.emit().to_vec();
        body.extend_from_slice(&emit_crcs(crcs));
        Self {
            next,
            capability,
            body,
            byte_len: header.length,
            chunk: header.chunk,
            offset: header.offset,
            class,
            arrived: 0,
            is_allowed: is_last,
            is_told: route.rank() == 0 || route.kind() != RouteKind::Tree,
            last: None,
            is_released: false,
            ask: None,
            held: Arc::new(Held { _claim: claim, _leave: leave }),
            route,
        }
    }

    /// What it is about.
    pub(in crate::service) fn matter(&self) -> Matter {
        let (chunk, offset) = (self.chunk, self.offset);
        let place = Place { chunk, offset, byte_len: self.byte_len.into() };
        Matter { kind: Matter::kind_of(self.route.kind()), place }
    }

    pub(in crate::service) fn chunk(&self) -> ChunkId {
        self.chunk
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Whether the store has to say that it would make it.
    pub(super) fn asks_store(&self) -> bool {
        !self.is_allowed
    }

    /// A server cannot be reached: what has not gone to it does not go.
    pub(super) fn give_up(&mut self, peer: PeerId) {
        let hops = self.next.iter_mut().map(|next| &mut next.hop);
        hops.filter(|hop| hop.is_unsent_to(peer)).for_each(Hop::refuse);
    }

    /// Whether something is to go to a server, and has not.
    pub(in crate::service) fn is_unsent_to(&self, peer: PeerId) -> bool {
        self.next.iter().any(|next| next.hop.is_unsent_to(peer))
    }

    /// Whether it goes on to anybody.
    pub(in crate::service) fn goes_on(&self) -> bool {
        !self.next.is_empty()
    }

    /// Data has come, which is checked.
    pub(in crate::service) fn take(&mut self, part: Part) {
        self.arrived += part.bytes.len();
        if self.arrived == self.byte_len as usize {
            self.last = Some(part);
            return;
        }
        let goes_on = self.next.iter_mut().filter(|next| !next.hop.has_ended());
        goes_on.for_each(|next| next.queue.push_back(part.clone()));
    }

    /// All data is here, and the store can be asked.
    pub(in crate::service) fn complete(&mut self, ask: Ask) {
        self.ask = Some(ask);
    }

    /// The store would make it.
    pub(super) fn allow(&mut self) {
        self.is_allowed = true;
    }

    /// The one behind that has it as that request.
    pub(in crate::service) fn find(&mut self, sent: (PeerId, u64)) -> Option<&mut Hop> {
        self.next.iter_mut().map(|next| &mut next.hop).find(|hop| hop.is(sent))
    }

    /// One behind is ready for the last bytes.
    pub(super) fn note_ready(&mut self, sent: (PeerId, u64)) {
        let of = self.next.iter_mut().find(|next| next.hop.is(sent));
        of.into_iter().for_each(|next| next.is_ready = true);
    }

    /// Whether the server before is to be told now that this one is ready; then it counts as told.
    pub(super) fn tells_now(&mut self) -> bool {
        let is_ready = self.is_allowed && self.waited_for().all(|next| next.is_ready);
        is_ready && !std::mem::replace(&mut self.is_told, true)
    }

    /// Those behind that have to make it before it is made here.
    fn waited_for(&self) -> impl Iterator<Item = &Next> {
        self.next.iter().filter(|next| !next.route.is_trailing())
    }

    fn trailing(&self) -> impl Iterator<Item = &Next> {
        self.next.iter().filter(|next| next.route.is_trailing())
    }

    fn is_stripe(&self) -> bool {
        self.route.kind() == RouteKind::Stripe
    }

    /// Gives the last bytes to those behind, where nothing here is in the way.
    pub(super) fn release(&mut self) {
        // In a ring who refuses passes nothing on, and what is made of a stripe counts only when
        // all of it is. In a tree one may refuse what the other one would make: both say first
        // that they would.
        let are_ready =
            self.route.kind() != RouteKind::Tree || self.waited_for().all(|next| next.is_ready);
        if self.ask.is_some() && self.is_allowed && are_ready && !self.is_released {
            self.is_released = true;
            self.give_last(false);
        }
        if self.is_released && self.waited_for().all(Next::is_made) {
            // What they make nobody refuses any more.
            self.give_last(true);
            self.last = None;
        }
    }

    fn give_last(&mut self, to_trailing: bool) {
        let Some(part) = &self.last else { return };
        let is_one = |next: &&mut Next| next.route.is_trailing() == to_trailing;
        let of = self.next.iter_mut().filter(is_one).filter(|next| !next.hop.has_ended());
        of.for_each(|next| next.queue.push_back(part.clone()));
    }

    /// Those behind may have made it: what happens here follows from what they say.
    pub(in crate::service) fn is_released(&self) -> bool {
        self.is_released && !self.next.is_empty()
    }

    /// Whether it has ended at all behind, and how: what the store is asked now, or the answer to a
    /// write that is not made here.
    ///
    /// Where there is no `room` for others that go on afterwards, those whose copies are not waited
    /// for have to end first, however they do.
    pub(super) fn outcome(&mut self, room: bool) -> Option<Result<Ask, Answer>> {
        let failed = |next: &Next| Some((next.hop.ended()?.err()?, next.hop.rank()));
        if let Some((error, rank)) = self.waited_for().find_map(failed) {
            let error = match error {
                error if !self.is_released => error,
                // What is added up twice counts once: it is simply sent again.
                error if self.is_stripe() && is_for_later(error) => error,
                // The others may still make it, or have.
                _ if self.waited_for().any(|next| !next.hop.has_ended()) => return None,
                error if self.waited_for().all(Next::is_unmade) => error,
                _ => ErrorReply::ReplicaLost { rank: rank.into() },
            };
            return Some(Err(Answer::Error(error)));
        }
        let is_made = self.waited_for().all(Next::is_made);
        if !is_made || !self.is_released || !room && self.is_trailing() {
            return None;
        }
        self.ask.take().map(Ok)
    }

    /// Whether a server whose copy is not waited for still gets it.
    pub(in crate::service) fn is_trailing(&self) -> bool {
        self.trailing().any(|next| !next.hop.has_ended())
    }

    /// Servers whose copies are not waited for, and which may not have made it.
    pub(super) fn behind(&self) -> usize {
        self.trailing().filter(|next| matches!(next.hop.ended(), Some(Err(_)))).count()
    }

    /// Whether nothing but room is in the way of making it.
    pub(super) fn waits_for_room(&self, room: bool) -> bool {
        let is_made = self.waited_for().all(Next::is_made);
        !room && self.is_released && self.ask.is_some() && is_made
    }

    /// A copy that is not waited for is not sent to these.
    pub(super) fn skip_trailing(&mut self, is_skipped: impl Fn(PeerId) -> bool) {
        let trailing = self.next.iter_mut().filter(|next| next.route.is_trailing());
        let hops = trailing.map(|next| &mut next.hop).filter(|hop| is_skipped(hop.peer()));
        hops.for_each(Hop::refuse);
    }

    /// Those whose copies are not waited for, and who have said nothing in time.
    pub(super) fn silent(&self) -> impl Iterator<Item = PeerId> {
        let is_silent = |next: &&Next| {
            matches!(
                next.hop.ended(),
                Some(Err(
                    ErrorReply::ReplicaLost { .. } | ErrorReply::ReplicaRefused { code: 0, .. }
                ))
            )
        };
        self.trailing().filter(is_silent).map(|next| next.hop.peer())
    }

    /// Bytes of the write.
    pub(in crate::service) fn byte_len(&self) -> u64 {
        self.byte_len.into()
    }

    /// What goes on to the store with it.
    pub(super) fn passed(&self) -> Passed {
        let is_made_elsewhere = !self.next.is_empty();
        let (rank, held) = (self.route.rank(), Some(Arc::clone(&self.held)));
        let kind = Matter::kind_of(self.route.kind());
        Passed { kind, rank, is_made_elsewhere, sum: None, _held: held }
    }
}

impl Next {
    fn is_made(&self) -> bool {
        matches!(self.hop.ended(), Some(Ok(_)))
    }

    /// It is known that it was not made there, nor behind.
    fn is_unmade(&self) -> bool {
        matches!(self.hop.ended(), Some(Err(error)) if error.fate() == Fate::DidNotHappen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_made_and_this_server_has_not_counts_as_unmade() {
        let passed = |is_made_elsewhere| {
            let (kind, rank, sum) = (StoppedKind::Copy, 1, None);
            Passed { kind, rank, is_made_elsewhere, sum, _held: None }
        };
        let failed = Answer::Error(ErrorReply::CommitFailed);
        assert_eq!(passed(true).unmade(&failed), Some(StoppedKind::Copy));
        assert_eq!(passed(true).unmade(&Answer::Changed(1)), None);
        assert_eq!(passed(false).unmade(&failed), None);
    }
}
