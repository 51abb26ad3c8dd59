//! The chunk store: 4 KiB slices with place-bound checksums, on fresh pages, behind a log.
//!
//! | file | what it knows |
//! |---|---|
//! | `slice` | chunk names, slice and fragment checksums, which slices a range touches |
//! | `media`, `sim` | files; a simulated medium with power cuts and faults |
//! | `header`, `record`, `checkpoint` | the bytes of docs/store-format.md |
//! | `map`, `space`, `pages`, `log` | where slices lie; free pages; segments; the log's end |
//! | `mark` | which record was on stable media when the store was last quiet |
//! | `reserve` | the log and the map of the generation before, whose files the next one gets |
//! | `engine`, `stage`, `commit`, `read`, `scrub`, `open` | [`Store`], one verb per file |
//! | `backing` | room on the medium, which is there before it is needed |
//! | `fullness` | when the log says that the store is full |
//! | `image`, `scan`, `load`, `segments` | what is on the medium, damaged or not, read |
//! | `damage`, `check` | what of it is damaged, in words; a look at all of it, and a repair |
//! | `settle` | what an opening has read, made whole and made to last |
//! | `request`, `asked` | what a store is asked and answers; the queues of those who ask |
//! | `work` | many requests served, committed at once, and answered |
//! | `worker`, `wakeful` | the thread that owns a store, and when those who ask do its work |
//! | `unfinished` | chunks that are being put, and when each was written to last |
//! | `fence` | sessions of clients: a newer link ends the work of older ones |
//! | `config`, `limits`, `error`, `stats` | settings, bounds, errors, counters |
//!
//! What an acknowledged change promises is in docs/store-format.md section 1.

mod asked;
mod backing;
mod bytes;
mod check;
mod checkpoint;
mod commit;
mod config;
mod damage;
mod engine;
mod error;
mod fence;
mod fullness;
mod gather;
mod header;
mod image;
pub mod limits;
mod load;
mod log;
mod map;
mod mark;
mod media;
mod open;
mod pages;
mod read;
mod record;
mod request;
mod reserve;
mod scan;
mod scrub;
mod segments;
mod settle;
pub mod sim;
mod slice;
mod space;
mod stage;
mod stats;
mod unfinished;
mod wakeful;
mod work;
mod worker;

#[cfg(test)]
mod tests;

pub use check::{BadSlice, CheckReport, RepairError, Repaired, SliceRun, check, repair};
pub use checkpoint::{Checkpoint, CheckpointError, parse_checkpoint};
pub use config::{ConfigError, StoreConfig};
pub use damage::{Damage, DamageKind};
pub use engine::{ChunkStat, Store, Ticket};
pub use error::{
    CommitStep, CreateError, DeleteError, FinishError, FlushFailed, OpenError, ReadError, Refused,
    SliceCorrupt, WriteError,
};
pub use fence::{Fenced, Fences, Pass};
pub use header::{FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, FileKind, HeaderError};
pub use map::ApplyError;
pub use media::{FileMedia, Media, MediaError, MediaOp};
pub use read::{ReadDone, ReadPlan};
pub use record::{
    Body, Extent, Frame, LogKey, RECORD_ALIGN, RECORD_HEADER_BYTES, Record, RecordError, WriteBody,
    parse_frame, parse_record,
};
pub use request::{Completion, Reply, Request};
pub use scan::LostRecords;
pub use scrub::ScrubReport;
pub use slice::{
    ChunkId, ParseChunkIdError, SLICE_BYTES, Span, fragment_crc, hole_crc, slice_crc, writer_crcs,
};
pub use stage::Write;
pub use stats::StoreStats;
pub use worker::{StoreWorker, WorkerConfig, WorkerGone};
