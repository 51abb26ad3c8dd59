//! Stores of the format before, as its program left them: for the tests of what reads them.

use std::fs;
use std::path::Path;

use super::checkpoint::encode_checkpoint;
use super::engine::ChunkStat;
use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, data_name, log_name, map_name};
use super::limits::CHUNK_BYTES_MAX;
use super::map::ChunkMap;
use super::record::{Extent, Frame, LogKey, Op, parse_record};
use super::slice::{ChunkId, SLICE_BYTES, slice_crc};

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
        self.last_crc = op.encode(key, frame, chunk, &mut self.records);
        self.next_sequence += 1;
        let (record, _) = parse_record(&self.records[from..], key).expect("it was just made");
        self.map.apply(&record, |_| ()).expect("the test asks for what can be");
    }

    pub(crate) fn create(&mut self, chunk: ChunkId, limit_bytes: Option<u64>, unfinished: bool) {
        let limit_bytes = limit_bytes.unwrap_or(CHUNK_BYTES_MAX);
        self.push(chunk, &Op::Create { limit_bytes, unfinished, resident: false });
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
        self.push(chunk, &Op::Write { offset, byte_len, extents: &extents, crcs: &crcs });
    }

    pub(crate) fn checkpoint(&mut self) {
        self.base = (self.map.clone(), self.next_sequence);
        self.generation += 1;
        self.records.clear();
        self.last_crc = 0;
    }

    pub(crate) fn list(&self) -> Vec<ChunkStat> {
        let stat = |(chunk, found): (&ChunkId, &super::map::Chunk)| ChunkStat {
            chunk: *chunk,
            byte_len: found.byte_len,
            limit_bytes: found.limit_bytes,
            version: found.version,
            suspect: false,
            unfinished: found.unfinished,
            resident: found.resident,
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
