//! Frames: the ranges of messages that one chunk carries (docs/protocol.md section 3).
//!
//! The header of a chunk describes its first frame. Further frames, and what of the first finds no
//! room in the header, stand in a table at the end of the chunk, in units of 16 bytes. Where the
//! payload of each frame lies follows from the lengths.

use super::{ChunkFlags, ChunkHeader, Kind, field, put};
use crate::limits::{
    ALIGNED_PAYLOAD_MAX, FRAME_ALIGN_BYTES, FRAME_UNIT_BYTES, MESSAGE_BYTES_MAX, PAGE_BYTES,
};
use core::ops::Range;

/// In the length of a table entry: it has a second unit.
const TWO_UNITS: u32 = 1 << 31;

/// In the length of a table entry: the payload begins at a page.
const AT_PAGE: u32 = 1 << 30;

/// A range of bytes of a message.
///
/// Messages are cut into pieces as they are first sent. A piece has an index, uses a credit and is
/// cut only once. A frame carries a piece, or what of it a path bears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Channel id.
    pub channel: u32,
    /// Message id; of those that [`FrameTable`] yields the low 32 bits.
    pub message: u64,
    /// Bytes of the whole message.
    pub message_len: u32,
    /// Index of the piece within the message.
    pub index: u32,
    /// Byte offset of the frame within the message.
    pub offset: u32,
    /// Bytes of the frame.
    pub length: u32,
    /// Byte offset of the frame within the piece, a multiple of [`FRAME_ALIGN_BYTES`].
    pub part_start: u32,
    /// Bytes of the whole piece.
    pub piece_len: u32,
    /// Its payload, of [`PAGE_BYTES`] or more, begins at a page of the body. Means nothing of the
    /// first frame of a chunk, whose payload begins the body; [`FrameTable`] says false there.
    pub at_page: bool,
}

impl Frame {
    /// Whether it carries less than its piece.
    #[must_use]
    #[inline(always)]
    pub fn is_part(&self) -> bool {
        self.length != self.piece_len
    }

    /// Whether it carries a message that is one piece, from its first byte to its last.
    #[must_use]
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        self.length == self.message_len
    }

    /// Where the piece begins in the message.
    #[must_use]
    #[inline(always)]
    pub fn piece_offset(&self) -> u32 {
        self.offset.wrapping_sub(self.part_start)
    }

    /// Which bytes of the piece it carries.
    #[inline]
    pub(crate) fn part(&self) -> Range<u32> {
        self.part_start..self.part_start.saturating_add(self.length)
    }

    /// Units of the table that it takes behind the first frame.
    #[must_use]
    #[inline(always)]
    pub fn units(&self) -> usize {
        if self.is_whole() { 1 } else { 2 }
    }

    /// Units of the table that it takes as the first frame of a chunk.
    #[must_use]
    #[inline(always)]
    pub fn units_as_first(&self) -> usize {
        usize::from(self.is_part())
    }

    /// Whether its fields fit together.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        let end = u64::from(self.offset) + u64::from(self.length);
        let part_end = u64::from(self.part_start) + u64::from(self.length);
        let (at, start) = (self.piece_offset(), self.part_start);
        let piece_end = u64::from(at) + u64::from(self.piece_len);
        let align = FRAME_ALIGN_BYTES as u32;
        self.length > 0
            && self.message_len <= MESSAGE_BYTES_MAX
            && end <= u64::from(self.message_len)
            && start <= self.offset
            && piece_end <= u64::from(self.message_len)
            && part_end <= u64::from(self.piece_len)
            && start.is_multiple_of(align)
            && (self.length.is_multiple_of(align) || part_end == u64::from(self.piece_len))
            && self.index <= at
            && (self.index == 0) == (at == 0)
            && (!self.at_page || self.length as usize >= PAGE_BYTES)
    }
}

/// Where the payload of a frame begins, behind the payload that ends at `end`: at the next page if
/// the frame says so, a short one at the next multiple of [`FRAME_ALIGN_BYTES`], another at `end`.
#[must_use]
#[inline(always)]
pub const fn place(end: usize, frame: &Frame) -> usize {
    if frame.at_page {
        end.next_multiple_of(PAGE_BYTES)
    } else if frame.length as usize <= ALIGNED_PAYLOAD_MAX {
        end.next_multiple_of(FRAME_ALIGN_BYTES)
    } else {
        end
    }
}

/// Bytes behind the header of a chunk whose payload ends at `end` and whose table has `units`.
#[must_use]
#[inline(always)]
pub const fn body_bytes(end: usize, units: usize) -> usize {
    if units == 0 {
        end
    } else {
        end.next_multiple_of(FRAME_ALIGN_BYTES) + units * FRAME_UNIT_BYTES
    }
}

/// Writes the table of a chunk with these frames; `out` has as many bytes as the units take.
///
/// # Panics
/// When `out` is of another length.
pub fn emit_table<'f>(frames: impl Iterator<Item = &'f Frame>, out: &mut [u8]) {
    let (units, rest) = out.as_chunks_mut::<FRAME_UNIT_BYTES>();
    assert!(rest.is_empty(), "a table is made of whole units");
    let mut units = units.iter_mut();
    let mut next = || units.next().expect("the caller knows how many units the frames take");
    for (at, frame) in frames.enumerate() {
        if at == 0 {
            if frame.is_part() {
                let unit = next();
                put!(unit, 0, frame.part_start);
                put!(unit, 4, frame.piece_len);
                put!(unit, 8, 0u64);
            }
            continue;
        }
        let (unit, is_whole) = (next(), frame.is_whole());
        let length = frame.length | if frame.at_page { AT_PAGE } else { 0 };
        put!(unit, 0, frame.channel);
        put!(unit, 4, frame.message as u32);
        put!(unit, 8, if is_whole { length } else { length | TWO_UNITS });
        put!(unit, 12, if is_whole { 0 } else { frame.index });
        if !is_whole {
            let unit = next();
            put!(unit, 0, frame.offset);
            put!(unit, 4, frame.message_len);
            put!(unit, 8, frame.part_start);
            put!(unit, 12, frame.piece_len);
        }
    }
    assert!(units.next().is_none(), "the caller knows how many units the frames take");
}

/// Why what follows a header is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BodyError {
    /// It has not the length that header and table say.
    #[error("the length is not what the header and the frames say")]
    Length,
    /// A frame whose fields do not fit together.
    #[error("the fields of a frame do not fit together")]
    Frame,
}

/// The frames of a chunk: the first, and the table of the others.
#[derive(Clone, Copy, Debug)]
pub struct FrameTable<'a> {
    /// The first frame, its message id whole.
    pub first: Frame,
    /// Entries of the others.
    entries: &'a [u8],
    payload_end: usize,
}

impl<'a> FrameTable<'a> {
    /// The frames of a chunk of data whose header was checked: all fields of all frames, and that
    /// they fill the body.
    ///
    /// # Errors
    /// See [`BodyError`].
    #[inline]
    pub fn parse(header: &ChunkHeader, body: &'a [u8]) -> Result<Self, BodyError> {
        debug_assert_eq!(header.kind, Kind::Data, "the caller asks for frames of data");
        let table_bytes = header.flags.units() * FRAME_UNIT_BYTES;
        let payload_end = body.len().checked_sub(table_bytes).ok_or(BodyError::Length)?;
        let (mut entries, length) = (&body[payload_end..], header.length);
        let mut first = Frame {
            channel: header.channel,
            message: header.message,
            message_len: header.message_len,
            index: header.index,
            offset: header.offset,
            length,
            piece_len: length,
            ..Frame::default()
        };
        if header.flags.has(ChunkFlags::PART) {
            let (part, rest) =
                entries.split_at_checked(FRAME_UNIT_BYTES).ok_or(BodyError::Length)?;
            (first.part_start, first.piece_len) = (field!(part, 0, u32), field!(part, 4, u32));
            if field!(part, 8, u64) != 0 || !first.is_part() {
                return Err(BodyError::Frame);
            }
            entries = rest;
        }
        if !first.is_sound() {
            return Err(BodyError::Frame);
        }
        let table = Self { first, entries, payload_end };
        if entries.is_empty() {
            let is_full = body_bytes(length as usize, header.flags.units()) == body.len();
            return if is_full { Ok(table) } else { Err(BodyError::Length) };
        }
        // Before any frame is believed, so that a chunk that breaks a rule changes nothing.
        let mut others = table.checked_others();
        while !others.entries.is_empty() {
            others.take_entry()?;
        }
        Ok(table)
    }

    fn checked_others(&self) -> Others<'a> {
        Others {
            entries: self.entries,
            end: self.first.length as usize,
            payload_end: self.payload_end,
        }
    }

    /// Whether there is no other frame than the first.
    #[must_use]
    #[inline(always)]
    pub fn is_single(&self) -> bool {
        self.entries.is_empty()
    }

    /// The frames behind the first, and where the payload of each lies.
    #[inline]
    pub fn others(&self) -> impl Iterator<Item = (Frame, Range<usize>)> + use<'a> {
        // All were checked when the table was parsed.
        self.checked_others().map_while(Result::ok)
    }
}

/// The frames behind the first, each checked.
#[derive(Clone, Debug)]
struct Others<'a> {
    entries: &'a [u8],
    end: usize,
    payload_end: usize,
}

impl Iterator for Others<'_> {
    type Item = Result<(Frame, Range<usize>), BodyError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.entries.is_empty() {
            return None;
        }
        let next = self.take_entry();
        if next.is_err() {
            self.entries = &[];
        }
        Some(next)
    }
}

impl Others<'_> {
    #[inline(always)]
    fn take_entry(&mut self) -> Result<(Frame, Range<usize>), BodyError> {
        let Some((entry, rest)) = self.entries.split_first_chunk::<FRAME_UNIT_BYTES>() else {
            return Err(BodyError::Length);
        };
        let (word, last) = (field!(entry, 8, u32), field!(entry, 12, u32));
        let (length, at_page) = (word & !(TWO_UNITS | AT_PAGE), word & AT_PAGE != 0);
        let mut frame = Frame {
            channel: field!(entry, 0, u32),
            message: u64::from(field!(entry, 4, u32)),
            message_len: length,
            length,
            piece_len: length,
            at_page,
            ..Frame::default()
        };
        self.entries = rest;
        let is_sound = if word & TWO_UNITS == 0 {
            last == 0 && length > 0 && (!at_page || length as usize >= PAGE_BYTES)
        } else {
            let Some((more, rest)) = rest.split_first_chunk::<FRAME_UNIT_BYTES>() else {
                return Err(BodyError::Length);
            };
            self.entries = rest;
            (frame.index, frame.offset) = (last, field!(more, 0, u32));
            frame.message_len = field!(more, 4, u32);
            (frame.part_start, frame.piece_len) = (field!(more, 8, u32), field!(more, 12, u32));
            frame.is_sound() && !frame.is_whole()
        };
        if !is_sound {
            return Err(BodyError::Frame);
        }
        let start = place(self.end, &frame);
        let end = start + length as usize;
        self.end = end;
        let is_last = self.entries.is_empty();
        let fits = if is_last {
            end.next_multiple_of(FRAME_ALIGN_BYTES) == self.payload_end
        } else {
            end <= self.payload_end
        };
        if fits { Ok((frame, start..end)) } else { Err(BodyError::Length) }
    }
}

#[cfg(test)]
mod tests;
