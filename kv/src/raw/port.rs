//! A server's device, and the clients on it: requests come in, replies go out.

mod datagrams;
mod doors;
mod join;
#[cfg(test)]
mod tests;

use super::counters::{RawCounters, add};
use super::hello::{End, Grant};
use super::slots::{Slots, SlotsError};
use super::{RawConfig, RawKind, message_bytes_max};
use crate::execute::{Caller, Service};
use crate::limits::{RAW_BATCH, RAW_PROGRESS_BUDGET, RAW_SLOTS_PER_REQUEST};
use crate::published::Published;
use crate::serve::{Counters, answer_message};
use crate::wire::{Failure, Reply};
use datagrams::Datagrams;
use doors::Doors;
pub(super) use doors::Inbox;
use slab::Slab;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use towpath_base::{Prng, Time};
use towpath_memory::Region;
use towpath_verbs::{
    Access, AsyncEvent, BadWr, CqNum, Device, PdNum, QpNum, SendOp, SendWr, UdAddress, VerbError,
    Wc, WcStatus,
};

/// A client that has said what its queue pair is.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) stream: TcpStream,
    pub(super) hello: End,
}

/// A device and its clients, for one thread, or for several that take turns.
pub(super) struct Port<D> {
    pub(super) device: D,
    kind: RawKind,
    message_bytes_max: u32,
    under_way: u16,
    cq: CqNum,
    cq_depth: u32,
    /// It failed, and has to be made anew.
    is_cq_broken: bool,
    /// Queue pairs are gone of which it may still hold completions.
    has_remains: bool,
    peers: Slab<Peer>,
    peers_max: usize,
    datagrams: Option<Datagrams>,
    pub(super) doors: Doors,
    wcs: Box<[Wc]>,
    counters: Arc<Counters>,
    raw: Arc<RawCounters>,
    prng: Prng,
    /// What clients of RC may read.
    grant: Option<Grant>,
    /// Threads that serve it, where there is one for each client.
    pub(super) threads: usize,
}

/// A client.
struct Peer {
    /// Its end says that the client is gone.
    stream: TcpStream,
    line: Line,
    caller: Caller,
    reply_bytes_max: u32,
}

/// Where a client's messages come from, and go to.
enum Line {
    Connected { qp: QpNum, slots: Slots },
    Datagrams { remote: UdAddress, ip: IpAddr },
}

impl Line {
    /// Tells it from one that had the same place before.
    fn mark(&self) -> QpNum {
        match self {
            Self::Connected { qp, .. } => *qp,
            Self::Datagrams { remote, .. } => remote.remote_qpn,
        }
    }
}

/// What a work request is for, in the 64 bits that come back with its completion.
#[derive(Clone, Copy)]
struct Id {
    place: u32,
    is_recv: bool,
    slot: u32,
}

const RECV: u64 = 1 << 31;

impl Id {
    fn of(wr_id: u64) -> Self {
        let slot = (wr_id & (RECV - 1)) as u32;
        Self { place: (wr_id >> 32) as u32, is_recv: wr_id & RECV != 0, slot }
    }

    fn recv(place: usize, slot: u32) -> u64 {
        Self::send(place, slot) | RECV
    }

    fn send(place: usize, slot: u32) -> u64 {
        (place as u64) << 32 | u64::from(slot)
    }
}

/// Requests that were taken in, and the replies to them.
#[derive(Debug, Default)]
pub(super) struct Work {
    items: Vec<Item>,
    input: Vec<u8>,
    output: Vec<u8>,
}

#[derive(Debug)]
struct Item {
    place: usize,
    mark: QpNum,
    /// The queue pair whose slot it is.
    qp: QpNum,
    slot: u32,
    caller: Caller,
    reply_bytes_max: u32,
    request: Range<usize>,
    reply: Range<usize>,
}

impl Work {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Carries the requests out.
    pub(super) fn answer(
        &mut self,
        service: &Service,
        (counters, raw): (&Counters, &RawCounters),
        now: Time,
    ) {
        for item in &mut self.items {
            let begin = self.output.len();
            let bytes = &self.input[item.request.clone()];
            let out = &mut self.output;
            let is_sound = answer_message(service, bytes, &mut item.caller, now, out);
            counters.count_message(is_sound);
            if self.output.len() - begin > item.reply_bytes_max as usize {
                add(&raw.too_long, 1);
                let head = Reply::parse(&self.output[begin..]).ok().map(|(reply, _)| reply.head);
                self.output.truncate(begin);
                if let Some(head) = head {
                    Reply { head, answer: Err(Failure::TooLong) }.emit(&mut self.output);
                }
            }
            item.reply = begin..self.output.len();
        }
    }
}

impl<D: Device<Memory = Region>> Port<D> {
    /// A device without clients yet.
    pub(super) fn new(
        mut device: D,
        config: &RawConfig,
        (counters, raw): (&Arc<Counters>, &Arc<RawCounters>),
        published: Option<&Published>,
        (peers_max, seed): (usize, u64),
    ) -> Result<Self, PortError> {
        let kind = config.kind;
        if !kind.is_offered(&device.caps().verbs) {
            return Err(PortError::Kind(kind));
        }
        let limits = device.queue_limits();
        // Of each client as many receives as sends, all of which may be done.
        let each = 2 * RAW_SLOTS_PER_REQUEST * u32::from(config.under_way);
        let depth = match kind {
            RawKind::Ud => 2 * Datagrams::slots(&limits),
            RawKind::Rc | RawKind::Uc => {
                let all = u32::try_from(peers_max).unwrap_or(u32::MAX).saturating_mul(each);
                all.min(limits.cqe_max)
            }
        };
        let peers_max = match kind {
            RawKind::Ud => peers_max,
            RawKind::Rc | RawKind::Uc => (depth / each) as usize,
        };
        let cq = device.create_cq(depth)?;
        let mut prng = Prng::new(seed);
        let datagrams = match kind {
            RawKind::Ud => Some(Datagrams::new(&mut device, cq, prng.next_u32())?),
            RawKind::Rc | RawKind::Uc => None,
        };
        let grant = match (published, kind) {
            (Some(published), RawKind::Rc) if device.caps().verbs.read => {
                Some(grant(&mut device, published)?)
            }
            _ => None,
        };
        Ok(Self {
            device,
            kind,
            message_bytes_max: message_bytes_max(config.value_bytes_max),
            under_way: config.under_way,
            cq,
            cq_depth: depth,
            is_cq_broken: false,
            has_remains: false,
            peers: Slab::new(),
            peers_max,
            datagrams,
            doors: Doors::new()?,
            wcs: vec![Wc::default(); RAW_BATCH].into(),
            counters: Arc::clone(counters),
            raw: Arc::clone(raw),
            prng,
            grant,
            threads: 0,
        })
    }

    /// Takes requests in; whether anything moved.
    pub(super) fn gather(&mut self, work: &mut Work) -> bool {
        work.input.clear();
        work.output.clear();
        let moved = self.device.progress(RAW_PROGRESS_BUDGET);
        moved + self.take_completions(work) > 0
    }

    fn take_completions(&mut self, work: &mut Work) -> usize {
        let count = self.device.poll_cq(self.cq, &mut self.wcs);
        for at in 0..count {
            let wc = self.wcs[at];
            self.complete(&wc, work);
        }
        count
    }

    /// Takes all completions before clients come where some have gone, so that those who are there
    /// at a time have the whole queue: with what is left of others it would overflow. There are no
    /// more requests to take in than the clients that are there may have under way.
    fn clear_remains(&mut self, work: &mut Work) {
        if std::mem::take(&mut self.has_remains) {
            while self.take_completions(work) > 0 {}
            // Who was let go meanwhile was so before the last look.
            self.has_remains = false;
        }
    }

    /// Makes the completion queue anew after it failed; the clients have to join again.
    fn mend_queue(&mut self) {
        while let Some(event) = self.device.poll_async_event() {
            self.is_cq_broken |= event == AsyncEvent::CqError(self.cq);
        }
        if !self.is_cq_broken {
            return;
        }
        add(&self.raw.failed, self.peers.len() as u64);
        self.close_all();
        match self.device.create_cq(self.cq_depth) {
            Ok(cq) => (self.cq, self.is_cq_broken) = (cq, false),
            Err(error) => {
                return tracing::error!(%error, "a completion queue failed, and there is no other");
            }
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.is_broken = true;
        }
    }

    fn complete(&mut self, wc: &Wc, work: &mut Work) {
        let id = Id::of(wc.wr_id);
        if let Some(datagrams) = &mut self.datagrams {
            match datagrams.complete(wc) {
                datagrams::Done::Nothing => {}
                datagrams::Done::Sent => self.recycle(id.slot),
                datagrams::Done::Received => self.receive_datagram(wc, id.slot, work),
                datagrams::Done::Refused => {
                    add(&self.raw.oversized, 1);
                    self.recycle(id.slot);
                }
            }
            return;
        }
        let place = id.place as usize;
        let Some(peer) = self.peers.get_mut(place) else { return };
        let Line::Connected { qp, slots } = &peer.line else { return };
        // What is left of a queue pair that is gone has another number.
        if *qp != wc.qp_num {
            return;
        }
        if wc.status != WcStatus::Success {
            add(&self.raw.failed, 1);
            return self.close(place);
        }
        if id.is_recv {
            let request = slots.take(id.slot, wc.byte_len, &mut work.input);
            let mark = *qp;
            work.items.push(peer.item((place, mark), (mark, id.slot), request));
            return;
        }
        // The reply has left: there is room for another request and its reply.
        let posted = self.device.post_recv(*qp, &[slots.recv(Id::recv(place, id.slot), id.slot)]);
        if posted.is_err() {
            self.close(place);
        }
    }

    fn receive_datagram(&mut self, wc: &Wc, slot: u32, work: &mut Work) {
        let place = wc.imm_data.map_or(usize::MAX, |number| number as usize);
        let from = wc.src_addr.map(|addr| addr.ip().to_canonical());
        let peer = self.peers.get_mut(place).filter(|peer| match &peer.line {
            Line::Datagrams { remote, ip } => {
                remote.remote_qpn == wc.src_qp && from.is_none_or(|from| from == *ip)
            }
            Line::Connected { .. } => false,
        });
        let (Some(peer), Some(datagrams)) = (peer, &self.datagrams) else {
            add(&self.raw.strangers, 1);
            return self.recycle(slot);
        };
        let request = datagrams.slots.take(slot, wc.byte_len, &mut work.input);
        work.items.push(peer.item((place, wc.src_qp), (datagrams.qp, slot), request));
    }

    /// Lets a slot of the one queue pair for datagrams receive again.
    fn recycle(&mut self, slot: u32) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.recycle(&mut self.device, slot);
        }
    }

    /// Sends the replies.
    pub(super) fn reply(&mut self, work: &mut Work) {
        let Work { items, output, .. } = work;
        for item in items.drain(..) {
            let Item { place, mark, qp, slot, caller, reply, .. } = item;
            // Made anew since, it has posted all its slots, and its clients have to join again.
            if self.datagrams.as_ref().is_some_and(|datagrams| datagrams.qp != qp) {
                continue;
            }
            let peer = self.peers.get_mut(place).filter(|peer| peer.line.mark() == mark);
            let Some(peer) = peer else {
                self.recycle(slot);
                continue;
            };
            // Of several requests at a time the first has it; one that needs none leaves it there.
            if caller.is_known() {
                peer.caller.take_over(caller);
            }
            let (id, message) = (Id::send(place, slot), &output[reply]);
            let posted = match (&peer.line, &self.datagrams) {
                (Line::Connected { qp, slots }, _) => {
                    post(&mut self.device, (*qp, None), slots, (id, slot), message)
                }
                (Line::Datagrams { remote, .. }, Some(datagrams)) => {
                    let to = (datagrams.qp, Some(*remote));
                    post(&mut self.device, to, &datagrams.slots, (id, slot), message)
                }
                (Line::Datagrams { .. }, None) => false,
            };
            if !posted {
                self.close(place);
                self.recycle(slot);
            }
        }
        self.device.progress(0);
    }

    fn close_all(&mut self) {
        for place in self.peers.iter().map(|(place, _)| place).collect::<Vec<_>>() {
            self.close(place);
        }
    }

    /// Ends a client's service.
    fn close(&mut self, place: usize) {
        let peer = self.peers.remove(place);
        if let Line::Connected { qp, slots } = peer.line {
            self.has_remains = true;
            // It was made there, or the device is gone with all that it had.
            let _ = self.device.destroy_qp(qp);
            slots.free(&mut self.device);
        }
        self.counters.disconnect();
        self.doors.inbox.left();
    }

    /// Whether nobody is there: then even a thread that polls sleeps.
    pub(super) fn is_idle(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whether there are more threads than clients.
    pub(super) fn has_surplus(&self) -> bool {
        self.threads > self.peers.len()
    }
}

impl Peer {
    fn item(
        &mut self,
        (place, mark): (usize, QpNum),
        (qp, slot): (QpNum, u32),
        request: Range<usize>,
    ) -> Item {
        let (caller, reply_bytes_max) = (std::mem::take(&mut self.caller), self.reply_bytes_max);
        Item { place, mark, qp, slot, caller, reply_bytes_max, request, reply: 0..0 }
    }
}

/// Registers published memory for reading.
fn grant<D: Device<Memory = Region>>(
    device: &mut D,
    published: &Published,
) -> Result<Grant, VerbError> {
    let (memory, bytes) = (published.memory(), published.shape().bytes());
    let access = Access { local_write: false, remote_read: true, ..Access::LOCAL };
    let keys = device.reg_shared_mr(PdNum::DEFAULT, memory, 0..bytes, access)?;
    Ok(Grant { rkey: keys.rkey, addr: memory.addr(), bytes: bytes as u64 })
}

/// Posts a reply; whether that was taken.
fn post<D: Device<Memory = Region>>(
    device: &mut D,
    (qp, remote): (QpNum, Option<UdAddress>),
    slots: &Slots,
    (id, slot): (u64, u32),
    message: &[u8],
) -> bool {
    let Some(list) = slots.put(slot, message) else { return false };
    let mut wr = SendWr::new(id, SendOp::Send, list);
    wr.ud = remote;
    // A peer that blocks is woken by it.
    wr.flags.solicited = true;
    let posted: Result<(), BadWr> = device.post_send(qp, &[wr]);
    posted.is_ok()
}

/// Why a device cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// It has no such queue pairs.
    #[error("the device has no queue pairs of the type {0:?}")]
    Kind(RawKind),
    /// A verb failed.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// There is no memory for messages.
    #[error(transparent)]
    Memory(#[from] towpath_memory::MemoryError),
    /// The system has no descriptor for it.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<SlotsError> for PortError {
    fn from(error: SlotsError) -> Self {
        match error {
            SlotsError::Memory(error) => Self::Memory(error),
            SlotsError::Verb(error) => Self::Verb(error),
        }
    }
}
