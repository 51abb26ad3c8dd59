//! What the disks of a server have in common, and how each was opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use towpath_memory::Buf;

use super::Disks;
use super::directory::{Directory, Twice};
use crate::store::claims::Claims;
use crate::store::core::{DISK_NAME, DiskState, StoreCore, StoreThread, Told};
use crate::store::error::{ChangeError, ReadError};
use crate::store::fence::Fences;
use crate::store::limits::LIST_MAX;
use crate::store::request::Reply;
use crate::store::slice::ChunkId;
use crate::store::sums::Sums;

/// Most disks of a server: as many as a word has bits, and more than a host has slots for.
pub const DISKS_MAX: usize = 64;

/// How a disk is, for its operator.
#[derive(Clone, Debug, Default)]
pub struct DiskStatus {
    /// Its name: the folder.
    pub name: String,
    /// Whether it serves.
    pub state: DiskState,
    /// What it told last, and why it does not serve all.
    pub told: Told,
}

/// The disks of a server while they are opened, each by a thread of its own.
#[derive(Clone, Debug)]
pub struct Opening {
    names: Vec<String>,
    directory: Arc<Directory>,
}

/// What a disk's thread hands over when it has opened its store: its chunks with their versions.
pub(crate) type Had = Vec<(ChunkId, u64)>;

impl Opening {
    /// Disks with these names, [`DISKS_MAX`] at most.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self { names, directory: Arc::default() }
    }

    /// Prepares a store that was opened as one of several, before its thread drives it; gives what
    /// it has, for [`fill`](Self::fill).
    pub fn adopt<W: AsRef<[u8]>>(&self, disk: usize, core: &mut StoreCore<W>) -> Had {
        if self.names.len() < 2 {
            return Vec::new();
        }
        core.watch(Arc::clone(&self.directory).watch(disk));
        let (mut had, mut after) = (Vec::new(), None);
        loop {
            let page = core.list(after, LIST_MAX);
            had.extend(page.iter().map(|stat| (stat.chunk, stat.version)));
            match page.last() {
                Some(last) => after = Some(last.chunk),
                None => return had,
            }
        }
    }

    /// Takes in what each disk had. A chunk that two have is not served.
    pub fn fill(&self, had: Vec<Had>) -> Vec<Twice> {
        self.directory.fill(had)
    }

    /// A hold for each of `askers`: of each disk its threads' holds, or why it was not opened.
    #[must_use]
    pub fn finish<W>(
        self,
        askers: usize,
        opened: Vec<Result<Vec<StoreThread<W>>, String>>,
    ) -> Vec<Disks<W>> {
        let Self { names, directory } = self;
        let mut not_opened = Vec::new();
        let mut holds: Vec<_> = opened
            .into_iter()
            .map(|opened| match opened {
                Ok(holds) => {
                    not_opened.push(String::new());
                    Some(holds.into_iter())
                }
                Err(why) => {
                    not_opened.push(why);
                    None
                }
            })
            .collect();
        let said = names.iter().map(|_| AtomicU8::new(0)).collect();
        let shared = Arc::new(Shared {
            names,
            not_opened,
            directory,
            claims: Arc::default(),
            sums: Arc::default(),
            fences: Fences::default(),
            scrub: AtomicUsize::new(0),
            placed: AtomicU64::new(0),
            said,
        });
        (0..askers)
            .map(|asker| {
                let of_disk = |holds: &mut Option<std::vec::IntoIter<_>>| holds.as_mut()?.next();
                Disks::new(Arc::clone(&shared), asker, holds.iter_mut().map(of_disk).collect())
            })
            .collect()
    }
}

/// What all who ask share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) names: Vec<String>,
    /// Why a disk was not opened; empty of those that were.
    pub(super) not_opened: Vec<String>,
    pub(super) directory: Arc<Directory>,
    pub(super) claims: Arc<Claims>,
    pub(super) sums: Arc<Sums>,
    pub(super) fences: Fences,
    /// The disk that is scrubbed.
    pub(super) scrub: AtomicUsize,
    /// Chunks that were given a disk.
    pub(super) placed: AtomicU64,
    /// The state of each disk that the log told last.
    said: Vec<AtomicU8>,
}

impl Shared {
    pub(super) fn status<W>(&self, threads: &[Option<StoreThread<W>>]) -> Vec<DiskStatus> {
        let of = |(disk, thread): (usize, &Option<StoreThread<W>>)| {
            let (state, told) = match thread {
                Some(thread) => (thread.state(), thread.told()),
                None => {
                    let reason = self.not_opened[disk].clone();
                    (DiskState::Failed, Told { reason, ..Told::default() })
                }
            };
            DiskStatus { name: self.names[disk].clone(), state, told }
        };
        threads.iter().enumerate().map(of).collect()
    }

    /// Says in the log, once for all who ask, that a disk does not serve any more as it did.
    pub(super) fn say_changes<W>(&self, threads: &[Option<StoreThread<W>>]) {
        for (disk, thread) in threads.iter().enumerate() {
            let Some(thread) = thread else { continue };
            let state = thread.state();
            if self.said[disk].swap(state as u8, Ordering::Relaxed) == state as u8 {
                continue;
            }
            let (disk, reason) = (&self.names[disk], thread.told().reason);
            match state {
                DiskState::Serving => {}
                DiskState::ReadOnly => {
                    tracing::error!(disk, reason, "a disk is read-only from now on");
                }
                DiskState::Failed => {
                    tracing::error!(disk, reason, "a disk has failed: its chunks are refused");
                }
            }
        }
    }

    /// A step of the scrub is done, the last of its pass on this disk or not; whether the pass is
    /// over on all disks.
    pub(super) fn scrubbed<W>(
        &self,
        disk: usize,
        pass_done: bool,
        threads: &[Option<StoreThread<W>>],
    ) -> bool {
        if !pass_done {
            return false;
        }
        let runs = |disk: &usize| threads[*disk].as_ref().is_some_and(StoreThread::is_running);
        let next = (disk + 1..threads.len()).find(runs);
        let (order, to) = (Ordering::Relaxed, next.unwrap_or(0));
        // Where another scrub was faster, its step counts.
        let _ = self.scrub.compare_exchange(disk, to, order, order);
        next.is_none()
    }

    /// Names the disk in what was found damaged on it: to its store it is the only one.
    pub(super) fn name_disk<W>(&self, disk: usize, reply: &mut Reply<W, Buf>) {
        if self.names.len() < 2 {
            return;
        }
        let name = |file: &mut String| *file = format!("{}/{DISK_NAME}", self.names[disk]);
        match reply {
            Reply::Read { result: Err(ReadError::Corrupt(found)), .. }
            | Reply::Change(Err(ChangeError::OldSlice(found)))
            | Reply::Write { result: Err(ChangeError::OldSlice(found)), .. } => {
                name(&mut found.file);
            }
            Reply::Read { result: Err(ReadError::Media(error)), .. }
            | Reply::Change(Err(ChangeError::Media(error)))
            | Reply::Write { result: Err(ChangeError::Media(error)), .. } => {
                name(&mut error.file);
            }
            Reply::Scrub(report) => {
                report.corrupt.iter_mut().for_each(|found| name(&mut found.file));
                report.unreadable.iter_mut().for_each(|error| name(&mut error.file));
            }
            _ => {}
        }
    }
}
