//! The process of one tenant: reads of 4 KiB from random places, as many under way as it is told.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args as ClapArgs;
use serde::{Deserialize, Serialize};
use towpath_base::Prng;
use towpath_chunkserver::daemon::StopFlag;
use towpath_fastpath::qos::Tenancy;
use towpath_fastpath::qos::wire::JoinRequest;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ChunkClient, ChunkId, Done, OpId, Output, SLICE_BYTES, StorageRequest};
use towpath_lab::cluster::Samples;
use towpath_qos::Ticket;
use towpath_transport::{Endpoint, EndpointConfig, Event, Nanos, RoceUdp, Time, UdpConfig};

use crate::bench::load::{ChildError, connect, say};
use crate::child::end_with_parent;

/// Flags of a tenant's process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct TenantArgs {
    #[arg(long)]
    server: SocketAddr,
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long)]
    links: usize,
    #[arg(long)]
    depth: usize,
    #[arg(long)]
    one_sided: bool,
    #[arg(long)]
    chunk: ChunkId,
    #[arg(long)]
    slices: u64,
    #[arg(long)]
    seed: u64,
}

/// It has joined, and reads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) reading: bool,
}

/// What it did.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Did {
    /// Reads that ended in each second of the system's clock.
    pub(crate) seconds: Vec<(u64, u64)>,
    pub(crate) mean_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
}

/// How long an operation may take: a tenant without tokens waits for the next period.
const TIMEOUT: Nanos = Nanos::from_secs(10);

/// Latencies that are kept: those of the first reads, some ten seconds of them.
const SAMPLES_MAX: usize = 1 << 20;

struct Link {
    chunks: ChunkClient,
    /// Where this process runs the engine of its tenant.
    tenancy: Option<Tenancy>,
    /// Reads that wait for tokens, and the engine that knows of them.
    waiting: usize,
    known_to: u64,
    began: HashMap<OpId, Begun>,
}

/// A read under way.
struct Begun {
    at: Time,
    /// The ticket, and the engine that gave it.
    ticket: Option<(u64, Ticket)>,
}

struct Tenant<'a> {
    args: &'a TenantArgs,
    endpoint: Endpoint<RoceUdp>,
    links: Vec<Link>,
    prng: Prng,
    seconds: Vec<(u64, u64)>,
    samples: Samples,
    ended: u64,
}

/// Reads until stdin closes or SIGTERM comes, then says what it did.
pub(crate) fn run(args: &TenantArgs) -> Result<(), ChildError> {
    let stop = StopFlag::new();
    stop.on_signals()?;
    end_with_parent();
    let mut tenant = Tenant::connect(args)?;
    tenant.join()?;
    say(&Reading { reading: true })?;
    while !stop.is_stopped() {
        tenant.turn()?;
    }
    say(&tenant.did())?;
    Ok(())
}

impl<'a> Tenant<'a> {
    fn connect(args: &'a TenantArgs) -> Result<Self, ChildError> {
        let heads = 2 * args.links * args.depth + 64;
        let config = EndpointConfig::new()
            .app_protocol(PROTOCOL)
            .links_max(args.links)
            .send_pools(&[(256, heads), (4096, 64), (8 << 10, args.links * args.depth + 8)]);
        let mut endpoint = Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config)?;
        let runs_engine = args.one_sided && args.tenant.is_some();
        let tenant = args.tenant.as_deref().filter(|_| runs_engine);
        let links = connect(&mut endpoint, args.server, args.links)?.into_iter();
        let links = links.map(|(link, channel)| {
            let chunks = ChunkClient::new(link, channel).timeout(TIMEOUT);
            let tenancy = tenant.map(|name| Tenancy::new(name, link, args.depth as u32));
            Link { chunks, tenancy, waiting: 0, known_to: 0, began: HashMap::new() }
        });
        let links = links.collect();
        let (seconds, samples) = (Vec::new(), Samples::new());
        Ok(Self { args, endpoint, links, prng: Prng::new(args.seed), seconds, samples, ended: 0 })
    }

    fn join(&mut self) -> Result<(), ChildError> {
        let Some(tenant) = &self.args.tenant else { return Ok(()) };
        for link in self.links.iter_mut().filter(|link| link.tenancy.is_none()) {
            link.chunks.start_request(
                &mut self.endpoint,
                &StorageRequest::Join(JoinRequest { tenant: tenant.into(), runs_engine: false }),
            )?;
        }
        let mut joined = 0;
        while joined < self.links.len() {
            let now = self.endpoint.now();
            self.take_in()?;
            joined = 0;
            for link in &mut self.links {
                while let Some(done) = link.chunks.poll(&mut self.endpoint) {
                    match &mut link.tenancy {
                        Some(tenancy) => drop(tenancy.on_done(now, done)),
                        None => drop(done.result?),
                    }
                }
                match &mut link.tenancy {
                    Some(tenancy) => {
                        tenancy.drive(&mut self.endpoint, &mut link.chunks)?;
                        joined += usize::from(tenancy.engine().is_some());
                    }
                    None => joined += usize::from(link.chunks.under_way() == 0),
                }
            }
            self.endpoint.flush();
        }
        Ok(())
    }

    fn take_in(&mut self) -> Result<bool, ChildError> {
        let mut busy = self.endpoint.poll() > 0;
        let now = self.endpoint.now();
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            if matches!(event, Event::LinkDown { .. }) {
                return Err(ChildError::Gone);
            }
            let mut event = Some(event);
            for link in &mut self.links {
                let found = event.take();
                let found = match &mut link.tenancy {
                    Some(tenancy) => found.and_then(|found| tenancy.on_event(now, found)),
                    None => found,
                };
                let Some(found) = found else { break };
                event = link.chunks.on_event(&mut self.endpoint, found);
            }
        }
        Ok(busy)
    }

    fn turn(&mut self) -> Result<(), ChildError> {
        let busy = self.take_in()?;
        for index in 0..self.links.len() {
            self.links[index].chunks.expire(&mut self.endpoint);
            while let Some(done) = self.links[index].chunks.poll(&mut self.endpoint) {
                self.ended(index, done)?;
            }
            self.ask(index)?;
        }
        self.endpoint.flush();
        if !busy {
            let due = self.links.iter().filter_map(|link| link.tenancy.as_ref());
            let due = due.map(Tenancy::next_timeout).min().unwrap_or(Time::NEVER);
            let span = due.since(self.endpoint.now()).min(Nanos::from_millis(1));
            self.endpoint.wait(span);
        }
        Ok(())
    }

    fn ended(&mut self, index: usize, done: Done) -> Result<(), ChildError> {
        let now = self.endpoint.now();
        let link = &mut self.links[index];
        let done = match &mut link.tenancy {
            Some(tenancy) => tenancy.on_done(now, done),
            None => Some(done),
        };
        let Some(Done { op, result }) = done else { return Ok(()) };
        if let Output::Read(data) = result? {
            data.release(&mut self.endpoint);
        }
        let link = &mut self.links[index];
        let Some(Begun { at, ticket }) = link.began.remove(&op) else { return Ok(()) };
        if let (Some((by, ticket)), Some(tenancy)) = (ticket, &mut link.tenancy)
            && tenancy.engines() == by
            && let Some(engine) = tenancy.engine_mut()
        {
            engine.engine_mut().done(now, ticket);
        }
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        match self.seconds.last_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => self.seconds.push((second, 1)),
        }
        self.ended += 1;
        if self.samples.count() < SAMPLES_MAX {
            self.samples.add(now.since(at).0 as f64 / 1e3);
        }
        Ok(())
    }

    /// Asks for as many reads as there is leave for.
    fn ask(&mut self, index: usize) -> Result<(), ChildError> {
        let now = self.endpoint.now();
        loop {
            let link = &mut self.links[index];
            let room = self.args.depth.saturating_sub(link.chunks.under_way());
            if room == 0 {
                break;
            }
            let ticket = match &mut link.tenancy {
                None => None,
                Some(tenancy) => {
                    let by = tenancy.engines();
                    let Some(engine) = tenancy.engine_mut() else { break };
                    let engine = engine.engine_mut();
                    if std::mem::replace(&mut link.known_to, by) != by {
                        link.waiting = 0;
                    }
                    let more = room.saturating_sub(link.waiting) as u32;
                    if more > 0 {
                        engine.arrived(now, more, more);
                        link.waiting += more as usize;
                    }
                    let Ok(ticket) = engine.admit(now, 1) else { break };
                    link.waiting -= 1;
                    Some((by, ticket))
                }
            };
            self.read(index, Begun { at: now, ticket })?;
        }
        let Link { tenancy, chunks, .. } = &mut self.links[index];
        if let Some(tenancy) = tenancy {
            tenancy.drive(&mut self.endpoint, chunks)?;
        }
        Ok(())
    }

    fn read(&mut self, index: usize, begun: Begun) -> Result<(), ChildError> {
        let Link { chunks, began, .. } = &mut self.links[index];
        let offset = self.prng.below(self.args.slices) * SLICE_BYTES as u64;
        let (endpoint, chunk) = (&mut self.endpoint, self.args.chunk);
        let op = match self.args.one_sided {
            true => chunks.start_resident_read(endpoint, chunk, offset, SLICE_BYTES)?,
            false => chunks.start_read(endpoint, chunk, offset, SLICE_BYTES)?,
        };
        began.insert(op, begun);
        Ok(())
    }

    fn did(self) -> Did {
        Did {
            mean_us: self.samples.mean(),
            p99_us: self.samples.percentile(0.99),
            p999_us: self.samples.percentile(0.999),
            seconds: self.seconds,
        }
    }
}
