//! Receiving a chunk: header, generation, control or data.

use super::paths::PROBE_SILENCE;
use super::{Link, find_mut};
use crate::channel::{Channel, ChannelState, Closed, Place};
use crate::event::{BufToken, ChunkRef, IncomingKey, PathId, Verdict};
use crate::limits::{ACK_BYTES_MAX, CHUNK_WINDOW, HEADER_BYTES};
use crate::path::bit;
use crate::wire::{ChunkFlags, ChunkHeader, KIND_ACK, Kind};
use towpath_base::crc::crc32c;
use towpath_base::serial::{expand_u16, expand_u32};
use towpath_base::{Nanos, Time};

/// What became of a chunk.
enum Taken {
    /// Held; its number is acknowledged.
    Held,
    /// Not needed (any more), and acknowledged so that the sender stops.
    Known,
    /// Not taken: it must come again, or never should have come.
    Refused,
}

impl Link {
    /// Takes in a chunk that the device received on `path` at `received_at`, its payload in the
    /// buffer `buf`.
    pub fn handle_chunk(
        &mut self,
        now: Time,
        path: PathId,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        buf: BufToken,
        received_at: Time,
    ) -> Verdict {
        if header[1] == KIND_ACK {
            self.take_in_ack_on(now, path, header, payload, received_at);
            return Verdict::Recycle;
        }
        let header = match ChunkHeader::parse(header) {
            Ok(header) if header.length as usize == payload.len() => header,
            Ok(_) => {
                self.stats.payloads_bad += 1;
                return Verdict::Recycle;
            }
            Err(_) => {
                self.stats.headers_bad += 1;
                return Verdict::Recycle;
            }
        };
        if !self.is_of_this_life(path, &header) {
            self.stats.chunks_stale += 1;
            return Verdict::Recycle;
        }
        if self.is_down() {
            return Verdict::Recycle;
        }
        self.last_heard = now;
        let index = usize::from(path.0);
        if header.kind != Kind::Probe && self.paths.len() > 1 {
            self.on_heard(now, index);
        }
        self.paths[index].rx.advance(header.floor());
        self.take_in_piggyback(now, index, &header, received_at);
        // The ack that rode on it may have been the one of our GOODBYE.
        if self.is_down() {
            return Verdict::Recycle;
        }
        let taken = match header.kind {
            Kind::Data => self.on_data((now, index), &header, payload, buf),
            Kind::Probe => {
                if header.index == PROBE_SILENCE {
                    self.on_silence_of_peer(now, index);
                }
                Taken::Known
            }
            _ if self.on_control(now, &header) => Taken::Known,
            _ => Taken::Refused,
        };
        if !matches!(taken, Taken::Refused) {
            self.paths[index].rx.accept(header.number, received_at);
            self.paths.acks_due |= bit(index);
        }
        match taken {
            Taken::Held => Verdict::Kept,
            _ => Verdict::Recycle,
        }
    }

    /// An ack came on the queue pair of a path: the way of the control queue pair is in doubt
    /// there.
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
        let (Some(whole), Some(path)) = (bytes.get_mut(..len), self.paths.get(usize::from(path.0)))
        else {
            self.stats.acks_bad += 1;
            return;
        };
        let generation = path.generation_in;
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

    /// The ack and the credit that ride on a chunk.
    #[inline(always)]
    fn take_in_piggyback(
        &mut self,
        now: Time,
        path: usize,
        header: &ChunkHeader,
        received_at: Time,
    ) {
        let acked = header.flags.ack_path();
        if header.flags.has(ChunkFlags::ACK) && acked < self.paths.len() {
            let tx = &self.paths[acked].tx;
            let largest = expand_u32(header.ack_largest, tx.next());
            let base = largest.saturating_add(1);
            // Data that goes one way carries the same ack again and again.
            if tx.was_sent(largest) && !tx.is_news(largest, base) {
                self.stats.acks_received += 1;
            } else {
                let times = (now, received_at, Nanos(u64::from(header.ack_hold)));
                self.on_ack_of(times, acked, largest, base, core::iter::empty());
            }
        }
        // Only the newest header's 16 bits are near enough to what is granted now.
        let seen = self.paths[path].rx.largest();
        let is_newest = seen.is_none_or(|(largest, _)| header.number > largest);
        let tells_credit =
            is_newest && header.flags.has(ChunkFlags::CREDIT) && header.kind == Kind::Data;
        if let Some(channel) = self.channel(header.channel).filter(|_| tells_credit) {
            let before = channel.tx.granted();
            let granted = expand_u16(header.credit, before);
            if granted != before {
                self.on_credit(header.channel, granted);
            }
        }
    }

    /// A cumulative grant of the peer.
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
        channel.tx.is_starved = false;
        self.probes_unanswered = 0;
        self.make_ready(id);
    }

    /// DATA (docs/protocol.md sections 2 and 6).
    #[inline]
    fn on_data(
        &mut self,
        (now, path): (Time, usize),
        header: &ChunkHeader,
        payload: &[u8],
        buf: BufToken,
    ) -> Taken {
        let id = header.channel;
        // Data of a channel whose OPENED is still on its way comes again.
        let Some(channel) = self.channel(id).filter(|c| takes_data(c)) else {
            return Taken::Refused;
        };
        let Ok(place) = channel.rx.place(header.message) else {
            return self.violation();
        };
        let known = match place {
            // Section 4: only what is held or was delivered is acknowledged. Were a late chunk of a
            // message that is given up, its sender could take the message for delivered.
            Place::Closed(Closed::Abandoned) => {
                self.stats.chunks_duplicate += 1;
                return Taken::Refused;
            }
            Place::Closed(Closed::Delivered) => true,
            Place::New => false,
            Place::Open(key) => {
                let message = self.incoming.get(key.0).expect("open messages are live");
                if message.message_len != header.message_len {
                    return self.violation();
                }
                match message.has(header.index) {
                    Ok(known) => known,
                    Err(_) => return self.violation(),
                }
            }
        };
        if known && !self.takes_duplicates() {
            self.stats.chunks_duplicate += 1;
            let _ = self.on_duplicate(now, path);
            return Taken::Known;
        }
        if !self.payload_is_intact(header, payload) {
            self.stats.payloads_bad += 1;
            return Taken::Refused;
        }
        self.hold_chunk(header, place, buf)
    }

    #[cfg(not(feature = "sabotage"))]
    fn takes_duplicates(&self) -> bool {
        false
    }

    #[cfg(feature = "sabotage")]
    fn takes_duplicates(&self) -> bool {
        self.config.sabotage.accept_duplicates
    }

    fn payload_is_intact(&self, header: &ChunkHeader, payload: &[u8]) -> bool {
        #[cfg(feature = "sabotage")]
        if self.config.sabotage.skip_payload_crc {
            return true;
        }
        !header.flags.has(ChunkFlags::PAYLOAD_CRC) || crc32c(payload) == header.payload_crc
    }

    fn violation(&mut self) -> Taken {
        self.stats.violations += 1;
        Taken::Refused
    }

    /// Puts a new chunk to its message.
    #[inline]
    fn hold_chunk(&mut self, header: &ChunkHeader, place: Place, buf: BufToken) -> Taken {
        let (id, message) = (header.channel, header.message);
        if header.message_len > self.config.message_bytes_max {
            return self.violation();
        }
        // A first chunk beyond the window would leave an open message behind when it is refused.
        let opens = !matches!(place, Place::Open(_));
        if opens && u64::from(header.index) >= CHUNK_WINDOW {
            return self.violation();
        }
        let Self { channels, incoming, whole_bytes_max, .. } = self;
        let channel = find_mut(channels, id).expect("found before");
        if channel.rx.use_credit().is_err() {
            return self.violation();
        }
        let key = match place {
            Place::Open(key) => key,
            Place::New | Place::Closed(_) => {
                let Some(key) = incoming.take() else {
                    channel.rx.unuse_credit();
                    return Taken::Refused;
                };
                let streamed = header.message_len > *whole_bytes_max;
                let fresh = incoming.get_mut(key).expect("just taken");
                fresh.start(id, message, header.message_len, streamed);
                // Nobody will ask for a message that ends here and now.
                if channel.ordered || header.length < header.message_len {
                    channel.rx.open(message, IncomingKey(key));
                }
                IncomingKey(key)
            }
        };
        let chunk =
            ChunkRef { buf, index: header.index, offset: header.offset, length: header.length };
        let incoming = incoming.get_mut(key.0).expect("just opened or open");
        if incoming.accept(chunk).is_err() {
            channel.rx.unuse_credit();
            return self.violation();
        }
        // Its sender may have no credit left now, and not know of what was released before.
        let has_credit_to_tell = channel.rx.should_tell_credit();
        (self.duplicates, self.heard_in_vain) = (0, None);
        self.stats.chunks_received += 1;
        self.stats.bytes_received += u64::from(header.length);
        if incoming.is_complete() {
            self.complete(id, message, key);
        } else if incoming.streamed {
            self.advance_stream(id, key);
        }
        if has_credit_to_tell {
            self.tell_credit_when_due(id);
        }
        Taken::Held
    }

    /// Everything of a message is here: its id is closed from now on.
    fn complete(&mut self, id: u32, message: u64, key: IncomingKey) {
        let incoming = self.incoming.get_mut(key.0).expect("complete messages are live");
        if !incoming.streamed && incoming.arrange().is_err() {
            self.stats.violations += 1;
            self.drop_incoming(key.0, Closed::Abandoned);
            self.take_turns(id);
            return;
        }
        let channel = self.channel_mut(id).expect("found before");
        channel.rx.close(message, Closed::Delivered);
        self.hand_over(id, key);
    }
}

fn takes_data(channel: &Channel) -> bool {
    matches!(channel.state, ChannelState::Open | ChannelState::Closing | ChannelState::CloseSent)
}
