//! Stores of the format before, as its program left them: for the tests of what reads them.

use std::fs;
use std::path::Path;

use towpath_base::crc::crc32c;

use super::checkpoint::{CHUNK_FIXED_BYTES, RUN_BYTES, SUSPECT};
use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, data_name, log_name, map_name};
use super::map::{Chunk, ChunkMap};
use crate::store::limits::CHUNK_BYTES_MAX;
use crate::store::place::LOST_PAGE;
use crate::store::record::{Extent, Frame, LogKey, Op, RESIDENT, UNFINISHED, parse_record};
use crate::store::request::NewChunk;
use crate::store::results::ChunkStat;
use crate::store::slice::{ChunkId, SLICE_BYTES, slice_crc};

const STORE_ID: u64 = 5;
const NONCE: u64 = 99;
const LOG_BYTES: usize = 64 << 10;
const SEGMENT_PAGES: u32 = 256;

/// A store of one segment, in memory.
pub(crate) struct OldStore {
    map: ChunkMap,
    /// What the newest map file holds, and the number of the next record then.
    base: (ChunkMap, u64),
    generation: u64,
    records: Vec<u8>,
    next_sequence: u64,
    last_crc: u32,
    segment: Vec<u8>,
}

impl OldStore {
    pub(crate) fn new() -> Self {
        let header = FileHeader::new(FileKind::Data, STORE_ID, 0, SEGMENT_PAGES);
        Self {
            map: ChunkMap::default(),
            base: (ChunkMap::default(), 1),
            generation: 1,
            records: Vec::new(),
            next_sequence: 1,
            last_crc: 0,
            segment: header.emit().to_vec(),
        }
    }

    fn push(&mut self, chunk: ChunkId, op: &Op<'_>) {
        let frame = Frame {
            sequence: self.next_sequence,
            durable_sequence: self.next_sequence - 1,
            generation: self.generation,
            previous_crc: self.last_crc,
        };
        let (from, key) = (self.records.len(), LogKey::new(NONCE));
        self.last_crc = op.encode(key, frame, (chunk, 0), &mut self.records);
        self.next_sequence += 1;
        let (record, _) = parse_record(&self.records[from..], key).expect("it was just made");
        self.map.apply(&record, |_| ()).expect("the test asks for what can be");
    }

    pub(crate) fn create(&mut self, chunk: ChunkId, limit_bytes: Option<u64>, unfinished: bool) {
        let limit_bytes = limit_bytes.unwrap_or(CHUNK_BYTES_MAX);
        let kind = NewChunk { unfinished, ..NewChunk::default() };
        self.push(chunk, &Op::Create { limit_bytes, kind });
    }

    /// Writes from the beginning of slice `first` on, over whatever was there.
    pub(crate) fn write(&mut self, chunk: ChunkId, first: u64, bytes: &[u8]) {
        let page = (self.segment.len() / SLICE_BYTES) as u32;
        let mut crcs = Vec::new();
        for (slice, part) in (first..).zip(bytes.chunks(SLICE_BYTES)) {
            let mut whole = part.to_vec();
            whole.resize(SLICE_BYTES, 0);
            crcs.push(slice_crc(chunk, slice, &whole));
            self.segment.extend_from_slice(&whole);
        }
        let extents = [Extent { page, count: crcs.len() as u32 }];
        let (offset, byte_len) = (first * SLICE_BYTES as u64, bytes.len() as u64);
        self.push(
            chunk,
            &Op::Write { data_page: None, offset, byte_len, extents: &extents, crcs: &crcs },
        );
    }

    pub(crate) fn checkpoint(&mut self) {
        self.base = (self.map.clone(), self.next_sequence);
        self.generation += 1;
        self.records.clear();
        self.last_crc = 0;
    }

    pub(crate) fn list(&self) -> Vec<ChunkStat> {
        let stat = |(chunk, found): (&ChunkId, &Chunk)| ChunkStat {
            chunk: *chunk,
            byte_len: found.byte_len,
            limit_bytes: found.limit_bytes,
            version: found.version,
            suspect: false,
            unfinished: found.unfinished,
            resident: found.resident,
            chain: 0,
        };
        self.map.chunks.iter().map(stat).collect()
    }

    /// Flips a bit of the slice at whose beginning these bytes stand.
    pub(crate) fn damage(&mut self, bytes: &[u8]) {
        let mut pages = self.segment.chunks_exact_mut(SLICE_BYTES);
        let page = pages.find(|page| page.starts_with(bytes)).expect("it is stored");
        page[9] ^= 4;
    }

    /// Writes its files into a folder.
    pub(crate) fn save(&self, dir: &Path) {
        let save = |name: &str, bytes: &[u8]| {
            fs::write(dir.join(name), bytes).expect("room for a file");
        };
        let header = FileHeader {
            number: self.generation,
            next_sequence: self.base.1,
            log_nonce: NONCE,
            ..FileHeader::new(FileKind::Map, STORE_ID, self.generation, SEGMENT_PAGES)
        };
        let mut segment = self.segment.clone();
        segment.resize(SEGMENT_PAGES as usize * SLICE_BYTES, 0);
        save(&data_name(0), &segment);
        save(&map_name(self.generation), &encode_checkpoint(header, &self.base.0));
        let header = FileHeader { kind: FileKind::Log, body_len: LOG_BYTES as u64, ..header };
        let mut copy = header.emit().to_vec();
        assert_eq!(copy.len(), FILE_HEADER_BYTES);
        copy.extend_from_slice(&self.records);
        copy.resize(LOG_BYTES, 0);
        save(&log_name(self.generation), &copy.repeat(2));
    }
}

/// The file that holds `map`; `header` gives the fields that the map does not.
fn encode_checkpoint(header: FileHeader, map: &ChunkMap) -> Vec<u8> {
    let estimate =
        map.chunks.len() * (CHUNK_FIXED_BYTES + RUN_BYTES) + map.live_slices as usize * 5;
    let mut out = Vec::with_capacity(FILE_HEADER_BYTES + estimate);
    out.resize(FILE_HEADER_BYTES, 0);
    let mut crcs = Vec::new();
    for (id, chunk) in &map.chunks {
        out.extend_from_slice(&id.0.to_le_bytes());
        out.extend_from_slice(&chunk.byte_len.to_le_bytes());
        let suspect = if chunk.suspect { SUSPECT } else { 0 };
        let unfinished = if chunk.unfinished { UNFINISHED } else { 0 };
        let flags = suspect | unfinished | if chunk.resident { RESIDENT } else { 0 };
        out.extend_from_slice(&(chunk.limit_bytes | flags).to_le_bytes());
        out.extend_from_slice(&chunk.version.to_le_bytes());
        let counts_at = out.len();
        out.extend_from_slice(&[0; 8]);
        let runs = encode_runs(chunk, &mut out, &mut crcs);
        out[counts_at..counts_at + 4].copy_from_slice(&runs.to_le_bytes());
        out[counts_at + 4..counts_at + 8].copy_from_slice(&(crcs.len() as u32).to_le_bytes());
        crcs.drain(..).for_each(|crc: u32| out.extend_from_slice(&crc.to_le_bytes()));
    }
    let body = &out[FILE_HEADER_BYTES..];
    let header = FileHeader {
        body_crc: crc32c(body),
        body_len: body.len() as u64,
        chunk_count: map.chunks.len() as u64,
        ..header
    };
    out[..FILE_HEADER_BYTES].copy_from_slice(&header.emit());
    out
}

fn encode_runs(chunk: &Chunk, out: &mut Vec<u8>, crcs: &mut Vec<u32>) -> u32 {
    let mut runs = 0;
    let mut run: Option<(u32, u32, u32)> = None;
    let mut emit = |run: (u32, u32, u32)| {
        out.extend_from_slice(&run.0.to_le_bytes());
        out.extend_from_slice(&run.1.to_le_bytes());
        out.extend_from_slice(&run.2.to_le_bytes());
        runs += 1;
    };
    for (index, slice) in chunk.slices_from(0) {
        let index = index as u32;
        crcs.push(slice.crc);
        match &mut run {
            Some((first, page, count))
                if *first + *count == index
                    && slice.page != LOST_PAGE
                    && page.checked_add(*count) == Some(slice.page) =>
            {
                *count += 1;
            }
            other => {
                if let Some(done) = other.replace((index, slice.page, 1)) {
                    emit(done);
                }
            }
        }
    }
    if let Some(done) = run {
        emit(done);
    }
    runs
}
