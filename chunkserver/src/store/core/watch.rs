//! Who follows which chunks there are in a store.

use super::state::StoreCore;
use crate::store::slice::ChunkId;

/// Is told of chunks that come and go, in the order in which they do, before whoever asked for it
/// has the answer.
pub trait Watch {
    /// The chunk is there, durably.
    fn created(&mut self, chunk: ChunkId);
    /// The chunk is there no more.
    fn deleted(&mut self, chunk: ChunkId);
}

impl<W> StoreCore<W> {
    /// Has `watch` told of all chunks that come and go from now on.
    pub fn watch(&mut self, watch: Box<dyn Watch>) {
        self.watch = Some(watch);
    }
}
