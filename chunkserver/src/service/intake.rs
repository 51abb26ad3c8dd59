//! What becomes of a request that has come in, until it waits for the store or has its answer.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::cap::Capability;
use towpath_fastpath::proof::Shown;
use towpath_fastpath::server::{Rejection, StorageRequest, parse_shown, shown};
use towpath_rpc::{Request as RpcRequest, Responder};
use towpath_transport::{Device, LinkId, Region, Time};

use super::answer::Answer;
use super::ask::{Ask, Asked, Job, With};
use super::clients::Leave;
use super::handlers::Handler;
use super::onward::Passed;
use super::scheduler::Due;
use super::server::ChunkServer;
use super::trace::{Came, Trace};

impl<D: Device<Memory = Region>> ChunkServer<D> {
    pub(super) fn on_request(&mut self, request: RpcRequest) {
        let came = Came { began: self.watch.polled(), taken: self.endpoint.now() };
        let handled = self.handler_begins();
        let parsed = self.checked(request.link(), shown(&request));
        let deadline = request.deadline();
        let parsed = match parsed {
            Ok((StorageRequest::Write { header, crcs }, _)) => {
                let (responder, pieces) = request.into_data();
                self.handler_ends(Handler::Header, handled);
                let writing = self.write_at_once((header, crcs), pieces.0);
                let handled = self.handler_begins();
                let asked = writing.and_then(|writing| self.complete_write(writing));
                self.take_or_answer(responder, deadline, asked, came);
                return self.handler_ends(Handler::Completion, handled);
            }
            Ok((
                op @ (StorageRequest::Forward { .. } | StorageRequest::Rebuild { .. }),
                capability,
            )) => {
                let number = request.id();
                let (responder, pieces) = request.into_data();
                let key = responder.request_key();
                self.begin((responder, number, deadline), op, capability);
                self.handler_ends(Handler::Header, handled);
                return self.all_at_once(key, pieces.0);
            }
            parsed => parsed,
        };
        let (responder, message) = request.into_message();
        self.endpoint.release(message);
        let asked = parsed.and_then(|(parsed, _)| self.accept(parsed));
        self.take_or_answer(responder, deadline, asked, came);
    }

    /// Goes on with what a request asks for, or answers it at once.
    pub(super) fn take_or_answer(
        &mut self,
        responder: Responder,
        deadline: Time,
        asked: Result<Ask, Answer>,
        came: Came,
    ) {
        let ask = match asked {
            Ok(ask) => ask,
            Err(answer) => return self.answer(responder, deadline, answer),
        };
        match ask.op {
            StorageRequest::Join(join) => self.join(responder, deadline, &join),
            StorageRequest::Session { id, epoch } => self.enter(responder, deadline, id, epoch),
            StorageRequest::Revoke { serial, until_ms } => {
                self.revoke(responder, deadline, serial, until_ms);
            }
            _ => self.take_in_new(responder, deadline, ask, came, None),
        }
    }

    /// A request that is here and checked waits for the store, as [`take_in`](Self::take_in).
    pub(super) fn take_in_new(
        &mut self,
        responder: Responder,
        deadline: Time,
        ask: Ask,
        came: Came,
        passed: Option<Passed>,
    ) {
        let class = self.class_of(responder.link());
        let mut trace = Trace::new(came, self.endpoint.now(), class, ask.place());
        if let With::Found(_) = &ask.with {
            // It reads a whole disk, and gives way to all others.
            trace.excuse(Time::NEVER);
            self.rpc.excuse(&responder, Time::NEVER);
        }
        self.take_in(Job { responder, deadline, ask, leave: Leave::default(), passed, trace });
    }

    /// A request waits for the store, and for the tokens of its tenant.
    pub(super) fn take_in(&mut self, mut job: Job) {
        let (now, link) = (self.endpoint.now(), job.responder.link());
        loop {
            let asked = job.ask.kind();
            let price = self.sched.tenants().price(link, asked);
            let until = if job.may_be_given_up() { job.deadline } else { Time::NEVER };
            let of = (link.index(), job.trace.class());
            let due = Due::new(of, asked, price, (now, until));
            let Err((limit, Asked::Job(back))) = self.sched.push(due, Asked::Job(job)) else {
                return;
            };
            job = back;
            if let With::Found(scrub) = &mut job.ask.with
                && scrub.shorten(limit.into())
            {
                continue;
            }
            let answer = price.past_limit(limit).of_passed(job.passed.as_ref());
            return self.answer(job.responder, job.deadline, answer);
        }
    }

    /// What is done with a request that has come in, and by which capability: nothing, where it is
    /// malformed, not allowed, or was meant for another link.
    pub(super) fn checked(
        &mut self,
        link: LinkId,
        shown: Result<Shown<'_>, Rejection>,
    ) -> Result<(StorageRequest, Option<Capability>), Answer> {
        if self.gate.is_closed() {
            return Err(Answer::Error(ErrorReply::Busy));
        }
        let parsed = shown.and_then(|shown| Ok((parse_shown(&shown)?, shown)));
        let (parsed, shown) = parsed.map_err(|rejection| {
            self.stats.malformed += 1;
            Answer::from(rejection)
        })?;
        let tenant = self.clients.tenant(link);
        let capability = self.gate.check(&shown, &parsed, tenant).map_err(|why| {
            self.stats.denied[why as usize] += 1;
            Answer::Error(ErrorReply::Denied { why })
        })?;
        let checked = parsed.sender().map_or(Ok(()), |sender| self.check_sender(link, sender));
        checked.map_err(Answer::Error)?;
        Ok((parsed, capability))
    }

    /// What the store is asked for a request without data, or the answer where it is not.
    pub(super) fn accept(&mut self, parsed: StorageRequest) -> Result<Ask, Answer> {
        let fits = match &parsed {
            StorageRequest::Health { times } => {
                return Err(Answer::Health(Box::new(self.health_reply(*times))));
            }
            StorageRequest::Qos => return Err(Answer::Qos(Box::new(self.qos_reply()))),
            StorageRequest::Read(header) => self.gate.check_room(header.length),
            StorageRequest::Sketch { range, .. } => self.gate.check_sketch(range.length),
            _ => Ok(()),
        };
        fits.map(|()| Ask::new(parsed)).map_err(Answer::Error)
    }
}
