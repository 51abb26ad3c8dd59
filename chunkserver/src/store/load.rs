//! What a store has on its medium, damaged or not: read, and nothing changed.

use super::checkpoint::{Checkpoint, CheckpointError, encode_checkpoint, parse_checkpoint};
use super::damage::{Damage, DamageKind};
use super::error::OpenError;
use super::header::{
    FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, FileKind, HeaderError, log_name, map_name,
    number_in,
};
use super::image::{LogImage, NoLog, read_image, read_log};
use super::log::Log;
use super::map::ChunkMap;
use super::mark::Mark;
use super::media::{Media, MediaError, MediaOp};
use super::scan::Scan;
use super::slice::ChunkId;

/// The state of a store as its files give it.
pub(super) struct Loaded<F> {
    /// Header of the map of the current generation, as it is or should be.
    pub(super) header: FileHeader,
    pub(super) map: ChunkMap,
    pub(super) log: CurrentLog<F>,
    /// The current map, where its file must be written again.
    pub(super) map_again: Option<Vec<u8>>,
    pub(super) damage: Vec<Damage>,
    /// Map files that are none: the next ones must not be written over them.
    pub(super) aside: Vec<String>,
}

impl<F> Loaded<F> {
    /// Whether changes that were acknowledged are gone.
    pub(super) fn is_lossy(&self) -> bool {
        self.damage.iter().any(|damage| damage.kind.loses_records())
    }
}

/// The log of the current generation.
pub(super) struct CurrentLog<F> {
    pub(super) log: Log<F>,
    /// Its header, as it is or should be.
    pub(super) header: FileHeader,
    /// Each copy as it should be: sound records, then zeros.
    pub(super) bytes: Vec<u8>,
    /// The headers, or what follows the records, must be written again.
    pub(super) is_damaged: bool,
    pub(super) records: u64,
    pub(super) torn_bytes: u64,
}

/// Reads the newest sound map and the logs that follow it. None where there is no store.
pub(super) fn load<M: Media>(
    media: &M,
    names: &[String],
    mark: Option<&Mark>,
) -> Result<Option<Loaded<M::File>>, OpenError> {
    let mut bad = Vec::new();
    let Some(base) = newest_sound_map(media, names, &mut bad)? else { return Ok(None) };
    let chain = Chain::find(media, names, base.checkpoint.header)?;
    let mark = mark.filter(|mark| mark.store_id == base.checkpoint.header.store_id);
    let mut loaded = chain.replay(media, names, base, mark)?;
    let current = loaded.header.number;
    for (number, why) in bad {
        let file = map_name(number);
        let has_log = read_log(media, names, number, None)?.is_ok();
        let kind = if has_log { DamageKind::Map { why } } else { DamageKind::StrayMap { why } };
        loaded.damage.push(Damage { file: file.clone(), offset: 0, kind });
        if number > current {
            loaded.aside.push(file);
        }
    }
    if loaded.map_again.is_some() && !names.contains(&map_name(current)) {
        let kind = DamageKind::Map { why: String::from("the file is missing") };
        loaded.damage.push(Damage { file: map_name(current), offset: 0, kind });
    }
    Ok(Some(loaded))
}

/// The state that the logs go on from.
struct Base {
    checkpoint: Checkpoint,
    is_on_medium: bool,
}

/// The newest map that is whole; those before it that are not go to `bad`. A store whose first
/// map is gone is known from its first log.
fn newest_sound_map<M: Media>(
    media: &M,
    names: &[String],
    bad: &mut Vec<(u64, String)>,
) -> Result<Option<Base>, OpenError> {
    let mut numbers: Vec<_> = names.iter().filter_map(|n| number_in(n, "map.")).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    for number in numbers {
        match read_map(media, number)? {
            Ok(checkpoint) => return Ok(Some(Base { checkpoint, is_on_medium: true })),
            Err(why) => bad.push((number, why)),
        }
    }
    let first = read_log(media, names, 1, None)?;
    if let Ok(log) = first
        && log.header.next_sequence == 1
        && (!bad.is_empty() || !log.scan(log.header.next_sequence, 0).is_empty())
    {
        let header = FileHeader { kind: FileKind::Map, body_len: 0, ..log.header };
        let checkpoint = Checkpoint { header, map: ChunkMap::default() };
        return Ok(Some(Base { checkpoint, is_on_medium: false }));
    }
    match bad.first() {
        Some((number, why)) => {
            Err(OpenError::Checkpoint { file: map_name(*number), why: why.clone() })
        }
        None if names.iter().any(|n| number_in(n, "data.").is_some()) => Err(OpenError::MapMissing),
        None => Ok(None),
    }
}

/// A map, or what is wrong with it.
pub(super) fn read_map<M: Media>(
    media: &M,
    number: u64,
) -> Result<Result<Checkpoint, String>, OpenError> {
    let file = map_name(number);
    let image = read_image(media, &file)?;
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
struct Chain<F> {
    logs: Vec<LogImage<F>>,
    /// Why there is none.
    missing: Option<NoLog>,
}

impl<F> Chain<F> {
    /// A log belongs to the chain when its generation follows and it has records: then its map
    /// was the current one.
    fn find<M: Media<File = F>>(
        media: &M,
        names: &[String],
        base: FileHeader,
    ) -> Result<Self, OpenError> {
        let first = match read_log(media, names, base.number, Some(&base))? {
            Ok(log) => log,
            Err(why) => return Ok(Self { logs: Vec::new(), missing: Some(why) }),
        };
        let mut logs = vec![first];
        loop {
            let number = base.number + logs.len() as u64;
            let next = read_log(media, names, number, None)?;
            let map_is_there = names.contains(&map_name(number));
            match next {
                Ok(log) if log.header.belongs(&base, number).is_err() => break,
                Ok(log) if log.scan(log.header.next_sequence, 0).is_empty() => break,
                Ok(log) => logs.push(log),
                // A map that is damaged, and what followed it is not known.
                Err(why @ NoLog::Damaged(_)) if map_is_there => {
                    return Ok(Self { logs, missing: Some(why) });
                }
                Err(_) => break,
            }
        }
        Ok(Self { logs, missing: None })
    }

    fn replay<M: Media<File = F>>(
        self,
        media: &M,
        names: &[String],
        base: Base,
        mark: Option<&Mark>,
    ) -> Result<Loaded<F>, OpenError> {
        let Checkpoint { mut header, mut map } = base.checkpoint;
        let mut damage = Vec::new();
        let marked = mark.map_or(0, |mark| mark.durable_sequence);
        let recent = mark.map_or(&[][..], |mark| &mark.recent);
        let mut map_again = (!base.is_on_medium).then(|| encode_checkpoint(header, &map));
        let mut current = None;
        let starts: Vec<_> = self.logs.iter().map(|log| log.header.next_sequence).collect();
        for (at, image) in self.logs.into_iter().enumerate() {
            if at > 0 {
                header = FileHeader { kind: FileKind::Map, ..image.header };
                map_again = Some(encode_checkpoint(header, &map));
            }
            // The next log says what this one ends with; the mark speaks of the current one.
            let next = starts.get(at + 1);
            let known = Known {
                proven: next.map_or(marked, |start| start - 1),
                recent,
                is_current: next.is_none(),
            };
            current = Some(replay_log(image, &known, &mut map, &mut damage)?);
        }
        if let Some(missing) = self.missing {
            let number = header.number + u64::from(current.is_some());
            let kind = DamageKind::Log { why: missing.to_string() };
            damage.push(Damage { file: log_name(number), offset: 0, kind });
            map.suspect_all();
        }
        let log = match current {
            Some(log) => log,
            None => CurrentLog::none(media, names, header)?,
        };
        let is_lossy = map.is_lossy();
        if marked >= log.log.next_sequence && !is_lossy {
            map.suspect_all();
            let kind = DamageKind::Mark { durable_sequence: marked };
            damage.push(Damage { file: log_name(header.number), offset: 0, kind });
        }
        Ok(Loaded { header, map, log, map_again, damage, aside: Vec::new() })
    }
}

/// A file that stands for one which is never used, in a store that takes no changes.
pub(super) fn stand_in<M: Media>(
    media: &M,
    names: &[String],
    generation: u64,
) -> Result<M::File, MediaError> {
    let map = map_name(generation);
    let name = if names.contains(&map) { map } else { log_name(generation) };
    media.open(&name).map_err(MediaError::at(MediaOp::Open, &name, 0))
}

impl<F> CurrentLog<F> {
    /// Stands for the log of `map`, which is gone. Nothing is ever written to it.
    fn none<M: Media<File = F>>(
        media: &M,
        names: &[String],
        map: FileHeader,
    ) -> Result<Self, OpenError> {
        let header = FileHeader { kind: FileKind::Log, ..map };
        let file = stand_in(media, names, map.number)?;
        let log = Log::new(file, &header, FILE_HEADER_BYTES as u64);
        let bytes = Vec::new();
        Ok(Self { log, header, bytes, is_damaged: true, records: 0, torn_bytes: 0 })
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

fn replay_log<F>(
    image: LogImage<F>,
    known: &Known<'_>,
    map: &mut ChunkMap,
    damage: &mut Vec<Damage>,
) -> Result<CurrentLog<F>, OpenError> {
    let name = log_name(image.header.number);
    let Known { proven, recent, is_current } = *known;
    let mut scan = image.scan(image.header.next_sequence, proven);
    let lost = scan.replay(map, recent).map_err(|(offset, source)| OpenError::Apply {
        file: name.clone(),
        offset,
        source,
    })?;
    let torn_bytes = scan.torn_bytes();
    let Scan { at, next_sequence, last_crc, records, differing, mut good, .. } = scan;
    let before = damage.len();
    damage.extend(image.damage(&differing));
    let is_damaged = damage.len() > before || image.is_short;
    damage.extend(lost.into_iter().map(|lost| Damage {
        file: name.clone(),
        offset: lost.offset,
        kind: DamageKind::LostRecords(lost),
    }));
    if is_current && image.is_gone_at(at as u64) {
        map.suspect_all();
        let why = format!("it is cut short, or cannot be read in any copy, at offset {at}");
        damage.push(Damage { file: name, offset: at as u64, kind: DamageKind::Log { why } });
    }
    good.resize(at + torn_bytes, 0);
    let mut log = Log::new(image.file, &image.header, image.size_bytes);
    log.end = at as u64;
    // What a new version knows to prevent holds from the next log on.
    log.wants_checkpoint = image.header.version != FORMAT_VERSION;
    log.next_sequence = next_sequence;
    log.last_crc = last_crc;
    log.durable_sequence = next_sequence - 1;
    Ok(CurrentLog {
        log,
        header: image.header,
        bytes: good,
        is_damaged,
        records,
        torn_bytes: torn_bytes as u64,
    })
}
