//! How requests begin: before their data has come, or with all of it.

use towpath_fastpath::cap::Capability;
use towpath_fastpath::server::{StorageRequest, shown_head};
use towpath_fastpath::wire::WriteHeader;
use towpath_fastpath::{ErrorReply, Route};
use towpath_rpc::{Head, Piece, RequestKey, Responder};
use towpath_transport::{Device, LinkId, Region, Time};

use super::writing::Writing;
use super::{Begun, What};
use crate::service::answer::Answer;
use crate::service::onward::{Adding, Along};
use crate::service::server::ChunkServer;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A request has begun whose data is still coming.
    pub(super) fn on_head(&mut self, head: Head) {
        let (number, deadline) = (head.id(), head.deadline());
        let parsed = self.checked(head.link(), shown_head(&head));
        let responder = head.into_responder();
        match parsed {
            Ok((op, capability)) => self.begin((responder, number, deadline), op, capability),
            Err(answer) => self.answer(responder, deadline, answer),
        }
    }

    /// A request begins: it is one of those whose data comes piece by piece.
    pub(in crate::service) fn begin(
        &mut self,
        to: (Responder, u64, Time),
        op: StorageRequest,
        capability: Option<Capability>,
    ) {
        let (request, link) = (to.0.request_key(), to.0.link());
        match op {
            StorageRequest::Forward { route, header, crcs } if route.adds().is_some() => {
                let adding = self.begin_adding(link, &route, (header, crcs));
                self.note_begun(to, adding.map(|adding| (What::Adding(adding), None)));
            }
            StorageRequest::Forward { route, header, crcs } => {
                let along = self.begin_along(link, route, (&header, &crcs), capability);
                let begun = along
                    .map(|along| (self.begin_write(link, header, crcs), Some(Box::new(along))));
                self.note_begun(to, begun);
                self.set_out(request, &header);
            }
            StorageRequest::Rebuild { plan, .. } if plan.helper().is_some() => {
                let begun = self.begin_rebuilding(link, &plan, capability);
                let begun = begun.map(|of| (What::Rebuilding(Box::new(of)), None));
                self.note_begun(to, begun);
                self.set_out_rebuilding(request);
            }
            // It writes what others have made.
            StorageRequest::Rebuild { plan, crcs } => {
                let writing = self.begin_write(link, plan.write_header(), crcs);
                self.note_begun(to, Ok((writing, None)));
            }
            StorageRequest::Write { header, crcs } => {
                let writing = self.begin_write(link, header, crcs);
                self.note_begun(to, Ok((writing, None)));
            }
            other => self.note_begun(to, Ok((What::Other(other), None))),
        }
    }

    fn begin_write(&mut self, link: LinkId, header: WriteHeader, crcs: Vec<u32>) -> What {
        let class = self.class_of(link);
        What::Write(Writing::new(header, crcs, self.open.stages.add(class)))
    }

    fn begin_adding(
        &mut self,
        link: LinkId,
        route: &Route,
        of: (WriteHeader, Vec<u32>),
    ) -> Result<Adding, Answer> {
        // The sum is stored from a send buffer.
        self.gate.check_room(of.0.length).map_err(Answer::Error)?;
        if !self.sched.tenants().has_paid(self.endpoint.now(), link) {
            // It asks again, as one does that finds no room for a sum.
            return Err(Answer::Error(ErrorReply::NoSums));
        }
        Adding::new((self.store.sums(), (self.store.asker(), link.index())), route, of)
    }

    fn note_begun(
        &mut self,
        (responder, number, deadline): (Responder, u64, Time),
        begun: Result<(What, Option<Box<Along>>), Answer>,
    ) {
        match begun {
            Ok((what, along)) => {
                let (request, began) = (responder.request_key(), self.watch.polled());
                let is_whole = false;
                let begun = Begun { responder, deadline, began, is_whole, what, number, along };
                self.open.next_expiry = self.open.next_expiry.min(deadline);
                self.open.begun.insert(request, begun);
            }
            Err(answer) => self.answer(responder, deadline, answer),
        }
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
