//! Completion queues and the events of the device, at their owner.

use crate::limits::{CQ_MAX, CQE_MAX, EVENTS_MAX};
use crate::port::{Arrival, ArrivalQueue};
use rtrb::{Consumer, RingBuffer};
use std::collections::VecDeque;
use std::net::SocketAddr;
use towpath_verbs::{AsyncEvent, CqNum, QpNum, Verb, VerbError, Wc};

/// What the owner completes itself (sends, flushes) goes to `own`, what the peer completes
/// (receives) comes through `arrivals`; each has room for the depth of the queue.
struct Cq {
    own: VecDeque<Wc>,
    arrivals: Consumer<Arrival>,
    depth: usize,
    failed: bool,
}

impl Cq {
    /// Takes what the peer completed; returns how many.
    fn arrive(&mut self, out: &mut [Wc], peer: SocketAddr) -> usize {
        let count = self.arrivals.slots().min(out.len());
        let Ok(arrivals) = self.arrivals.read_chunk(count) else { return 0 };
        let (first, second) = arrivals.as_slices();
        for (to, arrival) in out.iter_mut().zip(first.iter().chain(second)) {
            fill_in(to, arrival, peer);
        }
        arrivals.commit_all();
        count
    }
}

/// All completion queues, and the events.
pub(crate) struct Cqs {
    queues: Vec<Cq>,
    events: VecDeque<AsyncEvent>,
    /// Who is named as the source of datagrams: the only peer.
    peer: SocketAddr,
    /// Queues that failed whose queue pairs are not yet in error.
    pub(crate) newly_failed: Vec<CqNum>,
    pub(crate) overruns: u64,
    pub(crate) events_lost: u64,
}

impl Cqs {
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self {
            queues: Vec::new(),
            events: VecDeque::with_capacity(EVENTS_MAX),
            peer,
            newly_failed: Vec::new(),
            overruns: 0,
            events_lost: 0,
        }
    }

    /// A queue, and the end of it that the peer fills.
    pub(crate) fn create(&mut self, depth: u32) -> Result<(CqNum, ArrivalQueue), VerbError> {
        if depth == 0 || depth > CQE_MAX {
            return Err(VerbError::BadArgument(Verb::CreateCq));
        }
        if self.queues.len() == CQ_MAX {
            return Err(VerbError::OutOfResources(Verb::CreateCq));
        }
        let depth = depth as usize;
        let (ring, arrivals) = RingBuffer::new(depth);
        let own = VecDeque::with_capacity(depth);
        self.queues.push(Cq { own, arrivals, depth, failed: false });
        Ok((CqNum(self.queues.len() as u32 - 1), ArrivalQueue { ring, failed: false }))
    }

    pub(crate) fn exists(&self, cq: CqNum) -> bool {
        (cq.0 as usize) < self.queues.len()
    }

    /// Adds a completion of our own. A full queue fails: that is fatal to it and to its queue
    /// pairs, as on hardware, because its owner sized it too small.
    pub(crate) fn push(&mut self, cq: CqNum, wc: Wc) {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return };
        if queue.own.len() < queue.depth && !queue.failed {
            queue.own.push_back(wc);
            return;
        }
        self.overruns += 1;
        self.fail(cq);
    }

    pub(crate) fn fail(&mut self, cq: CqNum) {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return };
        if !std::mem::replace(&mut queue.failed, true) {
            self.newly_failed.push(cq);
            self.event(AsyncEvent::CqError(cq));
        }
    }

    /// Takes over what has arrived, so that what is pushed next comes behind it.
    pub(crate) fn settle(&mut self, cq: CqNum) {
        let peer = self.peer;
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return };
        while let Ok(arrival) = queue.arrivals.pop() {
            let mut wc = Wc::default();
            fill_in(&mut wc, &arrival, peer);
            queue.own.push_back(wc);
        }
    }

    pub(crate) fn poll(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        let peer = self.peer;
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return 0 };
        let mut count = 0;
        while count < out.len()
            && let Some(wc) = queue.own.pop_front()
        {
            out[count] = wc;
            count += 1;
        }
        // Most polls find nothing.
        if queue.arrivals.is_empty() {
            count
        } else {
            count + queue.arrive(&mut out[count..], peer)
        }
    }

    /// Whether any queue holds a completion.
    pub(crate) fn any(&self) -> bool {
        self.queues.iter().any(|queue| !queue.own.is_empty() || !queue.arrivals.is_empty())
    }

    pub(crate) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.events_lost += 1;
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }
}

/// Writes the completion of an arrival over `wc`, field by field: one that is put together
/// elsewhere is copied in wider pieces than it was stored in, and waits for that.
#[inline]
fn fill_in(wc: &mut Wc, arrival: &Arrival, peer: SocketAddr) {
    wc.wr_id = arrival.wr_id;
    (wc.status, wc.opcode) = (arrival.status, arrival.opcode);
    (wc.byte_len, wc.imm_data) = (arrival.byte_len, arrival.imm_data);
    wc.qp_num = arrival.qp_num;
    wc.src_qp = arrival.src_qp.unwrap_or(QpNum(0));
    wc.src_addr = None;
    if arrival.src_qp.is_some() {
        wc.src_addr = Some(peer);
    }
    (wc.tclass, wc.timestamp, wc.vendor_err) = (None, None, 0);
}
