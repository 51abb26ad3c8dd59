//! What all pages of metadata begin with: what they are, whose, how old, and their checksum.

use towpath_base::crc::{Crc32c, crc32c};

use crate::store::bytes::{u32_at, u64_at};

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = towpath_disk::PAGE_BYTES;

/// One page.
pub(crate) type PageBytes = [u8; PAGE_BYTES];

/// Bytes before the content of a page.
pub(crate) const HEAD_BYTES: usize = 64;

/// Version of the format, the same in all pages.
const VERSION: u32 = 5;

/// The version before, which has nothing that this one reads in another way.
const VERSION_BEFORE: u32 = 4;

mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const CRC: usize = 8;
    pub(super) const VERSION: usize = 12;
    pub(super) const STORE_ID: usize = 16;
    pub(super) const GENERATION: usize = 24;
    pub(super) const INDEX: usize = 32;
}

/// What kind of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Superblock,
    Map,
    Directory,
}

impl Kind {
    fn magic(self) -> [u8; 8] {
        *match self {
            Self::Superblock => b"TWPSUPER",
            Self::Map => b"TWPMAPPG",
            Self::Directory => b"TWPDIRPG",
        }
    }

    /// Whether bytes begin as a page of this kind does.
    pub(crate) fn begins(self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.magic())
    }
}

/// Whose page it is, of which checkpoint, and its place among its like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageHead {
    pub(crate) store_id: u64,
    pub(crate) generation: u64,
    pub(crate) index: u64,
}

/// Why a page is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    #[error("it is no such page")]
    Magic,
    #[error("its checksum is wrong")]
    Crc,
    #[error("it is of format version {0}, and this program knows {VERSION}")]
    Version(u32),
    #[error("it says something impossible")]
    Impossible,
}

pub(crate) fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Completes a page; gives its checksum.
pub(crate) fn seal(page: &mut PageBytes, kind: Kind, head: PageHead) -> u32 {
    put(page, field::MAGIC, &kind.magic());
    put(page, field::VERSION, &VERSION.to_le_bytes());
    put(page, field::STORE_ID, &head.store_id.to_le_bytes());
    put(page, field::GENERATION, &head.generation.to_le_bytes());
    put(page, field::INDEX, &head.index.to_le_bytes());
    put(page, field::CRC, &[0; 4]);
    let crc = crc32c(page);
    put(page, field::CRC, &crc.to_le_bytes());
    crc
}

/// What a page says of itself, and its checksum.
pub(crate) fn open(page: &PageBytes, kind: Kind) -> Result<(PageHead, u32), PageError> {
    if page[..8] != kind.magic() {
        return Err(PageError::Magic);
    }
    let crc = u32_at(page, field::CRC);
    let mut found = Crc32c::new();
    found.update(&page[..field::CRC]);
    found.update(&[0; field::VERSION - field::CRC]);
    found.update(&page[field::VERSION..]);
    if found.value() != crc {
        return Err(PageError::Crc);
    }
    match u32_at(page, field::VERSION) {
        VERSION | VERSION_BEFORE => {}
        other => return Err(PageError::Version(other)),
    }
    let head = PageHead {
        store_id: u64_at(page, field::STORE_ID),
        generation: u64_at(page, field::GENERATION),
        index: u64_at(page, field::INDEX),
    };
    Ok((head, crc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_from_others_and_no_flipped_bit_passes() {
        let mut page = [7; PAGE_BYTES];
        let head = PageHead { store_id: 1, generation: 2, index: 3 };
        let crc = seal(&mut page, Kind::Map, head);
        assert_eq!(open(&page, Kind::Map), Ok((head, crc)));
        assert_eq!(open(&page, Kind::Directory), Err(PageError::Magic));
        for bit in (0..PAGE_BYTES * 8).step_by(13) {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&page, Kind::Map).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
