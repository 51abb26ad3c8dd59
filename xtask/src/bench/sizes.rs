//! Every message size: messages a second and Gb/s of `tow_write_bw` over Towpath and over kernel
//! TCP in turn, as a table and a drawing, beside what bare UDP sockets carry.

use super::Amount;
use super::figure::{Figure, Wanted, ratios};
use super::pairs::{GBPS, MESSAGES, pair};
use super::programs::Programs;
use crate::failure::Failure;
use crate::stats::median;
use crate::{metric, process};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use towpath_plot::{Axis, Plot, Series, Style};

/// How the sweep is run.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "sizes_options")]
#[command(next_help_heading = "Only for --only sizes")]
pub(super) struct Options {
    /// Message sizes in bytes [default: some that were slow once, and powers of two].
    #[arg(long, value_name = "BYTES", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(8..=8 << 20))]
    sizes: Vec<u32>,
    /// Beside these, measure 48 sizes from 64 B to 1 MiB that are drawn by this seed, evenly by
    /// their logarithm.
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Messages under way, at both ends and over TCP as well; with 1 MiB at most 64 are.
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=4_096))]
    depth: u32,
    /// Where the drawing goes, unless to `target/sizes.svg`.
    #[arg(skip)]
    pub(super) svg: Option<PathBuf>,
    /// Whether the table goes to the standard output, which has nothing else then.
    #[arg(skip)]
    pub(super) on_stdout: bool,
}

/// A page, and a little less, beside which it is to cost no more.
const PAGE: u32 = 4_096;
const BELOW_PAGE: u32 = 4_032;

/// Those that are measured where none are named.
const NAMED: [u32; 20] = [
    64, 256, 512, 513, 1_024, 2_048, 4_032, 4_096, 4_160, 5_000, 8_192, 12_345, 16_384, 32_768,
    57_280, 65_536, 100_000, 262_144, 524_288, 1_048_576,
];

/// How many a seed draws, and between which.
const DRAWN: usize = 48;
const DRAWN_MIN: f64 = 64.0;
const DRAWN_MAX: f64 = 1_048_576.0;

/// A size is beside the next smaller one when it is at most so many times that.
const BESIDE: f64 = 1.1;
/// A cliff is where a size has less than this of the messages/s of the one beside it. Where bytes
/// are all that costs, it still has 0.909 of them.
const CLIFF: f64 = 0.9;

/// Of one side at one size: one of each for each round that was measured.
#[derive(Clone, Debug, Default)]
struct Rates {
    mega_per_s: Vec<f64>,
    gbps: Vec<f64>,
}

/// One size.
struct Row {
    bytes: u32,
    towpath: Rates,
    tcp: Rates,
    before: Rates,
}

/// Runs the sweep, says what it ran, prints its table, writes the drawing, and
/// returns the figures.
pub(super) fn run(
    programs: &Programs,
    against: Option<&Path>,
    options: &Options,
    amount: Amount,
) -> Result<Vec<Figure>, Failure> {
    let flags = |bytes: u32| format!("-s {bytes} -t {}", options.depth);
    let ran = ran(programs, against, options, amount);
    eprintln!("sizes: {ran}");
    let new_row = |&bytes: &u32| Row {
        bytes,
        towpath: Rates::default(),
        tcp: Rates::default(),
        before: Rates::default(),
    };
    let mut rows: Vec<Row> = options.sizes().iter().map(new_row).collect();
    let mut bare = Vec::new();
    for round in 0..=amount.rounds {
        for row in &mut rows {
            let end = flags(row.bytes);
            // A round in which any fails does not count: a ratio is one of each round.
            let of = |folder: &Path, end: &str| rates(folder, end, amount.seconds);
            let ours = of(programs.folder(), &end);
            let tcp = of(programs.folder(), &format!("{end} -c TCP"));
            let before = against.map(|folder| of(folder, &end));
            let (Some(ours), Some(tcp), Some(before)) =
                (ours, tcp, before.unwrap_or(Some((0.0, 0.0))))
            else {
                continue;
            };
            eprintln!("sizes: round {round}: {} B: {:.3} and {:.3} M/s", row.bytes, ours.0, tcp.0);
            if round > 0 {
                row.towpath.add(ours);
                row.tcp.add(tcp);
                row.before.add(before);
            }
        }
        let mut command = programs.example("udp_bench");
        command.args(["--json", "--seconds", &amount.seconds.to_string()]);
        let (line, output) = (process::line(&command), process::output(&mut command)?);
        bare.push(metric::of(&line, &output, "bulk_gbps")?);
    }
    let bare =
        Figure::of("bare_gbps", "bare UDP sockets, full packets, Gb/s", &bare, Wanted::Nothing);
    let table = table(&rows, against.is_some()) + &cliffs_text(&rows);
    if options.on_stdout {
        print!("{table}");
    } else {
        eprint!("{table}");
    }
    let svg = options.svg.as_deref().unwrap_or(Path::new("target/sizes.svg"));
    draw(&rows, against.is_some(), bare.median, &ran, svg)?;
    eprintln!("sizes: drawn in {}", svg.display());
    let mut figures: Vec<Figure> =
        rows.iter().flat_map(|row| row.figures(against.is_some())).collect();
    figures.extend(page(&rows));
    figures.extend(of_all(&rows));
    figures.extend(options.seed.map(|seed| {
        let (name, title) = ("sizes_seed", "seed of the sizes that were drawn");
        Figure::of(name, title, &[f64::from(seed)], Wanted::Nothing)
    }));
    figures.push(bare);
    Ok(figures)
}

/// What is run, for those who read the table or the drawing.
fn ran(programs: &Programs, against: Option<&Path>, options: &Options, amount: Amount) -> String {
    let before = against.map_or_else(String::new, |dir| format!(", before: {}", dir.display()));
    let seed = options.seed.map_or_else(String::new, |seed| format!(", {DRAWN} by seed {seed}"));
    format!(
        "tow_write_bw -s SIZE -t {} -D {} in {}{before}; kernel TCP by the same with -c TCP; two \
         processes over loopback; medians of {} rounds in turn, one more before them; {} sizes\
         {seed}",
        options.depth,
        amount.seconds,
        programs.folder().display(),
        amount.rounds,
        options.sizes().len(),
    )
}

impl Options {
    /// All, each once, from the smallest on.
    fn sizes(&self) -> Vec<u32> {
        let mut sizes = if self.sizes.is_empty() { NAMED.to_vec() } else { self.sizes.clone() };
        sizes.extend(self.seed.map(drawn).into_iter().flatten());
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// The sizes of a seed, the same on every machine.
fn drawn(seed: u32) -> [u32; DRAWN] {
    let mut state = u64::from(seed);
    [(); DRAWN].map(|()| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 53) as f64;
        (DRAWN_MIN * (DRAWN_MAX / DRAWN_MIN).powf(unit)).round() as u32
    })
}

/// M/s and Gb/s of one run; none if it failed, which is said.
fn rates(folder: &Path, flags: &str, seconds: u32) -> Option<(f64, f64)> {
    let run = || {
        let (mut command, line) = pair(folder, "tow_write_bw", flags, seconds)?;
        let output = process::output(&mut command)?;
        Ok((metric::of(&line, &output, MESSAGES)?, metric::of(&line, &output, GBPS)?))
    };
    run().inspect_err(|failure: &Failure| eprintln!("sizes: not counted: {failure}")).ok()
}

impl Rates {
    fn add(&mut self, (mega_per_s, gbps): (f64, f64)) {
        self.mega_per_s.push(mega_per_s);
        self.gbps.push(gbps);
    }
}

impl Row {
    fn figures(&self, compared: bool) -> Vec<Figure> {
        let bytes = self.bytes;
        if self.towpath.gbps.is_empty() {
            return Vec::new();
        }
        let figure = |key: &str, what: &str, values: &[f64], wanted| {
            Figure::of(format!("size_{bytes}.{key}"), format!("{bytes} B{what}"), values, wanted)
        };
        let to_tcp = ratios(&self.towpath.mega_per_s, &self.tcp.mega_per_s);
        let mut figures = vec![
            figure("mega_per_s", ", M/s", &self.towpath.mega_per_s, Wanted::Nothing),
            figure("gbps", ", Gb/s", &self.towpath.gbps, Wanted::Nothing),
            figure("tcp_mega_per_s", " over TCP, M/s", &self.tcp.mega_per_s, Wanted::Nothing),
            figure("tcp_gbps", " over TCP, Gb/s", &self.tcp.gbps, Wanted::Nothing),
            figure("to_tcp", " to TCP", &to_tcp, Wanted::AtLeast(1.0)),
        ];
        if compared {
            let to_before = ratios(&self.towpath.mega_per_s, &self.before.mega_per_s);
            figures.push(figure("to_before", " to before", &to_before, Wanted::Nothing));
        }
        figures
    }
}

/// What a page costs beside a little less.
fn page(rows: &[Row]) -> Option<Figure> {
    let of = |bytes| rows.iter().find(|row| row.bytes == bytes).map(|row| &row.towpath.mega_per_s);
    let (page, below) = (of(PAGE)?, of(BELOW_PAGE)?);
    let values = ratios(page, below);
    let title = "messages/s at 4,096 B to those at 4,032 B";
    (!values.is_empty()).then(|| Figure::of("page", title, &values, Wanted::AtLeast(0.95)))
}

/// What the sizes come to together, by the median of each.
fn of_all(rows: &[Row]) -> Vec<Figure> {
    let ratio = |row: &Row| median(&ratios(&row.towpath.mega_per_s, &row.tcp.mega_per_s));
    let all: Vec<f64> = measured(rows).map(ratio).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let mean = (all.iter().map(|ratio| ratio.ln()).sum::<f64>() / all.len() as f64).exp();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let cliffs = cliffs(rows).len() as f64;
    vec![
        Figure::of("to_tcp_mean", "all sizes to TCP, mean", &[mean], Wanted::AtLeast(1.35)),
        Figure::of("to_tcp_least", "the slowest size to TCP", &[least], Wanted::AtLeast(1.0)),
        Figure::of("cliffs", "cliffs between sizes", &[cliffs], Wanted::AtMost(0.0)),
    ]
}

/// Those that were measured in a round at least.
fn measured(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| !row.towpath.mega_per_s.is_empty())
}

/// Each size far below the next smaller one that is beside it, with that one, and its part of that
/// one's messages/s.
fn cliffs(rows: &[Row]) -> Vec<(u32, u32, f64)> {
    let pairs = measured(rows).zip(measured(rows).skip(1));
    let pairs = pairs.filter(|(a, b)| f64::from(b.bytes) <= BESIDE * f64::from(a.bytes));
    let of = |row: &Row| median(&row.towpath.mega_per_s);
    let all = pairs.map(|(small, large)| (large.bytes, small.bytes, of(large) / of(small)));
    all.filter(|&(_, _, part)| part < CLIFF).collect()
}

fn cliffs_text(rows: &[Row]) -> String {
    let text = |(bytes, beside, part): (u32, u32, f64)| {
        format!("a cliff: {bytes} B has {part:.2} of the messages/s of {beside} B\n")
    };
    cliffs(rows).into_iter().map(text).collect()
}

fn table(rows: &[Row], compared: bool) -> String {
    let mut text = format!(
        "{:>9}  {:>8} {:>7}  {:>8} {:>7}  {:>22}",
        "bytes", "M/s", "Gb/s", "TCP M/s", "Gb/s", "to TCP (least, most)"
    );
    text += if compared { "  to before (least, most)\n" } else { "\n" };
    for row in rows {
        let figures = row.figures(compared);
        let [mega, gbps, tcp_mega, tcp_gbps, to_tcp, rest @ ..] = &figures[..] else {
            let _ = writeln!(text, "{:>9}  failed in every round", row.bytes);
            continue;
        };
        let spread = |figure: &Figure| {
            format!("{:.2} ({:.2}, {:.2})", figure.median, figure.least, figure.most)
        };
        let _ = write!(
            text,
            "{:>9}  {:>8.3} {:>7.2}  {:>8.3} {:>7.2}  {:>22}",
            row.bytes,
            mega.median,
            gbps.median,
            tcp_mega.median,
            tcp_gbps.median,
            spread(to_tcp)
        );
        text += &rest.iter().map(|figure| format!("  {:>22}", spread(figure))).collect::<String>();
        text.push('\n');
    }
    text
}

/// Rates over sizes, and messages over sizes.
fn draw(rows: &[Row], compared: bool, bare: f64, ran: &str, file: &Path) -> Result<(), Failure> {
    let text = towpath_plot::draw(
        "Message sizes over loopback",
        &plots(rows, compared, bare),
        &[format!(
            "{ran}. Bare UDP sockets: packets of 4,112 bytes, 15 in each call, no protocol."
        )],
    );
    let failed = |source| Failure::File { path: file.to_owned(), source };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(file, text).map_err(failed)
}

fn plots(rows: &[Row], compared: bool, bare: f64) -> Vec<Plot> {
    let measured: Vec<&Row> = measured(rows).collect();
    let plot = |title: &str, y: Axis, of: fn(&Rates) -> &[f64], limit: &dyn Fn(f64) -> f64| {
        let line = |label: &str, side: fn(&Row) -> &Rates| {
            let point = |row: &&Row| (f64::from(row.bytes), median(of(side(row))));
            let points = measured.iter().map(point).collect();
            Series { label: label.to_owned(), style: Style::Line, points }
        };
        let mut series =
            vec![line("Towpath", |row| &row.towpath), line("kernel TCP", |row| &row.tcp)];
        if compared {
            series.push(line("Towpath before", |row| &row.before));
        }
        let points = measured.iter().map(|row| {
            let bytes = f64::from(row.bytes);
            (bytes, limit(bytes))
        });
        let label = "bare UDP sockets, full packets".to_owned();
        series.push(Series { label, style: Style::Bound, points: points.collect() });
        Plot { title: title.to_owned(), x: size_axis(rows), y, series }
    };
    vec![
        plot("goodput", Axis::log("goodput", "Gb/s"), |rates| &rates.gbps, &|_| bare),
        plot("messages", Axis::log("messages", "M/s"), |rates| &rates.mega_per_s, &|bytes| {
            bare * 1e3 / 8.0 / bytes
        }),
    ]
}

/// Marked at powers of four, in plain units.
fn size_axis(rows: &[Row]) -> Axis {
    let sizes = || rows.iter().map(|row| row.bytes);
    let (least, most) = (sizes().min().unwrap_or(64), sizes().max().unwrap_or(1 << 20));
    let marks = (3..12).map(|power| 4_u32.pow(power)).filter(|size| (least..=most).contains(size));
    let text = |size: u32| match size {
        ..1_024 => format!("{size} B"),
        1_024..1_048_576 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    };
    Axis::log("message", "")
        .range(f64::from(least), f64::from(most.max(2 * least)))
        .ticks(marks.map(|size| (f64::from(size), text(size))))
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Fakes;
    use super::*;

    #[test]
    fn each_size_is_compared_with_kernel_tcp_and_one_that_fails_leaves_the_others() {
        let fakes = Fakes::of("sizes");
        let result = |rate: &str| {
            format!("echo '{{\"results\": [{{\"gbps\": {rate}, \"MsgRate\": {rate}}}]}}'")
        };
        let script = format!(
            "case \"$*\" in *'-s 64 '*) exit 1;; *TCP*) {};; *) {};; esac",
            result("2"),
            result("3")
        );
        fakes.put("tow_write_bw", &script);
        fakes.put("udp_bench", "echo '{\"bulk_gbps\": 40}'");
        let svg = std::env::temp_dir().join(format!("towpath-sizes-{}.svg", std::process::id()));
        let options = Options {
            sizes: vec![64, 4_032, 4_096],
            seed: None,
            depth: 128,
            svg: Some(svg.clone()),
            on_stdout: false,
        };
        let amount = Amount { rounds: 1, seconds: 1 };
        let figures = run(&fakes.programs(), None, &options, amount).unwrap();
        let drawing = fs::read_to_string(&svg).unwrap();
        fs::remove_file(svg).unwrap();
        let found = |name: &str| figures.iter().find(|figure| figure.name == name);
        assert_eq!(found("size_4096.to_tcp").unwrap().median, 1.5);
        for (name, value) in
            [("page", 1.0), ("to_tcp_mean", 1.5), ("to_tcp_least", 1.5), ("cliffs", 0.0)]
        {
            assert!((found(name).unwrap().median - value).abs() < 1e-9, "{name}");
        }
        assert!(found("size_64.to_tcp").is_none());
        assert!(drawing.contains("4 KiB") && drawing.contains("bare UDP sockets"), "{drawing}");
    }
    #[test]
    fn a_seed_draws_the_same_sizes_each_time_and_spreads_them_by_their_logarithm() {
        let options = |seed| Options {
            sizes: Vec::new(),
            seed: Some(seed),
            depth: 128,
            svg: None,
            on_stdout: false,
        };
        let sizes = options(7).sizes();
        assert_eq!(sizes, options(7).sizes());
        assert_ne!(drawn(7), drawn(8));
        assert!(NAMED.iter().all(|size| sizes.contains(size)) && sizes.is_sorted());
        for seed in 0..100 {
            assert!(drawn(seed).iter().all(|size| (64..=1 << 20).contains(size)), "{seed}");
        }
        let small: usize =
            (0..100).map(|seed| drawn(seed).iter().filter(|&&s| s < 8_192).count()).sum();
        assert!((2_200..2_600).contains(&small), "{small} of 4,800 below the middle");
    }

    #[test]
    fn a_cliff_is_a_fall_between_sizes_that_are_beside_each_other() {
        let row = |bytes, rate: f64| Row {
            bytes,
            towpath: Rates { mega_per_s: vec![rate], gbps: vec![rate] },
            tcp: Rates { mega_per_s: vec![1.0], gbps: vec![1.0] },
            before: Rates::default(),
        };
        let rows = [row(1_000, 2.0), row(1_100, 1.82), row(1_200, 1.5), row(2_000, 0.5)];
        let found: Vec<(u32, u32)> = cliffs(&rows).iter().map(|&(a, b, _)| (a, b)).collect();
        assert_eq!(found, [(1_200, 1_100)], "the last is beside none");
        assert_eq!(of_all(&rows)[2].median, 1.0);
        assert!(cliffs_text(&rows).contains("1200 B has 0.82"));
    }
}
