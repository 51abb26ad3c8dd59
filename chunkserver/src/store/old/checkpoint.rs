//! The checkpoint: the whole map in one file (docs/store-format.md section 6).

use thiserror::Error;
use towpath_base::crc::crc32c;

use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError};
use super::limits::{SEGMENT_PAGES_MAX, SEGMENT_PAGES_MIN};
use super::map::{Chunk, ChunkMap};
use crate::store::bytes::{array, u32_at, u64_at};
use crate::store::limits::CHUNK_BYTES_MAX;
use crate::store::place::{LOST_PAGE, SliceRef, slices_in};
use crate::store::record::{RESIDENT, UNFINISHED};
use crate::store::slice::ChunkId;

pub(super) const CHUNK_FIXED_BYTES: usize = 48;
pub(super) const RUN_BYTES: usize = 12;
const CRC_BYTES: usize = 4;

/// The bit of a chunk's limit that says that a change of the chunk is lost.
pub(super) const SUSPECT: u64 = 1 << 63;

/// A checked checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its header.
    pub header: FileHeader,
    pub(crate) map: ChunkMap,
}

/// Why bytes are no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// The body does not have its checksum.
    #[error("the checkpoint is damaged: the checksum of its body is wrong")]
    BodyCrc,
    /// The header is refused.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A checked checkpoint says something that no writer writes.
    #[error("field {field} at offset {offset} of the checkpoint is impossible")]
    Impossible {
        /// Name of the field.
        field: &'static str,
        /// Byte offset in the body.
        offset: usize,
    },
    /// The file ends before its body.
    #[error("the checkpoint is cut short")]
    Short,
}

/// Reads a checkpoint. Never panics, whatever the bytes are.
///
/// # Errors
/// See [`CheckpointError`].
pub fn parse_checkpoint(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let header = FileHeader::parse(FileKind::Map, bytes)?;
    let body = &bytes[FILE_HEADER_BYTES..];
    let body_len = usize::try_from(header.body_len).map_err(|_| CheckpointError::Short)?;
    let body = body.get(..body_len).ok_or(CheckpointError::Short)?;
    if crc32c(body) != header.body_crc {
        return Err(CheckpointError::BodyCrc);
    }
    let mut reader = Reader { body, offset: 0 };
    if !(SEGMENT_PAGES_MIN..=SEGMENT_PAGES_MAX).contains(&header.segment_pages) {
        return Err(reader.impossible("segment_pages"));
    }
    if header.next_sequence == 0 {
        return Err(reader.impossible("next_sequence"));
    }
    let mut map = ChunkMap::default();
    for _ in 0..header.chunk_count {
        let (id, chunk) = reader.chunk(&mut map.live_slices)?;
        // Names rise, so none comes twice.
        if map.chunks.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(reader.impossible("chunk"));
        }
        map.chunks.insert(id, chunk);
    }
    if reader.offset != body.len() {
        return Err(reader.impossible("body_len"));
    }
    Ok(Checkpoint { header, map })
}

struct Reader<'a> {
    body: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn impossible(&self, field: &'static str) -> CheckpointError {
        CheckpointError::Impossible { field, offset: self.offset }
    }

    fn take(&mut self, count: usize, item_bytes: usize) -> Result<&'a [u8], CheckpointError> {
        let end = count.checked_mul(item_bytes).and_then(|len| self.offset.checked_add(len));
        let range = end.map(|end| self.offset..end);
        let bytes = range.and_then(|r| self.body.get(r)).ok_or(CheckpointError::Short)?;
        self.offset += bytes.len();
        Ok(bytes)
    }

    fn chunk(&mut self, live_slices: &mut u64) -> Result<(ChunkId, Chunk), CheckpointError> {
        let fixed = self.take(1, CHUNK_FIXED_BYTES)?;
        let id = ChunkId(u128::from_le_bytes(array(fixed, 0)));
        let limit = u64_at(fixed, 24);
        let mut chunk = Chunk::new(limit & !(SUSPECT | UNFINISHED | RESIDENT), u64_at(fixed, 32));
        chunk.unfinished = limit & UNFINISHED != 0;
        chunk.resident = limit & RESIDENT != 0;
        chunk.suspect = limit & SUSPECT != 0;
        chunk.byte_len = u64_at(fixed, 16);
        if chunk.limit_bytes > CHUNK_BYTES_MAX || chunk.byte_len > chunk.limit_bytes {
            return Err(self.impossible("byte_len"));
        }
        let runs = self.take(u32_at(fixed, 40) as usize, RUN_BYTES)?;
        let crcs = self.take(u32_at(fixed, 44) as usize, CRC_BYTES)?;
        let mut crcs = crcs.chunks_exact(CRC_BYTES).map(|c| u32_at(c, 0));
        let mut next_slice = 0;
        for run in runs.chunks_exact(RUN_BYTES) {
            let first = u64::from(u32_at(run, 0));
            let (page, count) = (u32_at(run, 4), u32_at(run, 8));
            let end = first + u64::from(count);
            let sound = first >= next_slice && end <= slices_in(chunk.byte_len);
            let is_page = page.checked_add(count).is_some() || (page, count) == (LOST_PAGE, 1);
            if !sound || count == 0 || page == 0 || !is_page {
                return Err(self.impossible("run"));
            }
            if (count as usize) > crcs.len() {
                return Err(self.impossible("slice_count"));
            }
            next_slice = end;
            let slices = (0..count).map(|at| page + at).zip(&mut crcs);
            let slices = slices.map(|(page, crc)| SliceRef { page, crc });
            *live_slices += chunk.set(first, slices, &mut |_| ());
        }
        if crcs.len() != 0 {
            return Err(self.impossible("slice_count"));
        }
        Ok((id, chunk))
    }
}
