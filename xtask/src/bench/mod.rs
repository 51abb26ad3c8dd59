//! `cargo xtask bench`: the figures that were wanted of this machine, as one table.
//!
//! What is compared runs in turn, round by round, and a ratio is one of each round: a machine that
//! is shared changes its speed between rounds. What comes out is reported and never fails: a
//! figure that is missed is a figure.

mod alone;
mod figure;
mod four_k;
mod one_sided;
mod pairs;
mod programs;
mod sizes;
mod stolen;
mod wire;

use crate::failure::Failure;
use figure::{Figure, Wanted};
use programs::Programs;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use stolen::Ticks;

#[derive(clap::Args)]
#[command(after_help = "\
  network    64 KiB messages over Towpath, over kernel TCP, and with 1 % of all packets lost; 64 B
             messages; two processes over loopback, in turn
  latency    64 B one way over Towpath and over kernel TCP at once, 20 ms at a time
  store      writes to a chunk server, of what network and store do alone, in turn
  software   what the software adds to raw verbs on the device in memory, with 1 and 16 paths; with
             --against the ratios to another build's instead
  sizes      tow_write_bw at many sizes, over Towpath and over kernel TCP in turn, beside bare UDP
             sockets; --seed draws 48 more sizes; only if asked for
  four-k     4 KiB messages and writes, and 64 B one way, with --against beside another build; only
             if asked for
  one-sided  4 KiB READs and FETCH_ADDs of granted memory beside 4 KiB messages, in turn; only if
             asked for
  wire       64 MiB files and streams over networks that lose, delay, reorder and queue, with kernel
             TCP over the same; only if asked for. Needs root; some 20 minutes for a round

With the defaults some 10 minutes, after the programs are built. Leave the machine alone meanwhile:
two ends that poll take both of two cores. Only loopback is used. In a virtual machine, see what its
host took of the processors meanwhile: where that is a tenth, the figures are the host's.

  cargo xtask bench --only latency --rounds 21
  cargo xtask bench --only network --programs target/pgo/build/x86_64-unknown-linux-gnu/dist
  cargo xtask bench --only sizes --seed 1
  cargo xtask bench --only sizes --rounds 9 --svg sizes.svg --against DIR
  cargo xtask bench --only wire --case jitter-20us --case tbf-100-30k-1500")]
pub(crate) struct Args {
    /// Rounds that count; one more goes before them, except over wires [default: 11; sizes: 5;
    /// wire: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of each run; latency takes eight times as long, for both together, a stream over a
    /// wire six times.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Measure only this; may be given again.
    #[arg(long, value_name = "WHAT")]
    only: Vec<Part>,
    /// Take the tools and, for wire, the chunk server from this folder, and do not build them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Sizes, four-k, wire: measure the programs of this folder as well, in turn, as `before`.
    /// Software: compare with the `software_cost` of this folder, in turn.
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Print one JSON object in place of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sizes: sizes::Options,
    #[command(flatten)]
    wire: wire::Options,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Network,
    Latency,
    Store,
    Software,
    Sizes,
    FourK,
    OneSided,
    Wire,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Network,
        Self::Latency,
        Self::Store,
        Self::Software,
        Self::Sizes,
        Self::FourK,
        Self::OneSided,
        Self::Wire,
    ];

    /// What runs when nothing is asked for.
    const USUAL: [Self; 4] = [Self::Network, Self::Latency, Self::Store, Self::Software];

    /// Whether it needs `tow_write_bw` and `tow_write_lat`.
    fn runs_tools(self) -> bool {
        !matches!(self, Self::Store | Self::Software)
    }

    /// The name of the figure of what the host took while this was measured.
    fn stolen(self) -> &'static str {
        match self {
            Self::Network => "network_stolen_percent",
            Self::Latency => "latency_stolen_percent",
            Self::Store => "store_stolen_percent",
            Self::Software => "software_stolen_percent",
            Self::Sizes => "sizes_stolen_percent",
            Self::FourK => "four_k_stolen_percent",
            Self::OneSided => "one_sided_stolen_percent",
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
    let amount = Amount { rounds: args.rounds.unwrap_or(11), seconds: args.seconds };
    let against = args.against.as_deref();
    let mut figures = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| parts.contains(part)) {
        let before = Ticks::now();
        figures.extend(match part {
            Part::Network => pairs::network(&programs, amount)?,
            Part::Latency => pairs::latency(&programs, amount)?,
            Part::Store => alone::store(&programs, amount)?,
            Part::Software => match against {
                Some(other) => alone::software_beside(&programs, other, amount)?,
                None => alone::software(&programs)?,
            },
            Part::Sizes => {
                let amount = Amount { rounds: args.rounds.unwrap_or(5), ..amount };
                let mut options = args.sizes.clone();
                options.on_stdout = !args.json;
                let mut figures = sizes::run(&programs, against, &options, amount)?;
                // Its own table has the others.
                figures.retain(|figure| args.json || figure.wanted != Wanted::Nothing);
                figures
            }
            Part::FourK => four_k::run(&programs, against, amount)?,
            Part::OneSided => one_sided::run(&programs, amount)?,
            Part::Wire => {
                let amount = (args.rounds.unwrap_or(1), args.seconds);
                wire::run(&programs, against, &args.wire, amount)?
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

fn object(amount: Amount, figures: &[Figure]) -> Value {
    let figures: Map<String, Value> =
        figures.iter().map(|figure| (figure.name.clone(), figure.json())).collect();
    json!({ "rounds": amount.rounds, "seconds": amount.seconds, "figures": figures })
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
