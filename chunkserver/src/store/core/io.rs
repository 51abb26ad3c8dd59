//! The operations that a store has under way: what each is for, and those that wait for room.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use slab::Slab;
use towpath_disk::{Disk, DiskError, Done, Op, Refusal};

use super::merge::Edge;
use crate::store::record::Extent;

/// What an operation is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Data of a member of a group.
    Data { member: usize },
    /// What a slice held that a member writes in part.
    Edge(Box<Edge>),
    /// Data of a write that may not be asked for yet.
    Early { key: usize },
    /// Records of the group under way.
    Log,
    /// The flush of that group.
    Flush,
    /// Slices of a read, from a position on.
    Read { read: usize, position: usize, is_second: bool },
    /// A slice of a scrub.
    Scrub { slice: super::scrub::Looked, is_second: bool },
    /// A page of the map, the directory, or the superblock, for the checkpoint under way.
    Checkpoint,
    /// Pages that are written before they are used.
    Ahead(Extent),
    /// Pages that give their room back.
    Discard { page: u32, count: u32 },
}

/// An operation that has ended.
pub(super) struct Ended {
    pub(super) purpose: Purpose,
    pub(super) op: Op,
    pub(super) outcome: Result<(), DiskError>,
}

/// A disk, and a queue before it.
pub(super) struct Io {
    disk: Box<dyn Disk>,
    purposes: Slab<Purpose>,
    waiting: VecDeque<(Purpose, Op)>,
    /// What the disk did not take at all.
    refused: Vec<Ended>,
    done: Vec<Done>,
    flush_began: Option<Instant>,
    /// How long the last flush of a group took.
    pub(super) flush_ns: u64,
}

impl Io {
    pub(super) fn new(disk: Box<dyn Disk>) -> Self {
        let (purposes, waiting) = (Slab::new(), VecDeque::new());
        Self {
            disk,
            purposes,
            waiting,
            refused: Vec::new(),
            done: Vec::new(),
            flush_began: None,
            flush_ns: 0,
        }
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(super) fn disk_mut(&mut self) -> &mut dyn Disk {
        &mut *self.disk
    }

    /// Whether nothing is under way and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.purposes.is_empty() && self.waiting.is_empty() && self.refused.is_empty()
    }

    /// Whether what can wait had better do so: others wait already.
    pub(super) fn is_crowded(&self) -> bool {
        let limits = self.disk.limits();
        !self.waiting.is_empty() || limits.in_flight + limits.depth / 4 >= limits.depth
    }

    pub(super) fn submit(&mut self, purpose: Purpose, op: Op) {
        match self.waiting.is_empty() {
            true => self.start(purpose, op),
            false => self.waiting.push_back((purpose, op)),
        }
    }

    fn start(&mut self, purpose: Purpose, op: Op) {
        if matches!(purpose, Purpose::Flush) {
            self.flush_began = Some(Instant::now());
        }
        let tag = self.purposes.insert(purpose);
        let Err(refused) = self.disk.submit(tag as u64, op) else { return };
        let purpose = self.purposes.remove(tag);
        let (op, why) = (refused.op, refused.why);
        if why == Refusal::QueueFull {
            self.waiting.push_front((purpose, op));
            return;
        }
        let (what, at) = (op.what(), op.at());
        let source = io::Error::other(why);
        self.refused.push(Ended { purpose, op, outcome: Err(DiskError { what, at, source }) });
    }

    /// Appends what has ended to `ended`; waits for something, for `timeout` at most, where there
    /// is a timeout.
    ///
    /// # Errors
    /// The system does not speak of the disk any more.
    pub(super) fn poll(
        &mut self,
        timeout: Option<Duration>,
        ended: &mut Vec<Ended>,
    ) -> io::Result<()> {
        ended.append(&mut self.refused);
        match timeout.filter(|_| ended.is_empty()) {
            Some(timeout) => self.disk.wait(timeout, &mut self.done)?,
            None => self.disk.poll(&mut self.done)?,
        };
        for Done { tag, op, outcome } in self.done.drain(..) {
            // The disk gives out what it was given.
            let Some(purpose) = self.purposes.try_remove(tag as usize) else { continue };
            if let (Purpose::Flush, Some(began)) = (&purpose, self.flush_began) {
                self.flush_ns = began.elapsed().as_nanos() as u64;
            }
            ended.push(Ended { purpose, op, outcome });
        }
        while let Some((purpose, op)) = self.waiting.pop_front() {
            let before = self.waiting.len();
            self.start(purpose, op);
            if self.waiting.len() > before {
                break;
            }
        }
        Ok(())
    }
}
