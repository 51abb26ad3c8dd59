//! Where everything lies on the disk of a store (docs/store-core.md section 1).

use towpath_disk::PageNumber;

use super::directory::ENTRIES;
use super::map_page::BLOCKS;
use super::space::EDGE_PAGES;

/// Pages of data for each block of the map: chunks of 64 KiB and more never lack one.
const DATA_PAGES_A_BLOCK: u64 = 16;

/// Blocks that even the smallest store has.
const BLOCKS_MIN: u64 = 64;

/// Fewest pages of one copy of the log: an eighth of it holds the record of the longest write, in
/// as many pieces as it has slices.
pub(crate) const LOG_PAGES_MIN: u64 = 128;

/// Most pages of one copy of the log, 4 GiB: an opening reads at most three quarters of it.
pub(crate) const LOG_PAGES_MAX: u64 = 1 << 20;

/// Most pages of data, 16 TiB: the number after the last stands for a page that is lost.
pub(crate) const DATA_PAGES_MAX: u32 = u32::MAX - 1;

/// Copies of the log: a damaged sector concerns one of them.
pub(crate) const LOG_COPIES: u64 = 2;

/// The areas of a disk, in their order: a superblock, the log, the map, the directory, the data,
/// the other superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Pages of the disk that are used.
    pub(crate) page_count: u64,
    /// Pages of the area of one copy of the log.
    pub(crate) log_pages: u64,
    /// Pages of the map; each has two places.
    pub(crate) map_pages: u32,
    /// Pages that hold slices. They are numbered from 1.
    pub(crate) data_pages: u32,
}

impl Layout {
    /// The layout of a disk; none where it is too small for a log like that, or the log cannot be.
    pub(crate) fn new(page_count: u64, log_pages: u64) -> Option<Self> {
        Self::cut(page_count, log_pages).filter(|layout| layout.data_pages > 0)
    }

    /// The layout of the smallest disk with so many pages of data that writes may use,
    /// [`DATA_PAGES_MAX`] at most.
    pub(crate) fn for_data(data_pages: u64, log_pages: u64) -> Option<Self> {
        let data_pages = u32::try_from(data_pages).ok().filter(|&pages| pages <= DATA_PAGES_MAX)?;
        if data_pages == 0 {
            return None;
        }
        let data_pages = data_pages.saturating_add(EDGE_PAGES as u32).min(DATA_PAGES_MAX);
        let mut page_count = 2 + LOG_COPIES * log_pages + u64::from(data_pages);
        loop {
            let layout = Self::cut(page_count, log_pages)?;
            match data_pages.saturating_sub(layout.data_pages) {
                0 => return Self::new(page_count, log_pages),
                // Of those pages the map may take some, which the next round adds.
                missing => page_count += u64::from(missing),
            }
        }
    }

    /// As [`new`](Self::new), but where only the data has no room, it has no pages.
    fn cut(page_count: u64, log_pages: u64) -> Option<Self> {
        if !(LOG_PAGES_MIN..=LOG_PAGES_MAX).contains(&log_pages) {
            return None;
        }
        let rest = page_count.checked_sub(2 + LOG_COPIES * log_pages)?;
        let blocks = rest / DATA_PAGES_A_BLOCK + BLOCKS_MIN;
        let map_pages = u32::try_from(blocks.div_ceil(BLOCKS as u64)).ok()?;
        let layout = Self { page_count, log_pages, map_pages, data_pages: 0 };
        let before = layout.data_start() - layout.log_start(0) - LOG_COPIES * log_pages;
        let data_pages = u32::try_from(rest.saturating_sub(before)).unwrap_or(DATA_PAGES_MAX);
        Some(Self { data_pages: data_pages.min(DATA_PAGES_MAX), ..layout })
    }

    /// Pages that the directory takes.
    pub(crate) fn directory_pages(&self) -> u32 {
        self.map_pages.div_ceil(ENTRIES as u32)
    }

    /// Blocks that the map has room for.
    pub(crate) fn blocks(&self) -> u32 {
        self.map_pages.saturating_mul(BLOCKS as u32)
    }

    /// Pages before the data.
    pub(crate) fn metadata_pages(&self) -> u64 {
        self.data_start()
    }

    /// The superblock of a generation.
    pub(crate) fn superblock(&self, generation: u64) -> PageNumber {
        PageNumber(if generation.is_multiple_of(2) { 0 } else { self.page_count - 1 })
    }

    fn log_start(&self, copy: u64) -> u64 {
        1 + copy * self.log_pages
    }

    /// A page of the area of the log, in one of its copies.
    pub(crate) fn log_slot(&self, copy: u64, slot: u64) -> PageNumber {
        PageNumber(self.log_start(copy) + slot)
    }

    /// Which page of its area a page of either copy of the log is.
    pub(crate) fn slot_of(&self, at: PageNumber) -> u64 {
        at.0.saturating_sub(self.log_start(0)) % self.log_pages
    }

    /// One of the two places of a page of the map. The first places of all pages lie together, and
    /// so do the second ones, so that pages are written and read in long runs.
    pub(crate) fn map_page(&self, page: u32, place: u8) -> PageNumber {
        let before = u64::from(place & 1) * u64::from(self.map_pages);
        PageNumber(self.log_start(LOG_COPIES) + before + u64::from(page))
    }

    /// A page of the directory of a generation.
    pub(crate) fn directory_page(&self, generation: u64, page: u32) -> PageNumber {
        let start = self.log_start(LOG_COPIES) + 2 * u64::from(self.map_pages);
        let copy = (generation % 2) * u64::from(self.directory_pages());
        PageNumber(start + copy + u64::from(page))
    }

    /// Where pages of the map from `first` up to `end` lie, at both places, and the pages of both
    /// directories that no page before has an entry in: the first of each run, and how many.
    pub(crate) fn map_runs(&self, first: u32, end: u32) -> Vec<(PageNumber, u32)> {
        let maps = [0, 1].map(|place| (self.map_page(first, place), end - first));
        let entries = [first, end].map(|pages| pages.div_ceil(ENTRIES as u32));
        let directory = |generation| self.directory_page(generation, entries[0]);
        let directories = [0, 1].map(|copy| (directory(copy), entries[1] - entries[0]));
        maps.into_iter().chain(directories).filter(|(_, count)| *count > 0).collect()
    }

    fn data_start(&self) -> u64 {
        let maps = 2 * u64::from(self.map_pages) + 2 * u64::from(self.directory_pages());
        self.log_start(LOG_COPIES) + maps
    }

    /// Where a page of data lies; it is one of 1 to [`data_pages`](Self::data_pages).
    pub(crate) fn data_page(&self, page: u32) -> PageNumber {
        PageNumber(self.data_start() + u64::from(page) - 1)
    }

    /// The page of data that lies there.
    pub(crate) fn data_page_at(&self, at: PageNumber) -> u32 {
        (at.0 + 1 - self.data_start()) as u32
    }

    /// Whether there is such a page of data.
    pub(crate) fn has(&self, page: u32) -> bool {
        (1..=self.data_pages).contains(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_areas_cover_the_disk_and_none_lies_in_another() {
        for (page_count, log_pages) in [(400, 128), (5_000, 128), (1 << 28, 1 << 18)] {
            let layout = Layout::new(page_count, log_pages).expect("there is room");
            let ends = [
                layout.superblock(0).0 + 1,
                layout.log_slot(0, 0).0,
                layout.log_slot(0, log_pages - 1).0 + 1,
                layout.log_slot(1, 0).0,
                layout.log_slot(1, log_pages - 1).0 + 1,
                layout.map_page(0, 0).0,
                layout.map_page(layout.map_pages - 1, 1).0 + 1,
                layout.directory_page(0, 0).0,
                layout.directory_page(0, layout.directory_pages() - 1).0 + 1,
                layout.directory_page(1, 0).0,
                layout.directory_page(1, layout.directory_pages() - 1).0 + 1,
                layout.data_page(1).0,
                layout.data_page(layout.data_pages).0 + 1,
                layout.superblock(1).0,
            ];
            for ends in ends.as_chunks::<2>().0 {
                assert_eq!(ends[0], ends[1], "{layout:?}");
            }
            assert_eq!(layout.superblock(1).0 + 1, page_count);
            assert!(u64::from(layout.blocks()) * 16 >= u64::from(layout.data_pages));
        }
        assert_eq!(Layout::new(200, 128), None, "too small");
        assert_eq!(Layout::new(1 << 20, 1), None, "no log");
        assert_eq!(Layout::new(u64::MAX, 128), None, "more than can be counted");
    }

    #[test]
    fn a_disk_for_so_much_data_has_room_for_it_and_hardly_more() {
        for data_pages in [1, 100, 112, 113, 65_536, 1 << 28, u64::from(DATA_PAGES_MAX)] {
            let layout = Layout::for_data(data_pages, 128).expect("there is room");
            assert!(u64::from(layout.data_pages) >= data_pages, "{layout:?}");
            let most = data_pages + EDGE_PAGES + 4;
            assert!(u64::from(layout.data_pages) <= most, "{layout:?}");
            let shorter = Layout::new(layout.page_count - 5, 128);
            let is_less = |s: Layout| u64::from(s.data_pages) < data_pages + EDGE_PAGES;
            assert!(shorter.is_none_or(is_less), "{layout:?}");
        }
        assert_eq!(Layout::for_data(0, 128), None, "no data");
        assert_eq!(Layout::for_data(1 << 32, 128), None, "more than can be numbered");
        assert_eq!(Layout::for_data(100, 1), None, "no log");
    }
}
