//! What can go wrong, one small enum per operation.

use thiserror::Error;

use super::limits::CHAIN_MAX;
use super::media::MediaError;
use super::slice::ChunkId;

/// Why there is no store to open. Nothing was changed in it.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A log record has its checksum but contradicts the records before it.
    #[error("{file} is inconsistent at offset {offset}: {source}")]
    Apply {
        /// Log file.
        file: String,
        /// Offset of the record.
        offset: u64,
        /// What it says.
        #[source]
        source: ApplyError,
    },
    /// The checkpoint cannot be read.
    #[error("{file}: {why}, and no older map and logs can replace it: restore it from a copy")]
    Checkpoint {
        /// Checkpoint file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The disk is shorter than its store's map and log.
    #[error(
        "the disk has {has} bytes and its store {wants}: it was cut short; make it as long as it \
         was (a file: `truncate -s {wants}`), or restore it from a copy"
    )]
    Cut {
        /// Bytes that it has.
        has: u64,
        /// Bytes that it had.
        wants: u64,
    },
    /// The disk has no store and is not empty. Nothing was changed.
    #[error(
        "the disk holds {what} (at offset {offset}) and no store, and nothing was changed: use \
         another disk, or start the server once with `--format`, which destroys all that this one \
         holds and makes a store"
    )]
    Foreign {
        /// What it seems to be.
        what: &'static str,
        /// Where that begins.
        offset: u64,
    },
    /// Another server uses the directory.
    #[error("another server has this store open: stop that server first")]
    Locked,
    /// The medium failed.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The directory has no store.
    #[error("there is no store here")]
    NoStore,
    /// The disk is too small.
    #[error("the disk has {pages} pages of 4096 bytes: too few for a log, a map and data")]
    TooSmall {
        /// What it has.
        pages: u64,
    },
    /// Two slices use one page, or a slice uses a page that is not there.
    #[error("page {page} is used by two slices, or is not there")]
    Page {
        /// The page.
        page: u32,
    },
}

/// Why a sound record does not fit the map: the log says something that cannot have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// It needs a block of the map, and all that the medium has room for are used.
    #[error("the map has no room for another block of chunk {0}")]
    NoBlock(ChunkId),
    /// A create of a chunk that is there.
    #[error("chunk {0} is created twice")]
    ChunkExists(ChunkId),
    /// A write beyond the chunk's own limit.
    #[error("a write grows chunk {0} past its limit")]
    LimitExceeded(ChunkId),
    /// A write, finish or delete of a chunk that is not there.
    #[error("chunk {0} is changed but was never created")]
    NoSuchChunk(ChunkId),
}

/// Which step of a commit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommitStep {
    /// Writing the map.
    #[error("the checkpoint")]
    Checkpoint,
    /// Writing the records.
    #[error("the write of the log")]
    LogAppend,
    /// Flushing the log.
    #[error("the flush of the log")]
    LogFlush,
    /// Bringing slices from the log to their pages.
    #[error("the write of slices from the log to their pages")]
    Home,
}

/// A commit failed, so the store refuses every change from now on. Reads still work.
///
/// The staged changes are not acknowledged: after a restart each of them is there completely or not
/// at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{step} failed ({kind}): the store is read-only; check the disk, then restart")]
pub struct FlushFailed {
    /// The step that failed.
    pub step: CommitStep,
    /// The error of the medium.
    pub kind: std::io::ErrorKind,
}

/// Why a store takes no changes any more, until somebody sees to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadOnly {
    /// Acknowledged changes are lost, and a new change could use the pages that a repair needs.
    #[error(
        "changes that were acknowledged are lost to damage: stop the server and run \
         `towpath-chunkserver check`"
    )]
    Damaged,
    /// A commit failed.
    #[error(transparent)]
    Failed(#[from] FlushFailed),
}

impl ReadOnly {
    /// All short names, for those who tell of each.
    pub const NAMES: [&str; 5] = ["damage", "log write", "flush", "checkpoint", "write home"];

    /// A short name that programs can rely on.
    #[must_use]
    pub fn name(self) -> &'static str {
        let [damage, write, flush, checkpoint, home] = Self::NAMES;
        match self {
            Self::Damaged => damage,
            Self::Failed(failed) => match failed.step {
                CommitStep::LogAppend => write,
                CommitStep::LogFlush => flush,
                CommitStep::Checkpoint => checkpoint,
                CommitStep::Home => home,
            },
        }
    }
}

/// Why the store does not make a change, whatever the change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Acknowledged changes are lost, and a new change could use the pages that a repair needs.
    #[error("the store is damaged and read-only: run `towpath-chunkserver check` on it")]
    Damaged,
    /// An earlier commit failed; this change was not staged and never happens.
    #[error(transparent)]
    Failed(#[from] FlushFailed),
    /// The chunk has another version than the change is meant for. Nothing was changed, and this
    /// version is on stable media.
    #[error("the chunk has version {version} now: look at it, then decide anew")]
    OtherVersion {
        /// The version that it has.
        version: u64,
    },
    /// The chunk has another chain version than the change names. Nothing was changed, and this
    /// chain version is on stable media.
    #[error("the chunk has chain version {chain}: get the newest layout")]
    OtherChain {
        /// The chain version that it has.
        chain: u32,
    },
    /// No room on the medium or within the configured capacity. Nothing was changed; reads and
    /// deletes still work.
    #[error("no space: delete chunks or raise the capacity")]
    NoSpace,
    /// No room in the memory for resident chunks. Nothing was changed.
    #[error("the memory for resident chunks has {left_bytes} bytes left: delete some of them")]
    ResidentFull {
        /// Bytes of slices that still fit.
        left_bytes: u64,
    },
    /// The commit with this change failed: after a restart the change is there completely or not at
    /// all.
    #[error("{0}; whether the change was made is known after a restart")]
    Undecided(FlushFailed),
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// No chunk can have that chain version.
    #[error("a chunk cannot have the chain version {0}: the highest is {CHAIN_MAX}")]
    Chain(u32),
    /// The number of checksums is not that of the touched slices.
    #[error("{expected} checksums are needed, one for each touched slice, but there are {found}")]
    CrcCount {
        /// Slices touched.
        expected: u64,
        /// Checksums given.
        found: u64,
    },
    /// The chunk exists already.
    #[error("chunk {0} exists already: delete it first, or use another name")]
    Exists(ChunkId),
    /// No bytes, or more than one write may have.
    #[error("a write cannot have {byte_len} bytes")]
    Length {
        /// Bytes given.
        byte_len: u64,
    },
    /// The size limit is zero or larger than a chunk can be.
    #[error("a chunk cannot have a size limit of {0} bytes: use 1 byte to 1 TiB")]
    Limit(u64),
    /// The end lies past the chunk's limit.
    #[error("the write ends past the chunk's limit of {limit_bytes} bytes")]
    LimitExceeded {
        /// The limit.
        limit_bytes: u64,
    },
    /// The medium failed; the pages written are not used.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The chunk is not there.
    #[error("no chunk {0}")]
    NoSuchChunk(ChunkId),
    /// What was staged for a write is not there, or is not of this chunk and range.
    #[error("what was staged for the write is not there any more: write it again")]
    NotStaged,
    /// The stored slice with which the written part would be merged is damaged; overwrite the whole
    /// slice.
    #[error("a part of a damaged slice cannot be written, write the whole slice: {0}")]
    OldSlice(Box<SliceCorrupt>),
    /// Not now.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// An earlier change of the chunk is lost: delete the chunk, and make it anew.
    #[error("a change of chunk {0} is lost to damage: delete the chunk, then write it anew")]
    Suspect(ChunkId),
    /// The configured number of chunks is reached.
    #[error("the store already has {0} chunks, its maximum: delete some first")]
    TooManyChunks(u64),
    /// The data does not match the writer's checksum: it was damaged on its way to the server.
    #[error("slice {slice} of the write does not match its checksum: send it again")]
    WireCorrupt {
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// A chunk that is said to be whole has another length.
    #[error("the chunk has {byte_len} bytes: write the missing bytes first")]
    WrongLength {
        /// Its length in bytes.
        byte_len: u64,
    },
}

/// Why nothing is told of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookError {
    /// There is no such chunk.
    #[error("there is no chunk {0}")]
    NoSuchChunk(ChunkId),
    /// A change of the chunk is lost to damage.
    #[error("a change of chunk {0} is lost to damage")]
    Suspect(ChunkId),
    /// The chunk is unfinished: it is not read.
    #[error("chunk {0} is unfinished")]
    Unfinished(ChunkId),
}

/// A slice whose bytes on the medium, read twice, do not match its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("slice {slice} of chunk {chunk} is damaged on the medium ({file} at offset {offset})")]
pub struct SliceCorrupt {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index of the slice.
    pub slice: u64,
    /// The file.
    pub file: String,
    /// Byte offset of the slice there.
    pub offset: u64,
}

/// Why nothing was read; the caller's buffer holds no byte of a damaged slice.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A slice is damaged; the others of the chunk can still be read.
    #[error(transparent)]
    Corrupt(Box<SliceCorrupt>),
    /// A change of the chunk is lost: the stored bytes may be old, or too few.
    #[error("a change of chunk {0} is lost to damage: the stored bytes may be old")]
    Suspect(ChunkId),
    /// No bytes, or more than one read may have.
    #[error("a read cannot have {byte_len} bytes")]
    Length {
        /// Bytes wanted.
        byte_len: u64,
    },
    /// The medium failed twice.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The chunk is not there.
    #[error("no chunk {0}")]
    NoSuchChunk(ChunkId),
    /// The range ends past the end of the chunk.
    #[error("the read ends past the end of the chunk, which has {byte_len} bytes")]
    PastEnd {
        /// Length of the chunk.
        byte_len: u64,
    },
}
