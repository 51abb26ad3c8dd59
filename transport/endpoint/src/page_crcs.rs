//! CRCs of pages that the application knows, and which of them a checksum may use.

use smallvec::SmallVec;
use std::cell::Cell;
use towpath_base::crc::{Crc32c, PAGE_BYTES, crc32c_then_page};

/// CRC32C of each whole page of 4 KiB of a segment, from its first byte on, as far as they are
/// known: often of none.
///
/// One pointer, because most messages have none. The pages of 64 KiB take one allocation.
#[derive(Clone, Debug, Default)]
pub struct PageCrcs(Option<Box<SmallVec<[u32; 16]>>>);

impl PageCrcs {
    /// In the order of the pages.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u32] {
        self.0.as_deref().map_or(&[], |crcs| &crcs[..])
    }
}

impl FromIterator<u32> for PageCrcs {
    fn from_iter<I: IntoIterator<Item = u32>>(crcs: I) -> Self {
        let mut crcs = crcs.into_iter().peekable();
        Self(crcs.peek().is_some().then(|| Box::new(crcs.collect())))
    }
}

/// What the application knows of the last segment, or of bytes that it supplied later.
pub(crate) struct KnownCrcs {
    segment: u8,
    pages: PageCrcs,
    /// Up to where they were used. A piece is sent first behind those that were sent before, so one
    /// in front of this is sent again. Then its bytes count: if they are no longer those that the
    /// CRC is of, the receiver shall have them and see it, not refuse them for ever.
    used: Cell<u32>,
}

impl KnownCrcs {
    pub(crate) fn new(segment: u8, pages: PageCrcs) -> Self {
        Self { segment, pages, used: Cell::new(0) }
    }

    /// Whether the CRC of no page is known.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.as_slice().is_empty()
    }

    /// CRC32C of what has `front` and a piece behind it: of which segment, from where on, and its
    /// bytes. `None` where it has to be taken of these.
    pub(crate) fn behind(
        &self,
        front: u32,
        (segment, offset): (u8, u32),
        bytes: &[u8],
    ) -> Option<u32> {
        let first = offset as usize / PAGE_BYTES;
        let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
        let known = self.pages.as_slice().get(first..first.checked_add(pages.len())?)?;
        let is_aligned = (offset as usize).is_multiple_of(PAGE_BYTES);
        let is_sent_again = offset < self.used.get();
        if segment != self.segment || known.is_empty() || !is_aligned || is_sent_again {
            return None;
        }
        self.used.set(offset.saturating_add(bytes.len() as u32));
        let mut crc = known.iter().copied().fold(front, crc32c_then_page);
        if !rest.is_empty() {
            let mut with_rest = Crc32c::resume(crc);
            with_rest.update(rest);
            crc = with_rest.value();
        }
        debug_assert_eq!(crc, of_bytes(front, bytes), "CRCs are those of the pages");
        Some(crc)
    }
}

/// The same from the bytes.
fn of_bytes(front: u32, bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::resume(front);
    crc.update(bytes);
    crc.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;
    use towpath_base::crc::crc32c;

    #[test]
    fn crcs_of_pages_are_used_for_pages_that_are_sent_for_the_first_time() {
        let seed = 21;
        println!("seed {seed}");
        let mut bytes = vec![0; 6 * PAGE_BYTES + 100];
        Prng::new(seed).fill(&mut bytes);
        let (pages, _) = bytes[..5 * PAGE_BYTES].as_chunks::<PAGE_BYTES>();
        let pages = pages.iter().map(|page| crc32c(page)).collect();
        let crcs = KnownCrcs { segment: 1, pages, used: Cell::new(0) };
        let find = |segment, range: std::ops::Range<usize>| {
            let front = crc32c(b"what is in front");
            let of_all = [&b"what is in front"[..], &bytes[range.clone()]].concat();
            let found = crcs.behind(front, (segment, range.start as u32), &bytes[range]);
            assert!(found.is_none_or(|crc| crc == crc32c(&of_all)), "it is of all the bytes");
            found.is_some()
        };
        assert!(!find(0, 0..4096), "of another segment");
        assert!(!find(1, 0..4095), "no whole page");
        assert!(find(1, 0..4096));
        assert!(!find(1, 0..4096), "sent again");
        assert!(!find(1, 4097..8193), "off the pages");
        assert!(find(1, 4096..12_288 + 100), "the rest has bytes");
        assert!(!find(1, 8192..16_384), "sent again in part");
        assert!(!find(1, 16_384..24_576), "the second is not known");
        assert!(find(1, 16_384..20_480));
        assert!(!find(1, 24_576..24_676), "behind what is known");
    }
}
