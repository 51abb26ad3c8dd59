//! What people read.

use std::fmt::Write as _;

use towpath_lab::studies::{
    Cell, Claim, Clock, Demand, Format, Report, Study, Table, show_bytes, show_share,
};

use super::args::Family;
use crate::cli::bytes::show_count;

/// Between two columns.
const GAP: &str = "  ";

/// The list of studies.
pub(super) fn list<F: Family>() -> String {
    let studies = F::STUDIES;
    let width = studies.iter().map(|study| study.name.len()).max().unwrap_or(0);
    let mut text = format!("{}:\n\n", F::TITLE);
    for study in studies {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:width$}  {}", study.name, study.what);
        let _ = writeln!(text, "  {:width$}  mirrors: {}", "", study.mirrors);
        if study.clock != F::CLOCK {
            let _ = writeln!(text, "  {:width$}  {}", "", clock_words(study.clock));
        }
    }
    let (command, takes) = (F::COMMAND, F::TAKES);
    let _ = write!(
        text,
        "\n`towpath {command} STUDY` runs one, {takes}; --quick takes seconds.\n\
         `towpath {command} STUDY --help` says what can be chosen.\n",
    );
    text
}

/// Whose time figures are in, for people.
fn clock_words(clock: Clock) -> &'static str {
    match clock {
        Clock::Virtual => "figures: in virtual time",
        Clock::Machine => "figures: of this machine, in real time; they differ from run to run",
    }
}

/// Everything that a study found.
pub(super) fn show(study: &Study, report: &Report, command: &str) -> String {
    let mut text = format!("{}: {}\nmirrors {}\n", study.name, study.what, study.mirrors);
    for table in &report.tables {
        let _ = write!(text, "\n{}\n\n{}", table.title, show_table(table));
    }
    if !report.claims.is_empty() {
        text.push_str("\nTargets\n");
        report.claims.iter().for_each(|claim| text.push_str(&show_claim(claim)));
    }
    if !report.notes.is_empty() {
        text.push_str("\nNotes\n");
        for note in &report.notes {
            let _ = writeln!(text, "{}", wrap(note, "  - ", "    "));
        }
    }
    if report.runs.is_empty() {
        let _ = writeln!(text, "\nagain: {command}");
        return text;
    }
    let runs = report.runs.len();
    let _ = writeln!(text, "\ntrace {:016x} of {runs} runs", report.trace_hash());
    // Packets replay wherever there is a trace, figures only in virtual time.
    let word = if study.clock == Clock::Virtual { "replay" } else { "again" };
    let _ = writeln!(text, "{word}: {command}");
    text
}

fn show_table(table: &Table) -> String {
    let mut columns: Vec<Vec<String>> = Vec::new();
    for (place, column) in table.columns.iter().enumerate() {
        let mut lines = vec![column.head.to_owned(), column.unit.to_owned()];
        lines.extend(table.rows.iter().map(|row| show_cell(&row[place], column.format)));
        columns.push(lines);
    }
    let is_text = |place: usize| table.rows.iter().all(|row| matches!(row[place], Cell::Text(_)));
    let left: Vec<bool> = (0..columns.len()).map(is_text).collect();
    let widths: Vec<usize> =
        columns.iter().map(|lines| lines.iter().map(String::len).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in 0..table.rows.len() + 2 {
        let mut shown = String::new();
        for (place, column) in columns.iter().enumerate() {
            let (cell, width) = (&column[line], widths[place]);
            let _ = if left[place] {
                write!(shown, "{GAP}{cell:<width$}")
            } else {
                write!(shown, "{GAP}{cell:>width$}")
            };
        }
        if !shown.trim().is_empty() {
            let _ = writeln!(text, "{}", shown.trim_end());
        }
    }
    text
}

fn show_cell(cell: &Cell, format: Format) -> String {
    let number = match cell {
        Cell::Absent => return "-".to_owned(),
        Cell::Text(text) => return text.clone(),
        Cell::Count(count) => match format {
            Format::Bytes => return show_bytes(*count),
            Format::Plain => return show_count(*count),
            _ => *count as f64,
        },
        Cell::Number(number) => *number,
    };
    match format {
        Format::Plain => format!("{number}"),
        Format::Bytes => show_bytes(number.round() as u64),
        Format::Decimals(decimals) => format!("{number:.*}", usize::from(decimals)),
        Format::Percent(decimals) => format!("{:.*}", usize::from(decimals), number * 100.0),
        Format::Share => show_share(number),
    }
}

fn show_claim(claim: &Claim) -> String {
    let decimals = usize::from(claim.decimals);
    let (words, target) = match claim.demand {
        Demand::AtLeast(target) => ("at least", target),
        Demand::AtMost(target) => ("at most", target),
    };
    let show = |value: f64| format!("{value:.decimals$} {}", claim.unit).trim_end().to_owned();
    let verdict = if claim.is_met() { "met   " } else { "MISSED" };
    let mut text = format!(
        "  {verdict}  {}: {words} {}, measured {}",
        claim.what,
        show(target),
        show(claim.measured)
    );
    if !claim.is_met() {
        // More digits than the target has, so that a near miss is not a miss by zero.
        let _ = write!(text, ", missed by {:.*}", decimals + 1, claim.missed_by());
    }
    text.push('\n');
    text
}

/// Lines of at most 100 columns.
fn wrap(words: &str, first: &str, next: &str) -> String {
    let mut text = first.to_owned();
    let mut width = first.len();
    for (place, word) in words.split_whitespace().enumerate() {
        if place > 0 && width + 1 + word.len() > 100 {
            text.push('\n');
            text.push_str(next);
            width = next.len();
        } else if place > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_lab::studies::Column;

    #[test]
    fn numbers_stand_right_words_left_and_what_is_unknown_is_a_dash() {
        let table = Table {
            name: "t",
            title: String::new(),
            columns: vec![
                Column::new("who", "who", "", Format::Plain),
                Column::new("rate", "rate", "Gb/s", Format::Decimals(1)),
                Column::new("size", "size", "", Format::Bytes),
            ],
            rows: vec![
                vec!["one".into(), 97.26.into(), 4096u64.into()],
                vec!["another".into(), Cell::Absent, 1u64.into()],
            ],
        };
        let shown = "  who      rate   size\n           Gb/s\n  one      97.3  4 KiB\n  \
                     another     -    1 B\n";
        assert_eq!(show_table(&table), shown);
    }

    #[test]
    fn a_missed_target_says_by_how_much() {
        let mut claim = Claim {
            name: String::new(),
            what: "goodput".to_owned(),
            demand: Demand::AtLeast(97.0),
            measured: 96.98,
            unit: "%",
            decimals: 1,
        };
        let said = "  MISSED  goodput: at least 97.0 %, measured 97.0 %, missed by 0.02\n";
        assert_eq!(show_claim(&claim), said);
        claim.measured = 98.0;
        assert_eq!(show_claim(&claim), "  met     goodput: at least 97.0 %, measured 98.0 %\n");
    }

    #[test]
    fn long_notes_are_wrapped() {
        let note = "word ".repeat(60);
        assert!(wrap(&note, "  - ", "    ").lines().all(|line| line.len() <= 100));
        assert_eq!(wrap("a b", "  - ", "    "), "  - a b");
    }
}
