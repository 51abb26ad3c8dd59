//! One connection: what came in part, and what is yet to be sent.

use super::{Dialogue, Next};
use crate::limits::{
    EVENTS_MAX, LINGER_BYTES_MAX, LINGER_TIME, READ_BYTES, SLOW_BYTES_PER_SEC, TLS_BYTES,
};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;
use towpath_secure::front::{FrontSession, Place};
use towpath_secure::limits::HANDSHAKE_NS;

/// A connection and its dialogue.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    tls: Option<Box<Tls>>,
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

/// What a connection over TLS has more.
#[derive(Debug)]
struct Tls {
    session: FrontSession,
    /// Of its handshake, as long as that is under way, and since when it is.
    handshake: Option<(Place, Time)>,
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
            tls: None,
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

    /// The same over TLS, whose handshake begins now.
    pub(super) fn over_tls(mut self, session: FrontSession, place: Place, now: Time) -> Self {
        self.tls = Some(Box::new(Tls { session, handshake: Some((place, now)) }));
        self
    }

    /// Whether its handshake is not over: where it ends so, that has failed.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.handshake.is_some())
    }

    /// Whether it has ended, and only waits until the client has read that.
    pub(super) fn lingers(&self) -> bool {
        self.lingers.is_some()
    }

    /// Whether it waits to send, and reads nothing until it has.
    pub(super) fn is_sending(&self) -> bool {
        let has_records = self.tls.as_ref().is_some_and(|tls| tls.session.wants_write());
        self.sent < self.output.len() || has_records
    }

    /// Bytes of replies that are not sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> u64 {
        let buffers = self.input.capacity() + self.output.capacity();
        let tls = if self.tls.is_some() { TLS_BYTES } else { 0 };
        (buffers + tls + self.dialogue.held_bytes()) as u64
    }

    /// Whether its client takes longer than it may.
    pub(super) fn is_slow(&self, now: Time, stall: Nanos) -> bool {
        if let Some((since, _)) = self.lingers {
            return now.since(since) > LINGER_TIME;
        }
        let handshake = self.tls.as_ref().and_then(|tls| tls.handshake.as_ref());
        if let Some((_, since)) = handshake {
            return now.since(*since) > HANDSHAKE_NS;
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
        let count = match self.read(&mut scratch.input) {
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

    fn read(&mut self, input: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(input) };
        let came = tls.session.read(&mut &self.stream, input);
        if !tls.session.is_handshaking() {
            tls.handshake = None;
        }
        if came.as_ref().is_err_and(|error| !is_passing(error)) {
            // The client is told why, where it still listens.
            let _ = tls.session.flush(&mut &self.stream);
        }
        came
    }

    /// Writes what the system takes of the replies; how much that was.
    fn write(&mut self) -> Result<usize, End> {
        let Some(tls) = &mut self.tls else {
            return write(&self.stream, &self.output[self.sent..]);
        };
        let (mut rest, mut total) = (&self.output[self.sent..], 0);
        loop {
            let count = tls.session.write(&mut &self.stream, rest).map_err(|_| End::Closed)?;
            (rest, total) = (&rest[count..], total + count);
            if rest.is_empty() || count == 0 || tls.session.wants_write() {
                return Ok(total);
            }
        }
    }

    /// Sends replies, and carries out what waited for that.
    pub(super) fn flush(&mut self, scratch: &mut Scratch, clock: &Clock) -> Result<(), End> {
        while self.is_sending() {
            let is_begun = self.sent > 0;
            let count = self.write()?;
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
        if let Some(tls) = &mut self.tls {
            tls.session.close();
            // Whoever does not take that in has ended as well.
            let _ = tls.session.flush(&mut &self.stream);
        }
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
