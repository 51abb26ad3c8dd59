//! The store of the chunk server, for the servers of the baseline.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::baseline::{SliceOp, SliceOutcome, SliceStore, Verdict};
use slab::Slab;
use towpath_chunkserver::daemon::{DaemonConfig, open_store};
use towpath_chunkserver::store::core::StoreThread;
use towpath_chunkserver::store::{Completion, NewChunk, Reply, Request, Terms};

use towpath_memory::{Buf, Pool};

use super::load::{CHUNK, LoadError};

/// The longest read of the load.
const READ_BYTES_MAX: usize = 1 << 20;

/// Reads that are under way at most: what the load keeps under way, and more.
const READS_MAX: usize = 64;

type Done = Box<dyn FnOnce(SliceOutcome) + Send>;
type Waiting = Mutex<Slab<Done>>;

/// A hold on the store's thread, and who waits for what.
pub(super) struct ChunkStore {
    store: Mutex<StoreThread<Vec<u8>>>,
    waiting: Arc<Waiting>,
    /// Where the store reads to.
    pool: Pool,
}

impl ChunkStore {
    /// Opens the store with the settings of the chunk server, and makes the chunk that is written.
    pub(super) fn open(config: &DaemonConfig) -> Result<Self, LoadError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| LoadError::Store(error);
        let (mut stores, _) = open_store(&config.store, 1).map_err(|error| failed(error.into()))?;
        let store = stores.pop().ok_or_else(|| failed("nobody has it".into()))?;
        let completions = store.completions().clone();
        let create = Request::Create {
            chunk: CHUNK,
            limit_bytes: None,
            kind: NewChunk::default(),
            stamp: 0,
        };
        store.try_send(0, create).map_err(|_| failed("it ended at once".into()))?;
        store.ring();
        match completions.recv().map(|done| done.reply) {
            Ok(Reply::Change(Ok(_))) => {}
            other => return Err(failed(format!("the chunk was not made: {other:?}").into())),
        }
        let waiting = Arc::new(Waiting::default());
        let of_thread = Arc::clone(&waiting);
        thread::spawn(move || {
            while let Ok(completion) = completions.recv() {
                end(&of_thread, completion);
            }
        });
        let pool = Pool::with_count(READ_BYTES_MAX, READS_MAX);
        let pool = pool.map_err(|error| failed(error.into()))?;
        Ok(Self { store: Mutex::new(store), waiting, pool })
    }
}

impl SliceStore for ChunkStore {
    fn start(&self, op: SliceOp, done: Done) {
        let request = match op {
            SliceOp::Write { chunk, offset, slices, crcs } => {
                let (data, terms) = (vec![slices], Terms::default());
                Request::Write { chunk, offset, data, crcs, staged: None, verified: true, terms }
            }
            SliceOp::Read { chunk, offset, length } => {
                let byte_len = length as usize;
                let Some(buf) = self.pool.take().filter(|_| byte_len <= READ_BYTES_MAX) else {
                    return done(SliceOutcome::Not(Verdict::Busy));
                };
                Request::Read { chunk, offset, byte_len, buf, crcs: Vec::new() }
            }
        };
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let token = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(done);
        if store.try_send(token as u64, request).is_ok() {
            store.ring();
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let done = waiting.try_remove(token);
        drop((waiting, store));
        if let Some(done) = done {
            done(SliceOutcome::Not(Verdict::Busy));
        }
    }
}

/// Tells who waits for an answer.
fn end(waiting: &Waiting, Completion { token, reply, .. }: Completion<Vec<u8>, Buf>) {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let done = waiting.try_remove(token as usize);
    drop(waiting);
    let outcome = match reply {
        Reply::Write { result: Ok(_), .. } => SliceOutcome::Written,
        Reply::Read { result: Ok(_), buf, .. } => SliceOutcome::Read(buf.to_vec()),
        _ => SliceOutcome::Not(Verdict::Failed),
    };
    if let Some(done) = done {
        done(outcome);
    }
}
