//! Unfinished chunks whose makers are still there, told by those who ask to whoever removes them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use super::slice::ChunkId;

/// Unfinished chunks, with how many links have made each and are still there.
#[derive(Debug, Default)]
pub struct Puts(Mutex<HashMap<ChunkId, u32>>);

impl Puts {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<ChunkId, u32>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A link has made an unfinished chunk. [`end`](Self::end) follows.
    pub fn begin(&self, chunk: ChunkId) {
        self.with(|open| *open.entry(chunk).or_default() += 1);
    }

    /// The chunk is finished, or the link is gone.
    pub fn end(&self, chunk: ChunkId) {
        self.with(|open| {
            if let Entry::Occupied(mut count) = open.entry(chunk) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        });
    }

    /// Whether a link that has made the chunk is still there.
    pub(crate) fn is_open(&self, chunk: ChunkId) -> bool {
        self.with(|open| open.contains_key(&chunk))
    }
}
