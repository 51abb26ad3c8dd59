//! Transmitting: which chunk goes next, on which path, with what riding on it.

use super::control::Control;
use super::{Link, find_mut};
use crate::channel::{Channel, ChannelState, Outgoing, SendState};
use crate::event::{ChannelId, PathId, PayloadRef, SendKey, Transmit};
use crate::limits::{CONTROL_OUTSTANDING_MAX, HEADER_BYTES};
use crate::path::{DataChunk, PathTable, Spreading, TailProbe, What, bit};
use crate::schedule::Scheduler;
use crate::slots::{Key, Slots};
use crate::wire::{ChunkFlags, ChunkHeader, Kind};
use alloc::collections::VecDeque;
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
        if self.is_down() {
            cold_path();
            return None;
        }
        self.flow.paced_until = Time::NEVER;
        if self.has_urgent() {
            cold_path();
            if let ControlFlow::Break(transmit) = self.next_urgent(now) {
                return transmit;
            }
        }
        self.next_new(now)
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
        if path.tail_probe != TailProbe::Due || !path.has_number() {
            return None;
        }
        path.tail_probe = TailProbe::Sent;
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

    /// Cuts the next chunk, of the channel whose turn it is.
    fn next_new(&mut self, now: Time) -> Option<Transmit> {
        while let Some(ChannelId(id)) = self.schedule.turn() {
            let Self { channels, sends, starved, schedule, flow, paths, .. } = self;
            let channel = find_mut(channels, id);
            let sendable = channel.and_then(|channel| sendable(channel, sends, starved));
            let Some((channel, send, message)) = sendable else {
                cold_path();
                schedule.pass();
                if let Some(channel) = self.channel_mut(id) {
                    channel.tx.is_ready = false;
                }
                continue;
            };
            let length = message.next_length(flow.chunk_bytes(message.cut_at()));
            let index =
                if flow.may_send(now, length) { choose_for(now, paths, message) } else { None };
            let Some(index) = index else {
                cold_path();
                self.arm_credit_probe(now);
                return None;
            };
            let chunk = cut(channel, schedule.as_mut(), send, message, length);
            let origin = Origin::of(message, Some(channel));
            return self.transmit_data(now, index, &chunk, origin);
        }
        self.flow.on_nothing_to_send();
        self.arm_credit_probe(now);
        None
    }

    /// Sends a chunk again, under a new number.
    #[inline(never)]
    fn transmit_again(&mut self, now: Time, index: usize, chunk: &DataChunk) -> Option<Transmit> {
        let Self { channels, sends, stats, .. } = self;
        let message = sends.get_mut(chunk.send.0)?;
        let channel = find_mut(channels, message.channel);
        let origin = Origin::of(message, channel);
        stats.chunks_retransmitted += 1;
        stats.bytes_retransmitted += u64::from(chunk.length);
        self.transmit_data(now, index, chunk, origin)
    }

    /// Hands a chunk out, never `None`: it is put together where the caller wants it, and not
    /// copied there.
    #[inline(always)]
    fn transmit_data(
        &mut self,
        now: Time,
        index: usize,
        chunk: &DataChunk,
        origin: Origin,
    ) -> Option<Transmit> {
        let charge = self.flow.charge(chunk.length);
        let path = &mut self.paths[index];
        let generation = path.generation_out;
        let (number, floor) = path.tx.send(What::Data(*chunk), charge, now);
        self.flow.on_sent(now, chunk.length);
        self.paths.on_sent(now, index, charge);
        if !self.paths.ladder.is_only() {
            let packets = self.flow.chunk_size.packets_of(chunk.length);
            self.paths.ladder.loss.on_sent(packets);
        }
        self.stats.chunks_sent += 1;
        self.stats.bytes_sent += u64::from(chunk.length);
        let ride = self.ride_along(now, index, Kind::Data);
        let flags = ChunkFlags::default()
            .with(ChunkFlags::LAST, chunk.last)
            .with(ChunkFlags::PAYLOAD_CRC, self.config.payload_crc)
            .with(ChunkFlags::CREDIT, origin.credit.is_some());
        let header = ChunkHeader {
            kind: Kind::Data,
            flags: ride.flags(flags),
            generation,
            number,
            message: origin.message,
            channel: origin.channel,
            index: chunk.index,
            offset: chunk.offset,
            message_len: origin.message_len,
            length: chunk.length,
            floor_delta: (number - floor) as u16,
            credit: origin.credit.unwrap_or(0),
            ack_largest: ride.largest,
            ack_hold: ride.hold,
            payload_crc: 0,
        };
        let payload = PayloadRef {
            send: chunk.send,
            segment: chunk.segment,
            offset: chunk.segment_offset,
            length: chunk.length,
        };
        Some(Transmit { path: PathId(index as u8), header, payload: Some(payload) })
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
        self.paths.on_sent(now, index, charge);
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
        Transmit { path: PathId(index as u8), header, payload: None }
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

    pub(super) fn on(&self, header: &mut ChunkHeader) {
        header.flags = self.flags(header.flags);
        (header.ack_largest, header.ack_hold) = (self.largest, self.hold);
    }
}

/// What a chunk says of its message and channel.
struct Origin {
    channel: u32,
    message: u64,
    message_len: u32,
    /// What the peer is granted on the channel, if that is still there.
    credit: Option<u16>,
}

impl Origin {
    /// Of a message a chunk of which is handed to the device now.
    #[inline]
    fn of(message: &mut Outgoing, channel: Option<&mut Channel>) -> Self {
        message.posted += 1;
        Self {
            channel: message.channel,
            message: message.id,
            message_len: message.message_len,
            credit: channel.map(|found| found.rx.tell_credit() as u16),
        }
    }
}

/// The message of a channel that can have a chunk cut now. A channel without credit joins the
/// starved ones.
#[inline]
fn sendable<'a>(
    channel: &'a mut Channel,
    sends: &'a mut Slots<Outgoing>,
    starved: &mut VecDeque<u32>,
) -> Option<(&'a mut Channel, SendKey, &'a mut Outgoing)> {
    let sends_on = matches!(channel.state, ChannelState::Open | ChannelState::Closing);
    let &send = channel.tx.queue.front().filter(|_| sends_on)?;
    let message = sends.get_mut(send.0).expect("queued messages are live");
    let has_id = message.state != SendState::Queued || channel.tx.has_id();
    if !has_id || !message.may_cut() {
        cold_path();
        return None;
    }
    if !channel.tx.has_credit() {
        list_starved(channel, starved);
        return None;
    }
    Some((channel, send, message))
}

#[cold]
fn list_starved(channel: &mut Channel, starved: &mut VecDeque<u32>) {
    channel.tx.is_starved = true;
    if !core::mem::replace(&mut channel.tx.is_listed_starved, true) {
        starved.push_back(channel.id);
    }
}

/// The path for the next chunk of a message.
#[inline]
fn choose_for(now: Time, paths: &mut PathTable, message: &mut Outgoing) -> Option<usize> {
    if paths.spreading != Spreading::Message || !paths.has_choice() {
        return paths.choose(now, 0);
    }
    choose_to_keep(now, paths, message)
}

#[inline(never)]
fn choose_to_keep(now: Time, paths: &mut PathTable, message: &mut Outgoing) -> Option<usize> {
    let kept = message.path.map(usize::from).filter(|&index| paths.is_usable(index));
    let index = kept.or_else(|| paths.choose(now, 0))?;
    message.path = Some(index as u8);
    Some(index)
}

/// Cuts a chunk for the channel whose turn it is, and gives the turn on.
#[inline]
fn cut(
    channel: &mut Channel,
    schedule: &mut dyn Scheduler,
    send: SendKey,
    message: &mut Outgoing,
    length: u32,
) -> DataChunk {
    if message.state == SendState::Queued {
        message.state = SendState::Sending;
        message.id = channel.tx.assign_id();
    }
    channel.tx.use_credit();
    let chunk = message.cut(send, length);
    if message.is_fully_cut() {
        channel.tx.queue.pop_front();
    }
    let has_more = !channel.tx.queue.is_empty();
    channel.tx.is_ready = has_more;
    // A chunk of a byte takes the link for its header too.
    let more = has_more.then_some(channel.tx.weight);
    schedule.served(length + HEADER_BYTES as u32, more);
    chunk
}
