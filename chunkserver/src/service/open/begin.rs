//! Requests that begin before their data is here, and those of which all is here at once.

use towpath_fastpath::cap::Capability;
use towpath_fastpath::server::{StorageRequest, shown_head};
use towpath_fastpath::wire::WriteHeader;
use towpath_fastpath::{ErrorReply, Rebuild, Route};
use towpath_rpc::{Head, Piece, RequestKey, Responder};
use towpath_transport::{Device, LinkId, Region, Time};

use super::writing::Writing;
use super::{Begun, What};
use crate::service::answer::Answer;
use crate::service::onward::{Adding, Along};
use crate::service::server::ChunkServer;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A request has begun whose data is still coming.
    pub(super) fn begin(&mut self, head: Head) {
        let (number, deadline) = (head.id(), head.deadline());
        let parsed = self.checked(head.link(), shown_head(&head));
        let to = (head.into_responder(), number, deadline);
        match parsed {
            Ok((StorageRequest::Forward { route, header, crcs }, capability)) => {
                self.begin_forward(to, (route, header, crcs), capability);
            }
            Ok((StorageRequest::Rebuild { plan, crcs }, capability)) => {
                self.begin_rebuild(to, (plan, crcs), capability);
            }
            parsed => {
                let what = parsed.map(|(parsed, _)| match parsed {
                    StorageRequest::Write { header, crcs } => {
                        self.begin_write(to.0.link(), header, crcs)
                    }
                    other => What::Other(other),
                });
                self.note_begun(to, what, None);
            }
        }
    }

    fn begin_write(&mut self, link: LinkId, header: WriteHeader, crcs: Vec<u32>) -> What {
        let class = self.class_of(link);
        What::Write(Writing::new(header, crcs, self.open.stages.add(class)))
    }

    /// A write that is passed on has begun.
    pub(in crate::service) fn begin_forward(
        &mut self,
        to: (Responder, u64, Time),
        (route, header, crcs): (Route, WriteHeader, Vec<u32>),
        capability: Option<Capability>,
    ) {
        let (request, link) = (to.0.request_key(), to.0.link());
        if route.adds().is_some() {
            let owner = (self.store.asker(), link.index());
            // It asks again, as one does that finds no room for a sum.
            let adding = match self.sched.tenants().has_paid(self.endpoint.now(), link) {
                // The sum is stored from a send buffer.
                true => self.gate.check_room(header.length),
                false => Err(ErrorReply::NoSums),
            };
            let adding = adding
                .map_err(Answer::Error)
                .and_then(|()| Adding::new((self.store.sums(), owner), &route, (header, crcs)));
            return self.note_begun(to, adding.map(What::Adding), None);
        }
        let (what, along) = match self.begin_along(link, route, (&header, &crcs), capability) {
            Err(answer) => (Err(answer), None),
            Ok(along) => (Ok(self.begin_write(link, header, crcs)), Some(Box::new(along))),
        };
        self.note_begun(to, what, along);
        self.set_out(request, &header);
    }

    fn note_begun(
        &mut self,
        (responder, number, deadline): (Responder, u64, Time),
        what: Result<What, Answer>,
        along: Option<Box<Along>>,
    ) {
        match what {
            Ok(what) => {
                let (request, began, is_whole) =
                    (responder.request_key(), self.watch.polled(), false);
                let begun = Begun { responder, deadline, began, is_whole, what, number, along };
                self.open.next_expiry = self.open.next_expiry.min(deadline);
                self.open.begun.insert(request, begun);
            }
            Err(answer) => {
                along.iter().for_each(|along| self.leave(along));
                self.answer(responder, deadline, answer);
            }
        }
    }

    /// A range is to be made anew: this server helps, or writes what others have made.
    pub(in crate::service) fn begin_rebuild(
        &mut self,
        to: (Responder, u64, Time),
        (plan, crcs): (Rebuild, Vec<u32>),
        capability: Option<Capability>,
    ) {
        let (request, link) = (to.0.request_key(), to.0.link());
        let what = match plan.helper() {
            None => Ok(self.begin_write(link, plan.write_header(), crcs)),
            Some(_) => {
                let begun = self.begin_rebuilding(link, &plan, capability);
                begun.map(|rebuilding| What::Rebuilding(Box::new(rebuilding)))
            }
        };
        self.note_begun(to, what, None);
        self.set_out_rebuilding(request);
    }

    /// All data of a request that has begun is here.
    pub(in crate::service) fn all_at_once(
        &mut self,
        request: RequestKey,
        pieces: impl IntoIterator<Item = Piece>,
    ) {
        let mut offset = 0;
        for piece in pieces {
            let at = offset;
            offset += piece.len();
            self.on_piece(request, at, piece);
        }
        self.on_whole(request);
    }
}
