//! Those who write and read in a history.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use towpath_base::{Nanos, Prng, Time};
use towpath_ec::{Code, Shape};
use towpath_fastpath::{ErrorKind, NewChunk, Route, RouteKind, SLICE_BYTES, StorageRequest, Terms};
use towpath_rpc::Fate;

use super::client::{Client, Ended, Key};
use super::log::{Log, Register, bytes_of};
use crate::store::ChunkId;

/// What is written along rings and trees.
pub(super) const COPIES: ChunkId = ChunkId(0xc0);
/// Slices of it: enough for writes that are staged.
pub(super) const COPIES_SLICES: u64 = 48;
/// Those that most writes are about.
const HOT_SLICES: u64 = 6;

/// The parts of the stripes.
pub(super) const PARTS: ChunkId = ChunkId(0xec);
/// Where the units of each stripe begin in their parts, and how long they are, in slices. The last
/// one is so long that it comes in pieces.
pub(super) const STRIPES: [(u64, u64); 5] = [(0, 1), (1, 2), (3, 1), (4, 3), (7, 34)];
pub(super) const PARTS_SLICES: u64 = 41;

/// How often a unit is sent before its writer gives the stripe up.
const UNIT_TRIES: u32 = 12;

/// What all know of a history.
pub(super) struct Ground {
    /// Servers in the order of the ranks of copies.
    pub(super) places: Vec<SocketAddr>,
    pub(super) kinds: Vec<RouteKind>,
    /// The first servers, whose copies are enough for an answer.
    pub(super) acked: usize,
    /// Data and parity parts, on the first servers in that order.
    pub(super) shape: Option<Shape>,
    /// When each died.
    pub(super) died: Vec<Option<Time>>,
    /// No new work begins after that.
    pub(super) until: Time,
    pub(super) log: Log,
    /// Of each stripe what its last writing was, and whether that is acknowledged.
    pub(super) stripes: Vec<Option<(Vec<u64>, bool)>>,
}

impl Ground {
    /// The servers that somebody takes for alive who has heard of deaths so long ago.
    fn living(&self, heard: Time) -> Vec<usize> {
        let lives = |server: &usize| self.died[*server].is_none_or(|at| at > heard);
        (0..self.places.len()).filter(lives).collect()
    }
}

/// What is under way.
enum Doing {
    Copy {
        value: u64,
    },
    Unit {
        stripe: usize,
        unit: usize,
        writing: u64,
    },
    Read {
        of: ReadOf,
        first: u64,
        begin: u64,
    },
    /// Somebody waits for it.
    Kept,
}

#[derive(Clone, Copy)]
enum ReadOf {
    Copies,
    Part(usize),
}

/// What is to be done at some time.
#[derive(Clone, Copy, Debug)]
enum Act {
    Copy,
    Stripe(usize),
    Unit { stripe: usize, unit: usize, writing: u64 },
    Cancel(Key),
    Read,
}

/// A writing of a stripe.
struct Writing {
    number: u64,
    stamp: u64,
    values: Vec<u64>,
    is_done: Vec<bool>,
    tries: Vec<u32>,
}

/// A client with what it does.
pub(super) struct Actor {
    pub(super) client: Client,
    pub(super) prng: Prng,
    acts: Vec<(Time, Act)>,
    doing: HashMap<Key, Doing>,
    /// Of each stripe that it writes.
    writings: BTreeMap<usize, Writing>,
    next_writing: u64,
    /// How long after a death it knows of it.
    hears_after: Nanos,
    /// What somebody waits for.
    pub(super) kept: Option<Result<Vec<u8>, ErrorKind>>,
}

/// What the keeper asks of a server: to make a chunk, to write to it, to read it.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Create(ChunkId),
    Write(ChunkId, u64, Vec<u8>),
    Read(ChunkId, u64, usize),
}

/// The clock of the log.
pub(super) fn at(now: Time) -> u64 {
    now.0 + 1
}

impl Actor {
    /// Who writes copies, and of so many writers' stripes those with its number.
    pub(super) fn writer(client: Client, seed: u64, now: Time, of: (usize, usize)) -> Self {
        let mut actor = Self::new(client, seed);
        (0..2).for_each(|_| actor.plan(now, 3_000, Act::Copy));
        for stripe in (0..STRIPES.len()).filter(|stripe| stripe % of.1 == of.0) {
            actor.plan(now, 10_000, Act::Stripe(stripe));
        }
        actor
    }

    pub(super) fn reader(client: Client, seed: u64, now: Time) -> Self {
        let mut actor = Self::new(client, seed);
        (0..3).for_each(|_| actor.plan(now, 3_000, Act::Read));
        actor
    }

    /// Who prepares all, and looks at it afterwards.
    pub(super) fn keeper(client: Client, seed: u64) -> Self {
        Self::new(client, seed)
    }

    /// Asks a server, where there is a link to it.
    pub(super) fn ask(&mut self, server: usize, ask: &Ask) -> bool {
        let Some((endpoint, chunks)) = self.client.to(server) else { return false };
        let started = match ask {
            Ask::Create(chunk) => chunks.start_request(
                endpoint,
                &StorageRequest::Create {
                    chunk: *chunk,
                    limit_bytes: None,
                    kind: NewChunk::default(),
                    stamp: 0,
                },
            ),
            Ask::Write(chunk, offset, bytes) => {
                chunks.start_write_copy(endpoint, *chunk, *offset, bytes)
            }
            Ask::Read(chunk, offset, len) => chunks.start_read(endpoint, *chunk, *offset, *len),
        };
        started.is_ok_and(|op| self.doing.insert((server, op), Doing::Kept).is_none())
    }

    fn new(client: Client, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let hears_after = Nanos::from_micros(prng.below(100_000));
        let (acts, doing) = (Vec::new(), HashMap::new());
        let writings = BTreeMap::new();
        let kept = None;
        Self { client, prng, acts, doing, writings, next_writing: 0, hears_after, kept }
    }

    /// Something is done within so many microseconds.
    fn plan(&mut self, now: Time, within_us: u64, act: Act) {
        let span = Nanos::from_micros(1 + self.prng.below(within_us));
        self.acts.push((now + span, act));
    }

    pub(super) fn next_due(&self) -> Time {
        let acts = self.acts.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER);
        acts.min(self.client.next_due())
    }

    /// Does all that can be done now.
    pub(super) fn turn(&mut self, now: Time, ground: &mut Ground) -> Result<(), String> {
        let mut ended = Vec::new();
        loop {
            let mut is_busy = self.client.turn(&mut self.prng, &mut ended);
            for ended in ended.drain(..) {
                self.on_ended(ended, now, ground)?;
            }
            while let Some(due) = self.acts.iter().position(|(at, _)| *at <= now) {
                let (_, act) = self.acts.swap_remove(due);
                is_busy = true;
                self.act(act, now, ground);
            }
            if !is_busy {
                return Ok(());
            }
        }
    }

    fn act(&mut self, act: Act, now: Time, ground: &mut Ground) {
        let is_over = now >= ground.until;
        match act {
            Act::Cancel(key) => {
                if let (true, Some((endpoint, chunks))) =
                    (self.doing.contains_key(&key), self.client.to(key.0))
                {
                    ground.log.tally.cancelled += 1;
                    chunks.cancel(endpoint, key.1);
                }
            }
            _ if is_over => {}
            Act::Copy => {
                self.plan(now, 6_000, Act::Copy);
                if self.doing.len() < 6 {
                    self.write_copies(now, ground);
                }
            }
            Act::Stripe(stripe) => self.write_stripe(stripe, now, ground),
            Act::Unit { stripe, unit, writing } => {
                self.write_unit(stripe, unit, writing, now, ground);
            }
            Act::Read => {
                self.plan(now, 4_000, Act::Read);
                self.read(now, ground);
            }
        }
    }

    fn write_copies(&mut self, now: Time, ground: &mut Ground) {
        let heard = Time(now.0.saturating_sub(self.hears_after.0));
        let living = ground.living(heard);
        // A copy that nobody waited for may lack something: it takes nobody's place.
        let acked = living.iter().filter(|server| **server < ground.acked).count();
        if acked == 0 {
            return;
        }
        let kind = ground.kinds[self.prng.below(ground.kinds.len() as u64) as usize];
        let (first, count) = match self.prng.below(12) {
            0 => (self.prng.below(4), 36 + self.prng.below(COPIES_SLICES - 40)),
            _ => (self.prng.below(HOT_SLICES), 1 + self.prng.below(4)),
        };
        let slices = first..first + count;
        let places: Vec<SocketAddr> = living.iter().map(|server| ground.places[*server]).collect();
        let route = Route::new(kind, &places).expect("a route");
        let route = route.acked_by(acked as u8).expect("of those that live");
        let Some((endpoint, chunks)) = self.client.to(living[0]) else { return };
        let registers = slices.clone().map(|slice| Register::Copies { slice }).collect();
        let value = ground.log.begin(registers, at(now));
        let bytes = bytes_of(value, slices.clone());
        let to = (COPIES, slices.start * SLICE_BYTES as u64);
        let started = chunks.start_forward_copy(endpoint, (&route, Terms::default()), to, &bytes);
        match started {
            Ok(op) => self.begun((living[0], op), Doing::Copy { value }, now),
            Err(_) => ground.log.gone(value),
        }
    }

    fn begun(&mut self, key: Key, doing: Doing, now: Time) {
        self.doing.insert(key, doing);
        if self.prng.chance(0.08) {
            self.plan(now, 3_000, Act::Cancel(key));
        }
    }

    /// Begins another writing of a stripe.
    fn write_stripe(&mut self, stripe: usize, now: Time, ground: &mut Ground) {
        let Some(shape) = ground.shape else { return };
        let (first, count) = STRIPES[stripe];
        let of = |rank| (first..first + count).map(move |slice| Register::Part { rank, slice });
        let values: Vec<u64> =
            (0..shape.k()).map(|rank| ground.log.begin(of(rank).collect(), at(now))).collect();
        let number = self.next_writing;
        self.next_writing += 1;
        let (is_done, tries) = (vec![false; shape.k()], vec![0; shape.k()]);
        let stamp = self.prng.next_u64() | 1;
        ground.stripes[stripe] = Some((values.clone(), false));
        // All at once, or one long after the other.
        let within_us = if self.prng.chance(0.4) { 200 } else { 60_000 };
        self.writings.insert(stripe, Writing { number, stamp, values, is_done, tries });
        for unit in 0..shape.k() {
            self.plan(now, within_us, Act::Unit { stripe, unit, writing: number });
        }
    }

    fn write_unit(
        &mut self,
        stripe: usize,
        unit: usize,
        number: u64,
        now: Time,
        ground: &mut Ground,
    ) {
        let Some(shape) = ground.shape else { return };
        let Some(writing) = self.writings.get_mut(&stripe) else { return };
        if writing.number != number || writing.is_done[unit] {
            return;
        }
        if writing.tries[unit] == UNIT_TRIES {
            // Another writing of it.
            ground.log.tally.stripes_left += 1;
            return self.plan(now, 5_000, Act::Stripe(stripe));
        }
        writing.tries[unit] += 1;
        ground.log.tally.units_again += u64::from(writing.tries[unit] > 1);
        let (first, count) = STRIPES[stripe];
        let bytes = bytes_of(writing.values[unit], first..first + count);
        let parts = &ground.places[..shape.k() + shape.m()];
        let route = Route::stripe(unit as u8, shape.k() as u8, parts).expect("a route");
        let terms = Terms { stamp: writing.stamp, ..Terms::default() };
        let to = (PARTS, first * SLICE_BYTES as u64);
        let started = self.client.to(unit).and_then(|(endpoint, chunks)| {
            chunks.start_forward_copy(endpoint, (&route, terms), to, &bytes).ok()
        });
        match started {
            Some(op) => self.begun((unit, op), Doing::Unit { stripe, unit, writing: number }, now),
            None => self.plan(now, 5_000, Act::Unit { stripe, unit, writing: number }),
        }
    }

    fn read(&mut self, now: Time, ground: &Ground) {
        let of = match ground.shape {
            Some(shape) if self.prng.chance(0.3) => {
                ReadOf::Part(self.prng.below(shape.k() as u64) as usize)
            }
            _ => ReadOf::Copies,
        };
        let (first, count) = (self.prng.below(HOT_SLICES), 1 + self.prng.below(4));
        // Copies are read where the rank is the lowest of those that live.
        let (server, chunk) = match of {
            ReadOf::Copies => {
                let first = ground.living(now).first().copied();
                (first.filter(|server| *server < ground.acked), COPIES)
            }
            ReadOf::Part(rank) => (Some(rank), PARTS),
        };
        let Some(server) = server else { return };
        let Some((endpoint, chunks)) = self.client.to(server) else { return };
        let (offset, len) = (first * SLICE_BYTES as u64, count as usize * SLICE_BYTES);
        if let Ok(op) = chunks.start_read(endpoint, chunk, offset, len) {
            self.doing.insert((server, op), Doing::Read { of, first, begin: at(now) });
        }
    }

    fn on_ended(&mut self, ended: Ended, now: Time, ground: &mut Ground) -> Result<(), String> {
        let Ended { key, result } = ended;
        let Some(doing) = self.doing.remove(&key) else { return Ok(()) };
        match doing {
            Doing::Read { of, first, begin } => {
                let Ok(bytes) = result else { return Ok(()) };
                let register = move |slice| match of {
                    ReadOf::Copies => Register::Copies { slice },
                    ReadOf::Part(rank) => Register::Part { rank, slice },
                };
                ground.log.read(register, first, &bytes, (begin, at(now)))?;
            }
            Doing::Kept => self.kept = Some(result),
            Doing::Copy { value } => {
                let fate = result.map_or_else(ErrorKind::fate, |_| Fate::Happened);
                let tally = &mut ground.log.tally;
                match fate {
                    Fate::Happened => {
                        tally.writes_done += 1;
                        ground.log.done(value, at(now));
                    }
                    Fate::DidNotHappen => {
                        tally.writes_refused += 1;
                        ground.log.gone(value);
                    }
                    Fate::Unknown => tally.writes_unknown += 1,
                }
            }
            Doing::Unit { stripe, unit, writing } => {
                let is_done = result.map_or_else(ErrorKind::fate, |_| Fate::Happened);
                self.on_unit((stripe, unit, writing), is_done == Fate::Happened, now, ground);
            }
        }
        Ok(())
    }

    fn on_unit(
        &mut self,
        (stripe, unit, number): (usize, usize, u64),
        is_done: bool,
        now: Time,
        ground: &mut Ground,
    ) {
        let Some(writing) = self.writings.get_mut(&stripe) else { return };
        if writing.number != number {
            return;
        }
        if !is_done {
            return self.plan(now, 8_000, Act::Unit { stripe, unit, writing: number });
        }
        ground.log.done(writing.values[unit], at(now));
        writing.is_done[unit] = true;
        if writing.is_done.iter().all(|done| *done) {
            ground.log.tally.stripes_done += 1;
            if let Some((_, is_acknowledged)) = &mut ground.stripes[stripe] {
                *is_acknowledged = true;
            }
            self.plan(now, 20_000, Act::Stripe(stripe));
        }
    }
}

/// The parity parts of a stripe of these values.
pub(super) fn parity_of(shape: Shape, stripe: usize, values: &[u64]) -> Vec<Vec<u8>> {
    let (first, count) = STRIPES[stripe];
    let data: Vec<Vec<u8>> = values.iter().map(|v| bytes_of(*v, first..first + count)).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0; count as usize * SLICE_BYTES]; shape.m()];
    let mut into: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    Code::new(shape).encode(&data, &mut into).expect("equal lengths");
    parity
}
