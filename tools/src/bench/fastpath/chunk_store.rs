//! The store of the chunk server, for the servers of the baseline.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crossbeam_channel::Receiver;
use slab::Slab;
use towpath_chunkserver::daemon::{DaemonConfig, worker_config};
use towpath_chunkserver::store::{
    Completion, FileMedia, Reply, Request, Store, StoreConfig, StoreWorker,
};
use towpath_fastpath::baseline::{SliceOp, SliceOutcome, SliceStore, Verdict};

use super::load::{CHUNK, LoadError};

type Done = Box<dyn FnOnce(SliceOutcome) + Send>;
type Waiting = Mutex<Slab<Done>>;

/// The store's worker, and who waits for what.
pub(super) struct ChunkStore {
    worker: Mutex<StoreWorker<Vec<u8>>>,
    completions: Receiver<Completion<Vec<u8>, Vec<u8>>>,
    waiting: Arc<Waiting>,
}

impl ChunkStore {
    /// Opens the store with the settings of the chunk server, and makes the chunk that is written.
    pub(super) fn open(config: &DaemonConfig) -> Result<Self, LoadError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| LoadError::Store(error);
        let media = FileMedia::new(&PathBuf::from(&config.data_dir))?;
        let settings =
            StoreConfig::default().log_bytes(config.log_bytes).segment_bytes(config.segment_bytes);
        let store = Store::open(media, settings).map_err(|error| failed(error.into()))?;
        let worker = StoreWorker::spawn_with(store, worker_config(config))?;
        let completions = worker.completions().clone();
        let create =
            Request::Create { chunk: CHUNK, limit_bytes: None, unfinished: false, resident: false };
        worker.send(0, create).map_err(|_| failed("it ended at once".into()))?;
        match completions.recv().map(|done| done.reply) {
            Ok(Reply::Create(Ok(_))) => {}
            other => return Err(failed(format!("the chunk was not made: {other:?}").into())),
        }
        let waiting = Arc::new(Waiting::default());
        let (of_thread, of_waiting) = (completions.clone(), Arc::clone(&waiting));
        // What the store's own thread ends, nobody here would notice.
        thread::spawn(move || {
            while let Ok(completion) = of_thread.recv() {
                end(&of_waiting, completion);
            }
        });
        Ok(Self { worker: Mutex::new(worker), completions, waiting })
    }
}

impl SliceStore for ChunkStore {
    fn start(&self, op: SliceOp, done: Done) {
        let request = match op {
            SliceOp::Write { chunk, offset, slices, crcs } => {
                Request::Write { chunk, offset, data: vec![slices], crcs, verified: true }
            }
            SliceOp::Read { chunk, offset, length } => {
                let byte_len = length as usize;
                let (buf, crcs) = (vec![0; byte_len], Vec::new());
                Request::Read { chunk, offset, byte_len, buf, crcs }
            }
        };
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let token = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(done);
        if worker.try_send(token as u64, request).is_err() {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let done = waiting.try_remove(token);
            drop(waiting);
            drop(worker);
            if let Some(done) = done {
                done(SliceOutcome::Not(Verdict::Busy));
            }
            return;
        }
        // Where this thread may do the store's work, the answer is there at once.
        while worker.work() {
            while let Ok(completion) = self.completions.try_recv() {
                end(&self.waiting, completion);
            }
        }
    }
}

/// Tells who waits for an answer.
fn end(waiting: &Waiting, Completion { token, reply }: Completion<Vec<u8>, Vec<u8>>) {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let done = waiting.try_remove(token as usize);
    drop(waiting);
    let outcome = match reply {
        Reply::Write { result: Ok(_), .. } => SliceOutcome::Written,
        Reply::Read { result: Ok(_), buf, .. } => SliceOutcome::Read(buf),
        _ => SliceOutcome::Not(Verdict::Failed),
    };
    if let Some(done) = done {
        done(outcome);
    }
}
