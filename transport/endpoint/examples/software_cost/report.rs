//! Medians and spreads, as a table or as JSON.

use crate::case::{Case, Cost};
use crate::reliable::AloneCost;
use serde_json::{Map, Value, json};
use std::fmt;

/// One number of the report.
pub(crate) struct Figure {
    key: String,
    what: String,
    median: f64,
    /// The median distance from the median.
    spread: f64,
    least: f64,
    most: f64,
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

impl Figure {
    pub(crate) fn of(key: &str, what: &str, values: &[f64]) -> Self {
        let middle = median(&mut values.to_vec());
        let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        let spread = median(&mut distances);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { key: key.to_owned(), what: what.to_owned(), median: middle, spread, least, most }
    }
}

/// All numbers, in the order they were added.
#[derive(Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    fn add_part(&mut self, case: &Case, key: &str, what: &str, values: &[f64]) {
        let (key, what) = (format!("{}.{key}", case.name), format!("{}: {what}", case.name));
        self.add(Figure::of(&key, &what, values));
    }

    pub(crate) fn add_case(&mut self, case: &Case, raw: &[Cost], reliable: &[Cost]) {
        let all = |costs: &[Cost], of: fn(&Cost) -> f64| costs.iter().map(of).collect::<Vec<_>>();
        if !raw.is_empty() {
            self.add_part(case, "raw_ns", "raw verbs, ns", &all(raw, Cost::both_ns));
            let added: Vec<f64> = raw
                .iter()
                .zip(reliable)
                .map(|(raw, reliable)| reliable.both_ns() - raw.both_ns())
                .collect();
            self.add_part(case, "added_ns", "added by the software, ns", &added);
        }
        self.add_part(case, "ns", "both ends, ns", &all(reliable, Cost::both_ns));
        self.add_part(case, "sender_ns", "sender, ns", &all(reliable, |cost| cost.sender_ns));
        self.add_part(case, "receiver_ns", "receiver, ns", &all(reliable, |cost| cost.receiver_ns));
        if case.chunks_of_message == 1 {
            let one_core = all(reliable, |cost| 1e3 / cost.both_ns());
            self.add_part(case, "mega_per_s", "million a second, both ends on one core", &one_core);
            let sender = all(reliable, |cost| 1e3 / cost.sender_ns);
            self.add_part(
                case,
                "sender_mega_per_s",
                "million a second, by the sender's core",
                &sender,
            );
        }
    }

    /// What links of many paths cost, and what that adds to those of one in the same rounds.
    pub(crate) fn add_paths(&mut self, case: &Case, paths: u8, one: &[Cost], many: &[Cost]) {
        let values: Vec<f64> = many.iter().map(Cost::both_ns).collect();
        self.add_part(case, "paths_ns", &format!("both ends, {paths} paths, ns"), &values);
        if !one.is_empty() {
            let pairs = one.iter().zip(many);
            let added: Vec<f64> = pairs.map(|(one, many)| many.both_ns() - one.both_ns()).collect();
            let what = format!("added by {paths} paths to one, ns");
            self.add_part(case, "paths_added_ns", &what, &added);
        }
    }

    pub(crate) fn add_alone(&mut self, costs: &[AloneCost]) {
        type Part = fn(&AloneCost) -> f64;
        let parts: [(&str, &str, Part); 4] = [
            ("alone.send_ns", "one at a time: send to posted, ns", |cost| cost.send_ns),
            (
                "alone.ack_turnaround_ns",
                "one at a time: chunk completed to ack posted, ns",
                |cost| cost.ack_turnaround_ns,
            ),
            ("alone.outcome_ns", "one at a time: ack completed to outcome, ns", |c| c.outcome_ns),
            ("alone.idle_turn_ns", "a turn with nothing to do, ns", |cost| cost.idle_turn_ns),
        ];
        for (key, what, part) in parts {
            let values: Vec<f64> = costs.iter().map(part).collect();
            self.add(Figure::of(key, what, &values));
        }
    }

    /// `{"CASE": {"FIGURE": {"median": .., "spread": .., "least": .., "most": ..}}}`.
    pub(crate) fn to_json(&self) -> Value {
        let mut cases = Map::new();
        for figure in &self.figures {
            let (case, name) = figure.key.split_once('.').unwrap_or(("", &figure.key));
            let Figure { median, spread, least, most, .. } = figure;
            let value = json!({ "median": median, "spread": spread, "least": least, "most": most });
            let case = cases.entry(case).or_insert_with(|| Value::Object(Map::new()));
            case[name] = value;
        }
        Value::Object(cases)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, spread, least, most) = ("median", "spread", "least", "most");
        writeln!(f, "{:<52} {median:>10} {spread:>8} {least:>10} {most:>10}", "")?;
        for Figure { what, median, spread, least, most, .. } in &self.figures {
            writeln!(f, "{what:<52} {median:>10.1} {spread:>8.1} {least:>10.1} {most:>10.1}")?;
        }
        Ok(())
    }
}
