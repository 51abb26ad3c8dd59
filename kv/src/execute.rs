//! What is done for a request.

use crate::limits::{CLIENTS_PER_CONNECTION_MAX, LISTING_BYTES_MAX, STORE_BYTES_MIN};
use crate::once::{Outcome, Session, Sessions, lock};
use crate::store::{IncrError, Put, Refused, Store};
use crate::wire::{Answer, Ask, Failure, Listing, Reply, ReplyHead, Request};
use std::sync::Arc;
use towpath_base::{Nanos, Time};

/// The option of SETOPT: how many bytes the store may have, as a decimal number.
pub const OPTION_STORE_BYTES: &[u8] = b"store-bytes";

/// A store and its clients, shared by all connections.
#[derive(Clone, Debug)]
pub struct Service {
    store: Arc<dyn Store>,
    sessions: Arc<Sessions>,
}

/// What a connection knows of its client between requests.
#[derive(Debug, Default)]
pub struct Caller {
    /// Whose changes came last.
    client: Option<(u64, Session)>,
    /// Clients that this connection made known.
    met: usize,
}

impl Caller {
    /// Whether it remembers anything.
    pub(crate) fn is_known(&self) -> bool {
        self.client.is_some()
    }

    /// Remembers as well what was remembered beside it.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.met += other.met;
        self.client = other.client.or(self.client.take());
    }
}

impl Service {
    /// Serves this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, sessions: Arc::default() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The clients.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Carries a request out, unless it was before, and appends the reply.
    pub fn answer(&self, request: &Request<'_>, caller: &mut Caller, now: Time, out: &mut Vec<u8>) {
        // No transaction runs meanwhile.
        let _pass = self.store.gate().enter();
        let head = ReplyHead::from(request);
        let fail = |failure| Reply { head, answer: Err(failure) };
        match request.ask {
            Ask::Get { key } => {
                let mut answer = |value: &[u8]| {
                    Reply { head, answer: Ok(Answer::Value(value)) }.emit(out);
                };
                if !self.store.get(key, now, &mut answer) {
                    fail(Failure::NoKey).emit(out);
                }
            }
            Ask::Dump => {
                Reply { head, answer: Ok(Answer::Value(&self.listing(now))) }.emit(out);
            }
            Ask::Ping => {
                let answer = self.meet(request.client, caller, now).map(|()| Answer::Done);
                Reply { head, answer }.emit(out);
            }
            Ask::Exit => Reply { head, answer: Ok(Answer::Done) }.emit(out),
            _ => {
                let answer = match self.change_once(request, caller, now) {
                    Ok(Outcome::Done) => Ok(Answer::Done),
                    Ok(Outcome::Sum(sum)) => Ok(Answer::Sum(sum)),
                    Ok(Outcome::Failed(failure)) | Err(failure) => Err(failure),
                };
                Reply { head, answer }.emit(out);
            }
        }
    }

    /// Makes a client known. A connection does so for few, so that none has all others forgotten.
    fn meet(&self, client: u64, caller: &mut Caller, now: Time) -> Result<(), Failure> {
        let is_it = caller.client.as_ref().is_some_and(|(known, _)| *known == client);
        if client == 0 || is_it {
            return Ok(());
        }
        let session = match self.sessions.find(client) {
            Some(session) => session,
            None if caller.met >= CLIENTS_PER_CONNECTION_MAX => {
                return Err(Failure::TooManyClients);
            }
            None => {
                caller.met += 1;
                self.sessions.meet(client, now).ok_or(Failure::TooManyClients)?
            }
        };
        caller.client = Some((client, session));
        Ok(())
    }

    fn change_once(
        &self,
        request: &Request<'_>,
        caller: &mut Caller,
        now: Time,
    ) -> Result<Outcome, Failure> {
        let Request { client, sequence, ask } = *request;
        if client == 0 {
            return Ok(self.change(&ask, now));
        }
        if caller.client.as_ref().is_none_or(|(known, _)| *known != client) {
            // It was forgotten, or another server knew it: nobody knows what of it was made.
            let session = self.sessions.find(client).ok_or(Failure::Stale)?;
            caller.client = Some((client, session));
        }
        let Some((_, session)) = &caller.client else { return Err(Failure::Stale) };
        // The lock is of this client: it is waited for only where a repetition overtakes.
        let (number, mut is_made) = ((sequence, ask.method()), false);
        let outcome = lock(session).once(number, now, || {
            is_made = true;
            self.change(&ask, now)
        });
        if !is_made {
            self.sessions.note_repeated();
        }
        outcome.ok_or(Failure::Stale)
    }

    fn change(&self, ask: &Ask<'_>, now: Time) -> Outcome {
        let done = match *ask {
            Ask::Set { key, value, when, expire_ms } => {
                let expires = match expire_ms {
                    0 => Time::NEVER,
                    ms => now + Nanos::from_millis(ms.into()),
                };
                match self.store.set(key, value, Put { when, expires }, now) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Failure::Condition),
                    Err(refused) => Err(failure_of(refused)),
                }
            }
            Ask::Del { key } => self.store.del(key, now).then_some(()).ok_or(Failure::NoKey),
            Ask::Incr { key, by } => match self.store.incr(key, by, now) {
                Ok(sum) => return Outcome::Sum(sum),
                Err(IncrError::NotANumber | IncrError::Overflow) => Err(Failure::NotANumber),
                Err(IncrError::Refused(refused)) => Err(failure_of(refused)),
            },
            Ask::SetOpt { name, value } => self.set_option(name, value),
            Ask::Reset => {
                self.store.clear();
                Ok(())
            }
            Ask::Get { .. } | Ask::Ping | Ask::Dump | Ask::Exit => Ok(()),
        };
        done.map_or_else(Outcome::Failed, |()| Outcome::Done)
    }

    fn set_option(&self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        let bytes = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        match bytes {
            Some(bytes @ STORE_BYTES_MIN..) if name == OPTION_STORE_BYTES => {
                self.store.set_bytes_max(bytes);
                Ok(())
            }
            _ => Err(Failure::BadOption),
        }
    }

    fn listing(&self, now: Time) -> Vec<u8> {
        let (figures, mut listing) = (self.store.figures(), Vec::new());
        Listing::begin(figures.keys, figures.bytes, &mut listing);
        self.store.each(now, &mut |key, value| {
            Listing::push(key, value, LISTING_BYTES_MAX, &mut listing)
        });
        listing
    }
}

fn failure_of(refused: Refused) -> Failure {
    match refused {
        Refused::Full => Failure::Full,
        // The parser refuses these before.
        Refused::KeyTooLong | Refused::ValueTooLong => Failure::Malformed,
    }
}
