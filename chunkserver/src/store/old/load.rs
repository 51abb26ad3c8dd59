//! What an old store has, damaged or not: read, and nothing changed.

use super::checkpoint::{Checkpoint, CheckpointError, parse_checkpoint};
use super::folder::OldFolder;
use super::header::{FileHeader, FileKind, HeaderError, log_name, map_name, number_in};
use super::image::{LogImage, NoLog, read_image, read_log};
use super::map::ChunkMap;
use super::mark::Mark;
use super::segments::Segments;
use crate::store::error::OpenError;
use crate::store::slice::ChunkId;

/// The state of a store as its files give it.
pub(super) struct Loaded {
    pub(super) map: ChunkMap,
    pub(super) segments: Segments,
    /// Number that the next record would have got.
    pub(super) next_sequence: u64,
}

impl Loaded {
    /// Whether changes that were acknowledged are gone.
    pub(super) fn is_lossy(&self) -> bool {
        self.map.is_lossy()
    }
}

/// Reads the newest sound map, the logs that follow it, and which segments there are.
///
/// # Errors
/// [`OpenError::NoStore`] where there is none, and what keeps the one that is there from being
/// read.
pub(super) fn load(folder: &OldFolder) -> Result<Loaded, OpenError> {
    let names = folder.list()?;
    let mark = Mark::read(folder, &names)?;
    let base = newest_sound_map(folder, &names)?.ok_or(OpenError::NoStore)?;
    let mark = mark.filter(|mark| mark.store_id == base.header.store_id);
    let header = base.header;
    let chain = Chain::find(folder, &names, header)?;
    let (map, next_sequence) = chain.replay(base, mark.as_ref())?;
    let segments = Segments::open(folder, &names, &header, &map)?;
    Ok(Loaded { map, segments, next_sequence })
}

/// The newest map that is whole. A store whose first map is gone is known from its first log.
fn newest_sound_map(folder: &OldFolder, names: &[String]) -> Result<Option<Checkpoint>, OpenError> {
    let mut numbers: Vec<_> = names.iter().filter_map(|n| number_in(n, "map.")).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let mut newest_bad = None;
    for number in numbers {
        match read_map(folder, number)? {
            Ok(checkpoint) => return Ok(Some(checkpoint)),
            Err(why) => newest_bad = newest_bad.or(Some((number, why))),
        }
    }
    let first = read_log(folder, names, 1, None)?;
    if let Ok(log) = first
        && log.header.next_sequence == 1
        && (newest_bad.is_some() || !log.scan(log.header.next_sequence, 0).is_empty())
    {
        let header = FileHeader { kind: FileKind::Map, body_len: 0, ..log.header };
        return Ok(Some(Checkpoint { header, map: ChunkMap::default() }));
    }
    match newest_bad {
        Some((number, why)) => Err(OpenError::Checkpoint { file: map_name(number), why }),
        None if names.iter().any(|n| number_in(n, "data.").is_some()) => Err(OpenError::MapMissing),
        None => Ok(None),
    }
}

/// A map, or what is wrong with it.
fn read_map(folder: &OldFolder, number: u64) -> Result<Result<Checkpoint, String>, OpenError> {
    let file = map_name(number);
    let image = read_image(folder, &file)?;
    match parse_checkpoint(&image.bytes) {
        Ok(found) => Ok(found
            .header
            .belongs(&found.header, number)
            .map(|()| found)
            .map_err(|foreign| foreign.to_string())),
        Err(CheckpointError::Header(source @ HeaderError::Version { .. })) => {
            Err(OpenError::Header { file, source })
        }
        Err(error) => Ok(Err(match image.unreadable.first() {
            Some(offset) => format!("it cannot be read at offset {offset}"),
            None => error.to_string(),
        })),
    }
}

/// The logs that follow a map, oldest first. The last one is current.
struct Chain {
    logs: Vec<LogImage>,
    /// One that should follow is missing or damaged.
    is_cut: bool,
}

impl Chain {
    /// A log belongs to the chain when its generation follows and it has records: then its map
    /// was the current one.
    fn find(folder: &OldFolder, names: &[String], base: FileHeader) -> Result<Self, OpenError> {
        let Ok(first) = read_log(folder, names, base.number, Some(&base))? else {
            return Ok(Self { logs: Vec::new(), is_cut: true });
        };
        let mut logs = vec![first];
        loop {
            let number = base.number + logs.len() as u64;
            let next = read_log(folder, names, number, None)?;
            let map_is_there = names.contains(&map_name(number));
            match next {
                Ok(log) if log.header.belongs(&base, number).is_err() => break,
                Ok(log) if log.scan(log.header.next_sequence, 0).is_empty() => break,
                Ok(log) => logs.push(log),
                // A map that is damaged, and what followed it is not known.
                Err(NoLog::Damaged) if map_is_there => return Ok(Self { logs, is_cut: true }),
                Err(_) => break,
            }
        }
        Ok(Self { logs, is_cut: false })
    }

    /// Gives what the logs make of a map, and the number that the next record would have got.
    fn replay(self, base: Checkpoint, mark: Option<&Mark>) -> Result<(ChunkMap, u64), OpenError> {
        let Checkpoint { header, mut map } = base;
        let marked = mark.map_or(0, |mark| mark.durable_sequence);
        let recent = mark.map_or(&[][..], |mark| &mark.recent);
        let mut next_sequence = header.next_sequence;
        let starts: Vec<_> = self.logs.iter().map(|log| log.header.next_sequence).collect();
        for (at, image) in self.logs.iter().enumerate() {
            // The next log says what this one ends with; the mark speaks of the current one.
            let next = starts.get(at + 1);
            let known = Known {
                proven: next.map_or(marked, |start| start - 1),
                recent,
                is_current: next.is_none(),
            };
            next_sequence = replay_log(image, &known, &mut map)?;
        }
        if self.is_cut || marked >= next_sequence && !map.is_lossy() {
            map.suspect_all();
        }
        Ok((map, next_sequence))
    }
}

/// What is known of the records of a log from elsewhere.
struct Known<'a> {
    /// The last one that was on stable media.
    proven: u64,
    /// The chunks that the last marked ones changed.
    recent: &'a [(u64, ChunkId)],
    /// No other log follows, which would say where this one ends.
    is_current: bool,
}

/// Applies the records of a log; gives the number of the one that would follow.
fn replay_log(image: &LogImage, known: &Known<'_>, map: &mut ChunkMap) -> Result<u64, OpenError> {
    let Known { proven, recent, is_current } = *known;
    let mut scan = image.scan(image.header.next_sequence, proven);
    scan.replay(map, recent).map_err(|(offset, source)| {
        let file = log_name(image.header.number);
        OpenError::Apply { file, offset, source }
    })?;
    if is_current && image.is_gone_at(scan.at as u64) {
        map.suspect_all();
    }
    Ok(scan.next_sequence)
}
