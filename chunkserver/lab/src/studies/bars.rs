//! Bars by client, with a block for each period, as the paper has them.

use crate::world::Outcome;
use towpath_lab::studies::{Axis, Plot, Series, Style};

/// One bar of each client.
pub(super) struct Bars {
    label: String,
    /// By client, then by period.
    blocks: Vec<Vec<f64>>,
}

impl Bars {
    /// What a run did.
    pub(super) fn of(label: impl Into<String>, outcome: &Outcome) -> Self {
        let clients = outcome.done.first().map_or(0, Vec::len);
        let of = |client| outcome.done.iter().map(|done| f64::from(done[client]) / 1e3).collect();
        Self { label: label.into(), blocks: (0..clients).map(of).collect() }
    }

    /// The same in each period.
    pub(super) fn level(label: impl Into<String>, each: &[u32], periods: usize) -> Self {
        let of = |&ios: &u32| vec![f64::from(ios) / 1e3; periods];
        Self { label: label.into(), blocks: each.iter().map(of).collect() }
    }
}

/// A drawing of all, side by side.
pub(super) fn draw(title: impl Into<String>, bars: Vec<Bars>) -> Plot {
    let (count, clients) = (bars.len() as f64, bars.first().map_or(0, |bars| bars.blocks.len()));
    let series = bars.into_iter().enumerate().map(|(place, bars)| {
        let beside = (place as f64 - (count - 1.0) / 2.0) * 0.22;
        let mut points = Vec::new();
        for (client, blocks) in bars.blocks.iter().enumerate() {
            let mut sum = 0.0;
            for block in blocks {
                sum += block;
                points.push((client as f64 + 1.0 + beside, sum));
            }
        }
        Series { label: bars.label, style: Style::Blocks, points }
    });
    Plot {
        title: title.into(),
        x: Axis::linear("client", "")
            .range(0.4, clients as f64 + 0.6)
            .ticks((1..=clients).map(|client| (client as f64, format!("C{client}")))),
        y: Axis::linear("I/Os completed, a block for each period", "thousands"),
        series: series.collect(),
    }
}
