//! The body of a chunk: payloads where they lie or copied, and the table of frames.

use crate::sends::Sends;
use smallvec::SmallVec;
use towpath_base::crc::{Crc32c, crc32c};
use towpath_base::passes::{Pass, note};
use towpath_proto::limits::{COPIED_PAYLOAD_MAX, FRAME_ALIGN_BYTES, FRAME_UNIT_BYTES};
use towpath_proto::wire::{ChunkFlags, emit_table};
use towpath_proto::{PayloadRef, Transmit};
use towpath_verbs::{SEND_SGE_MAX, Sge};

/// The gather entries of a body.
type Entries = SmallVec<[Sge; SEND_SGE_MAX]>;

/// The bytes that a frame names and their gather entry. `None` when they are not there, which would
/// be a mistake in the link: then the chunk counts as sent and lost.
#[inline]
fn payload_of<'a>(sends: &'a Sends, piece: &PayloadRef) -> Option<(&'a [u8], Sge)> {
    let found = sends.piece(piece.send, piece.segment, piece.offset, piece.length);
    debug_assert!(found.is_some(), "the link asks for bytes that no segment has");
    found
}

/// The payload of a chunk of one frame, and its CRC if the chunk carries one.
#[inline]
pub(super) fn lone_payload(
    sends: &Sends,
    piece: &PayloadRef,
    flags: ChunkFlags,
) -> Option<(Sge, u32)> {
    let (bytes, entry) = payload_of(sends, piece)?;
    if !flags.has(ChunkFlags::BODY_CRC) {
        return Some((entry, 0));
    }
    let known = sends.known_crc(0, piece, bytes);
    Some((entry, known.unwrap_or_else(|| crc32c(bytes))))
}

/// Bytes of the body of a chunk.
pub(super) fn byte_len(transmit: &Transmit) -> usize {
    let end = transmit.places().last();
    let end = end.map_or(0, |(frame, start)| start + frame.frame.length as usize);
    match transmit.header.flags.units() {
        0 => end,
        units => end.next_multiple_of(FRAME_ALIGN_BYTES) + units * FRAME_UNIT_BYTES,
    }
}

/// Bytes of what follows the header of a chunk, filler included.
pub(super) fn whole_len(transmit: &Transmit) -> usize {
    byte_len(transmit).max(transmit.filler_bytes as usize)
}

/// Copies all that follows the header of a chunk to the front of `to`; returns how many bytes that
/// is. `None` when bytes are not there, or find no room.
pub(crate) fn write_body(to: &mut [u8], sends: &Sends, transmit: &Transmit) -> Option<usize> {
    let whole = to.get_mut(..whole_len(transmit))?;
    if transmit.frames.is_empty() {
        whole.fill(0);
    } else {
        Body::write(whole, None, sends, transmit)?;
    }
    Some(whole.len())
}

/// The body of a chunk.
pub(super) struct Body {
    /// None where all of it was copied to memory that the device does not read.
    pub(super) entries: Entries,
    pub(super) length: u32,
    /// 0 if the chunk carries none.
    pub(super) crc: u32,
}

impl Body {
    /// Puts a body together. Short payloads, what lies between payloads, and the table of frames
    /// are copied to `to`, of which `whole` is the gather entry. Longer payloads are gathered from
    /// where they lie; without `whole` they are copied, too. `None` when bytes are not there, or
    /// find no room.
    pub(super) fn write(
        to: &mut [u8],
        whole: Option<Sge>,
        sends: &Sends,
        transmit: &Transmit,
    ) -> Option<Self> {
        let mut crc = transmit.header.flags.has(ChunkFlags::BODY_CRC).then(Crc32c::new);
        let mut entries = Entries::new();
        // What was copied, of that what is in no checksum and no entry yet, and the end of the
        // body.
        let (mut copied, mut begun, mut end) = (0, 0, 0);
        for (frame, start) in transmit.places() {
            let (bytes, entry) = payload_of(sends, &frame.source)?;
            let padding = start - end;
            to.get_mut(copied..copied + padding)?.fill(0);
            copied += padding;
            end = start + bytes.len();
            let is_short = bytes.len() <= COPIED_PAYLOAD_MAX;
            if !is_short {
                if copied > begun {
                    add_crc(&mut crc, &to[begun..copied]);
                    entries.extend(whole.map(|whole| part_of(whole, begun, copied)));
                }
                add_piece(&mut crc, sends, &frame.source, bytes);
                begun = copied;
            }
            if is_short || whole.is_none() {
                to.get_mut(copied..copied + bytes.len())?.copy_from_slice(bytes);
                note(Pass::Copy, bytes.len());
                copied += bytes.len();
            } else {
                entries.push(entry);
            }
            if !is_short {
                begun = copied;
            }
        }
        let units = transmit.header.flags.units();
        if units > 0 {
            let padding = end.next_multiple_of(FRAME_ALIGN_BYTES) - end;
            let table = units * FRAME_UNIT_BYTES;
            to.get_mut(copied..copied + padding)?.fill(0);
            copied += padding;
            let frames = transmit.frames.iter().map(|frame| &frame.frame);
            emit_table(frames, to.get_mut(copied..copied + table)?);
            copied += table;
            end += padding + table;
        }
        if copied > begun {
            add_crc(&mut crc, &to[begun..copied]);
            entries.extend(whole.map(|whole| part_of(whole, begun, copied)));
        }
        Some(Self { entries, length: end as u32, crc: crc.map_or(0, |crc| crc.value()) })
    }
}

/// The gather entry of a part of what another one is of.
pub(super) fn part_of(whole: Sge, from: usize, end: usize) -> Sge {
    Sge { addr: whole.addr + from as u64, length: (end - from) as u32, ..whole }
}

/// Takes a piece in, whose bytes these are: without a pass over them where their CRCs are known.
fn add_piece(crc: &mut Option<Crc32c>, sends: &Sends, piece: &PayloadRef, bytes: &[u8]) {
    let Some(front) = crc.as_ref().map(Crc32c::value) else { return };
    match sends.known_crc(front, piece, bytes) {
        Some(known) => *crc = Some(Crc32c::resume(known)),
        None => add_crc(crc, bytes),
    }
}

fn add_crc(crc: &mut Option<Crc32c>, bytes: &[u8]) {
    if let Some(crc) = crc {
        crc.update(bytes);
    }
}
