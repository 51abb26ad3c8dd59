//! The study: which incasts are run, and what is asked of them.

use super::{Detail, Incast, IncastResult};
use crate::studies::controller::{controller_of, controllers};
use crate::studies::wire::{BASE_RTT, base_rtt_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "incast",
    what: "N senders, one port: who gets how much, and how long the queue is",
    mirrors: "the 6000:1 incast of Flor; Swift, figures of incast",
    clock: Clock::Virtual,
    params: &[
        Param::counts("senders", "hosts", 2..=16_000, ["100", "100,6000", "10,100,1000,6000"])
            .what("Senders to one receiver; above 1000 at the work-request level"),
        controllers(["swift", "swift,fixed:64KiB", "swift,fixed:64KiB"]),
        Param::size("message", 64..=8 << 20, ["64K"; 3])
            .what("Bytes of a message; each sender sends one after another"),
        Param::size("buffer", 16 << 10..=1 << 30, ["16M"; 3])
            .what("Bytes that the receiver's port can hold"),
        Param::count("rate-gbps", "Gb/s", 1..=800, ["100"; 3]).what("Rate of every wire"),
        BASE_RTT,
        Param::count("rounds", "messages", 1..=1_000, ["5", "8", "20"])
            .what("Messages that each sender could send while it is measured, by its share"),
    ],
    run,
};

/// Senders up to which packets are simulated one by one.
const SENDERS_BY_PACKETS_MAX: u64 = 1_000;

struct Point {
    name: String,
    incast: Incast,
    is_first: bool,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut points = Vec::new();
    for (place, name) in params.words("controllers").iter().enumerate() {
        for &senders in params.counts("senders") {
            // What the others do with thousands is known from hundreds, and takes its time.
            let is_first = place == 0;
            if is_first || senders <= SENDERS_BY_PACKETS_MAX {
                let incast = incast(params, name, senders);
                points.push(Point { name: name.clone(), incast, is_first });
            }
        }
    }
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, |point| point.incast.run(), |r| &r.end)?;
    report.claims = claims(&seen);
    report.tables = vec![table(&seen)];
    report.plots = plots(&seen);
    report.note(&[
        "each sender sends one message after another; the warm-up, two messages of each, is \
         left out; queue: how long a packet that came then would wait, looked at every 2 us",
        "by packets: the userspace NIC, every packet; by work requests: a chunk is one train",
    ]);
    Ok(report)
}

fn incast(params: &Params, name: &str, senders: u64) -> Incast {
    let detail =
        if senders <= SENDERS_BY_PACKETS_MAX { Detail::Packets } else { Detail::WorkRequests };
    let controller = controller_of(name).unwrap_or_default();
    let message_bytes = params.count("message");
    let rate_bits_per_s = params.count("rate-gbps") * 1_000_000_000;
    // A message of each sender, one after the other over the port, headers and all.
    let turn_s = senders as f64 * message_bytes as f64 * 8.8 / rate_bits_per_s as f64;
    let turns = |count: f64, least: Nanos| Nanos((turn_s * count * 1e9) as u64).max(least);
    Incast {
        message_bytes: message_bytes as u32,
        rate_bits_per_s,
        base_rtt: base_rtt_of(params),
        port_buffer_bytes: params.count("buffer"),
        warm_up: turns(2.0, Nanos::from_millis(10)),
        span: turns(params.count("rounds") as f64, Nanos::from_millis(20)),
        ..Incast::new(params.seed, detail, senders as usize, controller)
    }
}

fn label(point: &Point) -> String {
    format!("{} to 1, {}", point.incast.senders, point.name)
}

fn table(seen: &[(Point, IncastResult)]) -> Table {
    let by = |(point, _): &(Point, IncastResult)| match point.incast.level {
        Detail::Packets => "packets",
        Detail::WorkRequests => "work requests",
    };
    let delivered = |r: &IncastResult| {
        let each = r.window.flows.iter().map(|flow| flow.delivered);
        (each.clone().min().unwrap_or(0), each.max().unwrap_or(0))
    };
    Table::of("incast", "Many senders, one port", seen)
        .plain("senders", "senders", "", |(point, _)| point.incast.senders)
        .plain("controller", "controller", "", |(point, _)| point.name.as_str())
        .plain("level", "by", "", by)
        .percent(1, "used", "port used", |(_, r)| r.utilisation)
        .decimals(1, "goodput_gbps", "goodput", "Gb/s", |(_, r)| r.window.goodput() / 1e9)
        .decimals(4, "jain", "Jain", "", |(_, r)| r.window.fairness())
        .percent(2, "retransmitted", "again", |(_, r)| r.window.retransmitted())
        .decimals(1, "queue_p50_us", "queue p50", "us", |(_, r)| r.queue_us.percentile(0.5))
        .decimals(1, "queue_p99_us", "p99", "us", |(_, r)| r.queue_us.percentile(0.99))
        .decimals(1, "target_us", "target", "us", |(_, r)| r.target_us)
        .plain("messages_least", "least", "messages", |(_, r)| delivered(r).0)
        .plain("messages_most", "most", "messages", |(_, r)| delivered(r).1)
        .plain("packets_dropped", "dropped", "packets", |(_, r)| r.packets_dropped)
        .plain("timeouts", "timeouts", "", |(_, r)| r.window.rtos)
        .done()
}

fn plots(seen: &[(Point, IncastResult)]) -> Vec<Plot> {
    let shares = seen.iter().map(|(point, result)| {
        let fair = result.window.goodput() / result.window.flows.len() as f64;
        let mut goodputs: Vec<f64> = result.window.goodputs().map(|one| one / fair).collect();
        goodputs.sort_unstable_by(f64::total_cmp);
        let all = goodputs.len() as f64;
        let at = |(rank, share): (usize, f64)| (share * 100.0, (rank + 1) as f64 / all * 100.0);
        let points = goodputs.into_iter().enumerate().map(at).collect();
        Series::new(label(point), Style::Line, thin(points))
    });
    let queues = seen.iter().map(|(point, result)| {
        let points = (0..=100).map(|p| {
            let p = f64::from(p);
            (result.queue_us.percentile(p / 100.0), p)
        });
        Series::new(label(point), Style::Line, points)
    });
    let of_all = |label| Axis::linear(label, "%").range(0.0, 100.0);
    vec![
        Plot {
            title: "what each sender got, of an equal share".to_owned(),
            x: Axis::linear("goodput", "% of an equal share"),
            y: of_all("senders with this or less"),
            series: shares.collect(),
        },
        Plot {
            title: "how long the queue of the port was".to_owned(),
            x: Axis::linear("queue", "us"),
            y: of_all("of the time this or less"),
            series: queues.collect(),
        },
    ]
}

/// At most about a hundred of the points, the first and the last among them.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (step, last) = (points.len().div_ceil(100).max(1), points.len().saturating_sub(1));
    let keeps = |place: usize| place.is_multiple_of(step) || place == last;
    points.into_iter().enumerate().filter(|&(place, _)| keeps(place)).map(|(_, at)| at).collect()
}

fn claims(seen: &[(Point, IncastResult)]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (point, result) in seen.iter().filter(|(point, _)| point.is_first) {
        let senders = point.incast.senders;
        let mut ask = |name: &str, what: &str, demand, measured, unit, decimals| {
            let (name, what) = (format!("{name}_{senders}"), format!("{what} at {senders} to 1"));
            claims.push(Claim::new(name, what, demand, measured, unit, decimals));
        };
        let used = result.utilisation * 100.0;
        ask("used", "port used", Demand::AtLeast(95.0), used, "%", 1);
        if senders <= 100 {
            let again = result.window.retransmitted() * 100.0;
            ask("jain", "Jain index", Demand::AtLeast(0.98), result.window.fairness(), "", 4);
            ask("retransmitted", "bytes sent again", Demand::AtMost(1.0), again, "%", 2);
        }
        let starved = result.starved as f64;
        ask("starved", "senders without a message delivered", Demand::AtMost(0.0), starved, "", 0);
        let dry = result.no_recv_wqe as f64;
        ask("no_recv_wqe", "chunks without a receive buffer", Demand::AtMost(0.0), dry, "", 0);
    }
    claims
}
