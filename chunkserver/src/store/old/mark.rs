//! The mark: which record was the last one on stable media when the store was last quiet
//! (docs/store-format.md section 10).

use towpath_base::crc::crc32c;

use super::folder::OldFolder;
use super::image::read_image;
use crate::store::bytes::{array, u32_at, u64_at};
use crate::store::media::MediaError;
use crate::store::slice::ChunkId;

/// Name of the file.
pub(crate) const MARK_NAME: &str = "mark";

const PAGE_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"TWPMARK\0";

/// The most records whose chunks a mark names: as many as its page holds.
const RECENT_MAX: usize = (PAGE_BYTES - field::RECENT) / RECENT_BYTES;
const RECENT_BYTES: usize = 24;

mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const CRC: usize = 8;
    pub(super) const COUNT: usize = 12;
    pub(super) const STORE_ID: usize = 16;
    pub(super) const DURABLE_SEQUENCE: usize = 24;
    pub(super) const RECENT: usize = 32;
}

/// What a mark says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) store_id: u64,
    /// The last record that was on stable media.
    pub(crate) durable_sequence: u64,
    /// The last records before it, itself included, and the chunks that they changed.
    pub(crate) recent: Vec<(u64, ChunkId)>,
}

impl Mark {
    #[cfg(test)]
    fn emit(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(field::MAGIC, &MAGIC);
        put(field::COUNT, &(self.recent.len() as u32).to_le_bytes());
        put(field::STORE_ID, &self.store_id.to_le_bytes());
        put(field::DURABLE_SEQUENCE, &self.durable_sequence.to_le_bytes());
        for (number, (sequence, chunk)) in self.recent.iter().enumerate() {
            let at = field::RECENT + number * RECENT_BYTES;
            put(at, &sequence.to_le_bytes());
            put(at + 8, &chunk.0.to_le_bytes());
        }
        let crc = crc32c(&page);
        page[field::CRC..field::CRC + 4].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Never panics, whatever the bytes are.
    fn parse(page: &[u8]) -> Option<Self> {
        let mut plain: [u8; PAGE_BYTES] = page.try_into().ok()?;
        plain[field::CRC..field::COUNT].fill(0);
        let count = u32_at(page, field::COUNT) as usize;
        let is_sound = page[field::MAGIC..field::CRC] == MAGIC
            && crc32c(&plain) == u32_at(page, field::CRC)
            && count <= RECENT_MAX;
        let recent = |number: usize| {
            let at = field::RECENT + number * RECENT_BYTES;
            (u64_at(page, at), ChunkId(u128::from_le_bytes(array(page, at + 8))))
        };
        is_sound.then(|| Self {
            store_id: u64_at(page, field::STORE_ID),
            durable_sequence: u64_at(page, field::DURABLE_SEQUENCE),
            recent: (0..count).map(recent).collect(),
        })
    }

    /// The newest of the marks in the file that are whole.
    ///
    /// # Errors
    /// A medium that fails; one that cannot read the file's pages has no mark.
    pub(crate) fn read(folder: &OldFolder, names: &[String]) -> Result<Option<Self>, MediaError> {
        if !names.iter().any(|name| name == MARK_NAME) {
            return Ok(None);
        }
        let image = read_image(folder, MARK_NAME)?;
        let marks = image.bytes.chunks_exact(PAGE_BYTES).filter_map(Self::parse);
        Ok(marks.max_by_key(|mark| mark.durable_sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_its_bytes_and_no_flipped_bit_does() {
        let recent = (0..RECENT_MAX as u64).map(|n| (n, ChunkId(n.into()))).collect();
        let mark = Mark { store_id: 7, durable_sequence: 9, recent };
        let page = mark.emit();
        assert_eq!(Mark::parse(&page), Some(mark));
        for bit in (0..page.len() * 8).step_by(7) {
            let mut bad = page;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::parse(&bad), None, "bit {bit}");
        }
        assert_eq!(Mark::parse(&page[1..]), None);
    }
}
