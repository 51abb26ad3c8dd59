//! The bytes of writes, and the check of what is read.
//!
//! A page begins with a stamp: a tag of the run, chunk, offset and version. Without `--verify` the
//! rest of a page is random once for each buffer, as fio has it, and a write changes the stamp
//! only. With `--verify` the rest follows from the stamp.

use towpath_base::Prng;
use towpath_fastpath::ChunkId;

use super::error::Fault;

/// Bytes of a stamp: tag 8, chunk 16, offset 8, version 4, zeros 4.
const STAMP_BYTES: usize = 40;

/// Makes and checks pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    seed: u64,
    /// Tells pages of this run from others.
    tag: u64,
    page_bytes: usize,
    is_verified: bool,
}

impl Content {
    /// Of pages of so many bytes, at least 512. `nonce` tells runs of the same seed apart.
    pub(super) fn new((seed, nonce): (u64, u64), page_bytes: usize, is_verified: bool) -> Self {
        let tag = Prng::new(seed ^ nonce).next_u64() | 1;
        Self { seed, tag, page_bytes, is_verified }
    }

    /// Fills `out`, which begins at `offset` of a chunk; `version` gives that of each page.
    pub(super) fn fill(
        &self,
        (chunk, offset): (ChunkId, u64),
        out: &mut [u8],
        mut version: impl FnMut(u64) -> u32,
    ) {
        for (page, at) in out.chunks_mut(self.page_bytes).zip(0..) {
            let at = offset + at * self.page_bytes as u64;
            let stamp = self.stamp(chunk, at, version(at));
            if self.is_verified {
                self.body(&stamp).fill(&mut page[STAMP_BYTES..]);
            } else if page[..8] != self.tag.to_le_bytes() {
                // A fresh buffer: it keeps these bytes for all writes to come.
                Prng::new(self.tag ^ at).fill(&mut page[STAMP_BYTES..]);
            }
            page[..STAMP_BYTES].copy_from_slice(&stamp);
        }
    }

    /// Checks pages that were read, from `offset` of a chunk on. `versions` gives the oldest and
    /// the newest version that a page may have.
    ///
    /// # Errors
    /// The offset of the first wrong page, and what is wrong with it.
    pub(super) fn check(
        &self,
        (chunk, offset): (ChunkId, u64),
        bytes: &[u8],
        mut versions: impl FnMut(u64) -> (u32, u32),
    ) -> Result<(), (u64, Fault)> {
        let mut wanted = vec![0; self.page_bytes];
        for (page, at) in bytes.chunks(self.page_bytes).zip(0..) {
            let at = offset + at * self.page_bytes as u64;
            let version = page.get(32..36).and_then(|bytes| bytes.try_into().ok());
            let found = version.map_or(0, u32::from_le_bytes);
            let stamp = self.stamp(chunk, at, found);
            if page.get(..STAMP_BYTES) != Some(&stamp[..]) {
                return Err((at, Fault::Foreign));
            }
            let (least, most) = versions(at);
            if !(least..=most).contains(&found) {
                return Err((at, Fault::Version { found, least, most }));
            }
            let wanted = &mut wanted[..page.len() - STAMP_BYTES];
            self.body(&stamp).fill(wanted);
            if page[STAMP_BYTES..] != *wanted {
                return Err((at, Fault::Body));
            }
        }
        Ok(())
    }

    fn stamp(&self, chunk: ChunkId, offset: u64, version: u32) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&self.tag.to_le_bytes());
        stamp[8..24].copy_from_slice(&chunk.0.to_le_bytes());
        stamp[24..32].copy_from_slice(&offset.to_le_bytes());
        stamp[32..36].copy_from_slice(&version.to_le_bytes());
        stamp
    }

    /// The bytes behind a stamp.
    fn body(&self, stamp: &[u8; STAMP_BYTES]) -> Prng {
        let words = stamp.chunks(8).fold(self.seed, |state, word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            Prng::new(state ^ u64::from_le_bytes(bytes)).next_u64()
        });
        Prng::new(words)
    }
}

/// The versions of the pages of a job, as far as they are known.
#[derive(Debug)]
pub(super) struct Versions {
    /// The newest that was sent to the server.
    sent: Vec<u32>,
    /// The newest that the server has acknowledged.
    stored: Vec<u32>,
}

impl Versions {
    /// Of so many pages, which were written once.
    pub(super) fn new(pages: usize) -> Self {
        Self { sent: vec![0; pages], stored: vec![0; pages] }
    }

    /// A write of a page goes out. No other one of it may be under way.
    pub(super) fn send(&mut self, page: usize) {
        self.sent[page] = self.sent[page].wrapping_add(1);
    }

    /// The server has acknowledged the write of a page.
    pub(super) fn store(&mut self, page: usize) {
        self.stored[page] = self.sent[page];
    }

    /// Whether a write of a page is under way.
    pub(super) fn is_written(&self, page: usize) -> bool {
        self.sent[page] != self.stored[page]
    }

    /// The newest version that was sent.
    pub(super) fn sent(&self, page: usize) -> u32 {
        self.sent[page]
    }

    /// The newest version that was acknowledged.
    pub(super) fn stored(&self, page: usize) -> u32 {
        self.stored[page]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn chunk(first: u8) -> ChunkId {
        ChunkId(u128::from_le_bytes([first; 16]))
    }

    fn filled(content: &Content, at: (ChunkId, u64), version: u32) -> Vec<u8> {
        let mut bytes = vec![0; 2 * PAGE];
        content.fill(at, &mut bytes, |_| version);
        bytes
    }

    #[test]
    fn what_was_written_at_a_place_passes_and_anything_else_does_not() {
        let content = Content::new((7, 1), PAGE, true);
        let at = (chunk(1), 8192);
        let bytes = filled(&content, at, 3);
        assert_eq!(content.check(at, &bytes, |_| (3, 4)), Ok(()));
        let elsewhere = content.check((chunk(1), 0), &bytes, |_| (0, 9));
        assert_eq!(elsewhere, Err((0, Fault::Foreign)), "of another offset");
        let other = content.check((chunk(2), 8192), &bytes, |_| (0, 9));
        assert_eq!(other, Err((8192, Fault::Foreign)), "of another chunk");
        let run = Content::new((7, 2), PAGE, true).check(at, &bytes, |_| (0, 9));
        assert_eq!(run, Err((8192, Fault::Foreign)), "of another run");
        let old = content.check(at, &bytes, |_| (4, 5));
        assert_eq!(old, Err((8192, Fault::Version { found: 3, least: 4, most: 5 })));
        for place in [STAMP_BYTES, PAGE - 1, 2 * PAGE - 1] {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let page = 8192 + (place / PAGE * PAGE) as u64;
            assert_eq!(content.check(at, &changed, |_| (3, 3)), Err((page, Fault::Body)));
        }
    }

    #[test]
    fn without_a_check_a_buffer_is_filled_once_and_stamped_each_time() {
        let content = Content::new((7, 1), PAGE, false);
        let mut bytes = vec![0; PAGE];
        content.fill((chunk(1), 0), &mut bytes, |_| 1);
        let first = bytes.clone();
        assert!(first[STAMP_BYTES..].iter().filter(|byte| **byte == 0).count() < 64);
        content.fill((chunk(1), 4096), &mut bytes, |_| 2);
        assert_eq!(bytes[STAMP_BYTES..], first[STAMP_BYTES..]);
        assert_ne!(bytes[..STAMP_BYTES], first[..STAMP_BYTES]);
    }

    #[test]
    fn a_page_may_have_the_versions_between_the_acknowledged_and_the_sent_one() {
        let mut versions = Versions::new(2);
        versions.send(1);
        assert!(versions.is_written(1) && !versions.is_written(0));
        assert_eq!((versions.stored(1), versions.sent(1)), (0, 1));
        versions.store(1);
        assert!(!versions.is_written(1));
        assert_eq!((versions.stored(1), versions.sent(1)), (1, 1));
    }
}
