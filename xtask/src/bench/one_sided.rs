//! One-sided READs beside messages of their size, in turn, and atomics.

use super::Amount;
use super::figure::{Figure, Wanted, ratios};
use super::pairs::{MESSAGES, pair};
use super::programs::Programs;
use crate::failure::Failure;
use crate::{metric, process};

/// Processor time of the thread whose memory is read, in milliseconds a row.
const SERVING_MS: &str = "results.0.serving_cpu_ms";

/// Of 4 KiB 64 under way, and the messages as issue 7 has them; FETCH_ADDs 16 under way.
pub(super) fn run(programs: &Programs, amount: Amount) -> Result<Vec<Figure>, Failure> {
    let run = |program: &str, flags: &str| {
        let (mut command, line) = pair(programs.folder(), program, flags, amount.seconds)?;
        Ok::<_, Failure>((process::output(&mut command)?, line))
    };
    // Percent of the row, margins included.
    let percent = |ms: f64| ms / f64::from(amount.seconds) / 10.0;
    let [messages, reads, reading, atomics, adding] = amount.rounds("one-sided", || {
        let (output, line) = run("tow_write_bw", "-s 4096 -t 128")?;
        let messages = metric::of(&line, &output, MESSAGES)?;
        let (output, line) = run("tow_read_bw", "-s 4096 -t 64")?;
        let reads = metric::of(&line, &output, MESSAGES)?;
        let reading = percent(metric::of(&line, &output, SERVING_MS)?);
        let (output, line) = run("tow_atomic_bw", "-t 16")?;
        let atomics = metric::of(&line, &output, MESSAGES)?;
        let adding = percent(metric::of(&line, &output, SERVING_MS)?);
        Ok([messages, reads, reading, atomics, adding])
    })?;
    let to_messages = ratios(&reads, &messages);
    let of = Figure::of;
    Ok(vec![
        of("messages_4k_mega_per_s", "4 KiB messages, M/s", &messages, Wanted::Nothing),
        of("reads_4k_mega_per_s", "4 KiB READs, 64 under way, M/s", &reads, Wanted::Nothing),
        of("reads_to_messages", "4 KiB READs to messages", &to_messages, Wanted::AtLeast(0.9)),
        of(
            "reads_serving_percent",
            "processor of the application that is read, %",
            &reading,
            Wanted::AtMost(1.0),
        ),
        of("fetch_adds_mega_per_s", "FETCH_ADD, 16 under way, M/s", &atomics, Wanted::AtLeast(1.0)),
        of(
            "fetch_adds_serving_percent",
            "processor of the application whose word it is, %",
            &adding,
            Wanted::AtMost(1.0),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Fakes;
    use super::*;

    #[test]
    fn reads_are_compared_with_messages_and_who_is_read_with_a_whole_processor() {
        let fakes = Fakes::of("one-sided");
        let put = |name: &str, rate: f64, serving: &str| {
            let row = format!("{{\"MsgRate\": {rate}, \"serving_cpu_ms\": {serving}}}");
            fakes.put(name, &format!("echo '{{\"results\": [{row}]}}'"));
        };
        put("tow_write_bw", 0.4, "null");
        put("tow_read_bw", 0.3, "5");
        put("tow_atomic_bw", 1.5, "30");
        let figures = run(&fakes.programs(), Amount { rounds: 1, seconds: 2 }).unwrap();
        let median = |name: &str| {
            figures.iter().find(|figure| figure.name == name).expect("it is measured").median
        };
        assert!((median("reads_to_messages") - 0.75).abs() < 1e-9);
        assert_eq!(median("reads_serving_percent"), 0.25);
        assert_eq!(median("fetch_adds_mega_per_s"), 1.5);
        assert_eq!(median("fetch_adds_serving_percent"), 1.5);
    }
}
