//! Runs many seeds and says what they did: `soak [first] [count] [threads]`.

use std::time::Instant;
use towpath_lab::scenario::Scenario;
use towpath_lab::sweep::{Verdict, sweep};

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let first = args.next().unwrap_or(0);
    let count = args.next().unwrap_or(1000);
    let threads = args.next().unwrap_or(2) as usize;
    let (mut failed, mut runs, mut messages, mut bytes, mut steps) = (0, 0u64, 0, 0, 0);
    let start = Instant::now();
    sweep(
        first..first + count,
        threads,
        |seed| Scenario::draw(seed).run(),
        |seed, verdict| {
            runs += 1;
            match verdict {
                Verdict::Held(report) => {
                    messages += report.messages;
                    bytes += report.bytes;
                    steps += report.steps;
                }
                Verdict::Failed(failure) => {
                    failed += 1;
                    println!("seed {seed}: {failure}");
                }
                Verdict::Panicked(text) => {
                    failed += 1;
                    println!("seed {seed} panicked: {text}");
                }
            }
            failed < 20
        },
    );
    println!(
        "{runs} runs, {failed} failed, {messages} messages, {bytes} bytes, {steps} steps, {:.1} s",
        start.elapsed().as_secs_f64()
    );
}
