//! Transmitting: which chunk goes next, on which path, and with which ack.

use super::Link;
use super::build::Builder;
use super::control::Control;
use super::pack::Turn;
use super::sends::Pending;
use crate::config::Spreading;
use crate::event::{PathId, SendKey, Transmit};
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

    /// Hands the next chunks to send to `each` until that returns false, for example because the
    /// send queue of a path is full. False when nothing may go now; else there may be more.
    ///
    /// The driver calls it only while the send queues of all paths have room. The next chunk uses
    /// the buffer of the frames again: copy what must be kept.
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
            || self.control.waits()
            || !self.sends.lost.is_empty()
    }

    /// The chunk that goes before new data; `Break(None)` because lost frames have to wait.
    #[inline(never)]
    fn next_urgent(&mut self, now: Time) -> ControlFlow<Option<Transmit>> {
        // The ack that waits may acknowledge frames that would be sent again.
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
        let avoid = self.control.next()?;
        let index = self.paths.choose(now, avoid)?;
        let (key, control) = self.control.take()?;
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
        let is_watched = self.paths.watched() & bit(index) != 0;
        let is_worse = is_watched && self.paths.good() & !bit(index) != 0;
        let path = &mut self.paths[index];
        if path.timing.tail_probe != TailProbe::Due {
            return None;
        }
        path.timing.tail_probe = TailProbe::Sent;
        if !path.has_number_for_probe() {
            return None;
        }
        let repeats = !is_worse && !path.carrier.is_reliable();
        // One packet is enough: any frame of the chunk makes the peer acknowledge it.
        let mut builder = self.sends.builder(self.flow.one_packet(), self.config.flow.gather_max);
        let what = {
            let (what, frames) = path.tx.newest_outstanding()?;
            if repeats {
                self.sends.repeat(frames, &mut builder);
            }
            what
        };
        self.stats.tail_probes += 1;
        let control = match what {
            What::Control(key) if repeats => self.control.get(key).map(|control| (key, control)),
            _ => None,
        };
        let transmit = if let Some((key, control)) = control {
            self.sends.put_back(builder);
            self.transmit_control(now, index, key, control)
        } else if builder.is_empty() {
            self.sends.put_back(builder);
            // Its messages have ended; a probe draws an ack as well.
            return Some(self.transmit_probe(now, index, None));
        } else {
            self.transmit_again(now, index, builder)
        };
        self.paths[index].tx.note_copy();
        Some(transmit)
    }

    /// An empty chunk, as long as loss and window suggest.
    #[inline]
    fn builder(&mut self) -> Builder {
        self.sends.builder(self.flow.body_max(), self.config.flow.gather_max)
    }

    /// An empty chunk of one packet, which neither disorder nor another packet's loss spoils.
    fn builder_of_packet(&mut self) -> Builder {
        self.sends.builder(self.flow.one_packet(), self.config.flow.gather_max)
    }

    /// The next chunk of lost frames, for another path than the one that lost them, or of rests of
    /// pieces that go in parts. `Break(None)` if such frames wait, which nothing newer may pass;
    /// `Continue` if there are none.
    fn next_lost(&mut self, now: Time) -> ControlFlow<Option<Transmit>> {
        let Some(Pending { frame, lost_on }) = self.sends.first_lost() else {
            return ControlFlow::Continue(());
        };
        // Where nothing at all was acknowledged, longer chunks may never get through.
        let is_silent =
            lost_on.is_some_and(|path| self.paths[usize::from(path)].timing.rto_count() > 0);
        let mut builder = if is_silent { self.builder_of_packet() } else { self.builder() };
        let may_send =
            builder.room_for(&frame).is_some_and(|length| self.flow.may_send(now, length, 0));
        let index = match lost_on {
            _ if !may_send => None,
            Some(path) => self.paths.choose(now, bit(usize::from(path))),
            None => self.choose_for(now, frame.source.send),
        };
        let index = index.filter(|&index| self.paths[index].has_room_for_chunk());
        let Some(index) = index else {
            self.sends.put_back(builder);
            return ControlFlow::Break(None);
        };
        let (flow, room) = (&self.flow, self.flow.room());
        let may_go = |body| u64::from(flow.charge(body)) <= room;
        ControlFlow::Break(Some(if self.sends.fill_with_lost(&mut builder, may_go) {
            self.transmit_again(now, index, builder)
        } else {
            self.fill_with_new(&mut builder, index);
            self.transmit_data(now, index, builder)
        }))
    }

    /// A chunk of new data, if any may go now: from the channel whose turn it is, and from those
    /// whose turn is next as long as there is room.
    #[inline]
    fn next_of_new(&mut self, now: Time) -> Option<Transmit> {
        let mut builder = self.builder();
        let first = self.begin_chunk(now, &builder);
        let Some((turn, index)) = first else {
            self.sends.put_back(builder);
            return None;
        };
        self.sends.cut(&mut self.channels, turn, &mut builder);
        self.fill_with_new(&mut builder, index);
        Some(self.transmit_data(now, index, builder))
    }

    /// Adds ready frames to a chunk that leaves on the path at `index`.
    #[inline]
    fn fill_with_new(&mut self, builder: &mut Builder, index: usize) {
        let room = self.flow.room();
        while let Some(turn) = self.sends.turn(&mut self.channels, builder) {
            let charge = self.flow.charge(builder.body_with(turn.take.part));
            if u64::from(charge) > room || !self.may_join(turn.send, index) {
                break;
            }
            self.sends.cut(&mut self.channels, turn, builder);
        }
    }

    /// What has the turn, and the path of the next chunk, if it may go now.
    #[inline]
    fn begin_chunk(&mut self, now: Time, builder: &Builder) -> Option<(Turn, usize)> {
        let Some(turn) = self.sends.turn(&mut self.channels, builder) else {
            self.flow.on_nothing_to_send();
            self.arm_credit_probe(now);
            return None;
        };
        let ready_bytes = self.sends.ready_behind(&mut self.channels, &turn);
        let may_send = self.flow.may_send(now, turn.take.part, ready_bytes);
        let index = if may_send { self.choose_for(now, turn.send) } else { None };
        if index.is_none() {
            cold_path();
            self.arm_credit_probe(now);
        }
        let index = index.filter(|&index| self.paths[index].has_room_for_chunk())?;
        Some((turn, index))
    }

    /// Whether messages keep to their paths.
    #[inline]
    fn keeps_paths(&self) -> bool {
        self.paths.spreading == Spreading::Message && self.paths.has_choice()
    }

    /// The path for the next chunk, which begins with a frame of a message.
    #[inline]
    fn choose_for(&mut self, now: Time, send: SendKey) -> Option<usize> {
        if self.keeps_paths() { self.choose_to_keep(now, send) } else { self.paths.choose(now, 0) }
    }

    #[inline(never)]
    fn choose_to_keep(&mut self, now: Time, send: SendKey) -> Option<usize> {
        let Self { sends, paths, .. } = self;
        let keeps_to = sends.path_of(send)?;
        let kept = keeps_to.map(usize::from).filter(|&index| paths.is_usable(index));
        let index = kept.or_else(|| paths.choose(now, 0))?;
        *keeps_to = Some(index as u8);
        Some(index)
    }

    /// Whether a message may leave on the path of a chunk that others began.
    #[inline]
    fn may_join(&mut self, send: SendKey, index: usize) -> bool {
        let index = index as u8;
        !self.keeps_paths()
            || self.sends.path_of(send).is_some_and(|path| *path.get_or_insert(index) == index)
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
            self.sends.on_posted(frame);
        }
        let charge = self.flow.charge(body);
        let (number, floor) = self.paths[index].tx.send_frames(&frames, charge, now);
        self.flow.on_sent(now, body);
        self.paths.on_sent(now, index, u64::from(charge));
        if !self.paths.ladder.is_only() {
            self.paths.ladder.loss.on_sent(self.flow.chunk_size.packets_of(body));
        }
        let sent_bytes = u64::from(body) + u64::from(self.flow.chunk_size.around_bytes());
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
        self.ride_along(now, index, &mut header);
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
            .with(ChunkFlags::BODY_CRC, self.config.rules.payload_crc);
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
        self.ride_along(now, index, &mut header);
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
        let generation = self.paths[index].generation_out;
        let floor_delta = (number - floor) as u16;
        let rest = ChunkHeader::default();
        ChunkHeader { kind, generation, number, channel, floor_delta, ..rest }
    }

    /// Lets an ack ride on a chunk that leaves on the path at `index`: one that is due on any path
    /// where nothing is missing, that path's own first (docs/protocol.md section 4).
    #[inline]
    pub(super) fn ride_along(&mut self, now: Time, index: usize, header: &mut ChunkHeader) {
        let due = self.paths.acks_due;
        let mut of = index;
        if due & bit(index) == 0 && due != 0 {
            of = due.trailing_zeros() as usize;
        }
        // The peer seems to get no ack: each probe carries the ack of the path on which that was
        // noticed, so that one of them gets there.
        if let Some(heard) = self.doubts.heard_in_vain
            && header.kind == Kind::Probe
        {
            of = heard;
        }
        let lag = self.chunk_lag.least();
        let rx = &mut self.paths[of].rx;
        let Some((largest, at)) = rx.largest().filter(|_| rx.is_complete()) else { return };
        header.flags = header.flags.with_ack_of(of);
        (header.ack_largest, header.ack_hold) = (largest as u32, rx.tell(now, at, lag));
        if due & bit(of) != 0 {
            self.note_ride(index, of);
        }
    }

    /// Notes that the ack that was due on the path `of` rides on a chunk of that at `index`.
    fn note_ride(&mut self, index: usize, of: usize) {
        // An ack that rides on a path in doubt stays due.
        if self.paths.good() & bit(index) != 0 && !self.paths.is_below(of) {
            self.stats.acks_piggybacked += 1;
            self.paths.acks_due &= !bit(of);
        }
    }
}
