//! The map in memory and in virtual time: delays, refusals, lost answers, broken watches, lost
//! leases and restarts, all drawn from one seed.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::mem;
use std::rc::Rc;

use towpath_base::{Nanos, Prng, Time};

use super::engine::Engine;
use super::rows::MemoryRows;
use super::watches::{ClientId, Watches};
use super::{LeaseId, Meta, MetaError, Op, Outcome, Report, Revision, Tag};

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug)]
pub struct SimFaults {
    /// The least and the most that a request takes to the store, and an answer from it.
    pub delay: (Nanos, Nanos),
    /// Share of operations that are refused, of which nothing is done.
    pub refused: f64,
    /// Share of operations of which nobody learns whether they were done.
    pub unknown: f64,
    /// Share of changes that a watch is told twice.
    pub repeated: f64,
    /// Share of changes at which a watch ends.
    pub broken: f64,
    /// Share of operations at which the store forgets a lease.
    pub lost_leases: f64,
    /// Revisions whose changes are kept.
    pub kept_max: u64,
}

impl SimFaults {
    /// Nothing goes wrong, and nothing takes time.
    pub const NONE: Self = Self {
        delay: (Nanos::ZERO, Nanos::ZERO),
        refused: 0.0,
        unknown: 0.0,
        repeated: 0.0,
        broken: 0.0,
        lost_leases: 0.0,
        kept_max: 1_000,
    };

    /// Much goes wrong, in milliseconds.
    pub const MANY: Self = Self {
        delay: (Nanos::from_micros(200), Nanos::from_millis(20)),
        refused: 0.03,
        unknown: 0.05,
        repeated: 0.1,
        broken: 0.02,
        lost_leases: 0.005,
        kept_max: 50,
    };
}

/// A store in virtual time, shared by its clients.
#[derive(Clone, Debug)]
pub struct SimStore(Rc<RefCell<World>>);

/// A client of a [`SimStore`].
#[derive(Debug)]
pub struct SimClient {
    id: ClientId,
    world: Rc<RefCell<World>>,
}

#[derive(Debug)]
struct World {
    faults: SimFaults,
    prng: Prng,
    now: Time,
    rows: MemoryRows,
    engine: Engine,
    watches: Watches,
    is_down: bool,
    /// What happens later, in the order of time.
    later: BinaryHeap<Reverse<(Time, u64)>>,
    happens: BTreeMap<u64, Happens>,
    happened: u64,
    clients: Vec<VecDeque<Report>>,
    leases: BTreeSet<LeaseId>,
    /// When what a watch was told last arrives: nothing that it is told later arrives sooner.
    told_at: BTreeMap<(ClientId, Tag), Time>,
}

#[derive(Debug)]
enum Happens {
    Arrives(ClientId, Tag, Op),
    IsTold(ClientId, Report),
}

impl SimStore {
    /// An empty store.
    pub fn new(seed: u64, faults: SimFaults) -> Self {
        let mut rows = MemoryRows::default();
        let engine = Engine::open(&mut rows, faults.kept_max, Time::ZERO);
        Self(Rc::new(RefCell::new(World {
            faults,
            prng: Prng::new(seed),
            now: Time::ZERO,
            rows,
            engine: engine.expect("no rows are not damaged"),
            watches: Watches::default(),
            is_down: false,
            later: BinaryHeap::new(),
            happens: BTreeMap::new(),
            happened: 0,
            clients: Vec::new(),
            leases: BTreeSet::new(),
            told_at: BTreeMap::new(),
        })))
    }

    /// One more client.
    pub fn client(&self) -> SimClient {
        let mut world = self.0.borrow_mut();
        world.clients.push(VecDeque::new());
        SimClient { id: world.clients.len() as ClientId - 1, world: Rc::clone(&self.0) }
    }

    /// The store stops: it refuses what arrives, and its watches end. No lease ends meanwhile.
    pub fn stop(&self, now: Time) {
        let mut world = self.0.borrow_mut();
        world.advance(now);
        world.is_down = true;
        let why = MetaError::Unavailable("it has stopped".into());
        for (client, report) in world.watches.end_all(&why) {
            world.answer(client, report);
        }
    }

    /// The store starts again with all that it had, and gives each lease its whole time again.
    pub fn start(&self, now: Time) {
        let mut guard = self.0.borrow_mut();
        guard.advance(now);
        let world = &mut *guard;
        if mem::take(&mut world.is_down) {
            let engine = Engine::open(&mut world.rows, world.faults.kept_max, now);
            world.engine = engine.expect("its rows are as it left them");
        }
    }

    /// The last revision.
    pub fn revision(&self) -> Revision {
        self.0.borrow().engine.revision()
    }
}

impl Meta for SimClient {
    fn submit(&mut self, tag: Tag, op: Op, now: Time) {
        let mut world = self.world.borrow_mut();
        world.advance(now);
        let at = world.now + world.draw_delay();
        world.happens_at(at, Happens::Arrives(self.id, tag, op));
        world.advance(now);
    }

    fn poll(&mut self, now: Time) -> Option<Report> {
        let mut world = self.world.borrow_mut();
        world.advance(now);
        world.clients[self.id as usize].pop_front()
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.world.borrow_mut().watches.forget(self.id);
    }
}

impl World {
    fn draw_delay(&mut self) -> Nanos {
        let (least, most) = self.faults.delay;
        Nanos(self.prng.between(least.0, most.0))
    }

    fn happens_at(&mut self, at: Time, what: Happens) {
        self.happened += 1;
        self.later.push(Reverse((at, self.happened)));
        self.happens.insert(self.happened, what);
    }

    /// All that happens up to a time, in order.
    fn advance(&mut self, now: Time) {
        loop {
            let lease = if self.is_down { Time::NEVER } else { self.engine.due() };
            let next = self.later.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
            let at = next.min(lease);
            if at > now || at == Time::NEVER {
                break;
            }
            self.now = self.now.max(at);
            if lease <= next {
                self.engine.expire(&mut self.rows, self.now).expect("memory does not fail");
                self.tell_watches();
                continue;
            }
            let Some(Reverse((_, number))) = self.later.pop() else { break };
            match self.happens.remove(&number) {
                Some(Happens::Arrives(client, tag, op)) => self.arrives(client, tag, op),
                Some(Happens::IsTold(client, report)) => {
                    self.clients[client as usize].push_back(report);
                }
                None => {}
            }
        }
        self.now = self.now.max(now);
    }

    fn arrives(&mut self, client: ClientId, tag: Tag, op: Op) {
        if self.is_down || self.prng.chance(self.faults.refused) {
            let why = MetaError::Unavailable("as drawn".into());
            return self.answer(client, Report::Done { tag, result: Err(why) });
        }
        if self.prng.chance(self.faults.lost_leases) {
            self.lose_a_lease();
        }
        let result = match op {
            Op::Watch { prefix, after } => {
                self.watches.begin(client, tag, prefix, after);
                return self.tell_watches();
            }
            Op::Unwatch(watch) => {
                if let Some(report) = self.watches.end(client, watch) {
                    self.answer(client, report);
                }
                Ok(Outcome::Unwatched)
            }
            op => self.engine.run(&mut self.rows, op, self.now),
        };
        self.engine.count(&mut self.rows).expect("memory does not fail");
        if let Ok(Outcome::Granted(lease)) = result {
            self.leases.insert(lease);
        }
        let is_unknown = result.is_ok() && self.prng.chance(self.faults.unknown);
        let lost = || Err(MetaError::Unknown("as drawn".into()));
        let result = if is_unknown { lost() } else { result };
        self.answer(client, Report::Done { tag, result });
        self.tell_watches();
    }

    fn lose_a_lease(&mut self) {
        let number = self.prng.below(self.leases.len().max(1) as u64) as usize;
        let Some(lease) = self.leases.iter().nth(number).copied() else { return };
        self.leases.remove(&lease);
        // It may have ended by itself.
        let _ = self.engine.run(&mut self.rows, Op::Revoke(lease), self.now);
    }

    fn answer(&mut self, client: ClientId, report: Report) {
        let (Report::Done { tag, .. } | Report::Changed { tag, .. }) = &report;
        let told = self.told_at.get(&(client, *tag)).copied().unwrap_or_default();
        let at = (self.now + self.draw_delay()).max(told);
        match &report {
            Report::Changed { .. } => self.told_at.insert((client, *tag), at),
            Report::Done { .. } => self.told_at.remove(&(client, *tag)),
        };
        self.happens_at(at, Happens::IsTold(client, report));
    }

    fn tell_watches(&mut self) {
        loop {
            let mut reports = Vec::new();
            let say = |client, report| reports.push((client, report));
            let is_behind = self.watches.tell(&self.engine, &self.rows, |_| true, say);
            for (client, report) in reports {
                self.tell(client, report);
            }
            if !is_behind {
                break;
            }
        }
    }

    /// Tells a watch something: once, twice, or for the last time.
    fn tell(&mut self, client: ClientId, report: Report) {
        let Report::Changed { tag, .. } = report else { return self.answer(client, report) };
        if self.prng.chance(self.faults.broken) {
            if self.watches.end(client, tag).is_some() {
                let result = Err(MetaError::Unavailable("the watch broke, as drawn".into()));
                self.answer(client, Report::Done { tag, result });
            }
            return;
        }
        if !self.watches.has(client, tag) {
            // It broke at an earlier change of those told at once.
            return;
        }
        if self.prng.chance(self.faults.repeated) {
            self.answer(client, report.clone());
        }
        self.answer(client, report);
    }
}
