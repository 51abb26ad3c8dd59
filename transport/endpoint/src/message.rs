//! What was received: buffers that the application owns until it gives them back.

use crate::bell::Bell;
use crate::held::Held;
use crate::ids::LinkId;
use crate::payload::Payload;
use crossbeam_queue::SegQueue;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use towpath_base::crc::PAGE_BYTES;
use towpath_base::passes::{Pass, note};
use towpath_memory::{Buf, Frozen, Lender, Segment};
use towpath_proto::limits::SEGMENTS_MAX;
use towpath_proto::{ChannelId, ChunkRef};

/// A piece that came back: of which receive slot and channel.
pub(crate) type Returned = (u32, ChannelId);

/// Pieces on their way back from other threads, or from plain drops. Each holds a credit of its
/// channel, so there are no more than all grants together.
pub(crate) struct Returns {
    queue: SegQueue<Returned>,
    bell: Arc<Bell>,
}

impl Returns {
    /// Each piece that comes back rings the bell.
    pub(crate) fn new(bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { queue: SegQueue::new(), bell })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Returned> {
        // Mostly there is none, and to find that by taking one costs a fence.
        if self.queue.is_empty() { None } else { self.queue.pop() }
    }
}

/// A receive buffer, which the pieces that lie in it share.
pub(crate) struct Loan {
    pub(crate) buf: Held,
    pub(crate) slot: u32,
    returns: Arc<Returns>,
    /// CRC32C of each whole page of what lies in it, from its first byte on, as far as the link has
    /// taken them.
    pub(crate) page_crcs: Vec<u32>,
}

impl Loan {
    pub(crate) fn new(buf: Held, slot: u32, returns: Arc<Returns>) -> Self {
        Self { buf, slot, returns, page_crcs: Vec::new() }
    }

    /// What lies in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buf.buf().map_or(&[], |buf| buf)
    }
}

impl Lender for Loan {
    fn buf(&self) -> Option<&Buf> {
        self.buf.buf()
    }

    fn take_back(self: Arc<Self>, tag: u32) {
        send_home(self, ChannelId(tag));
    }
}

/// A piece of a received message, in the buffer that the device wrote. Pieces of 4 KiB and more
/// begin at a page if the sender asked for it ([`Payload::page_aligned`]), those of up to 512 bytes
/// at a multiple of eight bytes. The buffer may hold pieces of other messages too: it is free when
/// all of them were given back.
///
/// A chunk holds one credit of its channel. Dropping it, on any thread, gives it back;
/// [`Endpoint::release`](crate::Endpoint::release) does so faster.
pub struct Chunk {
    /// Gone once it was given back.
    loan: Option<Arc<Loan>>,
    start: u32,
    length: u32,
    offset: u32,
    channel: ChannelId,
}

impl Chunk {
    /// The piece that the link tells of, in a buffer that is kept.
    #[inline]
    pub(crate) fn new(loan: Arc<Loan>, piece: &ChunkRef, channel: ChannelId) -> Self {
        let ChunkRef { start, length, offset, .. } = *piece;
        Self { loan: Some(loan), start, length, offset, channel }
    }

    /// Where in the message it begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// CRC32C of each whole page of 4 KiB of the piece, from its first byte on, which the link took
    /// when it checked what arrived: who wants to check pages by their CRC32C need not read them
    /// again. Empty where it took none: of a piece without a page, one that does not begin at a
    /// page, one that came in parts, or one without a checksum ([`EndpointConfig::payload_crc`]).
    ///
    /// [`EndpointConfig::payload_crc`]: crate::EndpointConfig::payload_crc
    #[must_use]
    #[inline]
    pub fn page_crcs(&self) -> &[u32] {
        let (start, pages) = (self.start as usize, self.length as usize / PAGE_BYTES);
        if pages == 0 || !start.is_multiple_of(PAGE_BYTES) {
            return &[];
        }
        let first = start / PAGE_BYTES;
        let known = self.loan.as_ref().map_or(&[][..], |loan| &loan.page_crcs);
        known.get(first..first + pages).unwrap_or(&[])
    }

    /// The piece as a buffer that nobody changes, to be sent on without a copy, by as many messages
    /// as you like. It holds its credit, and its receive buffer, until the last clone is gone:
    /// those with messages under way come back with the outcomes. Costs one small allocation.
    ///
    /// The endpoint that received it sends it as it is. Another endpoint must know its region
    /// first: pass [`Frozen::region`] to [`Endpoint::register`](crate::Endpoint::register) there,
    /// or copy the bytes.
    #[must_use]
    pub fn freeze(mut self) -> Frozen {
        let loan = self.loan.take().expect("a chunk has its buffer until it is given back");
        Frozen::part_of(loan, self.start, self.length, self.channel.0)
    }

    /// The piece as a message of its own, to be sent on without a copy; see
    /// [`freeze`](Self::freeze).
    #[must_use]
    pub fn into_payload(self) -> Payload {
        Payload::new(self.freeze())
    }

    /// Takes it by the fast way home if that is `returns`: of which slot and channel it was.
    #[inline]
    pub(crate) fn into_returned(mut self, returns: &Arc<Returns>) -> Option<Returned> {
        let loan = self.loan.as_ref()?;
        if !Arc::ptr_eq(&loan.returns, returns) {
            return None;
        }
        let slot = loan.slot;
        self.loan = None;
        Some((slot, self.channel))
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = self.loan.as_ref().map_or(&[][..], |loan| loan.bytes());
        let start = self.start as usize;
        bytes.get(start..start + self.length as usize).unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Chunk {
    #[inline]
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            send_home(loan, self.channel);
        }
    }
}

/// Puts a piece on its way home through the queue.
#[inline(never)]
fn send_home(loan: Arc<Loan>, channel: ChannelId) {
    let (slot, returns) = (loan.slot, Arc::clone(&loan.returns));
    // First, so that whoever takes the last one from the queue has the buffer to itself.
    drop(loan);
    returns.queue.push((slot, channel));
    returns.bell.ring();
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes at {})", self.len(), self.offset())
    }
}

/// A whole received message.
///
/// Its bytes are in the buffers of its [chunks](Chunk), in order: [`parts`](Self::parts) gives them
/// without copying, [`to_vec`](Self::to_vec) copies them. Each chunk holds one credit of the
/// channel until the message is dropped, on any thread, or passed to
/// [`Endpoint::release`](crate::Endpoint::release), which is faster.
#[derive(Debug)]
pub struct Message {
    pub(crate) link: LinkId,
    pub(crate) channel: ChannelId,
    pub(crate) len: u32,
    /// Two in place: a header and its data, or a 64 KiB message.
    pub(crate) chunks: SmallVec<[Chunk; 2]>,
}

impl Message {
    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a message has at least one byte")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// The link it came over.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.link
    }

    /// The channel it came over.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Its bytes, piece by piece. Where pieces begin is up to the sender and to the path: a piece
    /// never spans two segments, and one that does not end its segment has 16 KiB or more. Pieces
    /// of 4 KiB and more are page-aligned in memory if the sender asked for it
    /// ([`Payload::page_aligned`]).
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| &chunk[..])
    }

    /// The whole message when it is one piece.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.chunks[..] {
            [chunk] => Some(chunk),
            _ => None,
        }
    }

    /// The same pieces, with what is known of each.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Copies as much as fits to `out`; returns how many bytes that was.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for part in self.parts() {
            let len = part.len().min(out.len() - copied);
            out[copied..copied + len].copy_from_slice(&part[..len]);
            copied += len;
        }
        note(Pass::Copy, copied);
        copied
    }

    /// A copy of the whole message.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.parts().for_each(|part| out.extend_from_slice(part));
        note(Pass::Copy, out.len());
        out
    }

    /// The message as one to be sent on, to one peer or several, without a copy: its segments are
    /// [frozen](Chunk::freeze) pieces. They hold their credit and their receive buffers until the
    /// payload, which comes back with the outcome of the send, is dropped, and no clone of a
    /// segment is left. So the peer that sends the message waits for the peer that it is sent on
    /// to.
    ///
    /// # Errors
    /// The message itself, when it has more than four pieces, as many as a message can have
    /// segments: copy it, or send its [chunks](Self::into_chunks) on one by one. By default a
    /// message of one segment of up to 64 KiB never has more pieces than that; a longer one may.
    pub fn into_payload(self) -> Result<Payload, Self> {
        if self.chunks.len() > SEGMENTS_MAX {
            return Err(self);
        }
        let pieces = self.chunks.into_iter().map(|chunk| Segment::from(chunk.freeze()));
        Ok(Payload::of(pieces.collect()))
    }

    /// The chunks themselves, to be given back one by one.
    pub fn into_chunks(self) -> impl ExactSizeIterator<Item = Chunk> {
        self.chunks.into_iter()
    }
}
