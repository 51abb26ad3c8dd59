//! 4 KiB, the unit of storage: messages and writes, and 64 B one way, beside another build in turn.

use super::Amount;
use super::figure::{Figure, Wanted, ratios};
use super::pairs::{LATENCY_FACTOR, MESSAGES, ONE_WAY, SLICE, pair};
use super::programs::Programs;
use crate::failure::Failure;
use crate::turns::Turns;
use crate::{metric, process};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Bytes that are written to the chunk server, 4 KiB at a time.
const BYTES: usize = 64 << 20;

/// One size, as `towpath bench links connections` sums up.
const CHANNELS: [u32; 4] = [1, 16, 128, 1_024];

/// A figure of one build, and what is wanted of it to that of the other.
struct Rate {
    name: &'static str,
    title: &'static str,
    to_before: Wanted,
}

const WRITES: Rate = Rate {
    name: "store_4k_gbps",
    title: "4 KiB writes to a chunk server in memory, 32 deep, Gb/s",
    to_before: Wanted::AtLeast(2.0),
};

const LOSSLESS: Rate = Rate {
    name: "depth_128_mega_per_s",
    title: "4 KiB messages, 128 under way, M/s",
    to_before: Wanted::Nothing,
};

/// Runs all of it; without `against` it measures one build.
pub(super) fn run(
    programs: &Programs,
    against: Option<&Path>,
    amount: Amount,
) -> Result<Vec<Figure>, Failure> {
    let folders: Vec<&Path> = [programs.folder()].into_iter().chain(against).collect();
    let mut figures = latencies(&folders, amount)?;
    figures.extend(messages(&folders, amount)?);
    figures.extend(writes(&folders, amount)?);
    figures.extend(channels(&folders, amount)?);
    Ok(figures)
}

/// Of both builds at once, in slices of milliseconds; of one it is measured beside itself.
fn latencies(folders: &[&Path], amount: Amount) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (name, what, flags) in [
        ("one_way_64", "64 B one way", "-s 64"),
        ("one_way_4k", "4 KiB one at a time, one way", "-s 4096"),
    ] {
        let turns = Turns::of(SLICE);
        let seconds = LATENCY_FACTOR * amount.seconds;
        let [ours, before] = amount.rounds(what, || {
            let pairs = [folders[0], folders[folders.len() - 1]]
                .map(|folder| pair(folder, "tow_write_lat", flags, seconds));
            let [(one, line), (other, other_line)] = match pairs {
                [Ok(one), Ok(other)] => [one, other],
                [Err(failure), _] | [_, Err(failure)] => return Err(failure),
            };
            let [ours, before] = turns.outputs(one, other)?;
            Ok([metric::of(&line, &ours, ONE_WAY)?, metric::of(&other_line, &before, ONE_WAY)?])
        })?;
        let title = format!("{what}, us");
        figures.push(Figure::of(format!("{name}_us"), &title, &ours, Wanted::Nothing));
        if folders.len() > 1 {
            let key = format!("{name}_before_us");
            figures.push(Figure::of(key, format!("before: {title}"), &before, Wanted::Nothing));
            let (key, title) = (format!("{name}_to_before"), format!("{what}, to before"));
            figures.push(Figure::of(key, title, &ratios(&ours, &before), Wanted::AtMost(1.02)));
        }
    }
    Ok(figures)
}

/// 4 KiB at depth 128, and the same with 1 % of all packets lost.
fn messages(folders: &[&Path], amount: Amount) -> Result<Vec<Figure>, Failure> {
    let run = |folder: &Path, flags: &str| {
        let (mut command, line) = pair(folder, "tow_write_bw", flags, amount.seconds)?;
        metric::of(&line, &process::output(&mut command)?, MESSAGES)
    };
    let [lossless, before, lossy] = amount.rounds("4 KiB messages", || {
        let (flags, loss) = ("-s 4096 -t 128", "-s 4096 -t 128 --loss 0.01");
        let before = folders.get(1).map_or(Ok(f64::NAN), |folder| run(folder, flags))?;
        Ok([run(folders[0], flags)?, before, run(folders[0], loss)?])
    })?;
    let mut figures = LOSSLESS.figures(&lossless, &before);
    figures.push(Figure::of(
        "depth_128_lossy_to_lossless",
        "4 KiB messages, 1 % of packets lost to none",
        &ratios(&lossy, &lossless),
        Wanted::AtLeast(0.8),
    ));
    Ok(figures)
}

/// `towpath put` in requests of 4 KiB to a chunk server with an empty store in memory.
fn writes(folders: &[&Path], amount: Amount) -> Result<Vec<Figure>, Failure> {
    let place = Place::new()?;
    let [ours, before] = amount.rounds("4 KiB writes", || {
        let before = folders.get(1).map_or(Ok(f64::NAN), |folder| place.write(folder))?;
        Ok([place.write(folders[0])?, before])
    })?;
    Ok(WRITES.figures(&ours, &before))
}

/// Links that many channels share (Avatar, figure 5a).
fn channels(folders: &[&Path], amount: Amount) -> Result<Vec<Figure>, Failure> {
    let run = |folder: &Path| {
        let mut command = std::process::Command::new(folder.join("towpath"));
        let counts: Vec<String> = CHANNELS.iter().map(u32::to_string).collect();
        command.args(["bench", "links", "connections", "--bytes", "4K", "--rounds", "1", "--json"]);
        command.args(["--span-ms", &(1_000 * amount.seconds).to_string()]);
        command.args(["--connections", &counts.join(",")]);
        let line = process::line(&command);
        // Ends with 9 where its own claim is missed, and has said its figures before.
        let output = command.output();
        let output = output.map_err(|source| Failure::Start { command: line.clone(), source })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let goodput =
            |at: usize| metric::of(&line, &text, &format!("tables.connections.{at}.goodput_gbps"));
        Ok::<_, Failure>([goodput(0)?, goodput(1)?, goodput(2)?, goodput(3)?])
    };
    let values = amount.rounds("shared links", || {
        let [a, b, c, d] = run(folders[0])?;
        let before = folders.get(1).map_or(Ok([f64::NAN; 4]), |folder| run(folder))?;
        Ok([a, b, c, d, before[0], before[1], before[2], before[3]])
    })?;
    let mut figures = Vec::new();
    for (at, count) in CHANNELS.iter().enumerate() {
        let title = format!("4 KiB over {count} channels of a link, Gb/s");
        let (ours, before) = (&values[at], &values[at + CHANNELS.len()]);
        figures.extend(compared(
            &format!("channels_{count}_gbps"),
            &title,
            (ours, before),
            Wanted::AtLeast(2.0),
        ));
    }
    let flat = ratios(&values[CHANNELS.len() - 1], &values[0]);
    let title = "4 KiB over 1,024 channels to 1";
    figures.push(Figure::of("channels_flat", title, &flat, Wanted::AtLeast(0.95)));
    Ok(figures)
}

impl Rate {
    fn figures(&self, ours: &[f64], before: &[f64]) -> Vec<Figure> {
        compared(self.name, self.title, (ours, before), self.to_before)
    }
}

/// A figure, and where there is another build its figure and the ratio; NaN is no figure.
fn compared(
    name: &str,
    title: &str,
    (ours, before): (&[f64], &[f64]),
    to_before: Wanted,
) -> Vec<Figure> {
    let mut figures = vec![Figure::of(name, title, ours, Wanted::Nothing)];
    if before.iter().all(|value| value.is_finite()) {
        let of = |key: &str, title: String, values: &[f64], wanted| {
            Figure::of(format!("{name}_{key}"), title, values, wanted)
        };
        figures.push(of("before", format!("before: {title}"), before, Wanted::Nothing));
        let what = title.rsplit_once(", ").map_or(title, |(what, _)| what);
        let ratio = ratios(ours, before);
        figures.push(of("to_before", format!("{what}, to before"), &ratio, to_before));
    }
    figures
}

/// A folder in memory with a file to write; goes with this.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self, Failure> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let place = Self(parent.join(format!("towpath-four-k-{}", std::process::id())));
        let failed = |source| Failure::File { path: place.0.clone(), source };
        fs::create_dir_all(&place.0).map_err(failed)?;
        fs::write(place.0.join("source"), vec![0x5a; BYTES]).map_err(failed)?;
        Ok(place)
    }

    /// Gb/s of the programs in `folder`.
    fn write(&self, folder: &Path) -> Result<f64, Failure> {
        let quote = |path: PathBuf| process::quote(&path.to_string_lossy());
        let port = process::free_port()?;
        let line = format!(
            "rm -rf {store}; {server} --data-dir {store} --listen 127.0.0.1:{port} --log error \
             --preallocate=true --capacity-bytes 256MiB >/dev/null & \
             server=$!; tries=0; until {towpath} info 127.0.0.1:{port} >/dev/null 2>&1; do \
             tries=$((tries + 1)); [ $tries -lt 100 ] || break; sleep 0.1; done; \
             {towpath} put --json --op-size 4K --depth 32 {source} 127.0.0.1:{port}; code=$?; \
             kill $server; wait $server; exit $code",
            store = quote(self.0.join("store")),
            server = quote(folder.join("towpath-chunkserver")),
            towpath = quote(folder.join("towpath")),
            source = quote(self.0.join("source")),
        );
        metric::of(&line, &process::output(&mut process::shell(&line))?, "gbps")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_another_build_there_is_one_figure_and_with_it_the_ratio_of_each_round() {
        assert_eq!(WRITES.figures(&[9.0], &[f64::NAN]).len(), 1);
        let figures = WRITES.figures(&[9.0, 8.0], &[3.0, 4.0]);
        let ratio = figures.last().unwrap();
        assert_eq!((ratio.least, ratio.most), (2.0, 3.0));
        assert_eq!(ratio.name, "store_4k_gbps_to_before");
    }
}
