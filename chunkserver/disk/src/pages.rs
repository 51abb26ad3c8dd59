//! Whole pages of memory, as reads fill them and writes take them.

use std::ops::{Deref, DerefMut, Range};

use towpath_memory::{Buf, Frozen, PAGE_BYTES, Segment};

/// Whole pages of a buffer, for a read to fill.
#[derive(Debug)]
pub struct ReadPages {
    buf: Buf,
    bytes: Range<usize>,
}

/// Whole pages of a buffer, for a write to take. Nobody changes them meanwhile; when the buffer is
/// frozen, others may read or send it, and other writes take it too.
#[derive(Debug)]
pub struct WritePages {
    segment: Segment,
    bytes: Range<usize>,
}

/// The bytes of whole pages in memory that is as long as `bytes`, when they begin at a page.
fn of_pages(bytes: &[u8], pages: Range<u32>) -> Option<Range<usize>> {
    let range = pages.start as usize * PAGE_BYTES..pages.end as usize * PAGE_BYTES;
    let begins_well = bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES);
    (begins_well && !range.is_empty() && range.end <= bytes.len()).then_some(range)
}

/// All pages of memory that is as long as `bytes`, when it has only whole ones.
fn all_pages(bytes: &[u8]) -> Option<Range<usize>> {
    let pages = u32::try_from(bytes.len() / PAGE_BYTES).ok()?;
    of_pages(bytes, 0..pages).filter(|range| range.len() == bytes.len())
}

impl ReadPages {
    /// All bytes that are in the buffer.
    ///
    /// # Errors
    /// The buffer, unless it begins at a page and has one whole page or more, and nothing else.
    pub fn new(buf: Buf) -> Result<Self, Buf> {
        match all_pages(&buf) {
            Some(bytes) => Ok(Self { buf, bytes }),
            None => Err(buf),
        }
    }

    /// Some pages of the buffer, which is made as long as that needs.
    ///
    /// # Errors
    /// The buffer, unless it begins at a page and there is room for one such page or more.
    pub fn part(mut buf: Buf, pages: Range<u32>) -> Result<Self, Buf> {
        let end = pages.end as usize * PAGE_BYTES;
        if buf.len() < end && buf.set_len(end).is_err() {
            return Err(buf);
        }
        match of_pages(&buf, pages) {
            Some(bytes) => Ok(Self { buf, bytes }),
            None => Err(buf),
        }
    }

    /// The buffer, with what lies before and behind the pages as it was.
    #[must_use]
    pub fn into_buf(self) -> Buf {
        self.buf
    }

    /// How many pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.bytes.len() / PAGE_BYTES) as u64
    }
}

impl WritePages {
    /// All bytes that are in the memory.
    ///
    /// # Errors
    /// The memory, unless it begins at a page and has one whole page or more, and nothing else.
    pub fn new(memory: impl Into<Segment>) -> Result<Self, Segment> {
        let segment = memory.into();
        match all_pages(&segment) {
            Some(bytes) => Ok(Self { segment, bytes }),
            None => Err(segment),
        }
    }

    /// Some pages of the memory. Of a frozen one each write takes a clone.
    ///
    /// # Errors
    /// The memory, unless it begins at a page and has these pages, of which there is one or more.
    pub fn part(memory: impl Into<Segment>, pages: Range<u32>) -> Result<Self, Segment> {
        let segment = memory.into();
        match of_pages(&segment, pages) {
            Some(bytes) => Ok(Self { segment, bytes }),
            None => Err(segment),
        }
    }

    /// The memory, to be changed again.
    ///
    /// # Errors
    /// A frozen one, while others hold it.
    pub fn into_buf(self) -> Result<Buf, Frozen> {
        self.segment.into_buf()
    }

    /// How many pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.bytes.len() / PAGE_BYTES) as u64
    }
}

impl Deref for ReadPages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[self.bytes.clone()]
    }
}

impl DerefMut for ReadPages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.bytes.clone()]
    }
}

impl Deref for WritePages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.segment[self.bytes.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use towpath_memory::{Lender, Pool};

    fn buf(bytes: usize) -> Buf {
        let pool = Pool::with_count(4 * PAGE_BYTES, 1).expect("memory for a test");
        let mut buf = pool.take().expect("a fresh pool");
        buf.set_len(bytes).expect("it fits");
        buf
    }

    #[test]
    fn memory_of_other_than_whole_pages_is_given_back() {
        for bytes in [0, 1, PAGE_BYTES - 1, PAGE_BYTES + 512] {
            assert_eq!(ReadPages::new(buf(bytes)).expect_err("no pages").len(), bytes);
            assert_eq!(WritePages::new(buf(bytes)).expect_err("no pages").len(), bytes);
        }
        let small = Pool::with_count(512, 16).expect("memory for a test");
        let bufs: Vec<Buf> = (0..16).map(|_| small.take().expect("it has 16")).collect();
        for mut buf in bufs {
            buf.set_len(512).expect("it fits");
            assert!(ReadPages::new(buf).is_err(), "half a page is none");
        }
    }

    #[test]
    fn a_part_has_the_pages_that_were_asked_for_and_no_more_than_there_are() {
        let mut whole = buf(4 * PAGE_BYTES);
        whole[PAGE_BYTES] = 7;
        let part = WritePages::part(whole, 1..3).expect("they are there");
        assert_eq!((part.count(), part.len(), part[0]), (2, 2 * PAGE_BYTES, 7));
        let whole = part.into_buf().expect("nobody froze it");
        assert!(WritePages::part(whole, 3..5).is_err(), "it has four");
        assert!(WritePages::part(buf(PAGE_BYTES), 1..1).is_err(), "none are no part");
        assert!(WritePages::part(buf(PAGE_BYTES), 0..2).is_err(), "it is one page long");
        let longer = ReadPages::part(buf(0), 1..4).expect("there is room");
        assert_eq!((longer.count(), longer.into_buf().len()), (3, 4 * PAGE_BYTES));
        assert!(ReadPages::part(buf(0), 1..5).is_err(), "there is room for four");
    }

    struct OneBuffer(Buf);

    impl Lender for OneBuffer {
        fn buf(&self) -> Option<&Buf> {
            Some(&self.0)
        }

        fn take_back(self: Arc<Self>, _tag: u32) {}
    }

    #[test]
    fn pages_of_a_receive_buffer_are_taken_where_they_begin_at_a_page() {
        let lender: Arc<dyn Lender> = Arc::new(OneBuffer(buf(4 * PAGE_BYTES)));
        let (page, at) = (PAGE_BYTES as u32, 64);
        let off = Frozen::part_of(Arc::clone(&lender), at, page, 0);
        assert!(WritePages::new(off).is_err(), "it begins 64 bytes behind a page");
        let well = Frozen::part_of(lender, page, 2 * page, 1);
        assert_eq!(WritePages::new(well).expect("it begins at a page").count(), 2);
    }
}
