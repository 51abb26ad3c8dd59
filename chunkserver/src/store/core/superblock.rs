//! The superblock: which store it is, how it lies on the disk, and what a generation of it begins
//! with (docs/store-core.md section 3).

use super::layout::Layout;
use super::page::{HEAD_BYTES, Kind, PAGE_BYTES, PageBytes, PageError, PageHead, open, put, seal};
use crate::store::bytes::{u32_at, u64_at};

/// A place in the log between two groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPoint {
    /// The page where the next group begins, counted from the beginning of all time.
    pub(crate) page: u64,
    /// Number of its first record.
    pub(crate) sequence: u64,
    /// Header checksum of the record before.
    pub(crate) crc: u32,
}

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) store_id: u64,
    pub(crate) generation: u64,
    pub(crate) layout: Layout,
    /// The pages of data get their room when they are written, and give it back.
    pub(crate) is_sparse: bool,
    /// A random number that nobody is told: see [`LogKey`](crate::store::LogKey).
    pub(crate) log_nonce: u64,
    /// Where the log goes on from what the map says.
    pub(crate) start: LogPoint,
    /// Pages of the map that may hold a block: the others are not in the directory.
    pub(crate) map_pages_used: u32,
    /// Pages of data, from the first on, that were written once; more may have been.
    pub(crate) written_pages: u32,
}

mod field {
    use super::HEAD_BYTES;

    pub(super) const PAGE_COUNT: usize = HEAD_BYTES;
    pub(super) const LOG_PAGES: usize = HEAD_BYTES + 8;
    pub(super) const NONCE: usize = HEAD_BYTES + 16;
    pub(super) const START_PAGE: usize = HEAD_BYTES + 24;
    pub(super) const START_SEQUENCE: usize = HEAD_BYTES + 32;
    pub(super) const START_CRC: usize = HEAD_BYTES + 40;
    pub(super) const MAP_PAGES_USED: usize = HEAD_BYTES + 44;
    pub(super) const FLAGS: usize = HEAD_BYTES + 48;
    pub(super) const WRITTEN_PAGES: usize = HEAD_BYTES + 52;
}

const SPARSE: u32 = 1;

impl Superblock {
    pub(crate) fn encode(&self) -> Box<PageBytes> {
        let mut page = Box::new([0; PAGE_BYTES]);
        let flags = if self.is_sparse { SPARSE } else { 0 };
        put(&mut page[..], field::PAGE_COUNT, &self.layout.page_count.to_le_bytes());
        put(&mut page[..], field::LOG_PAGES, &self.layout.log_pages.to_le_bytes());
        put(&mut page[..], field::NONCE, &self.log_nonce.to_le_bytes());
        put(&mut page[..], field::START_PAGE, &self.start.page.to_le_bytes());
        put(&mut page[..], field::START_SEQUENCE, &self.start.sequence.to_le_bytes());
        put(&mut page[..], field::START_CRC, &self.start.crc.to_le_bytes());
        put(&mut page[..], field::MAP_PAGES_USED, &self.map_pages_used.to_le_bytes());
        put(&mut page[..], field::FLAGS, &flags.to_le_bytes());
        put(&mut page[..], field::WRITTEN_PAGES, &self.written_pages.to_le_bytes());
        let Self { store_id, generation, .. } = *self;
        seal(&mut page, Kind::Superblock, PageHead { store_id, generation, index: 0 });
        page
    }

    /// Never panics, whatever the bytes are.
    pub(crate) fn decode(page: &PageBytes) -> Result<Self, PageError> {
        let (PageHead { store_id, generation, .. }, _) = open(page, Kind::Superblock)?;
        let (page_count, log_pages) =
            (u64_at(page, field::PAGE_COUNT), u64_at(page, field::LOG_PAGES));
        let layout = Layout::new(page_count, log_pages).ok_or(PageError::Impossible)?;
        let start = LogPoint {
            page: u64_at(page, field::START_PAGE),
            sequence: u64_at(page, field::START_SEQUENCE),
            crc: u32_at(page, field::START_CRC),
        };
        let (map_pages_used, flags) =
            (u32_at(page, field::MAP_PAGES_USED), u32_at(page, field::FLAGS));
        // What is counted on from here stays far below the end of all numbers.
        let is_far = start.page.max(start.sequence).max(generation) > u64::MAX / 4;
        if map_pages_used > layout.map_pages
            || flags & !SPARSE != 0
            || is_far
            || generation.min(start.sequence) == 0
        {
            return Err(PageError::Impossible);
        }
        Ok(Self {
            store_id,
            generation,
            layout,
            is_sparse: flags & SPARSE != 0,
            log_nonce: u64_at(page, field::NONCE),
            start,
            map_pages_used,
            written_pages: u32_at(page, field::WRITTEN_PAGES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn a_superblock_survives_its_bytes_and_arbitrary_ones_never_panic() {
        let superblock = Superblock {
            store_id: 1,
            generation: 2,
            layout: Layout::new(10_000, 128).expect("there is room"),
            is_sparse: true,
            log_nonce: 3,
            start: LogPoint { page: 4, sequence: 5, crc: 6 },
            map_pages_used: 7,
            written_pages: 8,
        };
        let mut page = superblock.encode();
        assert_eq!(Superblock::decode(&page), Ok(superblock));
        let mut prng = Prng::new(3);
        for _ in 0..2_000 {
            let at = HEAD_BYTES + prng.below(64) as usize;
            page[at] = prng.next_u32() as u8;
            seal(&mut page, Kind::Superblock, PageHead { store_id: 1, generation: 2, index: 0 });
            let _ = Superblock::decode(&page);
        }
    }
}
