//! Copper writes beside reads of Gold and Silver: interference control, and a fixed cap.
//!
//! The controller is the production one. The device is a model: its reads take as long as chance
//! has it, and longer by the square of what is written of its bandwidth.

use super::shown;
use towpath_base::{Nanos, Prng, Time};
use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Report, Runner, Study,
    StudyError, Table,
};
use towpath_qos::{Interference, InterferenceConfig};

pub(super) const STUDY: Study = Study {
    name: "interference copper",
    what: "reads of Gold and Silver while Copper writes: free, controlled, and under a fixed cap",
    mirrors: "Pangu and PNet, figure 18, storage: reads within 5 % beside a load of 39 %",
    clock: Clock::Virtual,
    params: &[LOADS, SECONDS, SLOWER, OTHERS],
    run,
};

const LOADS: Param = Param {
    name: "loads",
    what: "What Copper offers, of the bandwidth of the device",
    unit: "%",
    kind: Kind::Count(1..=100),
    many: true,
    defaults: ["39,100", "10,39,70,100", "10,20,39,55,70,85,100"],
};

const SECONDS: Param = Param {
    name: "seconds",
    what: "Seconds that are measured, after twenty",
    unit: "s",
    kind: Kind::Count(1..=3_600),
    many: false,
    defaults: ["20", "60", "600"],
};

const SLOWER: Param = Param {
    name: "slower",
    what: "How much slower reads are in the mean beside writes at all of the bandwidth",
    unit: "share",
    kind: Kind::Share(0.0..=1.0),
    many: false,
    defaults: ["25%"; 3],
};

const OTHERS: Param = Param {
    name: "others",
    what: "How much slower something else makes reads, that no class can help",
    unit: "share",
    kind: Kind::Share(0.0..=1.0),
    many: false,
    defaults: ["0%"; 3],
};

/// How much slower reads may be.
const SLOWER_MAX: f64 = 0.05;
/// At this load, in percent, Copper is to keep what it offers.
const LOAD: u64 = 39;
const WARM_UP: Nanos = Nanos::from_secs(20);

/// What the device writes in a millisecond: 400 MB/s.
const BYTES_PER_MS: u64 = 400_000;
/// Bytes of a write of Copper's, and how many late ones it gives up.
const WRITE: u64 = 16 << 10;
const LATE_MAX: u64 = 10;

/// Reads under way, by class: Gold's, then Silver's.
const READS: [usize; 2] = [1, 4];
/// What a read takes alone: so much, and so much more in the mean.
const LEAST_NS: f64 = 100_000.0;
const CHANCE_NS: f64 = 200_000.0;

/// How Copper is held.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// It does not write.
    Away,
    Free,
    /// By the controller, with these targets for the mean and the 99th percentile.
    Controlled([Nanos; 2]),
    /// To so many bytes a second.
    Cap(f64),
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// In nanoseconds, by class.
    reads: [Samples; 2],
    /// Of what Copper offered.
    kept: f64,
    /// Bytes a second.
    written: f64,
    cuts: u64,
}

impl Seen {
    fn hash(&self) -> u64 {
        let all = self.reads.iter().flat_map(|reads| reads.values());
        all.fold(self.written.to_bits(), |hash, read| hash.rotate_left(5) ^ read.to_bits())
    }
}

/// A run in steps of a millisecond.
fn measure(params: &Params, load: u64, held: Held) -> Seen {
    let targets = if let Held::Controlled(targets) = held { targets } else { [Nanos::ZERO; 2] };
    let config = InterferenceConfig::new(targets[0], targets[1]);
    let mut control = Interference::new(config, Time::ZERO);
    let (slower, others) = (params.share(SLOWER.name), params.share(OTHERS.name));
    // Of each read under way: whose it is, its own chance, and when it ends.
    let mut prng = Prng::new(params.seed);
    let classes = (0..READS.len()).flat_map(|class| [class].repeat(READS[class]));
    let mut slots: Vec<(usize, Prng, f64)> =
        classes.map(|class| (class, prng.fork(), 0.0)).collect();
    let (warm_up, measured) = (WARM_UP.0 / 1_000_000, params.count(SECONDS.name) * 1_000);
    let offered = if held == Held::Away { 0 } else { BYTES_PER_MS * load / 100 };
    let cap = if let Held::Cap(cap) = held { cap / 1e3 } else { f64::INFINITY };
    let (mut seen, mut owed, mut allowed, mut recent, mut written) =
        (Seen::default(), 0, 0.0, 0.0, 0);
    for ms in 1..=warm_up + measured {
        control.turn(Time::ZERO + Nanos::from_millis(ms));
        owed = (owed + offered).min(LATE_MAX * WRITE + offered);
        allowed = (allowed + cap).min(10.0 * cap.max(WRITE as f64));
        let mut bytes = 0;
        while owed >= WRITE && allowed >= WRITE as f64 && control.may_write(2) {
            control.wrote(2, WRITE);
            (owed, allowed, bytes) = (owed - WRITE, allowed - WRITE as f64, bytes + WRITE);
        }
        let is_measured = ms > warm_up;
        written += if is_measured { bytes } else { 0 };
        // What was written within some ten milliseconds.
        recent = recent * 0.9 + bytes as f64 * 0.1;
        let share = recent / BYTES_PER_MS as f64;
        let times = (1.0 + slower * share * share) * (1.0 + others);
        for (class, prng, ends) in &mut slots {
            while *ends < ms as f64 * 1e6 {
                let took = (LEAST_NS - (1.0 - prng.unit()).ln() * CHANCE_NS) * times;
                *ends += took;
                control.read(*class, Nanos(took as u64));
                if is_measured {
                    seen.reads[*class].add(took);
                }
            }
        }
    }
    seen.kept = written as f64 / (offered * measured).max(1) as f64;
    seen.written = written as f64 * 1e3 / measured as f64;
    seen.cuts = control.counts().cuts;
    seen
}

/// What one load came to: free, controlled, and under a cap of what was written under control.
struct Row {
    load: u64,
    seen: [Seen; 3],
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let quiet = measure(params, 0, Held::Away);
    let all: Samples = quiet.reads.iter().flat_map(|reads| reads.values()).copied().collect();
    let target = |of: f64| Nanos((of * (1.0 + SLOWER_MAX)) as u64);
    // The targets are of what reads take beside Gold and Silver alone, without what else may run.
    let alone = 1.0 + params.share(OTHERS.name);
    let targets = [all.mean() / alone, all.percentile(0.99) / alone].map(target);
    let rows = runner.map(params.counts(LOADS.name), |&load| {
        let [free, held] =
            [Held::Free, Held::Controlled(targets)].map(|held| measure(params, load, held));
        let capped = measure(params, load, Held::Cap(held.written));
        Ok::<_, StudyError>(Row { load, seen: [free, held, capped] })
    })?;
    report.trace("without Copper".to_owned(), quiet.hash());
    for row in &rows {
        let hash = row.seen.iter().fold(0, |hash: u64, seen| hash.rotate_left(1) ^ seen.hash());
        report.trace(format!("{} %", row.load), hash);
    }
    report.tables = vec![table(&quiet, &rows)];
    report.claims = rows.iter().flat_map(|row| claims(&quiet, row, params)).collect();
    report.notes = vec![
        "the controller is the production one; the device is a model: a read takes 100 us and by \
         chance 200 more in the mean, and is slower by the square of what is written of 400 MB/s. \
         How much slower, --slower says; what a device of yours does, `towpath bench classes \
         copper` measures"
            .to_owned(),
        format!(
            "the targets are {:.0} % over the mean and the 99th percentile without Copper; the cap \
             is what was written under control",
            SLOWER_MAX * 100.0
        ),
    ];
    Ok(report)
}

const SYSTEMS: [&str; 3] = ["free", "controlled", "fixed cap"];
const CLASSES: [&str; 2] = ["gold", "silver"];

/// How much slower a class's reads are than without Copper: mean and 99th percentile.
fn moved(quiet: &Seen, seen: &Seen, class: usize) -> [f64; 2] {
    let of = |seen: &Seen| [seen.reads[class].mean(), seen.reads[class].percentile(0.99)];
    let ([mean, p99], [quiet_mean, quiet_p99]) = (of(seen), of(quiet));
    [mean / quiet_mean - 1.0, p99 / quiet_p99 - 1.0]
}

fn table(quiet: &Seen, rows: &[Row]) -> Table {
    let percent = |name, head, unit| Column::new(name, head, unit, Format::Percent(2));
    let columns = vec![
        Column::new("load", "Copper offers", "%", Format::Plain),
        Column::new("system", "system", "", Format::Plain),
        Column::new("copper_mb_per_s", "it writes", "MB/s", Format::Decimals(1)),
        percent("kept", "of its offer", "%"),
        percent("gold_mean_moved", "Gold: mean", "% slower"),
        percent("gold_p99_moved", "p99", "% slower"),
        percent("silver_mean_moved", "Silver: mean", "% slower"),
        percent("silver_p99_moved", "p99", "% slower"),
        Column::new("cuts", "cuts", "", Format::Plain),
    ];
    let line = |(row, number): (&Row, usize)| -> Vec<Cell> {
        let seen = &row.seen[number];
        let mut cells: Vec<Cell> = vec![
            row.load.into(),
            SYSTEMS[number].into(),
            (seen.written / 1e6).into(),
            seen.kept.into(),
        ];
        let moved = (0..CLASSES.len()).flat_map(|class| moved(quiet, seen, class));
        cells.extend(moved.map(Cell::from));
        cells.push(seen.cuts.into());
        cells
    };
    let each = rows.iter().flat_map(|row| (0..SYSTEMS.len()).map(move |number| (row, number)));
    let title = "Reads beside Copper's writes".to_owned();
    Table { name: "copper", title, columns, rows: each.map(line).collect() }
}

fn claims(quiet: &Seen, row: &Row, params: &Params) -> Vec<Claim> {
    let [_, held, capped] = &row.seen;
    let mut claims = Vec::new();
    let load = row.load;
    let mut add = |name: String, what: String, demand, measured: f64| {
        let measured = (measured * 100.0, "%", 2);
        claims.push(shown::claim((&name, load as usize), what, demand, measured));
    };
    if load == LOAD {
        let what = format!("Copper writes of what it offers, {load} %, controlled");
        add("copper".into(), what, Demand::AtLeast(90.0), held.kept);
    }
    for (class, name) in CLASSES.into_iter().enumerate() {
        let [held, capped] = [held, capped].map(|seen| moved(quiet, seen, class));
        for (at, signal) in ["mean", "p99"].into_iter().enumerate() {
            // Beyond that load chance and the search for the rate are on top of the target.
            let most = if load <= LOAD { SLOWER_MAX } else { SLOWER_MAX + 0.02 } * 100.0;
            if params.share(OTHERS.name) == 0.0 {
                let what = format!("{name}, {signal}, Copper at {load} %, controlled, slower");
                add(format!("{name}_{signal}"), what, Demand::AtMost(most), held[at]);
            }
            let what = format!("{name}, {signal}, Copper at {load} %, over a cap of as much");
            let over = held[at] - capped[at];
            add(format!("{name}_{signal}_over_cap"), what, Demand::AtMost(2.0), over);
        }
    }
    claims
}
