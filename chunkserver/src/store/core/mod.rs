//! The core of a store, [`StoreCore`]: sans-IO over a [`Disk`](towpath_disk::Disk).
//!
//! | file | contents |
//! |---|---|
//! | `page`, `superblock`, `map_page`, `directory` | the bytes of docs/store-core.md |
//! | `layout`, `ring` | where everything lies; where the log does, which grows |
//! | `map` | which page and checksum each slice has, and where each block of that lies |
//! | `state`, `io` | [`StoreCore`], its requests and answers; the operations under way |
//! | `held`, `stage` | changes that wait; checking a change |
//! | `write`, `clear`, `merge` | what a change writes, and where |
//! | `change`, `changes`, `join` | a change on its way; all of them; which of them a group takes |
//! | `group`, `log`, `commit` | groups of changes in the log, and what makes each last |
//! | `lanes` | classes: what the disk gets next |
//! | `away` | slices that lie in the log, until they are brought to their pages |
//! | `early` | slices that are written before their write is asked for |
//! | `checkpoint` | the map to the disk, beside all else |
//! | `steps` | what deletes and clears leave is freed |
//! | `space`, `room` | free pages and their room, which is got ahead and given back |
//! | `grow`, `log_room` | map and log get their room as they grow |
//! | `followers`, `resident` | who follows commits; slices in memory |
//! | `read`, `scrub` | reads and checks |
//! | `digest` | checksums of slices, told without reading any |
//! | `driver` | [`StoreDriver`], by which a thread drives a store and its disk |
//! | `told` | what it tells of them |
//! | `hold` | [`StoreThread`], the hold of one who asks, and a thread that only drives |
//! | `dump` | what a store that no server has holds, row by row |
//! | `check` | the check of a store that no server has, and its repair |
//! | `open`, `foreign`, `create` | opening a store; making one, and what is not made one |
//! | `recover`, `load`, `tape`, `replay`, `blocking` | what is on the disk after a crash |

mod away;
mod blocking;
mod change;
mod changes;
mod check;
mod checkpoint;
mod clear;
mod commit;
mod create;
mod digest;
mod directory;
mod driver;
mod dump;
mod early;
mod followers;
mod foreign;
mod group;
mod grow;
mod held;
mod hold;
mod io;
mod join;
mod lanes;
mod layout;
mod load;
mod log;
mod log_room;
mod map;
mod map_page;
mod memory;
mod merge;
mod open;
mod page;
mod read;
mod recover;
mod replay;
mod resident;
mod ring;
mod room;
mod scrub;
mod space;
mod stage;
mod state;
mod steps;
mod superblock;
mod tape;
mod told;
mod write;

#[cfg(test)]
mod tests;

use towpath_disk::{DiskError, PageNumber, What};

use super::damage::{Damage, DamageKind};
use super::media::{MediaError, MediaOp};
use layout::{DATA_PAGES_MAX, LOG_PAGES_MAX, LOG_PAGES_MIN};
use page::PAGE_BYTES;

pub use changes::Client;
pub use check::{CoreRepairError, check_core, repair_core};
pub use driver::{DriverConfig, StoreDriver};
pub use dump::{DumpRow, DumpWanted, dump_core};
pub use followers::Watch;
pub use hold::{Stopping, StoreThread};
pub use open::{CoreConfig, NewStore};
pub use room::Room;
pub use state::StoreCore;
pub use told::{DiskState, Told};

/// What errors and damage call the disk: it is the only file.
pub const DISK_NAME: &str = "disk";

/// Fewest bytes of each copy of the log.
pub const LOG_BYTES_MIN: u64 = LOG_PAGES_MIN * PAGE_BYTES as u64;

/// Most bytes of each copy of the log.
pub const LOG_BYTES_MAX: u64 = LOG_PAGES_MAX * PAGE_BYTES as u64;

/// Most bytes of slices of a store.
pub const DATA_BYTES_MAX: u64 = DATA_PAGES_MAX as u64 * PAGE_BYTES as u64;

/// Changes of a class that wait for others or for room, of each who asks: all that a worker of a
/// server has with the store at a time, in which each link has its share.
const HELD_MAX: usize = 1024;

/// Pages of the map that are kept as they were for a checkpoint: 16 MiB. Groups wait then.
const SAVED_PAGES_MAX: usize = 4096;

fn media_error(error: &DiskError) -> MediaError {
    let op = match error.what {
        What::Read => MediaOp::Read,
        What::Flush => MediaOp::Flush,
        What::Write | What::Discard => MediaOp::Write,
    };
    let source = std::io::Error::new(error.source.kind(), error.source.to_string());
    MediaError::new(op, DISK_NAME, error.at.byte_offset(), source)
}

/// Something that is damaged, from an offset of the disk on.
fn damage_at(offset: u64, kind: DamageKind) -> Damage {
    Damage { file: DISK_NAME.into(), offset, kind }
}

/// A page of the map or of what belongs to it is damaged.
fn map_damage(at: PageNumber, why: &str) -> Damage {
    damage_at(at.byte_offset(), DamageKind::Map { why: why.to_owned() })
}
