//! A server that does I/Os in the order in which they arrive, clients in closed loops, and the
//! production engines and monitor between them, in virtual time.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use towpath_base::{Nanos, Prng, Time};
use towpath_qos::{
    Action, Capacities, Engine, Monitor, MonitorConfig, Notice, PeriodEnd, PeriodStart, Rules,
    Share, Slot, Ticket, Words,
};

/// How a client asks for what it wants in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All at the start.
    Burst,
    /// Evenly.
    Constant,
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    pub share: Share,
    /// What it wants in a period.
    pub demand: u32,
    pub pattern: Pattern,
    /// It is dead from this time on, or away for this span.
    pub gone: Option<(Time, Time)>,
    /// It does I/Os without tokens.
    pub cheats: bool,
    /// What it can do in a period, where that is less than others can.
    pub most: Option<u32>,
}

impl ClientPlan {
    pub fn new(reservation: u32, demand: u32, pattern: Pattern) -> Self {
        let share = Share::reserved(reservation);
        Self { share, demand, pattern, gone: None, cheats: false, most: None }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// None: no tokens at all.
    pub rules: Option<Rules>,
    pub clients: Vec<ClientPlan>,
    pub profiled: Capacities,
    /// What the server really does, as a share of that, in thousandths, from a period on.
    pub truth: Vec<(usize, u32)>,
    pub period: Nanos,
    pub tick: Nanos,
    pub periods: usize,
    pub seed: u64,
    /// Messages of the monitor take up to so long more.
    pub message_delay: Nanos,
    /// A client's lane has so many I/Os before the server at a time; the others wait at its device.
    pub at_server: u32,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// I/Os that ended in each period, by client.
    pub done: Vec<Vec<u32>>,
    pub ends: Vec<PeriodEnd>,
    pub estimates: Vec<u32>,
    /// The tokens of each period.
    pub tokens: Vec<u32>,
    pub atomics: u64,
    pub reports: u64,
    /// The mean, and the highest, of the tokens that were used in a period beyond the estimate.
    pub over_issued: Vec<i64>,
    pub spoilt: u64,
}

impl Outcome {
    pub fn total(&self, period: usize) -> u64 {
        self.done[period].iter().map(|&count| u64::from(count)).sum()
    }

    pub fn mean_total(&self, skip: usize) -> f64 {
        let totals: Vec<f64> =
            (skip..self.done.len()).map(|period| self.total(period) as f64).collect();
        totals.iter().sum::<f64>() / totals.len() as f64
    }

    /// Periods in which a client got less than its reservation, less a share of it in thousandths.
    pub fn missed(&self, client: usize, reservation: u32, slack: u32, skip: usize) -> usize {
        let least = reservation - (u64::from(reservation) * u64::from(slack) / 1000) as u32;
        self.done[skip..].iter().filter(|period| period[client] < least).count()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Period,
    Tick,
    /// A client looks at what it may do.
    Wake(usize),
    Arrive(usize, u32),
    Done(usize, u32),
    /// An addition reaches the word, and what it was comes back.
    Add(usize, u64),
    Was(usize, u64),
    Report(usize, u64),
    Start(usize, u32),
    Notice(usize, u32),
    /// One more is wanted by a client with a constant rate.
    Want(usize),
}

struct Client {
    plan: ClientPlan,
    slot: Slot,
    engine: Engine,
    /// What is wanted and has not gone.
    waiting: u32,
    under_way: u32,
    /// I/Os that wait at the client's device, and how many it has before the server.
    queued: VecDeque<u32>,
    posted: u32,
    nic_free: Time,
    wakes_at: Time,
}

struct Table {
    pool: u64,
    reports: Vec<u64>,
}

impl Words for Table {
    fn pool(&mut self) -> u64 {
        self.pool
    }

    fn exchange_pool(&mut self, from: u64, to: u64) -> Result<(), u64> {
        if self.pool != from {
            return Err(self.pool);
        }
        self.pool = to;
        Ok(())
    }

    fn overwrite_pool(&mut self, to: u64) {
        self.pool = to;
    }

    fn report(&mut self, slot: Slot) -> u64 {
        self.reports[slot.index()]
    }
}

/// Half of a round trip.
const WAY: Nanos = Nanos(5_000);
/// I/Os that a client has under way.
pub const DEPTH: u32 = 64;

struct Model {
    plan: Plan,
    monitor: Monitor,
    clients: Vec<Client>,
    table: Table,
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    count: u64,
    now: Time,
    server_free: Time,
    period: usize,
    /// The tickets that are under way, by number.
    tickets: Vec<Option<Ticket>>,
    free: Vec<u32>,
    starts: Vec<PeriodStart>,
    notices: Vec<Notice>,
    prng: Prng,
    outcome: Outcome,
    used: i64,
}

fn engine(plan: &Plan) -> Engine {
    let engine = Engine::new(plan.rules.unwrap_or(Rules::BASIC)).depth(DEPTH).tick(plan.tick);
    if plan.at_server < DEPTH { engine.at_server(plan.at_server) } else { engine }
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Outcome {
    let mut config = MonitorConfig::new(plan.profiled).rules(plan.rules.unwrap_or(Rules::BASIC));
    config.period = plan.period;
    config.tick = plan.tick;
    // The paper's in a period of a second.
    config.batch_max = (u64::from(config.batch_max) * plan.period.0 / 1_000_000_000).max(1) as u32;
    let mut monitor = Monitor::new(config);
    let clients: Vec<Client> = plan
        .clients
        .iter()
        .map(|&client| Client {
            plan: client,
            slot: monitor.join(client.share).expect("it fits"),
            engine: engine(plan),
            waiting: 0,
            under_way: 0,
            queued: VecDeque::new(),
            posted: 0,
            nic_free: Time::ZERO,
            wakes_at: Time::NEVER,
        })
        .collect();
    let table = Table { pool: 0, reports: vec![0; clients.len()] };
    let model = Model {
        monitor,
        clients,
        table,
        events: BinaryHeap::new(),
        count: 0,
        now: Time::ZERO,
        server_free: Time::ZERO,
        period: 0,
        tickets: Vec::new(),
        free: Vec::new(),
        starts: Vec::new(),
        notices: Vec::new(),
        prng: Prng::new(plan.seed),
        outcome: Outcome::default(),
        used: 0,
        plan: plan.clone(),
    };
    model.run()
}

impl Model {
    fn at(&mut self, time: Time, what: What) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, what)));
    }

    fn run(mut self) -> Outcome {
        self.at(Time::ZERO, What::Period);
        let end = Time(self.plan.period.0 * self.plan.periods as u64);
        while let Some(Reverse((time, _, what))) = self.events.pop() {
            if time >= end {
                break;
            }
            self.now = time;
            self.step(what);
        }
        let end = self.monitor.begin(end, &mut self.table);
        self.outcome.ends.push(end);
        self.outcome.spoilt = self.monitor.spoilt();
        self.outcome
    }

    fn is_gone(&self, client: usize) -> bool {
        let gone = self.clients[client].plan.gone;
        gone.is_some_and(|(from, until)| (from..until).contains(&self.now))
    }

    fn step(&mut self, what: What) {
        match what {
            What::Period => self.begin(),
            What::Tick => self.tick(),
            What::Wake(client) => {
                if self.clients[client].wakes_at <= self.now {
                    self.clients[client].wakes_at = Time::NEVER;
                }
                self.work(client);
            }
            What::Want(client) => {
                self.want(client, 1);
                self.work(client);
            }
            What::Arrive(client, number) => {
                let truth = self.plan.truth.iter().rev().find(|(from, _)| *from <= self.period);
                let share = truth.map_or(1000, |(_, share)| *share);
                let all = u64::from(self.plan.profiled.all) * u64::from(share) / 1000;
                let mean = self.plan.period.0 / all.max(1);
                let service = mean / 2 + self.prng.below(mean + 1);
                self.server_free = self.server_free.max(self.now) + Nanos(service);
                let back = self.server_free + WAY;
                self.at(back, What::Done(client, number));
            }
            What::Done(client, number) => self.done(client, number),
            What::Add(client, operand) => {
                let was = self.table.pool;
                self.table.pool = was.wrapping_add(operand);
                self.at(self.now + WAY, What::Was(client, was));
            }
            What::Was(client, was) => {
                self.clients[client].engine.fetched(self.now, was);
                self.work(client);
            }
            What::Report(client, word) => {
                let slot = self.clients[client].slot;
                self.table.reports[slot.index()] = word;
            }
            What::Start(client, number) => {
                let start = self.starts[number as usize];
                self.clients[client].engine.start(self.now, &start);
                self.work(client);
            }
            What::Notice(client, number) => {
                let notice = self.notices[number as usize];
                self.clients[client].engine.notice(self.now, &notice);
                self.work(client);
            }
        }
    }

    fn begin(&mut self) {
        if self.now > Time::ZERO {
            self.period += 1;
            self.outcome.over_issued.push(self.used - i64::from(self.monitor.tokens()));
            self.used = 0;
        }
        let end = self.monitor.begin(self.now, &mut self.table);
        if self.period > 0 {
            self.outcome.ends.push(end);
        }
        self.outcome.estimates.push(self.monitor.estimate());
        self.outcome.tokens.push(self.monitor.tokens());
        self.outcome.done.push(vec![0; self.clients.len()]);
        for client in 0..self.clients.len() {
            let slot = self.clients[client].slot;
            let delay = Nanos(self.prng.below(self.plan.message_delay.0 + 1));
            let start = self.monitor.start_for(slot, self.now).expect("it has joined");
            self.starts.push(start);
            let number = self.starts.len() as u32 - 1;
            self.at(self.now + WAY + delay, What::Start(client, number));
            let ClientPlan { demand, pattern, .. } = self.clients[client].plan;
            match pattern {
                Pattern::Burst => {
                    // What the last period did not do is not wanted any more.
                    let before = self.clients[client].waiting;
                    self.clients[client].engine.withdrawn(self.now, before, before);
                    self.clients[client].waiting = 0;
                    self.want(client, demand);
                    self.at(self.now, What::Wake(client));
                }
                Pattern::Constant => {
                    for number in 0..u64::from(demand) {
                        let after = self.plan.period.0 * number / u64::from(demand);
                        self.at(self.now + Nanos(after), What::Want(client));
                    }
                }
            }
        }
        self.at(self.now + self.plan.period, What::Period);
        self.at(self.now + self.plan.tick, What::Tick);
    }

    fn want(&mut self, client: usize, count: u32) {
        let now = self.now;
        let of = &mut self.clients[client];
        of.engine.arrived(now, count, count);
        of.waiting += count;
    }

    fn tick(&mut self) {
        if self.plan.rules.is_some() {
            let look = self.monitor.tick(self.now, &mut self.table);
            if let Some(notice) = look.notice {
                self.notices.push(notice);
                let number = self.notices.len() as u32 - 1;
                for client in 0..self.clients.len() {
                    let delay = Nanos(self.prng.below(self.plan.message_delay.0 + 1));
                    self.at(self.now + WAY + delay, What::Notice(client, number));
                }
            }
        }
        // The last tick of a period is where the next begins.
        let next = self.now + self.plan.tick;
        if next.0 / self.plan.period.0 == self.now.0 / self.plan.period.0 {
            self.at(next, What::Tick);
        }
    }

    /// Lets a client do what it may.
    fn work(&mut self, client: usize) {
        if self.is_gone(client) {
            let (_, until) = self.clients[client].plan.gone.expect("it is gone");
            if until != Time::NEVER {
                self.wake(client, until);
            }
            return;
        }
        while self.clients[client].waiting > 0 && self.clients[client].under_way < DEPTH {
            let now = self.now;
            let of = &mut self.clients[client];
            let ticket = match self.plan.rules {
                Some(_) if !of.plan.cheats => match of.engine.admit(now, 1) {
                    Ok(ticket) => Some(ticket),
                    Err(_) => break,
                },
                _ => None,
            };
            self.go(client, ticket);
        }
        if self.plan.rules.is_none() {
            return;
        }
        while let Some(action) = self.clients[client].engine.poll(self.now) {
            match action {
                Action::Fetch { operand } => {
                    self.outcome.atomics += 1;
                    self.at(self.now + WAY, What::Add(client, operand));
                }
                Action::Report { word } => {
                    self.outcome.reports += 1;
                    self.at(self.now + WAY, What::Report(client, word));
                }
            }
        }
        let due = self.clients[client].engine.next_timeout();
        if due != Time::NEVER {
            self.wake(client, due.max(self.now + Nanos(1)));
        }
    }

    fn wake(&mut self, client: usize, at: Time) {
        if at < self.clients[client].wakes_at {
            self.clients[client].wakes_at = at;
            self.at(at, What::Wake(client));
        }
    }

    fn go(&mut self, client: usize, ticket: Option<Ticket>) {
        self.used += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.tickets.push(None);
            self.tickets.len() as u32 - 1
        });
        self.tickets[number as usize] = ticket;
        let of = &mut self.clients[client];
        of.waiting -= 1;
        of.under_way += 1;
        of.queued.push_back(number);
        self.post(client);
    }

    /// Lets the client's device send what it may.
    fn post(&mut self, client: usize) {
        let (now, all) = (self.now, self.plan.profiled.one);
        let of = &mut self.clients[client];
        let own = Nanos(self.plan.period.0 / u64::from(of.plan.most.unwrap_or(all)));
        while of.posted < self.plan.at_server
            && let Some(number) = of.queued.pop_front()
        {
            of.posted += 1;
            of.nic_free = of.nic_free.max(now) + own;
            let arrives = of.nic_free + WAY;
            self.count += 1;
            self.events.push(Reverse((arrives, self.count, What::Arrive(client, number))));
        }
    }

    fn done(&mut self, client: usize, number: u32) {
        let ticket = self.tickets[number as usize];
        self.free.push(number);
        self.clients[client].under_way -= 1;
        self.clients[client].posted -= 1;
        self.post(client);
        if let Some(ticket) = ticket {
            self.clients[client].engine.done(self.now, ticket);
        }
        let period = self.outcome.done.len() - 1;
        self.outcome.done[period][client] += 1;
        self.work(client);
    }
}

/// The paper's distributions, scaled to a sum.
pub fn uniform(sum: u32) -> Vec<u32> {
    vec![sum / 10; 10]
}

/// Five groups of two, exponent 0.6.
pub fn zipf(sum: u32) -> Vec<u32> {
    let weights: Vec<f64> =
        (0..10).map(|client| 1.0 / ((client / 2 + 1) as f64).powf(0.6)).collect();
    let all: f64 = weights.iter().sum();
    weights.iter().map(|weight| (weight / all * f64::from(sum)) as u32).collect()
}
