//! What goes in and out of a [`Link`](crate::Link) beside bytes.

use crate::carrier::{Carrier, CarrierReason};
use crate::lane::{Grant, GrantId, OpKey, OpOutcome};
use crate::limits::{FRAME_ALIGN_BYTES, FRAME_UNIT_BYTES, HEADER_BYTES};
use crate::path::{MtuPhase, MtuReason, PathSignal, PathState};
pub use crate::piece::{PayloadRef, SendFrame, SendKey};
use crate::remake::QpHalf;
use crate::wire::{ChunkHeader, body_bytes, emit_table, place};
use alloc::vec::Vec;
use core::fmt;
use towpath_base::{Nanos, Time};
use towpath_verbs::Mtu;

/// A channel of a link; the same number at both ends. The low 16 bits are its place, the high 16
/// count the lives of that place, so that what is late from an earlier life is known
/// (docs/protocol.md section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

impl ChannelId {
    /// Bits of the place.
    const PLACE_BITS: u32 = 16;

    pub(crate) fn new(place: u32, life: u16) -> Self {
        debug_assert!(place >> Self::PLACE_BITS == 0, "CHANNELS_MAX keeps places small");
        Self(u32::from(life) << Self::PLACE_BITS | place)
    }

    /// A small dense index, for tables; unique among the live channels of a link.
    #[must_use]
    pub fn place(self) -> usize {
        (self.0 & ((1 << Self::PLACE_BITS) - 1)) as usize
    }
}

/// A path of a link: an index below [`PATHS_MAX`](crate::limits::PATHS_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// How one path of a link stands, and what it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSnapshot {
    /// Which.
    pub path: PathId,
    /// What carries it.
    pub carrier: Carrier,
    /// What it is thought of.
    pub state: PathState,
    /// Since when.
    pub since: Time,
    /// Its smoothed round-trip time, once there is a sample.
    pub srtt: Option<Nanos>,
    /// Transmissions on it: data, control and probes, again or for the first time.
    pub sent: u64,
    /// Those of them that were declared lost, less those that were acknowledged after all.
    pub lost: u64,
    /// Bytes in flight on it, as windows count them.
    pub in_flight_bytes: u64,
    /// How often it was doubted.
    pub doubts: u64,
    /// How often it was put in quarantine.
    pub quarantines: u64,
    /// Which of the device's source ports it leaves from, as far as the link changes that.
    pub source_port: u16,
    /// How often its source port was changed.
    pub moves: u64,
    /// How often its queue pair was made anew.
    pub renewals: u32,
    /// Acks go this way.
    pub carries_acks: bool,
    /// How long the packets are that leave on it.
    pub mtu: Mtu,
    /// Where the search for that stands.
    pub mtu_phase: MtuPhase,
    /// Why they are no longer.
    pub mtu_reason: MtuReason,
}

impl PathSnapshot {
    /// The share of its transmissions that were declared lost, 0.0 to 1.0.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// A path that goes on from another source port, for the driver to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reroute {
    /// Which.
    pub path: PathId,
    /// The port: an index below [`LinkConfig::source_ports`](crate::LinkConfig::source_ports).
    pub source_port: u16,
    /// The control queue pair takes this path's way and moves with it.
    pub moves_control: bool,
}

/// What the driver has to do for a queue pair that is made anew (docs/protocol.md section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renew {
    /// Destroy what the path has, wait until nothing of it is posted any more, make another, and
    /// tell of it by [`Link::renewed`](crate::Link::renewed) or
    /// [`Link::renewal_failed`](crate::Link::renewal_failed).
    Make {
        /// Which.
        path: PathId,
    },
    /// Connect ours to the peer's. What goes wrong is told by
    /// [`Link::path_failed`](crate::Link::path_failed), as ever.
    Join {
        /// Which.
        path: PathId,
        /// The peer's half.
        theirs: QpHalf,
        /// The port that ours leaves from, if not from where the path began: an index below
        /// [`LinkConfig::source_ports`](crate::LinkConfig::source_ports).
        source_port: Option<u16>,
    },
}

/// A receive buffer, in the driver's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufToken(pub u32);

/// A message being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IncomingKey(pub(crate) crate::slots::Key);

/// What to do with the receive buffer of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a recycled buffer that is not posted again is lost to the receive queue"]
pub enum Verdict {
    /// The link keeps so many pieces of it, at least one. Each comes back by itself: as a
    /// [`ChunkRef`] that names the buffer, or in [`Event::Recycled`]. Post the buffer again when
    /// all have come back.
    Kept(u16),
    /// Post it again: the chunk was control, duplicate, stale or bad, or was copied.
    Recycle,
}

/// A chunk that the device received.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its header.
    pub header: &'a [u8; HEADER_BYTES],
    /// What followed the header.
    pub body: &'a [u8],
    /// The buffer in which the body lies, from its first byte on.
    pub buf: BufToken,
    /// Whether the link may keep that. If not, pieces that came whole are refused, and come again;
    /// parts of pieces are taken all the same.
    pub may_keep: bool,
    /// When it was received.
    pub received_at: Time,
}

/// Buffers of the driver in which pieces are put together that come in parts.
pub trait PieceBuffers {
    /// A buffer for a piece of `length` bytes; `None` where there is none now.
    fn take(&mut self, length: u32) -> Option<BufToken>;
    /// Copies `bytes` to the offset `at` of a buffer that was taken.
    fn write(&mut self, buf: BufToken, at: u32, bytes: &[u8]);
    /// The link is done with a buffer that was taken.
    fn give_back(&mut self, buf: BufToken);
    /// CRC32C of the next whole pages of the body that is being taken in, from its first byte on:
    /// the link has just taken them to check the body, so nobody needs a second pass. They count
    /// only if the body is kept. A driver that has no use for them leaves this as it is.
    fn note_pages(&mut self, _crcs: &[u32]) {}
}

/// A chunk to send. The driver fills in `body_crc` (it has the bytes), emits the header and
/// posts one SEND (docs/protocol.md section 3): the header, the payloads of the frames, each at its
/// [`place`], and the table of frames.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The path whose queue pair sends it.
    pub path: PathId,
    /// The header, complete but for `body_crc`.
    pub header: ChunkHeader,
    /// The frames, in the order in which they lie in the chunk; control chunks have none.
    pub frames: Vec<SendFrame>,
    /// Bytes that mean nothing and follow the header where there is no frame.
    pub filler_bytes: u32,
    /// At what size the device is to cut it
    /// ([`SendFlags::cut_at`](towpath_verbs::SendFlags::cut_at)).
    pub cut_at: Option<Mtu>,
}

impl Transmit {
    /// Where the payloads of the frames begin behind the header, and where the last one ends.
    pub fn places(&self) -> impl Iterator<Item = (&SendFrame, usize)> {
        let mut end = 0;
        self.frames.iter().map(move |frame| {
            let start = place(end, &frame.frame);
            end = start + frame.frame.length as usize;
            (frame, start)
        })
    }

    /// The body as one piece of memory, for drivers that copy: `copy` appends the bytes that a
    /// frame names to what it is handed.
    pub fn emit_body(&self, body: &mut Vec<u8>, mut copy: impl FnMut(&PayloadRef, &mut Vec<u8>)) {
        let from = body.len();
        for (frame, start) in self.places() {
            body.resize(from + start, 0);
            copy(&frame.source, body);
        }
        let units = self.header.flags.units();
        if units > 0 {
            let table = body_bytes(body.len() - from, 0).next_multiple_of(FRAME_ALIGN_BYTES);
            body.resize(from + table + units * FRAME_UNIT_BYTES, 0);
            emit_table(self.frames.iter().map(|frame| &frame.frame), &mut body[from + table..]);
        }
    }
}

/// An ack to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTransmit {
    /// How many bytes it has.
    pub len: usize,
    /// The path whose queue pair sends it; `None` for the control queue pair.
    pub path: Option<PathId>,
    /// As in [`Transmit`].
    pub cut_at: Option<Mtu>,
}

/// One received piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// The buffer it lies in, perhaps with others.
    pub buf: BufToken,
    /// Where in the buffer.
    pub start: u32,
    /// Index of the piece within the message.
    pub index: u32,
    /// Byte offset within the message.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// How the sending of a message ended (docs/protocol.md section 7). Each message has one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The transport of the peer, which is alive, holds the whole intact message. The peer's
    /// application may not have read the message yet.
    Delivered,
    /// The message was given up. The peer's application has not seen the whole message and never
    /// will.
    Abandoned,
    /// The peer is gone, and at least a part of the message had been sent. The peer may have the
    /// message or not.
    Unknown,
}

/// Why a channel is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// This side closed it.
    Local,
    /// The peer closed it.
    Peer,
    /// The peer refused to open it: its code.
    Refused(u32),
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// This side left.
    Local,
    /// The peer said goodbye.
    Goodbye,
    /// No sign of life for this long while one was due.
    Silent(Nanos),
    /// The driver learnt that the peer is gone: its set-up connection broke.
    PeerGone,
    /// The carrier of every path has failed: queue pairs went to error.
    PathsFailed,
    /// The driver does not trust the peer any more.
    Untrusted,
    /// The driver cannot seal another chunk: the keys of the link are used up.
    KeysUsedUp,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => write!(f, "this side left"),
            Self::Goodbye => write!(f, "the peer left"),
            Self::Silent(span) => write!(f, "no sign of life for {} ms", span.0 / 1_000_000),
            Self::PeerGone => write!(f, "the peer is gone"),
            Self::PathsFailed => write!(f, "each of its paths has failed"),
            Self::Untrusted => write!(
                f,
                "the peer is not trusted any more: its line is gone from authorized_peers, or its \
                 time is over"
            ),
            Self::KeysUsedUp => write!(f, "its keys have sealed all that they may; connect again"),
        }
    }
}

/// What the driver has to tell the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A channel is open both ways.
    Opened {
        /// Which.
        channel: ChannelId,
        /// Its order: messages arrive in the order they were sent.
        ordered: bool,
        /// It carries one-sided operations, and is no channel of the application.
        for_lane: bool,
        /// The peer opened it.
        by_peer: bool,
    },
    /// A channel is closed: nothing more arrives, everything sent has had its outcome.
    Closed {
        /// Which.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
    },
    /// A whole message; take it with [`Link::take_message`](crate::Link::take_message).
    Message {
        /// Its channel.
        channel: ChannelId,
        /// The message.
        incoming: IncomingKey,
        /// Its length in bytes.
        length: u32,
    },
    /// The next piece of a message that is too long to be held whole, in order; with
    /// [`LinkConfig::pieces_as_they_come`](crate::LinkConfig::pieces_as_they_come) a piece of any
    /// message of an unordered channel, wherever it lies in the message.
    StreamChunk {
        /// Its channel.
        channel: ChannelId,
        /// The message.
        incoming: IncomingKey,
        /// The piece; release its buffer when done.
        chunk: ChunkRef,
        /// The length of the whole message.
        message_len: u32,
        /// No more pieces follow: the message is whole.
        end: bool,
    },
    /// The rest of a streamed message will not come.
    StreamAborted {
        /// Its channel.
        channel: ChannelId,
        /// The message.
        incoming: IncomingKey,
    },
    /// A piece comes back unread: its message was given up or broke a rule. Post its buffer again
    /// if no other piece is held there.
    Recycled {
        /// The buffer.
        buf: BufToken,
    },
    /// A message has its outcome, and the device holds none of its buffers any more.
    Sent {
        /// The message.
        send: SendKey,
        /// The caller's own word.
        token: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A piece of a message that is [supplied](crate::Link::supply) while it is sent is with the
    /// peer, and the device holds none of its bytes any more.
    PieceSent {
        /// The message.
        send: SendKey,
        /// Where the piece begins in the segment that is supplied.
        offset: u32,
        /// Its bytes.
        length: u32,
    },
    /// The link rides on another carrier from now on: the one before was silent while this one
    /// answered, or a better one answers again. The link goes on, and nothing is lost.
    CarrierChanged {
        /// What it rode on.
        from: Carrier,
        /// What it rides on now.
        to: Carrier,
        /// Why.
        why: CarrierReason,
    },
    /// A path carries packets of another size than was thought: the link goes on in packets of
    /// that. What a path begins with is what both ends agreed on.
    PathMtuChanged {
        /// Which.
        path: PathId,
        /// The size that was thought to be carried.
        from: Mtu,
        /// The size in use.
        to: Mtu,
        /// Why.
        why: MtuReason,
    },
    /// A path has moved from one state to another; all legal moves are in
    /// [`MOVES`](crate::MOVES).
    PathChanged {
        /// Which.
        path: PathId,
        /// What it was thought of.
        from: PathState,
        /// What it is thought of now.
        to: PathState,
        /// What happened.
        signal: PathSignal,
    },
    /// The peer lets us reach memory of its own.
    Granted {
        /// Which, and how far.
        grant: Grant,
    },
    /// It does so no longer. Operations that wait for it are denied.
    Revoked {
        /// Which.
        grant: GrantId,
    },
    /// A one-sided operation has ended, and the device holds nothing of it.
    OpDone {
        /// Which.
        op: OpKey,
        /// The caller's word.
        token: u64,
        /// How.
        outcome: OpOutcome,
    },
    /// The link is down. Every message has had its outcome before this; for that the driver must
    /// have returned all work requests, so it flushes the queue pairs as soon as
    /// [`Link::is_down`](crate::Link::is_down) says so.
    Down {
        /// Why.
        reason: DownReason,
    },
}
