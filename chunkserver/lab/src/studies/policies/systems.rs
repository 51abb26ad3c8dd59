//! The ways to write that are compared, as plans.

use super::setting::{Setting, Task};
use crate::flow::{Ack, Cost, Group, Outcome, Plan, Ps, Service, Stream, run};
use towpath_lab::studies::StudyError;

/// Ways to write one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Single {
    Raw,
    Rpc,
    RpcRdma,
    Ours,
    /// Ours without the check of the capability: what the check costs.
    Unchecked,
}

impl Single {
    pub(super) const ALL: [Self; 5] =
        [Self::Raw, Self::Rpc, Self::RpcRdma, Self::Ours, Self::Unchecked];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Rpc => "RPC",
            Self::RpcRdma => "RPC + RDMA",
            Self::Ours => "ours",
            Self::Unchecked => "ours, unchecked",
        }
    }

    pub(super) fn plan(self, setting: &Setting, bytes: u64) -> Plan {
        let mut plan = empty(setting, 1);
        let (plain, ours) = (setting.plain_header(), setting.our_header(0));
        let raw = setting.raw();
        let write = |first_header, service| Stream {
            from: 0,
            to: 1,
            bytes,
            first_header,
            service,
            next: Vec::new(),
            ack: Ack::Client,
        };
        plan.streams = match self {
            Self::Raw => vec![write(plain, raw)],
            Self::Rpc => vec![write(ours, setting.cpu(true, true))],
            Self::Ours => vec![write(ours, setting.ours(Task::Store, true))],
            Self::Unchecked => vec![write(ours, setting.ours(Task::Store, false))],
            Self::RpcRdma => {
                // The processor rings for a READ whose request has nothing to fetch.
                let service = Service { out: setting.pcie, ..setting.cpu(true, false) };
                let read = Stream { from: 1, to: 0, service: setting.read(), ..write(plain, raw) };
                let nobody = Ack::Nobody;
                vec![
                    Stream { bytes: 0, next: vec![1], ack: nobody, ..write(ours, service) },
                    Stream { bytes: 0, next: vec![2], ack: nobody, ..read },
                    write(0, setting.cpu(false, false)),
                ]
            }
        };
        plan.groups = vec![Group { roots: vec![0], ..Group::default() }];
        plan
    }
}

/// Ways to write several copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    Flat,
    HyperLoop,
    CpuRing,
    CpuTree,
    OurFlat,
    Ring,
    Tree,
}

impl Copies {
    pub(super) const ALL: [Self; 7] = [
        Self::Flat,
        Self::HyperLoop,
        Self::CpuRing,
        Self::CpuTree,
        Self::OurFlat,
        Self::Ring,
        Self::Tree,
    ];
    /// What ours is compared with.
    pub(super) const OTHERS: [Self; 4] =
        [Self::Flat, Self::HyperLoop, Self::CpuRing, Self::CpuTree];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Flat => "RDMA flat",
            Self::HyperLoop => "HyperLoop",
            Self::CpuRing => "CPU ring",
            Self::CpuTree => "CPU tree",
            Self::OurFlat => "ours, flat",
            Self::Ring => "ours, ring",
            Self::Tree => "ours, tree",
        }
    }

    /// Whether it works on chunks, whose best size is looked for.
    const fn has_chunks(self) -> bool {
        matches!(self, Self::HyperLoop | Self::CpuRing | Self::CpuTree)
    }

    /// The best of all sizes of chunks that are powers of two, from 1 KiB, or the one way.
    pub(super) fn best(self, how: &How, copies: usize, bytes: u64) -> (Outcome, u64) {
        let sizes = (10..24).map(|bits| 1 << bits).filter(|&chunk: &u64| chunk < bytes);
        let sizes: Vec<u64> = sizes.filter(|_| self.has_chunks()).chain([bytes]).collect();
        let each =
            sizes.into_iter().map(|chunk| (run(&self.plan(how, copies, bytes, chunk)), chunk));
        let end = |outcome: &Outcome| outcome.end().unwrap_or(Ps::MAX);
        each.min_by_key(|(outcome, _)| end(outcome)).unwrap_or_default()
    }

    /// One write.
    pub(super) fn plan(self, how: &How, copies: usize, bytes: u64, chunk: u64) -> Plan {
        let mut plan = empty(&how.setting, copies);
        self.add(&mut plan, how, copies, bytes, chunk);
        plan
    }

    /// Adds one write to a plan.
    pub(super) fn add(self, plan: &mut Plan, how: &How, copies: usize, bytes: u64, chunk: u64) {
        let setting = &how.setting;
        let plain = setting.plain_header();
        let chunks: Vec<u64> =
            (0..bytes).step_by(chunk.max(1) as usize).map(|at| chunk.min(bytes - at)).collect();
        let spread = |arity| Spread { arity, copies, bytes, first_header: plain, ack: Ack::Sender };
        let ours = |arity| Spread {
            first_header: setting.our_header(copies - 1),
            ack: how.ack,
            ..spread(arity)
        };
        let roots = match self {
            Self::Flat => spread(0).add(plan, |_| setting.raw()),
            Self::OurFlat => ours(0).add(plan, |_| setting.ours(Task::Store, true)),
            Self::Ring => ours(1).add(plan, |next| setting.ours(Task::Forward(next), true)),
            Self::Tree => ours(2).add(plan, |next| setting.ours(Task::Forward(next), true)),
            Self::CpuRing | Self::CpuTree => {
                let arity = if self == Self::CpuRing { 1 } else { 2 };
                let each = chunks.iter().enumerate().flat_map(|(number, &bytes)| {
                    let check = number == 0;
                    let spread = Spread { bytes, ..spread(arity) };
                    spread.add(plan, |_| setting.cpu(check, how.copies))
                });
                each.collect()
            }
            Self::HyperLoop => {
                let settings = Spread { bytes: chunks.len() as u64 * REQUESTS, ..spread(0) };
                let roots = settings.add(plan, |_| setting.raw());
                let after = Some(plan.groups.len());
                plan.groups.push(Group { roots, in_turn: true, ..Group::default() });
                let each = chunks.iter().flat_map(|&bytes| {
                    let spread = Spread { bytes, ack: Ack::Nobody, ..spread(1) };
                    let roots = spread.add(plan, |_| setting.triggered(how.request));
                    // The last one has what all before it have.
                    if let Some(last) = plan.streams.last_mut() {
                        last.ack = Ack::Client;
                    }
                    roots
                });
                let roots = each.collect();
                return plan.groups.push(Group { roots, after, ..Group::default() });
            }
        };
        let in_turn = matches!(self, Self::Flat | Self::OurFlat);
        plan.groups.push(Group { roots, in_turn, ..Group::default() });
    }
}

/// What all ways to write copies need to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) setting: Setting,
    /// How ours is acknowledged.
    pub(super) ack: Ack,
    /// Whether processors copy what they have checked to its place.
    pub(super) copies: bool,
    /// What a card takes for a request of HyperLoop.
    pub(super) request: Ps,
}

/// The requests of one chunk at one server that a client sets: one that waits and one that writes,
/// of 64 bytes each.
const REQUESTS: u64 = 128;

/// A message to all servers.
struct Spread {
    /// How many servers each passes on to; the client sends to all where it is zero.
    arity: usize,
    copies: usize,
    bytes: u64,
    first_header: u64,
    ack: Ack,
}

impl Spread {
    /// Adds its streams, and gives those that the client sends. `service` knows how many servers a
    /// server passes on to.
    fn add(&self, plan: &mut Plan, service: impl Fn(usize) -> Service) -> Vec<usize> {
        let base = plan.streams.len();
        for place in 0..self.copies {
            let children = place * self.arity + 1..=place * self.arity + self.arity;
            let next: Vec<usize> =
                children.filter(|&child| child < self.copies).map(|child| base + child).collect();
            let from = if self.arity == 0 || place == 0 { 0 } else { (place - 1) / self.arity + 1 };
            plan.streams.push(Stream {
                from,
                to: place + 1,
                bytes: self.bytes,
                first_header: self.first_header,
                service: service(next.len()),
                next,
                ack: self.ack,
            });
        }
        let roots = if self.arity == 0 { self.copies } else { 1 };
        (base..base + roots).collect()
    }
}

/// Ways to write a stripe.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stripe {
    /// Each packet is encoded as it comes.
    Streaming,
    /// Each chunk is encoded when it is there, by an engine that takes so long for it.
    Chunks(Cost),
}

impl Stripe {
    fn services(self, setting: &Setting, data: usize, parity: usize) -> [Service; 2] {
        match self {
            Self::Streaming => {
                [Task::Encode { data, parity }, Task::Add].map(|task| setting.ours(task, true))
            }
            Self::Chunks(cost) => [cost, setting.ideal()].map(|cost| setting.engine(cost)),
        }
    }

    /// Adds what data node `node` gets of a write.
    fn add(
        self,
        plan: &mut Plan,
        setting: &Setting,
        (data, parity): (usize, usize),
        (node, bytes): (usize, u64),
        joined: bool,
    ) -> usize {
        let [encode, add] = self.services(setting, data, parity);
        let root = plan.streams.len();
        let own = Stream {
            from: 0,
            to: node,
            bytes,
            first_header: setting.our_header(parity),
            service: encode,
            next: (1..=parity).map(|number| root + number).collect(),
            ack: Ack::Client,
        };
        plan.streams.push(own);
        plan.streams.extend((0..parity).map(|number| Stream {
            from: node,
            to: data + 1 + number,
            bytes,
            // Who adds has nobody to send to.
            first_header: setting.our_header(0),
            service: add,
            next: Vec::new(),
            ack: if joined { Ack::Joined(number) } else { Ack::Client },
        }));
        root
    }

    /// One write, of which each data node gets `chunk` bytes.
    pub(super) fn plan(self, setting: &Setting, shape: (usize, usize), chunk: u64) -> Plan {
        let mut plan = empty(setting, shape.0 + shape.1);
        let nodes = 1..=shape.0;
        let roots = nodes.map(|node| self.add(&mut plan, setting, shape, (node, chunk), true));
        let roots = roots.collect();
        plan.groups = vec![Group { roots, in_turn: true, ..Group::default() }];
        plan
    }

    /// What one data node gets of so many writes, one behind the other.
    pub(super) fn stream(
        self,
        setting: &Setting,
        shape: (usize, usize),
        chunk: u64,
        writes: u64,
    ) -> Plan {
        let mut plan = empty(setting, shape.0 + shape.1);
        for _ in 0..writes {
            let root = self.add(&mut plan, setting, shape, (1, chunk), false);
            plan.groups.push(Group { roots: vec![root], ..Group::default() });
        }
        plan
    }
}

/// Without streams.
pub(super) fn empty(setting: &Setting, servers: usize) -> Plan {
    let client = vec![Some(u32::MAX), Some(1), None];
    Plan {
        wire: setting.wire,
        pools: std::iter::once(client).chain((0..servers).map(|_| setting.pools())).collect(),
        streams: Vec::new(),
        groups: Vec::new(),
        client_out: setting.client_out(),
        client_in: setting.client_in(),
    }
}

/// How many writes a rate is taken from: 8 MiB of them, at least 64.
pub(super) fn writes(bytes: u64) -> u64 {
    ((8 << 20) / bytes.max(1)).clamp(64, 4_096)
}

/// Bits a second of writes of so many bytes that a client sends one behind the other: the time of
/// all of them, less that of one alone, which fills and empties all pipelines.
pub(super) fn rate(one: &Outcome, many: &Outcome, bytes: u64) -> f64 {
    let span = many.end().zip(one.end()).map_or(0, |(many, one)| many.saturating_sub(one));
    let more = many.finished.len().saturating_sub(one.finished.len()) as f64;
    more * bytes as f64 * 8.0 / span.max(1) as f64 * 1e12
}

/// When all of it was finished, in microseconds.
pub(super) fn end_us(outcome: &Outcome, what: impl FnOnce() -> String) -> Result<f64, StudyError> {
    let never = || StudyError::run(what(), "an acknowledgement never came".to_owned());
    Ok(outcome.end().ok_or_else(never)? as f64 / 1e6)
}
