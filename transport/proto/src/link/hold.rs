//! Putting what arrives to its message: whole pieces where they landed, parts of pieces in a buffer
//! of their piece (docs/protocol.md section 3).

use crate::channel::{Channel, Incoming, Misfit, Place, Reading};
use crate::event::{ChunkRef, IncomingKey, PieceBuffers};
use crate::limits::CHUNK_WINDOW;
use crate::slots::Slots;
use crate::wire::Frame;
use core::hint::cold_path;

/// Why a frame is not held.
pub(super) enum NotHeld {
    /// It breaks a rule.
    Violation,
    /// As many messages are being received as may be, or there is no buffer.
    Full,
}

impl From<Misfit> for NotHeld {
    fn from(Misfit: Misfit) -> Self {
        Self::Violation
    }
}

/// What is known of the message `id` of a frame, and whether all that the frame carries came
/// before.
#[inline(always)]
pub(super) fn look_up(
    channel: &Channel,
    incoming: &mut Slots<Incoming>,
    frame: &Frame,
    id: u64,
) -> Result<(Place, bool), NotHeld> {
    let place = channel.rx.place(id).map_err(|_| NotHeld::Violation)?;
    let is_known = match place {
        Place::Closed(_) => true,
        Place::New => false,
        Place::Open(key) => {
            let message = incoming.get_mut(key.0).expect("open messages are live");
            if message.message_len != frame.message_len {
                cold_path();
                return Err(NotHeld::Violation);
            }
            message.has(frame.index)? || message.has_part(frame)?
        }
    };
    Ok((place, is_known))
}

/// The message that a new frame is of, which may be its first.
#[inline(always)]
fn find_message<'m>(
    channel: &mut Channel,
    incoming: &'m mut Slots<Incoming>,
    frame: &Frame,
    (id, place, reading): (u64, Place, Reading),
) -> Result<(IncomingKey, &'m mut Incoming), NotHeld> {
    if let Place::Open(key) = place {
        let message = incoming.get_mut(key.0).expect("open messages are live");
        return Ok((key, message));
    }
    // Beyond the window it would leave an open message behind when it is refused.
    if u64::from(frame.index) >= CHUNK_WINDOW {
        cold_path();
        return Err(NotHeld::Violation);
    }
    let Some((key, message)) = incoming.take() else {
        cold_path();
        return Err(NotHeld::Full);
    };
    message.start(frame.channel, id, frame.message_len, reading);
    // Nobody will ask for a message that ends here and now.
    if channel.ordered || !frame.is_whole() {
        channel.rx.open(id, IncomingKey(key));
    }
    Ok((IncomingKey(key), message))
}

/// Puts a new piece to its message; says that it is held where it lies.
#[inline(always)]
pub(super) fn hold<'m>(
    channel: &mut Channel,
    incoming: &'m mut Slots<Incoming>,
    frame: &Frame,
    at: (u64, Place, Reading),
    (chunk, buffers): (ChunkRef, &mut dyn PieceBuffers),
) -> Result<(IncomingKey, &'m mut Incoming, u16), NotHeld> {
    // A piece of which parts are here has its credit.
    let is_begun = match at.1 {
        Place::Open(key) => incoming.get_mut(key.0).is_some_and(|m| m.is_partial(frame.index)),
        _ => false,
    };
    if !is_begun {
        channel.rx.use_credit().map_err(|_| NotHeld::Violation)?;
    }
    let found = find_message(channel, incoming, frame, at);
    let (key, message) = found.inspect_err(|_| channel.rx.unuse_credit())?;
    if message.accept(chunk).is_err() {
        cold_path();
        if !is_begun {
            channel.rx.unuse_credit();
        }
        return Err(NotHeld::Violation);
    }
    if is_begun && let Some(buf) = message.end_partial(frame.index) {
        buffers.give_back(buf);
    }
    Ok((key, message, 1))
}

/// Copies a part of a piece to where the piece is put together.
#[inline(never)]
pub(super) fn hold_part<'m>(
    channel: &mut Channel,
    incoming: &'m mut Slots<Incoming>,
    frame: &Frame,
    at: (u64, Place, Reading),
    (bytes, buffers): (&[u8], &mut dyn PieceBuffers),
) -> Result<(IncomingKey, &'m mut Incoming, u16), NotHeld> {
    let is_begun = match at.1 {
        Place::Open(key) => incoming.get_mut(key.0).is_some_and(|m| m.is_partial(frame.index)),
        _ => false,
    };
    if !is_begun {
        channel.rx.use_credit().map_err(|_| NotHeld::Violation)?;
        let Some(buf) = buffers.take(frame.piece_len) else {
            channel.rx.unuse_credit();
            return Err(NotHeld::Full);
        };
        let found = find_message(channel, incoming, frame, at);
        let begun = found.and_then(|(_, message)| Ok(message.begin_partial(frame, buf)?));
        begun.inspect_err(|_| {
            channel.rx.unuse_credit();
            buffers.give_back(buf);
        })?;
    }
    let place = channel.rx.place(at.0).map_err(|_| NotHeld::Violation)?;
    let Place::Open(key) = place else { return Err(NotHeld::Violation) };
    let message = incoming.get_mut(key.0).expect("open messages are live");
    let partial = message.partial(frame)?.ok_or(NotHeld::Violation)?;
    buffers.write(partial.buf, frame.part_start, bytes);
    partial.parts.insert(frame.part_start, frame.length);
    if !partial.parts.is_complete() {
        return Ok((key, message, 0));
    }
    let (offset, length) = (frame.piece_offset(), frame.piece_len);
    let chunk = ChunkRef { buf: partial.buf, start: 0, index: frame.index, offset, length };
    let buf = message.end_partial(frame.index);
    if message.accept(chunk).is_err() {
        channel.rx.unuse_credit();
        if let Some(buf) = buf {
            buffers.give_back(buf);
        }
        return Err(NotHeld::Violation);
    }
    Ok((key, message, 0))
}
