//! The process of one class: reads of 4 KiB from random places and writes, as many under way as it
//! is told, and no more bytes a second.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use clap::Args as ClapArgs;
use serde::{Deserialize, Serialize};
use towpath_base::Prng;
use towpath_chunkserver::daemon::StopFlag;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ChunkClient, ChunkId, Done, OpId, Output, SLICE_BYTES};
use towpath_lab::cluster::Samples;
use towpath_transport::{Class, Endpoint, EndpointConfig, Event, Nanos, RoceUdp, Time, UdpConfig};

use crate::bench::load::{ChildError, connect, say};
use crate::child::end_with_parent;

/// Flags of a class's process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ClassArgs {
    #[arg(long)]
    server: SocketAddr,
    #[arg(long)]
    class: Class,
    /// Reads under way, of the chunk that all read.
    #[arg(long, default_value_t = 0)]
    reads: usize,
    #[arg(long, default_value_t = 0)]
    writes: usize,
    #[arg(long, default_value_t = SLICE_BYTES)]
    write_bytes: usize,
    /// Bytes that it writes in a second at most; 0: as many as it can.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// The chunk that is read.
    #[arg(long)]
    source: ChunkId,
    /// The chunk that is written.
    #[arg(long)]
    target: ChunkId,
    /// Slices of either.
    #[arg(long)]
    slices: u64,
    /// What is left out at the beginning.
    #[arg(long)]
    warm_up_ms: u64,
    /// What is measured.
    #[arg(long)]
    measure_ms: u64,
    #[arg(long)]
    seed: u64,
}

/// It is connected, and begins.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begins {
    pub(crate) begins: bool,
}

/// What it did in the time that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Did {
    pub(crate) reads: Took,
    pub(crate) writes: Took,
    /// Bytes written in a second.
    pub(crate) written: f64,
}

/// Operations and how long they took, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p99: f64,
}

impl Took {
    fn of(samples: &Samples) -> Self {
        match samples.count() {
            0 => Self::default(),
            count => {
                Self { count: count as u64, mean: samples.mean(), p99: samples.percentile(0.99) }
            }
        }
    }
}

/// How long an operation may take.
const TIMEOUT: Nanos = Nanos::from_secs(20);

struct Load<'a> {
    args: &'a ClassArgs,
    endpoint: Endpoint<RoceUdp>,
    chunks: ChunkClient,
    prng: Prng,
    /// What is under way: when it began, and whether it writes.
    under_way: HashMap<OpId, (Time, bool)>,
    writing: usize,
    /// When the next write may begin.
    next_write: Time,
    next_offset: u64,
    bytes: Vec<u8>,
    measured: (Time, Time),
    reads: Samples,
    writes: Samples,
}

/// Works for as long as is measured, then says what it did.
pub(crate) fn run(args: &ClassArgs) -> Result<(), ChildError> {
    let stop = StopFlag::new();
    stop.on_signals()?;
    end_with_parent();
    let mut load = Load::connect(args)?;
    say(&Begins { begins: true })?;
    let began = load.endpoint.now();
    let from = began + Nanos::from_millis(args.warm_up_ms);
    load.measured = (from, from + Nanos::from_millis(args.measure_ms));
    // Until it is stopped: the others are still measured when it is done.
    while !stop.is_stopped() {
        load.turn()?;
    }
    say(&load.did())
}

impl<'a> Load<'a> {
    fn connect(args: &'a ClassArgs) -> Result<Self, ChildError> {
        let (reads, writes) = (args.reads + 8, args.writes + 4);
        let config =
            EndpointConfig::new().app_protocol(PROTOCOL).links_max(1).class(args.class).send_pools(
                &[
                    (256, 512),
                    (4096, 2 * writes + 64),
                    (8 << 10, reads + writes),
                    (args.write_bytes.next_multiple_of(4096).max(16 << 10), 2 * writes),
                ],
            );
        let mut endpoint = Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config)?;
        let links = connect(&mut endpoint, args.server, 1)?;
        let Some(&(link, channel)) = links.first() else { return Err(ChildError::Gone) };
        let chunks = ChunkClient::new(link, channel).timeout(TIMEOUT);
        let mut prng = Prng::new(args.seed);
        let mut bytes = vec![0; args.write_bytes];
        prng.fill(&mut bytes);
        Ok(Self {
            args,
            endpoint,
            chunks,
            prng,
            under_way: HashMap::new(),
            writing: 0,
            next_write: Time::ZERO,
            next_offset: 0,
            bytes,
            measured: (Time::NEVER, Time::NEVER),
            reads: Samples::new(),
            writes: Samples::new(),
        })
    }

    fn turn(&mut self) -> Result<(), ChildError> {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            if matches!(event, Event::LinkDown { .. }) {
                return Err(ChildError::Gone);
            }
            // What is not the client's is nobody's.
            drop(self.chunks.on_event(&mut self.endpoint, event));
        }
        self.chunks.expire(&mut self.endpoint);
        while let Some(done) = self.chunks.poll(&mut self.endpoint) {
            self.ended(done)?;
        }
        self.ask()?;
        self.endpoint.flush();
        if !busy {
            let wants_write = self.writing < self.args.writes;
            let due = if wants_write { self.next_write } else { Time::NEVER };
            let span = due.since(self.endpoint.now()).min(Nanos::from_millis(1));
            self.endpoint.wait(span);
        }
        Ok(())
    }

    fn ended(&mut self, Done { op, result }: Done) -> Result<(), ChildError> {
        if let Output::Read(data) = result? {
            data.release(&mut self.endpoint);
        }
        let Some((began, is_write)) = self.under_way.remove(&op) else { return Ok(()) };
        let now = self.endpoint.now();
        self.writing -= usize::from(is_write);
        let (from, to) = self.measured;
        if now >= from && now < to {
            let samples = if is_write { &mut self.writes } else { &mut self.reads };
            samples.add(now.since(began).0 as f64 / 1e3);
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<(), ChildError> {
        let now = self.endpoint.now();
        while self.under_way.len() - self.writing < self.args.reads {
            let offset = self.prng.below(self.args.slices) * SLICE_BYTES as u64;
            let source = self.args.source;
            let op = self.chunks.start_read(&mut self.endpoint, source, offset, SLICE_BYTES)?;
            self.under_way.insert(op, (now, false));
        }
        while self.writing < self.args.writes && now >= self.next_write {
            let (target, end) = (self.args.target, self.args.slices * SLICE_BYTES as u64);
            // What was answered may still be on its way out once more.
            let Ok(data) = self.endpoint.copy(&self.bytes) else { break };
            let (endpoint, offset) = (&mut self.endpoint, self.next_offset);
            let op = self.chunks.start_write(endpoint, target, offset, data)?;
            self.under_way.insert(op, (now, true));
            self.writing += 1;
            let byte_len = self.bytes.len() as u64;
            self.next_offset += byte_len;
            if self.next_offset + byte_len > end {
                self.next_offset = 0;
            }
            if let Some(nanos) = (byte_len * 1_000_000_000).checked_div(self.args.rate) {
                // What it is late for by more than ten writes it gives up.
                let late = Nanos(nanos.saturating_mul(10));
                let earliest = Time(now.0.saturating_sub(late.0));
                self.next_write = self.next_write.max(earliest) + Nanos(nanos);
            }
        }
        Ok(())
    }

    fn did(self) -> Did {
        let writes = Took::of(&self.writes);
        let seconds = self.args.measure_ms as f64 / 1e3;
        let written = writes.count as f64 * self.args.write_bytes as f64 / seconds;
        Did { reads: Took::of(&self.reads), writes, written }
    }
}
