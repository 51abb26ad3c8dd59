//! Chunks that came one behind another: what follows a chunk is taken in by what it alone says.
//!
//! Senders let chunks leave in runs (`link::run`). Of one whose header is the one that was
//! expected, all is known already that path, channel and message are asked for; what is left is its
//! payload and its number. Whatever is otherwise is taken in as if it came alone, so that nothing
//! depends on how many are handed in together.

use super::receive::payload_is_intact;
use super::{Link, LinkState, find_mut};
use crate::channel::Place;
use crate::event::{BufToken, ChunkRef, IncomingKey, PathId, Verdict};
use crate::limits::HEADER_BYTES;
use crate::wire::{ChunkFlags, Follower, Piece};
use towpath_base::Time;
use towpath_base::serial::expand_u16;

/// Chunks that came one behind another on a path; see [`Link::arrivals`].
#[derive(Debug)]
pub struct Arrivals<'a> {
    link: &'a mut Link,
    now: Time,
    path: PathId,
    /// What is expected behind the chunk before.
    next: Option<Next>,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    header: Follower,
    /// The message that goes on.
    message: Option<IncomingKey>,
    /// An ack rides on each, the same as before.
    brings_ack: bool,
}

impl Link {
    /// Takes in chunks that came one behind another on `path`: [`Arrivals::take`] each. That is
    /// what [`handle_chunk`](Self::handle_chunk) does with one after the other, and cheaper.
    #[inline]
    pub fn arrivals(&mut self, now: Time, path: PathId) -> Arrivals<'_> {
        Arrivals { link: self, now, path, next: None }
    }

    /// What may follow a chunk of data that was just kept, so that it is taken in by that alone.
    #[inline]
    fn next_behind(&self, path: PathId, header: &[u8; HEADER_BYTES]) -> Option<Next> {
        let header = Follower::of(header);
        let path = self.paths.get(usize::from(path.0))?;
        let channel = self.channel(header.channel())?;
        let granted = channel.tx.granted();
        let flags = header.flags();
        let tells_news =
            flags.has(ChunkFlags::CREDIT) && expand_u16(header.credit(), granted) != granted;
        // Elsewhere than where we ride each chunk is looked at for what it says of carriers.
        if self.state != LinkState::Up || tells_news || path.carrier != self.carrier() {
            return None;
        }
        let message = header.goes_on().then(|| channel.rx.opened(header.message()));
        // One that is not open any more cannot go on.
        let message = message.map_or(Some(None), |open| open.map(Some))?;
        let brings_ack = flags.has(ChunkFlags::ACK) && flags.ack_path() < self.paths.len();
        Some(Next { header, message, brings_ack })
    }
}

impl Arrivals<'_> {
    /// Takes in the next chunk, its payload in the buffer `buf`; see [`Link::handle_chunk`].
    #[inline]
    pub fn take(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        buf: BufToken,
        received_at: Time,
    ) -> Verdict {
        let piece = self.next.as_ref().and_then(|next| next.header.find(header));
        if let Some(piece) = piece
            && piece.length as usize == payload.len()
            && self.go_on(piece, payload, buf, received_at)
        {
            return Verdict::Kept;
        }
        self.take_alone(header, payload, buf, received_at)
    }

    #[inline(never)]
    fn take_alone(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        buf: BufToken,
        received_at: Time,
    ) -> Verdict {
        let verdict =
            self.link.handle_chunk(self.now, self.path, header, payload, buf, received_at);
        self.next = match verdict {
            Verdict::Kept => self.link.next_behind(self.path, header),
            Verdict::Recycle => None,
        };
        verdict
    }

    /// Takes in the chunk that was expected; false, and nothing has changed, when that needs more
    /// than is done here.
    #[inline(always)]
    fn go_on(&mut self, piece: Piece, payload: &[u8], buf: BufToken, received_at: Time) -> bool {
        let Some(next) = &mut self.next else { return false };
        let Link { channels, incoming, config, stats, whole_bytes_max, paths, .. } =
            &mut *self.link;
        let header = &mut next.header;
        let Some(channel) = find_mut(channels, header.channel()) else { return false };
        let (index, offset) = header.place();
        let chunk = ChunkRef { buf, index, offset, length: piece.length };
        if !channel.rx.has_credit() || !payload_is_intact(config, piece.payload_crc, payload) {
            return false;
        }
        let (key, is_streamed) = if let Some(key) = next.message {
            let Some(message) = incoming.get_mut(key.0) else { return false };
            if !message.accept_next(chunk) {
                return false;
            }
            (key, message.streamed)
        } else {
            let (number, message_len) = (header.message(), piece.message_len);
            let is_new = channel.rx.place(number) == Ok(Place::New);
            if !is_new || message_len > config.message_bytes_max {
                return false;
            }
            let Some((key, message)) = incoming.take() else { return false };
            let is_streamed = message_len > *whole_bytes_max;
            message.start(channel.id, number, message_len, is_streamed);
            // Nobody will ask for a message that ends here and now.
            if channel.ordered || !piece.is_last {
                channel.rx.open(number, IncomingKey(key));
            }
            let accepted = message.accept_next(chunk);
            debug_assert!(accepted, "it is the first");
            (IncomingKey(key), is_streamed)
        };
        channel.rx.count();
        let (id, has_credit_to_tell) = (channel.id, channel.rx.should_tell_credit());
        stats.chunks_received += 1;
        stats.bytes_received += u64::from(piece.length);
        stats.acks_received += u64::from(next.brings_ack);
        paths[usize::from(self.path.0)].rx.accept(header.number(), received_at);
        header.step(&piece);
        next.message = (!piece.is_last).then_some(key);
        self.link.settle_held(id, key, (piece.is_last, is_streamed), has_credit_to_tell);
        true
    }
}
