//! A run from the first words to the last row.

use super::args::values::Connection;
use super::carrier::towpath::PacketsLost;
use super::carrier::{Carrier, Counters, RowPlan, raw};
use super::control::{Control, Counted, Note, agree, dial};
use super::cpu::{CpuTime, ns_of_thread};
use super::error::RunError;
use super::flow::{Flow, Takes};
use super::limits::{
    LATENCY_BUFFERS, LATENCY_TURNS_PER_LOOK, TURNS_PER_LOOK, UNDER_WAY_BYTES_MAX, WARM_UP_ROUNDS,
};
use super::measure::{Bandwidth, Round, Rounds, Sending, bandwidth, ping, pong, stand_by};
use super::report::{BwRow, LatRow, Report, Row, RowCpu};
use super::settings::{Goal, Plan, Settings};
use super::setup::{self, Connected};
use super::summary::Summary;
use super::watch::Watch;
use std::net::TcpListener;
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{Bundle, RoceDevice};
use towpath_memory::Region;
use towpath_sim::FaultLink;
use towpath_transport::{DownReason, EndpointError, EngineOptions, SharedDevice, VerbsDevice};
use towpath_verbs::{Device, PacketLink};

/// Buffers for the messages of a row, over all channels.
pub(crate) fn row_depth(plan: &Plan, size: u32) -> u32 {
    if !plan.tool.is_latency() {
        return plan.depth(size) * plan.qps;
    }
    let fit = UNDER_WAY_BYTES_MAX / (size as usize).next_power_of_two();
    LATENCY_BUFFERS.min(fit.max(2) as u32)
}

/// The server: waits for one client, and runs with it.
pub(crate) fn serve(
    listener: &TcpListener,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    let accepted = listener.accept();
    let (stream, _) =
        accepted.map_err(|source| RunError::Socket { what: "accepting a client", source })?;
    let outcome = run(Control::new(stream)?, settings, report);
    match outcome {
        // A run without end ends when the client is stopped.
        Err(RunError::PeerGone(_) | RunError::LinkDown { .. }) if settings.plan.forever => {
            report.end()
        }
        outcome => outcome,
    }
}

/// The client: finds the server, and runs with it.
pub(crate) fn join(
    host: &str,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    run(Control::new(dial(host, settings.port)?)?, settings, report)
}

/// Opens the device that the run will use, and closes it again.
pub(crate) fn check_device(settings: &Settings) -> Result<(), RunError> {
    match settings.device.target() {
        Some(target) if settings.plan.connection != Connection::Tcp => {
            VerbsDevice::open(&target).map_err(EndpointError::from)?;
        }
        _ => {}
    }
    Ok(())
}

fn run(mut control: Control, settings: &Settings, report: &mut Report<'_>) -> Result<(), RunError> {
    agree(&mut control, settings.plan.flags(), settings.is_client())?;
    let outcome = connect(&mut control, settings, report).map_err(|error| match error {
        // The end of our link is how we learnt of it; the peer knows why.
        RunError::LinkDown { reason: DownReason::PeerGone | DownReason::Goodbye, .. } => {
            control.last_words().unwrap_or(error)
        }
        error => error,
    });
    match &outcome {
        Ok(()) | Err(RunError::PeerFailed(_) | RunError::PeerGone(_)) => {}
        Err(error) => control.send_failure(error),
    }
    outcome
}

fn connect(
    control: &mut Control,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    if settings.plan.connection == Connection::Tcp {
        let connected = setup::tcp(settings, control)?;
        return rows(connected, control, settings, report);
    }
    let Some(target) = settings.device.target() else {
        return over_roce(control, settings, report);
    };
    let device = VerbsDevice::open(&target).map_err(EndpointError::from)?;
    over(device, Box::new(|_| None), control, settings, report)
}

/// Over the userspace NIC, with or without faults.
fn over_roce(
    control: &mut Control,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    let ip = settings.ours.bind.map_or_else(|| Ok(control.addrs()?.0), Ok::<_, RunError>)?;
    let link = setup::udp_link(settings, ip)?;
    if settings.faulty() {
        let (link, faults) = setup::with_faults(settings, link);
        let lost = move |link: &FaultLink<Bundle<UdpLink>>| {
            link.counters().packets_dropped + faults.counters().lost()
        };
        over_link(link, lost, control, settings, report)
    } else {
        let lost = |link: &Bundle<UdpLink>| link.counters().packets_dropped;
        over_link(link, lost, control, settings, report)
    }
}

/// An end that is only acted upon leaves its lane to a thread of the device, and sleeps.
fn over_link<L: PacketLink + Send + 'static>(
    link: L,
    lost: impl Fn(&L) -> u64 + 'static,
    control: &mut Control,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    let (plan, device) = (&settings.plan, setup::roce(link));
    if !(plan.on_lane() && plan.is_passive(settings.is_client())) {
        let lost = move |device: &_| Some(lost(RoceDevice::link(device)));
        return over(device, Box::new(lost), control, settings, report);
    }
    let device =
        SharedDevice::spawn(device, EngineOptions::new()).map_err(EndpointError::Thread)?;
    let lost =
        move |device: &SharedDevice<RoceDevice<L>>| Some(device.with(|device| lost(device.link())));
    rows(setup::lane(settings, device, Box::new(lost), control)?, control, settings, report)
}

fn over<D: Device<Memory = Region>>(
    device: D,
    lost: PacketsLost<D>,
    control: &mut Control,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    if settings.plan.raw {
        let connected = raw::connect(settings, device, control)?;
        return match rows(connected, control, settings, report) {
            // Nobody will send again what was lost.
            Err(RunError::PeerSilent(_)) if settings.plan.lossy() => {
                Err(RunError::Lost(settings.plan.connection))
            }
            other => other,
        };
    }
    if settings.plan.on_lane() {
        let connected = setup::lane(settings, device, lost, control)?;
        return rows(connected, control, settings, report);
    }
    let connected = setup::towpath(settings, device, lost, control)?;
    rows(connected, control, settings, report)
}

fn rows<C: Carrier>(
    connected: Connected<C>,
    control: &mut Control,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    let Connected { carrier, local, remote, mtu } = connected;
    report.begin(&local, &remote, mtu)?;
    let mut session = Session { carrier, control, settings, barrier: 0 };
    loop {
        for size in settings.plan.sizes() {
            if settings.plan.warm_up {
                session.warm_up(size)?;
            }
            session.row(size, report)?;
        }
        if !settings.plan.forever {
            report.paths(session.carrier.paths())?;
            report.rides(&session.carrier.rides())?;
            return report.end();
        }
    }
}

/// Both ends' counters together.
fn of_both(ours: Counters, theirs: &Counted) -> Counters {
    Counters {
        packets_lost: ours.packets_lost.zip(theirs.packets_lost).map(|(a, b)| a + b),
        chunks_sent: ours.chunks_sent + theirs.chunks_sent,
        chunks_retransmitted: ours.chunks_retransmitted + theirs.chunks_retransmitted,
        acks_sent: ours.acks_sent + theirs.acks_sent,
        tail_probes: ours.tail_probes + theirs.tail_probes,
        rtos: ours.rtos + theirs.rtos,
        chunks_duplicate: ours.chunks_duplicate + theirs.chunks_duplicate,
        reroutes: ours.reroutes + theirs.reroutes,
        ..ours
    }
}

struct Session<'a, C> {
    carrier: C,
    control: &'a mut Control,
    settings: &'a Settings,
    barrier: u64,
}

impl<C: Carrier> Session<'_, C> {
    /// Makes ready for a row, and waits until the peer has.
    fn start(&mut self, size: u32) -> Result<(), RunError> {
        let plan = &self.settings.plan;
        self.carrier.prepare(&RowPlan {
            size,
            depth: row_depth(plan, size),
            validate: plan.validate,
            apart: self.settings.apart(),
            confirm: !plan.tool.is_latency(),
        })?;
        let row = self.barrier;
        self.barrier += 1;
        self.control.send(&Note::Ready { row })?;
        self.control
            .expect("Ready of the same row", |note| (*note == Note::Ready { row }).then_some(()))
    }

    fn flow(&mut self, goal: Goal) -> Flow<'_, C> {
        let plan = &self.settings.plan;
        let client = self.settings.is_client();
        let takes = Takes {
            receives: plan.receives(client),
            validate: plan.validate,
            lossy: plan.lossy(),
            passive: self.is_passive(),
        };
        let look_every = if !plan.tool.is_latency() {
            TURNS_PER_LOOK
        } else if takes.passive {
            1
        } else {
            LATENCY_TURNS_PER_LOOK
        };
        let watch = Watch::new(goal);
        Flow::new(&mut self.carrier, self.control, watch, takes, look_every)
    }

    fn bandwidth(&mut self, size: u32, goal: Goal) -> Result<(Bandwidth, Option<u64>), RunError> {
        let plan = &self.settings.plan;
        let sending = Sending {
            goal,
            sends: plan.sends(self.settings.is_client()),
            depth: row_depth(plan, size),
            list: self.settings.post_list,
        };
        let mut flow = self.flow(goal);
        let measured = bandwidth(&mut flow, sending)?;
        Ok((measured, flow.lost()))
    }

    fn latency(&mut self, goal: Goal) -> Result<Rounds, RunError> {
        let (client, fetches) = (self.settings.is_client(), self.settings.plan.tool.fetches());
        let mut flow = self.flow(goal);
        match (client, fetches) {
            (true, true) => ping(&mut flow, goal, Round::Fetch),
            (true, false) => ping(&mut flow, goal, Round::Answer),
            (false, true) => stand_by(&mut flow).map(|()| Rounds::default()),
            (false, false) => pong(&mut flow).map(|()| Rounds::default()),
        }
    }

    fn warm_up(&mut self, size: u32) -> Result<(), RunError> {
        self.start(size)?;
        if self.settings.plan.tool.is_latency() {
            return self.latency(Goal::Messages(WARM_UP_ROUNDS)).map(drop);
        }
        let messages = u64::from(row_depth(&self.settings.plan, size)) * 2;
        self.bandwidth(size, Goal::Messages(messages)).map(drop)
    }

    fn row(&mut self, size: u32, report: &mut Report<'_>) -> Result<(), RunError> {
        self.start(size)?;
        let (counters, cpu, serving) = (self.carrier.counters(), CpuTime::now(), ns_of_thread());
        let goal = self.settings.plan.goal;
        let (measured, lost, rounds) = if self.settings.plan.tool.is_latency() {
            (None, None, self.latency(goal)?)
        } else {
            let (measured, lost) = self.bandwidth(size, goal)?;
            (Some(measured), lost, Rounds::default())
        };
        let util = cpu.and_then(|before| CpuTime::now()?.percent_since(before));
        let serving_ns = self.is_passive().then(|| ns_of_thread() - serving);
        let counters = counters.and_then(|before| Some(self.carrier.counters()?.since(before)));
        let theirs = self.compare((counters, serving_ns), measured.as_ref(), lost)?;
        let cpu = RowCpu { util, serving_ns: serving_ns.or(theirs.serving_cpu_ns) };
        let counters = counters.map(|ours| of_both(ours, &theirs));
        let row = match measured {
            // Who is written to or read from has nothing to tell.
            Some(_) if self.is_passive() => return Ok(()),
            Some(measured) => {
                let mut row = self.bw_row(size, &measured, &theirs, (counters, cpu));
                let both = lost.into_iter().chain(theirs.messages_lost).reduce(|a, b| a + b);
                row.messages_lost = both.filter(|_| self.settings.plan.raw);
                Row::Bw(row)
            }
            None if !self.settings.is_client() => return Ok(()),
            None => {
                let mut sorted = rounds.samples_ns.clone();
                sorted.sort_unstable();
                Row::Lat(LatRow {
                    size,
                    iterations: rounds.rounds,
                    summary: Summary::of_sorted(&sorted),
                    per_second: rounds.rounds as f64 / rounds.seconds.max(f64::MIN_POSITIVE),
                    counters,
                    cpu,
                })
            }
        };
        report.row(row, &rounds.samples_ns)
    }

    /// Tells what this end counted, and hears the same.
    fn compare(
        &mut self,
        (counters, serving_cpu_ns): (Option<Counters>, Option<u64>),
        measured: Option<&Bandwidth>,
        messages_lost: Option<u64>,
    ) -> Result<Counted, RunError> {
        let counters = counters.unwrap_or_default();
        self.control.send(&Note::Counted(Counted {
            sent_per_second: measured.map_or(0.0, |m| m.sent.average_per_second()),
            peak_per_second: measured.map_or(0.0, |m| m.sent.peak_per_second()),
            packets_lost: counters.packets_lost,
            chunks_sent: counters.chunks_sent,
            chunks_retransmitted: counters.chunks_retransmitted,
            acks_sent: counters.acks_sent,
            tail_probes: counters.tail_probes,
            rtos: counters.rtos,
            chunks_duplicate: counters.chunks_duplicate,
            reroutes: counters.reroutes,
            messages_lost,
            serving_cpu_ns,
        }))?;
        self.control.expect("Counted", |note| match note {
            Note::Counted(counted) => Some(*counted),
            _ => None,
        })
    }

    fn bw_row(
        &self,
        size: u32,
        measured: &Bandwidth,
        theirs: &Counted,
        (counters, cpu): (Option<Counters>, RowCpu),
    ) -> BwRow {
        let plan = &self.settings.plan;
        let meter =
            if plan.sends(self.settings.is_client()) { &measured.sent } else { &measured.received };
        let (mut per_second, mut peak) = (meter.average_per_second(), meter.peak_per_second());
        if plan.bidirectional {
            per_second += theirs.sent_per_second;
            peak += theirs.peak_per_second;
        }
        BwRow {
            size,
            iterations: meter.count(),
            peak_per_second: if self.settings.show.peak { peak } else { 0.0 },
            per_second,
            counters,
            messages_lost: None,
            cpu,
        }
    }

    /// Whether this end is only acted upon.
    fn is_passive(&self) -> bool {
        self.settings.plan.is_passive(self.settings.is_client())
    }
}
