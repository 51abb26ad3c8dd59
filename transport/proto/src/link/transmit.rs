//! Transmitting: which chunk goes next, on which path, with what riding on it.

use super::build::{Bounds, Builder};
use super::control::Control;
use super::{Link, Pending};
use crate::channel::SendState;
use crate::event::{PathId, SendFrame, Transmit};
use crate::limits::{CONTROL_OUTSTANDING_MAX, HEADER_BYTES};
use crate::path::{TailProbe, What, bit};
use crate::slots::Key;
use crate::wire::{ChunkFlags, ChunkHeader, Kind};
use alloc::vec::Vec;
use core::hint::cold_path;
use core::ops::ControlFlow;
use towpath_base::Time;

impl Link {
    /// The next chunk to send, or `None` when there is nothing that may go now. The driver calls it
    /// only while the send queues of all paths have room.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let mut next = None;
        self.poll_transmits(now, |transmit| {
            next = Some(transmit.clone());
            false
        });
        next
    }

    /// Hands the next chunks to send to `each`, until that says that no other may follow at once:
    /// the send queue of a path is full, say. False when there is nothing that may go now; else
    /// there may be more to be asked for.
    ///
    /// The driver calls it only while the send queues of all paths have room, and calls nothing
    /// else of the link before it returns. A chunk is written over where the one before it was.
    #[inline]
    pub fn poll_transmits(
        &mut self,
        now: Time,
        mut each: impl FnMut(&mut Transmit) -> bool,
    ) -> bool {
        if self.is_down() || self.has_to_wait(self.carrier()) {
            cold_path();
            return false;
        }
        let mut any = false;
        while let Some(mut transmit) = self.next_chunk(now) {
            any = true;
            let goes_on = each(&mut transmit);
            self.sends.frames_scratch = transmit.frames;
            if !goes_on {
                break;
            }
        }
        any
    }

    #[inline]
    fn next_chunk(&mut self, now: Time) -> Option<Transmit> {
        self.flow.paced_until = Time::NEVER;
        if self.has_urgent() {
            cold_path();
            if let ControlFlow::Break(transmit) = self.next_urgent(now) {
                return transmit;
            }
        }
        self.next_of_new(now)
    }

    /// Whether there may be something to send beside new data.
    fn has_urgent(&self) -> bool {
        self.paths.probes_due | self.paths.tails_due != 0
            || !self.control.lost.is_empty()
            || !self.control.queue.is_empty()
            || !self.sends.lost.is_empty()
    }

    /// What goes before new data, or nothing because what was lost has to wait.
    #[inline(never)]
    fn next_urgent(&mut self, now: Time) -> ControlFlow<Option<Transmit>> {
        // The ack that waits may be of what would be sent again.
        self.settle_piggyback();
        if self.paths.probes_due != 0
            && let Some(transmit) = self.next_probe(now)
        {
            return ControlFlow::Break(Some(transmit));
        }
        if let Some(transmit) = self.next_control(now) {
            return ControlFlow::Break(Some(transmit));
        }
        if self.paths.tails_due != 0
            && let Some(transmit) = self.next_tail_probe(now)
        {
            return ControlFlow::Break(Some(transmit));
        }
        self.next_lost(now)
    }

    fn next_control(&mut self, now: Time) -> Option<Transmit> {
        while let Some(&(key, lost_on)) = self.control.lost.front() {
            let Some(&control) = self.control.sent.get(key) else {
                self.control.lost.pop_front();
                continue;
            };
            let index = self.paths.choose(now, bit(usize::from(lost_on)))?;
            self.control.lost.pop_front();
            return Some(self.transmit_control(now, index, key, control));
        }
        if self.control.queue.is_empty()
            || self.control.sent.len() >= CONTROL_OUTSTANDING_MAX
            || !self.control.acked.reaches(self.control.next)
        {
            return None;
        }
        let index = self.paths.choose(now, 0)?;
        let mut control = self.control.queue.pop_front()?;
        let (key, sent) = self.control.sent.take()?;
        control.sequence = self.control.next;
        self.control.next += 1;
        *sent = control;
        Some(self.transmit_control(now, index, key, control))
    }

    fn next_tail_probe(&mut self, now: Time) -> Option<Transmit> {
        while self.paths.tails_due != 0 {
            let index = self.paths.tails_due.trailing_zeros() as usize;
            self.paths.tails_due &= !bit(index);
            if let Some(transmit) = self.tail_probe(now, index) {
                return Some(transmit);
            }
        }
        None
    }

    /// Sends the newest outstanding chunk of a path again there, under a new number
    /// (docs/protocol.md section 5): its ack tells what else is missing on that path.
    fn tail_probe(&mut self, now: Time, index: usize) -> Option<Transmit> {
        let path = &mut self.paths[index];
        if path.timing.tail_probe != TailProbe::Due {
            return None;
        }
        path.timing.tail_probe = TailProbe::Sent;
        if !path.has_number_for_probe() {
            return None;
        }
        let (what, frames) = path.tx.newest_outstanding()?;
        let mut newest = core::mem::take(&mut self.sends.newest_scratch);
        newest.clear();
        newest.extend(frames);
        self.stats.tail_probes += 1;
        let transmit = self.tail_probe_of(now, index, what, &newest);
        self.sends.newest_scratch = newest;
        transmit
    }

    fn tail_probe_of(
        &mut self,
        now: Time,
        index: usize,
        what: What,
        newest: &[SendFrame],
    ) -> Option<Transmit> {
        let is_worse =
            self.paths.good() & !bit(index) != 0 && self.paths.watched() & bit(index) != 0;
        if is_worse || self.paths[index].carrier.is_reliable() {
            return Some(self.transmit_probe(now, index));
        }
        if let What::Control(key) = what
            && let Some(&control) = self.control.sent.get(key)
        {
            let transmit = self.transmit_control(now, index, key, control);
            self.paths[index].tx.note_copy();
            return Some(transmit);
        }
        // A packet full of the frames: any of them draws the ack.
        let mut builder = self.builder_of_packet();
        for frame in newest {
            if !self.is_wanted(frame) {
                continue;
            }
            if builder.takes(frame) {
                builder.add(*frame);
            } else if builder.is_empty()
                && let Some(length) = builder.part_of(frame.frame.length)
            {
                builder.add(split(frame, length).0);
            }
        }
        if builder.is_empty() {
            self.sends.frames_scratch = builder.into_frames();
            // What it carried has ended; any number will do to draw an ack.
            return Some(self.transmit_probe(now, index));
        }
        let transmit = self.transmit_again(now, index, builder);
        self.paths[index].tx.note_copy();
        Some(transmit)
    }

    /// Whether what a frame carries still has to reach the peer.
    fn is_wanted(&self, frame: &SendFrame) -> bool {
        self.sends.messages.get(frame.source.send.0).is_some_and(|message| {
            message.state == SendState::Sending && !message.is_acked(&frame.frame)
        })
    }

    /// An empty chunk, as long as loss and window suggest.
    #[inline]
    pub(super) fn builder(&mut self) -> Builder {
        let body_max = self.flow.body_max();
        self.builder_of(body_max)
    }

    /// An empty chunk of one packet, which neither disorder nor the loss of another one spoils.
    fn builder_of_packet(&mut self) -> Builder {
        let body_max = self.flow.one_packet();
        self.builder_of(body_max)
    }

    #[inline]
    fn builder_of(&mut self, body_max: u32) -> Builder {
        let bounds = Bounds {
            body_max: body_max as usize,
            piece_max: self.sends.piece_max as usize,
            gather_max: self.config.flow.gather_max,
        };
        Builder::new(bounds, core::mem::take(&mut self.sends.frames_scratch))
    }

    /// The next chunk of what was lost, for another path than the one that lost it, or of the rest
    /// of a piece that goes in parts. It breaks with nothing where that has to wait.
    fn next_lost(&mut self, now: Time) -> ControlFlow<Option<Transmit>> {
        self.drop_unwanted();
        let Some(&Pending { frame, lost_on }) = self.sends.lost.front() else {
            return ControlFlow::Continue(());
        };
        // Where nothing at all was acknowledged, longer chunks may never get through.
        let is_silent =
            lost_on.is_some_and(|path| self.paths[usize::from(path)].timing.rto_count() > 0);
        let builder = if is_silent { self.builder_of_packet() } else { self.builder() };
        let length = match builder.takes(&frame) {
            true => Some(frame.frame.length),
            false => builder.part_of(frame.frame.length),
        };
        let may_send = length.is_some_and(|length| self.flow.may_send(now, length, 0));
        let index = match lost_on {
            _ if !may_send => None,
            Some(path) => self.paths.choose(now, bit(usize::from(path))),
            None => self.choose_for(now, frame.source.send),
        };
        let index = index.filter(|&index| self.paths[index].has_room_for_chunk());
        let Some(index) = index else {
            self.sends.frames_scratch = builder.into_frames();
            return ControlFlow::Break(None);
        };
        let (mut builder, is_again) = self.fill_with_lost(builder);
        ControlFlow::Break(Some(if is_again {
            self.transmit_again(now, index, builder)
        } else {
            self.fill_with_new(&mut builder, index);
            self.transmit_data(now, index, builder)
        }))
    }

    /// Forgets what is in line to be sent and need not be any more.
    fn drop_unwanted(&mut self) {
        while let Some(Pending { frame, .. }) = self.sends.lost.front()
            && !self.is_wanted(frame)
        {
            self.sends.lost.pop_front();
        }
    }

    /// Takes from the line what finds room in a chunk; whether any of it was sent before.
    fn fill_with_lost(&mut self, mut builder: Builder) -> (Builder, bool) {
        let mut is_again = false;
        let room = self.flow.room();
        loop {
            self.drop_unwanted();
            let Some(pending) = self.sends.lost.front_mut() else { break };
            let (frame, rest) = if builder.takes(&pending.frame) {
                (pending.frame, None)
            } else if let Some(length) = builder.part_of(pending.frame.frame.length) {
                let (part, rest) = split(&pending.frame, length);
                (part, Some(rest))
            } else {
                break;
            };
            let charge = self.flow.charge(builder.body() + frame.frame.length);
            if !builder.is_empty() && u64::from(charge) > room {
                break;
            }
            builder.add(frame);
            is_again |= pending.lost_on.is_some();
            if let Some(rest) = rest {
                pending.frame = rest;
            } else {
                self.sends.lost.pop_front();
            }
        }
        (builder, is_again)
    }

    /// Sends frames again, under a new number.
    #[inline(never)]
    fn transmit_again(&mut self, now: Time, index: usize, builder: Builder) -> Transmit {
        self.stats.chunks_retransmitted += 1;
        self.stats.bytes_retransmitted += builder.payload_bytes();
        self.transmit_data(now, index, builder)
    }

    /// Sends a chunk of frames.
    #[inline]
    pub(super) fn transmit_data(&mut self, now: Time, index: usize, builder: Builder) -> Transmit {
        let (body, units) = (builder.body(), builder.table_units());
        let payload_bytes = builder.payload_bytes();
        let frames = builder.into_frames();
        for frame in &frames {
            if let Some(message) = self.sends.messages.get_mut(frame.source.send.0) {
                message.on_posted(&frame.frame);
            }
        }
        let charge = self.flow.charge(body);
        let (number, floor) = self.paths[index].tx.send_frames(&frames, charge, now);
        self.flow.on_sent(now, body);
        self.paths.on_sent(now, index, u64::from(charge));
        if !self.paths.ladder.is_only() {
            self.paths.ladder.loss.on_sent(self.flow.chunk_size.packets_of(body));
        }
        let sent_bytes = u64::from(body) + HEADER_BYTES as u64;
        if self.paths[index].mtu.wants_more(now, sent_bytes) {
            self.search_mtu(now, index);
        }
        self.stats.chunks_sent += 1;
        self.stats.frames_sent += frames.len() as u64;
        self.stats.bytes_sent += payload_bytes;
        let first = frames[0].frame;
        let mut header = self.data_header(first.channel, index, (number, floor));
        header.flags = header.flags.with_units(units).with(ChunkFlags::PART, first.is_part());
        (header.message, header.message_len) = (first.message, first.message_len);
        (header.index, header.offset, header.length) = (first.index, first.offset, first.length);
        self.ride_along(now, index, Kind::Data).on(&mut header);
        let cut_at = self.paths[index].mtu.cut_at();
        Transmit { path: PathId(index as u8), header, frames, filler_bytes: 0, cut_at }
    }

    /// The header of a chunk whose first frame is of a channel; without an ack.
    fn data_header(
        &mut self,
        channel: u32,
        index: usize,
        (number, floor): (u64, u64),
    ) -> ChunkHeader {
        let mut header = self.header(Kind::Data, channel, index, number, floor);
        let granted = self.channel_mut(channel).map(|found| found.rx.tell_credit() as u16);
        header.credit = granted.unwrap_or(0);
        header.flags = header
            .flags
            .with(ChunkFlags::CREDIT, granted.is_some())
            .with(ChunkFlags::BODY_CRC, self.config.payload_crc);
        header
    }

    fn transmit_control(
        &mut self,
        now: Time,
        index: usize,
        key: Key,
        control: Control,
    ) -> Transmit {
        let charge = self.flow.charge(0);
        let (number, floor) = self.paths[index].tx.send(What::Control(key), charge, now);
        self.flow.on_sent(now, 0);
        self.paths.on_sent(now, index, u64::from(charge));
        self.stats.control_sent += 1;
        let mut header = self.header(control.kind, control.channel, index, number, floor);
        header.message = control.message;
        header.index = control.index;
        header.offset = control.sequence as u32;
        header.message_len = control.message_len;
        if matches!(control.kind, Kind::Open | Kind::Opened) {
            let quota = self.channel(control.channel).map_or(0, |c| c.rx.quota());
            header.credit = quota as u16;
            header.flags = header.flags.with(ChunkFlags::CREDIT, true);
        }
        self.ride_along(now, index, control.kind).on(&mut header);
        let path = PathId(index as u8);
        Transmit { path, header, frames: Vec::new(), filler_bytes: 0, cut_at: None }
    }

    pub(super) fn header(
        &self,
        kind: Kind,
        channel: u32,
        index: usize,
        number: u64,
        floor: u64,
    ) -> ChunkHeader {
        ChunkHeader {
            kind,
            flags: ChunkFlags::default(),
            generation: self.paths[index].generation_out,
            number,
            message: 0,
            channel,
            index: 0,
            offset: 0,
            message_len: 0,
            length: 0,
            floor_delta: (number - floor) as u16,
            credit: 0,
            ack_largest: 0,
            ack_hold: 0,
            body_crc: 0,
        }
    }

    /// The ack that rides on a chunk that leaves on the path at `index`: one that is due on any
    /// path where nothing is missing, that path's own first (docs/protocol.md section 4).
    #[inline]
    pub(super) fn ride_along(&mut self, now: Time, index: usize, kind: Kind) -> Ride {
        let due = self.paths.acks_due;
        let mut of = index;
        if due & bit(index) == 0 && due != 0 {
            of = due.trailing_zeros() as usize;
        }
        // All our ways are tried: the peer needs but one ack by one of them.
        if let Some(heard) = self.doubts.heard_in_vain
            && kind == Kind::Probe
        {
            of = heard;
        }
        let rx = &mut self.paths[of].rx;
        let Some((largest, at)) = rx.largest().filter(|_| rx.is_complete()) else {
            return Ride { of: None, largest: 0, hold: 0 };
        };
        let hold = rx.tell(now, at);
        if due & bit(of) != 0 {
            self.tell_along(index, of);
        }
        Ride { of: Some(of), largest: largest as u32, hold }
    }

    /// The ack that was due on the path `of` leaves on that at `index`.
    fn tell_along(&mut self, index: usize, of: usize) {
        // What rides on a path in doubt is told again.
        if self.paths.good() & bit(index) != 0 && !self.paths.ladder.is_below(of) {
            self.stats.acks_piggybacked += 1;
            self.paths.acks_due &= !bit(of);
        }
    }
}

/// An ack that rides on a chunk, if any does.
pub(super) struct Ride {
    /// The path that it is of.
    of: Option<usize>,
    largest: u32,
    hold: u32,
}

impl Ride {
    fn flags(&self, flags: ChunkFlags) -> ChunkFlags {
        self.of.map_or(flags, |of| flags.with_ack_of(of))
    }

    pub(super) fn on(&self, header: &mut ChunkHeader) {
        header.flags = self.flags(header.flags);
        (header.ack_largest, header.ack_hold) = (self.largest, self.hold);
    }
}

/// A frame in two: the first part of so many bytes, and the rest.
pub(super) fn split(frame: &SendFrame, length: u32) -> (SendFrame, SendFrame) {
    let (mut part, mut rest) = (*frame, *frame);
    part.source.length = length;
    part.frame.length = length;
    rest.source.offset += length;
    rest.source.length -= length;
    rest.frame.offset += length;
    rest.frame.part_start += length;
    rest.frame.length -= length;
    // Parts are copied by the receiver.
    (part.frame.at_page, rest.frame.at_page) = (false, false);
    (part, rest)
}
