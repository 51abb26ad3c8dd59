//! One TCP connection: frames out of a sheet of ready-made ones, frames in.

use super::frame::{HEADER_BYTES, Header, Kind, Parser, Step};
use crate::perftest::carrier::{RowPlan, Turn};
use crate::perftest::content::Content;
use crate::perftest::control::{is_pause, uninterrupted};
use crate::perftest::error::RunError;
use crate::perftest::limits::{PEER_TIMEOUT, TCP_WRITE_BYTES};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;

/// Bytes of an ack's frame.
const ACK_FRAME_BYTES: usize = HEADER_BYTES + 8;

/// What is being written.
#[derive(Debug)]
enum Out {
    /// Frames of the sheet.
    Sheet(Range<usize>),
    /// An ack or an end.
    Small([u8; ACK_FRAME_BYTES], Range<usize>),
}

/// One connection, and the messages on it.
///
/// Messages are written from a sheet of ready frames, so that sending costs nothing but the system
/// call: as many as fit one large write, or as may be under way.
#[derive(Debug)]
pub(super) struct Conn {
    stream: TcpStream,
    blocking: bool,
    sheet: Vec<u8>,
    frame_bytes: usize,
    /// Frames of the sheet, those of a write, and the first of the next write.
    frames: usize,
    write_frames: usize,
    next_frame: usize,
    queued: u64,
    out: Option<Out>,
    ack_due: bool,
    end_due: bool,
    confirm: bool,
    confirm_every: u64,
    unconfirmed: u64,
    under_way: u64,
    acked: u64,
    received: u64,
    parser: Parser,
    size: u32,
}

const SEND: &str = "sending on a TCP connection";
const RECEIVE: &str = "receiving from a TCP connection";

impl Conn {
    pub(super) fn new(stream: TcpStream, blocking: bool) -> Result<Self, RunError> {
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(!blocking))
            .and_then(|()| stream.set_read_timeout(Some(PEER_TIMEOUT)))
            .and_then(|()| stream.set_write_timeout(Some(PEER_TIMEOUT)));
        prepared.map_err(|source| RunError::Socket { what: "preparing a socket", source })?;
        Ok(Self {
            stream,
            blocking,
            sheet: Vec::new(),
            frame_bytes: HEADER_BYTES,
            frames: 0,
            write_frames: 0,
            next_frame: 0,
            queued: 0,
            out: None,
            ack_due: false,
            end_due: false,
            confirm: false,
            confirm_every: 1,
            unconfirmed: 0,
            under_way: 0,
            acked: 0,
            received: 0,
            parser: Parser::default(),
            size: 0,
        })
    }

    /// Makes the sheet of a row; `depth` is this connection's share.
    pub(super) fn prepare(&mut self, row: &RowPlan, depth: u32, content: &Content) {
        self.size = row.size;
        self.frame_bytes = HEADER_BYTES + row.size as usize;
        self.write_frames = TCP_WRITE_BYTES.div_ceil(self.frame_bytes).min(depth as usize);
        self.frames = if row.apart { depth as usize } else { self.write_frames };
        self.next_frame = 0;
        self.confirm = row.confirm;
        // Four acks for each depth of messages: rare enough to cost nothing, and early enough
        // that the sender never waits for one.
        self.confirm_every = u64::from(depth / 4).max(1);
        let header = Header { length: row.size, kind: Kind::Data, confirm: false }.emit();
        self.sheet.clear();
        for _ in 0..self.frames {
            self.sheet.extend_from_slice(&header);
            self.sheet.extend_from_slice(content.bytes());
        }
        (self.unconfirmed, self.under_way) = (0, 0);
    }

    pub(super) fn post(&mut self, count: u64) {
        self.queued += count;
        self.under_way += count;
    }

    /// Messages that are posted and not completed.
    pub(super) fn under_way(&self) -> u64 {
        self.under_way
    }

    pub(super) fn end_posting(&mut self) {
        self.end_due = true;
    }

    /// Writes what there is to write, as far as the kernel takes it. Returns how many messages
    /// that completed, where messages complete by being sent.
    pub(super) fn flush(&mut self, content: &mut Content) -> Result<u64, RunError> {
        let mut completed = 0;
        while let Some(out) = self.out.take().or_else(|| self.next_out(content)) {
            let (bytes, range) = match &out {
                Out::Sheet(range) => (&self.sheet[..], range.clone()),
                Out::Small(bytes, range) => (&bytes[..], range.clone()),
            };
            let wrote = match uninterrupted(|| self.stream.write(&bytes[range.clone()])) {
                Ok(wrote) => wrote,
                Err(error) if is_pause(&error) && !self.blocking => 0,
                Err(error) if is_pause(&error) => return Err(RunError::PeerSilent(PEER_TIMEOUT)),
                Err(error) => return Err(RunError::socket(SEND, error)),
            };
            let rest = range.start + wrote..range.end;
            let whole = rest.is_empty();
            if let (Out::Sheet(_), false) = (&out, self.confirm) {
                let frames = |at: usize| at / self.frame_bytes;
                completed += (frames(rest.start) - frames(range.start)) as u64;
            }
            if !whole {
                self.out = Some(match out {
                    Out::Sheet(_) => Out::Sheet(rest),
                    Out::Small(bytes, _) => Out::Small(bytes, rest),
                });
                // A call that blocks may be cut short and is made again.
                if !self.blocking {
                    break;
                }
            }
        }
        self.under_way -= completed;
        Ok(completed)
    }

    fn next_out(&mut self, content: &mut Content) -> Option<Out> {
        if std::mem::take(&mut self.ack_due) {
            let header = Header { length: 8, kind: Kind::Ack, confirm: false };
            let mut bytes = [0; ACK_FRAME_BYTES];
            bytes[..HEADER_BYTES].copy_from_slice(&header.emit());
            bytes[HEADER_BYTES..].copy_from_slice(&self.received.to_le_bytes());
            return Some(Out::Small(bytes, 0..ACK_FRAME_BYTES));
        }
        if self.queued > 0 {
            let frames = self.next_frames();
            self.queued -= frames.len() as u64;
            let bytes = frames.start * self.frame_bytes..frames.end * self.frame_bytes;
            if self.confirm || content.checked() {
                self.mark(bytes.clone(), content);
            }
            return Some(Out::Sheet(bytes));
        }
        std::mem::take(&mut self.end_due).then(|| {
            let header = Header { length: 0, kind: Kind::End, confirm: self.confirm };
            let mut bytes = [0; ACK_FRAME_BYTES];
            bytes[..HEADER_BYTES].copy_from_slice(&header.emit());
            Out::Small(bytes, 0..HEADER_BYTES)
        })
    }

    /// The frames of the next write. It starts over where not as many as fit one are left.
    fn next_frames(&mut self) -> Range<usize> {
        let start = self.next_frame;
        let end = start + self.queued.min(self.write_frames as u64) as usize;
        self.next_frame = if end + self.write_frames > self.frames { 0 } else { end };
        start..end
    }

    /// Numbers these frames of the sheet, and asks for acks where they are due.
    fn mark(&mut self, bytes: Range<usize>, content: &mut Content) {
        for frame in self.sheet[bytes].chunks_exact_mut(self.frame_bytes) {
            let (head, payload) = frame.split_at_mut(HEADER_BYTES);
            self.unconfirmed += 1;
            let confirm = self.confirm && self.unconfirmed >= self.confirm_every;
            if confirm {
                self.unconfirmed = 0;
            }
            let header = Header { length: self.size, kind: Kind::Data, confirm };
            head.copy_from_slice(&header.emit());
            if content.checked() {
                content.stamp(payload);
            }
        }
    }

    /// Reads once, and takes what came.
    pub(super) fn poll(
        &mut self,
        buffer: &mut [u8],
        content: &mut Content,
    ) -> Result<Turn, RunError> {
        let count = match uninterrupted(|| self.stream.read(buffer)) {
            Ok(0) => return Err(RunError::PeerGone("it closed a TCP connection".to_owned())),
            Ok(count) => count,
            Err(error) if is_pause(&error) && !self.blocking => return Ok(Turn::default()),
            Err(error) if is_pause(&error) => return Err(RunError::PeerSilent(PEER_TIMEOUT)),
            Err(error) => return Err(RunError::socket(RECEIVE, error)),
        };
        let turn = self.take(&buffer[..count], content)?;
        if self.ack_due {
            self.flush(content)?;
        }
        Ok(turn)
    }

    fn take(&mut self, mut bytes: &[u8], content: &mut Content) -> Result<Turn, RunError> {
        let mut turn = Turn::default();
        let mut ack = [0; 8];
        while let Step::Piece { header, offset, piece, end } = self.parser.step(&mut bytes)? {
            match header.kind {
                Kind::Data => {
                    if header.length != self.size {
                        let (wanted, got) = (self.size, header.length);
                        return Err(RunError::Length { wanted, got });
                    }
                    if content.checked() {
                        content.check(offset, piece)?;
                    }
                    turn.received += u64::from(end);
                    self.received += u64::from(end);
                }
                Kind::Ack => {
                    if header.length != 8 {
                        return Err(RunError::BadFrame);
                    }
                    ack[offset..offset + piece.len()].copy_from_slice(piece);
                    if end {
                        turn.completed += self.on_ack(u64::from_le_bytes(ack))?;
                    }
                }
                Kind::End => turn.ended = true,
            }
            self.ack_due |= end && header.confirm;
        }
        Ok(turn)
    }

    fn on_ack(&mut self, received: u64) -> Result<u64, RunError> {
        let fresh = received.checked_sub(self.acked).filter(|&n| n <= self.under_way);
        let fresh = fresh.ok_or(RunError::BadFrame)?;
        self.acked = received;
        self.under_way -= fresh;
        Ok(fresh)
    }
}
