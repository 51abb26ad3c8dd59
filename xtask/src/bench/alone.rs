//! Benchmarks that compare by themselves.

use super::Amount;
use super::figure::{Figure, Wanted};
use super::programs::Programs;
use crate::failure::Failure;
use crate::{metric, process};

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
    let mut command = programs.example("software_cost");
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
}
