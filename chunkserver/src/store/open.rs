//! Opening: the checkpoint, the replay of the log, and the end of the log made sound again.

use std::collections::HashMap;
use std::io;

use super::checkpoint::{encode_checkpoint, parse_checkpoint, write_map};
use super::config::StoreConfig;
use super::engine::Store;
use super::error::{OpenError, WriteError};
use super::header::{
    FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, FileKind, HeaderError, MAP_TEMPORARY, data_name,
    log_name, map_name, number_in,
};
use super::limits::LOG_BYTES_MIN;
use super::log::{Log, make_log};
use super::map::ChunkMap;
use super::media::{Media, MediaError, MediaOp};
use super::pages::Pages;
use super::record::{RECORD_ALIGN, Record, RecordError, parse_frame, parse_record};
use super::scrub::ScrubCursor;
use super::settle::{segments_used, settle_log, settle_names, settle_segments};
use super::slice::SLICE_BYTES;
use super::space::Space;
use super::stats::StoreStats;

impl<M: Media> Store<M> {
    /// Opens the store on `media`, and makes one if there is none.
    ///
    /// Takes time in proportion to checkpoint and log, not to the data.
    ///
    /// # Errors
    /// See [`OpenError`]; the files are as they were.
    pub fn open(mut media: M, config: StoreConfig) -> Result<Self, OpenError> {
        let segment_pages = config.segment_pages()?;
        let capacity_pages = config.capacity_pages()?;
        let log_bytes = config.checked_log_bytes()?;
        media.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked,
            _ => MediaError::at(MediaOp::Lock, ".", 0)(error).into(),
        })?;
        let mut names = list(&media)?;
        if newest_map(&names).is_none() {
            if names.iter().any(|n| number_in(n, "data.").is_some()) {
                return Err(OpenError::MapMissing);
            }
            let identity = FileHeader::new(FileKind::Map, config.store_id, 0, segment_pages);
            format(&media, &identity, log_bytes)?;
            names = list(&media)?;
        }
        let generation = newest_map(&names).ok_or(OpenError::MapMissing)?;
        let file = map_name(generation);
        let mut checkpoint = parse_checkpoint(&read_file(&media, &file)?.1)
            .map_err(|source| OpenError::Checkpoint { file: file.clone(), source })?;
        checkpoint
            .header
            .belongs(&checkpoint.header, generation)
            .map_err(|source| OpenError::Header { file, source })?;
        let replayed = replay(&media, &checkpoint.header, &mut checkpoint.map)?;
        let FileHeader { store_id, segment_pages, .. } = checkpoint.header;
        let identity = FileHeader::new(FileKind::Map, store_id, 0, segment_pages);
        let mut space = Space::new(identity.segment_pages, capacity_pages);
        let pages = open_segments(&media, &identity, &checkpoint.map)?;
        pages.files.iter().for_each(|_| space.add_segment());
        space.claim(checkpoint.map.pages()).map_err(|clash| OpenError::Page { page: clash.0 })?;
        settle_log(&media, &replayed)?;
        settle_segments(&media, &identity, &pages, &checkpoint.map)?;
        let reserve = settle_names(&media, &names, generation, log_bytes)?;
        let mut store = Self {
            media,
            config,
            identity,
            pages,
            log: replayed.log,
            reserve,
            map: checkpoint.map,
            space,
            failed: None,
            staged: Vec::new(),
            pending: HashMap::new(),
            pending_chunks: 0,
            dirty: Vec::new(),
            scratch: Box::new([0; SLICE_BYTES]),
            extents: Vec::new(),
            crcs: Vec::new(),
            spare_slices: Vec::new(),
            scrub: ScrubCursor::default(),
            counts: StoreStats {
                records_replayed: replayed.records,
                torn_tail_bytes: replayed.torn_bytes,
                ..StoreStats::default()
            },
            #[cfg(test)]
            bug: None,
        };
        store.preallocate()?;
        Ok(store)
    }

    fn preallocate(&mut self) -> Result<(), OpenError> {
        let segment_bytes = u64::from(self.identity.segment_pages) * SLICE_BYTES as u64;
        let wanted = self.config.preallocate_bytes.div_ceil(segment_bytes);
        while (self.pages.files.len() as u64) < wanted && self.space.may_grow() {
            match self.add_segment(true) {
                Ok(true) => {}
                Ok(false) => break,
                Err(WriteError::Media(error)) => return Err(error.into()),
                // A failed flush: the opened store says so to every change.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

fn list<M: Media>(media: &M) -> Result<Vec<String>, MediaError> {
    media.list().map_err(MediaError::at(MediaOp::List, ".", 0))
}

pub(super) fn newest_map(names: &[String]) -> Option<u64> {
    names.iter().filter_map(|n| number_in(n, "map.")).max()
}

fn read_file<M: Media>(media: &M, name: &str) -> Result<(M::File, Vec<u8>), MediaError> {
    let file = media.open(name).map_err(MediaError::at(MediaOp::Open, name, 0))?;
    let len = media.len(&file).map_err(MediaError::at(MediaOp::Read, name, 0))?;
    let mut bytes = vec![0; len as usize];
    media.read_at(&file, 0, &mut bytes).map_err(MediaError::at(MediaOp::Read, name, 0))?;
    Ok((file, bytes))
}

/// Makes an empty store: its log, then its map, whose name says that all is there.
fn format<M: Media>(media: &M, identity: &FileHeader, log_bytes: u64) -> Result<(), MediaError> {
    let header = FileHeader { number: 1, next_sequence: 1, log_nonce: media.random(), ..*identity };
    make_log(media, &FileHeader { kind: FileKind::Log, ..header }, log_bytes)?;
    let name = MAP_TEMPORARY;
    let file = media.create(name).map_err(MediaError::at(MediaOp::Create, name, 0))?;
    write_map(media, name, &file, &encode_checkpoint(header, &ChunkMap::default()))?;
    media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))?;
    let name = map_name(1);
    media.rename(MAP_TEMPORARY, &name).map_err(MediaError::at(MediaOp::Rename, &name, 0))?;
    media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))
}

pub(super) struct Replayed<F> {
    pub(super) log: Log<F>,
    /// The log as it should be: sound records, then zeros.
    pub(super) bytes: Vec<u8>,
    records: u64,
    torn_bytes: u64,
}

/// Applies the records of the log that follows the checkpoint.
pub(super) fn replay<M: Media>(
    media: &M,
    map_header: &FileHeader,
    map: &mut ChunkMap,
) -> Result<Replayed<M::File>, OpenError> {
    let name = log_name(map_header.number);
    let (file, mut bytes) = read_file(media, &name)?;
    let refuse = |source| OpenError::Header { file: name.clone(), source };
    let header = FileHeader::parse(FileKind::Log, &bytes).map_err(refuse)?;
    header.belongs(map_header, map_header.number).map_err(refuse)?;
    if (bytes.len() as u64) < LOG_BYTES_MIN {
        return Err(refuse(HeaderError::Short));
    }
    if header.next_sequence != map_header.next_sequence {
        return Err(refuse(HeaderError::Foreign {
            field: "next_sequence",
            expected: map_header.next_sequence,
            found: header.next_sequence,
        }));
    }
    if header.log_nonce != map_header.log_nonce {
        return Err(refuse(HeaderError::Foreign {
            field: "log_nonce",
            expected: map_header.log_nonce,
            found: header.log_nonce,
        }));
    }
    let mut log = Log::new(file, &header, bytes.len() as u64);
    // What a new version knows to prevent holds from the next log on.
    log.wants_checkpoint = header.version != FORMAT_VERSION;
    let mut at = FILE_HEADER_BYTES;
    let mut records = 0;
    while let Some((record, len)) = next_record(&bytes, at, &log, &name)? {
        map.apply(&record, |_| ()).map_err(|source| OpenError::Apply {
            file: name.clone(),
            offset: at as u64,
            source,
        })?;
        log.last_crc = record.header_crc;
        log.next_sequence += 1;
        records += 1;
        at += len;
    }
    log.end = at as u64;
    log.durable_sequence = log.next_sequence - 1;
    let torn = bytes[at..].iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    bytes.truncate(at + torn);
    bytes[at..].fill(0);
    Ok(Replayed { log, bytes, records, torn_bytes: torn as u64 })
}

/// The record at `at`, or none when the log ends there.
///
/// Whatever follows the end is an unfinished commit, of which any part may have reached the
/// medium. A record further on that says that the one due here was durable proves otherwise
/// (docs/store-format.md section 8).
fn next_record<'a, F>(
    bytes: &'a [u8],
    at: usize,
    log: &Log<F>,
    name: &str,
) -> Result<Option<(Record<'a>, usize)>, OpenError> {
    let place = || (name.to_owned(), at as u64);
    match parse_record(&bytes[at..], log.key) {
        Ok((record, len)) => {
            let frame = record.frame;
            let chained = frame.previous_crc == log.last_crc && frame.generation == log.generation;
            let (expected, found) = (log.next_sequence, frame.sequence);
            if chained && found == expected {
                return Ok(Some((record, len)));
            }
            let (file, offset) = place();
            Err(OpenError::Sequence { file, offset, expected, found })
        }
        Err(source) => {
            let sound = matches!(source, RecordError::Impossible { .. });
            if sound || later_proof(&bytes[at..], log) {
                let (file, offset) = place();
                return Err(OpenError::LogDamaged { file, offset, source });
            }
            Ok(None)
        }
    }
}

fn later_proof<F>(bytes: &[u8], log: &Log<F>) -> bool {
    (0..bytes.len()).step_by(RECORD_ALIGN).any(|at| {
        parse_frame(&bytes[at..], log.key).is_some_and(|f| {
            f.generation == log.generation && f.durable_sequence >= log.next_sequence
        })
    })
}

fn open_segments<M: Media>(
    media: &M,
    identity: &FileHeader,
    map: &ChunkMap,
) -> Result<Pages<M::File>, OpenError> {
    let names = list(media)?;
    let used = segments_used(identity, map);
    let mut pages = Pages::new(identity.segment_pages);
    loop {
        let index = pages.files.len() as u32;
        let name = data_name(index);
        if index >= used && !names.contains(&name) {
            return Ok(pages);
        }
        let file = media.open(&name).map_err(MediaError::at(MediaOp::Open, &name, 0))?;
        let mut page = [0; FILE_HEADER_BYTES];
        let header = match media.read_at(&file, 0, &mut page) {
            Ok(()) => FileHeader::parse(FileKind::Data, &page)
                .and_then(|h| h.belongs(identity, u64::from(index))),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(HeaderError::Short),
            Err(e) => return Err(MediaError::at(MediaOp::Read, &name, 0)(e).into()),
        };
        match header {
            Ok(()) => pages.files.push(file),
            // No slice is in it: a crash interrupted its making, and it will be made anew.
            Err(HeaderError::Short | HeaderError::Magic(_) | HeaderError::Crc) if index >= used => {
                return Ok(pages);
            }
            Err(source) => return Err(OpenError::Header { file: name, source }),
        }
    }
}
