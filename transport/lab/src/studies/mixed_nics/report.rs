//! The study: what each make of card gets, over RC and over Towpath.

use super::{MixedNics, MixedResult, SenderMake, Shares};
use crate::nic::{DcqcnConfig, Repair};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::Nanos;
use towpath_sim::world::EcnConfig;

/// The study.
pub const STUDY: Study = Study {
    name: "mixed-nics",
    what: "fast and slow network cards in one cluster: RC, RC with DCQCN, and Towpath",
    mirrors: "PNet figure 16 (41 against 31 Gb/s under RC, 38 each); Flor's 24.3 % to 1.3 %",
    clock: Clock::Virtual,
    params: &[
        Param::counts("hosts", "hosts", 1..=64, ["2", "2,4", "2,4,8"])
            .what("Senders of each make; they share three receivers for every four of them"),
        Param::count("rate-gbps", "Gb/s", 1..=800, ["50"; 3]).what("Rate of every port"),
        Param::count("slow-gbps", "Gb/s", 0..=800, ["0"; 3]).what(
            "Rate of the ports of slow senders where it is another; a receiver's is then the mean \
             of both",
        ),
        Param::count("span-ms", "ms", 1..=1_000, ["5", "10", "50"])
            .what("What is measured, after half as long; over RC after 40 ms"),
        Param { defaults: ["swift"; 3], ..CONTROLLER },
        Param::count("fast-window", "packets", 1..=4_096, ["32"; 3])
            .what("Packets that an RC queue pair of the fast make keeps under way"),
        Param::count("slow-window", "packets", 1..=4_096, ["24"; 3])
            .what("The same of the slow make"),
        Param::word("fast-repair", check_repair, ["window"; 3])
            .what("What RC of the fast make sends again: the window, the message or the packet"),
        Param::word("slow-repair", check_repair, ["window"; 3]).what("The same of the slow make"),
        Param::count("fast-timeout", "", 1..=31, ["8"; 3])
            .what("Retry timer of the fast make: 4.096 us times 2 to this power"),
        Param::count("slow-timeout", "", 1..=31, ["8"; 3]).what("The same of the slow make"),
        Param::count("fast-alpha-us", "us", 1..=100_000, ["55"; 3])
            .what("DCQCN of the fast make: alpha decays each time so long has no notification"),
        Param::count("slow-alpha-us", "us", 1..=100_000, ["55"; 3])
            .what("The same of the slow make"),
        Param::count("fast-rise-us", "us", 1..=100_000, ["55"; 3])
            .what("DCQCN of the fast make: the rate increases each time after so long"),
        Param::count("slow-rise-us", "us", 1..=100_000, ["55"; 3])
            .what("The same of the slow make"),
        Param::count("notify-us", "us", 1..=100_000, ["50"; 3])
            .what("DCQCN: the least time between two notifications to a queue pair"),
        Param::share("gain", 1e-6..=1.0, ["1/256"; 3])
            .what("DCQCN: the weight of one notification in alpha"),
        Param::size("rise-bytes", 1..=1 << 40, ["10000000"; 3])
            .what("DCQCN: the rate increases after so many bytes, too"),
        Param::count("recovery", "steps", 0..=100, ["5"; 3])
            .what("DCQCN: increases of fast recovery"),
        Param::count("add-mbps", "Mb/s", 1..=100_000, ["40"; 3])
            .what("DCQCN: what an additive increase adds"),
        Param::count("hyper-mbps", "Mb/s", 1..=100_000, ["400"; 3])
            .what("DCQCN: what the first hyper increase adds"),
        Param::size("ecn-min", 0..=1 << 30, ["5000"; 3])
            .what("The switch marks nothing below so many bytes in a queue"),
        Param::size("ecn-max", 1..=1 << 30, ["200000"; 3])
            .what("The switch marks everything from so many bytes in a queue"),
        Param::share("ecn-share", 0.0..=1.0, ["1%"; 3])
            .what("What the switch marks just below that"),
    ],
    run,
};

fn repair_of(word: &str) -> Option<Repair> {
    match word {
        "window" => Some(Repair::Window),
        "message" => Some(Repair::Message),
        "packet" => Some(Repair::Packet),
        _ => None,
    }
}

fn check_repair(word: &str) -> Result<(), &'static str> {
    repair_of(word).map(|_| ()).ok_or("window, message or packet")
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let points: Vec<MixedNics> =
        params.counts("hosts").iter().map(|&hosts| point(params, hosts)).collect();
    let label = |point: &MixedNics| format!("{} senders of each make", point.hosts_each);
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, MixedNics::run, |result| &result.end)?;
    report.tables = vec![table(&seen)];
    report.plots = vec![plot(&seen)];
    report.claims = claims(&seen);
    report.notes = notes(&seen);
    Ok(report)
}

fn point(params: &Params, hosts: u64) -> MixedNics {
    let controller = controller_of(params.word("controller")).unwrap_or_default();
    let base = MixedNics::new(params.seed, controller);
    let dcqcn = |alpha, rise| DcqcnConfig {
        notify_every: Nanos::from_micros(params.count("notify-us")),
        gain: params.share("gain"),
        alpha_timer: Nanos::from_micros(params.count(alpha)),
        rate_timer: Nanos::from_micros(params.count(rise)),
        rate_bytes: params.count("rise-bytes"),
        recovery_steps: params.count("recovery") as u32,
        additive_bits_per_s: params.count("add-mbps") as f64 * 1e6,
        hyper_bits_per_s: params.count("hyper-mbps") as f64 * 1e6,
        ..DcqcnConfig::default()
    };
    let (mut fast, mut slow) = (base.fast, base.slow);
    let rate = params.count("rate-gbps");
    let slow_rate = Some(params.count("slow-gbps")).filter(|&gbps| gbps > 0).unwrap_or(rate);
    for (make, rate, names) in [
        (&mut fast, rate, ["fast-window", "fast-repair", "fast-timeout"]),
        (&mut slow, slow_rate, ["slow-window", "slow-repair", "slow-timeout"]),
    ] {
        let [window, repair, timeout] = names;
        make.rate_bits_per_s = rate * 1_000_000_000;
        make.nic.rc_window_packets = params.count(window) as u32;
        make.repair = repair_of(params.word(repair)).unwrap_or(make.repair);
        make.nic.rc_timeout = params.count(timeout) as u8;
    }
    fast.dcqcn = dcqcn("fast-alpha-us", "fast-rise-us");
    slow.dcqcn = dcqcn("slow-alpha-us", "slow-rise-us");
    let p_max_ppm = (params.share("ecn-share") * 1e6) as u32;
    let (min_bytes, max_bytes) = (params.count("ecn-min"), params.count("ecn-max"));
    MixedNics {
        hosts_each: hosts as usize,
        fast,
        slow,
        ecn: EcnConfig { min_bytes, max_bytes, p_max_ppm },
        warm_up: Nanos::from_micros(params.count("span-ms") * 500),
        span: Nanos::from_millis(params.count("span-ms")),
        ..base
    }
}

fn claims(seen: &[(MixedNics, MixedResult)]) -> Vec<Claim> {
    let least = |of: &dyn Fn(&MixedResult) -> f64| {
        seen.iter().map(|(_, result)| of(result)).fold(f64::INFINITY, f64::min)
    };
    let of_best = least(&|result| result.towpath.sum() / result.rc.sum().max(result.dcqcn.sum()));
    let what = "goodput over Towpath, of the best of both kinds of RC, least";
    let mut claims = vec![Claim::percent("towpath_of_best", what, Demand::AtLeast(95.0), of_best)];
    let are_equal = |(point, _): &(MixedNics, MixedResult)| {
        point.fast.rate_bits_per_s == point.slow.rate_bits_per_s
    };
    if seen.iter().all(are_equal) {
        let widest = -least(&|result| -result.towpath.gap()) * 100.0;
        let what = "gap between the makes over Towpath, widest";
        claims.push(Claim::new("towpath_gap", what, Demand::AtMost(1.3), widest, "%", 2));
    } else {
        let fair = least(&|result| result.towpath.of_fair[0].min(result.towpath.of_fair[1]));
        let what = "what the worse make has over Towpath, of its fair share, least";
        claims.push(Claim::percent("towpath_of_fair", what, Demand::AtLeast(90.0), fair));
    }
    claims
}

fn notes(seen: &[(MixedNics, MixedResult)]) -> Vec<String> {
    let make = |make: &SenderMake| {
        let (delay, rate) = (make.nic.host_delay, make.rate_bits_per_s / 1_000_000_000);
        let (least, most) = (delay.fixed.0, delay.fixed.0 + delay.jitter.0);
        format!(
            "{rate} Gb/s, {least} to {most} ns in the host each way, RC queue pairs of {} packets",
            make.nic.rc_window_packets
        )
    };
    let mut notes = vec![
        "the cards under RC are a model (Towpath runs its own code): the makes differ in what the \
         parameters name, so what separates them under RC follows from the parameters"
            .to_owned(),
        "fair: what a max-min fair network gives a sender of the line, headers included".to_owned(),
    ];
    if let Some((point, _)) = seen.first() {
        notes.push(format!("fast: {}; slow: {}", make(&point.fast), make(&point.slow)));
    }
    notes
}

fn table(seen: &[(MixedNics, MixedResult)]) -> Table {
    let of = |(point, result): &(MixedNics, MixedResult)| {
        let MixedResult { rc, dcqcn, towpath, .. } = result;
        [("RC", *rc), ("RC, DCQCN", *dcqcn), ("Towpath", *towpath)]
            .map(|(over, shares)| (point.hosts_each, over, shares))
    };
    let rows: Vec<(usize, &str, Shares)> = seen.iter().flat_map(of).collect();
    Table::of("shares", "What a sender of each make sends", &rows)
        .plain("hosts_each", "senders of each", "", |&(hosts, ..)| hosts)
        .plain("transport", "over", "", |&(_, over, _)| over)
        .decimals(2, "fast_gbps", "fast", "Gb/s", |(.., shares)| shares.fast / 1e9)
        .decimals(2, "slow_gbps", "slow", "Gb/s", |(.., shares)| shares.slow / 1e9)
        .percent(1, "fast_of_fair", "fast: of fair", |(.., shares)| shares.of_fair[0])
        .percent(1, "slow_of_fair", "slow: of fair", |(.., shares)| shares.of_fair[1])
        .percent(2, "gap", "gap", |(.., shares)| shares.gap())
        .decimals(4, "jain", "Jain of senders", "", |(.., shares)| shares.fairness)
        .plain("packets_dropped", "dropped", "packets", |&(.., shares)| shares.dropped)
        .percent(2, "retransmitted", "again", |&(.., shares)| shares.again)
        .done()
}

fn plot(seen: &[(MixedNics, MixedResult)]) -> Plot {
    let line = |label: &str, goodput: &dyn Fn(&MixedResult) -> f64| {
        let points = seen.iter().map(|(p, r)| (p.hosts_each as f64, goodput(r) / 1e9));
        Series::new(label, Style::Line, points)
    };
    Plot {
        title: "fast and slow cards in one cluster".to_owned(),
        x: Axis::linear("senders of each make", ""),
        y: Axis::linear("goodput of a sender", "Gb/s"),
        series: vec![
            line("RC, fast", &|result| result.rc.fast),
            line("RC, slow", &|result| result.rc.slow),
            line("RC with DCQCN, fast", &|result| result.dcqcn.fast),
            line("RC with DCQCN, slow", &|result| result.dcqcn.slow),
            line("Towpath, fast", &|result| result.towpath.fast),
            line("Towpath, slow", &|result| result.towpath.slow),
        ],
    }
}
