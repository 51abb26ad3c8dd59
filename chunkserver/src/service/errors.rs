//! What clients are told when the store says no.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::wire::Why;

use crate::store::disks::{Target, Unsent};
use crate::store::{
    ChainError, ChunkId, CreateError, DeleteError, FinishError, LookError, ReadError, Refused,
    WriteError,
};

pub(super) fn of_chain(chunk: ChunkId, error: ChainError) -> ErrorReply {
    match error {
        ChainError::Limit(_) => ErrorReply::BadRequest { why: Why::Chain },
        ChainError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        ChainError::Refused(refused) => of_refused(chunk, refused),
        ChainError::Suspect(chunk) => of_suspect(chunk),
    }
}

pub(super) fn of_create(chunk: ChunkId, error: CreateError) -> ErrorReply {
    match error {
        CreateError::Chain(_) => ErrorReply::BadRequest { why: Why::Chain },
        CreateError::Exists(chunk) => ErrorReply::ChunkExists { chunk },
        CreateError::Limit(_) => ErrorReply::BadRequest { why: Why::Limit },
        CreateError::Refused(refused) => of_refused(chunk, refused),
        CreateError::TooManyChunks(max) => ErrorReply::TooManyChunks { max },
    }
}

pub(super) fn of_delete(chunk: ChunkId, error: DeleteError) -> ErrorReply {
    match error {
        DeleteError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        DeleteError::Refused(refused) => of_refused(chunk, refused),
    }
}

pub(super) fn of_finish(chunk: ChunkId, error: FinishError) -> ErrorReply {
    match error {
        FinishError::Length { byte_len: length } => ErrorReply::WrongLength { chunk, length },
        FinishError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        FinishError::Refused(refused) => of_refused(chunk, refused),
        FinishError::Suspect(chunk) => of_suspect(chunk),
    }
}

pub(super) fn of_look(error: LookError) -> ErrorReply {
    match error {
        LookError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        LookError::Suspect(chunk) => of_suspect(chunk),
        LookError::Unfinished(chunk) => ErrorReply::Unfinished { chunk },
    }
}

pub(super) fn of_write(chunk: ChunkId, error: WriteError) -> ErrorReply {
    match error {
        WriteError::CrcCount { .. } => ErrorReply::BadRequest { why: Why::CrcCount },
        WriteError::Length { .. } => ErrorReply::BadRequest { why: Why::Range },
        WriteError::LimitExceeded { limit_bytes: limit } => ErrorReply::PastLimit { chunk, limit },
        WriteError::Media(error) => {
            tracing::error!(%chunk, %error, "a write failed");
            ErrorReply::Media
        }
        WriteError::NoSuchChunk(chunk) => ErrorReply::NoSuchChunk { chunk },
        // Nothing was done, and what there was no room for may find some.
        WriteError::NotStaged => ErrorReply::Busy,
        WriteError::OldSlice(damaged) => {
            tracing::error!(error = %damaged, "a write met a damaged slice");
            ErrorReply::SliceCorrupt { chunk: damaged.chunk, slice: damaged.slice }
        }
        WriteError::Refused(refused) => of_refused(chunk, refused),
        WriteError::Suspect(chunk) => of_suspect(chunk),
        WriteError::WireCorrupt { slice } => ErrorReply::WireCorrupt { chunk, slice },
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
