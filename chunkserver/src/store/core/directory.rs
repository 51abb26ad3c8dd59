//! The directory: which of its two places holds each page of the map, and which bytes are there
//! (docs/store-core.md section 5).

use super::page::{HEAD_BYTES, Kind, PAGE_BYTES, PageBytes, PageError, PageHead, open, put, seal};
use crate::store::bytes::{u32_at, u64_at};

const ENTRY_BYTES: usize = 16;

/// Entries of a page.
pub(crate) const ENTRIES: usize = (PAGE_BYTES - HEAD_BYTES) / ENTRY_BYTES;

/// One page of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The checkpoint that wrote it; zero for one that was never written, and has no block.
    pub(crate) generation: u64,
    pub(crate) crc: u32,
    /// Which of its places.
    pub(crate) place: u8,
}

/// The bytes of a page of entries.
pub(crate) fn encode(head: PageHead, entries: impl Iterator<Item = Entry>) -> Box<PageBytes> {
    let mut page = Box::new([0; PAGE_BYTES]);
    for (number, entry) in entries.take(ENTRIES).enumerate() {
        let at = HEAD_BYTES + number * ENTRY_BYTES;
        put(&mut page[..], at, &entry.generation.to_le_bytes());
        put(&mut page[..], at + 8, &entry.crc.to_le_bytes());
        page[at + 12] = entry.place;
    }
    seal(&mut page, Kind::Directory, head);
    page
}

/// The entries of a page. Never panics, whatever the bytes are.
pub(crate) fn decode(page: &PageBytes) -> Result<(PageHead, [Entry; ENTRIES]), PageError> {
    let (head, _) = open(page, Kind::Directory)?;
    let mut entries = [Entry::default(); ENTRIES];
    for (number, entry) in entries.iter_mut().enumerate() {
        let at = HEAD_BYTES + number * ENTRY_BYTES;
        let place = page[at + 12];
        if place > 1 || page[at + 13..at + ENTRY_BYTES] != [0; 3] {
            return Err(PageError::Impossible);
        }
        let (generation, crc) = (u64_at(page, at), u32_at(page, at + 8));
        *entry = Entry { generation, crc, place };
    }
    Ok((head, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_their_bytes() {
        let entry =
            |n: usize| Entry { generation: n as u64, crc: 7 * n as u32, place: n as u8 & 1 };
        let head = PageHead { store_id: 1, generation: 9, index: 4 };
        let mut page = encode(head, (0..ENTRIES + 5).map(entry));
        let (found, entries) = decode(&page).expect("it is whole");
        assert_eq!((found, entries.to_vec()), (head, (0..ENTRIES).map(entry).collect()));
        page[HEAD_BYTES + 12] = 2;
        seal(&mut page, Kind::Directory, head);
        assert_eq!(decode(&page), Err(PageError::Impossible), "there are two places");
    }
}
