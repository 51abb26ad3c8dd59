//! The store of the format before (docs/store-format.md): read, and copied into a new one.
//!
//! | file | contents |
//! |---|---|
//! | `folder` | the folder, kept from other servers |
//! | `header`, `checkpoint`, `mark` | the bytes of files |
//! | `image`, `scan` | what of a file can be read; the records of a log from both copies |
//! | `map`, `segments` | where slices lie; the files in which they lie |
//! | `load` | the state of the store |
//! | `upgrade` | the copy |
//! | `made` | old stores for tests |

mod checkpoint;
mod folder;
mod header;
mod image;
mod limits;
mod load;
#[cfg(test)]
pub(crate) mod made;
mod map;
mod mark;
mod scan;
mod segments;
mod upgrade;

pub use checkpoint::{Checkpoint, CheckpointError, parse_checkpoint};
pub use folder::OldFolder;
pub use header::{FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, FileKind, HeaderError};
pub use upgrade::{UpgradeError, Upgraded, upgrade};
