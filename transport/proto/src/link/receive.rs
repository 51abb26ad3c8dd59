//! Receiving a chunk: header, generation, control or data.

use super::hold::{Landing, Taken};
use super::intact::body_is_intact;
use super::paths::PROBE_SILENCE;
use super::receives::Report;
use super::{Channels, Link, LinkState, find_mut};
use crate::channel::ChannelState;
use crate::event::{Arrival, PathId, PieceBuffers, Verdict};
use crate::limits::{ACK_BYTES_MAX, HEADER_BYTES};
use crate::path::bit;
use crate::wire::{ChunkFlags, ChunkHeader, Frame, FrameTable, KIND_ACK, Kind};
use core::hint::cold_path;
use core::ops::Range;
use towpath_base::serial::{expand_u16, expand_u32};
use towpath_base::{Nanos, Time};

/// An ack that rode on a chunk: all up to `largest` on `path`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piggyback {
    path: usize,
    largest: u64,
    /// Now, when it was received, and how long the peer had held it.
    times: (Time, Time, Nanos),
}

impl Link {
    /// Takes in a chunk that the device received on `path`. Parts of pieces are copied to
    /// `buffers`.
    pub fn handle_chunk(
        &mut self,
        now: Time,
        path: PathId,
        arrival: &Arrival<'_>,
        buffers: &mut dyn PieceBuffers,
    ) -> Verdict {
        let Arrival { header, body, received_at, .. } = *arrival;
        if header[1] == KIND_ACK {
            cold_path();
            self.take_in_ack_on(now, path, header, body, received_at);
            return Verdict::Recycle;
        }
        // Looked at where it is: it is long to copy.
        let parsed = ChunkHeader::parse(header);
        let Ok(header) = &parsed else {
            cold_path();
            self.stats.headers_bad += 1;
            return Verdict::Recycle;
        };
        // What follows a PROBE is filler, and nothing follows other control chunks.
        if !matches!(header.kind, Kind::Data | Kind::Probe) && !body.is_empty() {
            cold_path();
            self.stats.payloads_bad += 1;
            return Verdict::Recycle;
        }
        if !self.is_of_this_life(path, header) {
            cold_path();
            self.stats.chunks_stale += 1;
            return Verdict::Recycle;
        }
        if self.is_down() {
            cold_path();
            return Verdict::Recycle;
        }
        let index = usize::from(path.0);
        self.hear(now, index);
        if header.kind != Kind::Probe && self.paths.len() > 1 {
            self.on_heard(now, index);
            // The ack that waited may have been the one of our GOODBYE.
            if self.is_down() {
                cold_path();
                return Verdict::Recycle;
            }
        }
        self.paths[index].rx.advance(header.floor());
        self.take_in_piggyback(now, header, received_at);
        // What ends messages must find those ended that are acknowledged.
        if header.kind != Kind::Data || self.end.state != LinkState::Up {
            cold_path();
            self.settle_piggyback();
        }
        // The ack that rode on it may have been the one of our GOODBYE.
        if self.is_down() {
            cold_path();
            return Verdict::Recycle;
        }
        let taken = match header.kind {
            Kind::Data => self.on_data((now, index), header, arrival, buffers),
            Kind::Probe => {
                if header.index == PROBE_SILENCE {
                    self.on_silence_of_peer(now, index);
                }
                Taken::Known
            }
            _ if self.on_control(now, *header) => Taken::Known,
            _ => Taken::Refused(0),
        };
        if matches!(taken, Taken::Held(_)) {
            self.take_in_credit(index, header);
        }
        if !matches!(taken, Taken::Refused(_)) {
            self.paths[index].rx.accept(header.number, received_at);
            self.paths.acks_due |= bit(index);
        }
        match taken {
            Taken::Held(pieces) | Taken::Refused(pieces) if pieces > 0 => Verdict::Kept(pieces),
            _ => Verdict::Recycle,
        }
    }

    /// An ack came on the queue pair of a path: the way of the control queue pair is in doubt
    /// there.
    #[inline(never)]
    fn take_in_ack_on(
        &mut self,
        now: Time,
        path: PathId,
        header: &[u8; HEADER_BYTES],
        body: &[u8],
        received_at: Time,
    ) {
        let mut bytes = [0; ACK_BYTES_MAX];
        let len = HEADER_BYTES + body.len();
        let index = usize::from(path.0);
        let (Some(whole), Some(path)) = (bytes.get_mut(..len), self.paths.get(index)) else {
            self.stats.acks_bad += 1;
            return;
        };
        let generation = path.generation_in;
        self.doubts.ack_heard = Some((index, now));
        whole[..HEADER_BYTES].copy_from_slice(header);
        whole[HEADER_BYTES..].copy_from_slice(body);
        self.take_in_ack(now, whole, received_at, generation);
    }

    fn is_of_this_life(&self, path: PathId, header: &ChunkHeader) -> bool {
        let Some(path) = self.paths.get(usize::from(path.0)) else { return false };
        #[cfg(feature = "sabotage")]
        if self.config.sabotage.accept_stale {
            return true;
        }
        header.generation == path.generation_in
    }

    /// The ack that rides on a chunk.
    #[inline(always)]
    fn take_in_piggyback(&mut self, now: Time, header: &ChunkHeader, received_at: Time) {
        let acked = header.flags.ack_path();
        if header.flags.has(ChunkFlags::ACK) && acked < self.paths.len() {
            let tx = &self.paths[acked].tx;
            let largest = expand_u32(header.ack_largest, tx.next());
            // Data that goes one way carries the same ack again and again.
            if tx.was_sent(largest) && !tx.is_news(largest, largest.saturating_add(1)) {
                self.stats.acks_received += 1;
            } else {
                let hold = Nanos(u64::from(header.ack_hold));
                self.hold_piggyback(Piggyback {
                    path: acked,
                    largest,
                    times: (now, received_at, hold),
                });
            }
        }
    }

    /// The credit that rides on a chunk of data that is held. Only the newest header's 16 bits are
    /// near enough to what is granted now: on a path that stood still that may be an old one, but
    /// then what it carries came another way meanwhile, and it is not held.
    #[inline(always)]
    fn take_in_credit(&mut self, path: usize, header: &ChunkHeader) {
        let seen = self.paths[path].rx.largest();
        let is_newest = seen.is_none_or(|(largest, _)| header.number > largest);
        let tells_credit = is_newest && header.flags.has(ChunkFlags::CREDIT);
        if let Some(channel) = self.channel(header.channel).filter(|_| tells_credit) {
            let before = channel.tx.granted();
            let granted = expand_u16(header.credit, before);
            if granted != before {
                self.on_credit_of_header(header.channel, granted);
            }
        }
    }

    /// A grant that a header tells in 16 bits. One that cannot be true is none of this time: the
    /// chunk was under way while far more was granted.
    #[inline(never)]
    fn on_credit_of_header(&mut self, id: u32, granted: u64) {
        let Some(channel) = self.channel(id) else { return };
        let is_opening = channel.state == ChannelState::Opening;
        if is_opening || channel.tx.may_be_granted(granted) {
            self.on_credit(id, granted);
        } else {
            self.stats.acks_bad += 1;
        }
    }

    /// Keeps an ack for [`settle_piggyback`](Self::settle_piggyback), in place of one that it says
    /// more than.
    #[inline]
    fn hold_piggyback(&mut self, ack: Piggyback) {
        match self.receives.piggyback {
            Some(held) if held.path != ack.path => {
                cold_path();
                self.settle_piggyback();
            }
            Some(held) if held.largest >= ack.largest => return self.stats.acks_received += 1,
            Some(_) => self.stats.acks_received += 1,
            None => {}
        }
        self.receives.piggyback = Some(ack);
    }

    /// Takes in the ack that rode on the chunk that came last. False when there is none. True when
    /// there was one: [`poll_transmit`](Self::poll_transmit) may have more to send now.
    #[inline]
    pub fn settle_piggyback(&mut self) -> bool {
        let Some(Piggyback { path, largest, times }) = self.receives.piggyback.take() else {
            return false;
        };
        if !self.is_down() {
            let base = largest.saturating_add(1);
            self.on_ack_of(times, path, largest, base, core::iter::empty());
        }
        true
    }

    /// A cumulative grant of the peer.
    #[inline(never)]
    pub(super) fn on_credit(&mut self, id: u32, granted: u64) {
        let Some(channel) = self.channel_mut(id) else { return };
        if channel.state == ChannelState::Opening {
            return;
        }
        if !channel.tx.may_be_granted(granted) {
            self.stats.violations += 1;
            return;
        }
        if !channel.tx.grant(granted) {
            return;
        }
        self.presence.probes_unanswered = 0;
        self.channels.make_ready(id);
    }

    /// DATA (docs/protocol.md sections 2 and 6): the frames of a chunk. Its number is acknowledged
    /// when all of them are held, or were before; what is held of one that is not stays.
    #[inline(always)]
    fn on_data(
        &mut self,
        (now, path): (Time, usize),
        header: &ChunkHeader,
        arrival: &Arrival<'_>,
        buffers: &mut dyn PieceBuffers,
    ) -> Taken {
        let Arrival { body, .. } = *arrival;
        let Ok(table) = FrameTable::parse(header, body) else {
            cold_path();
            return self.refuse_bad(header, body, buffers);
        };
        if !body_is_intact(&self.config, header.checksum(), body, buffers) {
            cold_path();
            self.stats.payloads_bad += 1;
            return Taken::Refused(0);
        }
        let mut tally = Tally::default();
        let place = 0..table.first.length as usize;
        let id = Some(table.first.message);
        let taken = self.on_frame(&table.first, id, place, (arrival, buffers));
        tally.add(taken);
        if !table.is_single() {
            for (frame, place) in table.others() {
                let taken = self.on_frame(&frame, None, place, (arrival, buffers));
                tally.add(taken);
            }
        }
        if tally.is_new {
            self.stats.chunks_received += 1;
            (self.doubts.duplicates, self.doubts.heard_in_vain) = (0, None);
        } else if tally.known > 0 {
            cold_path();
            self.stats.chunks_duplicate += 1;
            if !tally.is_refused {
                self.on_known_chunk(now, path);
            }
        }
        if tally.is_refused {
            Taken::Refused(tally.pieces)
        } else if tally.is_new {
            Taken::Held(tally.pieces)
        } else {
            Taken::Known
        }
    }

    /// What no sound sender sends: its frames break a rule, or something damaged it.
    #[cold]
    fn refuse_bad(
        &mut self,
        header: &ChunkHeader,
        body: &[u8],
        buffers: &mut dyn PieceBuffers,
    ) -> Taken {
        if body_is_intact(&self.config, header.checksum(), body, buffers) {
            self.stats.violations += 1;
        } else {
            self.stats.payloads_bad += 1;
        }
        Taken::Refused(0)
    }

    /// A frame whose payload lies at `place` of the body of a chunk. Of the message id the frame
    /// has only the low bits where `id` is none.
    #[inline]
    fn on_frame(
        &mut self,
        frame: &Frame,
        id: Option<u64>,
        place: Range<usize>,
        (arrival, buffers): (&Arrival<'_>, &mut dyn PieceBuffers),
    ) -> Taken {
        let Self { config, channels, receives, events, stats, .. } = self;
        let Channels { all, credit_due, .. } = channels;
        // Data of a channel whose OPENED is still on its way comes again.
        let channel = find_mut(all, frame.channel).filter(|channel| channel.takes_data());
        let Some(channel) = channel else {
            cold_path();
            return Taken::Refused(0);
        };
        let id = id.unwrap_or_else(|| expand_u32(frame.message as u32, channel.rx.ended_ids()));
        let landing = Landing { arrival, place, buffers };
        let mut report = Report { events, stats, credit_due };
        receives.take_in(config, channel, (frame, id), landing, &mut report)
    }
}

/// What became of the frames of a chunk.
#[derive(Default)]
struct Tally {
    /// Pieces of its buffer that are held.
    pieces: u16,
    known: u16,
    is_new: bool,
    is_refused: bool,
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, taken: Taken) {
        match taken {
            Taken::Held(pieces) => (self.pieces, self.is_new) = (self.pieces + pieces, true),
            Taken::Known => self.known += 1,
            Taken::Refused(_) => self.is_refused = true,
        }
    }
}
