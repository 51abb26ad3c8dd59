//! Benchmarks that compare by themselves.

use super::Amount;
use super::figure::{Figure, Wanted};
use super::programs::Programs;
use crate::failure::Failure;
use crate::{metric, process};
use std::path::Path;
use std::process::Command;

const SOFTWARE_COST: &str = "software_cost";

/// What the software may add to raw verbs for a chunk, and 16 paths to one.
const ADDED_NS: Wanted = Wanted::Below(100.0);
const PATHS_NS: Wanted = Wanted::Below(20.0);

/// Name, title, case and number of `software_cost`, and what was wanted.
///
/// Without payload CRC, as an endpoint is by default on a device that delivers what was sent.
const SOFTWARE: [(&str, &str, &str, Wanted); 9] = [
    (
        "software_mega_per_s",
        "64 B in memory, both ends on one core, M/s",
        "message_64_no_crc.mega_per_s",
        Wanted::AtLeast(5.0),
    ),
    (
        "software_crc_mega_per_s",
        "the same with payload CRC, M/s",
        "message_64.mega_per_s",
        Wanted::Nothing,
    ),
    ("added_192_ns", "added to 192 B, ns", "chunk_192_no_crc.added_ns", ADDED_NS),
    ("added_4k_ns", "added to 4 KiB, ns", "chunk_4k_no_crc.added_ns", ADDED_NS),
    ("added_56k_ns", "added to 57 KB, ns", "chunk_56k_no_crc.added_ns", ADDED_NS),
    ("paths_64_ns", "added by 16 paths to 64 B, ns", "message_64_no_crc.paths_added_ns", PATHS_NS),
    ("paths_192_ns", "added by 16 paths to 192 B, ns", "chunk_192_no_crc.paths_added_ns", PATHS_NS),
    ("paths_4k_ns", "added by 16 paths to 4 KiB, ns", "chunk_4k_no_crc.paths_added_ns", PATHS_NS),
    ("paths_56k_ns", "added by 16 paths to 57 KB, ns", "chunk_56k_no_crc.paths_added_ns", PATHS_NS),
];

/// Writes to a chunk server, of what network and store could do in turns.
pub(super) fn store(programs: &Programs, amount: Amount) -> Result<Vec<Figure>, Failure> {
    let [both, share] = amount.rounds("store", || {
        let mut command = programs.example("write_bench");
        command.args(["--rounds", "1", "--seconds", &amount.seconds.to_string()]);
        // It tells of its links on its standard error, which nobody asked for here.
        let (line, output) = (process::line(&command), process::quiet_output(&mut command)?);
        let number = |metric| metric::of(&line, &output, metric);
        Ok([number("both_gbps")?, number("ratio")?])
    })?;
    Ok(vec![
        Figure::of("store_gbps", "64 KiB writes to a chunk server, Gb/s", &both, Wanted::Nothing),
        Figure::of(
            "store_share",
            "of what network and store allow in turns",
            &share,
            Wanted::AtLeast(0.8),
        ),
    ])
}

/// The software's own cost; the benchmark has its own rounds.
pub(super) fn software(programs: &Programs) -> Result<Vec<Figure>, Failure> {
    eprintln!("software: fifteen rounds of its own");
    let mut command = programs.example(SOFTWARE_COST);
    command.args(["--json", "--paths", "16"]);
    let (line, output) = (process::line(&command), process::output(&mut command)?);
    let figure = |&(name, title, case, wanted): &(&'static str, &'static str, &str, Wanted)| {
        let number = |of: &str| metric::of(&line, &output, &format!("{case}.{of}"));
        let (median, least, most) = (number("median")?, number("least")?, number("most")?);
        let (name, title) = (name.to_owned(), title.to_owned());
        Ok(Figure { name, title, median, least, most, wanted })
    };
    SOFTWARE.iter().map(figure).collect()
}

/// What is compared with another build: name, title, case and number of `software_cost`, and what
/// the ratio to the other build's is to be.
const BESIDE: [(&str, &str, &str, Wanted); 6] = [
    ("added_192_ratio", "added to 192 B", "chunk_192_no_crc.added_ns", NO_MORE),
    ("added_4k_ratio", "added to 4 KiB", "chunk_4k_no_crc.added_ns", NO_MORE),
    ("added_56k_ratio", "added to 57 KB", "chunk_56k_no_crc.added_ns", NO_MORE),
    ("message_64_ratio", "64 B, ns at both ends", "message_64.ns", NO_MORE),
    ("raw_64_ratio", "raw verbs, 64 B, ns", "message_64.raw_ns", NO_MORE),
    (
        "software_mega_ratio",
        "64 B in memory, M/s",
        "message_64_no_crc.mega_per_s",
        Wanted::AtLeast(1.3),
    ),
];
const NO_MORE: Wanted = Wanted::AtMost(1.0);

/// The software's own cost beside that of the `software_cost` in another folder, in turn.
pub(super) fn software_beside(
    programs: &Programs,
    other: &Path,
    amount: Amount,
) -> Result<Vec<Figure>, Failure> {
    let ratios = amount.rounds("software beside the other build", || {
        let ours = software_once(|| programs.example(SOFTWARE_COST))?;
        let theirs = software_once(|| Command::new(other.join(SOFTWARE_COST)))?;
        let mut ratios = [0.0; BESIDE.len()];
        for ((ratio, ours), theirs) in ratios.iter_mut().zip(ours).zip(theirs) {
            *ratio = ours / theirs;
        }
        Ok(ratios)
    })?;
    let figure = |(&(name, title, _, wanted), values): (&(&str, &str, &str, _), &Vec<f64>)| {
        Figure::of(name, format!("{title}, to the other build"), values, wanted)
    };
    Ok(BESIDE.iter().zip(&ratios).map(figure).collect())
}

/// One short run of each group of cases.
fn software_once(program: impl Fn() -> Command) -> Result<[f64; BESIDE.len()], Failure> {
    let mut values = [0.0; BESIDE.len()];
    for group in ["message_64", "chunk_"] {
        let mut command = program();
        command.args(["--json", "--rounds", "3", "--only", group]);
        let (line, output) = (process::line(&command), process::output(&mut command)?);
        for (value, (_, _, number, _)) in values.iter_mut().zip(&BESIDE) {
            if number.starts_with(group) {
                *value = metric::of(&line, &output, &format!("{number}.median"))?;
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Fakes;
    use super::*;

    #[test]
    fn the_share_of_the_store_is_that_of_each_round() {
        let fakes = Fakes::of("store");
        fakes.put("write_bench", "echo '{\"both_gbps\": 9, \"ratio\": 0.75}'");
        let amount = Amount { rounds: 1, seconds: 1 };
        let [both, share] = &store(&fakes.programs(), amount).unwrap()[..] else { panic!("two") };
        assert_eq!((both.median, share.median), (9.0, 0.75));
        assert_eq!(share.json()["met"], false);
    }

    #[test]
    fn a_case_that_the_software_benchmark_lacks_is_named() {
        let fakes = Fakes::of("software");
        let values = "{\"median\": 6, \"least\": 5, \"most\": 7}";
        let of_case = format!("{{\"mega_per_s\": {values}}}");
        let script =
            format!("echo '{{\"message_64_no_crc\": {of_case}, \"message_64\": {of_case}}}'");
        fakes.put("software_cost", &script);
        let failure = software(&fakes.programs()).expect_err("the third case is not there");
        assert!(failure.to_string().contains("chunk_192_no_crc.added_ns.median"), "{failure}");
    }

    #[test]
    fn another_build_is_compared_number_by_number() {
        let (ours, theirs) = (Fakes::of("ours"), Fakes::of("theirs"));
        let output = |ns: u32, rate: u32| {
            let number = |value: u32| format!("{{\"median\": {value}}}");
            let message = format!("\"ns\": {}, \"raw_ns\": {}", number(ns), number(ns));
            let cases = format!(
                "\"message_64\": {{{message}}}, \"message_64_no_crc\": {{\"mega_per_s\": {}}}",
                number(rate)
            );
            let chunk = |name: &str| format!("\"{name}\": {{\"added_ns\": {}}}", number(ns));
            let chunks = ["chunk_192_no_crc", "chunk_4k_no_crc", "chunk_56k_no_crc"].map(chunk);
            format!("echo '{{{cases}, {}}}'", chunks.join(", "))
        };
        ours.put(SOFTWARE_COST, &output(30, 9));
        theirs.put(SOFTWARE_COST, &output(60, 6));
        let amount = Amount { rounds: 1, seconds: 1 };
        let figures = software_beside(&ours.programs(), theirs.folder(), amount).unwrap();
        let medians: Vec<f64> = figures.iter().map(|figure| figure.median).collect();
        assert_eq!(medians, [0.5, 0.5, 0.5, 0.5, 0.5, 1.5]);
    }
}
