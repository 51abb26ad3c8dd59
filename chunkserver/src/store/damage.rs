//! What an opening or a check finds damaged, and what that means.

use std::fmt;

use super::slice::ChunkId;

/// Records that no copy of a log has whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecords {
    /// Number of the first.
    pub first: u64,
    /// Number of the last.
    pub last: u64,
    /// Offset in each copy of the log where the first began.
    pub offset: u64,
    /// Offset where the next whole record begins, or where the log ends.
    pub end: u64,
    /// Those whose header is whole: their number, and the chunk that they changed.
    pub named: Vec<(u64, ChunkId)>,
}

impl LostRecords {
    /// How many they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.last + 1).saturating_sub(self.first)
    }

    /// Of how many it is not known which chunk they changed.
    #[must_use]
    pub fn unnamed(&self) -> u64 {
        self.count().saturating_sub(self.named.len() as u64)
    }
}

/// One thing that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DamageKind,
}

/// What is damaged. Where nothing is said to be lost, the store has it from another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// Bytes of one copy of the log.
    LogCopy {
        /// How many, from the first to the last that is damaged.
        byte_len: u64,
        /// Records there, whole in the other copy; zero where only unused bytes are concerned.
        records: u64,
    },
    /// The end of the disk, which is gone. What lay there cannot be read.
    Cut {
        /// Bytes that the disk had.
        wants: u64,
    },
    /// Records that no copy of the log has whole.
    LostRecords(LostRecords),
    /// A map whose state is known from the one before and its logs.
    Map {
        /// What is wrong with it.
        why: String,
    },
    /// Map and log contradict each other in every generation.
    Misfit {
        /// What contradicts what.
        why: String,
    },
    /// A slice of one of the last writes before a crash, which cannot be read.
    Slice {
        /// Its chunk.
        chunk: ChunkId,
        /// Its index.
        slice: u64,
    },
}

impl DamageKind {
    /// A short name that scripts can rely on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::LogCopy { .. } => "log-copy",
            Self::Cut { .. } => "cut",
            Self::LostRecords(_) => "lost-records",
            Self::Map { .. } => "map",
            Self::Misfit { .. } => "misfit",
            Self::Slice { .. } => "slice",
        }
    }

    /// Whether changes that were acknowledged are gone, or may be.
    #[must_use]
    pub fn loses_changes(&self) -> bool {
        matches!(self, Self::Cut { .. } | Self::LostRecords(_) | Self::Misfit { .. })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, kind } = self;
        match kind {
            DamageKind::LogCopy { byte_len, records } => write!(
                f,
                "{file}: {byte_len} bytes at offset {offset} are damaged; what is there ({records} \
                 records) is whole in the other copy"
            ),
            DamageKind::LostRecords(lost) => {
                write!(f, "{file}: {}", LostText { lost, offset: *offset })
            }
            DamageKind::Cut { wants } => write!(
                f,
                "{file}: the disk ends at {offset} and had {wants} bytes: what lay behind is lost; \
                 make it as long as it was (a file: `truncate -s {wants}`), then check it with \
                 `--repair`"
            ),
            DamageKind::Misfit { why } => {
                write!(f, "{file}: {why}, and no other generation is whole; at offset {offset}")
            }
            DamageKind::Slice { chunk, slice } => {
                write!(f, "{file}: slice {slice} of chunk {chunk} cannot be read (offset {offset})")
            }
            DamageKind::Map { why } => {
                write!(f, "{file}: {why}; what it says is known from the map before and the logs")
            }
        }
    }
}

struct LostText<'a> {
    lost: &'a LostRecords,
    offset: u64,
}

impl fmt::Display for LostText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, offset } = self;
        match lost.count() {
            0 => write!(f, "record {} does not follow the one before it", lost.first)?,
            1 => write!(f, "record {} is lost", lost.first)?,
            _ => write!(f, "records {} to {} are lost", lost.first, lost.last)?,
        }
        write!(f, ", at offset {offset} to {}", lost.end)?;
        for (sequence, chunk) in &lost.named {
            write!(f, "; record {sequence} changed chunk {chunk}")?;
        }
        match lost.unnamed() {
            0 => Ok(()),
            unnamed => write!(f, "; which chunks {unnamed} of them changed is not known"),
        }
    }
}
