//! Checksums of slices, told without reading any: the map has them.

use towpath_fastpath::digest::{DigestReply, SliceRange};

use super::map::Chunk;
use super::read::stored_crc;
use super::state::StoreCore;
use crate::store::error::LookError;
use crate::store::slice::ChunkId;

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// A chunk of which others may know something.
    ///
    /// # Errors
    /// See [`LookError`].
    pub(super) fn told(&self, chunk: ChunkId) -> Result<&Chunk, LookError> {
        match self.map.chunks.get(&chunk) {
            Some(found) if found.head.suspect => Err(LookError::Suspect(chunk)),
            Some(found) if found.head.unfinished => Err(LookError::Unfinished(chunk)),
            Some(found) => Ok(found),
            None if self.map.may_miss_chunks => Err(LookError::Suspect(chunk)),
            None => Err(LookError::NoSuchChunk(chunk)),
        }
    }

    /// The checksums of the slices of a range, as far as a chunk has them.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn digest(&self, id: ChunkId, range: SliceRange) -> Result<DigestReply, LookError> {
        let chunk = self.told(id)?;
        let (version, byte_len) = (chunk.head.version, chunk.head.byte_len);
        let (first, count) = (range.span().first(), range.slices_in(byte_len));
        // At most those of a range, which is bounded.
        let mut crcs = Vec::with_capacity(count as usize);
        let mut holes = vec![0; (count as usize).div_ceil(8)];
        for (position, at) in chunk.slices(first, count).enumerate() {
            crcs.push(stored_crc(id, first + position as u64, at));
            holes[position / 8] |= u8::from(at.is_hole()) << (position % 8);
        }
        if holes.iter().all(|bits| *bits == 0) {
            holes.clear();
        }
        Ok(DigestReply { version, byte_len, crcs, holes })
    }
}
