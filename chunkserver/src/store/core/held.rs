//! Changes that wait for others, or for room.

use std::collections::{HashSet, VecDeque};

use towpath_memory::Buf;
use towpath_transport::Class;

use super::changes::Client;
use crate::store::hash::NameHash;
use crate::store::request::Request;
use crate::store::slice::ChunkId;

/// A request and who asked.
pub(super) struct Asked<W> {
    /// None where nobody waits for it.
    pub(super) to: Option<Client>,
    pub(super) class: Class,
    pub(super) request: Request<W, Buf>,
}

/// The changes that wait, in the order in which they came.
pub(super) struct Held<W> {
    queue: VecDeque<Asked<W>>,
    /// How many of them there are of each class.
    by_class: [usize; Class::COUNT],
    /// The chunks that they change.
    chunks: HashSet<ChunkId, NameHash>,
    /// Something has happened that they may have waited for.
    is_due: bool,
}

impl<W> Held<W> {
    pub(super) fn new(hash: NameHash) -> Self {
        let chunks = HashSet::with_hasher(hash);
        Self { queue: VecDeque::new(), by_class: Default::default(), chunks, is_due: false }
    }

    /// Keeps a change until something has changed that it may wait for.
    pub(super) fn push(&mut self, asked: Asked<W>) {
        self.chunks.insert(asked.request.chunk());
        self.by_class[asked.class.index()] += 1;
        self.queue.push_back(asked);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many of a class wait.
    pub(super) fn count(&self, class: Class) -> usize {
        self.by_class[class.index()]
    }

    /// Whether a change of this chunk waits.
    pub(super) fn has(&self, chunk: ChunkId) -> bool {
        self.chunks.contains(&chunk)
    }

    /// Something has happened that they may have waited for.
    pub(super) fn wake(&mut self) {
        self.is_due |= !self.queue.is_empty();
    }

    /// Whether they are to be tried again, since something has happened.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// All of them, to be tried again.
    pub(super) fn take(&mut self) -> VecDeque<Asked<W>> {
        self.is_due = false;
        self.chunks.clear();
        self.by_class = Default::default();
        std::mem::take(&mut self.queue)
    }
}
