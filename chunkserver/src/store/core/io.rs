//! The operations that a store has under way: what each is for, and those that wait for room.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use slab::Slab;
use towpath_disk::{Disk, DiskError, Done, DurableWrites, Op, Refusal, What};
use towpath_transport::Class;

use super::blocking::Blocking;
use super::lanes::Lanes;
use super::memory::Memory;
use super::page::PAGE_BYTES;
use crate::store::record::Extent;

/// What an operation is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Data of a member of a group.
    Data { member: usize },
    /// Data of a write that may not be asked for yet.
    Early { key: usize },
    /// Records of the group of that number, and the slices that stand behind them.
    Log { group: u64 },
    /// The flush of that group.
    Flush { group: u64 },
    /// Slices on their way from the log to their pages.
    Home(super::away::Move),
    /// Slices of a read, from a position on.
    Read { read: usize, position: usize, is_second: bool },
    /// A page of the map, the directory, or the superblock, for the checkpoint under way.
    Checkpoint,
    /// Pages that are written before they are used.
    Ahead(Extent),
    /// Pages of the map and the directory that get their room.
    MapRoom,
    /// Pages of the log that get their room.
    LogRoom,
    /// Pages that give their room back.
    Discard(Extent),
}

/// An operation that has ended.
pub(super) struct Ended {
    pub(super) purpose: Purpose,
    pub(super) op: Op,
    pub(super) outcome: Result<(), DiskError>,
}

/// A disk, memory for what it reads and writes, and the queues before it.
pub(super) struct Io {
    disk: Box<dyn Disk>,
    pub(super) memory: Memory,
    under_way: Slab<UnderWay>,
    /// What the store does for itself, which goes first.
    own: VecDeque<(Purpose, Op)>,
    by_class: [VecDeque<(Purpose, Op)>; Class::COUNT],
    lanes: Lanes,
    /// Whether a flush is under way, or waits to be. Of two at a time on one file one may be told
    /// of an error that concerns both.
    is_flushing: bool,
    /// Flushes behind that one.
    flushes: VecDeque<Purpose>,
    /// What the disk did not take at all.
    refused: Vec<Ended>,
    done: Vec<Done>,
    ended: Vec<Ended>,
    /// How long what made the last group durable took: a flush, or a durable write.
    pub(super) flush_ns: u64,
}

struct UnderWay {
    purpose: Purpose,
    /// Whose it is, and its bytes; none of what the store does for itself.
    lane: Option<(Class, u64)>,
    /// When it began, of what makes a group durable.
    began: Option<Instant>,
}

impl Io {
    pub(super) fn new(disk: Box<dyn Disk>, memory: Memory) -> Self {
        Self {
            disk,
            memory,
            under_way: Slab::new(),
            own: VecDeque::new(),
            by_class: Default::default(),
            lanes: Lanes::new(),
            is_flushing: false,
            flushes: VecDeque::new(),
            refused: Vec::new(),
            done: Vec::new(),
            ended: Vec::new(),
            flush_ns: 0,
        }
    }

    /// The disk, waited for.
    pub(super) fn blocking(&mut self) -> Blocking<'_> {
        Blocking::new(&mut *self.disk, &self.memory)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// What durable writes of the disk make last.
    pub(super) fn durable_writes(&self) -> DurableWrites {
        self.disk.limits().durable_writes
    }

    /// Whether the disk takes durable writes.
    pub(super) fn writes_durably(&self) -> bool {
        self.durable_writes() != DurableWrites::None
    }

    pub(super) fn disk_mut(&mut self) -> &mut dyn Disk {
        &mut *self.disk
    }

    /// Whether nothing is under way and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && !self.has_waiting() && self.refused.is_empty()
    }

    fn has_waiting(&self) -> bool {
        !self.own.is_empty() || self.by_class.iter().any(|queue| !queue.is_empty())
    }

    /// Whether what can wait had better do so: others wait already.
    pub(super) fn is_crowded(&self) -> bool {
        let limits = self.disk.limits();
        self.has_waiting() || limits.in_flight + limits.depth / 4 >= limits.depth
    }

    /// Gives the disk something that the store does for itself: records, flushes, checkpoints. One
    /// flush comes after the other.
    pub(super) fn submit(&mut self, purpose: Purpose, op: Op) {
        if matches!(op, Op::Flush) {
            if self.is_flushing {
                return self.flushes.push_back(purpose);
            }
            self.is_flushing = true;
        }
        self.own.push_back((purpose, op));
        self.start_waiting();
    }

    /// Gives the disk what a request of a class needs, when it is its turn.
    pub(super) fn submit_as(&mut self, class: Class, purpose: Purpose, op: Op) {
        self.by_class[class.index()].push_back((purpose, op));
        self.start_waiting();
    }

    /// A flush has ended: the next one may begin.
    fn end_flush(&mut self) {
        self.is_flushing = false;
        if let Some(purpose) = self.flushes.pop_front() {
            self.submit(purpose, Op::Flush);
        }
    }

    /// Starts what may be under way, as far as the disk takes it.
    fn start_waiting(&mut self) {
        while let Some((purpose, op)) = self.own.pop_front() {
            if let Some(back) = self.start(purpose, op, None) {
                return self.own.push_front(back);
            }
        }
        loop {
            let heads = std::array::from_fn(|at| {
                let head = self.by_class[at].front();
                head.map(|(_, op)| op.page_count() * PAGE_BYTES as u64)
            });
            let limits = self.disk.limits();
            if limits.in_flight >= limits.depth {
                return;
            }
            let Some(class) = self.lanes.next(heads) else { return };
            let Some((purpose, op)) = self.by_class[class.index()].pop_front() else { return };
            let bytes = heads[class.index()].unwrap_or(0);
            if let Some(back) = self.start(purpose, op, Some((class, bytes))) {
                return self.by_class[class.index()].push_front(back);
            }
        }
    }

    /// Gives an operation to the disk; it comes back where the disk's queue is full.
    fn start(
        &mut self,
        purpose: Purpose,
        op: Op,
        lane: Option<(Class, u64)>,
    ) -> Option<(Purpose, Op)> {
        let makes_last = matches!(purpose, Purpose::Flush { .. }) || op.is_durable_write();
        let began = makes_last.then(Instant::now);
        let tag = self.under_way.insert(UnderWay { purpose, lane, began });
        let Err(refused) = self.disk.submit(tag as u64, op) else {
            lane.iter().for_each(|(class, bytes)| self.lanes.started(*class, *bytes));
            return None;
        };
        let UnderWay { purpose, .. } = self.under_way.remove(tag);
        let (op, why) = (refused.op, refused.why);
        if why == Refusal::QueueFull {
            return Some((purpose, op));
        }
        let (what, at) = (op.what(), op.at());
        let source = io::Error::other(why);
        self.refused.push(Ended { purpose, op, outcome: Err(DiskError { what, at, source }) });
        if what == What::Flush {
            self.end_flush();
        }
        None
    }

    /// What has ended; waits for something, for `timeout` at most, where there is a timeout. The
    /// list is to be [given back](Self::done_with), empty.
    ///
    /// # Errors
    /// The system does not speak of the disk any more.
    pub(super) fn poll(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Ended>> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.append(&mut self.refused);
        match timeout.filter(|_| ended.is_empty()) {
            Some(timeout) => self.disk.wait(timeout, &mut self.done)?,
            None => self.disk.poll(&mut self.done)?,
        };
        let mut done = std::mem::take(&mut self.done);
        for Done { tag, op, outcome } in done.drain(..) {
            // The disk gives out what it was given.
            let Some(found) = self.under_way.try_remove(tag as usize) else { continue };
            found.lane.iter().for_each(|(class, bytes)| self.lanes.ended(*class, *bytes));
            if let Some(began) = found.began {
                self.flush_ns = began.elapsed().as_nanos() as u64;
            }
            if matches!(op, Op::Flush) {
                self.end_flush();
            }
            ended.push(Ended { purpose: found.purpose, op, outcome });
        }
        self.done = done;
        self.start_waiting();
        Ok(ended)
    }

    /// Takes back a list of what has ended.
    pub(super) fn done_with(&mut self, ended: Vec<Ended>) {
        debug_assert!(ended.is_empty());
        self.ended = ended;
    }
}
