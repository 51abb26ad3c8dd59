//! Makes a store on a disk that has none.

use std::io;

use super::blocking::Blocking;
use super::layout::{LOG_COPIES, Layout};
use super::memory::LONG_PAGES;
use super::page::PAGE_BYTES;
use super::ring::Ring;
use super::superblock::{LogPoint, Superblock, encode_page};

/// Makes an empty store, whose first record has this number; the superblock comes last.
///
/// The log is filled with zeros: a write to pages that a file system has only set aside costs its
/// journal a write more, with each flush.
pub(super) fn create(
    disk: &mut Blocking<'_>,
    layout: Layout,
    ring: Ring,
    (store_id, log_nonce): (u64, u64),
    is_sparse: bool,
    first_sequence: u64,
) -> io::Result<()> {
    let zeros = vec![0; 16 * LONG_PAGES * PAGE_BYTES];
    for copy in 0..LOG_COPIES {
        let mut page = 0;
        while page < ring.now.pages {
            let count = (ring.now.pages - page).min(16 * LONG_PAGES as u64);
            disk.write(layout.log_slot(copy, page), &zeros[..count as usize * PAGE_BYTES])?;
            page += count;
        }
    }
    disk.write(layout.superblock(0), &zeros[..PAGE_BYTES])?;
    disk.write(layout.superblock(1), &zeros[..PAGE_BYTES])?;
    disk.flush()?;
    let start = LogPoint { page: 0, sequence: first_sequence, crc: 0 };
    let superblock = Superblock {
        store_id,
        generation: 1,
        layout,
        is_sparse,
        log_nonce,
        start,
        ring,
        map_pages_used: 0,
        written_pages: 0,
    };
    // Two generations of the same: from the first moment on one of them may be damaged.
    let next = Superblock { generation: superblock.generation + 1, ..superblock };
    for (own, other) in
        [(&superblock, None), (&next, Some(&superblock)), (&superblock, Some(&next))]
    {
        disk.write(layout.superblock(own.generation), &encode_page(Some(own), other)[..])?;
        disk.flush()?;
    }
    Ok(())
}
