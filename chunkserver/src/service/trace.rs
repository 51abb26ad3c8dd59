//! What becomes of a request, phase by phase: for histograms, and for the log of slow ones.

use towpath_fastpath::health::{OpKind, Phase};
use towpath_fastpath::proof::PROVED;
use towpath_rpc::Responder;
use towpath_transport::{Class, Device, LinkId, Nanos, Region, Time};

use super::ask::Place;
use super::server::ChunkServer;
use crate::qos::TenantId;

/// When a request got where, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    came: Came,
    /// It was parsed, and its data checked.
    checked: Time,
    /// The store was given it, the first time.
    pub(super) started: Option<Time>,
    /// The store has answered, the last time.
    answered: Time,
    flush_ns: u64,
    /// When it counts as slow is counted from here, where that is after it came.
    slow_from: Time,
    class: Class,
    place: Option<Place>,
}

/// When a request came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    /// The poll that brought its first piece.
    pub(super) began: Time,
    /// All of it was there, and its turn came.
    pub(super) taken: Time,
}

impl Trace {
    pub(super) fn new(came: Came, checked: Time, class: Class, place: Option<Place>) -> Self {
        Self {
            came,
            checked,
            started: None,
            answered: checked,
            flush_ns: 0,
            slow_from: came.began,
            class,
            place,
        }
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Until now it had to wait, or it may take as long as it likes ([`Time::NEVER`]).
    pub(super) fn excuse(&mut self, from: Time) {
        self.slow_from = from;
    }

    /// The store has answered.
    pub(super) fn answer(&mut self, now: Time, flush_ns: u64) {
        self.answered = now;
        self.flush_ns = flush_ns;
    }

    /// How long each phase took, nanoseconds, in the order of [`Phase::ALL`].
    fn spans(&self, sent: Time) -> [u64; Phase::ALL.len()] {
        let started = self.started.unwrap_or(self.answered);
        let in_store = self.answered.since(started).0;
        // The two clocks are not the same.
        let flush = self.flush_ns.min(in_store);
        [
            self.came.taken.since(self.came.began).0,
            self.checked.since(self.came.taken).0,
            started.since(self.checked).0,
            in_store - flush,
            flush,
            sent.since(self.answered).0,
        ]
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    pub(super) fn class_of(&self, link: LinkId) -> Class {
        self.endpoint.class_of(link).map_or_else(Class::default, |report| report.class)
    }

    /// An answer leaves, or is left: takes in how long all of it took.
    pub(super) fn note_end(
        &mut self,
        trace: Option<(Trace, TenantId)>,
        responder: &Responder,
        sent: Time,
    ) {
        let Some((trace, tenant)) = trace else { return };
        let spans = trace.spans(sent);
        let kind = OpKind::of_method(responder.method() & !PROVED);
        self.watch.meter().record(tenant, trace.class, kind, spans);
        let total = sent.since(trace.came.began);
        if let Some(left_out) = self.watch.is_told_slow(sent, sent.since(trace.slow_from)) {
            self.say_slow(&trace, tenant, responder, total, spans, left_out);
        }
    }

    fn say_slow(
        &self,
        trace: &Trace,
        tenant: TenantId,
        responder: &Responder,
        total: Nanos,
        spans: [u64; Phase::ALL.len()],
        left_out: u64,
    ) {
        let us = |ns: u64| ns / 1000;
        let [receive, check, queue, disk, flush, answer] = spans.map(us);
        let link = responder.link();
        let place = trace.place;
        tracing::warn!(
            request = responder.request_key().serial(),
            link = link.index(),
            peer = self.peer(link),
            tenant = self.sched.tenants().name(tenant),
            class = %trace.class,
            method = crate::metrics::method_name(responder.method() & !PROVED),
            chunk = place.map(|place| tracing::field::display(place.chunk)),
            offset = place.map(|place| place.offset),
            byte_len = place.map(|place| place.byte_len),
            total_us = us(total.0),
            receive_us = receive,
            check_us = check,
            queue_us = queue,
            disk_us = disk,
            flush_us = flush,
            answer_us = answer,
            left_out,
            "a request was slow"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_of_a_request_are_together_all_of_its_time() {
        let at = |us| Time(us * 1_000_u64);
        let came = Came { began: at(1), taken: at(3) };
        let mut trace = Trace::new(came, at(6), Class::Gold, None);
        trace.started = Some(at(10));
        trace.answer(at(100), 60_000);
        assert_eq!(trace.spans(at(107)), [2_000, 3_000, 4_000, 30_000, 60_000, 7_000]);
        trace.answer(at(100), u64::MAX);
        assert_eq!(trace.spans(at(107))[3..5], [0, 90_000], "no flush is longer than its request");
        let unasked = Trace::new(came, at(6), Class::Gold, None);
        assert_eq!(unasked.spans(at(9)), [2_000, 3_000, 0, 0, 0, 3_000]);
    }
}
