//! The study: who stamps packets, and how late hosts are; what is asked of that.

use super::{Crowd, KERNEL_PERCENT, OUTWARD_PART, Pings, Source};
use crate::cluster::Samples;
use crate::failure::Cause;
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::incast::IncastResult;
use crate::studies::wire::base_rtt_of;
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, RunEnd, Runner, Series, Study,
    StudyError, Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "timestamps",
    what: "error of round trips, queue and goodput by who stamps packets, with hosts that are late",
    mirrors: "PNet: round trips by hardware timestamps; Swift: what is the fabric's delay",
    clock: Clock::Virtual,
    params: &[
        Param::words("sources", check_source, ["wire,kernel,call"; 3])
            .what("Who stamps packets: wire, kernel or call"),
        Param::counts(
            "jitter-us",
            "us",
            0..=10_000,
            ["0,100,1000", "0,10,100,1000", "0,1,10,100,1000"],
        )
        .what("How late hosts are at most"),
        Param::counts("noise-us", "us", 0..=5_000, ["0,5000"; 3]).what(
            "What devices declare of the noise of delays: none, as cards do that stamp packets, or \
             5000, as the userspace NIC does; by that the controller is chosen",
        ),
        Param::count("pings", "messages", 10..=1_000_000, ["300", "2000", "20000"])
            .what("Messages of which the error of the round trip is taken, on an idle network"),
        Param::count("senders", "hosts", 2..=100, ["8"; 3]).what("Senders to one receiver"),
        Param::size("message", 64..=8 << 20, ["1M"; 3])
            .what("Bytes of a message; each sender sends one after another"),
        Param::count("rate-gbps", "Gb/s", 1..=800, ["10"; 3]).what("Rate of every wire"),
        Param::count("rtt-us", "us", 2..=10_000, ["20"; 3]).what("Base round trip"),
        Param::count("span-ms", "ms", 1..=10_000, ["60", "200", "2000"])
            .what("What is measured of the senders, after half as long"),
        Param::word("held-to", check_held, ["each"; 3]).what(
            "Whose targets of the error all are held to: each its own, or wire, kernel, call",
        ),
        CONTROLLER,
    ],
    run,
};

/// Hosts that are later than this need longer windows than credit gives them.
const NOISY_JITTER_US_MAX: u64 = 100;

/// Where no noise is declared hosts may be late by so much without a loss: less than what Swift's
/// target leaves for a queue.
const EXACT_JITTER_US_MAX: u64 = 10;

/// Hosts that are so late are where stamps and calls are compared: by more than that target.
const COMPARED_JITTER_US: [u64; 1] = [100];

fn check_held(word: &str) -> Result<(), &'static str> {
    let is_known = word == "each" || Source::of(word).is_some();
    is_known.then_some(()).ok_or("each, wire, kernel or call")
}

fn check_source(word: &str) -> Result<(), &'static str> {
    Source::of(word).map(drop).ok_or("wire, kernel or call")
}

/// What one point came to.
struct Seen {
    source: Source,
    jitter_us: u64,
    noise_us: u64,
    /// By how much samples were longer than the network takes, in microseconds.
    error_us: Samples,
    crowd: IncastResult,
    end: RunEnd,
}

fn measure(crowd: &Crowd) -> Result<Seen, Cause> {
    let (pings, noise_us) = (crowd.pings, crowd.delay_noise.0 / 1_000);
    let (truth_us, idle, crowd) = (pings.truth_us()?, pings.run()?, crowd.run()?);
    let error_us = idle.rtt_us.values().iter().map(|rtt| rtt - truth_us).collect();
    let (mut end, of_crowd) = (idle.end, crowd.end.clone());
    let named =
        |traces: Vec<(&'static str, u64)>, name| traces.into_iter().map(move |at| (name, at.1));
    end.traces = named(end.traces, "pings").chain(named(of_crowd.traces, "senders")).collect();
    end.troubles.extend(of_crowd.troubles);
    let (source, jitter_us) = (pings.source, pings.jitter.0 / 1_000);
    Ok(Seen { source, jitter_us, noise_us, error_us, crowd, end })
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut points = Vec::new();
    for &noise_us in params.counts("noise-us") {
        for &jitter_us in params.counts("jitter-us") {
            let sources = params.words("sources").iter().filter_map(|word| Source::of(word));
            points.extend(sources.map(|source| crowd(params, source, jitter_us, noise_us)));
        }
    }
    let label = |point: &Crowd| {
        let Pings { source, jitter, .. } = point.pings;
        let (late_us, noise_us) = (jitter.0 / 1_000, point.delay_noise.0 / 1_000);
        format!("{}, late by {late_us} us, {noise_us} us of noise", source.name())
    };
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, measure, |seen| &seen.end)?;
    let seen: Vec<Seen> = seen.into_iter().map(|(_, seen)| seen).collect();
    report.claims = claims(&seen, Source::of(params.word("held-to")));
    report.tables = vec![table(&seen)];
    report.plots = plots(&seen);
    report.note(&[
        "error: of samples on an idle network, against what it takes where hosts take no time; \
         queue and goodput: of senders that share one port",
        &format!(
            "late: up to so much from the wire to who looks, evenly, and a {OUTWARD_PART}th of it \
             from the call to the wire; {KERNEL_PERCENT} % of either lie between the wire and the \
             kernel's stamp. An ack is written before it leaves: its own way out is known from \
             acks before it only"
        ),
        "noise: what devices declare, by which Swift for the data centre (none) or that for wires \
         that others share is chosen. Without any its target for the hosts' own delay is longer by \
         twice what hosts may be late: it would yield to late hosts as to slow ones",
    ]);
    Ok(report)
}

fn crowd(params: &Params, source: Source, jitter_us: u64, noise_us: u64) -> Crowd {
    let rate_bits_per_s = params.count("rate-gbps") * 1_000_000_000;
    let jitter = Nanos::from_micros(jitter_us);
    let (base_rtt, count) = (base_rtt_of(params), params.count("pings"));
    let controller = match params.word("controller") {
        "default" if noise_us == 0 => &format!("swift:endpoint={}us", 100 + 2 * jitter_us),
        word => word,
    };
    Crowd {
        pings: Pings { seed: params.seed, source, jitter, rate_bits_per_s, base_rtt, count },
        senders: params.count("senders") as usize,
        message_bytes: params.count("message") as u32,
        span: Nanos::from_millis(params.count("span-ms")),
        delay_noise: Nanos::from_micros(noise_us),
        controller: controller_of(controller).unwrap_or_default(),
    }
}

fn table(seen: &[Seen]) -> Table {
    let queue = |p| move |s: &Seen| s.crowd.queue_us.percentile(p);
    let error = |p| move |s: &Seen| s.error_us.percentile(p);
    Table::of("timestamps", "Who stamps packets, and late hosts", seen)
        .plain("noise_us", "noise", "us", |s| s.noise_us)
        .plain("jitter_us", "late", "us", |s| s.jitter_us)
        .plain("source", "stamps of", "", |s| s.source.name())
        .decimals(1, "error_least_us", "error: least", "us", error(0.0))
        .decimals(1, "error_median_us", "median", "us", error(0.5))
        .decimals(1, "error_p99_us", "p99", "us", error(0.99))
        .plain("samples", "samples", "", |s| s.error_us.len())
        .decimals(2, "goodput_gbps", "goodput", "Gb/s", |s| s.crowd.window.goodput() / 1e9)
        .percent(1, "used", "port used", |s| s.crowd.utilisation)
        .decimals(1, "queue_p50_us", "queue p50", "us", queue(0.5))
        .decimals(1, "queue_p99_us", "p99", "us", queue(0.99))
        .decimals(4, "jain", "Jain", "", |s| s.crowd.window.fairness())
        .plain("packets_dropped", "dropped", "packets", |s| s.crowd.packets_dropped)
        .done()
}

fn plots(seen: &[Seen]) -> Vec<Plot> {
    let mut noises: Vec<u64> = seen.iter().map(|s| s.noise_us).collect();
    noises.dedup();
    let of = |value: fn(&Seen) -> f64, noises: &[u64]| -> Vec<Series> {
        let kinds = noises.iter().flat_map(|&noise| Source::ALL.map(|source| (noise, source)));
        let series = kinds.filter_map(|(noise, source)| {
            let all = seen.iter().filter(|s| s.source == source && s.noise_us == noise);
            // A logarithmic axis has no zero.
            let points: Vec<_> = all.map(|s| (s.jitter_us.max(1) as f64, value(s))).collect();
            let name = format!("{}, {noise} us of noise", source.name());
            (!points.is_empty()).then(|| Series::new(name, Style::Line, points))
        });
        series.collect()
    };
    let late = || Axis::log("hosts late by up to", "us");
    vec![
        Plot {
            title: "how far samples of the round trip are off".to_owned(),
            x: late(),
            y: Axis::log("error, 99 of 100", "us"),
            series: of(|s| s.error_us.percentile(0.99).max(0.1), &noises[..1]),
        },
        Plot {
            title: "what is carried".to_owned(),
            x: late(),
            y: Axis::linear("goodput", "Gb/s"),
            series: of(|s| s.crowd.window.goodput() / 1e9, &noises),
        },
        Plot {
            title: "how long the queue of the port is".to_owned(),
            x: late(),
            y: Axis::linear("queue, 99 of 100", "us"),
            series: of(|s| s.crowd.queue_us.percentile(0.99), &noises),
        },
    ]
}

/// What may show of hosts that are late by up to so much, in microseconds: of samples, 99 of 100.
/// By stamps of the wire an ack's way out, less the least of late, is all that is left; by stamps
/// of the kernel what lies between them and the wire, too.
fn error_max_us(source: Source, jitter_us: u64) -> f64 {
    let late = jitter_us as f64;
    match source {
        Source::Wire => 1.0 + 0.11 * late,
        Source::Kernel => 2.0 + 0.35 * late,
        Source::Call => 10.0 + 2.2 * late,
    }
}

fn claims(seen: &[Seen], held_to: Option<Source>) -> Vec<Claim> {
    let mut claims = Vec::new();
    let first = seen.first().map(|s| s.noise_us);
    for s in seen {
        let (source, jitter_us) = (s.source.name(), s.jitter_us);
        let mut ask = |name: &str, what: &str, demand, measured, unit| {
            let name = format!("{name}_{source}_{jitter_us}");
            let what = format!("{what}, stamps of {source}, hosts late by {jitter_us} us");
            claims.push(Claim::new(name, what, demand, measured, unit, 1));
        };
        // Samples on an idle network are the same whatever is declared.
        if Some(s.noise_us) == first {
            let most = error_max_us(held_to.unwrap_or(s.source), jitter_us);
            let p99 = s.error_us.percentile(0.99);
            ask("error", "error, 99 of 100", Demand::AtMost(most), p99, "us");
            // Samples that are too short are taken for the path.
            let short = Demand::AtMost(1.0 + 0.1 * jitter_us as f64);
            ask("short", "samples too short by", short, -s.error_us.percentile(0.0), "us");
        }
        let used = s.crowd.utilisation * 100.0;
        if s.noise_us > 0 && jitter_us <= NOISY_JITTER_US_MAX {
            ask("used", "port used where noise is declared", Demand::AtLeast(90.0), used, "%");
        }
        if s.noise_us == 0 && s.source != Source::Call && jitter_us <= EXACT_JITTER_US_MAX {
            let queue = s.crowd.queue_us.percentile(0.99);
            ask("exact_used", "port used where none is", Demand::AtLeast(95.0), used, "%");
            ask("queue", "queue where none is, 99 of 100", Demand::AtMost(75.0), queue, "us");
        }
    }
    for &jitter_us in &COMPARED_JITTER_US {
        let carried = |source| {
            let is_it = |s: &&Seen| (s.source, s.jitter_us, s.noise_us) == (source, jitter_us, 0);
            seen.iter().find(is_it).map(|s| s.crowd.window.goodput())
        };
        let call = carried(Source::Call);
        for source in [Source::Wire, Source::Kernel] {
            if let (Some(ours), Some(call)) = (carried(source), call) {
                let name = format!("carried_{}_{jitter_us}", source.name());
                let what = format!(
                    "goodput by stamps of {}, of that by calls, hosts late by {jitter_us} us",
                    source.name()
                );
                let demand = Demand::AtLeast(3.0);
                claims.push(Claim::new(name, what, demand, ours / call, "times", 1));
            }
        }
    }
    claims
}
