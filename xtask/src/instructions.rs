//! `cargo xtask instructions`: what a message costs in instructions, compared with the record.
//!
//! Times on shared machines hide a doubling; counts of instructions do not depend on other work.
//! Two runs of one build give the same figures.

use crate::failure::Failure;
use crate::{metric, process, workspace};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The recorded figures, from the root.
const RECORD: &str = "docs/instructions.json";
/// The program that sends the messages; `towpath-tests` has it.
const PROGRAM: &str = "instructions";
/// A figure fails when it is more than this above its record, percent. Code that only moves to
/// other compilation units changes figures by up to about 1 %.
const ABOVE_MAX_PERCENT: f64 = 3.0;

/// Both ends, as the functions of the program are called.
const ENDS: [(&str, &str); 2] = [("sender", "sender_turn"), ("receiver", "receiver_turn")];

/// callgrind counts `rep movsb` as one instruction for each byte, which would hide all the rest.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=1073741824:\
                        glibc.cpu.x86_rep_stosb_threshold=1073741824";

/// Messages of one length.
struct Case {
    name: &'static str,
    bytes: u32,
    in_flight: u32,
    /// Messages of the shorter run. The longer run sends twice as many, and the difference of both
    /// runs has no start-up in it.
    messages: u32,
}

const CASES: [Case; 4] = [
    Case { name: "64_bytes_alone", bytes: 64, in_flight: 1, messages: 2_048 },
    Case { name: "64_bytes", bytes: 64, in_flight: 128, messages: 8_192 },
    Case { name: "4096_bytes", bytes: 4_096, in_flight: 32, messages: 2_048 },
    // Fourteen packets with their header.
    Case { name: "57280_bytes", bytes: 57_280, in_flight: 4, messages: 512 },
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fail when a figure is more than 3 % above the record.
    #[arg(long, conflicts_with = "record")]
    check: bool,
    /// Write the record anew.
    #[arg(long)]
    record: bool,
    /// Print one JSON object in place of a table, in the form of the record.
    #[arg(long)]
    json: bool,
}

/// One figure: instructions of one message at one end.
#[derive(Debug, PartialEq)]
struct Figure {
    case: &'static str,
    end: &'static str,
    counted: f64,
    recorded: Option<f64>,
}

impl Figure {
    fn percent(&self) -> Option<f64> {
        self.recorded.map(|recorded| (self.counted / recorded - 1.0) * 100.0)
    }

    /// Whether the record allows it; a figure without a record is not allowed.
    fn passes(&self) -> bool {
        self.percent().is_some_and(|percent| percent <= ABOVE_MAX_PERCENT)
    }
}

/// Counts, prints, and compares or records.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    process::run(Command::new(root.join("tests/install.sh")).arg("valgrind"))?;
    // With the features and the profile of the demo, so that both share one build.
    let mut build = process::cargo();
    build.args(["build", "--release", "--bin", PROGRAM]).current_dir(&root);
    process::run(&mut build)?;
    let target = workspace::target_directory(&root)?;
    let path = root.join(RECORD);
    let record = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|source| Failure::Json { command: RECORD.to_owned(), source })?,
        Err(_) => Value::Null,
    };
    let program = target.join("release").join(PROGRAM);
    let figures = figures(&program, &target.join("callgrind.out"), &record)?;
    let versions = [
        ("valgrind", process::output(Command::new("valgrind").arg("--version"))?),
        ("rustc", process::output(Command::new("rustc").arg("--version").current_dir(&root))?),
    ];
    let counted = to_json(&figures, &versions);
    if args.json {
        println!("{counted:#}");
    } else {
        print!("{}", table(&figures));
    }
    for (tool, version) in &versions {
        if record[tool].as_str().is_some_and(|recorded| recorded != version.trim()) {
            eprintln!("the record was made with {}, this is {}", record[tool], version.trim());
        }
    }
    if args.record {
        return fs::write(&path, format!("{counted:#}\n"))
            .map_err(|source| Failure::File { path, source });
    }
    match figures.iter().filter(|figure| !figure.passes()).count() {
        count if args.check && count > 0 => Err(Failure::Instructions { count, record: RECORD }),
        _ => Ok(()),
    }
}

fn figures(program: &Path, profile: &Path, record: &Value) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for case in &CASES {
        let once = counts(program, profile, case, case.messages)?;
        let twice = counts(program, profile, case, 2 * case.messages)?;
        for (at, (end, _)) in ENDS.into_iter().enumerate() {
            let counted = (twice[at] - once[at]) / f64::from(case.messages);
            let recorded = metric::within(record, &format!("instructions.{}.{end}", case.name));
            figures.push(Figure { case: case.name, end, counted, recorded });
        }
    }
    Ok(figures)
}

/// The instructions of both ends in a run of `messages`.
fn counts(program: &Path, profile: &Path, case: &Case, messages: u32) -> Result<[f64; 2], Failure> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", profile.display())).arg(program);
    command.args([case.bytes, case.in_flight, messages].map(|number| number.to_string()));
    process::quiet_output(command.env("GLIBC_TUNABLES", TUNABLES))?;
    let text = fs::read_to_string(profile)
        .map_err(|source| Failure::File { path: profile.to_owned(), source })?;
    let mut found = [0.0; 2];
    for (count, (_, function)) in found.iter_mut().zip(ENDS) {
        *count = inclusive(&text, function).ok_or_else(|| Failure::NoMetric {
            command: process::line(&command),
            metric: function.to_owned(),
            output: "a profile without calls of that function".to_owned(),
        })?;
    }
    Ok(found)
}

/// The instructions of all calls of a function, with all that it calls, in a callgrind profile
/// whose names are not compressed. The line `calls=` follows the callee, and the cost follows that.
fn inclusive(profile: &str, function: &str) -> Option<f64> {
    let mut sum = None;
    let mut is_callee = false;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(callee) = line.strip_prefix("cfn=") {
            is_callee = callee.rsplit("::").next() == Some(function);
        } else if line.starts_with("calls=") {
            let cost: Option<f64> = lines.next()?.split(' ').next_back()?.parse().ok();
            if is_callee {
                sum = Some(sum.unwrap_or(0.0) + cost?);
            }
            is_callee = false;
        }
    }
    sum
}

fn to_json(figures: &[Figure], versions: &[(&str, String)]) -> Value {
    let mut cases = Map::new();
    for figure in figures {
        let case = cases.entry(figure.case).or_insert_with(|| json!({}));
        case[figure.end] = json!((figure.counted * 10.0).round() / 10.0);
    }
    let mut object = json!({ "instructions": cases });
    for (tool, version) in versions {
        object[tool] = version.trim().into();
    }
    object
}

fn table(figures: &[Figure]) -> String {
    let mut text =
        format!("{:24} {:>12} {:>12} {:>8}\n", "of one message", "recorded", "counted", "%");
    for figure in figures {
        let name = format!("{} {}", figure.case, figure.end);
        let recorded = figure.recorded.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let percent = figure.percent().map_or(String::new(), |value| format!("{value:+.1}"));
        let mark = if figure.passes() { "" } else { "  too many" };
        text += &format!("{name:24} {recorded:>12} {:>12.1} {percent:>8}{mark}\n", figure.counted);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir

fn=instructions::main
0 12
cob=/a/instructions
cfn=instructions::sender_turn
calls=1 0
0 100
0 1
cfn=instructions::sender_turn
calls=63 0
0 900
cfn=instructions::receiver_turn
calls=64 0
0 70

fn=instructions::sender_turn
0 5
cfn=instructions::sender_turn::{{closure}}
calls=64 0
0 800
cfn=other
calls=64 0
0 3
";

    #[test]
    fn all_calls_of_a_function_count_and_those_of_its_closures_do_not() {
        assert_eq!(inclusive(PROFILE, "sender_turn"), Some(1_000.0));
        assert_eq!(inclusive(PROFILE, "receiver_turn"), Some(70.0));
        assert_eq!(inclusive(PROFILE, "turn"), None);
    }

    #[test]
    fn a_profile_that_ends_in_a_call_is_refused() {
        assert_eq!(inclusive("cfn=a::sender_turn\ncalls=1 0\n", "sender_turn"), None);
        assert_eq!(inclusive("cfn=a::sender_turn\ncalls=1 0\n0 x\n", "sender_turn"), None);
    }

    fn figure(counted: f64, recorded: Option<f64>) -> Figure {
        Figure { case: "64_bytes", end: "sender", counted, recorded }
    }

    #[test]
    fn three_percent_more_than_recorded_pass_and_a_little_more_does_not() {
        assert!(figure(1_029.9, Some(1_000.0)).passes());
        assert!(!figure(1_030.1, Some(1_000.0)).passes());
        assert!(figure(500.0, Some(1_000.0)).passes());
        assert!(!figure(500.0, None).passes());
        assert!(table(&[figure(1_040.0, Some(1_000.0))]).contains("+4.0  too many"));
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let written = to_json(&[figure(12.34, None)], &[("rustc", "rustc 1\n".to_owned())]);
        let path = format!("instructions.{}.sender", CASES[1].name);
        assert_eq!(metric::within(&written, &path), Some(12.3));
        assert_eq!(written["rustc"], "rustc 1");
    }
}
