//! The table of what works, as data, and as text. Fields of the JSON are added, never renamed.

use serde::Serialize;
use std::fmt::Write;

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Status {
    /// It was tried and does.
    #[serde(rename = "works")]
    Works,
    /// It was tried, or the device says so, and it does not.
    #[serde(rename = "does not")]
    DoesNot,
    /// Nobody knows; the note says why.
    #[serde(rename = "not tried")]
    NotTried,
}

impl Status {
    fn text(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::DoesNot => "does not",
            Self::NotTried => "not tried",
        }
    }
}

/// A figure with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// What a program finds the row by.
    pub(super) id: &'static str,
    /// What was to be tried.
    pub(super) what: &'static str,
    pub(super) status: Status,
    pub(super) figure: Option<Figure>,
    /// How it was tried, or why it does not work or was not tried.
    pub(super) note: String,
}

/// What a try found: a figure and how it was tried, or why it does not work.
pub(super) type Tried = Result<(Option<Figure>, String), String>;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    /// The version of the tool.
    pub(super) version: &'static str,
    pub(super) device: String,
    /// Whom it was tried with.
    pub(super) peer: String,
    pub(super) rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(device: String, peer: String) -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), device, peer, rows: Vec::new() }
    }

    pub(super) fn tried(&mut self, id: &'static str, what: &'static str, tried: Tried) {
        let (status, figure, note) = match tried {
            Ok((figure, note)) => (Status::Works, figure, note),
            Err(why) => (Status::DoesNot, None, why),
        };
        self.rows.push(Row { id, what, status, figure, note });
    }

    pub(super) fn not_tried(&mut self, id: &'static str, what: &'static str, why: &str) {
        let (status, note) = (Status::NotTried, why.to_owned());
        self.rows.push(Row { id, what, status, figure: None, note });
    }

    /// Whether the row of this name works.
    pub(super) fn works(&self, id: &str) -> bool {
        self.rows.iter().any(|row| row.id == id && row.status == Status::Works)
    }

    /// For people: columns that can be pasted into a letter.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let Self { version, device, peer, rows } = self;
        // Writing to a string does not fail.
        let _ = writeln!(text, "tow_devinfo {version}: {device} with {peer}\n");
        let cells = rows.iter().map(|row| {
            let figure = row.figure.map_or(String::new(), |figure| {
                let digits =
                    if figure.value < 100.0 && figure.value.fract() != 0.0 { 2 } else { 0 };
                format!("{:.digits$} {}", figure.value, figure.unit)
            });
            [row.what.to_owned(), row.status.text().to_owned(), figure, row.note.clone()]
        });
        let head = ["what", "result", "figure", "how, or why not"].map(str::to_owned);
        let lines: Vec<[String; 4]> = std::iter::once(head).chain(cells).collect();
        let width = |at: usize| lines.iter().map(|line| line[at].len()).max().unwrap_or(0);
        let [a, b, c] = [width(0), width(1), width(2)];
        for [what, result, figure, note] in &lines {
            let line = format!("{what:<a$}  {result:<b$}  {figure:>c$}  {note}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_what_works_what_does_not_and_what_nobody_tried() {
        let mut table = Table::new("roce".to_owned(), "10.0.0.2:18516".to_owned());
        let figure = Figure { value: 12.5, unit: "us" };
        table.tried("uc", "messages over UC", Ok((Some(figure), "100 of them".to_owned())));
        table.tried("rc", "messages over RC", Err("the device has no RC".to_owned()));
        table.not_tried("two-nics", "several NICs", "one was named");
        assert!(table.works("uc") && !table.works("rc") && !table.works("two-nics"));
        let wanted = "messages over UC  works      12.50 us  100 of them\n\
                      messages over RC  does not             the device has no RC\n\
                      several NICs      not tried            one was named\n";
        assert!(table.text().ends_with(wanted), "{}", table.text());
        let json = serde_json::to_value(&table).expect("plain data");
        assert_eq!(json["rows"][1]["status"], "does not");
        assert_eq!(json["rows"][0]["figure"]["value"], 12.5);
    }
}
