//! The chunk store, [`Store`]: chunks of 4 KiB slices on a disk, with a log and checksums.
//!
//! A change never overwrites data in place: it writes free pages, then a record in the log. The
//! checksum of a slice covers its chunk and index, so that a misplaced slice is detected.
//!
//! | file | contents |
//! |---|---|
//! | `folder` | the folder of a store, made so that it lasts |
//! | `slice` | chunk names, slice and fragment checksums, which slices a range touches |
//! | `media`, `sim` | files; a simulated medium with power cuts and faults |
//! | `header`, `record`, `checkpoint` | the bytes of docs/store-format.md |
//! | `map`, `space`, `pages`, `log` | where slices lie; free pages; segments; the log's end |
//! | `mark` | which record was on stable media when the store was last idle |
//! | `reserve` | the log and the map of the generation before, whose files the next one gets |
//! | `engine`, `stage`, `commit`, `read`, `scrub`, `open` | [`Store`], one verb per file |
//! | `backing` | space on the medium, allocated before it is needed |
//! | `fullness` | when the log reports that the store is full |
//! | `image`, `scan`, `load`, `segments` | reading what is on the medium, damaged or not |
//! | `damage`, `check` | descriptions of damage; the check of a whole store, and its repair |
//! | `settle` | completes what an opening has read, and makes it durable |
//! | `request`, `asked` | requests and results of a store; the queues of its users |
//! | `work` | serves many requests, commits them together, and answers them |
//! | `worker`, `wakeful` | the thread that owns a store; when its users do the work themselves |
//! | `residence` | slices of resident chunks, kept in memory as commits leave them |
//! | `unfinished` | chunks whose put is under way, and when each was last written |
//! | `fence` | sessions of clients: a newer link ends the work of older links |
//! | `upgrade` | a store of the format before, copied into a new one |
//! | `config`, `limits`, `error`, `stats` | settings, bounds, errors, counters |
//!
//! docs/store-format.md section 1 says what is promised for an acknowledged change.

mod asked;
mod backing;
mod bytes;
mod check;
mod checkpoint;
mod commit;
mod config;
pub mod core;
mod damage;
mod engine;
mod error;
mod fence;
pub(crate) mod folder;
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
#[cfg(test)]
pub(crate) mod old;
mod open;
mod pages;
mod read;
mod record;
mod request;
mod reserve;
mod residence;
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
mod upgrade;
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
    CommitStep, CreateError, DeleteError, FinishError, FlushFailed, LocateError, OpenError,
    ReadError, Refused, SliceCorrupt, WriteError,
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
pub use residence::{Located, Residence, SlicePlace, Slots};
pub use scan::LostRecords;
pub use scrub::ScrubReport;
pub use slice::{
    ChunkId, ParseChunkIdError, SLICE_BYTES, Span, fragment_crc, hole_crc, slice_crc, writer_crcs,
};
pub use stage::Write;
pub use stats::StoreStats;
pub use upgrade::{UpgradeError, Upgraded, upgrade};
pub use worker::{StoreWorker, WorkerConfig, WorkerGone};
