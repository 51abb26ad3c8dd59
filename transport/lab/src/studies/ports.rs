//! Hosts with two NICs, each on a switch of its own: what one that dies, flaps, comes up late or
//! is slower than the other costs.
//!
//! Clients write to servers over one link each, small I/Os or long messages. The switches are
//! joined by a cable, so that each NIC of a host reaches both of every other.

use super::outage::{BASE_RTT, EVERY, IO_BYTES, LATE, SLA_TICK, SLOW, ms};
use super::{
    Axis, Cell, Claim, Clock, Demand, Param, Params, Plot, Report, RunEnd, Runner, Series, Study,
    StudyError, Style, Table,
};
use crate::cluster::{Answer, Cluster, FlowPlan, PathMove, Record};
use crate::failure::Cause;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_device_roce::{Bundle, RoceConfig, RoceDevice};
use towpath_sim::World;
use towpath_sim::world::{CableConfig, Change, Health, HostConfig, SwitchConfig, VirtualLink};
use towpath_transport::EndpointConfig;

/// The study.
pub const STUDY: Study = Study {
    name: "ports",
    what: "hosts with two NICs, one of which dies, flaps, comes up late or is slow",
    mirrors: "PNet: dual-port NICs, each port on a switch of its own",
    clock: Clock::Virtual,
    params: &[
        Param::count("hosts", "hosts", 1..=16, ["2", "4", "4"])
            .what("Clients, and servers that each writes to"),
        EVERY,
        Param::count("span-ms", "ms", 20..=60_000, ["200", "2000", "5000"])
            .what("How long it is broken; as long before, and after"),
        Param::count("rate-ms", "ms", 1..=1_000, ["5", "20", "50"])
            .what("How long rates are measured, after half as long"),
    ],
    run,
};

/// A NIC that flaps is away and back again for so long each.
const FLAP: Nanos = Nanos::from_millis(50);

/// What is sent where the wire is to be full, and how much of it at a time.
const LOAD_BYTES: u32 = 64 << 10;
const LOAD_DEPTH: u32 = 32;

/// I/Os that a client keeps waiting for a link.
const BACKLOG_MAX: u32 = 1024;

const CABLE_DELAY: Nanos = Nanos(BASE_RTT.0 / 8);

/// What waits at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_secs(30);

/// Within so long what is in flight by a NIC that dies is to be answered: as much as the links of
/// one NIC take over many paths, with a tick for acks that took the same way.
const RECOVERY: Nanos = Nanos(3 * SLA_TICK.0 + 2 * BASE_RTT.0);

/// Points of a plot, one for each of these.
const STEP: Nanos = Nanos::from_millis(10);

type Nics = RoceDevice<Bundle<VirtualLink>>;

/// What becomes of NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The first NIC of the first client loses what comes and goes.
    Nic,
    /// The switch of the first NICs of all hosts loses everything.
    Switch,
    /// The switch of the second NICs.
    Second,
    /// The switch of the first NICs comes and goes.
    Flaps,
    /// The switch of the second NICs is not there at first.
    Late,
}

impl Fate {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("a NIC dies", Self::Nic),
        ("first switch dies", Self::Switch),
        ("second switch dies", Self::Second),
        ("first switch flaps", Self::Flaps),
        ("second comes up late", Self::Late),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, fate)| *fate == self).map_or("", |(name, _)| name)
    }
}

/// What the hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// I/Os with this mean time between two of a link, while this befalls the NICs.
    Ios(Fate, Nanos),
    /// One client sends to one server as fast as it can.
    Stream,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Where everything random comes from.
    pub seed: u64,
    /// Gb/s of each NIC.
    pub rates: Vec<u64>,
    /// Clients, and servers that each of them writes to.
    pub hosts: usize,
    /// What they do.
    pub work: Work,
    /// How long it takes.
    pub span: Nanos,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct PortsResult {
    /// Every I/O that was answered.
    pub answers: Vec<Answer>,
    /// I/Os that a client turned away because too many waited.
    pub refused: u64,
    /// Paths that hosts thought otherwise of than before.
    pub moves: Vec<PathMove>,
    /// Bytes of messages that came, in bits a second.
    pub goodput_bits_per_s: f64,
    /// Chunks sent again, of all.
    pub retransmitted: f64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Ports {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<PortsResult, Cause> {
        let world = World::new(self.seed);
        let devices = self.lay(&world);
        let endpoint = |_| {
            let pools = [(IO_BYTES as usize, 4_096), (LOAD_BYTES as usize, LOAD_DEPTH as usize)];
            EndpointConfig::new().paths(4).links_max(self.hosts + 1).send_pools(&pools)
        };
        let cluster = Cluster::new(world, devices, LOAD_BYTES, endpoint)?;
        let mut cluster = cluster.nics(self.rates.len() as u32).with_record();
        match self.work {
            Work::Ios(_, every) => self.write(&mut cluster, every),
            Work::Stream => self.stream(&mut cluster),
        }
    }

    /// The clients, then as many servers. Each host has a NIC on each switch.
    fn lay(&self, world: &World) -> Vec<Nics> {
        let tors: Vec<_> =
            self.rates.iter().map(|_| world.add_switch(&SwitchConfig::default())).collect();
        for pair in tors.windows(2) {
            let wide = CableConfig { rate_bits_per_s: 400_000_000_000, ..CableConfig::default() };
            world.connect(pair[0], pair[1], &CableConfig { delay: CABLE_DELAY, ..wide });
        }
        let mut devices = Vec::new();
        for host in 0..2 * self.hosts {
            let mut ends = Vec::new();
            for (&tor, rate) in tors.iter().zip(&self.rates) {
                let rate_bits_per_s = rate * 1_000_000_000;
                let nic =
                    HostConfig { rate_bits_per_s, delay: CABLE_DELAY, ..HostConfig::default() };
                let nic = world.add_host(tor, &HostConfig { source_ports: 64, ..nic });
                if host == 0 && ends.is_empty() {
                    self.doom(world, nic, &tors);
                }
                ends.push(world.end(nic));
            }
            let first = ends.remove(0);
            let link = Bundle::of(first, ends).expect("virtual links wait for no files");
            devices.push(RoceDevice::new(link, RoceConfig::default()));
        }
        devices
    }

    /// When something breaks, and when it is whole again.
    fn broken(&self) -> (Time, Time) {
        let start = match self.work {
            Work::Ios(Fate::Late, _) => Time::ZERO,
            _ => Time::ZERO + self.span,
        };
        (start, Time::ZERO + self.span.saturating_mul(2))
    }

    fn doom(&self, world: &World, nic: towpath_sim::HostId, tors: &[towpath_sim::SwitchId]) {
        let Work::Ios(fate, _) = self.work else { return };
        let (start, end) = self.broken();
        let silent = |part: &dyn Fn(Health) -> Change, from, to| {
            world.change_at(from, part(Health::Silent));
            world.change_at(to, part(Health::Up));
        };
        let first = |health| Change::Switch(tors[0], health);
        match fate {
            Fate::Nic => {
                let cable = world.cable(nic);
                silent(&|health| Change::Cable(cable, health), start, end);
            }
            Fate::Switch => silent(&first, start, end),
            Fate::Second | Fate::Late => {
                silent(&|health| Change::Switch(tors[1], health), start, end);
            }
            Fate::Flaps => {
                let mut from = start;
                while from < end {
                    silent(&first, from, (from + FLAP).min(end));
                    from += FLAP.saturating_mul(2);
                }
            }
        }
    }

    fn write(&self, cluster: &mut Cluster<Nics>, every: Nanos) -> Result<PortsResult, Cause> {
        let end = Time::ZERO + self.span.saturating_mul(3);
        for client in 0..self.hosts {
            for server in self.hosts..2 * self.hosts {
                let plan = FlowPlan::closed(client, server, IO_BYTES).open(every, BACKLOG_MAX);
                cluster.add_flow(plan.between(Time::ZERO, end))?;
            }
        }
        let begin = cluster.moment();
        cluster.run_until(end);
        let window = cluster.since(&begin);
        cluster.settle(SETTLE_MAX);
        Ok(self.result(cluster, &window))
    }

    fn stream(&self, cluster: &mut Cluster<Nics>) -> Result<PortsResult, Cause> {
        cluster.add_flow(FlowPlan::closed(0, self.hosts, LOAD_BYTES).depth(LOAD_DEPTH))?;
        // A NIC is used when three probes are answered, a few ms from the start.
        cluster.run_for(Nanos::from_millis(10) + Nanos(self.span.0 / 2));
        let begin = cluster.moment();
        cluster.run_for(self.span);
        let window = cluster.since(&begin);
        cluster.settle(SETTLE_MAX);
        Ok(self.result(cluster, &window))
    }

    fn result(&self, cluster: &Cluster<Nics>, window: &crate::cluster::Window) -> PortsResult {
        let Record { answers, moves } = cluster.record().clone();
        PortsResult {
            answers: if self.work == Work::Stream { Vec::new() } else { answers },
            refused: cluster.flows().map(|(_, count)| count.skipped).sum(),
            moves,
            goodput_bits_per_s: window.goodputs().sum(),
            retransmitted: window.retransmitted(),
            end: cluster.end(),
        }
    }

    fn label(&self) -> String {
        match self.work {
            Work::Ios(fate, _) => fate.name().to_owned(),
            Work::Stream => {
                self.rates.iter().map(u64::to_string).collect::<Vec<_>>().join(" + ") + " Gb/s"
            }
        }
    }
}

impl PortsResult {
    /// I/Os without an answer within `span`, those that were turned away among them.
    #[must_use]
    pub fn above(&self, span: Nanos) -> u64 {
        Answer::count_above(&self.answers, span) + self.refused
    }

    /// The longest answer.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        Answer::longest(&self.answers)
    }

    fn longest_by_step(&self) -> Vec<(f64, f64)> {
        let mut longest = BTreeMap::new();
        for answer in &self.answers {
            let most = longest.entry(answer.sent_at.0 / STEP.0).or_insert(Nanos::ZERO);
            *most = answer.latency().max(*most);
        }
        let middle = |place: u64| (place as f64 + 0.5) * ms(STEP);
        longest.into_iter().map(|(place, most)| (middle(place), ms(most))).collect()
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let every = Nanos::from_micros(params.count("every-us"));
    let ios = |(_, fate)| Ports {
        seed: params.seed,
        rates: vec![100, 100],
        hosts: params.count("hosts") as usize,
        work: Work::Ios(fate, every),
        span: Nanos::from_millis(params.count("span-ms")),
    };
    let stream = |rates: &[u64]| Ports {
        seed: params.seed,
        rates: rates.to_vec(),
        hosts: 1,
        work: Work::Stream,
        span: Nanos::from_millis(params.count("rate-ms")),
    };
    let rates: [&[u64]; 5] = [&[25], &[100], &[25, 100], &[100, 25], &[100, 100]];
    let points = Fate::ALL.map(ios).into_iter().chain(rates.map(stream)).collect();
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, Ports::label, Ports::run, |result| &result.end)?;
    let (ios, streams) = seen.split_at(Fate::ALL.len());
    report.tables = vec![table_of_ios(ios), table_of_rates(streams)];
    report.plots = vec![plot(ios)];
    report.claims = claims(ios, streams);
    report.note(&[
        "an I/O is a write of 4 KiB; its answer is the word that it is delivered",
        "links have four paths: each NIC with its like, and each with the other",
        "what is broken loses everything and says nothing",
        "late: the second switch is there from the second third on",
    ]);
    Ok(report)
}

fn table_of_ios(seen: &[(Ports, PortsResult)]) -> Table {
    Table::of("ios", "I/Os while NICs go and come", seen)
        .plain("what", "what", "", |(point, _)| Cell::from(point.label().as_str()))
        .plain("ios", "I/Os", "", |(_, seen)| seen.answers.len() as u64 + seen.refused)
        .plain("ios_above_10ms", "above 10 ms", "", |(_, seen)| seen.above(LATE))
        .plain("ios_above_1s", "above 1 s", "", |(_, seen)| seen.above(SLOW))
        .decimals(2, "longest_ms", "longest", "ms", |(_, seen)| ms(seen.longest()))
        .plain("doubts", "doubts", "", |(_, seen)| {
            seen.moves.iter().filter(|change| change.is_doubt()).count()
        })
        .percent(3, "retransmitted", "again", |(_, seen)| Some(seen.retransmitted))
        .done()
}

fn table_of_rates(seen: &[(Ports, PortsResult)]) -> Table {
    Table::of("rates", "One link as fast as it goes", seen)
        .plain("nics", "NICs", "", |(point, _)| Cell::from(point.label().as_str()))
        .decimals(2, "goodput_gbps", "goodput", "Gb/s", |(_, seen)| seen.goodput_bits_per_s / 1e9)
        .percent(3, "retransmitted", "again", |(_, seen)| Some(seen.retransmitted))
        .done()
}

fn plot(seen: &[(Ports, PortsResult)]) -> Plot {
    let series = seen
        .iter()
        .map(|(point, result)| Series::new(point.label(), Style::Line, result.longest_by_step()));
    Plot {
        title: "NICs go and come".to_owned(),
        x: Axis::linear("sent at", "ms"),
        y: Axis::log("longest answer", "ms"),
        series: series.collect(),
    }
}

fn claims(ios: &[(Ports, PortsResult)], streams: &[(Ports, PortsResult)]) -> Vec<Claim> {
    let slow: u64 = ios.iter().map(|(_, seen)| seen.above(SLOW)).sum();
    let longest = ios.iter().map(|(_, seen)| seen.longest()).max().unwrap_or_default();
    let [slow_nic, fast_nic, both @ ..] = streams else { return Vec::new() };
    let alone = |(_, seen): &(Ports, PortsResult)| seen.goodput_bits_per_s;
    let sum = |point: &Ports| {
        let of = |rate: &u64| alone(if *rate == 25 { slow_nic } else { fast_nic });
        point.rates.iter().map(of).sum::<f64>()
    };
    let shares = both.iter().map(|(point, seen)| seen.goodput_bits_per_s / sum(point));
    let least = shares.fold(f64::INFINITY, f64::min) * 100.0;
    let (within, bound) = ("longest answer, three ticks", Demand::AtMost(ms(RECOVERY)));
    let of_sum = "goodput of two NICs, of what both have alone, least";
    vec![
        Claim::new("slow", "I/Os above 1 s", Demand::AtMost(0.0), slow as f64, "", 0),
        Claim::new("longest_ms", within, bound, ms(longest), "ms", 2),
        Claim::percent("of_sum", of_sum, Demand::AtLeast(90.0), least),
    ]
}
