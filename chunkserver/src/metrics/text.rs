//! The text form that Prometheus reads (exposition format 0.0.4).

use std::fmt::{Display, Write as _};

/// Its content type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text of metrics, family by family.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// A family of counters if its name ends with `_total`, else of gauges: a line for each of
    /// `rows`, which has the values of the labels.
    pub(crate) fn family<const N: usize, L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        rows: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        self.head(name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
        for (values, value) in rows {
            self.line(name, labels.into_iter().zip(values.iter().map(AsRef::as_ref)), value);
        }
    }

    /// A family of one line without labels.
    pub(crate) fn one(&mut self, name: &str, help: &str, value: impl Display) {
        self.family::<0, &str, _>(name, help, [], [([], value)]);
    }

    /// Begins a family: all lines of it follow.
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str("# HELP ");
        self.0.push_str(name);
        self.0.push(' ');
        self.escaped(help, false);
        // A string takes all that memory holds.
        let _ = write!(self.0, "\n# TYPE {name} {kind}\n");
    }

    /// One line, with its labels and their values.
    pub(crate) fn line<'a>(
        &mut self,
        name: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        self.0.push_str(name);
        let mut before = '{';
        for (label, value) in labels {
            self.0.push(std::mem::replace(&mut before, ','));
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.escaped(value, true);
            self.0.push('"');
        }
        if before == ',' {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    fn escaped(&mut self, words: &str, is_quoted: bool) {
        for letter in words.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '\n' => self.0.push_str("\\n"),
                '"' if is_quoted => self.0.push_str("\\\""),
                _ => self.0.push(letter),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_escaped_in_labels_and_help() {
        let mut text = Text::default();
        let rows = [(["say \"x\\y\"\nz", ""], 7)];
        text.family("a_total", "one \\ and\ntwo", ["b", "c"], rows);
        text.one("d", "plain", 0.5);
        let expected = "# HELP a_total one \\\\ and\\ntwo\n# TYPE a_total counter\n\
                        a_total{b=\"say \\\"x\\\\y\\\"\\nz\",c=\"\"} 7\n\
                        # HELP d plain\n# TYPE d gauge\nd 0.5\n";
        assert_eq!(text.into_string(), expected);
    }
}
