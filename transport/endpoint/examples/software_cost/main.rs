//! What the software adds to raw verbs, on the device in memory: per message and per chunk.
//!
//! Raw verbs and reliable links take turns, round by round, in one process; what is told are
//! medians and their spread over the rounds. How to read it: `docs/bench-method.md`, "The cost of
//! the software".
//!
//! `cargo run --profile dist -p towpath-transport --features mem --example software_cost`

mod case;
mod controllers;
mod raw;
mod reliable;
mod report;

use case::{CASES, Case, Cost};
use clap::Parser;
use report::{Figure, Report};
use std::error::Error;

/// Measures the cost of the software above raw verbs.
#[derive(Parser)]
struct Args {
    /// Rounds that count; one more goes before them.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Percent of the usual amount of work in each round.
    #[arg(long, default_value_t = 100)]
    work: u64,
    /// Run only cases whose name starts so.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave raw verbs out: for a profile of the rest.
    #[arg(long)]
    no_raw: bool,
    /// Beside links of one path, measure such of so many in the same rounds.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=16))]
    paths: Option<u8>,
    /// With --paths: leave the links of one path out, to count instructions of the others.
    #[arg(long, requires = "paths")]
    only_many: bool,
    /// Print one JSON object in place of a table.
    #[arg(long)]
    json: bool,
}

/// One case with both of its sides set up.
struct Bench {
    case: Case,
    raw: Option<raw::Raw>,
    reliable: Option<reliable::Pair>,
    many: Option<reliable::Pair>,
    raw_costs: Vec<Cost>,
    costs: Vec<Cost>,
    many_costs: Vec<Cost>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let chosen = |name: &str| name.starts_with(&args.only);
    let mut benches = Vec::new();
    for case in CASES.into_iter().filter(|case| chosen(case.name)) {
        let of_paths = |paths| reliable::Pair::new(&Case { paths, ..case });
        benches.push(Bench {
            case,
            raw: if args.no_raw { None } else { Some(raw::Raw::new(&case)?) },
            reliable: if args.only_many { None } else { Some(of_paths(1)?) },
            many: args.paths.map(|paths| of_paths(usize::from(paths))).transpose()?,
            raw_costs: Vec::new(),
            costs: Vec::new(),
            many_costs: Vec::new(),
        });
    }
    let mut alone = chosen("alone").then(reliable::Alone::new).transpose()?;
    let mut alone_costs = Vec::new();
    for round in 0..=args.rounds {
        for bench in &mut benches {
            let chunks = bench.case.chunks_of_round * args.work / 100;
            let raw = bench.raw.as_mut().map(|raw| raw.run(chunks));
            let reliable = bench.reliable.as_mut().map(|pair| pair.run(chunks));
            let many = bench.many.as_mut().map(|pair| pair.run(chunks));
            // The first round finds cold caches and untouched memory.
            if round > 0 {
                bench.raw_costs.extend(raw);
                bench.costs.extend(reliable);
                bench.many_costs.extend(many);
            }
        }
        if let Some(alone) = &mut alone {
            let cost = alone.run(200 * args.work);
            if round > 0 {
                alone_costs.push(cost);
            }
        }
    }
    let mut report = Report::default();
    for bench in &benches {
        if !bench.costs.is_empty() {
            report.add_case(&bench.case, &bench.raw_costs, &bench.costs);
        }
        if let Some(paths) = args.paths {
            report.add_paths(&bench.case, paths, &bench.costs, &bench.many_costs);
        }
    }
    if !alone_costs.is_empty() {
        report.add_alone(&alone_costs);
    }
    if chosen("threads") {
        let rates: Result<Vec<f64>, _> =
            (0..args.rounds.min(5)).map(|_| reliable::two_threads(20_000 * args.work)).collect();
        report.add(Figure::of(
            "threads.mega_per_s",
            "64 B, million a second, an end on each core",
            &rates?,
        ));
    }
    if chosen("controller") {
        for (name, nanos) in controllers::decisions(args.rounds.max(1)) {
            let (key, what) =
                (format!("controller.{name}_ns"), format!("{name}: one decision, ns"));
            report.add(Figure::of(&key, &what, &nanos));
        }
    }
    if args.json {
        println!("{}", report.to_json());
    } else {
        print!("{report}");
    }
    Ok(())
}
