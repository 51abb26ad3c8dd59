//! What a disk without a store holds at its ends, so that nothing is destroyed unasked.

use std::io;
use std::ops::Range;

use towpath_disk::PageNumber;

use super::blocking::Blocking;
use super::memory::LONG_PAGES;
use super::open::io_error;
use super::page::{Kind, PAGE_BYTES, PageBytes};
use super::recover::{is_blank, no_superblock};
use super::superblock::is_first_write;
use crate::store::error::OpenError;
use crate::store::media::MediaOp;

/// Pages that are looked at from the beginning, 16 MiB: partition tables, file systems and the
/// partitions of usual alignments begin there.
const HEAD_PAGES: u64 = 4096;

/// Pages that are looked at to the end, 4 MiB: copies of partition tables and labels are there.
const TAIL_PAGES: u64 = 1024;

/// Bytes by which something is known: `magic` is `at` bytes behind its beginning, which lies at a
/// multiple of `step`.
struct Signature {
    name: &'static str,
    at: usize,
    magic: &'static [u8],
    step: usize,
}

const fn known(name: &'static str, at: usize, magic: &'static [u8]) -> Signature {
    Signature { name, at, magic, step: PAGE_BYTES }
}

/// What is named in the refusal; whatever is not zeros is refused, also without a name. Names and
/// places are those of libblkid (util-linux, libblkid/src/superblocks).
const SIGNATURES: [Signature; 27] = [
    known("a LUKS volume", 0, b"LUKS\xba\xbe"),
    known("an LVM physical volume", 512, b"LABELONE"),
    known("an LVM physical volume", 0, b"LABELONE"),
    known("a Linux RAID member", 0, b"\xfc\x4e\x2b\xa9"),
    known("an ext2, ext3 or ext4 file system", 1024 + 56, b"\x53\xef"),
    known("an XFS file system", 0, b"XFSB"),
    known("a btrfs file system", (64 << 10) + 64, b"_BHRfS_M"),
    known("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    known("an NTFS file system", 3, b"NTFS    "),
    known("an exFAT file system", 3, b"EXFAT   "),
    known("a FAT file system", 82, b"FAT32   "),
    known("a FAT file system", 54, b"FAT16   "),
    known("a FAT file system", 54, b"FAT12   "),
    known("a squashfs file system", 0, b"hsqs"),
    known("an ISO 9660 file system", (32 << 10) + 1, b"CD001"),
    known("a bcache device", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    known("a Ceph BlueStore device", 0, b"bluestore block device"),
    known("a swap area", PAGE_BYTES - 10, b"SWAPSPACE2"),
    known("a swap area", PAGE_BYTES - 10, b"SWAP-SPACE"),
    known("an SQLite database", 0, b"SQLite format 3\0"),
    known("a QEMU disk image", 0, b"QFI\xfb"),
    known("a tar archive", 257, b"ustar"),
    known("a ZIP archive", 0, b"PK\x03\x04"),
    known("a gzip file", 0, b"\x1f\x8b\x08"),
    // An uberblock, of which a label has many, in the byte order of either kind of machine.
    Signature { name: "a ZFS pool member", at: 0, magic: b"\x0c\xb1\xba\0\0\0\0\0", step: 1024 },
    Signature { name: "a ZFS pool member", at: 0, magic: b"\0\0\0\0\0\xba\xb1\x0c", step: 1024 },
    Signature { name: "a GPT partition table", at: 0, magic: b"EFI PART", step: 512 },
];

/// What the first sector of a disk with partitions ends with.
const MBR: (usize, &[u8]) = (510, b"\x55\xaa");

/// Makes sure that a disk without a superblock may become a store: nothing is lost with what is
/// there. With `formats` what is of others is destroyed, which the log says.
///
/// # Errors
/// [`OpenError::Foreign`] where something is there, [`OpenError::Checkpoint`] where that was a
/// store.
pub(super) fn clear_for_store(disk: &mut Blocking<'_>, formats: bool) -> Result<(), OpenError> {
    let ends = Ends::read(disk).map_err(io_error(MediaOp::Read))?;
    let Some(first) = ends.first_used() else { return Ok(()) };
    if ends.is_of_a_store() {
        return match ends.is_unfinished() {
            true => Ok(()),
            false => Err(no_superblock()),
        };
    }
    let (what, offset) = ends.recognise().unwrap_or(("something unknown", first.byte_offset()));
    if !formats {
        return Err(OpenError::Foreign { what, offset });
    }
    tracing::warn!(what, offset, "--format: what the disk holds is destroyed, and a store made");
    ends.wipe(disk).map_err(io_error(MediaOp::Write))
}

/// The pages at both ends of a disk.
struct Ends {
    page_count: u64,
    /// With the number of the first page of each.
    parts: Vec<(u64, Vec<u8>)>,
    /// The first page that cannot be read.
    unreadable: Option<PageNumber>,
}

impl Ends {
    fn read(disk: &mut Blocking<'_>) -> io::Result<Self> {
        let page_count = disk.disk().page_count();
        let head = HEAD_PAGES.min(page_count);
        let tail = page_count.saturating_sub(TAIL_PAGES).max(head);
        let (mut parts, mut unreadable) = (Vec::new(), None);
        for part in [0..head, tail..page_count] {
            let bytes = read_run(disk, part.clone(), &mut unreadable)?;
            parts.push((part.start, bytes));
        }
        Ok(Self { page_count, parts, unreadable })
    }

    fn pages(&self) -> impl Iterator<Item = (PageNumber, &PageBytes)> {
        self.parts.iter().flat_map(|(first, bytes)| {
            (*first..).map(PageNumber).zip(bytes.as_chunks::<PAGE_BYTES>().0)
        })
    }

    /// The first page that is not known to be zeros.
    fn first_used(&self) -> Option<PageNumber> {
        let used = self.pages().find(|(_, page)| !is_blank(page)).map(|(at, _)| at);
        used.into_iter().chain(self.unreadable).min()
    }

    /// Whether a store was there, or was being made.
    fn is_of_a_store(&self) -> bool {
        let kinds = [Kind::Superblock, Kind::Map, Kind::Directory];
        let begins = |bytes: &[u8]| kinds.iter().any(|kind| kind.begins(bytes));
        // Superblocks that cannot be read may be whole.
        let is_superblock = |at: PageNumber| at.0 == 0 || at.0 + 1 == self.page_count;
        self.unreadable.is_some_and(is_superblock)
            || self.pages().any(|(_, page)| page.chunks(1024).any(begins))
    }

    /// Whether all that is there is a superblock whose first write was cut short: nothing was
    /// written to the log then, or it would not be zeros.
    fn is_unfinished(&self) -> bool {
        let is_superblock = |at: PageNumber| at.0 == 0 || at.0 + 1 == self.page_count;
        let used = self.pages().filter(|(_, page)| !is_blank(page));
        self.unreadable.is_none()
            && used.into_iter().all(|(at, page)| is_superblock(at) && is_first_write(page))
    }

    /// What is there and where it begins, if that is known.
    fn recognise(&self) -> Option<(&'static str, u64)> {
        let found = SIGNATURES.iter().filter_map(|Signature { name, at, magic, step }| {
            let mut begins = self.parts.iter().flat_map(|(first, bytes)| {
                let base = PageNumber(*first).byte_offset();
                let is_there = |begin: &usize| {
                    let found = bytes.get(begin + at..begin + at + magic.len());
                    found.is_some_and(|found| found == *magic)
                };
                (0..bytes.len()).step_by(*step).filter(is_there).map(move |at| base + at as u64)
            });
            begins.next().map(|begin| (*name, begin))
        });
        let (at, magic) = MBR;
        let is_mbr = self.parts[0].1.get(at..at + magic.len()) == Some(magic);
        found.min_by_key(|(_, begin)| *begin).or(is_mbr.then_some(("an MBR partition table", 0)))
    }

    fn wipe(&self, disk: &mut Blocking<'_>) -> io::Result<()> {
        let zeros = vec![0; LONG_PAGES * PAGE_BYTES];
        for (first, bytes) in &self.parts {
            let pages = *first..*first + (bytes.len() / PAGE_BYTES) as u64;
            for at in pages.clone().step_by(LONG_PAGES) {
                let count = (pages.end - at).min(LONG_PAGES as u64) as usize;
                disk.write(PageNumber(at), &zeros[..count * PAGE_BYTES])?;
            }
        }
        disk.flush()
    }
}

fn read_run(
    disk: &mut Blocking<'_>,
    pages: Range<u64>,
    unreadable: &mut Option<PageNumber>,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (pages.end - pages.start) as usize * PAGE_BYTES];
    let wanted = pages.clone().map(|at| (at, PageNumber(at)));
    disk.each(wanted, |at, page| {
        let from = (at - pages.start) as usize * PAGE_BYTES;
        match page {
            Some(page) => bytes[from..from + PAGE_BYTES].copy_from_slice(page),
            None => {
                *unreadable = Some(PageNumber(unreadable.map_or(at, |known| known.0.min(at))));
            }
        }
    })?;
    Ok(bytes)
}
