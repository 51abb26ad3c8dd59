//! A client that has the tokens of a tenant: it joins, runs the engine, and joins again.

use super::lane_engine::LaneEngine;
use super::wire::{JoinReply, JoinRequest, WordGrants};
use crate::client::{ChunkClient, Done, OpId};
use crate::error::{ClientError, ErrorKind};
use crate::output::Output;
use crate::request::StorageRequest;
use crate::wire::{ErrorReply, Method};
use std::time::Duration;
use towpath_qos::{Engine, Rules};
use towpath_transport::{
    Device, Endpoint, Event, Grant, GrantId, LANE_OPS_POSTED, LANE_READS_MAX, LinkId, Nanos, Place,
    Region, Time,
};

/// How long after a refusal it is tried again, where the server does not say: another client may
/// have left.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One link's part in a tenant whose engine it runs, for one-sided I/O.
///
/// In each turn of the endpoint: [`on_event`](Self::on_event) for each event before the
/// [`ChunkClient`] gets it, [`on_done`](Self::on_done) for each operation of the client that has
/// ended, and [`drive`](Self::drive) last. While [`engine_mut`](Self::engine_mut) gives an engine,
/// ask it for leave before each I/O.
#[derive(Debug)]
pub struct Tenancy {
    tenant: String,
    link: LinkId,
    depth: u32,
    state: State,
    /// Grants of eight bytes that the server has told of, and that nothing has been made of.
    words: Vec<GrantId>,
    last_refusal: Option<ErrorKind>,
    engines: u64,
}

#[derive(Debug)]
enum State {
    /// To be tried at that time.
    Out(Time),
    Asked(OpId),
    /// The server has said yes, and its grants are on the way; until when they are waited for.
    Admitted(JoinReply, WordGrants, Time),
    In(Box<LaneEngine>, WordGrants),
}

/// Grants that are kept until the reply names them: two, and what is left of joins before.
const WORDS_KEPT: usize = 8;

impl Tenancy {
    /// For a tenant's client with up to `depth` I/Os under way, [`LANE_OPS_POSTED`] at most, which
    /// is to join over `link`. Beyond that the engine gives no leave.
    #[must_use]
    pub fn new(tenant: impl Into<String>, link: LinkId, depth: u32) -> Self {
        Self {
            tenant: tenant.into(),
            link,
            depth: depth.min(LANE_OPS_POSTED as u32),
            state: State::Out(Time::ZERO),
            words: Vec::new(),
            last_refusal: None,
            engines: 0,
        }
    }

    /// The engine, once the server has admitted the client and granted its words.
    #[must_use]
    pub fn engine(&self) -> Option<&LaneEngine> {
        if let State::In(engine, _) = &self.state { Some(engine) } else { None }
    }

    /// The engine, to ask it for leave and to tell it what is done.
    pub fn engine_mut(&mut self) -> Option<&mut LaneEngine> {
        if let State::In(engine, _) = &mut self.state { Some(engine) } else { None }
    }

    /// How many engines it has had: a ticket of one before is not to be given to the next.
    #[must_use]
    pub fn engines(&self) -> u64 {
        self.engines
    }

    /// Why it was refused last, while it is not in.
    #[must_use]
    pub fn last_refusal(&self) -> Option<&ErrorKind> {
        self.last_refusal.as_ref().filter(|_| self.engine().is_none())
    }

    /// Takes an event in; gives back what is not the engine's own.
    pub fn on_event(&mut self, now: Time, event: Event) -> Option<Event> {
        match event {
            Event::OpDone { op, outcome, word, .. } => {
                let is_own = self
                    .engine_mut()
                    .is_some_and(|engine| engine.on_op_done(now, op, outcome, word));
                if is_own {
                    return None;
                }
            }
            Event::Granted { link, grant: Grant { id, byte_len: 8, .. } } if link == self.link => {
                if self.words.len() == WORDS_KEPT {
                    self.words.remove(0);
                }
                self.words.push(id);
                self.begin();
            }
            Event::Revoked { link, grant } if link == self.link => {
                self.words.retain(|&word| word != grant);
                if let State::In(_, words) | State::Admitted(_, words, _) = &self.state
                    && [words.pool, words.report].contains(&grant.0)
                {
                    self.state = State::Out(now);
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// Takes in how an operation ended; gives back what is not this tenancy's.
    pub fn on_done(&mut self, now: Time, done: Done) -> Option<Done> {
        match self.state {
            State::Asked(op) if op == done.op => {}
            _ => return Some(done),
        }
        self.state = match done.result {
            Ok(Output::Joined(reply @ JoinReply { words: Some(words), .. })) => {
                State::Admitted(reply, words, now + AGAIN_AFTER.into())
            }
            Ok(_) => self.refused(now, ErrorKind::WrongReply),
            Err(ClientError { kind, .. }) => self.refused(now, kind),
        };
        self.begin();
        None
    }

    fn refused(&mut self, now: Time, kind: ErrorKind) -> State {
        let wait = match &kind {
            ErrorKind::Refused(ErrorReply::TenantBarred { wait_us }) => {
                Nanos(wait_us.saturating_mul(1000)).min(AGAIN_AFTER.into())
            }
            _ => AGAIN_AFTER.into(),
        };
        self.last_refusal = Some(kind);
        State::Out(now + wait)
    }

    /// Makes the engine when its words are granted: control chunks and replies may overtake each
    /// other.
    fn begin(&mut self) {
        let State::Admitted(reply, words, _) = &self.state else { return };
        let (reply, words) = (*reply, *words);
        let is_granted = |number| self.words.contains(&GrantId(number));
        if !is_granted(words.pool) || !is_granted(words.report) {
            return;
        }
        let link = self.link;
        let place = |number| Place { link, grant: GrantId(number), offset: 0 };
        let engine = Engine::new(Rules::OURS).depth(self.depth).at_server(LANE_READS_MAX);
        let engine = engine.tick(Nanos(reply.tick_ns));
        let engine = LaneEngine::new(engine, place(words.pool), place(words.report));
        self.words.clear();
        self.engines += 1;
        self.state = State::In(Box::new(engine), words);
    }

    /// Takes in what the server has pushed, does what the engine wants done, and joins where it is
    /// time.
    ///
    /// # Errors
    /// [`ClientError`]: it could not even be asked for. It is tried again.
    pub fn drive<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        client: &mut ChunkClient,
    ) -> Result<(), ClientError> {
        let now = endpoint.now();
        match &mut self.state {
            State::Out(at) if *at <= now => {
                *at = now + AGAIN_AFTER.into();
                let join = JoinRequest { tenant: self.tenant.clone(), runs_engine: true };
                let op = client.start_request(endpoint, &StorageRequest::Join(join))?;
                self.state = State::Asked(op);
            }
            State::In(engine, _) => {
                while let Some(push) = client.next_push() {
                    if push.method == Method::Join as u16 {
                        // What is malformed is counted there.
                        let _ = engine.on_message(now, &push.body);
                    }
                }
                // The revocation, or the end of the link, follows as an event.
                let _ = engine.drive(endpoint);
            }
            // They were revoked before they were named.
            State::Admitted(.., until) if *until <= now => self.state = State::Out(now),
            State::Out(_) | State::Asked(_) | State::Admitted(..) => {}
        }
        Ok(())
    }

    /// When [`drive`](Self::drive) has something to do again, unless something comes in before.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        match &self.state {
            State::Out(at) => *at,
            State::Asked(_) => Time::NEVER,
            State::Admitted(.., until) => *until,
            State::In(engine, _) => engine.next_timeout(),
        }
    }
}
