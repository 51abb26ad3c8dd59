//! One connection: what came in part, and what is yet to be sent.

use super::{Dialogue, Next};
use crate::limits::{EVENTS_MAX, LINGER_BYTES_MAX, LINGER_TIME, READ_BYTES, SLOW_BYTES_PER_SEC};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;

/// A connection and its dialogue.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    dialogue: Box<dyn Dialogue>,
    /// Of requests that are not whole, or wait for replies to be sent. Empty for most: then it has
    /// no memory.
    input: Vec<u8>,
    /// With fewer bytes of input there is nothing to do.
    needed: usize,
    output: Vec<u8>,
    sent: usize,
    /// Requests wait until the replies are sent.
    is_paused: bool,
    end: Option<End>,
    /// The client said what has no meaning, which was not counted yet.
    is_malformed: bool,
    /// More came than was looked at before it ended.
    has_unread: bool,
    /// It has ended and said so: what still comes is thrown away, so many bytes since then. To
    /// close at once would be a reset, which takes the last reply away from the client.
    lingers: Option<(Time, u64)>,
    /// It is one of those that there may be, and not one that is told that there are too many.
    pub(super) is_counted: bool,
    /// Requests that were answered and not yet counted.
    pub(super) answered: u64,
    /// Bytes of memory that it is known to hold.
    pub(super) counted_bytes: u64,
    /// Since when the client is waited for, and the bytes that it has moved since.
    waits: Option<(Time, u64)>,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client wants it, or has gone.
    Closed,
    /// It said what has no meaning.
    Malformed,
}

/// What a worker lends to the connections that it serves: most leave nothing behind in them.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) input: Box<[u8]>,
    /// Empty buffers for replies.
    pub(super) outputs: Vec<Vec<u8>>,
}

impl Scratch {
    fn give_back(&mut self, mut output: Vec<u8>) {
        if output.capacity() <= READ_BYTES && self.outputs.len() < EVENTS_MAX {
            output.clear();
            self.outputs.push(output);
        }
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream, dialogue: Box<dyn Dialogue>) -> Self {
        Self {
            stream,
            dialogue,
            input: Vec::new(),
            needed: 1,
            output: Vec::new(),
            sent: 0,
            is_paused: false,
            end: None,
            is_malformed: false,
            has_unread: false,
            lingers: None,
            is_counted: true,
            answered: 0,
            counted_bytes: 0,
            waits: None,
        }
    }

    /// One that is told this, and ends.
    pub(super) fn turned_away(stream: TcpStream, dialogue: Box<dyn Dialogue>, text: &[u8]) -> Self {
        let (end, output) = (Some(End::Closed), text.to_vec());
        let made = Self::new(stream, dialogue);
        Self { output, end, has_unread: true, is_counted: false, ..made }
    }

    /// Whether it has ended, and only waits until the client has read that.
    pub(super) fn lingers(&self) -> bool {
        self.lingers.is_some()
    }

    /// Whether it waits to send, and reads nothing until it has.
    pub(super) fn is_sending(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Bytes of replies that are not sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> u64 {
        let buffers = self.input.capacity() + self.output.capacity();
        (buffers + self.dialogue.held_bytes()) as u64
    }

    /// Whether its client takes longer than it may.
    pub(super) fn is_slow(&self, now: Time, stall: Nanos) -> bool {
        if let Some((since, _)) = self.lingers {
            return now.since(since) > LINGER_TIME;
        }
        self.waits.is_some_and(|(since, moved)| {
            let for_bytes = Nanos(moved.saturating_mul(1_000_000_000 / SLOW_BYTES_PER_SEC));
            now.since(since) > stall + for_bytes
        })
    }

    /// Whether the client said what has no meaning, once.
    pub(super) fn take_malformed(&mut self) -> bool {
        std::mem::take(&mut self.is_malformed)
    }

    /// Reads what has come and carries it out; [`flush`](Self::flush) sends the replies.
    pub(super) fn receive(&mut self, scratch: &mut Scratch, clock: &Clock) -> Result<(), End> {
        let count = match self.stream.read(&mut scratch.input) {
            Ok(0) => return Err(End::Closed),
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Ok(()),
            Err(_) => return Err(End::Closed),
        };
        if let Some((_, bytes)) = &mut self.lingers {
            *bytes += count as u64;
            return if *bytes > LINGER_BYTES_MAX { Err(End::Closed) } else { Ok(()) };
        }
        // Not before: another thread may have told meanwhile that something has expired, and what
        // was read may have been sent by somebody who knows that.
        let now = clock.now();
        if self.output.capacity() == 0 {
            self.output = scratch.outputs.pop().unwrap_or_default();
        }
        if self.input.is_empty() {
            let used = self.serve(&scratch.input[..count], now);
            self.input.extend_from_slice(&scratch.input[used..count]);
            return Ok(());
        }
        self.input.extend_from_slice(&scratch.input[..count]);
        self.moved(count);
        if self.input.len() >= self.needed {
            self.serve_held(now);
        }
        Ok(())
    }

    /// Sends replies, and carries out what waited for that.
    pub(super) fn flush(&mut self, scratch: &mut Scratch, clock: &Clock) -> Result<(), End> {
        while self.is_sending() {
            let is_begun = self.sent > 0;
            let count = write(&self.stream, &self.output[self.sent..])?;
            self.sent += count;
            match self.is_sending() {
                true if is_begun => {
                    self.moved(count);
                    return Ok(());
                }
                true => {
                    self.waits = Some((clock.now(), 0));
                    return Ok(());
                }
                false => {}
            }
            self.output.clear();
            self.sent = 0;
            if self.end.is_some() {
                break;
            }
            // It has taken the replies: what is waited for from here on is the next request.
            let is_awaited = !self.input.is_empty() || self.dialogue.is_begun();
            self.waits = is_awaited.then(|| (clock.now(), 0));
            if self.is_paused {
                self.serve_held(clock.now());
            }
        }
        scratch.give_back(std::mem::take(&mut self.output));
        match self.end {
            Some(end) if !self.lingers() => self.end(end, clock.now()),
            _ => Ok(()),
        }
    }

    /// Ends it, when the client has what it is told.
    fn end(&mut self, end: End, now: Time) -> Result<(), End> {
        if end == End::Closed && !self.has_unread {
            return Err(end);
        }
        self.stream.shutdown(Shutdown::Write).map_err(|_| end)?;
        (self.lingers, self.waits) = (Some((now, 0)), Some((now, 0)));
        (self.input, self.is_paused) = (Vec::new(), false);
        Ok(())
    }

    fn serve_held(&mut self, now: Time) {
        let mut held = std::mem::take(&mut self.input);
        let used = self.serve(&held, now);
        if used < held.len() {
            // Nothing is moved for a client that sends a request byte by byte.
            held.drain(..used);
            self.input = held;
        }
    }

    /// Carries out what `input` has, as long as there is room for replies.
    ///
    /// Returns how many bytes are needed no more.
    fn serve(&mut self, input: &[u8], now: Time) -> usize {
        let taken = self.dialogue.take(input, now, &mut self.output);
        self.answered += taken.requests;
        self.is_paused = taken.next == Next::Paused;
        match taken.next {
            Next::More { needed } => self.needed = needed,
            Next::Paused => {}
            Next::Close => self.end = Some(End::Closed),
            Next::Malformed => {
                (self.end, self.is_malformed) = (Some(End::Malformed), true);
            }
        }
        if self.end.is_some() {
            self.has_unread = taken.used < input.len();
            return input.len();
        }
        // A request that still is not whole has been waited for since it began.
        let since = self.waits.filter(|_| taken.requests == 0).unwrap_or((now, 0));
        let is_awaited = taken.used < input.len() || self.dialogue.is_begun();
        self.waits = is_awaited.then_some(since);
        taken.used
    }

    fn moved(&mut self, bytes: usize) {
        if let Some((_, moved)) = &mut self.waits {
            *moved += bytes as u64;
        }
    }
}

/// Whether the same call may do later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Writes what the system takes; how much that was.
fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<usize, End> {
    match stream.write(bytes) {
        Ok(count) => Ok(count),
        Err(error) if is_passing(&error) => Ok(0),
        Err(_) => Err(End::Closed),
    }
}
