//! The chunk store: chunks of 4 KiB slices on a disk, with a log and checksums.
//!
//! A change never overwrites data in place: it writes free pages, and a record in the log. The
//! checksum of a slice covers its chunk and index, so that a misplaced slice is detected.
//!
//! | module | contents |
//! |---|---|
//! | [`core`] | the store on one disk (docs/store-core.md): requests in, disk operations out |
//! | [`disks`] | the disks of a server, and which of them has which chunk |
//! | `request`, `results` | what a store is asked, and what it answers |
//! | `clear` | what takes bytes of a chunk away |
//! | `slice`, `place` | chunk names, checksums of slices; where a slice lies |
//! | `record`, `bytes` | the records of the log |
//! | `gather`, `hash` | a walk over data in several pieces; a cheap hash of chunk names |
//! | `residence` | memory in which slices of resident chunks are kept as well |
//! | `unfinished` | chunks whose put is under way, and when each was last written |
//! | `puts` | unfinished chunks whose makers are still there |
//! | `claims` | bytes that a write has to itself while it goes on to other servers |
//! | `sums` | parity parts of stripes that are being added up |
//! | `fence` | sessions of clients: a newer link ends the work of older links |
//! | `damage`, `check` | descriptions of damage; what a check of a whole store finds |
//! | `error`, `media`, `stats`, `limits` | errors, counters, bounds |
//! | `folder` | the folder of a store, made so that it lasts |

mod bytes;
mod check;
mod claims;
mod clear;
pub mod core;
mod damage;
pub mod disks;
mod error;
mod fence;
pub(crate) mod folder;
mod gather;
mod hash;
pub mod limits;
mod media;
mod place;
mod puts;
mod record;
mod request;
mod residence;
mod results;
mod slice;
mod stats;
mod sums;
mod unfinished;

pub use check::{BadSlice, CheckReport, SliceRun};
pub use claims::{Claim, Claims};
pub use clear::{ClearBody, Length, SlicePut};
pub use damage::{Damage, DamageKind, LostRecords};
pub use error::{
    ApplyError, ChangeError, CommitStep, FlushFailed, LookError, OpenError, ReadError, ReadOnly,
    Refused, SliceCorrupt,
};
pub use fence::{Fenced, Fences, Pass};
pub use media::{MediaError, MediaOp};
pub use puts::Puts;
pub use record::{
    Body, Extent, Frame, LogKey, RECORD_ALIGN, RECORD_HEADER_BYTES, Record, RecordError, WriteBody,
    parse_frame, parse_record,
};
pub use request::{Clear, Completion, NewChunk, Reply, Request, Terms};
pub use residence::{Located, Residence, SlicePlace, Slots};
pub use results::{ChunkStat, ReadDone, ScrubReport, Ticket};
pub use slice::{
    ChunkId, ParseChunkIdError, SLICE_BYTES, Span, fragment_crc, hole_crc, slice_crc, writer_crcs,
};
pub use stats::StoreStats;
pub use sums::{Held, Hold, SUM_BYTES_MAX, SumEnd, SumName, SumOwner, Sums};
