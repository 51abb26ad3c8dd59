//! The study: which loads are run, and what is asked of them.

use super::{Classes, ClassesResult, Meeting};
use crate::cluster::Samples;
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::wire::{BASE_RTT, RATE_BITS_PER_S, base_rtt_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "classes",
    what: "online requests (Gold) beside an offline background (Copper), with classes and without",
    mirrors: "PNet figure 18: latency within 5 % beside a background of 39 % of the link",
    clock: Clock::Virtual,
    params: &[
        Param::shares("loads", 0.0..=1.0, ["39%", LOADS, LOADS])
            .what("What Copper offers of every link; 0 is run in any case, to compare with"),
        Param::words(
            "meetings",
            |word| meeting_of(word).map(drop),
            ["strict,one", "strict,one", "strict,weighted,one"],
        )
        .what("strict or weighted: links and queues of their own; one: the same for both"),
        Param::sizes("gold-sizes", 64..=1 << 20, ["4K,16K,64K"; 3])
            .what("Bytes of the messages of Gold, as many of each"),
        Param::share("gold-load", 0.001..=0.5, ["5%"; 3]).what("What Gold offers of every link"),
        Param::size("copper-size", 64..=8 << 20, ["128K"; 3]).what("Bytes of a message of Copper"),
        Param::count("hosts", "hosts", 2..=64, ["4", "4", "8"])
            .what("Hosts on one switch; each sends both to every other"),
        BASE_RTT,
        Param::count("span-ms", "ms", 1..=10_000, ["10", "50", "500"])
            .what("What is measured, after a tenth as long"),
        Param { defaults: ["swift"; 3], ..CONTROLLER },
    ],
    run,
};

const LOADS: &str = "10%,20%,30%,39%,50%,60%,70%,80%,90%,100%";

/// What the published background reached, of the link; and how far latency moved then.
const PUBLISHED_LOAD: f64 = 0.39;
const PUBLISHED_MOVE: f64 = 0.05;

fn meeting_of(word: &str) -> Result<Meeting, &'static str> {
    match word {
        "strict" => Ok(Meeting::Strict),
        "weighted" => Ok(Meeting::Weighted),
        "one" => Ok(Meeting::OneClass),
        _ => Err("strict, weighted or one"),
    }
}

/// A run beside the one of the same meeting without a background.
struct Seen<'a> {
    meeting: &'a str,
    load: f64,
    result: &'a ClassesResult,
    alone: &'a ClassesResult,
}

impl Seen<'_> {
    /// How far a figure of Gold moved, of what it is alone.
    fn moved(&self, of: impl Fn(&Samples) -> f64) -> f64 {
        of(&self.result.gold_us) / of(&self.alone.gold_us) - 1.0
    }
}

fn p99(samples: &Samples) -> f64 {
    samples.percentile(0.99)
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let loads: Vec<f64> = [0.0]
        .into_iter()
        .chain(params.shares("loads").iter().copied().filter(|load| *load > 0.0))
        .collect();
    let meetings = params.words("meetings");
    let points: Vec<(&str, Classes)> = meetings
        .iter()
        .flat_map(|word| {
            loads.iter().map(move |&load| (word.as_str(), classes(params, word, load)))
        })
        .collect();
    let label = |(word, point): &(&str, Classes)| {
        format!("{word}, Copper offers {:.0} %", point.copper_load * 100.0)
    };
    let mut report = Report::new(STUDY.name, params);
    let run = |point: &(&str, Classes)| point.1.run();
    let results = report.run(runner, points, label, run, |result| &result.end)?;
    let seen: Vec<Seen<'_>> = results
        .iter()
        .enumerate()
        .map(|(place, ((meeting, point), result))| {
            let alone = &results[place - place % loads.len()].1;
            Seen { meeting, load: point.copper_load, result, alone }
        })
        .collect();
    report.tables = vec![table(&seen), by_bytes(&seen, params.counts("gold-sizes"))];
    report.plots = vec![plot("mean", &seen, Samples::mean), plot("99th percentile", &seen, p99)];
    report.claims = claims(&seen);
    report.notes = vec![
        "a message of Gold takes from its sending to the word that it is delivered; moved: of \
         what it takes without Copper, whose runs have the same messages of Gold"
            .to_owned(),
        "what a packet of Gold waits for with strict priority is the packet that is being sent \
         when it comes: up to 0.33 us at each port at 100 Gb/s"
            .to_owned(),
        format!(
            "published (PNet, figure 18): online search within {:.0} % beside offline training at \
             {:.0} % of the link; on hardware, storage included",
            PUBLISHED_MOVE * 100.0,
            PUBLISHED_LOAD * 100.0
        ),
    ];
    Ok(report)
}

fn classes(params: &Params, word: &str, copper_load: f64) -> Classes {
    let span = Nanos::from_millis(params.count("span-ms"));
    Classes {
        seed: params.seed,
        controller: controller_of(params.word("controller")).unwrap_or_default(),
        meeting: meeting_of(word).expect("words were checked when they were read"),
        hosts: params.count("hosts") as usize,
        gold_bytes: params.counts("gold-sizes").iter().map(|&bytes| bytes as u32).collect(),
        gold_load: params.share("gold-load"),
        copper_bytes: params.count("copper-size") as u32,
        copper_load,
        rate_bits_per_s: RATE_BITS_PER_S,
        base_rtt: base_rtt_of(params),
        warm_up: Nanos(span.0 / 10),
        span,
    }
}

fn table(seen: &[Seen<'_>]) -> Table {
    Table::of("classes", "Gold beside Copper", seen)
        .plain("meeting", "meeting", "", |seen| seen.meeting)
        .percent(0, "copper_offered", "Copper offers", |seen| seen.load)
        .percent(1, "copper_carried", "carried", |seen| seen.result.copper_carried)
        .decimals(2, "gold_mean_us", "Gold, mean", "us", |seen| seen.result.gold_us.mean())
        .percent(1, "gold_mean_moved", "moved", |seen| seen.moved(Samples::mean))
        .decimals(2, "gold_p99_us", "Gold, p99", "us", |seen| p99(&seen.result.gold_us))
        .percent(1, "gold_p99_moved", "moved", |seen| seen.moved(p99))
        .plain("gold_messages", "messages", "", |seen| seen.result.gold_us.count())
        .plain("gold_refused", "refused", "", |seen| seen.result.gold_skipped)
        .plain("packets_dropped", "dropped", "packets", |seen| seen.result.packets_dropped)
        .done()
}

fn by_bytes(seen: &[Seen<'_>], sizes: &[u64]) -> Table {
    // At no background, at the published one, and at the most.
    let most = seen.iter().map(|seen| seen.load).fold(0.0, f64::max);
    let is_told = |load: f64| load == 0.0 || load == PUBLISHED_LOAD || load == most;
    let of_size = |(place, &bytes): (usize, &u64)| {
        let told = seen.iter().filter(|seen| is_told(seen.load));
        told.map(move |seen| (seen, bytes, &seen.result.gold_us_by_bytes[place]))
    };
    let rows: Vec<_> = sizes.iter().enumerate().flat_map(of_size).collect();
    Table::of("by_size", "Gold by its length", &rows)
        .plain("meeting", "meeting", "", |(seen, ..)| seen.meeting)
        .bytes("gold_bytes", "Gold", |&(_, bytes, _)| bytes)
        .percent(0, "copper_offered", "Copper offers", |(seen, ..)| seen.load)
        .decimals(2, "gold_mean_us", "mean", "us", |(.., us)| us.mean())
        .decimals(2, "gold_p99_us", "p99", "us", |(.., us)| p99(us))
        .done()
}

fn plot(what: &str, seen: &[Seen<'_>], of: impl Fn(&Samples) -> f64) -> Plot {
    let line = |meeting: &str| {
        let label = match meeting {
            "one" => "one class".to_owned(),
            turns => format!("classes, {turns}"),
        };
        let points = seen.iter().filter(|seen| seen.meeting == meeting);
        let points = points.map(|seen| (seen.load * 100.0, of(&seen.result.gold_us)));
        Series::new(label, Style::Line, points)
    };
    let mut meetings: Vec<&str> = seen.iter().map(|seen| seen.meeting).collect();
    meetings.dedup();
    let target = seen.first().map(|first| {
        let most = of(&first.alone.gold_us) * (1.0 + PUBLISHED_MOVE);
        let points = [(0.0, most), (PUBLISHED_LOAD * 100.0, most)];
        Series::new("published: 5 % more at 39 %", Style::Bound, points)
    });
    Plot {
        title: format!("what a message of Gold takes, {what}"),
        x: Axis::linear("Copper offers, of every link", "%").range(0.0, 100.0),
        y: Axis::log("time to the word of delivery", "us"),
        series: meetings.into_iter().map(line).chain(target).collect(),
    }
}

/// Of the first way in which they meet, where the published background was run.
fn claims(seen: &[Seen<'_>]) -> Vec<Claim> {
    let first = seen.first().map_or("", |seen| seen.meeting);
    let Some(seen) = seen.iter().find(|seen| seen.meeting == first && seen.load == PUBLISHED_LOAD)
    else {
        return Vec::new();
    };
    let most = Demand::AtMost(PUBLISHED_MOVE * 100.0);
    // Less than all: the last messages of the measured time are still to come.
    let carried = Demand::AtLeast(95.0);
    let of_offered = seen.result.copper_carried / seen.result.copper_offered;
    let refused = seen.result.gold_skipped as f64 / seen.result.gold_us.count().max(1) as f64;
    vec![
        Claim::percent(
            "gold_mean_moved",
            "Gold's mean at 39 % Copper",
            most,
            seen.moved(Samples::mean),
        ),
        Claim::percent("gold_p99_moved", "Gold's p99 at 39 % Copper", most, seen.moved(p99)),
        Claim::percent("copper_carried", "Copper carried, of what it offers", carried, of_offered),
        Claim::percent("gold_refused", "messages of Gold not sent", Demand::AtMost(0.0), refused),
    ]
}
