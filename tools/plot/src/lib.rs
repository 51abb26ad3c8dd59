//! Plots as data, and drawn together as one SVG, without fonts or scripts of its own.
//!
//! | file | what it does |
//! |---|---|
//! | `data` | axes, series, plots |
//! | `axis` | where values lie, and which are marked |
//! | `panel` | one plot |
//! | `pen` | elements and text, escaped |

#![forbid(unsafe_code)]

mod axis;
mod data;
mod panel;
mod pen;

pub use data::{Axis, Plot, Scale, Series, Style, box_of};
use pen::Pen;

/// Around everything.
const MARGIN: f64 = 20.0;

/// A line of the legend or the caption.
const LINE: f64 = 18.0;

/// A line of the title, and its characters for each pixel, about.
const TITLE_LINE: f64 = 22.0;
const TITLE_CHARS_PER_PX: f64 = 0.1;

/// Characters of a caption line for each pixel, about.
const CAPTION_CHARS_PER_PX: f64 = 0.155;

/// Tells colours apart for nearly everybody (six of Okabe and Ito, black, a dark brown, and Tol's
/// wine).
const COLOURS: [&str; 9] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f4f24",
    "#882255",
];

/// Of bounds and targets.
const GREY: &str = "#666666";

/// What each label of a drawing looks like, in the order in which they come.
struct Legend<'a> {
    entries: Vec<(&'a str, Style, &'static str)>,
}

impl<'a> Legend<'a> {
    fn of(plots: &'a [Plot]) -> Self {
        let mut entries: Vec<(&str, Style, &'static str)> = Vec::new();
        let mut colours = COLOURS.iter().cycle();
        for series in plots.iter().flat_map(|plot| &plot.series) {
            if entries.iter().all(|&(label, ..)| label != series.label) {
                let coloured = series.style != Style::Bound;
                let colour = if coloured { colours.next().unwrap_or(&GREY) } else { &GREY };
                entries.push((series.label.as_str(), series.style, *colour));
            }
        }
        Self { entries }
    }

    fn colour(&self, series: &Series) -> &'static str {
        let of = |&&(label, ..): &&(&str, Style, &'static str)| label == series.label;
        self.entries.iter().find(of).map_or(GREY, |&(.., colour)| colour)
    }
}

/// Draws all plots with a title, one legend, and below them the paragraphs of `caption`, whose
/// lines are broken where they are too long.
#[must_use]
pub fn draw(title: &str, plots: &[Plot], caption: &[String]) -> String {
    let across = match plots.len() {
        0 | 1 => 1,
        2..=4 => 2,
        _ => 3,
    };
    let rows = plots.len().div_ceil(across);
    let size = if across == 1 { panel::SIZE_ALONE } else { panel::SIZE };
    let (panel_width, panel_height) = size;
    let width = 2.0 * MARGIN + across as f64 * panel_width;
    let legend = Legend::of(plots);
    let places = legend_places(&legend, width);
    let legend_lines = places.last().map_or(0.0, |&(_, line)| line + 1.0);
    let titles = wrap(title, ((width - 2.0 * MARGIN) * TITLE_CHARS_PER_PX) as usize);
    let below_title = MARGIN + 8.0 + titles.len() as f64 * TITLE_LINE;
    let top = below_title + legend_lines * LINE + 10.0;
    let chars = ((width - 2.0 * MARGIN) * CAPTION_CHARS_PER_PX) as usize;
    let caption: Vec<String> = caption.iter().flat_map(|text| wrap(text, chars)).collect();
    let height = top + rows as f64 * panel_height + caption.len() as f64 * LINE + MARGIN;
    let mut pen = Pen::new(width, height);
    for (line, text) in titles.iter().enumerate() {
        pen.text(MARGIN, MARGIN + 14.0 + line as f64 * TITLE_LINE, "start", "title", text);
    }
    for (&(label, style, colour), (x, line)) in legend.entries.iter().zip(places) {
        let y = below_title + line * LINE + 8.0;
        pen.sample(x, y, style, colour);
        pen.text(x + 34.0, y + 4.0, "start", "label", label);
    }
    for (number, plot) in plots.iter().enumerate() {
        let x = MARGIN + (number % across) as f64 * panel_width;
        let y = top + (number / across) as f64 * panel_height;
        panel::draw(&mut pen, plot, &legend, (x, y), size);
    }
    for (line, text) in caption.iter().enumerate() {
        let y = top + rows as f64 * panel_height + (line as f64 + 0.7) * LINE;
        pen.text(MARGIN, y, "start", "caption", text);
    }
    pen.finish()
}

/// Where the entries of the legend begin, and in which line.
fn legend_places(legend: &Legend<'_>, width: f64) -> Vec<(f64, f64)> {
    let (mut x, mut line) = (MARGIN, 0.0);
    let place = |&(label, ..): &(&str, Style, &'static str)| {
        // Letters are about 6.6 pixels wide at this size.
        let taken = 34.0 + label.len() as f64 * 6.6 + 24.0;
        if x > MARGIN && x + taken > width - MARGIN {
            (x, line) = (MARGIN, line + 1.0);
        }
        let at = (x, line);
        x += taken;
        at
    };
    legend.entries.iter().map(place).collect()
}

/// Lines of at most so many characters, broken at blanks.
fn wrap(text: &str, chars: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a first line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() > chars {
            lines.push(word.to_owned());
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_in_groups_and_a_value_that_is_not_there_leaves_its_place() {
        let groups = ["a", "b"].map(str::to_owned);
        let series = [("x", vec![Some(1.0), Some(2.0)]), ("y", vec![None, Some(3.0)])];
        let series = series.map(|(label, values)| (label.to_owned(), values));
        let plot = Plot::bars(String::new(), "", Axis::linear("y", ""), &groups, series);
        let [x, y] = &plot.series[..] else { panic!("two series") };
        let [tick_a, tick_b] = &plot.x.ticks[..] else { panic!("two groups") };
        // Both on their own side of the middle of a group, and groups apart from each other.
        assert!(x.points[0].0 < tick_a.0 && x.points[1].0 < tick_b.0);
        assert_eq!(y.points.len(), 1);
        assert!(y.points[0].0 > tick_b.0 && tick_b.0 - x.points[1].0 < x.points[1].0 - tick_a.0);
    }

    #[test]
    fn a_long_title_is_broken_and_all_below_it_moves_down() {
        let plot = Plot {
            title: String::new(),
            x: Axis::linear("x", ""),
            y: Axis::linear("y", ""),
            series: vec![],
        };
        let height = |title: &str| {
            let svg = draw(title, std::slice::from_ref(&plot), &[]);
            let number = svg.split("height=\"").nth(1).expect("a size").split('"').next();
            number.expect("closed").parse::<f64>().expect("a number")
        };
        assert_eq!(height(&"long ".repeat(30)), height("short") + TITLE_LINE);
    }

    #[test]
    fn whiskers_end_at_values_and_leave_outliers_out() {
        let values = [0.0, 3.0, 4.0, 5.0, 6.0, 9.0, 30.0];
        let found = box_of(values.into_iter(), [4.0, 5.0, 6.0]);
        // Within 3 of the quartiles.
        assert_eq!(found, [3.0, 4.0, 5.0, 6.0, 9.0]);
        assert_eq!(box_of(std::iter::empty(), [1.0, 2.0, 3.0]), [1.0, 1.0, 2.0, 3.0, 3.0]);
    }

    #[test]
    fn boxes_stand_side_by_side_above_their_names() {
        let names = ["rc", "towpath-uc", "towpath-shared", "one-sided", "towpath-rc", "ud", "uc"];
        let boxes = names.map(|name| (name.to_owned(), [1.0, 2.0, 3.0, 4.0, 5.0]));
        let plot = Plot::boxes(String::new(), "transport", Axis::linear("y", ""), boxes);
        let places: Vec<f64> = plot.series.iter().map(|series| series.points[0].0).collect();
        assert_eq!(places, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        // One of four panels is too narrow for their names in one row.
        let svg = draw("", &[(); 4].map(|()| plot.clone()), &[]);
        let row_of = |name: &str| {
            let before = svg.split(&format!("class=\"tick\">{name}<")).next().expect("there");
            let y = before.rsplit("y=\"").next().expect("there");
            y.split('"').next().expect("there").to_owned()
        };
        assert_ne!(row_of("towpath-uc"), row_of("towpath-shared"));
        assert_eq!(row_of("towpath-uc"), row_of("rc"));
    }

    #[test]
    fn a_box_has_whiskers_and_its_quartiles_apart() {
        let points = [2.0, 4.0, 5.0, 8.0, 10.0].map(|y| (1.0, y)).to_vec();
        let boxes = Series { label: "a".to_owned(), style: Style::Boxes, points };
        let (x, y) =
            (Axis::linear("x", "").range(0.0, 2.0), Axis::linear("y", "").range(0.0, 10.0));
        let plot = Plot { title: String::new(), x, y, series: vec![boxes] };
        let lines = |svg: &str| svg.matches("<line").count();
        let empty = Plot { series: vec![], ..plot.clone() };
        let (with, without) = (draw("", &[plot], &[]), draw("", &[empty], &[]));
        // Two whiskers, their ends, the median; and the same in the legend.
        assert_eq!(lines(&with) - lines(&without), 2 * 5);
        // From 4 to 8 of 10, of 440 - 28 - 52 pixels.
        assert!(with.contains("height=\"144.0\""), "{with}");
    }
}
