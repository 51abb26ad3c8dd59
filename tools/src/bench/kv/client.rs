//! The process of the clients: a thread each, one operation at a time.

use std::io;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use hdrhistogram::{CreationError, Histogram};
use serde::{Deserialize, Serialize};
use towpath_kv::client::{
    Client, ClientConfig, ClientError, TcpTransport, TransportError, Waiting,
};
use towpath_kv::workload::{Client as Draws, Mix, Workload, key_name};
use towpath_sim::{FaultControl, FaultPlan};

use super::connect::Connector;
use super::task::{Asker, Counted, Task, fill};
use super::way::{Load, Way};
use crate::bench::load::say;
use crate::bench::process;
use crate::child::end_with_parent;

/// How long a connection may take to be made: many are made at once.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Operations that were done twice or not at all: what the numbers that were counted up have
    /// beside what was answered.
    pub(super) wrong: u64,
    /// Packets that were lost on purpose.
    pub(super) lost: u64,
    pub(super) mean_us: f64,
    pub(super) deviation_us: f64,
    /// By [`SHARES`].
    pub(super) latency_us: Vec<f64>,
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
    let plan = Plan::of(args)?;
    let mut filler = Client::new(
        TcpTransport::connect(args.filler, Waiting::Blocking, PATIENCE)
            .map_err(|source| LoadError::Connect { number: 0, of: args.clients, source })?,
        ClientConfig::default(),
    );
    fill(&mut filler, plan.load, args.records).map_err(LoadError::Fill)?;
    let mut did = work(args, &plan)?;
    did.lost = plan.faults.counters().lost();
    if plan.load == Load::Count {
        let sum = sum(&mut filler, args.records).map_err(LoadError::Sum)?;
        // What nobody knows of may have been done, or not.
        let most = did.done + did.counted.unknown;
        did.wrong = did.done.saturating_sub(sum) + sum.saturating_sub(most);
    }
    Ok(say(&did)?)
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

    fn tasks(&self, args: &ClientArgs) -> Result<Vec<Task>, LoadError> {
        let mut tasks = Vec::new();
        let mut connector = Connector::new(self.way, self.server, self.waiting, &self.faults);
        for number in 0..args.clients {
            let of = args.clients;
            let seed = args.seed.wrapping_mul(0x1_0000).wrapping_add(number as u64);
            let connected = connector.connect(seed);
            let connected = connected.map_err(|source| LoadError::Connect {
                number: number + 1,
                of,
                source,
            })?;
            let client = Asker::new(connected, self.way.client_config());
            let draws: Draws = self.workload.client(number as u64);
            let share = args.operations / of as u64
                + u64::from((number as u64) < args.operations % of as u64);
            let took = Histogram::new_with_bounds(LATENCY_NS[0], LATENCY_NS[1], DIGITS)?;
            tasks.push(Task::new(client, draws, self.load, (share, args.records, seed), took));
        }
        Ok(tasks)
    }
}

fn work(args: &ClientArgs, plan: &Plan) -> Result<Did, LoadError> {
    let mut tasks = plan.tasks(args)?;
    let phase = Barrier::new(args.clients + 1);
    let most = Duration::from_millis(args.most_ms);
    thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .iter_mut()
            .map(|task| {
                let phase = &phase;
                let client = move || {
                    phase.wait();
                    task.run(Instant::now() + most);
                    phase.wait();
                    // It is looked at what all threads used.
                    phase.wait();
                };
                thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, client)
            })
            .collect::<io::Result<_>>()?;
        let pid = std::process::id();
        let before = [Used::until_now(pid)?, Used::until_now(args.server_pid)?];
        phase.wait();
        let began = Instant::now();
        phase.wait();
        let seconds = began.elapsed().as_secs_f64();
        let after = [Used::until_now(pid)?, Used::until_now(args.server_pid)?];
        phase.wait();
        let all_ended = threads.into_iter().all(|thread| thread.join().is_ok());
        let [client, server] = [0, 1].map(|at| after[at].since(before[at]));
        all_ended.then_some((seconds, client, server)).ok_or(LoadError::Panicked)
    })
    .and_then(|(seconds, client, server)| {
        let mut took = Histogram::<u64>::new_with_bounds(LATENCY_NS[0], LATENCY_NS[1], DIGITS)?;
        let mut did = Did { seconds, client, server, ..Did::default() };
        for task in &mut tasks {
            // Both have the same bounds.
            let _ = took.add(task.took());
            did.done += task.done();
            did.counted.add(&task.counted());
        }
        let us = |ns: u64| ns as f64 / 1e3;
        (did.mean_us, did.deviation_us) = (took.mean() / 1e3, took.stdev() / 1e3);
        let shares = SHARES.map(|share| us(took.value_at_quantile(f64::from(share) / 1e3)));
        did.latency_us = shares.to_vec();
        Ok(did)
    })
}

/// Of all numbers that were counted up.
fn sum(client: &mut Client<TcpTransport>, records: u64) -> Result<u64, ClientError> {
    let (mut sum, mut name) = (0, String::new());
    for key in 0..records {
        key_name(Mix::Study, key, &mut name);
        // Nothing is added: it is read as a number.
        sum += client.incr(name.as_bytes(), 0)?.unsigned_abs();
    }
    Ok(sum)
}
