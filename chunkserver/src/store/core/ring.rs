//! Where pages of the log lie in its area, as the ring of them grows (docs/store-core.md section
//! 4).
//!
//! The area of the log is as long as the ring may become. The ring begins with a part of it, and
//! when that is used up fast it is made longer, from some page on. Pages before that lie where they
//! did; the first ones behind it take the room that is new, so none of those that are still needed
//! is written over.

/// How the ring lies from some page on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The first page that lies so, counted from the beginning of all time.
    pub(crate) from: u64,
    /// Where that page is.
    pub(crate) slot: u64,
    /// Pages of the ring.
    pub(crate) pages: u64,
}

impl Stretch {
    fn slot(&self, page: u64) -> u64 {
        (self.slot + (page - self.from)) % self.pages
    }
}

/// The ring, and what it was before it grew last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) before: Stretch,
    pub(crate) now: Stretch,
}

impl Ring {
    /// One that has never grown.
    pub(crate) fn new(pages: u64) -> Self {
        let now = Stretch { from: 0, slot: 0, pages };
        Self { before: now, now }
    }

    /// Whether it can lie so in an area of so many pages.
    pub(crate) fn is_sound(&self, area_pages: u64) -> bool {
        let Self { before, now } = self;
        let fits = |stretch: &Stretch| {
            (1..=area_pages).contains(&stretch.pages) && stretch.slot < stretch.pages
        };
        fits(before) && fits(now) && before.from <= now.from && before.pages <= now.pages
    }

    fn stretch(&self, page: u64) -> &Stretch {
        if page >= self.now.from { &self.now } else { &self.before }
    }

    /// Where a page is in the area.
    pub(crate) fn slot(&self, page: u64) -> u64 {
        // A page from before the ring had grown twice is needed no more.
        let stretch = self.stretch(page);
        stretch.slot(page.max(stretch.from))
    }

    /// How many pages from one on lie together.
    pub(crate) fn together(&self, page: u64) -> u64 {
        let to_end = self.stretch(page).pages - self.slot(page);
        match page < self.now.from {
            true => to_end.min(self.now.from - page),
            false => to_end,
        }
    }

    /// The first page that may not be written while those from `floor` on are needed.
    pub(crate) fn limit(&self, floor: u64) -> u64 {
        let Self { before, now } = self;
        match floor < now.from {
            true => now.from + (now.pages - before.pages),
            false => floor + now.pages,
        }
    }

    /// The ring when it has so many pages, which becomes so behind all that may be written now;
    /// none while something from before it grew last is needed.
    pub(crate) fn grown(&self, floor: u64, pages: u64) -> Option<Self> {
        let Self { now, .. } = *self;
        (pages > now.pages && floor >= now.from).then(|| {
            let from = self.limit(floor);
            Self { before: now, now: Stretch { from, slot: now.pages, pages } }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use towpath_base::Prng;

    /// Writes pages and gives up old ones, and grows; checks that no page that is needed is written
    /// over, and that pages that are said to lie together do.
    #[test]
    fn no_page_that_is_needed_is_written_over_however_the_ring_grows() {
        const AREA: u64 = 64;
        for seed in 0..200 {
            println!("seed {seed}");
            let mut prng = Prng::new(seed);
            let mut ring = Ring::new(8);
            let (mut floor, mut end, mut grew) = (0, 0, 0);
            let mut holds = HashMap::new();
            for _ in 0..2_000 {
                match prng.below(8) {
                    0 => floor += prng.below(end - floor + 1),
                    1 => {
                        let pages = (ring.now.pages + 1 + prng.below(20)).min(AREA);
                        if let Some(grown) = ring.grown(floor, pages) {
                            assert_eq!(grown.limit(floor), grown.now.from + pages - ring.now.pages);
                            (ring, grew) = (grown, grew + 1);
                        }
                    }
                    _ if end < ring.limit(floor) => {
                        let slot = ring.slot(end);
                        assert!(slot < AREA && slot < ring.now.pages);
                        let before = holds.insert(slot, end);
                        assert!(before.is_none_or(|page| page < floor), "page {before:?}");
                        end += 1;
                    }
                    _ => {}
                }
                assert!(ring.is_sound(AREA));
                for page in floor..end {
                    assert_eq!(holds.get(&ring.slot(page)), Some(&page));
                    let run = ring.together(page).min(end - page);
                    assert!(run > 0);
                    assert_eq!(ring.slot(page + run - 1), ring.slot(page) + run - 1);
                }
            }
            assert!(grew > 1, "it grew {grew} times");
        }
    }
}
