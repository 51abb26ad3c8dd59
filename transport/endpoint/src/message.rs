//! What was received: buffers that the application owns until it gives them back.

use crate::bell::Bell;
use crate::event::LinkId;
use crate::held::Held;
use crossbeam_queue::ArrayQueue;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use towpath_proto::ChannelId;

/// Buffers on their way back from other threads, or from plain drops.
pub(crate) struct Returns {
    queue: ArrayQueue<Box<Loan>>,
    bell: Arc<Bell>,
}

impl Returns {
    /// For `slots_max` receive slots: each is under way at most once, so the queue is never full.
    /// Each one that comes back rings the bell.
    pub(crate) fn new(slots_max: usize, bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { queue: ArrayQueue::new(slots_max.max(1)), bell })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Box<Loan>> {
        // Mostly there is none, and to find that by taking one costs a fence.
        if self.queue.is_empty() { None } else { self.queue.pop() }
    }
}

/// A payload buffer and all that its chunk needs; made once for each slot, so that handing a chunk
/// out moves one pointer.
pub(crate) struct Loan {
    pub(crate) buf: Held,
    pub(crate) slot: u32,
    pub(crate) offset: u32,
    /// The way home; none while it is in that queue, which would otherwise own itself.
    pub(crate) returns: Option<Arc<Returns>>,
}

/// A piece of a received message, in the buffer that the device wrote, page-aligned at its start. A
/// piece of up to 512 bytes may have shared a packet with others; it was then copied.
///
/// A chunk holds one credit of its channel. Dropping it, on any thread, gives the buffer back;
/// [`Endpoint::release`](crate::Endpoint::release) does so faster.
pub struct Chunk {
    loan: Option<Box<Loan>>,
}

impl Chunk {
    pub(crate) fn new(loan: Box<Loan>) -> Self {
        Self { loan: Some(loan) }
    }

    /// Where in the message it begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.loan.as_ref().map_or(0, |loan| loan.offset)
    }

    /// Moves bytes from the front of the piece behind this one to the end of this one, as many as
    /// make it no longer than `bytes_max` and its buffer holds.
    pub(crate) fn take_front_of(&mut self, next: &mut Self, bytes_max: usize) {
        let (Some(ours), Some(theirs)) = (self.loan.as_mut(), next.loan.as_mut()) else { return };
        let offset = &mut theirs.offset;
        let bufs = (ours.buf.buf_mut(), theirs.buf.buf_mut());
        let (Some(ours), Some(theirs)) = bufs else { return };
        let room = bytes_max.min(ours.capacity()).saturating_sub(ours.len());
        let count = room.min(theirs.len());
        if ours.extend(&theirs[..count]).is_err() {
            return;
        }
        let rest = theirs.len() - count;
        theirs.copy_within(count.., 0);
        let shortened = theirs.set_len(rest);
        debug_assert!(shortened.is_ok(), "it is shorter than before");
        *offset += count as u32;
    }

    /// Takes it by the fast way home if that is `returns`.
    #[inline]
    pub(crate) fn into_loan(mut self, returns: &Arc<Returns>) -> Option<Box<Loan>> {
        let of = self.loan.as_ref()?.returns.as_ref()?;
        if Arc::ptr_eq(of, returns) { self.loan.take() } else { None }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.loan.as_ref().and_then(|loan| loan.buf.buf()).map_or(&[], |buf| buf)
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
            send_home(loan);
        }
    }
}

/// Puts a buffer on its way home through the queue.
#[inline(never)]
fn send_home(mut loan: Box<Loan>) {
    let Some(returns) = loan.returns.take() else { return };
    let full = returns.queue.push(loan).is_err();
    debug_assert!(!full, "the queue has a place for each slot");
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
    /// Two in place: a 64 KiB message is two chunks of the default size.
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

    /// Its bytes, piece by piece. Where pieces begin is up to the sender and to the packets of the
    /// path: never inside a segment's first chunk, and page-aligned in memory if they are longer
    /// than 512 bytes.
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

    /// Copies as much as fits to `out`; returns how many bytes that was.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for part in self.parts() {
            let len = part.len().min(out.len() - copied);
            out[copied..copied + len].copy_from_slice(&part[..len]);
            copied += len;
        }
        copied
    }

    /// A copy of the whole message.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.parts().for_each(|part| out.extend_from_slice(part));
        out
    }

    /// The chunks themselves, to be given back one by one.
    pub fn into_chunks(self) -> impl ExactSizeIterator<Item = Chunk> {
        self.chunks.into_iter()
    }
}
