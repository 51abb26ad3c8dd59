//! What clients are told when the store says no.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::wire::Why;

use crate::store::disks::{Target, Unsent};
use crate::store::{ChangeError, ChunkId, LookError, ReadError, Refused};

pub(super) fn of_look(error: LookError) -> ErrorReply {
    match error {
        LookError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        LookError::Suspect(chunk) => of_suspect(chunk),
        LookError::Unfinished(chunk) => ErrorReply::Unfinished { chunk },
    }
}

pub(super) fn of_change(chunk: ChunkId, error: ChangeError) -> ErrorReply {
    match error {
        ChangeError::Chain(_) => ErrorReply::BadRequest { why: Why::Chain },
        ChangeError::CrcCount { .. } => ErrorReply::BadRequest { why: Why::CrcCount },
        ChangeError::Exists(chunk) => ErrorReply::ChunkExists { chunk },
        ChangeError::Length { .. } => ErrorReply::BadRequest { why: Why::Range },
        ChangeError::Limit(_) => ErrorReply::BadRequest { why: Why::Limit },
        ChangeError::LimitExceeded { limit_bytes: limit } => ErrorReply::PastLimit { chunk, limit },
        ChangeError::Media(error) => {
            tracing::error!(%chunk, %error, "a write failed");
            ErrorReply::Media
        }
        ChangeError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        // Nothing was done, and what there was no room for may find some.
        ChangeError::NotStaged => ErrorReply::Busy,
        ChangeError::OldSlice(damaged) => {
            tracing::error!(error = %damaged, "a write met a damaged slice");
            ErrorReply::SliceCorrupt { chunk: damaged.chunk, slice: damaged.slice }
        }
        ChangeError::Refused(refused) => of_refused(chunk, refused),
        ChangeError::Suspect(chunk) => of_suspect(chunk),
        ChangeError::TooManyChunks(max) => ErrorReply::TooManyChunks { max },
        ChangeError::WireCorrupt { slice } => ErrorReply::WireCorrupt { chunk, slice },
        ChangeError::WrongLength { byte_len: length } => ErrorReply::WrongLength { chunk, length },
    }
}

pub(super) fn of_read(chunk: ChunkId, error: ReadError) -> ErrorReply {
    match error {
        ReadError::Corrupt(damaged) => {
            tracing::error!(error = %damaged, "a read met a damaged slice");
            ErrorReply::SliceCorrupt { chunk: damaged.chunk, slice: damaged.slice }
        }
        ReadError::Length { .. } => ErrorReply::BadRequest { why: Why::Range },
        ReadError::Media(error) => {
            tracing::error!(%chunk, %error, "a read failed");
            ErrorReply::Media
        }
        ReadError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        ReadError::PastEnd { byte_len: length } => ErrorReply::PastEnd { chunk, length },
        ReadError::Suspect(chunk) => of_suspect(chunk),
    }
}

/// What is known of the chunk may be old or too short, so none of it is given out.
pub(super) fn of_suspect(chunk: ChunkId) -> ErrorReply {
    tracing::error!(%chunk, "a change of a chunk that is asked for is lost to damage");
    ErrorReply::SliceCorrupt { chunk, slice: 0 }
}

/// No disk gets the request.
pub(super) fn of_unsent(target: Option<Target>, unsent: Unsent) -> ErrorReply {
    match (unsent, target) {
        (Unsent::Full, _) => ErrorReply::Busy,
        (Unsent::Down(disk), Some(Target::New(chunk) | Target::Chunk(chunk))) => {
            ErrorReply::DiskFailed { chunk, disk: disk as u64 }
        }
        (Unsent::Down(_), _) => ErrorReply::StoreFailed,
    }
}

fn of_refused(chunk: ChunkId, refused: Refused) -> ErrorReply {
    match refused {
        Refused::Damaged | Refused::Failed(_) => ErrorReply::StoreFailed,
        Refused::NoSpace => ErrorReply::NoSpace,
        Refused::OtherChain { chain } => ErrorReply::OtherChain { chunk, chain },
        Refused::OtherVersion { version } => ErrorReply::OtherVersion { version },
        Refused::ResidentFull { left_bytes: left } => ErrorReply::ResidentFull { left },
        Refused::Undecided(_) => ErrorReply::CommitFailed,
    }
}
