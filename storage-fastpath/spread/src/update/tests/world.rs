//! Servers, messages and time of a history.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use towpath_base::Prng;
use towpath_fastpath::cap::Denied;
use towpath_fastpath::{ChunkId, ClientError, ErrorKind, ErrorReply, Fate, Method};

use super::super::net::{Answer, Asked, Net, Op};
use super::super::record::{HEAD_BYTES, Record};
use crate::error::PartError;

/// How long whoever asks waits for an answer, in microseconds.
const ANSWER_MAX: u64 = 40_000;

/// A chunk as a store keeps it.
#[derive(Clone, Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    version: u64,
    /// Of its last change.
    stamp: u64,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    chunks: HashMap<ChunkId, Chunk>,
    /// It answers nobody before that.
    pub(super) away_until: u64,
    /// What comes to it takes so much longer.
    pub(super) slow: u64,
}

type Result1 = Result<Answer, PartError>;
type Slot = Rc<RefCell<Option<Result1>>>;

/// Whether a server has done what it was asked.
type Done = Rc<Cell<bool>>;

enum Event {
    /// A request comes to a server.
    Comes { part: usize, op: Op, slot: Slot, done: Done, asker: usize, is_sure: bool },
    /// Its answer is back.
    Answered { slot: Slot, answer: Result1, asker: usize },
    /// Its time is over.
    Late { slot: Slot, is_change: bool, done: Done, asker: usize },
    /// Somebody goes on.
    Wakes { asker: usize },
}

pub(super) struct World {
    pub(super) now: u64,
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
    pub(super) prng: Prng,
    pub(super) servers: Vec<Server>,
    /// Nothing is lost or late any more.
    pub(super) is_calm: bool,
    /// Every intent that a server has taken, by generation and number.
    pub(super) intents: BTreeMap<(u64, u64), (Record, Vec<u8>)>,
    /// The stamps of all writes that were made.
    pub(super) made: HashSet<u64>,
    /// What was drawn for each who asks since it was last taken from here.
    pub(super) drawn: HashMap<usize, Vec<u64>>,
    /// Changes of which it was said that nothing was changed.
    pub(super) denied: HashSet<u64>,
    /// The next intent for that server is taken, and its writer hears this in place of the answer.
    pub(super) instead: Option<(usize, ErrorKind)>,
    /// Parts that somebody has written to without making it known.
    pub(super) spoiled: HashSet<usize>,
    /// Who asked which part how it is, and has not heard.
    pub(super) unheard: HashSet<(usize, usize)>,
    pub(super) wrong: Option<String>,
}

pub(super) type Shared = Rc<RefCell<World>>;

fn refused(reply: ErrorReply) -> PartError {
    error(ErrorKind::Refused(reply))
}

fn error(kind: ErrorKind) -> PartError {
    PartError::Client(ClientError { method: Method::Write, chunk: None, offset: None, kind })
}

impl World {
    pub(super) fn new(seed: u64, servers: usize) -> Self {
        Self {
            now: 1,
            events: BTreeMap::new(),
            next: 0,
            prng: Prng::new(seed),
            servers: (0..servers).map(|_| Server::default()).collect(),
            is_calm: false,
            intents: BTreeMap::new(),
            made: HashSet::new(),
            drawn: HashMap::new(),
            denied: HashSet::new(),
            instead: None,
            spoiled: HashSet::new(),
            unheard: HashSet::new(),
            wrong: None,
        }
    }

    fn add(&mut self, at: u64, event: Event) {
        self.next += 1;
        self.events.insert((at.max(self.now + 1), self.next), event);
    }

    /// Puts a chunk on a server; gives its version.
    pub(super) fn store(&mut self, part: usize, chunk: ChunkId, bytes: Vec<u8>) -> u64 {
        let version = self.prng.between(1, 1 << 40);
        self.servers[part].chunks.insert(chunk, Chunk { bytes, version, stamp: 0 });
        version
    }

    /// Somebody writes to a part without making it known.
    pub(super) fn spoil(&mut self, part: usize, chunk: ChunkId) {
        self.spoiled.insert(part);
        if let Some(of) = self.servers[part].chunks.get_mut(&chunk) {
            (of.version, of.stamp) = (of.version + 1, 0);
            self.prng.fill(&mut of.bytes);
        }
    }

    pub(super) fn lives(&self, part: usize) -> bool {
        self.servers[part].away_until <= self.now
    }

    /// Lets the next thing happen before `end`; gives who may go on.
    pub(super) fn step(&mut self, end: u64) -> Option<usize> {
        let next = self.events.first_key_value().map(|(next, _)| *next);
        let Some((at, number)) = next.filter(|(at, _)| *at <= end) else {
            self.now = end;
            return None;
        };
        self.now = at;
        match self.events.remove(&(at, number))? {
            Event::Wakes { asker } => Some(asker),
            Event::Answered { slot, answer, asker } => {
                slot.borrow_mut().get_or_insert(answer);
                Some(asker)
            }
            Event::Late { slot, is_change, done, asker } => {
                // A network may know that it was done, and not what the answer was.
                let fate = match (is_change, done.get() && self.prng.chance(0.5)) {
                    (false, _) => Fate::DidNotHappen,
                    (true, true) => Fate::Happened,
                    (true, false) => Fate::Unknown,
                };
                let kind = match self.prng.chance(0.5) {
                    true => ErrorKind::TimedOut { fate },
                    false => ErrorKind::PeerGone { fate },
                };
                slot.borrow_mut().get_or_insert(Err(error(kind)));
                Some(asker)
            }
            Event::Comes { part, op, slot, done, asker, is_sure } => {
                if self.lives(part) {
                    let answer = self.serve(part, op);
                    // What comes twice and was done is no refusal to whoever asked once.
                    let is_stale = done.get() && answer.is_err();
                    done.set(done.get() || answer.is_ok());
                    let is_lost = is_stale || !self.is_calm && !is_sure && self.prng.chance(0.02);
                    if !is_lost {
                        let at = self.now + self.delay(part);
                        self.add(at, Event::Answered { slot, answer, asker });
                    }
                }
                Some(asker)
            }
        }
    }

    fn delay(&mut self, part: usize) -> u64 {
        let slow = if self.is_calm { 0 } else { self.servers[part].slow };
        let is_late = !self.is_calm && self.prng.chance(0.03);
        let late = if is_late { self.prng.below(60_000) } else { 0 };
        self.prng.between(50, 1_000) + slow + late
    }

    /// What a store does (docs/storage-protocol.md section 7).
    fn serve(&mut self, part: usize, op: Op) -> Result1 {
        let rise = self.prng.between(1, 9);
        let chunks = &mut self.servers[part].chunks;
        let absent = |chunk| refused(ErrorReply::NoSuchChunk { chunk });
        match op {
            Op::Read { chunk, offset, bytes } => {
                let of = chunks.get(&chunk).ok_or(absent(chunk))?;
                let range = offset as usize..offset as usize + bytes;
                let length = of.bytes.len() as u64;
                let past = refused(ErrorReply::PastEnd { chunk, length });
                let bytes = of.bytes.get(range).ok_or(past)?.to_vec();
                Ok(Answer { version: of.version, bytes, len: 0 })
            }
            Op::Stat { chunk } => {
                let of = chunks.get(&chunk).ok_or(absent(chunk))?;
                let len = of.bytes.len() as u64;
                Ok(Answer { version: of.version, bytes: Vec::new(), len })
            }
            Op::Create { chunk } => {
                if chunks.contains_key(&chunk) {
                    return Err(refused(ErrorReply::ChunkExists { chunk }));
                }
                let version = rise << 20;
                chunks.insert(chunk, Chunk { version, ..Chunk::default() });
                Ok(Answer { version, ..Answer::default() })
            }
            Op::Write { chunk, offset, bytes, version, stamp } => {
                let of = chunks.get_mut(&chunk).ok_or(absent(chunk))?;
                if of.stamp != stamp {
                    if of.version != version {
                        let version = of.version;
                        return Err(refused(ErrorReply::OtherVersion { version }));
                    }
                    let end = offset as usize + bytes.len();
                    of.bytes.resize(of.bytes.len().max(end), 0);
                    of.bytes[offset as usize..end].copy_from_slice(&bytes);
                    of.version += rise;
                    of.stamp = stamp;
                }
                let answer = Answer { version: of.version, ..Answer::default() };
                let is_part = !bytes.starts_with(b"towpupd1");
                is_part.then(|| self.made.insert(stamp));
                self.note(&bytes);
                Ok(answer)
            }
        }
    }

    /// Remembers the intents that servers take: of one number there is one.
    fn note(&mut self, written: &[u8]) {
        let parts = self.servers.len();
        let Some(record) = Record::parse(written, parts) else { return };
        let body = written[HEAD_BYTES..].to_vec();
        let key = (record.generation, record.number);
        if record.body_bytes() == 0 {
            return;
        }
        if let Some((other, _)) = self.intents.insert(key, (record.clone(), body))
            && other != record
        {
            self.wrong = Some(format!("two changes have the number {key:?}"));
        }
    }
}

/// The servers as one of those who ask them sees them.
pub(super) struct Way {
    pub(super) world: Shared,
    pub(super) asker: usize,
    /// Whoever does not answer is away: nothing is lost, and answers are waited for.
    pub(super) is_sure: bool,
    /// Servers refuse whatever changes something.
    pub(super) may_only_read: bool,
}

impl Net for Way {
    fn ask(&self, part: usize, op: Op) -> Asked<'_> {
        let slot = Slot::default();
        let world = &mut *self.world.borrow_mut();
        let (asker, is_sure) = (self.asker, self.is_sure);
        let is_change = matches!(op, Op::Create { .. } | Op::Write { .. });
        if is_change && self.may_only_read {
            let why = Denied::Missing;
            return Box::pin(async move { Err(refused(ErrorReply::Denied { why })) });
        }
        let is_stat = matches!(op, Op::Stat { .. });
        is_stat.then(|| world.unheard.insert((asker, part)));
        let done = Done::default();
        let is_intent = |op: &Op| match op {
            Op::Write { bytes, .. } => Record::parse(bytes, world.servers.len())
                .is_some_and(|record| record.body_bytes() > 0),
            _ => false,
        };
        let mut heard = Rc::clone(&slot);
        if world.instead.is_some_and(|(of, _)| of == part)
            && is_intent(&op)
            && let Some((_, kind)) = world.instead.take()
        {
            heard = Slot::default();
            let (at, answer) = (world.now + 10_000, Err(error(kind)));
            world.add(at, Event::Answered { slot: Rc::clone(&slot), answer, asker });
        }
        // It may come twice, or not at all.
        let times = match world.prng.below(40) {
            _ if world.is_calm || is_sure => 1,
            0 => 0,
            1 | 2 => 2,
            _ => 1,
        };
        for _ in 0..times {
            let at = world.now + world.delay(part);
            let (op, slot, done) = (op.clone(), Rc::clone(&heard), Rc::clone(&done));
            world.add(at, Event::Comes { part, op, slot, done, asker, is_sure });
        }
        let patience = if is_sure { 10 } else { 1 };
        let (at, slot_late) = (world.now + ANSWER_MAX * patience, Rc::clone(&slot));
        world.add(at, Event::Late { slot: slot_late, is_change, done, asker });
        Box::pin(poll_fn(move |_| match slot.borrow_mut().take() {
            Some(answer) => {
                if is_stat && answer.is_ok() {
                    self.world.borrow_mut().unheard.remove(&(asker, part));
                }
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }))
    }

    fn pause(&self, tries: u32) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let until = {
            let world = &mut *self.world.borrow_mut();
            let until = world.now + 1 + world.prng.below((500 << tries.min(6)) + 1);
            world.add(until, Event::Wakes { asker: self.asker });
            until
        };
        Box::pin(poll_fn(move |_| match self.world.borrow().now >= until {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn draw(&self) -> u64 {
        let world = &mut *self.world.borrow_mut();
        let drawn = world.prng.next_u64();
        world.drawn.entry(self.asker).or_default().push(Record::id_of(drawn));
        drawn
    }
}
