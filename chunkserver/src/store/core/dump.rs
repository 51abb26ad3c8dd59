//! What a store that no server has holds, row by row, for people who look for a fault.

use std::io;

use towpath_disk::Disk;

use super::blocking::Blocking;
use super::memory::Memory;
use super::open::io_error;
use super::page::PAGE_BYTES;
use super::recover::{read, read_superblocks};
use super::replay::data_end;
use super::superblock::Superblock;
use super::tape::Tape;
use crate::store::damage::Damage;
use crate::store::error::OpenError;
use crate::store::limits::RECORD_BODY_BYTES_MAX;
use crate::store::media::MediaOp;
use crate::store::place::LOST_PAGE;
use crate::store::record::{Body, LogKey, RECORD_HEADER_BYTES, Record};
use crate::store::results::ChunkStat;
use crate::store::slice::ChunkId;

/// What is wanted beside superblocks, damage and chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpWanted {
    /// The records of the log since the newest checkpoint.
    pub log: bool,
    /// Where the slices of a chunk lie.
    pub slices: Option<ChunkId>,
}

/// One thing that a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpRow {
    /// A superblock that is whole, the newest first. Its nonce is told to nobody.
    Superblock {
        /// The generation that it begins.
        generation: u64,
        /// The number of the store.
        store_id: u64,
        /// Pages of the disk.
        page_count: u64,
        /// Pages of each copy of the log.
        log_pages: u64,
        /// Pages of the map.
        map_pages: u32,
        /// Pages of data.
        data_pages: u32,
        /// Pages of data that were written once.
        written_pages: u32,
        /// Pages take their room when they are written.
        is_sparse: bool,
        /// Page of the log where it begins, counted from the beginning of all time.
        log_page: u64,
        /// Number of the first record there.
        sequence: u64,
    },
    /// Something is damaged.
    Damage(Damage),
    /// A record of the log, in the order in which they were made.
    Record {
        /// Byte offset in the disk of its first copy.
        offset: u64,
        /// Its number, which is the version that it gives to its chunk.
        sequence: u64,
        /// The last record that was durable when it was written.
        durable_sequence: u64,
        /// The chunk that it changes; zero in a seal.
        chunk: ChunkId,
        /// What it does: create, write, finish, chain, clear, delete, seal or void.
        kind: &'static str,
        /// First byte of a write; the limit of a new chunk; the chain version that a chunk gets.
        at: u64,
        /// Bytes of a write.
        byte_len: u64,
        /// Runs of pages of a write.
        extents: u64,
    },
    /// A chunk, in the order of names.
    Chunk(ChunkStat, u64),
    /// A slice of the chunk that was asked for.
    Slice {
        /// Its index.
        slice: u64,
        /// Its page of data; none where it is lost.
        page: Option<u32>,
        /// Byte offset of that page in the disk.
        offset: Option<u64>,
        /// Its checksum.
        crc: u32,
    },
}

/// Gives `take` what the store on `disk` holds, row by row, until it wants no more. Changes
/// nothing.
///
/// # Errors
/// As [`check_core`](super::check_core), after the rows of what can be read.
pub fn dump_core(
    disk: &mut dyn Disk,
    wanted: DumpWanted,
    take: &mut dyn FnMut(DumpRow) -> bool,
) -> Result<(), OpenError> {
    let memory = Memory::new().map_err(io_error(MediaOp::Open))?;
    let mut disk = Blocking::new(disk, &memory);
    let superblocks = read_superblocks(&mut disk)?;
    for superblock in &superblocks.found {
        if !take(row_of(superblock)) {
            return Ok(());
        }
    }
    let newest = superblocks.found.first().copied();
    if let Some(newest) = newest.filter(|_| wanted.log)
        && !dump_log(&mut disk, &newest, take).map_err(io_error(MediaOp::Read))?
    {
        return Ok(());
    }
    let opened = read(&mut disk, superblocks, false)?;
    let (map, layout) = (&opened.loaded.map, &opened.superblock.layout);
    for damage in &opened.loaded.damage {
        if !take(DumpRow::Damage(damage.clone())) {
            return Ok(());
        }
    }
    if let Some(chunk) = wanted.slices {
        let slices = map.chunks.get(&chunk).into_iter().flat_map(|found| found.slices_from(0));
        for (slice, at) in slices {
            let page = Some(at.page).filter(|&page| page != LOST_PAGE && layout.has(page));
            let offset = page.map(|page| layout.data_page(page).byte_offset());
            if !take(DumpRow::Slice { slice, page, offset, crc: at.crc }) {
                return Ok(());
            }
        }
        return Ok(());
    }
    for (&chunk, found) in &map.chunks {
        if !take(DumpRow::Chunk(found.stat(chunk), found.slices_from(0).count() as u64)) {
            return Ok(());
        }
    }
    Ok(())
}

fn row_of(superblock: &Superblock) -> DumpRow {
    let Superblock { store_id, generation, layout, is_sparse, start, written_pages, .. } =
        *superblock;
    DumpRow::Superblock {
        generation,
        store_id,
        page_count: layout.page_count,
        log_pages: superblock.ring.now.pages,
        map_pages: layout.map_pages,
        data_pages: layout.data_pages,
        written_pages,
        is_sparse,
        log_page: start.page,
        sequence: start.sequence,
    }
}

/// The records from the beginning of a generation to the first that is not there; false when no
/// more are wanted.
fn dump_log(
    disk: &mut Blocking<'_>,
    superblock: &Superblock,
    take: &mut dyn FnMut(DumpRow) -> bool,
) -> io::Result<bool> {
    let (layout, start) = (&superblock.layout, superblock.start);
    let mut tape =
        Tape::new(layout, superblock.ring, LogKey::new(superblock.log_nonce), start.page);
    let (mut at, mut due, mut group_end) = (0, start.sequence, 0);
    loop {
        tape.read_to(disk, at + RECORD_HEADER_BYTES + RECORD_BODY_BYTES_MAX)?;
        match tape.numbered(at, due) {
            Some((record, len)) => {
                let page = tape.place(0, (at / PAGE_BYTES) as u64);
                let offset = page.byte_offset() + (at % PAGE_BYTES) as u64;
                if !take(row_of_record(&record, offset)) {
                    return Ok(false);
                }
                group_end = group_end.max(data_end(&record, at));
                (at, due) = (at + len, due + 1);
            }
            // The rest of the last page of a group is zeros, and slices may stand behind it.
            _ if at % PAGE_BYTES > 0 || at < group_end => {
                at = at.next_multiple_of(PAGE_BYTES).max(group_end);
            }
            _ => return Ok(true),
        }
    }
}

fn row_of_record(record: &Record<'_>, offset: u64) -> DumpRow {
    let (kind, at, byte_len, extents) = match &record.body {
        Body::Create { limit_bytes, .. } => ("create", *limit_bytes, 0, 0),
        Body::Write(write) => ("write", write.offset, write.byte_len, write.extent_count() as u64),
        Body::Finish => ("finish", 0, 0, 0),
        Body::Chain { chain } => ("chain", (*chain).into(), 0, 0),
        Body::Clear(clear) => {
            let bytes = |slices: u64| slices.saturating_mul(PAGE_BYTES as u64);
            ("clear", bytes(clear.first), bytes(clear.count), 0)
        }
        Body::Delete => ("delete", 0, 0, 0),
        Body::Seal => ("seal", 0, 0, 0),
        Body::Void { .. } => ("void", 0, 0, 0),
    };
    let (sequence, durable_sequence) = (record.frame.sequence, record.frame.durable_sequence);
    let chunk = record.chunk;
    DumpRow::Record { offset, sequence, durable_sequence, chunk, kind, at, byte_len, extents }
}
