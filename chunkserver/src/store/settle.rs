//! What an opening has read is made to last, before anything is served from it.

use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, data_name, log_name};
use super::map::ChunkMap;
use super::media::{Media, MediaError, MediaOp};
use super::open::Replayed;
use super::pages::Pages;
use super::reserve::Reserve;

/// Segments up to the last one that holds a slice.
pub(super) fn segments_used(identity: &FileHeader, map: &ChunkMap) -> u32 {
    map.pages().max().map_or(0, |page| page / identity.segment_pages + 1)
}

/// Writes the log again as it was read, without its torn end, and flushes it.
///
/// What was read may be in a cache only: an earlier server may have died before its flush, or
/// after one that failed and left the pages marked clean. Nothing may be served from a record
/// that is not on the medium, and only a fresh write makes the flush honest.
pub(super) fn settle_log<M: Media>(
    media: &M,
    replayed: &Replayed<M::File>,
) -> Result<(), MediaError> {
    let name = log_name(replayed.log.generation);
    let records = &replayed.bytes[FILE_HEADER_BYTES..];
    let (file, at) = (&replayed.log.file, FILE_HEADER_BYTES as u64);
    if !records.is_empty() {
        media.write_at(file, at, records).map_err(MediaError::at(MediaOp::Write, &name, at))?;
    }
    media.fdatasync(file).map_err(MediaError::at(MediaOp::Flush, &name, 0))
}

/// Writes the headers of the segments after the last one that holds a slice again, and flushes
/// them.
///
/// No slice proves that such a header is on the medium: the server that made the segment may have
/// died before its flush, or after one that failed and left the page marked clean.
pub(super) fn settle_segments<M: Media>(
    media: &M,
    identity: &FileHeader,
    pages: &Pages<M::File>,
    map: &ChunkMap,
) -> Result<(), MediaError> {
    let used = segments_used(identity, map);
    for (index, file) in (0u32..).zip(&pages.files).skip(used as usize) {
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
pub(super) fn settle_names<M: Media>(
    media: &M,
    names: &[String],
    generation: u64,
    log_bytes: u64,
) -> Result<Reserve<M::File>, MediaError> {
    let flush_names = || media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0));
    flush_names()?;
    let mut reserve = Reserve::open(media, names, generation)?;
    match reserve.complete(media, generation + 1, log_bytes) {
        // The next checkpoint tries again.
        Err(error) if !error.is_shortage() => return Err(error),
        _ => {}
    }
    flush_names()?;
    Ok(reserve)
}
