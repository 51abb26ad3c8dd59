//! What there is to draw: plain data, which a program may draw as it likes.

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten. Values must be above zero.
    Log,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is on it.
    pub label: &'static str,
    /// In which unit; may be empty.
    pub unit: &'static str,
    /// How it is divided.
    pub scale: Scale,
    /// Where it begins and ends; `None` as the data have it.
    pub range: Option<(f64, f64)>,
    /// Values that are marked, with their text; empty for round numbers.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An evenly divided axis.
    #[must_use]
    pub fn linear(label: &'static str, unit: &'static str) -> Self {
        Self { label, unit, scale: Scale::Linear, range: None, ticks: Vec::new() }
    }

    /// An axis of powers of ten.
    #[must_use]
    pub fn log(label: &'static str, unit: &'static str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label, unit) }
    }

    /// From `low` to `high`.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Marked at these values.
    #[must_use]
    pub fn ticks(mut self, ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        self.ticks = ticks.into_iter().collect();
        self
    }
}

/// From one bar to the next beside it: a bar is 0.2 wide.
const BAR_STEP: f64 = 0.22;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line through marked points.
    Line,
    /// A dashed line: a bound, a target.
    Bound,
    /// Points alone.
    Points,
    /// From a low to a high value at each place: what others published.
    Span,
    /// Boxes: five points at one place are the low whisker, the lower quartile, the median, the
    /// upper quartile and the high whisker.
    Boxes,
    /// Bars of blocks, 0.2 wide: points at one place are the upper ends of the blocks of a bar,
    /// from below.
    Blocks,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What they are. Series of several plots with one label look alike.
    pub label: String,
    /// How they are drawn.
    pub style: Style,
    /// (x, y); a [`Style::Span`] has its low and its high end one after the other.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Points that belong together.
    pub fn new(
        label: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { label: label.into(), style, points: points.into_iter().collect() }
    }
}

/// What a box shows of values in rising order, whose quartiles are these: as whiskers it has the
/// furthest values within one and a half times the range of the quartiles (Tukey's, without
/// outliers).
pub fn box_of(
    mut values: impl DoubleEndedIterator<Item = f64> + Clone,
    [lower, median, upper]: [f64; 3],
) -> [f64; 5] {
    let reach = 1.5 * (upper - lower);
    let low = values.clone().find(|&value| value >= lower - reach);
    let high = values.rfind(|&value| value <= upper + reach);
    [low.unwrap_or(lower), lower, median, upper, high.unwrap_or(upper)]
}

/// One drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is in it.
    pub series: Vec<Series>,
}

impl Plot {
    /// Boxes side by side, each named below it and made by [`box_of`].
    #[must_use]
    pub fn boxes(
        title: String,
        across: &'static str,
        y: Axis,
        boxes: impl IntoIterator<Item = (String, [f64; 5])>,
    ) -> Self {
        let place = |(place, (label, heights)): (usize, (String, [f64; 5]))| {
            let x = place as f64 + 1.0;
            Series { label, style: Style::Boxes, points: heights.map(|y| (x, y)).to_vec() }
        };
        let series: Vec<Series> = boxes.into_iter().enumerate().map(place).collect();
        let ticks = series.iter().map(|series| (series.points[0].0, series.label.clone()));
        let x = Axis::linear(across, "").range(0.4, series.len() as f64 + 0.6).ticks(ticks);
        Self { title, x, y, series }
    }

    /// Bars in groups, each named below it; a series has a bar in each group, or none where there
    /// is no value.
    #[must_use]
    pub fn bars(
        title: String,
        across: &'static str,
        y: Axis,
        groups: &[String],
        series: impl IntoIterator<Item = (String, Vec<Option<f64>>)>,
    ) -> Self {
        let series: Vec<(String, Vec<Option<f64>>)> = series.into_iter().collect();
        let middle = (series.len() as f64 - 1.0) / 2.0;
        // From one group to the next, with a gap of two bars.
        let apart = (series.len() as f64 + 2.0) * BAR_STEP;
        let bars = |(beside, (label, values)): (usize, (String, Vec<Option<f64>>))| {
            let x = |group: usize| group as f64 * apart + (beside as f64 - middle) * BAR_STEP;
            let each = values.into_iter().enumerate();
            let points = each.filter_map(|(group, value)| Some((x(group), value?))).collect();
            Series { label, style: Style::Blocks, points }
        };
        let ticks = groups.iter().enumerate().map(|(at, name)| (at as f64 * apart, name.clone()));
        let last = groups.len().max(1) as f64 - 0.5;
        let x = Axis::linear(across, "").range(-0.5 * apart, last * apart).ticks(ticks);
        Self { title, x, y, series: series.into_iter().enumerate().map(bars).collect() }
    }
}
