//! What an opening or a check finds damaged, and what that means.

use std::fmt;

use super::scan::LostRecords;

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
    /// The header page of a segment.
    SegmentHeader,
    /// A segment that cannot be used, since it is missing or the file is not the one that it
    /// should be; or one that is cut short, which is used as far as it goes.
    Segment {
        /// What is wrong with it.
        why: String,
        /// Slices that lie in it and cannot be read.
        slices: u64,
    },
    /// The header page of one copy of the log.
    LogHeader,
    /// Bytes of one copy of the log.
    LogCopy {
        /// How many, from the first to the last that is damaged.
        byte_len: u64,
        /// Records there, whole in the other copy; zero where only unused bytes are concerned.
        records: u64,
    },
    /// Records that no copy of the log has whole.
    LostRecords(LostRecords),
    /// The current log, or both headers of it: it is not known which changes followed the map.
    Log {
        /// What is wrong with it.
        why: String,
    },
    /// A map whose state is known from the one before and its logs.
    Map {
        /// What is wrong with it.
        why: String,
    },
    /// The log or the map of the generation before, which the next checkpoint writes over.
    Spare {
        /// What is wrong with it.
        why: String,
    },
    /// A map file that is none, and that no log belongs to.
    StrayMap {
        /// What is wrong with it.
        why: String,
    },
    /// The mark says that more records were on stable media than the log has.
    Mark {
        /// The last record that was.
        durable_sequence: u64,
    },
}

impl DamageKind {
    /// A short name that scripts can rely on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::SegmentHeader => "segment-header",
            Self::Segment { .. } => "segment",
            Self::LogHeader => "log-header",
            Self::LogCopy { .. } => "log-copy",
            Self::LostRecords(_) => "lost-records",
            Self::Log { .. } => "log",
            Self::Map { .. } => "map",
            Self::Spare { .. } => "spare",
            Self::StrayMap { .. } => "stray-map",
            Self::Mark { .. } => "mark",
        }
    }

    /// Whether changes that were acknowledged are gone.
    #[must_use]
    pub fn loses_records(&self) -> bool {
        matches!(self, Self::LostRecords(_) | Self::Log { .. } | Self::Mark { .. })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, kind } = self;
        match kind {
            DamageKind::SegmentHeader => {
                write!(f, "{file}: the header is damaged; what it says is known from the map")
            }
            DamageKind::Segment { why, slices } => {
                write!(f, "{file}: {why}; {slices} slices in it cannot be read")
            }
            DamageKind::LogHeader => {
                write!(f, "{file}: the header at offset {offset} is damaged; another copy is whole")
            }
            DamageKind::LogCopy { byte_len, records } => write!(
                f,
                "{file}: {byte_len} bytes at offset {offset} are damaged; what is there ({records} \
                 records) is whole in the other copy"
            ),
            DamageKind::LostRecords(lost) => {
                write!(f, "{file}: {}", LostText { lost, offset: *offset })
            }
            DamageKind::Log { why } => {
                write!(f, "{file}: {why}; all changes since the last checkpoint may be lost")
            }
            DamageKind::Map { why } => {
                write!(f, "{file}: {why}; what it says is known from the map before and the logs")
            }
            DamageKind::Spare { why } => {
                write!(f, "{file}: {why}; it is of the generation before, which nothing needs now")
            }
            DamageKind::StrayMap { why } => {
                write!(f, "{file}: {why}; no log belongs to it, and it is left aside")
            }
            DamageKind::Mark { durable_sequence } => write!(
                f,
                "{file}: record {durable_sequence} was on stable media, and the log ends before it"
            ),
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
