//! A store of the format before, copied into a new one: docs/store-format.md to docs/store-core.md.

use std::io;
use std::time::Duration;

use thiserror::Error;
use towpath_disk::Disk;

use super::folder::OldFolder;
use super::load::{Loaded, load};
use super::map::Chunk;
use super::segments::{Segments, SliceFault};
use crate::store::core::{Client, CoreConfig, StoreCore};
use crate::store::error::{
    CreateError, DeleteError, FinishError, FlushFailed, OpenError, WriteError,
};
use crate::store::request::{Completion, NewChunk, Reply, Request, Terms};
use crate::store::slice::{ChunkId, SLICE_BYTES, writer_crcs};

/// Slices of one write: 1 MiB.
const RUN_SLICES: usize = 256;

/// Writes that are under way together: enough to keep a disk busy.
const UNDER_WAY_MAX: usize = 16;

/// How long one wait is; there is always another one.
const WAIT: Duration = Duration::from_secs(10);

/// What was copied, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgraded {
    /// Chunks that were copied.
    pub chunks: u64,
    /// Bytes of their slices.
    pub bytes: u64,
    /// Chunks that are not whole, so that they were left out, and why.
    pub left_out: Vec<(ChunkId, String)>,
}

/// Why a store was not copied. The old one is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The old store cannot be read at all, or the new one not made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nobody knows which chunks the old store had.
    #[error(
        "changes of the old store are lost to damage: repair it first, with \
         `towpath-chunkserver check --repair` of the version that wrote it"
    )]
    Damaged,
    /// A chunk was not made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A chunk was not finished.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// A slice was not written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A chunk that is not whole was not taken away again.
    #[error(transparent)]
    Delete(#[from] DeleteError),
    /// The new store failed.
    #[error(transparent)]
    Failed(#[from] FlushFailed),
    /// The system does not speak of the disk of the new store any more.
    #[error("the disk of the new store: {0}")]
    Disk(#[from] io::Error),
}

/// Copies the store in `folder`, in which nothing changes, into a new one on `disk`. Versions of
/// chunks are higher there than they were.
///
/// # Errors
/// See [`UpgradeError`]; what is on `disk` is not complete then.
pub fn upgrade(
    folder: &OldFolder,
    disk: Box<dyn Disk>,
    config: &CoreConfig,
) -> Result<Upgraded, UpgradeError> {
    let loaded = load(folder)?;
    if loaded.is_lossy() {
        return Err(UpgradeError::Damaged);
    }
    let Loaded { map, segments, next_sequence } = loaded;
    let core = StoreCore::create_after(disk, config, next_sequence)?;
    let mut copy = Copying { segments, core, under_way: 0, done: Upgraded::default() };
    for (id, chunk) in &map.chunks {
        copy.chunk(*id, chunk)?;
    }
    copy.close()
}

struct Copying {
    segments: Segments,
    core: StoreCore<Vec<u8>>,
    under_way: usize,
    done: Upgraded,
}

impl Copying {
    /// Copies a chunk, or notes why it is left out.
    fn chunk(&mut self, id: ChunkId, chunk: &Chunk) -> Result<(), UpgradeError> {
        if chunk.suspect {
            self.done.left_out.push((id, String::from("a change of it is lost to damage")));
            return Ok(());
        }
        // Nobody takes a chunk for whole before it is: a copy that is interrupted goes on by that.
        self.ask(Request::Create {
            chunk: id,
            limit_bytes: Some(chunk.limit_bytes),
            kind: NewChunk { unfinished: true, resident: chunk.resident, chain: 0 },
            stamp: 0,
        })?;
        match self.slices(id, chunk)? {
            Ok(bytes) => {
                self.settle()?;
                if !chunk.unfinished {
                    self.ask(Request::Finish {
                        chunk: id,
                        byte_len: chunk.byte_len,
                        terms: Terms::default(),
                    })?;
                }
                self.done.chunks += 1;
                self.done.bytes += bytes;
            }
            Err(why) => {
                self.settle()?;
                self.ask(Request::Delete { chunk: id, version: None })?;
                self.done.left_out.push((id, why));
            }
        }
        self.settle()
    }

    /// Copies the slices of a chunk; how many bytes that was, or what is wrong with one of them.
    fn slices(&mut self, id: ChunkId, chunk: &Chunk) -> Result<Result<u64, String>, UpgradeError> {
        let (mut run, mut first, mut bytes) = (Vec::new(), 0, 0);
        for (slice, at) in chunk.slices_from(0) {
            if !self.segments.have(at.page) {
                return Ok(Err(format!("slice {slice} is lost")));
            }
            let next = first + (run.len() / SLICE_BYTES) as u64;
            if slice != next || run.len() == RUN_SLICES * SLICE_BYTES {
                self.write(id, first, std::mem::take(&mut run))?;
            }
            if run.is_empty() {
                first = slice;
            }
            let from = run.len();
            run.resize(from + SLICE_BYTES, 0);
            match self.segments.load(id, slice, at, &mut run[from..]) {
                Ok(()) => {}
                Err(SliceFault::Corrupt(corrupt)) => return Ok(Err(corrupt.to_string())),
                Err(SliceFault::Media(error)) => return Ok(Err(error.to_string())),
            }
            // What lies behind the end of the chunk is no part of it.
            let start = slice * SLICE_BYTES as u64;
            let there = chunk.byte_len.saturating_sub(start).min(SLICE_BYTES as u64) as usize;
            run.truncate(from + there);
            bytes += there as u64;
        }
        self.write(id, first, run)?;
        Ok(Ok(bytes))
    }

    fn write(&mut self, chunk: ChunkId, first: u64, run: Vec<u8>) -> Result<(), UpgradeError> {
        if run.is_empty() {
            return Ok(());
        }
        let offset = first * SLICE_BYTES as u64;
        let crcs = writer_crcs(chunk, offset, &run);
        let (data, terms) = (vec![run], Terms::default());
        self.ask(Request::Write { chunk, offset, data, crcs, staged: None, verified: true, terms })
    }

    /// Asks, and waits until not too much is under way.
    fn ask(&mut self, request: Request<Vec<u8>, towpath_memory::Buf>) -> Result<(), UpgradeError> {
        self.core.submit(Client { asker: 0, token: 0 }, request);
        self.under_way += 1;
        self.wait_for(UNDER_WAY_MAX)
    }

    /// Waits for all answers.
    fn settle(&mut self) -> Result<(), UpgradeError> {
        self.wait_for(0)
    }

    fn wait_for(&mut self, under_way_max: usize) -> Result<(), UpgradeError> {
        self.core.turn(None)?;
        loop {
            for (_, Completion { reply, .. }) in self.core.take_answers() {
                self.under_way -= 1;
                match reply {
                    Reply::Create(result) => result.map(drop)?,
                    Reply::Finish(result) => result.map(drop)?,
                    Reply::Delete(result) => result.map(drop)?,
                    Reply::Write { result, .. } => result.map(drop)?,
                    _ => {}
                }
            }
            if self.under_way <= under_way_max {
                return Ok(());
            }
            self.core.turn(Some(WAIT))?;
        }
    }

    /// Seals the new store.
    fn close(mut self) -> Result<Upgraded, UpgradeError> {
        self.settle()?;
        self.core.seal();
        while !self.core.is_idle() {
            self.core.turn(Some(WAIT))?;
        }
        match self.core.failure() {
            Some(failed) => Err(failed.into()),
            None => Ok(self.done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use towpath_disk::sim::Medium;
    use towpath_memory::Pool;

    use super::*;
    use crate::store::old::made::OldStore;
    use crate::store::results::ChunkStat;

    const CONFIG: CoreConfig = CoreConfig {
        log_pages: 128,
        chunks_max: 10,
        store_id: 1,
        log_nonce: 2,
        version_seed: 0,
        is_sparse: false,
    };

    fn copy(store: &OldStore, dir: &Path, medium: &Medium) -> Upgraded {
        store.save(dir);
        let folder = OldFolder::lock(dir).expect("nobody has it");
        let disk = Box::new(medium.open(32).expect("nobody has it"));
        upgrade(&folder, disk, &CONFIG).expect("the store can be read")
    }

    fn reopen(medium: &Medium) -> StoreCore<Vec<u8>> {
        let disk = Box::new(medium.open(32).expect("it was closed"));
        StoreCore::open(disk, &CONFIG).expect("it opens")
    }

    fn read(core: &mut StoreCore<Vec<u8>>, chunk: ChunkId, byte_len: usize) -> Vec<u8> {
        let pool = Pool::with_count(byte_len.next_multiple_of(SLICE_BYTES), 1).expect("memory");
        let buf = pool.take().expect("a fresh pool");
        let read = Request::Read { chunk, offset: 0, byte_len, buf, crcs: Vec::new() };
        core.submit(Client { asker: 0, token: 0 }, read);
        loop {
            core.turn(Some(WAIT)).expect("the simulated disk always speaks");
            let found = core.take_answers().next();
            if let Some((_, Completion { reply: Reply::Read { result, buf, .. }, .. })) = found {
                result.expect("it is sound");
                return buf.to_vec();
            }
        }
    }

    fn bytes(len: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; len];
        towpath_base::Prng::new(seed).fill(&mut bytes);
        bytes
    }

    #[test]
    fn all_chunks_are_there_with_higher_versions_and_the_old_files_are_as_they_were() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let mut store = OldStore::new();
        let (plain, holes, unfinished) = (ChunkId(1), ChunkId(2), ChunkId(3));
        store.create(plain, None, false);
        store.create(holes, Some(1 << 20), false);
        store.write(plain, 0, &bytes(300_001, 7));
        store.checkpoint();
        store.write(plain, 0, &bytes(300_001, 1));
        store.create(unfinished, None, true);
        store.write(holes, 5, &bytes(9000, 2));
        store.write(unfinished, 0, &bytes(9000, 3));
        let before = store.list();
        let highest = before.iter().map(|stat| stat.version).max().expect("there are three");
        store.save(dir.path());
        let files = || -> Vec<(String, Vec<u8>)> {
            let entries = fs::read_dir(dir.path()).expect("it is there");
            let paths = entries.map(|entry| entry.expect("readable").path());
            let mut files: Vec<_> = paths
                .filter(|path| path.file_name().is_some_and(|name| name != "LOCK"))
                .map(|path| (path.display().to_string(), fs::read(path).expect("readable")))
                .collect();
            files.sort();
            files
        };
        let (there, medium) = (files(), Medium::new(1, 2000));
        let done = copy(&store, dir.path(), &medium);
        assert_eq!((done.chunks, done.bytes, done.left_out), (3, 318_001, Vec::new()));
        assert!(there.len() == 3 && files() == there);
        let mut core = reopen(&medium);
        let after = core.list(None, 10);
        assert_eq!(after.len(), 3);
        for (before, after) in before.iter().zip(&after) {
            assert!(after.version > highest, "{after:?}");
            assert_eq!(ChunkStat { version: before.version, ..*after }, *before);
        }
        assert_eq!(read(&mut core, plain, 300_001), bytes(300_001, 1));
        let found = read(&mut core, holes, 5 * 4096 + 9000);
        assert!(found[..5 * 4096].iter().all(|byte| *byte == 0));
        assert_eq!(found[5 * 4096..], bytes(9000, 2));
        assert_eq!(core.stats().live_bytes, (74 + 3 + 3) * 4096, "holes stay holes");
    }

    #[test]
    fn a_chunk_with_a_damaged_slice_is_left_out_by_name_and_all_others_are_copied() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let mut store = OldStore::new();
        for chunk in 1..=3 {
            store.create(ChunkId(chunk), None, false);
            store.write(ChunkId(chunk), 0, &bytes(20_000, chunk as u64));
        }
        store.damage(&bytes(20_000, 2)[4096..8192]);
        let medium = Medium::new(2, 2000);
        let done = copy(&store, dir.path(), &medium);
        let [(ChunkId(2), why)] = &done.left_out[..] else { panic!("{done:?}") };
        assert!(why.contains("slice 1 of chunk") && done.chunks == 2, "{why}");
        let mut core = reopen(&medium);
        assert_eq!(core.list(None, 10).len(), 2);
        assert_eq!(read(&mut core, ChunkId(3), 20_000), bytes(20_000, 3));
    }

    #[test]
    fn where_changes_are_lost_nothing_is_copied() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let mut store = OldStore::new();
        for chunk in 1..=3 {
            store.create(ChunkId(chunk), None, false);
        }
        store.save(dir.path());
        let log = dir.path().join("log.00000001");
        let mut bytes = fs::read(&log).expect("it is there");
        let half = bytes.len() / 2;
        for copy in [0, half] {
            // The body of the second record: each create has 72 bytes.
            bytes[copy + 4096 + 72 + 66] ^= 1;
        }
        fs::write(&log, bytes).expect("it is ours");
        let folder = OldFolder::lock(dir.path()).expect("nobody has it");
        let disk = Box::new(Medium::new(3, 2000).open(32).expect("nobody has it"));
        let refused = upgrade(&folder, disk, &CONFIG);
        assert!(matches!(refused, Err(UpgradeError::Damaged)), "{refused:?}");
    }
}
