//! What is sent: up to four segments, each a buffer of the message or one that others share.

use crate::page_crcs::PageCrcs;
use smallvec::{SmallVec, smallvec};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_memory::{Buf, Frozen, Segment};
use towpath_proto::limits::SEGMENTS_MAX;
use towpath_proto::{ChannelId, SendError};

/// The segments of one message; more than two are kept apart.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// A message to send: 1 to 4 segments, each a whole buffer of at least one byte.
///
/// Make one from a [`Buf`] with `into()`, or with [`new`](Self::new). The receiver gets the bytes
/// of the segments one after the other. A received [piece](crate::Chunk) never spans two segments.
/// Short messages, and pieces of long ones, lie back to back in what is sent: those of up to 512
/// bytes begin at multiples of eight bytes at the receiver, others anywhere;
/// [`page_aligned`](Self::page_aligned) asks for pages. A [frozen](Buf::freeze) buffer may be in
/// several messages at the same time, for example in one to each of three replicas. What was
/// received can be sent on without a copy: [`Message::into_payload`](crate::Message::into_payload).
#[derive(Debug)]
pub struct Payload {
    /// Two in place: a header and its data. More take an allocation.
    pub(crate) segments: Segments,
    /// Of the last segment; see [`push_with_crcs`](Self::push_with_crcs).
    pub(crate) page_crcs: PageCrcs,
    /// See [`page_aligned`](Self::page_aligned).
    pub(crate) at_pages: bool,
}

impl Payload {
    /// A message of one segment.
    #[must_use]
    pub fn new(segment: impl Into<Segment>) -> Self {
        Self::of(smallvec![segment.into()])
    }

    /// What is left of a message whose buffers are lost with the endpoint that had them.
    #[doc(hidden)]
    #[must_use]
    pub fn lost() -> Self {
        Self::of(Segments::new())
    }

    pub(crate) fn of(segments: Segments) -> Self {
        Self { segments, page_crcs: PageCrcs::default(), at_pages: false }
    }

    /// Each piece of 4 KiB or more is to begin at a page in the receiver's memory, and long
    /// segments are cut at pages: for who writes them to a disk from there. Messages that are not
    /// made of whole pages then need padding, and fewer fit into what is sent at once.
    #[must_use]
    pub fn page_aligned(mut self) -> Self {
        self.at_pages = true;
        self
    }

    /// With one more segment behind the others.
    ///
    /// # Errors
    /// The segment, when there are four already.
    pub fn push(&mut self, segment: impl Into<Segment>) -> Result<(), Segment> {
        let segment = segment.into();
        if self.segments.len() == SEGMENTS_MAX {
            return Err(segment);
        }
        self.segments.push(segment);
        self.page_crcs = PageCrcs::default();
        Ok(())
    }

    /// As [`push`](Self::push), with the CRC32C of pages of the segment. The checksums of chunks
    /// follow from them, without a pass over the bytes, as long as the segment is the last one.
    ///
    /// One that is wrong, or whose bytes have changed since, costs a retransmission: a chunk that
    /// is sent again has the checksum of the bytes that it has. In debug builds it is a panic.
    ///
    /// # Errors
    /// The segment, when there are four already.
    pub fn push_with_crcs(
        &mut self,
        segment: impl Into<Segment>,
        page_crcs: PageCrcs,
    ) -> Result<(), Segment> {
        self.push(segment)?;
        self.page_crcs = page_crcs;
        Ok(())
    }

    /// Bytes of all segments together.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segments themselves.
    pub fn into_segments(self) -> impl ExactSizeIterator<Item = Segment> {
        self.segments.into_iter()
    }

    /// The buffers of the segments that no other message or owner holds; its hold on the others
    /// ends.
    pub fn into_bufs(self) -> impl Iterator<Item = Buf> {
        self.segments.into_iter().filter_map(|segment| segment.into_buf().ok())
    }
}

impl From<Buf> for Payload {
    fn from(segment: Buf) -> Self {
        Self::new(segment)
    }
}

impl From<Frozen> for Payload {
    fn from(segment: Frozen) -> Self {
        Self::new(segment)
    }
}

/// How to send a message: token, and deadline or timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    #[doc(hidden)]
    pub token: u64,
    #[doc(hidden)]
    pub deadline: Time,
    #[doc(hidden)]
    pub timeout: Option<Nanos>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { token: 0, deadline: Time::NEVER, timeout: None }
    }
}

impl SendOptions {
    /// The defaults: token 0, no deadline, no timeout.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A number of the caller's choice, which comes back with the outcome. Default 0.
    #[must_use]
    pub fn token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// When to give the message up, on the device's clock: [`Endpoint::now`](crate::Endpoint::now),
    /// `EndpointHandle::now`. Default: never.
    #[must_use]
    pub fn deadline(mut self, deadline: Time) -> Self {
        self.deadline = deadline;
        self
    }

    /// Gives the message up if it has no outcome this long after the call that sends it; time in
    /// the channel's queue counts. The outcome is then usually
    /// [`Abandoned`](crate::Outcome::Abandoned). If there is a [`deadline`](Self::deadline) as
    /// well, the earlier one counts. Default: never.
    #[must_use]
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span.into());
        self
    }

    /// Whether the message may end before its turn comes.
    #[doc(hidden)]
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.timeout.is_some() || self.deadline != Time::NEVER
    }

    /// With the timeout, if there is one, counted from now on.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn counted_from(mut self, now: impl FnOnce() -> Time) -> Self {
        if let Some(span) = self.timeout.take() {
            self.deadline = self.deadline.min(now() + span);
        }
        self
    }
}

/// A message that was not accepted for sending, with its buffers.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// The message, unchanged.
    pub payload: Payload,
    /// Why.
    #[source]
    pub error: SubmitError,
}

/// Why a message was not accepted for sending. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The link does not exist, or no longer exists.
    #[error("the link is gone; connect again")]
    NoSuchLink,
    /// The channel does not exist, is not open yet, or is closed.
    #[error("channel {} is not open; wait for ChannelOpened before sending", .0.0)]
    NotOpen(ChannelId),
    /// The link has its maximum number of messages under way; see
    /// [`Event::Writable`](crate::Event::Writable).
    #[error("too many messages are under way on the link; wait for Event::Writable")]
    Full,
    /// The channel's queue is full (256 messages): the peer's reader or the network is slower than
    /// the sender. Try again later.
    #[error(
        "the channel's queue is full: wait until it has room (writable_async), or use \
         ChannelHandle::send or send_timeout, which wait"
    )]
    QueueFull,
    /// The completion queue has no place left: too many messages were posted with it whose outcomes
    /// were not taken yet.
    #[error(
        "all {depth} places of the completion queue are in use: take outcomes (poll or wait), or \
         make the queue deeper"
    )]
    CompletionsFull {
        /// How many places it has.
        depth: usize,
    },
    /// The message is longer than the peer accepts.
    #[error(
        "a message of {bytes} bytes is too long: the peer accepts at most {max} bytes; send \
         several messages, or set a larger EndpointConfig::whole_bytes_max, or streams, at the peer"
    )]
    TooLong {
        /// The length in bytes.
        bytes: usize,
        /// The longest message that the peer accepts, in bytes.
        max: u32,
    },
    /// A segment has no byte.
    #[error("a segment is empty; each needs at least one byte")]
    EmptySegment,
    /// A segment lies in memory that the device does not know: it was never registered here, or was
    /// received by another endpoint.
    #[error(
        "segment {segment} lies in a region that this endpoint does not know: register it first \
         (Endpoint::register, Segment::region), or copy the bytes (Endpoint::copy)"
    )]
    NotRegistered {
        /// Which, from 0.
        segment: usize,
    },
    /// A message that grows, on an ordered channel: there it would hold up what is sent behind it.
    #[error("channel {0:?} is ordered; a message that grows needs an unordered one")]
    Ordered(ChannelId),
    /// A message that grows has four segments that are there already, or nothing to come.
    #[error("a message that grows has 1 to 3 segments that are there, and a byte or more to come")]
    BadGrowth,
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; start another one")]
    ShutDown,
}

impl SubmitError {
    pub(crate) fn of(error: SendError, channel: ChannelId, bytes: usize) -> Self {
        match error {
            SendError::NotOpen => Self::NotOpen(channel),
            SendError::Full => Self::Full,
            SendError::TooLong { max } => Self::TooLong { bytes, max },
            SendError::BadLayout => Self::EmptySegment,
            SendError::Ordered => Self::Ordered(channel),
            SendError::Down => Self::NoSuchLink,
        }
    }
}
