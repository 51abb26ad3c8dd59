//! Transmitting: which chunk goes next, on which path, with what riding on it.

use super::Link;
use super::control::Control;
use crate::channel::{ChannelState, SendState};
use crate::event::{ChannelId, PathId, PayloadRef, SendKey, Transmit};
use crate::limits::CONTROL_OUTSTANDING_MAX;
use crate::path::{DataChunk, TailProbe, What};
use crate::slots::Key;
use crate::wire::{ChunkFlags, ChunkHeader, Kind};
use towpath_base::Time;

/// Why a chunk was or was not found.
enum Next {
    Chunk(DataChunk),
    /// The window or the pacer holds it back.
    Blocked,
    Nothing,
}

impl Link {
    /// The next chunk to send, or `None` when there is nothing that may go now. The driver calls it
    /// only while the path's send queue has room.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if self.is_down() {
            return None;
        }
        self.paced_until = Time::NEVER;
        let index = self.choose_path()?;
        if !self.paths[index].tx.has_number() {
            return None;
        }
        if let Some(transmit) = self.next_control(now, index) {
            return Some(transmit);
        }
        if let Some(transmit) = self.tail_probe(now, index) {
            return Some(transmit);
        }
        match self.next_lost(now, index) {
            Next::Chunk(chunk) => return self.transmit_data(now, index, chunk, true),
            Next::Blocked => return None,
            Next::Nothing => {}
        }
        match self.next_new(now, index) {
            Next::Chunk(chunk) => self.transmit_data(now, index, chunk, false),
            Next::Blocked => {
                self.arm_credit_probe(now);
                None
            }
            Next::Nothing => {
                self.paths[index].on_nothing_to_send();
                self.arm_credit_probe(now);
                None
            }
        }
    }

    /// The path for the next transmission: so far the first that works.
    pub(super) fn choose_path(&self) -> Option<usize> {
        self.paths.iter().position(|path| !path.has_failed)
    }

    fn next_control(&mut self, now: Time, index: usize) -> Option<Transmit> {
        while let Some(key) = self.control_lost.pop_front() {
            if let Some(&control) = self.control_sent.get(key) {
                return Some(self.transmit_control(now, index, key, control));
            }
        }
        if self.control_sent.len() >= CONTROL_OUTSTANDING_MAX {
            return None;
        }
        if !self.control_acked.reaches(self.next_control) {
            return None;
        }
        let mut control = self.control_queue.pop_front()?;
        let key = self.control_sent.take()?;
        control.sequence = self.next_control;
        self.next_control += 1;
        *self.control_sent.get_mut(key)? = control;
        Some(self.transmit_control(now, index, key, control))
    }

    /// Sends the newest outstanding chunk again under a new number (docs/protocol.md section 5).
    fn tail_probe(&mut self, now: Time, index: usize) -> Option<Transmit> {
        if self.paths[index].tail_probe != TailProbe::Due {
            return None;
        }
        self.paths[index].tail_probe = TailProbe::Sent;
        let newest = self.paths[index].tx.newest_outstanding()?;
        self.stats.tail_probes += 1;
        if self.paths[index].carrier.is_reliable() {
            return self.ping(now, index);
        }
        match newest {
            What::Data(chunk) if self.is_wanted(&chunk) => {
                self.transmit_data(now, index, chunk, true)
            }
            What::Control(key) if self.control_sent.get(key).is_some() => {
                let control = *self.control_sent.get(key)?;
                Some(self.transmit_control(now, index, key, control))
            }
            // What it carried has ended; any number will do to draw an ack.
            _ => self.ping(now, index),
        }
    }

    /// Sends a PING at once, if there may be another control chunk.
    fn ping(&mut self, now: Time, index: usize) -> Option<Transmit> {
        let has_place = self.control_sent.len() < CONTROL_OUTSTANDING_MAX
            && self.control_acked.reaches(self.next_control);
        if has_place {
            self.control_queue.push_front(Control::of(Kind::Ping, 0));
            return self.next_control(now, index);
        }
        None
    }

    /// Whether a chunk still has to reach the peer.
    fn is_wanted(&self, chunk: &DataChunk) -> bool {
        self.sends.get(chunk.send.0).is_some_and(|message| {
            message.state == SendState::Sending && !message.is_acked(chunk.index)
        })
    }

    fn next_lost(&mut self, now: Time, index: usize) -> Next {
        while let Some(&chunk) = self.paths[index].lost.front() {
            if self.is_wanted(&chunk) {
                if !self.may_send(now, index, chunk.length) {
                    return Next::Blocked;
                }
                self.paths[index].lost.pop_front();
                return Next::Chunk(chunk);
            }
            self.paths[index].lost.pop_front();
        }
        Next::Nothing
    }

    /// Cuts the next chunk, channels in turn.
    fn next_new(&mut self, now: Time, index: usize) -> Next {
        while let Some(&id) = self.ready.front() {
            match self.sendable(id) {
                Some(send) => {
                    let message = self.sends.get(send.0).expect("queued messages are live");
                    let bytes_max = self.paths[index].chunk_bytes(message.cut_at());
                    let length = message.next_length(bytes_max);
                    if !self.may_send(now, index, length) {
                        return Next::Blocked;
                    }
                    return Next::Chunk(self.cut(id, send, bytes_max));
                }
                None => {
                    self.ready.pop_front();
                    if let Some(channel) = self.channel_mut(id) {
                        channel.tx.is_ready = false;
                    }
                }
            }
        }
        Next::Nothing
    }

    /// The message of a channel that can have a chunk cut now. A channel without credit joins the
    /// starved ones.
    fn sendable(&mut self, id: u32) -> Option<SendKey> {
        let channel = self.channels.get_mut(ChannelId(id).place())?.as_deref_mut()?;
        let channel = Some(channel).filter(|channel| channel.id == id)?;
        let sends = matches!(channel.state, ChannelState::Open | ChannelState::Closing);
        let &send = channel.tx.queue.front().filter(|_| sends)?;
        let message = self.sends.get(send.0).expect("queued messages are live");
        if message.state == SendState::Queued && !channel.tx.has_id() {
            return None;
        }
        if !message.may_cut() {
            return None;
        }
        if !channel.tx.has_credit() {
            channel.tx.is_starved = true;
            if !core::mem::replace(&mut channel.tx.is_listed_starved, true) {
                self.starved.push_back(id);
            }
            return None;
        }
        Some(send)
    }

    /// Cuts a chunk for the channel that is first in turn, and takes the turn on.
    fn cut(&mut self, id: u32, send: SendKey, bytes_max: u32) -> DataChunk {
        let channel =
            self.channels[ChannelId(id).place()].as_deref_mut().expect("a ready channel exists");
        let message = self.sends.get_mut(send.0).expect("queued messages are live");
        if message.state == SendState::Queued {
            message.state = SendState::Sending;
            message.id = channel.tx.assign_id();
        }
        channel.tx.use_credit();
        let chunk = message.cut(send, bytes_max);
        if message.is_fully_cut() {
            channel.tx.queue.pop_front();
        }
        channel.tx.is_ready = !channel.tx.queue.is_empty();
        if !channel.tx.is_ready {
            self.ready.pop_front();
        } else if self.ready.len() > 1 {
            self.ready.rotate_left(1);
        }
        chunk
    }

    /// Whether windows and pacer let a chunk go.
    fn may_send(&mut self, now: Time, index: usize, payload_bytes: u32) -> bool {
        let path = &mut self.paths[index];
        if !path.has_room(payload_bytes) {
            return false;
        }
        let at = path.ready_at(now, payload_bytes);
        if at > now {
            self.paced_until = at;
        }
        at <= now
    }

    fn transmit_data(
        &mut self,
        now: Time,
        index: usize,
        chunk: DataChunk,
        again: bool,
    ) -> Option<Transmit> {
        let message = self.sends.get_mut(chunk.send.0)?;
        message.posted += 1;
        let (channel, id, message_len) = (message.channel, message.id, message.message_len);
        let path = &mut self.paths[index];
        let charge = path.charge(chunk.length);
        let (number, floor) = path.tx.send(What::Data(chunk), charge, now);
        path.on_sent(now, chunk.length);
        self.stats.chunks_sent += 1;
        self.stats.bytes_sent += u64::from(chunk.length);
        if again {
            self.stats.chunks_retransmitted += 1;
            self.stats.bytes_retransmitted += u64::from(chunk.length);
        }
        let mut header = self.header(Kind::Data, channel, index, number, floor);
        header.message = id;
        header.index = chunk.index;
        header.offset = chunk.offset;
        header.message_len = message_len;
        header.length = chunk.length;
        header.flags = header
            .flags
            .with(ChunkFlags::LAST, chunk.last)
            .with(ChunkFlags::PAYLOAD_CRC, self.config.payload_crc);
        if let Some(found) = self.channel_mut(channel) {
            header.credit = found.rx.tell_credit() as u16;
            header.flags = header.flags.with(ChunkFlags::CREDIT, true);
        }
        self.ride_along(now, index, &mut header);
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
        let path = &mut self.paths[index];
        let charge = path.charge(0);
        let (number, floor) = path.tx.send(What::Control(key), charge, now);
        path.on_sent(now, 0);
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
        Transmit { path: PathId(index as u8), header, payload: None }
    }

    fn header(
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

    /// Lets an ack ride on a chunk when nothing is missing (docs/protocol.md section 4).
    fn ride_along(&mut self, now: Time, index: usize, header: &mut ChunkHeader) {
        let rx = &mut self.paths[index].rx;
        let Some((largest, at)) = rx.largest().filter(|_| rx.is_complete()) else { return };
        header.flags = header.flags.with(ChunkFlags::ACK, true);
        header.ack_largest = largest as u32;
        header.ack_hold = now.since(at).0.min(u64::from(u32::MAX)) as u32;
        self.stats.acks_piggybacked += u64::from(rx.ack_due);
        rx.ack_due = false;
    }
}
