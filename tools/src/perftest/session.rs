//! A run from the first words to the last row.

use super::args::values::Connection;
use super::carrier::{Carrier, Counters, RowPlan};
use super::control::{Control, Counted, Note, agree, dial};
use super::cpu::CpuTime;
use super::error::RunError;
use super::flow::Flow;
use super::limits::{
    LATENCY_BUFFERS, LATENCY_TURNS_PER_LOOK, TURNS_PER_LOOK, UNDER_WAY_BYTES_MAX, WARM_UP_ROUNDS,
};
use super::measure::{Bandwidth, Rounds, Sending, bandwidth, ping, pong};
use super::report::{BwRow, LatRow, Report, Row};
use super::settings::{Goal, Plan, Settings};
use super::setup::{self, Connected};
use super::summary::Summary;
use super::tool::Tool;
use super::watch::Watch;
use std::net::TcpListener;

/// Buffers for the messages of a row, over all channels.
pub(crate) fn row_depth(plan: &Plan, size: u32) -> u32 {
    match plan.tool {
        Tool::WriteBw => plan.depth(size) * plan.qps,
        Tool::WriteLat => {
            let fit = UNDER_WAY_BYTES_MAX / (size as usize).next_power_of_two();
            LATENCY_BUFFERS.min(fit.max(2) as u32)
        }
    }
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
        Err(RunError::PeerGone(_) | RunError::LinkDown(_)) if settings.plan.forever => report.end(),
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

fn run(mut control: Control, settings: &Settings, report: &mut Report<'_>) -> Result<(), RunError> {
    agree(&mut control, settings.plan.flags(), settings.is_client())?;
    let outcome = connect(&mut control, settings, report);
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
    let ip = settings.ours.bind.map_or_else(|| Ok(control.addrs()?.0), Ok::<_, RunError>)?;
    let link = setup::udp_link(settings, ip)?;
    if settings.faulty() {
        let (link, faults) = setup::with_faults(settings, link);
        let connected = setup::towpath(settings, link, Some(faults), control)?;
        rows(connected, control, settings, report)
    } else {
        let connected = setup::towpath(settings, link, None, control)?;
        rows(connected, control, settings, report)
    }
}

fn rows<C: Carrier>(
    connected: Connected<C>,
    control: &mut Control,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Result<(), RunError> {
    let Connected { carrier, local, remote } = connected;
    report.begin(&local, &remote)?;
    let mut session = Session { carrier, control, settings, barrier: 0 };
    loop {
        for size in settings.plan.sizes() {
            if settings.plan.warm_up {
                session.warm_up(size)?;
            }
            session.row(size, report)?;
        }
        if !settings.plan.forever {
            return report.end();
        }
    }
}

/// Both ends' counters together.
fn of_both(ours: Counters, theirs: &Counted) -> Counters {
    Counters {
        packets_lost: ours.packets_lost + theirs.packets_lost,
        chunks_retransmitted: ours.chunks_retransmitted + theirs.chunks_retransmitted,
        rtos: ours.rtos + theirs.rtos,
        chunks_duplicate: ours.chunks_duplicate + theirs.chunks_duplicate,
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
            confirm: plan.tool == Tool::WriteBw,
        })?;
        let row = self.barrier;
        self.barrier += 1;
        self.control.send(&Note::Ready { row })?;
        self.control
            .expect("Ready of the same row", |note| (*note == Note::Ready { row }).then_some(()))
    }

    fn flow(&mut self, goal: Goal) -> Flow<'_, C> {
        let plan = &self.settings.plan;
        let look_every = match plan.tool {
            Tool::WriteBw => TURNS_PER_LOOK,
            Tool::WriteLat => LATENCY_TURNS_PER_LOOK,
        };
        let receives = plan.receives(self.settings.is_client());
        let watch = Watch::new(goal);
        let takes = (receives, plan.validate);
        Flow::new(&mut self.carrier, self.control, watch, takes, look_every)
    }

    fn bandwidth(&mut self, size: u32, goal: Goal) -> Result<Bandwidth, RunError> {
        let plan = &self.settings.plan;
        let sending = Sending {
            goal,
            sends: plan.sends(self.settings.is_client()),
            depth: row_depth(plan, size),
            list: self.settings.post_list,
        };
        bandwidth(&mut self.flow(goal), sending)
    }

    fn latency(&mut self, goal: Goal) -> Result<Rounds, RunError> {
        let client = self.settings.is_client();
        let mut flow = self.flow(goal);
        if client { ping(&mut flow, goal) } else { pong(&mut flow).map(|()| Rounds::default()) }
    }

    fn warm_up(&mut self, size: u32) -> Result<(), RunError> {
        self.start(size)?;
        match self.settings.plan.tool {
            Tool::WriteBw => {
                let messages = u64::from(row_depth(&self.settings.plan, size)) * 2;
                self.bandwidth(size, Goal::Messages(messages)).map(drop)
            }
            Tool::WriteLat => self.latency(Goal::Messages(WARM_UP_ROUNDS)).map(drop),
        }
    }

    fn row(&mut self, size: u32, report: &mut Report<'_>) -> Result<(), RunError> {
        self.start(size)?;
        let (counters, cpu) = (self.carrier.counters(), CpuTime::now());
        let goal = self.settings.plan.goal;
        let (measured, rounds) = match self.settings.plan.tool {
            Tool::WriteBw => (Some(self.bandwidth(size, goal)?), Rounds::default()),
            Tool::WriteLat => (None, self.latency(goal)?),
        };
        let cpu_util = cpu.and_then(|before| CpuTime::now()?.percent_since(before));
        let counters = counters.and_then(|before| Some(self.carrier.counters()?.since(before)));
        let theirs = self.compare(counters, measured.as_ref())?;
        let counters = counters.map(|ours| of_both(ours, &theirs));
        let row = match measured {
            Some(measured) => self.bw_row(size, &measured, &theirs, counters, cpu_util),
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
                    cpu_util,
                })
            }
        };
        report.row(row, &rounds.samples_ns)
    }

    /// Tells what this end counted, and hears the same.
    fn compare(
        &mut self,
        counters: Option<Counters>,
        measured: Option<&Bandwidth>,
    ) -> Result<Counted, RunError> {
        let counters = counters.unwrap_or_default();
        self.control.send(&Note::Counted(Counted {
            sent_per_second: measured.map_or(0.0, |m| m.sent.average_per_second()),
            peak_per_second: measured.map_or(0.0, |m| m.sent.peak_per_second()),
            packets_lost: counters.packets_lost,
            chunks_retransmitted: counters.chunks_retransmitted,
            rtos: counters.rtos,
            chunks_duplicate: counters.chunks_duplicate,
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
        counters: Option<Counters>,
        cpu_util: Option<f64>,
    ) -> Row {
        let plan = &self.settings.plan;
        let meter =
            if plan.sends(self.settings.is_client()) { &measured.sent } else { &measured.received };
        let (mut per_second, mut peak) = (meter.average_per_second(), meter.peak_per_second());
        if plan.bidirectional {
            per_second += theirs.sent_per_second;
            peak += theirs.peak_per_second;
        }
        Row::Bw(BwRow {
            size,
            iterations: meter.count(),
            peak_per_second: if self.settings.show.peak { peak } else { 0.0 },
            per_second,
            counters,
            cpu_util,
        })
    }
}
