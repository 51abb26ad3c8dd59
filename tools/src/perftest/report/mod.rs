//! What is shown: rows as a table with perftest's layout, or as JSON.

pub(crate) mod json;
pub(crate) mod table;

#[cfg(test)]
mod tests;

use super::carrier::Counters;
use super::error::RunError;
use super::settings::{Only, Settings};
use super::summary::Summary;
use crate::path_table::path_table;
use std::io::Write;
use towpath_status::PathStatus;
use towpath_transport::{Mtu, Ride};

/// One row of a bandwidth tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BwRow {
    pub(crate) size: u32,
    /// Messages measured.
    pub(crate) iterations: u64,
    /// Messages per second of the best stretch; 0 where it was not looked for.
    pub(crate) peak_per_second: f64,
    /// Messages per second.
    pub(crate) per_second: f64,
    /// What the transport of both ends counted; none for kernel TCP and plain verbs.
    pub(crate) counters: Option<Counters>,
    /// Raw messages that never came; none where nobody can tell.
    pub(crate) messages_lost: Option<u64>,
    pub(crate) cpu: RowCpu,
}

/// One row of a latency tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LatRow {
    pub(crate) size: u32,
    /// Round trips measured.
    pub(crate) iterations: u64,
    pub(crate) summary: Summary,
    /// Round trips per second.
    pub(crate) per_second: f64,
    pub(crate) counters: Option<Counters>,
    pub(crate) cpu: RowCpu,
}

/// What processors did while a row lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowCpu {
    /// Percent of the whole machine.
    pub(crate) util: Option<f64>,
    /// Processor time of the thread of the end that was only acted upon, in nanoseconds.
    pub(crate) serving_ns: Option<u64>,
}

/// A row of either kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    Bw(BwRow),
    Lat(LatRow),
}

/// Shows what a run brings, as it comes.
pub(crate) struct Report<'a> {
    settings: &'a Settings,
    out: &'a mut dyn Write,
    rows: Vec<Row>,
    paths: Vec<PathStatus>,
    addresses: (String, String),
    mtu: Option<Mtu>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(settings: &'a Settings, out: &'a mut dyn Write) -> Self {
        let (rows, paths) = (Vec::new(), Vec::new());
        Self { settings, out, rows, paths, addresses: Default::default(), mtu: None }
    }

    /// The ends are connected: the head of the table.
    pub(crate) fn begin(
        &mut self,
        local: &str,
        remote: &str,
        mtu: Option<Mtu>,
    ) -> Result<(), RunError> {
        self.addresses = (local.to_owned(), remote.to_owned());
        self.mtu = mtu;
        if self.as_table() {
            let head = table::head(self.settings, (local, remote), mtu);
            self.print(&head)?;
        }
        Ok(())
    }

    /// A row is done. `samples_ns` are those of a latency row, in the order they came.
    pub(crate) fn row(&mut self, row: Row, samples_ns: &[u64]) -> Result<(), RunError> {
        if self.as_table() {
            self.print(&table::row(self.settings, &row))?;
            let show = &self.settings.show;
            if show.unsorted {
                self.print(&table::samples(samples_ns))?;
            }
            if show.histogram {
                let mut sorted = samples_ns.to_vec();
                sorted.sort_unstable();
                self.print(&table::samples(&sorted))?;
            }
        } else if let Some(only) = self.settings.show.only {
            let number = table::only(self.settings, &row, only);
            self.print(&number)?;
        }
        // A run without end would keep rows without end.
        if !self.settings.plan.forever {
            self.rows.push(row);
        }
        Ok(())
    }

    /// How the paths of the link stand after the last row. Of a link with one that nothing befell
    /// the table says nothing.
    pub(crate) fn paths(&mut self, paths: Vec<PathStatus>) -> Result<(), RunError> {
        let is_asked = self.settings.plan.paths > Some(1);
        let is_told = is_asked || paths.iter().any(|path| path.doubts + path.moves > 0);
        if self.as_table() && is_told {
            self.print(&format!("{}\n{}", table::rule(self.settings), path_table(&paths)))?;
        }
        self.paths = paths;
        Ok(())
    }

    /// The carriers that the link went to: figures are of these as well.
    pub(crate) fn rides(&mut self, rides: &[Ride]) -> Result<(), RunError> {
        if self.as_table() {
            rides.iter().try_for_each(|ride| self.print(&format!(" The link {ride}\n")))?;
        }
        Ok(())
    }

    /// The run is complete.
    pub(crate) fn end(&mut self) -> Result<(), RunError> {
        if self.as_table() {
            self.print(&format!("{}\n", table::rule(self.settings)))?;
        }
        let show = &self.settings.show;
        if !show.json && show.json_file.is_none() {
            return Ok(());
        }
        let (local, remote) = &self.addresses;
        let ends = (local.as_str(), remote.as_str(), self.mtu);
        let object = json::object(self.settings, ends, &self.rows, &self.paths);
        let mut text = serde_json::to_string_pretty(&object).map_err(RunError::NotOurs)?;
        text.push('\n');
        if show.json {
            self.print(&text)?;
        }
        if let Some(path) = &show.json_file {
            let path_text = path.display().to_string();
            std::fs::write(path, &text)
                .map_err(|source| RunError::Write { path: path_text, source })?;
        }
        Ok(())
    }

    fn as_table(&self) -> bool {
        !self.settings.show.json && self.settings.show.only.is_none()
    }

    fn print(&mut self, text: &str) -> Result<(), RunError> {
        let wrote = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        wrote.map_err(|source| RunError::Write { path: "stdout".to_owned(), source })
    }
}

/// Bytes per second as the tables show them: MiB/s or Gb/s.
pub(crate) fn bandwidth(settings: &Settings, size: u32, per_second: f64) -> f64 {
    let bytes = per_second * f64::from(size);
    if settings.show.gbits { bytes * 8.0 / 1e9 } else { bytes / f64::from(1 << 20) }
}

/// The one number that `--output` asks for.
pub(crate) fn number(settings: &Settings, row: &Row, only: Only) -> f64 {
    match (row, only) {
        (Row::Bw(row), Only::MessageRate) => row.per_second / 1e6,
        (Row::Bw(row), _) => bandwidth(settings, row.size, row.per_second),
        (Row::Lat(row), _) => row.summary.typical,
    }
}
