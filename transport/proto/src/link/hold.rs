//! Putting what arrives to its message: whole pieces where they landed, parts of pieces in a buffer
//! of their piece (docs/protocol.md section 3).

use super::channels::note_credit;
use super::receives::{Receives, Report};
use crate::channel::{Channel, Closed, Incoming, Misfit, Place, Reading, RxViolation};
use crate::config::LinkConfig;
use crate::event::{Arrival, ChunkRef, IncomingKey, PieceBuffers};
use crate::limits::{CHUNK_WINDOW, LANE_MESSAGE_BYTES_MAX};
use crate::wire::Frame;
use core::hint::cold_path;
use core::ops::Range;

/// What became of a chunk or a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Held, in so many pieces of its buffer; its number is acknowledged.
    Held(u16),
    /// Not needed (any more), and acknowledged so that the sender stops.
    Known,
    /// Not taken: it must come again, or never should have come. So many pieces are held all the
    /// same.
    Refused(u16),
}

/// Why a frame is not held.
enum NotHeld {
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

impl From<RxViolation> for NotHeld {
    fn from(_: RxViolation) -> Self {
        Self::Violation
    }
}

/// Where a frame lies, and where parts of pieces are put together.
pub(super) struct Landing<'a> {
    pub(super) arrival: &'a Arrival<'a>,
    /// In the body of the arrival.
    pub(super) place: Range<usize>,
    pub(super) buffers: &'a mut dyn PieceBuffers,
}

impl Receives {
    /// Takes in a frame of the message `id` of a channel.
    #[inline(always)]
    pub(super) fn take_in(
        &mut self,
        config: &LinkConfig,
        channel: &mut Channel,
        (frame, id): (&Frame, u64),
        landing: Landing<'_>,
        report: &mut Report<'_>,
    ) -> Taken {
        let Ok((found, is_known)) = self.look_up(channel, frame, id) else {
            return violation(report);
        };
        // What was given up is acknowledged, too: its sender waits for the answer to ABANDON.
        if is_known && (found == Place::Closed(Closed::Abandoned) || !takes_duplicates(config)) {
            cold_path();
            return Taken::Known;
        }
        let max =
            if channel.for_lane { LANE_MESSAGE_BYTES_MAX } else { config.limits.message_bytes_max };
        if frame.message_len > max {
            return violation(report);
        }
        let reading = match () {
            // What a lane says is short, and never streamed.
            () if channel.for_lane => Reading::Whole,
            () if config.rules.pieces_as_they_come && !channel.ordered => Reading::AsItComes,
            () if frame.message_len > self.whole_bytes_max() => Reading::InOrder,
            () => Reading::Whole,
        };
        let held = if frame.is_part() {
            cold_path();
            self.hold_part(channel, frame, (id, found, reading), landing)
        } else if !landing.arrival.may_keep {
            cold_path();
            return Taken::Refused(0);
        } else {
            self.hold(channel, frame, (id, found, reading), landing)
        };
        let (key, pieces) = match held {
            Ok(held) => held,
            Err(NotHeld::Violation) => return violation(report),
            Err(NotHeld::Full) => {
                cold_path();
                return Taken::Refused(0);
            }
        };
        report.stats.frames_received += 1;
        report.stats.bytes_received += u64::from(frame.length);
        // Its sender may have no credit left now, and not know of what was released before.
        if channel.rx.should_tell_credit() {
            note_credit(channel, report.credit_due);
        }
        self.advance(channel, key, report);
        Taken::Held(pieces)
    }

    /// What is known of the message `id` of a frame, and whether all that the frame carries came
    /// before.
    #[inline(always)]
    fn look_up(
        &mut self,
        channel: &Channel,
        frame: &Frame,
        id: u64,
    ) -> Result<(Place, bool), NotHeld> {
        let place = channel.rx.place(id)?;
        let is_known = match place {
            Place::Closed(_) => true,
            Place::New => false,
            Place::Open(key) => {
                let message = self.messages.get_mut(key.0).expect("open messages are live");
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
    fn find(
        &mut self,
        channel: &mut Channel,
        frame: &Frame,
        (id, place, reading): (u64, Place, Reading),
    ) -> Result<(IncomingKey, &mut Incoming), NotHeld> {
        if let Place::Open(key) = place {
            let message = self.messages.get_mut(key.0).expect("open messages are live");
            return Ok((key, message));
        }
        // Beyond the window it would leave an open message behind when it is refused.
        if u64::from(frame.index) >= CHUNK_WINDOW {
            cold_path();
            return Err(NotHeld::Violation);
        }
        let Some((key, message)) = self.messages.take() else {
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

    /// Whether parts of the piece of a frame are held: then it has its credit.
    fn is_begun(&self, place: Place, frame: &Frame) -> bool {
        let Place::Open(key) = place else { return false };
        self.messages.get(key.0).is_some_and(|message| message.is_partial(frame.index))
    }

    /// Puts a new piece to its message; says that it is held where it lies.
    #[inline(always)]
    fn hold(
        &mut self,
        channel: &mut Channel,
        frame: &Frame,
        at: (u64, Place, Reading),
        Landing { arrival, place, buffers }: Landing<'_>,
    ) -> Result<(IncomingKey, u16), NotHeld> {
        let is_begun = self.is_begun(at.1, frame);
        if !is_begun {
            channel.rx.check_credit()?;
        }
        let (buf, start) = (arrival.buf, place.start as u32);
        let Frame { index, offset, length, .. } = *frame;
        let chunk = ChunkRef { buf, start, index, offset, length };
        let (key, message) = self.find(channel, frame, at)?;
        message.accept(chunk)?;
        if !is_begun {
            channel.rx.count();
        } else if let Some(buf) = message.end_partial(frame.index) {
            buffers.give_back(buf);
        }
        Ok((key, 1))
    }

    /// Copies a part of a piece to where the piece is put together.
    #[inline(never)]
    fn hold_part(
        &mut self,
        channel: &mut Channel,
        frame: &Frame,
        at: (u64, Place, Reading),
        Landing { arrival, place, buffers }: Landing<'_>,
    ) -> Result<(IncomingKey, u16), NotHeld> {
        if !self.is_begun(at.1, frame) {
            channel.rx.check_credit()?;
            let buf = buffers.take(frame.piece_len).ok_or(NotHeld::Full)?;
            let found = self.find(channel, frame, at);
            let begun = found.and_then(|(_, message)| Ok(message.begin_partial(frame, buf)?));
            begun.inspect_err(|_| buffers.give_back(buf))?;
            channel.rx.count();
        }
        let Place::Open(key) = channel.rx.place(at.0)? else { return Err(NotHeld::Violation) };
        let message = self.messages.get_mut(key.0).expect("open messages are live");
        let partial = message.partial(frame)?.ok_or(NotHeld::Violation)?;
        buffers.write(partial.buf, frame.part_start, &arrival.body[place]);
        partial.parts.insert(frame.part());
        if partial.parts.bytes() < partial.piece_len {
            return Ok((key, 0));
        }
        let (offset, length) = (frame.piece_offset(), frame.piece_len);
        let chunk = ChunkRef { buf: partial.buf, start: 0, index: frame.index, offset, length };
        let buf = message.end_partial(frame.index);
        if message.accept(chunk).is_err() {
            channel.rx.release(1);
            if let Some(buf) = buf {
                buffers.give_back(buf);
            }
            return Err(NotHeld::Violation);
        }
        Ok((key, 0))
    }
}

#[cfg(not(feature = "sabotage"))]
fn takes_duplicates(_: &LinkConfig) -> bool {
    false
}

#[cfg(feature = "sabotage")]
fn takes_duplicates(config: &LinkConfig) -> bool {
    config.sabotage.accept_duplicates
}

#[cold]
fn violation(report: &mut Report<'_>) -> Taken {
    report.stats.violations += 1;
    Taken::Refused(0)
}
