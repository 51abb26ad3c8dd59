//! Switches that swallow packets: I/Os and paths with rerouting on, beside off.

use super::outage::{
    EVERY, Fault, HOSTS, LATE, Outage, OutageResult, PATHS, SLOW, ms, recovery_bound,
};
use super::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use crate::cluster::PathMove;
use towpath_base::{Nanos, Time};

/// The study.
pub const STUDY: Study = Study {
    name: "blackhole",
    what: "switches that swallow packets: I/Os that wait, with rerouting on and off",
    mirrors: "PNet figures 13 and 14(d): slow I/Os under black holes, ten times fewer",
    clock: Clock::Virtual,
    params: &[
        Param::words("faults", is_fault, ["spine,reverse,congestion", ALL_FAULTS, ALL_FAULTS])
            .what("spine, forward, reverse, flap, all-but-one, rack, congestion"),
        PATHS,
        // Of the few links of a quick run, one in three meets what is broken.
        Param::count("spines", "switches", 2..=64, ["3", "16", "16"])
            .what("Ways from leaf to leaf"),
        HOSTS,
        EVERY,
        Param::count("span-ms", "ms", 10..=60_000, ["1500", "2000", "5000"])
            .what("How long it stays broken"),
    ],
    run,
};

const ALL_FAULTS: &str = "spine,forward,reverse,flap,all-but-one,rack,congestion";

/// What is whole before it breaks: channels are open then, and round trips known.
const BEFORE: Nanos = Nanos::from_millis(100);

/// Points of a plot, one for each of these.
const STEP: Nanos = Nanos::from_millis(20);

fn is_fault(name: &str) -> Result<(), &'static str> {
    Fault::named(name)
        .map(|_| ())
        .ok_or("spine, forward, reverse, flap, all-but-one, rack or congestion")
}

struct Point {
    name: String,
    outage: Outage,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut points = Vec::new();
    for name in params.words("faults") {
        let Some(fault) = Fault::named(name) else { continue };
        for paths in [params.count("paths") as usize, 1] {
            let outage = Outage {
                seed: params.seed,
                fault,
                paths,
                spines: params.count("spines") as usize,
                hosts: params.count("hosts") as usize,
                every: Nanos::from_micros(params.count("every-us")),
                start: Time::ZERO + BEFORE,
                span: Nanos::from_millis(params.count("span-ms")),
            };
            points.push(Point { name: name.clone(), outage });
        }
    }
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, |point| point.outage.run(), |r| &r.end)?;
    report.tables = vec![table(&seen)];
    report.plots = seen.chunks(2).map(plot).collect();
    report.claims = seen.chunks(2).flat_map(claims).collect();
    report.notes = seen.chunks(2).filter_map(unmet).collect();
    report.note(&[
        "an I/O is a write of 4 KiB; its answer is the word that it is delivered; one that a \
         client turned away, because 1,024 waited for the link, counts as never answered",
        "off: one path a link and one source port, and the fabric decides; routes do not change \
         while something is broken",
        "a path in doubt is left until a probe on it is answered; one that is put away into \
         quarantine is left for a second or more; of a link: of one of its ends, the most",
    ]);
    Ok(report)
}

fn label(point: &Point) -> String {
    format!("{}, rerouting {}", point.name, point.outage.rerouting())
}

fn table(seen: &[(Point, OutageResult)]) -> Table {
    Table::of("outages", "I/Os while something is broken", seen)
        .plain("fault", "fault", "", |(point, _)| point.name.as_str())
        .plain("rerouting", "rerouting", "", |(point, _)| point.outage.rerouting())
        .plain("ios", "I/Os", "", |(_, r)| r.ios())
        .plain("ios_above_10ms", "above 10 ms", "", |(_, r)| r.above(LATE))
        .plain("ios_above_1s", "above 1 s", "", |(_, r)| r.above(SLOW))
        .plain("ios_refused", "refused", "", |(_, r)| r.refused)
        .decimals(2, "longest_ms", "longest", "ms", |(_, r)| ms(r.longest()))
        .decimals(2, "over_after_ms", "over after", "ms", |(_, r)| ms(r.over_after()))
        .plain("links", "links", "", |(_, r)| r.links)
        .plain("links_above_10ms", "above 10 ms", "", |(_, r)| r.links_above(LATE))
        .plain("doubts", "doubts", "", |(_, r)| r.doubts())
        .plain("doubts_per_link_and_s", "of a link in 1 s", "", |(_, r)| {
            r.in_a_second(PathMove::is_doubt)
        })
        .plain("put_away", "put away", "", |(_, r)| r.put_away())
        .plain("put_away_per_link_and_s", "of a link in 1 s", "", |(_, r)| {
            r.in_a_second(PathMove::is_put_away)
        })
        .done()
}

fn plot(pair: &[(Point, OutageResult)]) -> Plot {
    let series = pair.iter().map(|(point, result)| {
        let label = format!("rerouting {}", point.outage.rerouting());
        Series::new(label, Style::Line, result.longest_by_step(STEP))
    });
    Plot {
        title: format!("{}: longest answer of the I/Os of 20 ms", pair[0].0.name),
        x: Axis::linear("sent at", "ms"),
        y: Axis::log("longest answer", "ms"),
        series: series.collect(),
    }
}

/// Says so where no link without rerouting met a fault that swallows packets: links with rerouting
/// use more ways, so some of them did meet it, and the two runs must not be compared.
fn unmet(pair: &[(Point, OutageResult)]) -> Option<String> {
    let [(point, _), (_, off)] = pair else { return None };
    let is_unmet = point.outage.fault != Fault::Congestion && off.above(LATE) == 0;
    is_unmet.then(|| {
        format!(
            "{}: no packet of a link with rerouting off came to the broken part, so these runs do \
             not compare rerouting on and off; more --hosts or fewer --spines make it likelier",
            point.name
        )
    })
}

/// What is asked of a fault, of its runs with rerouting on and off.
fn claims(pair: &[(Point, OutageResult)]) -> Vec<Claim> {
    let [(point, on), (_, off)] = pair else { return Vec::new() };
    let claim = |name: &str, what: &str, demand, measured, unit, decimals| {
        let name = format!("{name}_{}", point.name.replace('-', "_"));
        Claim::new(name, format!("{}: {what}", point.name), demand, measured, unit, decimals)
    };
    let recovered = claim(
        "longest_ms",
        "longest answer, two ticks and two round trips",
        Demand::AtMost(ms(recovery_bound())),
        ms(on.longest()),
        "ms",
        2,
    );
    let slow = claim("slow", "I/Os above 1 s", Demand::AtMost(0.0), on.above(SLOW) as f64, "", 0);
    // A fault that no link without rerouting met by its hash says nothing of what that would be.
    let met = off.above(LATE);
    let times = met as f64 / on.above(LATE).max(1) as f64;
    let what = "I/Os above 10 ms, off by on";
    let fewer = claim("fewer_late", what, Demand::AtLeast(10.0), times, "times", 1);
    let fewer = if met > 0 || on.above(LATE) > 0 { vec![fewer] } else { Vec::new() };
    // With a path in doubt, what is in flight there goes another way.
    let calm = |what: &str, changes| {
        claim("path_changes", what, Demand::AtMost(1.0), changes as f64, "", 0)
    };
    let (put_away, doubted) =
        (on.in_a_second(PathMove::is_put_away), on.in_a_second(PathMove::is_doubt));
    match point.outage.fault {
        Fault::Spine | Fault::Forward | Fault::Reverse => [vec![recovered, slow], fewer].concat(),
        Fault::Flap => {
            [vec![slow, calm("paths that a link put away within 1 s", put_away)], fewer].concat()
        }
        Fault::AllButOne => [vec![slow], fewer].concat(),
        // There is no other way: what can be asked is that nobody looks for one in vain.
        Fault::Rack => vec![calm("paths that a link put away within 1 s", put_away)],
        Fault::Congestion => vec![slow, calm("paths that a link left within 1 s", doubted)],
        Fault::OneByOne { .. } => Vec::new(),
    }
}
