//! Hands waiting requests to the store: by tenant, as tokens allow, and where there are buffers.

use std::cell::Cell;

use towpath_fastpath::ErrorReply;
use towpath_rpc::Fate;
use towpath_transport::{Buf, Class, Device, LinkId, Region, SendBuffers as _, Time};

use super::answer::{Answer, read_head_bytes, sketch_bytes};
use super::ask::Ask;
use super::errors::of_unsent;
use super::queues::Of;
use super::server::{Asked, ChunkServer, Job};
use crate::qos::TenantId;
use crate::store::Fenced;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Buffer,
    Tokens,
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Hands waiting requests to the store, while there is room for them.
    pub(super) fn start_waiting(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        self.waits_for_tokens = false;
        self.waits_for_control = false;
        self.waiting.list_into(&mut order);
        let (mut next, mut is_sorted, now) = (0, false, self.endpoint.now());
        while next < order.len() && self.store.has_room() {
            if !std::mem::replace(&mut is_sorted, true) {
                self.tenants.order(now, &mut order[next..]);
            }
            match self.start_one_of(now, order[next]) {
                // Who was served may not be the first any more.
                true => is_sorted = false,
                false => next += 1,
            }
        }
        self.tenants.settle(now);
        if next < order.len() {
            self.tenants.note_full(now);
        }
        self.order = order;
        self.stats.waiting_max = self.stats.waiting_max.max(self.waiting.len() as u64);
    }

    /// Hands one request of a tenant to the store, of the highest class that it can; false when
    /// none of them can go now. Each class has room of its own there, so none waits for good.
    fn start_one_of(&mut self, now: Time, tenant: TenantId) -> bool {
        for class in Class::ALL {
            match self.start_one_of_class(now, (tenant, class)) {
                Ok(true) => return true,
                Ok(false) => {}
                // It was for tokens, which are the tenant's.
                Err(_) => return false,
            }
        }
        false
    }

    /// The same of one class; an error where what the first one lacks is not for other classes.
    fn start_one_of_class(&mut self, now: Time, of: Of) -> Result<bool, Lack> {
        for _ in 0..self.waiting.links(of) {
            // What waits for a disk that is slow keeps nothing from another one.
            let (store, under_way, control) = (&self.store, &self.under_way, &self.control);
            let may_write = control.as_ref().is_none_or(|control| control.may_write(of.1));
            let waits = Cell::new(false);
            let may = |job: &Job| {
                let waits_here = !may_write && matches!(job.ask, Ask::Write(..));
                waits.set(waits.get() | waits_here);
                !waits_here
            };
            let goes = |job: &Job| {
                let target = job.ask.target();
                let is_change = job.ask.is_change();
                target.is_none_or(|of| store.has_room_for(job.class, of, is_change))
                    && under_way.has_room(job)
            };
            let found = self.waiting.pop(of, |job| goes(job) && may(job));
            self.waits_for_control |= waits.get();
            let Some(job) = found else { continue };
            let Err((job, lack)) = self.start(now, job) else { return Ok(true) };
            let link = job.responder.link();
            self.waiting.put_back(of, link, job);
            if lack == Lack::Tokens {
                // What it has gathered for this request is not for others'.
                self.waiting.stay_first(of, link);
                self.waits_for_tokens = true;
                return Err(lack);
            }
        }
        Ok(false)
    }

    /// Hands one request to the store; gives it back when it has to wait.
    #[expect(clippy::result_large_err, reason = "the request comes back in it")]
    fn start(&mut self, now: Time, mut job: Job) -> Result<(), (Job, Lack)> {
        if job.may_be_given_up() && (now >= job.deadline || !self.rpc.is_wanted(&job.responder)) {
            self.stats.expired += 1;
            self.withdraw(&job);
            self.rpc.abandon(&mut self.endpoint, job.responder, Fate::DidNotHappen);
            return Ok(());
        }
        // One that was passed on has had leave since it began.
        if job.ask.is_change() && job.passed.is_none() {
            match self.entries.begin(job.responder.link()) {
                Ok(pass) => job.pass = pass,
                Err(Fenced) => {
                    self.stats.fenced += 1;
                    self.withdraw(&job);
                    let answer = Answer::Error(ErrorReply::Fenced);
                    self.answer(job.responder, job.deadline, answer);
                    return Ok(());
                }
            }
        }
        let room = match &job.ask {
            Ask::Read(header) => Some((header.length, read_head_bytes(header))),
            Ask::Sketch(_, range, _) => Some((range.length, sketch_bytes(*range))),
            _ => None,
        };
        let buf = match room
            .map(|(length, head)| self.read_buf(job.responder.link(), length as usize, head))
        {
            Some(None) => return Err((job, Lack::Buffer)),
            buf => buf.flatten(),
        };
        match self.tenants.admit(now, job.price) {
            Ok(tokens) => job.tokens = tokens,
            Err(()) => {
                job.pass.take().iter().for_each(|pass| pass.end());
                return Err((job, Lack::Tokens));
            }
        }
        let Some(request) = job.ask.take_request(buf, &mut self.policy.spare) else {
            return Err((job, Lack::Buffer));
        };
        job.trace.started.get_or_insert(now);
        self.under_way.add(&job);
        if let (Some(control), Ask::Write(header, ..)) = (&self.control, &job.ask) {
            control.wrote(job.class, header.length.into());
        }
        let class = job.class;
        let token = self.staged.insert(Asked::Job(job));
        if let Err(unsent) = self.store.send(class, token as u64, request) {
            // No disk ever had it.
            let Asked::Job(job) = self.staged.remove(token) else { return Ok(()) };
            self.under_way.sub(&job);
            job.pass.iter().for_each(|pass| pass.end());
            self.tenants.done(job.tokens);
            let answer = Answer::Error(of_unsent(job.ask.target(), unsent));
            let answer = answer.of_passed(job.passed.as_ref());
            self.answer(job.responder, job.deadline, answer);
        }
        Ok(())
    }

    /// A send buffer with room for what is read: the store fills it, the network sends it. None
    /// while the link that it is for holds its share.
    pub(super) fn read_buf(&self, link: LinkId, byte_len: usize, head_bytes: usize) -> Option<Buf> {
        let mut buf = self.endpoint.buffers_of(link).alloc(byte_len).ok()?;
        buf.set_len(byte_len).ok()?;
        // Never the last one: reads that hold all buffers would leave none for their answers.
        self.endpoint.alloc(head_bytes).map(|_| buf).ok()
    }
}
