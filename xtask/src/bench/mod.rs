//! `cargo xtask bench`: the figures that were wanted of this machine, as one table.
//!
//! What is compared runs in turn, round by round, and a ratio is one of each round: a machine that
//! is shared changes its speed between rounds. What comes out is reported and never fails: a
//! figure that is missed is a figure.

mod alone;
mod application;
mod figure;
mod four_k;
mod one_sided;
mod pairs;
mod programs;
mod sizes;
mod stolen;
mod store;
mod wire;

use crate::failure::Failure;
use figure::{Figure, Wanted};
use programs::Programs;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use stolen::Ticks;

#[derive(clap::Args)]
#[command(after_help = "\
  network    64 KiB messages over Towpath, over kernel TCP, and with 1 % of all packets lost; 64 B
             messages; two processes over loopback, in turn
  latency    64 B one way over Towpath and over kernel TCP at once, 20 ms at a time
  server     writes to a chunk server, of what network and store do alone, in turn
  software   what the software adds to raw verbs on the device in memory, with 1 and 16 paths; with
             --against the ratios to another build's instead
  sizes      tow_write_bw at many sizes, over Towpath and over kernel TCP in turn, beside bare UDP
             sockets; --seed draws 48 more sizes; only if asked for
  four-k     4 KiB messages and writes, and 64 B one way, with --against beside another build; only
             if asked for
  one-sided  4 KiB READs and FETCH_ADDs of granted memory beside 4 KiB messages, in turn; only if
             asked for
  store      `towpath bench store` on a chunk server beside fio on its disk, and in memory; with
             --against whole puts beside another build; only if asked for. Needs fio
  application  the same block requests by a chunk server over UC, RC and TCP, over plain kernel
             TCP without Towpath, and by fio on nbdkit, in turn; only if asked for
  wire       64 MiB files and streams over networks that lose, delay, reorder and queue, with kernel
             TCP over the same; only if asked for. Needs root; some 20 minutes for a round

With the defaults some 10 minutes, after the programs are built. Leave the machine alone meanwhile:
two ends that poll take both of two cores. Only loopback is used. In a virtual machine, see what its
host took of the processors meanwhile: where that is a tenth, the figures are the host's.

  cargo xtask bench --only latency --rounds 21
  cargo xtask bench --only network --programs target/pgo/build/x86_64-unknown-linux-gnu/dist
  cargo xtask bench --only sizes --seed 1
  cargo xtask bench --only sizes --rounds 9 --svg sizes.svg --against DIR
  cargo xtask bench --only store --case read-4k --case durable
  cargo xtask bench --only application --case mixed-4k
  cargo xtask bench --only wire --case jitter-20us --case tbf-100-30k-1500")]
pub(crate) struct Args {
    /// Rounds that count; one more goes before them, except over wires and of the store [default:
    /// 11; application, sizes, store: 5; wire: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of each run; latency takes eight times as long, for both together, a stream over a
    /// wire six times [default: 1; application: 2; store: 5].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: Option<u32>,
    /// Measure only this; may be given again.
    #[arg(long, value_name = "WHAT")]
    only: Vec<Part>,
    /// Take the tools and, for wire and store, the chunk server from this folder, and do not build
    /// them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Sizes, four-k, wire: measure the programs of this folder as well, in turn, as `before`.
    /// Software: compare with the `software_cost` of this folder, in turn. Store: whole puts.
    #[arg(long, value_name = "DIR", visible_alias = "baseline")]
    against: Option<PathBuf>,
    /// Print one JSON object in place of the table.
    #[arg(long)]
    json: bool,
    /// Application, wire, store: run only cases whose name begins so; may be given again. An
    /// unknown one lists all.
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Sizes, store: where the drawing goes [default: target/sizes.svg, target/store.svg].
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    sizes: sizes::Options,
    #[command(flatten)]
    wire: wire::Options,
    #[command(flatten)]
    store: store::Options,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Network,
    Latency,
    Server,
    Software,
    Sizes,
    FourK,
    OneSided,
    Store,
    Application,
    Wire,
}

impl Part {
    const ALL: [Self; 10] = [
        Self::Network,
        Self::Latency,
        Self::Server,
        Self::Software,
        Self::Sizes,
        Self::FourK,
        Self::OneSided,
        Self::Store,
        Self::Application,
        Self::Wire,
    ];

    /// What runs when nothing is asked for.
    const USUAL: [Self; 4] = [Self::Network, Self::Latency, Self::Server, Self::Software];

    /// Whether it needs `tow_write_bw` and `tow_write_lat`.
    fn runs_tools(self) -> bool {
        !matches!(self, Self::Server | Self::Software | Self::Store | Self::Application)
    }

    /// The name of the figure of what the host took while this was measured.
    fn stolen(self) -> &'static str {
        match self {
            Self::Network => "network_stolen_percent",
            Self::Latency => "latency_stolen_percent",
            Self::Server => "server_stolen_percent",
            Self::Software => "software_stolen_percent",
            Self::Sizes => "sizes_stolen_percent",
            Self::FourK => "four_k_stolen_percent",
            Self::OneSided => "one_sided_stolen_percent",
            Self::Store => "store_stolen_percent",
            Self::Application => "application_stolen_percent",
            Self::Wire => "wire_stolen_percent",
        }
    }
}

/// How much of each.
#[derive(Clone, Copy, Debug)]
struct Amount {
    rounds: u32,
    seconds: u32,
}

impl Amount {
    /// One value of each figure a round, by `measure`; the first round pays for cold caches and is
    /// not counted.
    fn rounds<const N: usize>(
        self,
        what: &str,
        mut measure: impl FnMut() -> Result<[f64; N], Failure>,
    ) -> Result<[Vec<f64>; N], Failure> {
        let mut all = [(); N].map(|()| Vec::new());
        for round in 0..=self.rounds {
            let values = measure()?;
            let shown: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
            eprintln!("{what}: round {round} of {}: {}", self.rounds, shown.join(" "));
            if round > 0 {
                for (values, value) in all.iter_mut().zip(values) {
                    values.push(value);
                }
            }
        }
        Ok(all)
    }
}

/// Builds, measures and reports.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let parts = if args.only.is_empty() { &Part::USUAL[..] } else { &args.only };
    let programs = Programs::build(parts, args.programs.as_deref())?;
    let (rounds, seconds) = (args.rounds.unwrap_or(11), args.seconds.unwrap_or(1));
    let amount = Amount { rounds, seconds };
    let against = args.against.as_deref();
    let mut figures = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| parts.contains(part)) {
        let before = Ticks::now();
        figures.extend(match part {
            Part::Network => pairs::network(&programs, amount)?,
            Part::Latency => pairs::latency(&programs, amount)?,
            Part::Server => alone::store(&programs, amount)?,
            Part::Software => match against {
                Some(other) => alone::software_beside(&programs, other, amount)?,
                None => alone::software(&programs)?,
            },
            Part::Sizes => {
                let amount = Amount { rounds: args.rounds.unwrap_or(5), ..amount };
                let mut options = args.sizes.clone();
                options.on_stdout = !args.json;
                options.svg.clone_from(&args.svg);
                let mut figures = sizes::run(&programs, against, &options, amount)?;
                // Its own table has the others.
                figures.retain(|figure| args.json || figure.wanted != Wanted::Nothing);
                figures
            }
            Part::FourK => four_k::run(&programs, against, amount)?,
            Part::OneSided => one_sided::run(&programs, amount)?,
            Part::Store => measure_store(args, &programs)?,
            Part::Application => {
                let (rounds, seconds) = (args.rounds.unwrap_or(5), args.seconds.unwrap_or(2));
                application::run(&programs, &args.case, Amount { rounds, seconds })?
            }
            Part::Wire => {
                let amount = (args.rounds.unwrap_or(1), seconds);
                wire::run(&programs, against, &args.wire, &args.case, amount)?
            }
        });
        if let (Some(before), Some(now)) = (before, Ticks::now()) {
            let percent = now.stolen_percent_since(before);
            let title = "the host's share of the processors meanwhile, %";
            figures.push(Figure::of(part.stolen(), title, &[percent], Wanted::Nothing));
        }
    }
    if args.json {
        println!("{}", object(amount, &figures));
    } else {
        print!("{}", figure::table(&figures));
    }
    Ok(())
}

fn measure_store(args: &Args, programs: &Programs) -> Result<Vec<Figure>, Failure> {
    let ground = store::Ground {
        programs,
        against: args.against.as_deref(),
        options: &args.store,
        cases: &args.case,
        svg: args.svg.as_deref().unwrap_or(Path::new("target/store.svg")),
        on_stdout: !args.json,
    };
    let (rounds, seconds) = (args.rounds.unwrap_or(5), args.seconds.unwrap_or(5));
    let mut figures = store::run(&ground, Amount { rounds, seconds })?;
    // Its own table has the others.
    figures.retain(|figure| args.json || figure.wanted != Wanted::Nothing);
    Ok(figures)
}

fn object(amount: Amount, figures: &[Figure]) -> Value {
    let figures: Map<String, Value> =
        figures.iter().map(|figure| (figure.name.clone(), figure.json())).collect();
    json!({ "rounds": amount.rounds, "seconds": amount.seconds, "figures": figures })
}

/// The cases whose names begin so, all where none are named.
fn chosen<C: Clone>(
    all: &[C],
    name_of: impl Fn(&C) -> &str,
    names: &[String],
) -> Result<Vec<C>, Failure> {
    let begins = |case: &C, name: &String| name_of(case).starts_with(name.as_str());
    if let Some(name) = names.iter().find(|name| !all.iter().any(|case| begins(case, name))) {
        let known = all.iter().map(name_of).collect::<Vec<_>>().join(" ");
        return Err(Failure::NoSuchCase { name: name.clone(), known });
    }
    let is_asked = |case: &&C| names.is_empty() || names.iter().any(|name| begins(case, name));
    Ok(all.iter().filter(is_asked).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_is_not_counted_and_each_figure_has_its_own_values() {
        let mut round = 0.0;
        let amount = Amount { rounds: 2, seconds: 1 };
        let measured = amount.rounds("made up", || {
            round += 1.0;
            Ok([round, 10.0 * round])
        });
        assert_eq!(measured.unwrap(), [vec![2.0, 3.0], vec![20.0, 30.0]]);
    }
}
