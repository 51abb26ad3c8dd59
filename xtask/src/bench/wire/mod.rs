//! An ordinary network as a laboratory: files and streams over wires that lose, delay, reorder and
//! queue, beside kernel TCP over the same wire, in turn.
//!
//! | file | what it does |
//! |---|---|
//! | `cases` | the networks, and what is wanted of each |
//! | `work` | what runs over a wire, and its figures |
//! | `ground` | a server and a client at the two ends of a wire |
//! | `veth.sh` | a veth between two namespaces, limited by the kernel |

mod cases;
mod ground;
mod work;

use super::figure::{Figure, Wanted};
use super::programs::Programs;
use crate::failure::Failure;
use cases::{Case, Work};
use std::fs;
use std::path::{Path, PathBuf};
use work::{Rig, Values};

/// How the laboratory is run.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "wire_options")]
#[command(next_help_heading = "Only for --only wire")]
pub(super) struct Options {
    /// Congestion control of kernel TCP in every case [default: cubic behind the kernel's queues,
    /// and that of the machine on the bridge].
    #[arg(long, value_name = "NAME")]
    tcp: Option<String>,
    /// Seconds until a transfer is given up.
    #[arg(long, value_name = "S", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=600))]
    patience: u32,
}

/// Seconds of a stream: its margins are half of it, and windows need some time.
const STREAM_FACTOR: u32 = 6;

/// Runs the cases and returns their figures.
pub(super) fn run(
    programs: &Programs,
    against: Option<&Path>,
    options: &Options,
    names: &[String],
    (rounds, seconds): (u32, u32),
) -> Result<Vec<Figure>, Failure> {
    let cases = chosen(names)?;
    let folder = Folder::new()?;
    let mut figures = Vec::new();
    for case in &cases {
        let rig = |of| Rig {
            programs: of,
            lossy: programs.lossy(),
            folder: &folder.0,
            seconds: STREAM_FACTOR * seconds,
            patience: options.patience,
            congestion: options.tcp.as_deref().or(case.tcp),
        };
        let (current, other) = (rig(programs.folder()), against.map(rig));
        let congestion = rig(programs.folder()).congestion.map_or_else(usual_tcp, str::to_owned);
        let mut all = All { congestion, ..All::default() };
        for round in 1..=rounds {
            let ours = current.towpath(case)?;
            let before = other.as_ref().map(|other| other.towpath(case)).transpose()?;
            let tcp = current.kernel_tcp(case)?;
            eprintln!("wire: {}, round {round} of {rounds}: {}", case.name, shown(&ours, tcp));
            all.add(ours, before, tcp);
        }
        figures.extend(all.figures(case));
    }
    Ok(figures)
}

/// The congestion control of the machine.
fn usual_tcp() -> String {
    let file = "/proc/sys/net/ipv4/tcp_congestion_control";
    fs::read_to_string(file).map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

fn chosen(names: &[String]) -> Result<Vec<Case>, Failure> {
    super::chosen(&cases::all(), |case| &case.name, names)
}

fn shown(values: &Values, tcp: Option<f64>) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let mut text: Vec<String> =
        values.iter().map(|&(name, value)| format!("{name} {}", number(value))).collect();
    text.extend(tcp.map(|tcp| format!("tcp_mbps {tcp:.1}")));
    text.join(", ")
}

/// Of a case, each round.
#[derive(Default)]
struct All {
    ours: Vec<Values>,
    before: Vec<Values>,
    tcp: Vec<f64>,
    /// The congestion control of kernel TCP.
    congestion: String,
}

impl All {
    fn add(&mut self, ours: Values, before: Option<Values>, tcp: Option<f64>) {
        self.ours.push(ours);
        self.before.extend(before);
        self.tcp.extend(tcp);
    }

    fn figures(&self, case: &Case) -> Vec<Figure> {
        let mut figures = self.of(case, "", &self.ours);
        figures.extend(self.of(case, "before: ", &self.before));
        if !self.tcp.is_empty() {
            let mut tcp = figure(case, "", "tcp_mbps", &self.tcp, Wanted::Nothing);
            tcp.title += &format!(" ({})", self.congestion);
            figures.push(tcp);
        }
        figures
    }

    fn of(&self, case: &Case, side: &str, rounds: &[Values]) -> Vec<Figure> {
        let Some(first) = rounds.first() else { return Vec::new() };
        let value = |round: &Values, of: &str| {
            round.iter().find(|&&(name, _)| name == of).and_then(|&(_, value)| value)
        };
        let mut figures = Vec::new();
        for &(name, _) in first {
            let known: Vec<f64> = rounds.iter().filter_map(|round| value(round, name)).collect();
            if name == "arrived_percent" {
                // One that does not arrive is missed, however many others do.
                let least = known.iter().copied().fold(f64::INFINITY, f64::min);
                figures.push(figure(case, side, name, &[least], Wanted::AtLeast(100.0)));
            } else if !known.is_empty() {
                figures.push(figure(case, side, name, &known, wanted(case, name)));
            }
        }
        let (of, to): (&[&str], Vec<f64>) = match case.work {
            Work::File { .. } => (&["put_mbps", "get_mbps"], self.tcp.clone()),
            Work::Stream { .. } => (&["mbps"], case.wire.mbit().into_iter().collect()),
            _ => (&[], Vec::new()),
        };
        for name in of {
            let to = to.iter().copied().cycle();
            let ratios: Vec<f64> = rounds
                .iter()
                .zip(to)
                .filter_map(|(round, to)| Some(value(round, name)? / to))
                .collect();
            if !ratios.is_empty() {
                let (ratio, wanted) = ratio(case, name);
                figures.push(figure(case, side, ratio, &ratios, wanted));
            }
        }
        figures
    }
}

/// The name of the ratio of a rate, and what is wanted of it.
fn ratio(case: &Case, name: &str) -> (&'static str, Wanted) {
    match (&case.work, name) {
        (Work::File { to_tcp, .. }, "put_mbps") => ("put_to_tcp", *to_tcp),
        (Work::File { to_tcp, .. }, _) => ("get_to_tcp", *to_tcp),
        (Work::Stream { of_rate, .. }, _) => ("of_rate", *of_rate),
        _ => ("ratio", Wanted::Nothing),
    }
}

fn wanted(case: &Case, name: &str) -> Wanted {
    match (&case.work, name) {
        (Work::File { port_changes, .. }, "port_changes") => *port_changes,
        (Work::Stream { again_percent, .. }, "again_percent") => *again_percent,
        (Work::Beside { share_percent }, "share_percent") => *share_percent,
        (Work::Shrink { longer, .. }, "longer_seconds") => *longer,
        _ => Wanted::Nothing,
    }
}

fn figure(case: &Case, side: &str, name: &str, values: &[f64], wanted: Wanted) -> Figure {
    let key = format!("{}.{}{name}", case.name, side.replace(": ", "_"));
    let what = name.replace('_', " ").replace("mbps", "Mb/s").replace("percent", "%");
    Figure::of(key, format!("{}: {side}{what}", case.title), values, wanted)
}

/// In memory where the system has a folder there; goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(format!("towpath-wire-{}", std::process::id()));
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| Failure::File { path, source }
        };
        fs::create_dir_all(&path).map_err(failed(&path))?;
        let folder = Self(path);
        let source = folder.0.join("source");
        fs::write(&source, bytes(work::BYTES)).map_err(failed(&source))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes of which no two slices are alike (xorshift64).
fn bytes(count: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..count / 8).flat_map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> Case {
        chosen(&[name.to_owned()]).unwrap().remove(0)
    }

    fn found<'a>(figures: &'a [Figure], name: &str) -> &'a Figure {
        figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{figures:?}"))
    }

    #[test]
    fn a_case_is_chosen_by_the_beginning_of_its_name_and_an_unknown_one_lists_all() {
        assert_eq!(chosen(&["jitter-20us".to_owned()]).unwrap().len(), 2);
        let failure = chosen(&["nothing".to_owned()]).unwrap_err().to_string();
        assert!(failure.contains("nothing") && failure.contains("loss-15-1500"), "{failure}");
    }

    #[test]
    fn a_file_is_measured_by_the_goodput_of_kernel_tcp_in_the_same_round() {
        let mut all = All::default();
        let round = |mbps| vec![("arrived_percent", Some(100.0)), ("put_mbps", Some(mbps))];
        all.add(round(300.0), None, Some(200.0));
        all.add(round(100.0), None, Some(100.0));
        all.add(round(100.0), None, Some(400.0));
        let figures = all.figures(&case("loss-15-1500"));
        let ratio = found(&figures, "loss-15-1500.put_to_tcp");
        assert_eq!((ratio.median, ratio.least, ratio.most), (1.0, 0.25, 1.5));
        assert_eq!(ratio.json()["met"], true);
    }

    #[test]
    fn one_file_that_does_not_arrive_is_a_miss_and_the_rate_of_a_wire_is_no_round() {
        let mut all = All::default();
        all.add(vec![("arrived_percent", Some(100.0))], None, None);
        all.add(vec![("arrived_percent", Some(0.0))], None, None);
        let figures = all.figures(&case("loss-25-1500"));
        assert_eq!(found(&figures, "loss-25-1500.arrived_percent").json()["met"], false);
        let mut all = All::default();
        all.add(vec![("mbps", Some(90.0))], None, Some(95.0));
        all.add(vec![("mbps", Some(92.0))], None, Some(95.0));
        let figures = all.figures(&case("tbf-100-30k-1500"));
        assert_eq!(found(&figures, "tbf-100-30k-1500.of_rate").median, 0.91);
    }
}
