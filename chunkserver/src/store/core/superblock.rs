//! The superblock: which store it is, how it lies on the disk, and what a generation of it begins
//! with (docs/store-core.md section 3).

use super::layout::Layout;
use super::page::{HEAD_BYTES, Kind, PAGE_BYTES, PageBytes, PageError, PageHead, open, put, seal};
use super::ring::{Ring, Stretch};
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
    /// How the log lies in its area.
    pub(crate) ring: Ring,
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
    pub(super) const RING_BEFORE: usize = HEAD_BYTES + 56;
    pub(super) const RING: usize = HEAD_BYTES + 80;
}

const SPARSE: u32 = 1;

/// Bytes of a copy of a superblock: all behind them are zeros. A sector of its own each, so that a
/// torn write leaves those copies whole that it does not change.
const COPY_BYTES: usize = 1024;

/// Where the page of a superblock has a copy of it.
const OWN_COPY: usize = COPY_BYTES;

/// Where it has a copy of the superblock that is in the other page.
const OTHER_COPY: usize = 2 * COPY_BYTES;

/// The page of superblock `own`, with copies of it and of the `other` one. Where `own` is not
/// known, the page is none but for the copy of the other one.
pub(crate) fn encode_page(own: Option<&Superblock>, other: Option<&Superblock>) -> Box<PageBytes> {
    let mut page = Box::new([0; PAGE_BYTES]);
    if let Some(other) = other {
        put(&mut page[..], OTHER_COPY, &other.encode()[..COPY_BYTES]);
    }
    if let Some(own) = own {
        let plain = own.encode();
        put(&mut page[..], 0, &plain[..COPY_BYTES]);
        put(&mut page[..], OWN_COPY, &plain[..COPY_BYTES]);
        let Superblock { store_id, generation, .. } = *own;
        seal(&mut page, Kind::Superblock, PageHead { store_id, generation, index: 0 });
    }
    page
}

/// The copies that the page of a superblock has: of itself, and of the one in the other page. Each
/// has its own checksum, whatever became of the rest of the page.
pub(crate) fn decode_copies(page: &PageBytes) -> [Option<Superblock>; 2] {
    [OWN_COPY, OTHER_COPY].map(|at| {
        let mut plain = [0; PAGE_BYTES];
        plain[..COPY_BYTES].copy_from_slice(&page[at..at + COPY_BYTES]);
        Superblock::decode(&plain).ok()
    })
}

/// Whether a page is what is left of the first write of a superblock that was torn: each of its
/// sectors is zeros, or begins as a superblock or a copy of one does.
pub(crate) fn is_first_write(page: &PageBytes) -> bool {
    let begins = |at: usize| at.is_multiple_of(COPY_BYTES) && at <= OTHER_COPY;
    page.chunks(SECTOR_BYTES).enumerate().all(|(number, sector)| {
        let is_start = begins(number * SECTOR_BYTES) && Kind::Superblock.begins(sector);
        is_start || sector.iter().all(|byte| *byte == 0)
    })
}

/// Bytes that a medium writes together (docs/fault-model.md section 3).
const SECTOR_BYTES: usize = 512;

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
        for (at, stretch) in [(field::RING_BEFORE, self.ring.before), (field::RING, self.ring.now)]
        {
            let Stretch { from, slot, pages } = stretch;
            for (number, value) in [from, slot, pages].into_iter().enumerate() {
                put(&mut page[..], at + 8 * number, &value.to_le_bytes());
            }
        }
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
        let stretch = |at: usize| {
            let [from, slot, pages] = [0, 8, 16].map(|field| u64_at(page, at + field));
            Stretch { from, slot, pages }
        };
        // Format version 4 had no ring that grows, and zeros here.
        let ring = match stretch(field::RING) {
            Stretch { pages: 0, .. } => Ring::new(log_pages),
            now => Ring { before: stretch(field::RING_BEFORE), now },
        };
        // What is counted on from here stays far below the end of all numbers.
        let is_far = start.page.max(start.sequence).max(generation) > u64::MAX / 4
            || ring.now.from > u64::MAX / 4
            || !ring.is_sound(log_pages)
            || start.page < ring.before.from;
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
            ring,
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
    fn a_page_has_both_superblocks_and_each_copy_stands_by_itself() {
        let layout = Layout::new(10_000, 128).expect("there is room");
        let of = |generation| Superblock {
            store_id: 1,
            generation,
            layout,
            is_sparse: false,
            log_nonce: 3,
            start: LogPoint { page: 4, sequence: 5, crc: 6 },
            ring: Ring::new(128),
            map_pages_used: 7,
            written_pages: 8,
        };
        let (own, other) = (of(2), of(1));
        let page = encode_page(Some(&own), Some(&other));
        assert_eq!(Superblock::decode(&page), Ok(own));
        assert_eq!(decode_copies(&page), [Some(own), Some(other)]);
        for sector in 0..PAGE_BYTES / SECTOR_BYTES {
            let mut torn = page.clone();
            torn[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES].fill(0);
            let found = decode_copies(&torn);
            assert_eq!(found[0], (sector != OWN_COPY / SECTOR_BYTES).then_some(own), "{sector}");
            assert_eq!(found[1], (sector != OTHER_COPY / SECTOR_BYTES).then_some(other));
            assert!(is_first_write(&torn));
        }
        let alone = encode_page(None, Some(&other));
        assert!(Superblock::decode(&alone).is_err());
        assert_eq!(decode_copies(&alone), [None, Some(other)]);
        // A page without copies is one that an older program wrote.
        assert_eq!(decode_copies(&own.encode()), [None, None]);
        assert!(!is_first_write(&[1; PAGE_BYTES]));
    }

    #[test]
    fn a_superblock_survives_its_bytes_and_arbitrary_ones_never_panic() {
        let superblock = Superblock {
            store_id: 1,
            generation: 2,
            layout: Layout::new(10_000, 128).expect("there is room"),
            is_sparse: true,
            log_nonce: 3,
            start: LogPoint { page: 4, sequence: 5, crc: 6 },
            ring: Ring::new(128),
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
