//! What takes slices and gives them back.

use super::message::Verdict;
use towpath_fastpath::slice::{ChunkId, Span};

/// What a store is to do.
#[derive(Debug)]
pub enum SliceOp {
    /// Keep slices.
    Write {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// The data, slice after slice.
        slices: Vec<u8>,
        /// One checksum per slice.
        crcs: Vec<u32>,
    },
    /// Give slices back.
    Read {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
}

/// What a store did.
#[derive(Debug, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It has the slices.
    Written,
    /// The bytes, in a buffer of the store.
    Read(Vec<u8>),
    /// It was not done: why.
    Not(Verdict),
}

/// A store, for the servers of the baseline.
pub trait SliceStore: Send + Sync + 'static {
    /// Does it, now or later, on this thread or another, and calls `done` once.
    fn start(&self, op: SliceOp, done: Box<dyn FnOnce(SliceOutcome) + Send>);
}

/// A store that checks what it is given, keeps nothing and answers at once. It reads zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullStore;

impl SliceStore for NullStore {
    fn start(&self, op: SliceOp, done: Box<dyn FnOnce(SliceOutcome) + Send>) {
        done(match op {
            // The checksums were made of these very bytes a moment ago: left is their number.
            SliceOp::Write { offset, slices, crcs, .. } => {
                let count = slices.len() as u64;
                match count > 0 && Span::new(offset, count).count() == crcs.len() as u64 {
                    true => SliceOutcome::Written,
                    false => SliceOutcome::Not(Verdict::Malformed),
                }
            }
            SliceOp::Read { length, .. } => SliceOutcome::Read(vec![0; length as usize]),
        });
    }
}
