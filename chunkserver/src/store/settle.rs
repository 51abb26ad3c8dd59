//! What an opening has read is made whole and made to last, before anything is served from it.

use std::io;

use super::checkpoint::write_map;
use super::config::StoreConfig;
use super::error::OpenError;
use super::header::{
    FILE_HEADER_BYTES, FileHeader, FileKind, MAP_TEMPORARY, data_name, log_name, map_name,
};
use super::load::{CurrentLog, Loaded};
use super::media::{Media, MediaError, MediaOp, write_zeros};
use super::reserve::Reserve;
use super::segments::{Segments, identity_of, segments_used};

/// Makes sound and durable what was read; gives the files that the next checkpoint uses.
pub(super) fn put_right<M: Media>(
    media: &M,
    config: &StoreConfig,
    names: &[String],
    loaded: &Loaded<M::File>,
    segments: &Segments<M::File>,
) -> Result<Reserve<M::File>, OpenError> {
    let identity = identity_of(&loaded.header);
    settle_log(media, &loaded.log)?;
    let used = segments_used(&identity, &loaded.map);
    settle_segments(media, &identity, segments, used)?;
    let mut names = names.to_vec();
    for name in &loaded.aside {
        set_aside(media, &names, name)?;
        names.retain(|other| other != name);
    }
    let generation = loaded.header.number;
    if let Some(bytes) = &loaded.map_again {
        write_map_again(media, &names, generation, bytes)?;
        names.retain(|name| *name != MAP_TEMPORARY);
    }
    Ok(settle_names(media, &names, generation, config.log_bytes)?)
}

/// Gives a damaged file another name, by which nobody takes it for one of the store; gives that
/// name.
pub(super) fn set_aside<M: Media>(
    media: &M,
    names: &[String],
    name: &str,
) -> Result<String, MediaError> {
    let plain = format!("damaged.{name}");
    let numbered = (2..).map(|number| format!("{plain}.{number}"));
    let is_free = |aside: &String| !names.contains(aside);
    let aside = std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or(plain);
    media.rename(name, &aside).map_err(MediaError::at(MediaOp::Rename, name, 0))?;
    Ok(aside)
}

/// Puts a map that is known from the one before and the logs into the place of a damaged one.
/// Until the rename is on the medium the map before and the logs tell the same.
fn write_map_again<M: Media>(
    media: &M,
    names: &[String],
    generation: u64,
    bytes: &[u8],
) -> Result<(), MediaError> {
    let flush_names = || media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0));
    let name = MAP_TEMPORARY;
    let to = map_name(generation);
    let file = media.create(name).map_err(MediaError::at(MediaOp::Create, name, 0))?;
    match write_map(media, name, &file, bytes) {
        // Then over the damaged one, of which nothing is needed.
        Err(error) if error.is_full() => {
            media.remove(name).map_err(MediaError::at(MediaOp::Rename, name, 0))?;
            if !names.contains(&to) {
                return Err(error);
            }
            let file = media.open(&to).map_err(MediaError::at(MediaOp::Open, &to, 0))?;
            write_map(media, &to, &file, bytes)?;
            return flush_names();
        }
        written => written?,
    }
    flush_names()?;
    media.rename(name, &to).map_err(MediaError::at(MediaOp::Rename, &to, 0))?;
    flush_names()
}

/// Writes the log again as it was read, without its torn end, and flushes it.
///
/// What was read may be in a cache only: an earlier server may have died before its flush, or
/// after one that failed and left the pages marked clean. Nothing may be served from a record
/// that is not on the medium, and only a fresh write makes the flush honest. What is damaged in
/// one copy becomes whole again.
fn settle_log<M: Media>(media: &M, current: &CurrentLog<M::File>) -> Result<(), MediaError> {
    let log = &current.log;
    let name = log_name(log.generation);
    let records = &current.bytes[FILE_HEADER_BYTES..];
    let mut whole = Vec::new();
    if current.is_damaged {
        whole.extend_from_slice(&current.header.emit());
        whole.extend_from_slice(records);
        whole.resize(whole.len().next_multiple_of(FILE_HEADER_BYTES), 0);
    }
    let write = || -> io::Result<()> {
        for copy in log.copies() {
            if current.is_damaged {
                // In whole pages: a bad sector can be written, but not read for the rest.
                let end = whole.len() as u64;
                media.write_at(&log.file, copy, &whole)?;
                write_zeros(media, &log.file, copy + end..copy + log.size_bytes.max(end))?;
            } else if !records.is_empty() {
                media.write_at(&log.file, copy + FILE_HEADER_BYTES as u64, records)?;
            }
        }
        Ok(())
    };
    write().map_err(MediaError::at(MediaOp::Write, &name, 0))?;
    media.fdatasync(&log.file).map_err(MediaError::at(MediaOp::Flush, &name, 0))
}

/// Writes the headers of the segments after the first `used` ones again, and those that are
/// damaged, and flushes them.
///
/// No slice proves that such a header is on the medium: the server that made the segment may have
/// died before its flush, or after one that failed and left the page marked clean.
fn settle_segments<M: Media>(
    media: &M,
    identity: &FileHeader,
    segments: &Segments<M::File>,
    used: u32,
) -> Result<(), MediaError> {
    for (index, file) in (0u32..).zip(&segments.pages.files) {
        let Some(file) = file else { continue };
        if index < used && !segments.bad_headers.contains(&index) {
            continue;
        }
        let name = data_name(index);
        let header = FileHeader { kind: FileKind::Data, number: u64::from(index), ..*identity };
        media.write_at(file, 0, &header.emit()).map_err(MediaError::at(
            MediaOp::Write,
            &name,
            0,
        ))?;
        media.fdatasync(file).map_err(MediaError::at(MediaOp::Flush, &name, 0))?;
    }
    Ok(())
}

/// Makes the names that were found durable, then removes what a checkpoint does not need, and
/// makes what the next one does.
///
/// In this order: an earlier server may have died after it renamed the newest map and before it
/// flushed that name. Until it is flushed, a power cut may leave the old map as the only one.
fn settle_names<M: Media>(
    media: &M,
    names: &[String],
    generation: u64,
    log_bytes: u64,
) -> Result<Reserve<M::File>, MediaError> {
    media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))?;
    let mut reserve = Reserve::open(media, names, generation)?;
    match reserve.complete(media, generation + 1, log_bytes) {
        // Whatever needs it tries again.
        Err(error) if !error.is_shortage() => Err(error),
        _ => Ok(reserve),
    }
}
