//! One plot.

use crate::data::{Axis, Plot, Style};

use crate::Legend;
use crate::axis::Ruler;
use crate::pen::Pen;

/// Of a panel among others, labels and gaps counted in.
pub(crate) const SIZE: (f64, f64) = (460.0, 320.0);

/// Of the only one.
pub(crate) const SIZE_ALONE: (f64, f64) = (820.0, 440.0);

/// From the edges of a panel to its frame: left, right, top, bottom.
const INSET: (f64, f64, f64, f64) = (62.0, 22.0, 28.0, 52.0);

/// Pixels from one dot of a line to the next, at least; without room for that it has none.
const DOT_GAP_MIN: f64 = 10.0;

/// Rows of text below the axis across, and from one to the next.
const TICK_ROWS: usize = 2;
const TICK_ROW: f64 = 12.0;

/// A character of that text is about so wide, and so far apart are texts of one row at least.
const TICK_CHAR: f64 = 6.5;
const TICK_GAP: f64 = 4.0;

/// Of a bar, on the axis across.
const BAR_WIDTH: f64 = 0.2;

const GRID: &str = "#e3e3e3";
const FRAME: &str = "#888888";

/// Draws a plot of a size with its upper left corner at a place.
pub(crate) fn draw(
    pen: &mut Pen,
    plot: &Plot,
    legend: &Legend<'_>,
    (left, top): (f64, f64),
    (width, height): (f64, f64),
) {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let across = Ruler::new(&plot.x, points().map(|point| point.0));
    let upwards = Ruler::new(&plot.y, points().map(|point| point.1));
    let (x0, x1) = (left + INSET.0, left + width - INSET.1);
    let (y0, y1) = (top + height - INSET.3, top + INSET.2);
    let at_x = |place: f64| x0 + place * (x1 - x0);
    let at_y = |place: f64| y0 + place * (y1 - y0);
    pen.text(x0, y1 - 10.0, "start", "panel", &plot.title);
    let mut rows = [f64::NEG_INFINITY; TICK_ROWS];
    for (value, text) in &across.marks {
        if let Some(x) = across.place(*value).map(at_x) {
            pen.line((x, y0), (x, y1), GRID, 1.0);
            let below = row_for(&mut rows, x, text) as f64 * TICK_ROW;
            pen.text(x, y0 + 15.0 + below, "middle", "tick", text);
        }
    }
    for (value, text) in &upwards.marks {
        if let Some(y) = upwards.place(*value).map(at_y) {
            pen.line((x0, y), (x1, y), GRID, 1.0);
            pen.text(x0 - 6.0, y + 4.0, "end", "tick", text);
        }
    }
    pen.line((x0, y0), (x1, y0), FRAME, 1.0);
    pen.line((x0, y0), (x0, y1), FRAME, 1.0);
    pen.text((x0 + x1) / 2.0, y0 + 42.0, "middle", "label", &name(&plot.x));
    pen.text_up(left + 14.0, (y0 + y1) / 2.0, "label", &name(&plot.y));
    for series in &plot.series {
        let colour = legend.colour(series);
        let place = |&(x, y): &(f64, f64)| Some((at_x(across.place(x)?), at_y(upwards.place(y)?)));
        let places: Vec<(f64, f64)> = series.points.iter().filter_map(place).collect();
        match series.style {
            Style::Line => {
                pen.path(&places, colour, false);
                // Closer together dots would be a band that covers other lines.
                if places.len() as f64 * DOT_GAP_MIN <= x1 - x0 {
                    places.iter().for_each(|&at| pen.dot(at, colour));
                }
            }
            Style::Bound => pen.path(&places, colour, true),
            Style::Points => places.iter().for_each(|&at| pen.dot(at, colour)),
            Style::Span => {
                let ends = series.points.as_chunks::<2>().0;
                for [low, high] in ends {
                    if let (Some(low), Some(high)) = (place(low), place(high)) {
                        pen.span(low, high, colour);
                    }
                }
            }
            Style::Boxes => {
                let width = (x1 - x0) * BAR_WIDTH / across.span().max(BAR_WIDTH);
                for each in series.points.as_chunks::<5>().0 {
                    let at: Vec<(f64, f64)> = each.iter().filter_map(place).collect();
                    if let [low, lower, median, upper, high] = at[..] {
                        let heights = [low.1, lower.1, median.1, upper.1, high.1];
                        pen.boxed(median.0, width, heights, colour);
                    }
                }
            }
            Style::Blocks => {
                let width = (x1 - x0) * BAR_WIDTH / across.span().max(BAR_WIDTH);
                let mut below = (f64::NAN, y0);
                for &(x, y) in &places {
                    let from = if below.0 == x { below.1 } else { y0 };
                    pen.block((x - width / 2.0, y), (width, from - y), colour);
                    below = (x, y);
                }
            }
        }
    }
}

/// The first row in which a text around `x` does not touch the one before; else the last.
fn row_for(rows: &mut [f64; TICK_ROWS], x: f64, text: &str) -> usize {
    let half = text.chars().count() as f64 * TICK_CHAR / 2.0;
    let row = rows.iter().position(|&end| end + TICK_GAP <= x - half).unwrap_or(TICK_ROWS - 1);
    rows[row] = x + half;
    row
}

fn name(axis: &Axis) -> String {
    if axis.unit.is_empty() {
        axis.label.to_owned()
    } else {
        format!("{} ({})", axis.label, axis.unit)
    }
}
