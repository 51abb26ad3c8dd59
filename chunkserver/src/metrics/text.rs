//! The text form that Prometheus reads (exposition format 0.0.4).

use std::fmt::{self, Write as _};

/// Its content type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Text of metrics, family by family.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// The labels of a line, and their values.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    /// Begins a family: all lines of it follow.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.0.push_str("# HELP ");
        self.0.push_str(name);
        self.0.push(' ');
        for letter in help.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '\n' => self.0.push_str("\\n"),
                _ => self.0.push(letter),
            }
        }
        self.say(format_args!("\n# TYPE {name} {kind}\n"));
    }

    /// One line of the family.
    pub(crate) fn line(&mut self, name: &str, labels: Labels<'_>, value: impl fmt::Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    _ => self.0.push(letter),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.say(format_args!(" {value}\n"));
    }

    /// A family of one line without labels.
    pub(crate) fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl fmt::Display) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    fn say(&mut self, words: fmt::Arguments<'_>) {
        // A string takes all that memory holds.
        let _ = self.0.write_fmt(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_escaped_in_labels_and_help() {
        let mut text = Text::default();
        text.family("a_total", Kind::Counter, "one \\ and\ntwo");
        text.line("a_total", &[("b", "say \"x\\y\"\nz"), ("c", "")], 7);
        text.one("d", Kind::Gauge, "plain", 0.5);
        let expected = "# HELP a_total one \\\\ and\\ntwo\n# TYPE a_total counter\n\
                        a_total{b=\"say \\\"x\\\\y\\\"\\nz\",c=\"\"} 7\n\
                        # HELP d plain\n# TYPE d gauge\nd 0.5\n";
        assert_eq!(text.into_string(), expected);
    }
}
