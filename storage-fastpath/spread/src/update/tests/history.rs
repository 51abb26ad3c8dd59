//! One history: drawn from its seed, run, and checked.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use towpath_base::Prng;
use towpath_ec::ShardSet;
use towpath_fastpath::ChunkId;

use super::super::change::Failed;
use super::super::heads::{File, State, Stop, Who};
use super::super::net::{Net as _, Op, all};
use super::super::pieces::pieces;
use super::super::record::Stage;
use super::Bug;
use super::repairer;
use super::world::{Shared, Way, World};
use crate::coder::{Coder, Units};
use crate::layout::{Layout, Node};
use crate::stripes::Stripe;

/// How long clients work, in microseconds.
pub(super) const SPAN: u64 = 1_500_000;

/// How long what is done in the end may take.
const CALM: u64 = 200_000_000;

const UNIT_BYTES: u32 = 8_192;

/// How much was done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) unsure: u64,
    /// Changes that were made though nobody was told so.
    pub(super) finished: u64,
    pub(super) conflicts: u64,
    pub(super) reads: u64,
    pub(super) closed: u64,
    /// Parts that repairs have brought up to date where they are.
    pub(super) mended: u64,
    pub(super) clients_died: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.unsure += other.unsure;
        self.finished += other.finished;
        self.conflicts += other.conflicts;
        self.reads += other.reads;
        self.closed += other.closed;
        self.mended += other.mended;
        self.clients_died += other.clients_died;
    }
}

/// What all know of a history.
pub(super) struct Ground {
    pub(super) layout: Layout,
    /// The data units as they were at first, by part.
    first: Vec<Vec<u8>>,
    /// The newest change that was answered.
    answered: (u64, u64),
    /// The newest one that was answered, or seen by who has read.
    seen: (u64, u64),
    bug: Option<Bug>,
    pub(super) tally: Tally,
    wrong: Option<String>,
}

pub(super) type Known = Rc<RefCell<Ground>>;

/// Data units by part once all changes up to one are made.
fn made(ground: &Ground, world: &World, up_to: (u64, u64)) -> Vec<Vec<u8>> {
    let mut units = ground.first.clone();
    for (record, body) in world.intents.range(..=up_to).map(|(_, intent)| intent) {
        // Whoever closed the file was first at some server, which all had to have.
        if !world.made.contains(&record.id) {
            continue;
        }
        let Stage::Intent { parts, offset, bytes, .. } = record.stage else { continue };
        for (part, new) in parts.iter().zip(body.chunks(bytes as usize)) {
            if let Some(unit) = units.get_mut(part) {
                unit[offset as usize..][..new.len()].copy_from_slice(new);
            }
        }
    }
    units
}

/// The last change that a file has which is so; none where only a newer layout tells that.
fn key(layout: &Layout, state: &State) -> Option<(u64, u64)> {
    let records = state.look.iter().filter_map(|(_, head)| head.as_ref().ok()?.record());
    match records.max_by_key(|record| record.age()) {
        Some(record) if record.generation > layout.generation => None,
        Some(record) if record.generation < layout.generation => {
            // Closing is no change.
            let is_closed = record.stage == Stage::Closed;
            Some((record.generation, record.number - u64::from(is_closed)))
        }
        None if layout.generation > 0 => None,
        _ => Some((layout.generation, state.number - u64::from(state.is_closed))),
    }
}

/// Changes the file here and there until it is over.
async fn write(way: &Way, known: &Known) {
    for _ in 0..1_000 {
        let layout = known.borrow().layout.clone();
        let (offset, bytes) = {
            let prng = &mut way.world.borrow_mut().prng;
            let most = [100, 5_000, 20_000][prng.below(3) as usize].min(layout.bytes);
            let len = prng.between(1, most);
            let mut bytes = vec![0; len as usize];
            prng.fill(&mut bytes);
            (prng.below(layout.bytes - len + 1), bytes)
        };
        let mut file = File::new(way, &layout);
        file.bug = known.borrow().bug;
        for piece in pieces(&layout, offset, bytes.len(), 1 << 20) {
            way.world.borrow_mut().drawn.remove(&way.asker);
            let changed = file.change(&piece, &bytes).await;
            let ground = &mut *known.borrow_mut();
            let world = &mut *way.world.borrow_mut();
            let mut not = world.drawn.remove(&way.asker).unwrap_or_default();
            if !matches!(changed, Err(Failed::Not(_))) {
                // All but the last one were begun anew.
                not.pop();
            }
            world.denied.extend(not);
            match changed {
                Ok((state, conflicts)) => {
                    ground.answered = ground.answered.max((layout.generation, state.number));
                    ground.seen = ground.seen.max(ground.answered);
                    ground.tally.answered += 1;
                    ground.tally.conflicts += u64::from(conflicts);
                }
                Err(Failed::Unsure(_)) => ground.tally.unsure += 1,
                Err(Failed::Not(_)) => ground.tally.refused += 1,
                Err(Failed::Code(error)) => ground.wrong = Some(error.to_string()),
            }
        }
        let tries = way.world.borrow_mut().prng.below(8) as u32;
        way.pause(tries).await;
    }
}

/// The units of a stripe that have the versions of a state.
async fn units_of(way: &Way, layout: &Layout, state: &State, stripe: Stripe) -> Units {
    let asked = layout.nodes.iter().enumerate().map(|(part, node)| {
        let (chunk, offset, bytes) = (node.chunk, stripe.offset, stripe.unit);
        way.ask(part, Op::Read { chunk, offset, bytes })
    });
    let mut units = Units::new(layout.nodes.len());
    for (part, answer) in all(asked).await.into_iter().enumerate() {
        units.of[part] = answer
            .ok()
            .filter(|answer| Some(answer.version) == state.versions[part])
            .map(|answer| answer.bytes);
    }
    units
}

/// Whether some of the units make the data that was written up to a change.
fn check(
    known: &Known,
    way: &Way,
    (layout, at): (&Layout, (u64, u64)),
    stripe: Stripe,
    units: &Units,
) -> Result<(), String> {
    let data: ShardSet = (0..layout.policy.data()).collect();
    let mut made_of = Units { of: units.of.clone() };
    let mut coder = Coder::new(layout.policy);
    coder.make(stripe.unit, data, &mut made_of).map_err(|error| error.to_string())?;
    let expected = made(&known.borrow(), &way.world.borrow(), at);
    for part in data.iter() {
        let expected = &expected[part][stripe.offset as usize..][..stripe.unit];
        if made_of.of[part].as_deref() != Some(expected) {
            let from = units.present();
            return Err(format!("part {part} of {stripe:?} of {from:?} is not that of {at:?}"));
        }
    }
    Ok(())
}

/// So many of the units that are there, drawn at random.
fn some(units: &Units, enough: usize, prng: &mut Prng) -> Units {
    let mut of = units.of.clone();
    while of.iter().flatten().count() > enough {
        let at = prng.below(of.len() as u64) as usize;
        of[at] = None;
    }
    Units { of }
}

/// Reads stripes, and looks whether they are what they must be.
async fn read(way: &Way, known: &Known) {
    for _ in 0..1_000 {
        let (layout, answered, seen) = {
            let ground = known.borrow();
            (ground.layout.clone(), ground.answered, ground.seen)
        };
        let file = File::new(way, &layout);
        way.world.borrow_mut().unheard.retain(|(asker, _)| *asker != way.asker);
        if let Ok(state) = file.settle(Who::Reader, None).await
            && let Some(at) = key(&layout, &state)
        {
            let unheard = way.world.borrow().unheard.clone();
            let stripe = {
                let all: Vec<Stripe> = layout.stripes().iter().collect();
                all[way.world.borrow_mut().prng.below(all.len() as u64) as usize]
            };
            let units = units_of(way, &layout, &state, stripe).await;
            if units.present().len() >= layout.policy.enough() {
                let some = some(&units, layout.policy.enough(), &mut way.world.borrow_mut().prng);
                let checked = check(known, way, (&layout, at), stripe, &some);
                let ground = &mut *known.borrow_mut();
                // Whoever misses servers that are there counts more of them as gone than may be:
                // then what was only seen may be missed as well.
                let is_there = |part: usize| way.world.borrow().lives(part);
                let mut look = state.look.iter();
                let misses = look.any(|(part, head)| head.is_err() && is_there(*part));
                // Where it cannot find all records, it asks the parts whether a change is begun.
                let asks_parts = state.look.iter().any(|(_, head)| head.is_err());
                let is_unheard = |part| unheard.contains(&(way.asker, part)) && is_there(part);
                let misses = misses || asks_parts && (0..layout.nodes.len()).any(is_unheard);
                // Whoever cannot finish a change sees it, or not, by the servers that are there.
                let least = if misses || way.may_only_read { answered } else { seen };
                if at < least {
                    ground.wrong = Some(format!("{at:?} is read, and {least:?} was before"));
                }
                if let Err(wrong) = checked {
                    ground.wrong = Some(wrong);
                }
                // Nor does it see what holds whoever has not heard of a part that is there.
                let is_spoiled = |part: &usize| way.world.borrow().spoiled.contains(part);
                let mut parts = state.versions.iter().enumerate();
                let misses_part = parts.any(|(part, version)| {
                    version.is_none() && is_there(part) && !is_spoiled(&part)
                });
                if !way.may_only_read && !misses_part {
                    ground.seen = ground.seen.max(at);
                }
                ground.tally.reads += 1;
            }
        }
        let tries = way.world.borrow_mut().prng.below(8) as u32;
        way.pause(tries).await;
    }
}

/// Stores a file of bytes drawn at random; gives its data units, by part.
pub(super) fn store(world: &Shared, layout: &mut Layout) -> Vec<Vec<u8>> {
    let (part_bytes, policy) = (layout.stripes().part_bytes() as usize, layout.policy);
    let mut units = Units::new(policy.parts());
    for unit in units.of.iter_mut().take(policy.data()) {
        let mut bytes = vec![0; part_bytes];
        world.borrow_mut().prng.fill(&mut bytes);
        *unit = Some(bytes);
    }
    let all: ShardSet = (0..policy.parts()).collect();
    Coder::new(policy).make(part_bytes, all, &mut units).expect("enough are there");
    for (part, node) in layout.nodes.iter_mut().enumerate() {
        let bytes = units.of[part].clone().unwrap_or_default();
        node.version = Some(world.borrow_mut().store(part, node.chunk, bytes));
    }
    units.of.into_iter().take(policy.data()).flatten().collect()
}

/// A file on as many servers as its policy has parts, that is not stored yet.
pub(super) fn layout_of(policy: crate::Policy, bytes: u64) -> Layout {
    let node = |n: usize| Node {
        server: ([10, 0, 0, n as u8], 7400).into(),
        chunk: ChunkId((n as u128 + 1) << 8),
        version: None,
    };
    let nodes = (0..policy.parts()).map(node).collect();
    Layout { bytes, policy, unit_bytes: UNIT_BYTES, generation: 0, nodes, left: Vec::new() }
}

pub(super) struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// A client, until it dies.
type Task = Option<Pin<Box<dyn Future<Output = ()>>>>;

struct History {
    world: Shared,
    known: Known,
    tasks: Vec<Task>,
}

/// Runs the history of a seed.
///
/// # Errors
/// What was wrong in it.
pub(super) fn run(seed: u64, bug: Option<Bug>) -> Result<Tally, String> {
    let mut prng = Prng::new(seed);
    let policies = ["rs:2+1", "rs:3+2", "rs:2+2", "flat:3", "rs:1+2", "rs:4+1", "ring:2"];
    let policy: crate::Policy = policies[prng.below(7) as usize].parse().expect("a policy");
    let stripe = u64::from(UNIT_BYTES) * policy.data() as u64;
    let bytes = stripe * 2 + prng.below(stripe);
    let layout = layout_of(policy, bytes);
    let world = Rc::new(RefCell::new(World::new(prng.next_u64(), policy.parts())));
    let history = History::new(world, layout, bug);
    history.run(&mut prng).map_err(|wrong| format!("{policy}, {bytes} bytes: {wrong}"))
}

impl History {
    fn new(world: Shared, mut layout: Layout, bug: Option<Bug>) -> Self {
        let first = store(&world, &mut layout);
        let (answered, seen, tally) = ((0, 0), (0, 0), Tally::default());
        let ground = Ground { layout, first, answered, seen, bug, tally, wrong: None };
        Self { world, known: Rc::new(RefCell::new(ground)), tasks: Vec::new() }
    }

    fn begin(&mut self, what: u64) {
        let (asker, is_sure) = (self.tasks.len(), what == 2);
        let may_only_read = what == 3;
        let way = Way { world: Rc::clone(&self.world), asker, is_sure, may_only_read };
        let known = Rc::clone(&self.known);
        self.tasks.push(Some(Box::pin(async move {
            match what {
                0 => write(&way, &known).await,
                1 | 3 => read(&way, &known).await,
                _ => repairer::close(&way, &known).await,
            }
        })));
    }

    fn poll(&mut self, task: usize) -> bool {
        let waker = Waker::from(Arc::new(Nobody));
        let Some(Some(running)) = self.tasks.get_mut(task) else { return true };
        let is_over = running.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(());
        if is_over {
            self.tasks[task] = None;
        }
        is_over
    }

    fn is_wrong(&self) -> Result<(), String> {
        let wrong = self.known.borrow().wrong.clone();
        wrong.or_else(|| self.world.borrow().wrong.clone()).map_or(Ok(()), Err)
    }

    fn until(&mut self, end: u64) -> Result<(), String> {
        loop {
            let woken = self.world.borrow_mut().step(end);
            let Some(task) = woken else { return Ok(()) };
            self.poll(task);
            self.is_wrong()?;
        }
    }

    fn run(mut self, prng: &mut Prng) -> Result<Tally, String> {
        let policy = self.known.borrow().layout.policy;
        let writers = 1 + prng.below(3);
        (0..writers).for_each(|_| self.begin(0));
        (0..1 + prng.below(2)).for_each(|_| self.begin(1));
        if prng.chance(0.3) {
            self.begin(2);
        }
        if prng.chance(0.3) {
            self.begin(3);
        }
        // As many servers as may be lost are: for good, or for some time.
        let mut blows: Vec<(u64, usize, u64)> = Vec::new();
        let mut servers: Vec<usize> = (0..policy.parts()).collect();
        for _ in 0..prng.below((policy.parts() - policy.enough()) as u64 + 1) {
            let server = servers.swap_remove(prng.below(servers.len() as u64) as usize);
            let (at, span) = (prng.below(SPAN), prng.below(400_000));
            // Some are there all the time, and somebody writes to their parts.
            let until = match prng.below(6) {
                0..3 => u64::MAX,
                3 => 0,
                _ => at + span,
            };
            blows.push((at, server, until));
        }
        for server in servers {
            self.world.borrow_mut().servers[server].slow = [0, 0, 5_000][prng.below(3) as usize];
        }
        blows.sort_unstable();
        let mut deaths: Vec<(u64, usize)> =
            (0..self.tasks.len()).map(|task| (prng.below(SPAN), task)).collect();
        deaths.retain(|_| prng.chance(0.4));
        deaths.sort_unstable();
        for task in 0..self.tasks.len() {
            self.poll(task);
        }
        while blows.len() + deaths.len() > 0 {
            let blow = blows.first().map_or(u64::MAX, |blow| blow.0);
            let death = deaths.first().map_or(u64::MAX, |death| death.0);
            self.until(blow.min(death))?;
            if blow <= death {
                let (_, server, until) = blows.remove(0);
                let world = &mut *self.world.borrow_mut();
                match until {
                    0 => world.spoil(server, self.known.borrow().layout.nodes[server].chunk),
                    until => world.servers[server].away_until = until,
                }
            } else {
                let (_, task) = deaths.remove(0);
                self.tasks[task] = None;
                self.known.borrow_mut().tally.clients_died += 1;
                // Another one comes.
                self.begin(0);
                self.poll(self.tasks.len() - 1);
            }
        }
        self.until(SPAN)?;
        self.tasks.iter_mut().for_each(|task| *task = None);
        self.look()
    }

    /// Whoever is not lost for good is there again, and nobody changes anything.
    fn look(mut self) -> Result<Tally, String> {
        let begin = self.world.borrow().now;
        self.until(begin + 500_000)?;
        self.world.borrow_mut().is_calm = true;
        let lasts = Rc::new(RefCell::new(Err("nobody can read it in the end".to_string())));
        let (asker, is_sure) = (self.tasks.len(), true);
        let way = Way { world: Rc::clone(&self.world), asker, is_sure, may_only_read: false };
        let (known, told) = (Rc::clone(&self.known), Rc::clone(&lasts));
        self.tasks.push(Some(Box::pin(async move {
            let result = last(&way, &known).await;
            *told.borrow_mut() = result;
        })));
        let (task, end) = (self.tasks.len() - 1, self.world.borrow().now + CALM);
        if !self.poll(task) {
            self.until(end)?;
        }
        let number = lasts.borrow().clone()?;
        let ground = self.known.borrow();
        let world = self.world.borrow();
        if let Some(id) = world.denied.intersection(&world.made).next() {
            return Err(format!("the change {id:#x} is made, and its writer was told otherwise"));
        }
        let mut tally = ground.tally;
        let all = world.intents.range(..=number).count() as u64;
        tally.finished = all.saturating_sub(tally.answered);
        Ok(tally)
    }
}

/// What the file is in the end: every choice of enough parts that are there says the same.
async fn last(way: &Way, known: &Known) -> Result<(u64, u64), String> {
    let layout = known.borrow().layout.clone();
    let file = File::new(way, &layout);
    let stopped = |stop: Stop| format!("it is not settled in the end: {stop:?}");
    let mut state = file.settle(Who::Reader, None).await.map_err(stopped)?;
    file.tell(&mut state).await;
    let at = key(&layout, &state).ok_or("the newest layout is not the newest")?;
    let seen = known.borrow().seen;
    if at < seen {
        return Err(format!("in the end it is as of {at:?}, and {seen:?} was seen"));
    }
    let there: Vec<usize> =
        (0..layout.nodes.len()).filter(|part| way.world.borrow().lives(*part)).collect();
    for stripe in layout.stripes().iter() {
        let units = units_of(way, &layout, &state, stripe).await;
        let present = units.present();
        if present.len() < layout.policy.enough() {
            return Err(format!("{present:?} have {stripe:?} in the end, of {there:?}"));
        }
        // A layout that was made while a part was away does without it.
        let is_whole = layout.nodes.iter().all(|node| node.version.is_some())
            && way.world.borrow().spoiled.is_empty();
        if is_whole && there.len() == layout.nodes.len() && present.len() < there.len() {
            return Err(format!(
                "all are there, and {present:?} alone are whole: {state:?}, {layout:?}"
            ));
        }
        for bits in 1..1_u32 << layout.nodes.len() {
            let chosen = ShardSet::from_bits(bits);
            if chosen.len() != layout.policy.enough() || !chosen.without(present).is_empty() {
                continue;
            }
            let of = |part: usize| units.of[part].clone().filter(|_| chosen.contains(part));
            let some = Units { of: (0..layout.nodes.len()).map(of).collect() };
            check(known, way, (&layout, at), stripe, &some)?;
        }
    }
    Ok(at)
}
