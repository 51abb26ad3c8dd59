//! The client: it numbers requests, repeats those without a reply, and tells what came of them.

use super::call::Call;
use super::patience::{ClientConfig, Patience};
use super::{Sign, Transport, TransportError, Watched};
use crate::store::When;
use crate::wire::{Answer, Ask, Failure, Reply, Request, WireError};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

/// What a client has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Requests, each counted once.
    pub requests: u64,
    /// Requests that were sent again.
    pub repeated: u64,
    /// Replies that had come before, or came too late.
    pub stray: u64,
    /// Connections that were made after the first.
    pub renewed: u64,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server said so: nothing was done.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// No reply came in time: a change may have been made, or may still be.
    #[error("no reply in time{}", .0.as_ref().map(|e| format!(": {e}")).unwrap_or_default())]
    TimedOut(Option<TransportError>),
    /// The request was not sent: it is longer than the transport carries.
    #[error("a request of {bytes} bytes is longer than this transport carries: {max}")]
    TooLong {
        /// Of the request.
        bytes: usize,
        /// Of the longest.
        max: usize,
    },
    /// The reply is not one to this request.
    #[error("the reply is not one to this request: {0}")]
    Malformed(#[from] WireError),
}

/// A connection on which nothing came for so long is given up for another: a server whose host went
/// without a word does not say that it is gone, and may be back.
const SILENCE: Duration = Duration::from_secs(2);

/// And so many requests in a row were not answered: one may be lost, or the server busy with it.
const SILENT_TRIES: u32 = 2;

/// Where others wait meanwhile, another connection is tried for so long at a time.
pub(super) const RENEW_TIME: Duration = Duration::from_secs(1);

/// So many replies that nobody waits for are taken in at a time: a server may send more for ever.
const STRAYS_AT_A_TIME: usize = 64;

/// A client of one server, for one thread. [`Many`](super::Many) has many on one thread.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    config: ClientConfig,
    patience: Patience,
    number: u64,
    sequence: u64,
    stats: ClientStats,
    request: Vec<u8>,
    /// A PING, by which the server knows the number from now on.
    greeting: Vec<u8>,
    /// The server knows the number.
    is_met: bool,
    /// When a reply last came on this connection, or it was made, or the call began.
    heard: Instant,
    /// The connection is broken, or seems to be: the next request goes over another.
    is_lost: bool,
    /// Replies that nobody waits for were left where they are: more may be there.
    is_flooded: bool,
    call: Option<Call>,
}

/// What a reply held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was done, and there is nothing to say.
    Done,
    /// A value, or the bytes of a [`Listing`](crate::wire::Listing).
    Value(Vec<u8>),
    /// What a number came to.
    Sum(i64),
}

impl<T: Transport> Client<T> {
    /// A client with a number at random.
    #[must_use]
    pub fn new(transport: T, config: ClientConfig) -> Self {
        Self::with_number(transport, config, random_number())
    }

    /// A client with this number, which no other client has.
    #[must_use]
    pub fn with_number(transport: T, config: ClientConfig, number: u64) -> Self {
        let stats = ClientStats::default();
        let patience = Patience::new(&config);
        let (request, greeting, heard, call) = (Vec::new(), Vec::new(), Instant::now(), None);
        let (sequence, is_met, is_lost, is_flooded) = (0, false, false, false);
        Self {
            transport,
            config,
            patience,
            number,
            sequence,
            stats,
            request,
            greeting,
            is_met,
            heard,
            is_lost,
            is_flooded,
            call,
        }
    }

    /// The transport, to read by it.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.stats
    }

    /// Reads a value; none where there is none.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        match self.ask(Ask::Get { key }) {
            Ok(Told::Value(value)) => Ok(Some(value)),
            Ok(Told::Done | Told::Sum(_)) => Err(unexpected()),
            Err(ClientError::Refused(Failure::NoKey)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts a value, on no condition and for ever.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        self.set_if(key, value, When::Always, 0).map(|_| ())
    }

    /// Puts a value for so many milliseconds, 0 for ever; whether the condition held.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn set_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        when: When,
        expire_ms: u32,
    ) -> Result<bool, ClientError> {
        match self.ask(Ask::Set { key, value, when, expire_ms }) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(Failure::Condition)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn del(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        match self.ask(Ask::Del { key }) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(Failure::NoKey)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds to a number; the sum.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn incr(&mut self, key: &[u8], by: i64) -> Result<i64, ClientError> {
        match self.ask(Ask::Incr { key, by })? {
            Told::Sum(sum) => Ok(sum),
            Told::Done | Told::Value(_) => Err(unexpected()),
        }
    }

    /// Asks whether the server is there.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn ping(&mut self) -> Result<(), ClientError> {
        self.ask(Ask::Ping).map(|_| ())
    }

    /// Lists entries: the bytes of a [`Listing`](crate::wire::Listing).
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn dump(&mut self) -> Result<Vec<u8>, ClientError> {
        match self.ask(Ask::Dump)? {
            Told::Value(listing) => Ok(listing),
            Told::Done | Told::Sum(_) => Err(unexpected()),
        }
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.ask(Ask::Reset).map(|_| ())
    }

    /// Sets an option of the store.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn set_option(&mut self, name: &[u8], value: &[u8]) -> Result<(), ClientError> {
        self.ask(Ask::SetOpt { name, value }).map(|_| ())
    }

    /// Says that it goes.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn exit(mut self) -> Result<(), ClientError> {
        self.ask(Ask::Exit).map(|_| ())
    }

    /// Asks until there is a reply, or the time is over.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn ask(&mut self, ask: Ask<'_>) -> Result<Told, ClientError> {
        self.begin(ask);
        loop {
            if let Some(told) = self.step(Duration::MAX) {
                return told;
            }
        }
    }

    /// Begins a call; the one before is forgotten.
    pub(super) fn begin(&mut self, ask: Ask<'_>) {
        let greets = ask.is_change() && !self.is_met && self.number != 0;
        self.sequence += 1 + u64::from(greets);
        self.stats.requests += 1;
        self.request.clear();
        Request { client: self.number, sequence: self.sequence, ask }.emit(&mut self.request);
        self.heard = Instant::now();
        let mut call = Call::new(self.heard, &self.config);
        if greets {
            self.greet();
            call.greets = true;
        }
        self.call = Some(call);
    }

    /// The greeting has the number before that of the request.
    fn greet(&mut self) {
        self.greeting.clear();
        let (client, sequence) = (self.number, self.sequence - 1);
        Request { client, sequence, ask: Ask::Ping }.emit(&mut self.greeting);
    }

    /// What a reply comes to: the end of the call, or the next request of it.
    fn go_on(
        &mut self,
        call: &mut Call,
        told: Result<Told, ClientError>,
    ) -> Result<Option<Told>, ClientError> {
        match told {
            Ok(_) if call.greets => {
                self.is_met = true;
                call.begin_anew(false);
                Ok(None)
            }
            Err(ClientError::Refused(Failure::Stale)) => {
                // The server has forgotten this client. What came but once was not done.
                let came_once = call.tries == 1 && !call.is_renumbered;
                (self.number, self.is_met) = (random_number(), false);
                if !came_once {
                    return Err(Failure::Stale.into());
                }
                let request = std::mem::take(&mut self.request);
                let (request, _) = Request::parse(&request)?;
                self.sequence += 2;
                let (client, sequence) = (self.number, self.sequence);
                Request { client, sequence, ..request }.emit(&mut self.request);
                self.greet();
                call.is_renumbered = true;
                call.begin_anew(true);
                Ok(None)
            }
            told => told.map(Some),
        }
    }

    /// When the call that is under way wants a [`step`](Self::step), though nothing came.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.call.as_ref()?.until)
    }

    /// Carries the call that is under way on, waiting for at most `most`; what came of it, where it
    /// has ended.
    pub(super) fn step(&mut self, most: Duration) -> Option<Result<Told, ClientError>> {
        let mut call = self.call.take()?;
        let ended = self.carry_on(&mut call, most).transpose();
        if ended.is_none() {
            self.call = Some(call);
        }
        ended
    }

    fn carry_on(&mut self, call: &mut Call, most: Duration) -> Result<Option<Told>, ClientError> {
        if call.sent.is_none() && self.is_lost && !self.renew(call, most)? {
            return Ok(None);
        }
        let sent = match call.sent {
            Some(sent) => Ok(sent),
            None => match self.send(call) {
                // It is not there yet.
                Ok(_) if most.is_zero() => return Ok(None),
                sent => sent,
            },
        };
        let failed = match sent.and_then(|sent| Ok((sent, self.reply(call, most)?))) {
            Ok((sent, Some(told))) => {
                // Of one that was repeated nobody knows which of them was answered.
                if call.tries == 1 {
                    self.patience.answered(sent.elapsed());
                }
                return self.go_on(call, told);
            }
            Ok((_, None)) if !call.left.is_zero() => return Ok(None),
            Ok((sent, None)) => {
                self.patience.timed_out();
                call.silent = if self.heard < sent { call.silent + 1 } else { 0 };
                None
            }
            Err(TransportError::TooLong { bytes, max }) => {
                return Err(ClientError::TooLong { bytes, max });
            }
            Err(error) => Some(error),
        };
        let now = Instant::now();
        (call.sent, call.until) = (None, now);
        let is_silent = call.silent >= SILENT_TRIES && now.duration_since(self.heard) >= SILENCE;
        // After a call in vain the next one does not hope for the same connection.
        self.is_lost = failed.is_some() || is_silent || now >= call.end;
        if now >= call.end {
            return Err(ClientError::TimedOut(failed));
        }
        // One that is made and fails at once would be made anew thousands of times a second.
        if let Some(error) = failed {
            call.put_off(error);
        }
        Ok(None)
    }

    /// Has the sign raised when something comes; whether something may be there already.
    pub(super) fn watch(&mut self, sign: &Sign) -> bool
    where
        T: Watched,
    {
        let Some(call) = self.call.as_mut().filter(|call| call.sent.is_some()) else {
            return false;
        };
        match self.transport.watch(sign) {
            Ok(may_be_there) => may_be_there || self.is_flooded,
            Err(error) => {
                // Nobody would hear the reply: the request goes over another connection.
                (self.is_lost, call.sent) = (true, None);
                call.put_off(error);
                false
            }
        }
    }

    fn send(&mut self, call: &mut Call) -> Result<Instant, TransportError> {
        self.stats.repeated += u64::from(call.tries > 0);
        call.tries += 1;
        let now = Instant::now();
        // The same each time, as a rule: transports may have noted it.
        call.left = self.patience.wait().min(call.end.saturating_duration_since(now));
        (call.sent, call.until) = (Some(now), now + call.left);
        self.transport.send(if call.greets { &self.greeting } else { &self.request })?;
        Ok(now)
    }

    /// Begins anew over another connection; false where that is to be tried once more.
    fn renew(&mut self, call: &mut Call, most: Duration) -> Result<bool, ClientError> {
        let early = call.until.saturating_duration_since(Instant::now());
        std::thread::sleep(early.min(most));
        if early > most {
            return Ok(false);
        }
        let left = call.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientError::TimedOut(call.failed.take()));
        }
        if let Err(error) = self.transport.renew(left.min(most.max(RENEW_TIME))) {
            call.put_off(error);
            return Ok(false);
        }
        self.is_lost = false;
        self.heard = Instant::now();
        self.stats.renewed += 1;
        call.silent = 0;
        Ok(true)
    }

    /// Waits for the reply to the request that was sent last, for at most `most`, or what is left
    /// of its time.
    fn reply(
        &mut self,
        call: &mut Call,
        most: Duration,
    ) -> Result<Option<Result<Told, ClientError>>, TransportError> {
        let (number, sequence) = (self.number, self.sequence - u64::from(call.greets));
        self.is_flooded = false;
        for _ in 0..STRAYS_AT_A_TIME {
            let mut found = None;
            let mut take = |bytes: &[u8]| found = Some(told(bytes, number, sequence));
            let came = self.transport.receive(call.left.min(most), &mut take)?;
            if let Some(Some(told)) = found.transpose()? {
                return Ok(Some(told));
            }
            call.left = call.until.saturating_duration_since(Instant::now());
            if !came {
                return Ok(None);
            }
            // Of a request that was repeated, and answered twice.
            self.stats.stray += 1;
            self.heard = Instant::now();
            if call.left.is_zero() {
                return Ok(None);
            }
        }
        self.is_flooded = true;
        Ok(None)
    }

    /// Takes in what came though no call is under way: a reply to one that has ended, or the end of
    /// the connection; whether more may be there.
    pub(super) fn clear(&mut self) -> bool {
        for _ in 0..STRAYS_AT_A_TIME {
            match self.transport.receive(Duration::ZERO, &mut |_| ()) {
                Ok(true) => self.stats.stray += 1,
                Ok(false) => return false,
                Err(_) => {
                    self.is_lost = true;
                    return false;
                }
            }
        }
        true
    }
}

/// What a reply says, if it is one to this request.
fn told(
    bytes: &[u8],
    number: u64,
    sequence: u64,
) -> Result<Option<Result<Told, ClientError>>, WireError> {
    let (reply, _) = Reply::parse(bytes)?;
    let is_ours = (reply.head.client, reply.head.sequence) == (number, sequence);
    // A server that could not read a request does not know whose it was.
    if !is_ours && (reply.head.client, reply.head.sequence) != (0, 0) {
        return Ok(None);
    }
    Ok(Some(match reply.answer {
        Ok(Answer::Done) => Ok(Told::Done),
        Ok(Answer::Value(value)) => Ok(Told::Value(value.to_vec())),
        Ok(Answer::Sum(sum)) => Ok(Told::Sum(sum)),
        Err(failure) => Err(failure.into()),
    }))
}

/// A number that hardly any other client has.
fn random_number() -> u64 {
    // Each of these is made with keys at random.
    RandomState::new().hash_one(Instant::now()).max(1)
}

fn unexpected() -> ClientError {
    WireError::Unexpected("value").into()
}
