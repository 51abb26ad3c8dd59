//! Elements and text of an SVG, escaped.

use std::fmt::Write as _;

use crate::data::Style;

/// Looks; sizes are in pixels. The fonts are whatever the viewer has.
const STYLE: &str = "text{font-family:Helvetica,Arial,sans-serif;fill:#222}\
.title{font-size:17px;font-weight:bold}.panel{font-size:13px;font-weight:bold}\
.label{font-size:12px}.tick{font-size:11px;fill:#444}\
.caption{font-size:10.5px;fill:#666;font-family:monospace}";

/// Writes elements one after the other.
pub(crate) struct Pen {
    text: String,
}

impl Pen {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        let mut text = String::new();
        // Writing to a string does not fail; so below.
        let _ = write!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        Self { text }
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
        let words = escape(words);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
             class=\"{class}\">{words}</text>"
        );
    }

    /// Text that reads upwards.
    pub(crate) fn text_up(&mut self, x: f64, y: f64, class: &str, words: &str) {
        let words = escape(words);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" class=\"{class}\" \
             transform=\"rotate(-90 {x:.1} {y:.1})\">{words}</text>"
        );
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let _ = writeln!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    pub(crate) fn path(&mut self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let width = if dashed { 1.5 } else { 2.0 };
        let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash}/>",
            list.join(" ")
        );
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\" stroke=\"#ffffff\"/>"
        );
    }

    /// A bar from a low to a high value.
    pub(crate) fn span(&mut self, low: (f64, f64), high: (f64, f64), colour: &str) {
        // What is one value only still shows.
        let (top, height) = (high.1.min(low.1), (low.1 - high.1).abs().max(3.0));
        let _ = writeln!(
            self.text,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"9\" height=\"{height:.1}\" rx=\"2\" \
             fill=\"{colour}\" fill-opacity=\"0.35\"/>",
            low.0 - 4.5
        );
    }

    /// A block of a bar, from its upper left corner.
    pub(crate) fn block(&mut self, at: (f64, f64), size: (f64, f64), colour: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" \
             stroke=\"#ffffff\" stroke-width=\"0.4\"/>",
            at.0,
            at.1,
            size.0,
            size.1.max(0.0)
        );
    }

    /// A box with whiskers around `x`: from the low whisker to the high one.
    pub(crate) fn boxed(&mut self, x: f64, width: f64, heights: [f64; 5], colour: &str) {
        let [low, lower, median, upper, high] = heights;
        let (left, right) = (x - width / 2.0, x + width / 2.0);
        self.line((x, low), (x, lower), colour, 1.5);
        self.line((x, upper), (x, high), colour, 1.5);
        for end in [low, high] {
            self.line((x - width / 4.0, end), (x + width / 4.0, end), colour, 1.5);
        }
        let _ = writeln!(
            self.text,
            "<rect x=\"{left:.1}\" y=\"{upper:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
             fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"{colour}\"/>",
            (lower - upper).max(0.0)
        );
        self.line((left, median), (right, median), colour, 2.5);
    }

    /// What a series looks like, for a legend; 28 pixels wide.
    pub(crate) fn sample(&mut self, x: f64, y: f64, style: Style, colour: &str) {
        match style {
            Style::Line => {
                self.path(&[(x, y), (x + 28.0, y)], colour, false);
                self.dot((x + 14.0, y), colour);
            }
            Style::Bound => self.path(&[(x, y), (x + 28.0, y)], colour, true),
            Style::Points => self.dot((x + 14.0, y), colour),
            Style::Span => self.span((x + 14.0, y + 6.0), (x + 14.0, y - 6.0), colour),
            Style::Boxes => {
                let heights = [y + 8.0, y + 4.0, y, y - 4.0, y - 8.0];
                self.boxed(x + 14.0, 10.0, heights, colour);
            }
            Style::Blocks => self.block((x + 9.0, y - 5.0), (10.0, 10.0), colour),
        }
    }
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
