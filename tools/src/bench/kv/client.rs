//! The process of the clients, each with one operation at a time.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use hdrhistogram::{CreationError, Histogram};
use serde::{Deserialize, Serialize};
use towpath_kv::client::{
    Client, ClientConfig, ClientError, TcpTransport, TransportError, Waiting,
};
use towpath_kv::daemon::raise_descriptors;
use towpath_kv::workload::{Mix, Workload, key_name};
use towpath_lab::studies::box_of;
use towpath_sim::{FaultControl, FaultPlan};

use super::connect::{CONNECT_TIMEOUT, Connector};
use super::phases::Phases;
use super::task::{Counted, Task, fill};
use super::way::{Load, Way};
use super::worker::Worker;
use crate::bench::load::say;
use crate::bench::process;
use crate::child::end_with_parent;

/// The least and the longest operation that the distribution tells apart, in nanoseconds.
const LATENCY_NS: [u64; 2] = [1, 600_000_000_000];

/// Enough for one client; there may be thousands.
const STACK_BYTES: usize = 256 << 10;

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// Shares of operations, in thousandths, of which it is told how long they took at most.
pub(super) const SHARES: [u32; 103] = shares();

/// Flags of the clients' process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    way: String,
    #[arg(long)]
    server: SocketAddr,
    /// Where the server takes requests over TCP: records are put there before.
    #[arg(long)]
    filler: SocketAddr,
    #[arg(long)]
    server_pid: u32,
    #[arg(long)]
    polls: bool,
    #[arg(long)]
    load: String,
    #[arg(long)]
    loss: f64,
    #[arg(long)]
    clients: usize,
    /// Threads at most, where clients may share them.
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    records: u64,
    #[arg(long)]
    operations: u64,
    #[arg(long)]
    most_ms: u64,
    #[arg(long)]
    seed: u64,
}

/// Why the clients ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("unknown: {0}")]
    Word(String),
    #[error("client {number} of {of} cannot connect; fewer clients may")]
    Connect {
        number: usize,
        of: usize,
        #[source]
        source: TransportError,
    },
    #[error("the records cannot be put")]
    Fill(#[source] ClientError),
    #[error("the numbers that were counted up cannot be read")]
    Sum(#[source] ClientError),
    #[error("a latency has no place")]
    Histogram(#[from] CreationError),
    #[error("cannot say what was done, or start a thread, or read /proc")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Said(#[from] crate::bench::load::ChildError),
    #[error("a client's thread panicked")]
    Panicked,
}

/// What clients did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Did {
    pub(super) seconds: f64,
    /// Operations that ended well.
    pub(super) done: u64,
    pub(super) counted: Counted,
    /// Operations that were done twice or not at all: what numbers that were counted up came to
    /// beside what they should.
    pub(super) wrong: u64,
    /// Packets that were lost on purpose.
    pub(super) lost: u64,
    pub(super) mean_us: f64,
    pub(super) deviation_us: f64,
    /// By [`SHARES`].
    pub(super) latency_us: Vec<f64>,
    /// By [`box_of`].
    pub(super) box_us: [f64; 5],
    pub(super) client: Used,
    pub(super) server: Used,
}

/// What a process used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(super) switches: u64,
    pub(super) cpu_ns: u64,
}

const fn shares() -> [u32; 103] {
    let mut shares = [0; 103];
    let mut at = 0;
    while at < 100 {
        shares[at] = at as u32 * 10;
        at += 1;
    }
    (shares[100], shares[101], shares[102]) = (995, 999, 1000);
    shares
}

impl Used {
    fn until_now(pid: u32) -> io::Result<Self> {
        Ok(Self { switches: process::switches(pid)?, cpu_ns: process::cpu_ns(pid)? })
    }

    fn since(self, before: Self) -> Self {
        Self {
            switches: self.switches.saturating_sub(before.switches),
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
        }
    }
}

/// What all clients share.
struct Plan {
    way: Way,
    load: Load,
    waiting: Waiting,
    workload: Workload,
    faults: FaultControl,
    server: SocketAddr,
}

/// Connects, puts records, works, and says what was done.
pub(crate) fn run(args: &ClientArgs) -> Result<(), LoadError> {
    end_with_parent();
    // Where that fails, so does a connection, which says how many there were.
    let _ = raise_descriptors();
    let plan = Plan::of(args)?;
    // It is gone before anything is measured: a server that polls for it would be slower.
    filler(args, |filler| fill(filler, plan.load, args.numbers()).map_err(LoadError::Fill))?;
    let (mut did, workers) = work(args, &plan)?;
    did.lost = plan.faults.counters().lost();
    if plan.load == Load::Count {
        did.wrong += filler(args, |filler| wrong(filler, &workers).map_err(LoadError::Sum))?;
    }
    Ok(say(&did)?)
}

/// A client over TCP, for as long as `act` takes.
fn filler<T>(
    args: &ClientArgs,
    act: impl FnOnce(&mut Client<TcpTransport>) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let transport = TcpTransport::connect(args.filler, Waiting::Blocking, CONNECT_TIMEOUT);
    let transport =
        transport.map_err(|source| LoadError::Connect { number: 0, of: args.clients, source })?;
    act(&mut Client::new(transport, ClientConfig::default()))
}

impl ClientArgs {
    /// Records, or a number for each client to count up.
    fn numbers(&self) -> u64 {
        if self.load == Load::Count.word() { self.clients as u64 } else { self.records }
    }
}

impl Plan {
    fn of(args: &ClientArgs) -> Result<Self, LoadError> {
        let way = Way::of(&args.way).ok_or_else(|| LoadError::Word(args.way.clone()))?;
        let load = Load::of(&args.load).ok_or_else(|| LoadError::Word(args.load.clone()))?;
        let faults = FaultControl::new(FaultPlan::none().drop(args.loss));
        faults.set_receive(FaultPlan::none().drop(args.loss));
        let mix = if let Load::Mix(mix) = load { mix } else { Mix::Study };
        Ok(Self {
            way,
            load,
            waiting: if args.polls { Waiting::Polling } else { Waiting::Blocking },
            workload: Workload::new(mix, args.records, args.seed),
            faults,
            server: args.server,
        })
    }

    /// The task of one client.
    fn task(&self, args: &ClientArgs, number: usize) -> Task {
        let (number, of) = (number as u64, args.clients as u64);
        let share = args.operations / of + u64::from(number < args.operations % of);
        Task::new(self.workload.client(number), self.load, (number, share))
    }

    /// All threads with their clients, which are connected.
    fn workers(&self, args: &ClientArgs) -> Result<Vec<Worker>, LoadError> {
        let mut workers = Vec::new();
        let mut connector =
            Connector::new(self.way, self.server, self.waiting, &self.faults, args.clients);
        let seed = |number| args.seed.wrapping_mul(0x1_0000).wrapping_add(number as u64);
        let failed = |number| {
            let of = args.clients;
            move |source| LoadError::Connect { number: number + 1, of, source }
        };
        let share = self.way.shares_threads() && args.clients > args.threads;
        for number in 0..args.clients {
            let task = self.task(args, number);
            if !share {
                let asker = connector.asker(seed(number)).map_err(failed(number))?;
                workers.push(Worker::of_one(asker, task, histogram()?));
                continue;
            }
            if workers.len() < args.threads {
                workers.push(Worker::of_several(self.waiting, histogram()?)?);
            }
            let link = connector.watched(seed(number), Waiting::Polling);
            let link = link.map_err(failed(number))?;
            let config = self.way.client_config();
            workers[number % args.threads].add(link, config, task);
        }
        Ok(workers)
    }
}

fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(LATENCY_NS[0], LATENCY_NS[1], DIGITS)
}

fn work(args: &ClientArgs, plan: &Plan) -> Result<(Did, Vec<Worker>), LoadError> {
    let mut workers = plan.workers(args)?;
    let phases = Phases::default();
    let most = Duration::from_millis(args.most_ms);
    let pid = std::process::id();
    let used = || -> io::Result<[Used; 2]> {
        Ok([Used::until_now(pid)?, Used::until_now(args.server_pid)?])
    };
    let [client, server] = thread::scope(|scope| {
        let start = |worker| {
            let phases = &phases;
            let run = move || {
                // It stays after its work, so that what all threads used can be looked at.
                let Some(_begun) = phases.begins() else { return Ok(()) };
                Worker::run(worker, most)
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run)
        };
        let started = workers.iter_mut().map(start).collect::<io::Result<Vec<_>>>();
        let measure = || -> Result<[Used; 2], LoadError> {
            let started = started?;
            let before = used()?;
            phases.begin();
            phases.ended(started.len());
            let after = used()?;
            phases.leave();
            // All are joined before the first that failed is told: the scope itself panics where
            // one that is left to it did.
            let ends: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
            for end in ends {
                end.map_err(|_| LoadError::Panicked)??;
            }
            Ok([0, 1].map(|at| after[at].since(before[at])))
        };
        let measured = measure();
        phases.leave();
        measured
    })?;
    let mut took = histogram()?;
    let mut did = Did { seconds: span(&workers), client, server, ..Did::default() };
    for worker in &mut workers {
        // Both have the same bounds.
        let _ = took.add(worker.took());
        did.done += worker.tasks().iter().map(Task::done).sum::<u64>();
        did.wrong += worker.tasks().iter().map(Task::wrong).sum::<u64>();
        did.counted.add(&worker.counted());
    }
    (did.mean_us, did.deviation_us) = (took.mean() / 1e3, took.stdev() / 1e3);
    let at_most = |share| took.value_at_quantile(f64::from(share) / 1e3) as f64 / 1e3;
    did.latency_us = SHARES.map(at_most).to_vec();
    let values: Vec<f64> =
        took.iter_recorded().map(|value| value.value_iterated_to() as f64 / 1e3).collect();
    did.box_us = box_of(values.into_iter(), [250, 500, 750].map(at_most));
    Ok((did, workers))
}

/// From the first thread's begin to the last one's end, in seconds.
fn span(workers: &[Worker]) -> f64 {
    let ran = || workers.iter().filter_map(Worker::ran);
    let (begin, end) = (ran().map(|ran| ran.0).min(), ran().map(|ran| ran.1).max());
    begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64())
}

/// Operations that were done twice or never, by what each client's number has in the end.
fn wrong(client: &mut Client<TcpTransport>, workers: &[Worker]) -> Result<u64, ClientError> {
    let (mut wrong, mut name) = (0, String::new());
    for task in workers.iter().flat_map(Worker::tasks) {
        key_name(Mix::Study, task.number(), &mut name);
        // Nothing is added: it is read as a number.
        wrong += task.off(client.incr(name.as_bytes(), 0)?);
    }
    Ok(wrong)
}
