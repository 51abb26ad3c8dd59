//! The tables of perftest beside Towpath, from what the steps `perftest` and `counted` measured.
//!
//! Rounds are compared one by one, since emulation drifts: a share is the median of the shares of
//! the rounds, not the share of the medians.

use crate::failure::Failure;
use crate::stats::median;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

/// What is compared, with the title of its table. The guest leaves the figures in `NAME.tsv`, one
/// line each: round, percent of packets lost, measure, bytes, queue pair, program, figure; a dash
/// where the program did not end.
const COMPARISONS: [(&str, &str); 3] = [
    ("perftest", "perftest and Towpath on the same rxe devices"),
    ("counted", "a second is 10^9 instructions, the driver's checksum by tables"),
    ("counted-pclmul", "a second is 10^9 instructions, the driver's checksum by pclmulqdq"),
];

/// The columns of the table, as the guest names the programs.
const PROGRAMS: [&str; 3] = ["perftest", "raw", "reliable"];

/// Reliable without a checksum of the payload, which an emulator makes a hundred times dearer than
/// hardware does: compared below the table.
const UNCHECKED: &str = "unchecked";

/// Writes `NAME.table` and `NAME.json` beside the figures of each comparison that was made, and
/// returns the latter by name, if there are any.
pub(super) fn write_all(out: &Path) -> Result<Option<Value>, Failure> {
    let mut all = Map::new();
    for (name, title) in COMPARISONS {
        if let Some(object) = write(out, name, title)? {
            all.insert(name.to_owned(), object);
        }
    }
    Ok((!all.is_empty()).then_some(Value::Object(all)))
}

fn write(out: &Path, name: &str, title: &str) -> Result<Option<Value>, Failure> {
    let path = out.join(format!("{name}.tsv"));
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|source| Failure::File { path, source })?;
    let figures: Vec<Figure> = text.lines().filter_map(Figure::of).collect();
    let put = |ending: &str, text: String| {
        let path = out.join(format!("{name}.{ending}"));
        std::fs::write(&path, text).map_err(|source| Failure::File { path, source })
    };
    put("table", table(title, &figures))?;
    let object = object(&figures);
    put("json", format!("{object}\n"))?;
    Ok(Some(object))
}

/// What was measured: the programs of one case can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    loss: String,
    measure: String,
    bytes: u64,
    connection: String,
}

impl Case {
    fn is_latency(&self) -> bool {
        self.measure.ends_with("_lat")
    }

    fn unit(&self) -> &'static str {
        if self.is_latency() { "us" } else { "MiB/s" }
    }

    fn title(&self) -> String {
        let size = match self.bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} B"),
        };
        format!("{} {} {size}, {}", self.measure, self.connection, self.unit())
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Figure {
    round: u32,
    case: Case,
    program: String,
    value: Option<f64>,
}

impl Figure {
    /// None for a line that was cut off, as the last may be when the machine was stopped.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let mut next = || words.next().map(str::to_owned);
        let round = next()?.parse().ok()?;
        let (loss, measure) = (next()?, next()?);
        let bytes = next()?.parse().ok()?;
        let case = Case { loss, measure, bytes, connection: next()? };
        let (program, value) = (next()?, next()?);
        let value = if value == "-" { None } else { Some(value.parse().ok()?) };
        Some(Self { round, case, program, value })
    }
}

/// The cases in the order in which they were first run, those of one cable together.
fn cases(figures: &[Figure]) -> Vec<&Case> {
    let mut cases: Vec<&Case> = Vec::new();
    for Figure { case, .. } in figures {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases.sort_by(|a, b| percent(&a.loss).total_cmp(&percent(&b.loss)));
    cases
}

fn percent(loss: &str) -> f64 {
    loss.parse().unwrap_or(f64::MAX)
}

/// The median of some values, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some(Self { median: median(values), least, most })
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "least": self.least, "most": self.most })
    }
}

/// What a program measured in a case, by round; none where it never ran.
fn values(figures: &[Figure], case: &Case, program: &str) -> Option<Vec<(u32, f64)>> {
    let of = |figure: &&Figure| figure.case == *case && figure.program == program;
    let mut ran = figures.iter().filter(of).peekable();
    ran.peek()?;
    Some(ran.filter_map(|figure| Some((figure.round, figure.value?))).collect())
}

/// What a program measured, over what another did in the same round.
fn ratio(
    figures: &[Figure],
    (case, program): (&Case, &str),
    (to_case, to): (&Case, &str),
) -> Option<Spread> {
    let base = values(figures, to_case, to)?;
    let shares: Vec<f64> = values(figures, case, program)?
        .into_iter()
        .filter_map(|(round, value)| {
            let (_, base) = base.iter().find(|(of, base)| *of == round && *base > 0.0)?;
            Some(value / base)
        })
        .collect();
    Spread::of(&shares)
}

/// Something that is wanted of the figures: what one program should reach of another's.
struct Wanted {
    what: &'static str,
    share: f64,
    loss: &'static str,
    bytes: u64,
    /// Measures that it is wanted of, each with the queue pair of either program.
    measures: &'static [(&'static str, &'static str, &'static str)],
    program: &'static str,
    to: &'static str,
}

const WANTED: [Wanted; 4] = [
    Wanted {
        what: "reliable over raw",
        share: 0.9,
        loss: "0",
        bytes: 65_536,
        measures: &[("send_bw", "UC", "UC")],
        program: "reliable",
        to: "raw",
    },
    Wanted {
        what: "the same without payload CRC",
        share: 0.9,
        loss: "0",
        bytes: 65_536,
        measures: &[("send_bw", "UC", "UC")],
        program: UNCHECKED,
        to: "raw",
    },
    Wanted {
        what: "raw over perftest",
        share: 0.95,
        loss: "0",
        bytes: 65_536,
        measures: &[
            ("write_bw", "RC", "RC"),
            ("write_bw", "UC", "UC"),
            ("send_bw", "RC", "RC"),
            ("send_bw", "UC", "UC"),
        ],
        program: "raw",
        to: "perftest",
    },
    Wanted {
        what: "reliable over perftest's RC",
        share: 3.0,
        loss: "1",
        bytes: 1 << 20,
        measures: &[("write_bw", "UC", "RC")],
        program: "reliable",
        to: "perftest",
    },
];

impl Wanted {
    fn case(&self, measure: &str, connection: &str) -> Case {
        let (loss, measure) = (self.loss.to_owned(), measure.to_owned());
        Case { loss, measure, bytes: self.bytes, connection: connection.to_owned() }
    }

    /// What it came to, one by one; nothing where it was not measured.
    fn results(&self, figures: &[Figure]) -> Vec<(Case, Spread)> {
        let result = |&(measure, ours, theirs): &(&str, &str, &str)| {
            let (case, to) = (self.case(measure, ours), self.case(measure, theirs));
            let share = ratio(figures, (&case, self.program), (&to, self.to))?;
            Some((case, share))
        };
        self.measures.iter().filter_map(result).collect()
    }
}

fn table(title: &str, figures: &[Figure]) -> String {
    let rounds = figures.iter().map(|figure| figure.round).max().unwrap_or(0);
    let mut text = format!("{title}: median (least to most) of {rounds} rounds\n");
    line(&mut text, "", PROGRAMS.map(str::to_owned));
    for (at, case) in cases(figures).into_iter().enumerate() {
        if at == 0 || cases(figures)[at - 1].loss != case.loss {
            let _infallible = writeln!(text, "{} % of packets lost", case.loss);
        }
        line(&mut text, &case.title(), PROGRAMS.map(|program| cell(figures, case, program)));
    }
    for wanted in &WANTED {
        for (case, share) in wanted.results(figures) {
            let Spread { median, least, most } = share;
            let met = if median >= wanted.share { "met" } else { "missed" };
            let _infallible = writeln!(
                text,
                "{}, {}, {} % lost: {median:.2} ({least:.2} to {most:.2}), wanted {}: {met}",
                wanted.what,
                case.title(),
                case.loss,
                wanted.share
            );
        }
    }
    text
}

fn line(text: &mut String, title: &str, cells: [String; PROGRAMS.len()]) {
    let [first, second, third] = cells;
    let line = format!("  {title:<26} {first:<24} {second:<30} {third}");
    text.push_str(line.trim_end());
    text.push('\n');
}

/// What a program measured, and what share of perftest's figure in the same case that is.
fn cell(figures: &[Figure], case: &Case, program: &str) -> String {
    let Some(values) = values(figures, case, program) else { return String::new() };
    let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
    let Some(Spread { median, least, most }) = Spread::of(&values) else {
        return "does not end".to_owned();
    };
    let mut cell = format!("{median:.1} ({least:.1} to {most:.1})");
    if program != PROGRAMS[0]
        && let Some(share) = ratio(figures, (case, program), (case, PROGRAMS[0]))
    {
        let _infallible = write!(cell, " {:.0} %", share.median * 100.0);
    }
    cell
}

fn object(figures: &[Figure]) -> Value {
    let mut rows = Vec::new();
    for case in cases(figures) {
        for program in PROGRAMS.into_iter().chain([UNCHECKED]) {
            let Some(values) = values(figures, case, program) else { continue };
            let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
            rows.push(json!({
                "measure": case.measure,
                "bytes": case.bytes,
                "connection": case.connection,
                "loss_percent": percent(&case.loss),
                "program": program,
                "unit": case.unit(),
                "result": Spread::of(&values).map(Spread::json),
                "rounds": values,
            }));
        }
    }
    let wanted = WANTED.iter().flat_map(|wanted| {
        wanted.results(figures).into_iter().map(move |(case, share)| {
            json!({
                "what": wanted.what,
                "measure": case.measure,
                "bytes": case.bytes,
                "connection": case.connection,
                "loss_percent": percent(&case.loss),
                "wanted": wanted.share,
                "result": share.json(),
                "met": share.median >= wanted.share,
            })
        })
    });
    json!({ "rows": rows, "wanted": wanted.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: &str = "\
1\t0\twrite_bw\t65536\tRC\tperftest\t100
1\t0\twrite_bw\t65536\tRC\traw\t99
1\t1\twrite_bw\t1048576\tRC\tperftest\t10
1\t1\twrite_bw\t1048576\tUC\treliable\t40
1\t1\tsend_bw\t65536\tUC\tperftest\t-
2\t0\twrite_bw\t65536\tRC\tperftest\t50
2\t0\twrite_bw\t65536\tRC\traw\t51
2\t1\twrite_bw\t1048576\tRC\tperftest\t20
2\t1\twrite_bw\t1048576\tUC\treliable\t50
3\t0\twrite_bw\t65536\tRC\tperftest\t200
3\t0\twrite_bw\t65536\tRC\traw\t180
3\t1\twrite_bw\t10485";

    fn figures() -> Vec<Figure> {
        FIGURES.lines().filter_map(Figure::of).collect()
    }

    #[test]
    fn the_table_has_a_line_for_each_case_and_each_thing_wanted() {
        let wanted = "\
perftest and Towpath on the same rxe devices: median (least to most) of 3 rounds
                             perftest                 raw                            reliable
0 % of packets lost
  write_bw RC 64 KiB, MiB/s  100.0 (50.0 to 200.0)    99.0 (51.0 to 180.0) 99 %
1 % of packets lost
  write_bw RC 1 MiB, MiB/s   15.0 (10.0 to 20.0)
  write_bw UC 1 MiB, MiB/s                                                           \
45.0 (40.0 to 50.0)
  send_bw UC 64 KiB, MiB/s   does not end
raw over perftest, write_bw RC 64 KiB, MiB/s, 0 % lost: 0.99 (0.90 to 1.02), wanted 0.95: met
reliable over perftest's RC, write_bw UC 1 MiB, MiB/s, 1 % lost: 3.25 (2.50 to 4.00), \
wanted 3: met
";
        assert_eq!(table(COMPARISONS[0].1, &figures()), wanted);
    }

    #[test]
    fn the_object_says_the_same() {
        let object = object(&figures());
        assert_eq!(object["rows"].as_array().unwrap().len(), 5);
        assert_eq!(object["rows"][1]["rounds"], json!([99.0, 51.0, 180.0]));
        assert_eq!(object["rows"][4]["result"], Value::Null, "{object}");
        assert_eq!(object["wanted"][1]["result"]["median"], json!(3.25));
        assert_eq!(object["wanted"][1]["met"], json!(true));
    }

    #[test]
    fn rounds_without_both_programs_are_not_compared() {
        let mut figures = figures();
        figures.retain(|figure| figure.round != 2 || figure.program != "raw");
        let of = |program| (&figures[0].case, program);
        let share = ratio(&figures, of("raw"), of("perftest")).unwrap();
        assert_eq!((share.least, share.most), (0.9, 0.99));
        assert_eq!(ratio(&figures, of("reliable"), of("perftest")), None);
    }
}
