//! Whole messages from the pieces that a link hands on because it cannot hold all of them.
//!
//! A link holds a message whole when half of a channel's credit suffices for it however it is cut,
//! and chunks may be as short as a packet. With small packets that is not much, so what is longer
//! comes as a stream. Here the pieces are put together in the buffers in which they landed: each
//! is moved behind the one before, as long as that one's buffer has room, and its own buffer and
//! credit go back at once. So a message holds as many buffers as if it had come in the longest
//! chunks, whatever the packets are.

use super::Endpoint;
use crate::event::LinkId;
use crate::message::{Chunk, Message};
use smallvec::SmallVec;
use towpath_memory::Region;
use towpath_proto::limits::SEGMENTS_MAX;
use towpath_proto::{ChannelId, IncomingKey};
use towpath_verbs::Device;

/// A message of which some is here.
pub(crate) struct Assembly {
    message: Message,
    /// Bytes of the piece that came last.
    last_bytes: usize,
    /// Pieces that began a buffer of their own though there was room in the one before.
    apart: usize,
}

impl Assembly {
    fn new(link: LinkId, channel: ChannelId, len: u32) -> Self {
        let message = Message { link, channel, len, chunks: SmallVec::new() };
        Self { message, last_bytes: 0, apart: 0 }
    }

    /// Adds the next piece; gives it back when its bytes are in the buffer of the one before.
    fn add(&mut self, mut piece: Chunk, chunk_bytes_max: usize) -> Option<Chunk> {
        // The last piece of a segment is shorter than others: what follows is the next segment,
        // which stays at the start of a page.
        let begins_segment = self.last_bytes < piece.len() && self.apart + 1 < SEGMENTS_MAX;
        self.last_bytes = piece.len();
        if let Some(before) = self.message.chunks.last_mut() {
            if begins_segment {
                self.apart += 1;
            } else {
                before.take_front_of(&mut piece, chunk_bytes_max);
            }
        }
        if piece.is_empty() {
            return Some(piece);
        }
        self.message.chunks.push(piece);
        None
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Takes a piece of a message that is to be whole: the message, with its last piece.
    #[inline(never)]
    pub(super) fn assemble(
        &mut self,
        (link, channel): (LinkId, ChannelId),
        key: IncomingKey,
        piece: Chunk,
        (message_len, is_last): (u32, bool),
    ) -> Option<Message> {
        let chunk_bytes_max = self.config.chunk_bytes_max as usize;
        let conn = self.links.find_mut(link)?;
        let new = || Assembly::new(link, channel, message_len);
        let assembly = conn.assemblies.entry(key).or_insert_with(new);
        let moved = assembly.add(piece, chunk_bytes_max);
        let whole = is_last.then(|| conn.assemblies.remove(&key)).flatten();
        if let Some(moved) = moved {
            self.release_chunk(moved);
        }
        whole.map(|assembly| assembly.message)
    }

    /// The rest of a message will not come; false when it was not to be whole.
    pub(super) fn drop_assembly(&mut self, link: LinkId, key: IncomingKey) -> bool {
        let Some(conn) = self.links.find_mut(link) else { return false };
        let Some(assembly) = conn.assemblies.remove(&key) else { return false };
        self.release(assembly.message);
        true
    }
}
