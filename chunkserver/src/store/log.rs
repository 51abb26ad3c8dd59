//! The tail of the write-ahead log: where it ends and what is staged for it.

use std::io;

use super::error::Refused;
use super::header::{FILE_HEADER_BYTES, FORMAT_VERSION_PLAIN, FileHeader, FileKind, log_name};
use super::limits::{LOG_BATCH_SHARE, LOG_DELETE_SHARE};
use super::media::{Media, MediaError, MediaOp, write_zeros};
use super::record::{Frame, LogKey, Op, RECORD_HEADER_BYTES};
use super::slice::ChunkId;

/// The open log.
pub(crate) struct Log<F> {
    pub(crate) file: F,
    pub(crate) generation: u64,
    pub(crate) key: LogKey,
    /// Bytes of one copy.
    pub(crate) size_bytes: u64,
    /// Where the second copy begins in the file; none in a log of version 1.
    pub(crate) copy_at: Option<u64>,
    /// One past the last record on stable media.
    pub(crate) end: u64,
    /// Number that the next record gets.
    pub(crate) next_sequence: u64,
    /// Last record on stable media.
    pub(crate) durable_sequence: u64,
    /// Header checksum of the last record, staged ones included.
    pub(crate) last_crc: u32,
    /// Records that wait for the next commit.
    pub(crate) staged: Vec<u8>,
    /// A record found no room: the next commit makes a checkpoint.
    pub(crate) wants_checkpoint: bool,
    /// The last checkpoint found the medium full.
    pub(crate) deferred: bool,
}

impl<F> Log<F> {
    pub(crate) fn new(file: F, header: &FileHeader, size_bytes: u64) -> Self {
        Self {
            file,
            generation: header.number,
            key: key_of(header),
            size_bytes,
            copy_at: (header.version != FORMAT_VERSION_PLAIN).then_some(size_bytes),
            end: FILE_HEADER_BYTES as u64,
            next_sequence: header.next_sequence,
            durable_sequence: header.next_sequence - 1,
            last_crc: 0,
            staged: Vec::new(),
            wants_checkpoint: false,
            deferred: false,
        }
    }

    /// Goes on in the empty log that `header` describes, whose file it has got. Nothing is staged.
    pub(crate) fn begin(&mut self, header: &FileHeader, size_bytes: u64) {
        self.generation = header.number;
        self.key = key_of(header);
        self.size_bytes = size_bytes;
        self.copy_at = Some(size_bytes);
        self.end = FILE_HEADER_BYTES as u64;
        self.last_crc = 0;
        self.deferred = false;
    }

    /// The offsets at which both copies begin, or the one that there is.
    pub(crate) fn copies(&self) -> impl Iterator<Item = u64> + use<F> {
        std::iter::once(0).chain(self.copy_at)
    }

    /// Whether a record of `record_len` bytes may be staged. Deletes may use a part of the log
    /// that nothing else may, and a seal always has room.
    pub(crate) fn room(&mut self, record_len: usize, deletes: bool) -> Result<(), Refused> {
        let staged = self.staged.len() as u64;
        let record_len = record_len as u64;
        if staged > 0 && staged + record_len > self.size_bytes / LOG_BATCH_SHARE {
            return Err(Refused::BatchFull);
        }
        let kept = if deletes { 0 } else { self.size_bytes / LOG_DELETE_SHARE };
        let limit = self.size_bytes - kept - RECORD_HEADER_BYTES as u64;
        if self.end + staged + record_len <= limit {
            return Ok(());
        }
        self.wants_checkpoint = true;
        let again = staged > 0 || !self.deferred;
        Err(if again { Refused::BatchFull } else { Refused::NoSpace })
    }

    /// Stages a record; gives its number.
    pub(crate) fn push(&mut self, chunk: ChunkId, op: &Op<'_>) -> u64 {
        let frame = Frame {
            sequence: self.next_sequence,
            durable_sequence: self.durable_sequence,
            generation: self.generation,
            previous_crc: self.last_crc,
        };
        self.last_crc = op.encode(self.key, frame, chunk, &mut self.staged);
        self.next_sequence += 1;
        frame.sequence
    }

    /// The staged records are on stable media.
    pub(crate) fn on_flushed(&mut self) {
        self.end += self.staged.len() as u64;
        self.staged.clear();
        self.durable_sequence = self.next_sequence - 1;
    }
}

/// The key of the records of the log with this header.
pub(crate) fn key_of(header: &FileHeader) -> LogKey {
    match header.version {
        FORMAT_VERSION_PLAIN => LogKey::PLAIN,
        _ => LogKey::new(header.log_nonce),
    }
}

/// Makes the log that `header` describes. The directory is not flushed yet.
pub(crate) fn make_log<M: Media>(
    media: &M,
    header: &FileHeader,
    size_bytes: u64,
) -> Result<(), MediaError> {
    let name = log_name(header.number);
    let file = media.create(&name).map_err(MediaError::at(MediaOp::Create, &name, 0))?;
    write_log(media, &name, &file, header, size_bytes)
}

/// Writes both copies of the empty log that `header` describes, `size_bytes` each with the zeros
/// behind the header, and flushes them: an append then needs no new space and its flush no new
/// metadata.
pub(crate) fn write_log<M: Media>(
    media: &M,
    name: &str,
    file: &M::File,
    header: &FileHeader,
    size_bytes: u64,
) -> Result<(), MediaError> {
    debug_assert_eq!(header.kind, FileKind::Log);
    let header = FileHeader { body_len: size_bytes, ..*header };
    let fill = || -> io::Result<()> {
        for copy in [0, size_bytes] {
            media.write_at(file, copy, &header.emit())?;
            write_zeros(media, file, copy + FILE_HEADER_BYTES as u64..copy + size_bytes)?;
        }
        Ok(())
    };
    fill().map_err(MediaError::at(MediaOp::Write, name, 0))?;
    media.fdatasync(file).map_err(MediaError::at(MediaOp::Flush, name, 0))
}
