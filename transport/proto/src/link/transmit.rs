//! Transmitting: which chunk goes next, on which path, with what riding on it.

use super::Link;
use super::control::Control;
use super::run::Run;
use crate::channel::SendState;
use crate::event::{PathId, PayloadRef, Transmit};
use crate::limits::{CONTROL_OUTSTANDING_MAX, HEADER_BYTES};
use crate::path::{DataChunk, TailProbe, What, bit};
use crate::slots::Key;
use crate::wire::{ChunkFlags, ChunkHeader, Kind};
use core::hint::cold_path;
use core::ops::ControlFlow;
use towpath_base::Time;

/// Why a chunk was or was not found.
enum Next {
    /// A chunk, for a path.
    Chunk(usize, DataChunk),
    /// The window or the pacer holds it back, or no path has a number.
    Blocked,
    Nothing,
}

impl Link {
    /// The next chunk to send, or `None` when there is nothing that may go now. The driver calls it
    /// only while the send queues of all paths have room.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let mut next = None;
        self.poll_transmits(now, |transmit| {
            next = Some(*transmit);
            false
        });
        next
    }

    /// Hands the next chunks to send to `each`, one or more, until that says that no other may
    /// follow at once: the send queue of a path is full, say. Chunks of new data that take the same
    /// path come in one go, which is cheaper than one by one. False when there is nothing that may
    /// go now; else there may be more to be asked for.
    ///
    /// The driver calls it only while the send queues of all paths have room, and calls nothing
    /// else of the link before it returns. A chunk is written over where the one before it was: of
    /// what `each` changes there, `payload_crc` stays until it is set again.
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
        self.flow.paced_until = Time::NEVER;
        let urgent = if self.has_urgent() {
            cold_path();
            self.next_urgent(now)
        } else {
            ControlFlow::Continue(())
        };
        let run = match urgent {
            ControlFlow::Continue(()) => self.next_run(now),
            ControlFlow::Break(transmit) => transmit.map(Run::urgent),
        };
        let Some(mut run) = run else { return false };
        // Here alone, so that it is compiled into the loop.
        while let Some(transmit) = run.next(self, now)
            && each(transmit)
        {}
        run.settle(self, now)
    }

    /// Whether there may be something to send beside new data.
    fn has_urgent(&self) -> bool {
        self.paths.probes_due | self.paths.tails_due != 0
            || !self.control_lost.is_empty()
            || !self.control_queue.is_empty()
            || !self.lost.is_empty()
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
        match self.next_lost(now) {
            Next::Chunk(index, chunk) => {
                ControlFlow::Break(self.transmit_again(now, index, &chunk))
            }
            Next::Blocked => ControlFlow::Break(None),
            Next::Nothing => ControlFlow::Continue(()),
        }
    }

    fn next_control(&mut self, now: Time) -> Option<Transmit> {
        while let Some(&(key, lost_on)) = self.control_lost.front() {
            let Some(&control) = self.control_sent.get(key) else {
                self.control_lost.pop_front();
                continue;
            };
            let index = self.paths.choose(now, bit(usize::from(lost_on)))?;
            self.control_lost.pop_front();
            return Some(self.transmit_control(now, index, key, control));
        }
        if self.control_queue.is_empty()
            || self.control_sent.len() >= CONTROL_OUTSTANDING_MAX
            || !self.control_acked.reaches(self.next_control)
        {
            return None;
        }
        let index = self.paths.choose(now, 0)?;
        let mut control = self.control_queue.pop_front()?;
        let (key, sent) = self.control_sent.take()?;
        control.sequence = self.next_control;
        self.next_control += 1;
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
        if path.tail_probe != TailProbe::Due {
            return None;
        }
        path.tail_probe = TailProbe::Sent;
        if !path.has_number_for_probe() {
            return None;
        }
        let newest = path.tx.newest_outstanding()?;
        self.stats.tail_probes += 1;
        let is_worse =
            self.paths.good() & !bit(index) != 0 && self.paths.watched() & bit(index) != 0;
        if is_worse || self.paths[index].carrier.is_reliable() {
            return Some(self.transmit_probe(now, index));
        }
        match newest {
            What::Data(chunk) if self.is_wanted(&chunk) => self.transmit_again(now, index, &chunk),
            What::Control(key) if self.control_sent.get(key).is_some() => {
                let control = *self.control_sent.get(key)?;
                Some(self.transmit_control(now, index, key, control))
            }
            // What it carried has ended; any number will do to draw an ack.
            _ => Some(self.transmit_probe(now, index)),
        }
    }

    /// Whether a chunk still has to reach the peer.
    fn is_wanted(&self, chunk: &DataChunk) -> bool {
        self.sends.get(chunk.send.0).is_some_and(|message| {
            message.state == SendState::Sending && !message.is_acked(chunk.index)
        })
    }

    /// The next chunk that was lost, for another path than the one that lost it.
    fn next_lost(&mut self, now: Time) -> Next {
        while let Some(&(chunk, lost_on)) = self.lost.front() {
            if self.is_wanted(&chunk) {
                if !self.flow.may_send(now, chunk.length) {
                    return Next::Blocked;
                }
                let Some(index) = self.paths.choose(now, bit(usize::from(lost_on))) else {
                    return Next::Blocked;
                };
                self.lost.pop_front();
                return Next::Chunk(index, chunk);
            }
            self.lost.pop_front();
        }
        Next::Nothing
    }

    /// Sends a chunk again, under a new number.
    #[inline(never)]
    fn transmit_again(&mut self, now: Time, index: usize, chunk: &DataChunk) -> Option<Transmit> {
        let message = self.sends.get_mut(chunk.send.0)?;
        message.posted += 1;
        let (id, message_len, channel) = (message.id, message.message_len, message.channel);
        self.stats.chunks_retransmitted += 1;
        self.stats.bytes_retransmitted += u64::from(chunk.length);
        let charge = self.flow.charge(chunk.length);
        let (number, floor) = self.paths[index].tx.send(What::Data(*chunk), charge, now);
        let mut total = Total::default();
        self.flow.chunk_size.on_sent(chunk.length);
        total.add(chunk.length, charge, self.flow.chunk_size.packets_of(chunk.length));
        self.settle_sent(now, index, &total);
        let mut header = self.data_header(channel, index);
        (header.message, header.message_len) = (id, message_len);
        self.ride_along(now, index, Kind::Data).on(&mut header);
        let cut_at = self.paths[index].mtu.cut_at();
        let path = PathId(index as u8);
        let mut transmit = Transmit { path, header, payload: None, filler_bytes: 0, cut_at };
        fill_in(&mut transmit, chunk, (number, floor));
        Some(transmit)
    }

    /// What chunks of a channel have in common that leave on a path now; without an ack.
    pub(super) fn data_header(&mut self, channel: u32, index: usize) -> ChunkHeader {
        let mut header = self.header(Kind::Data, channel, index, 0, 0);
        let granted = self.channel_mut(channel).map(|found| found.rx.tell_credit() as u16);
        header.credit = granted.unwrap_or(0);
        header.flags = header
            .flags
            .with(ChunkFlags::CREDIT, granted.is_some())
            .with(ChunkFlags::PAYLOAD_CRC, self.config.payload_crc);
        header
    }

    /// Keeps account of chunks that were handed out for a path.
    #[inline]
    pub(super) fn settle_sent(&mut self, now: Time, index: usize, total: &Total) {
        self.flow.on_charged(now, total.charge);
        self.paths.on_sent(now, index, total.charge);
        if !self.paths.ladder.is_only() {
            self.paths.ladder.loss.on_sent(total.packets);
        }
        let sent_bytes = total.payload_bytes + total.chunks * HEADER_BYTES as u64;
        if self.paths[index].mtu.wants_more(now, sent_bytes) {
            self.search_mtu(now, index);
        }
        self.stats.chunks_sent += total.chunks;
        self.stats.bytes_sent += total.payload_bytes;
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
        if control.kind == Kind::Abandon {
            self.gave_up_at = Some(now);
        }
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
        Transmit { path, header, payload: None, filler_bytes: 0, cut_at: None }
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
            payload_crc: 0,
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
        if let Some(heard) = self.heard_in_vain
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

    /// Whether it is of another path than the one that it leaves on.
    pub(super) fn is_of_another(&self, index: usize) -> bool {
        self.of.is_some_and(|of| of != index)
    }

    pub(super) fn on(&self, header: &mut ChunkHeader) {
        header.flags = self.flags(header.flags);
        (header.ack_largest, header.ack_hold) = (self.largest, self.hold);
    }
}

/// What was handed out for a path.
#[derive(Default)]
pub(super) struct Total {
    pub(super) chunks: u64,
    payload_bytes: u64,
    charge: u64,
    packets: u32,
}

impl Total {
    #[inline(always)]
    pub(super) fn add(&mut self, length: u32, charge: u32, packets: u32) {
        self.packets += packets;
        self.payload_bytes += u64::from(length);
        self.charge += u64::from(charge);
        self.chunks += 1;
    }
}

/// What is a chunk's own, but for its message.
#[inline(always)]
pub(super) fn fill_in(transmit: &mut Transmit, chunk: &DataChunk, (number, floor): (u64, u64)) {
    let header = &mut transmit.header;
    (header.number, header.floor_delta) = (number, (number - floor) as u16);
    (header.index, header.offset, header.length) = (chunk.index, chunk.offset, chunk.length);
    header.flags = header.flags.with(ChunkFlags::LAST, chunk.last);
    transmit.payload = Some(PayloadRef {
        send: chunk.send,
        segment: chunk.segment,
        offset: chunk.segment_offset,
        length: chunk.length,
    });
}
