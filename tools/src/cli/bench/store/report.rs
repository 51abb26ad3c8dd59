//! The table and the JSON object of a run.

use std::fmt::Write as _;

use serde::Serialize;

use super::args::StoreArgs;
use super::error::StoreError;
use super::job::Outcome;
use super::latency::{Direction, Lat, PERCENTILES};
use super::plan::Plan;
use super::work::Measured;
use crate::cli::bytes::{show_count, show_size};

/// The JSON object of `towpath bench store`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    rw: &'static str,
    rwmixread: u8,
    bs: u64,
    iodepth: u32,
    numjobs: u32,
    nrfiles: u32,
    size: u64,
    seed: u64,
    class: String,
    tenant: Option<String>,
    age: u32,
    ramp_s: f64,
    /// It was ended before its bytes or its time.
    interrupted: bool,
    read: Option<Direction>,
    write: Option<Direction>,
    verified_pages: Option<u64>,
    busy: u64,
    corrupt: u64,
    chunks_retransmitted: u64,
    links_again: u64,
    /// The chunks that are left at the server.
    chunks: Vec<String>,
}

impl Report {
    /// Of what all jobs did.
    pub(super) fn new(
        plan: &Plan,
        args: &StoreArgs,
        outcomes: &[Outcome],
        interrupted: bool,
    ) -> Result<Self, StoreError> {
        let mut all = Measured::new()?;
        outcomes.iter().for_each(|outcome| all.merge(&outcome.measured));
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum();
        let chunks = outcomes.iter().flat_map(|outcome| &outcome.kept);
        let span = std::time::Duration::from_nanos(all.span.0);
        Ok(Self {
            rw: plan.rw.word(),
            rwmixread: plan.read_percent,
            bs: plan.block,
            iodepth: plan.depth,
            numjobs: plan.jobs,
            nrfiles: plan.chunks,
            size: plan.size(),
            seed: plan.seed,
            class: args.server.link.class.to_string(),
            tenant: args.server.link.tenant.clone(),
            age: plan.age,
            ramp_s: plan.ramp.as_secs_f64(),
            interrupted,
            read: all.read.direction(span),
            write: all.write.direction(span),
            verified_pages: plan.verify.then_some(all.verified_pages),
            busy: sum(|outcome| outcome.troubles.busy),
            corrupt: sum(|outcome| outcome.troubles.corrupt),
            chunks_retransmitted: sum(|outcome| outcome.chunks_retransmitted),
            links_again: sum(|outcome| outcome.links_again),
            chunks: chunks.map(ToString::to_string).collect(),
        })
    }

    /// For people who read fio's.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}: bs={}, iodepth={}, numjobs={}, size={} each, seed={}\n",
            self.rw,
            show_size(self.bs),
            self.iodepth,
            self.numjobs,
            show_size(self.size),
            self.seed,
        );
        for (name, direction) in [("read", &self.read), ("write", &self.write)] {
            text += &direction.as_ref().map(|of| direction_text(name, of)).unwrap_or_default();
        }
        if self.read.is_none() && self.write.is_none() {
            text += "  no request ended within the measurement\n";
        }
        if let Some(pages) = self.verified_pages {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  verify: {} pages read as written", show_count(pages));
        }
        for (what, count) in [
            ("requests made again because the server was busy", self.busy),
            ("requests made again because of changed bytes", self.corrupt),
            ("retransmitted chunks of the transport", self.chunks_retransmitted),
            ("links made again", self.links_again),
        ] {
            if count > 0 {
                let _ = writeln!(text, "  {what}: {}", show_count(count));
            }
        }
        for chunk in &self.chunks {
            let _ = writeln!(text, "  chunk: {chunk}");
        }
        text
    }
}

fn direction_text(name: &str, of: &Direction) -> String {
    let mut text = format!(
        "  {name}: IOPS={}, BW={}/s ({:.1} MB/s), {} requests, {} in {:.3} s\n",
        show_count(of.iops.round() as u64),
        show_size(of.bw_bytes as u64),
        of.bw_bytes / 1e6,
        show_count(of.total_ios),
        show_size(of.io_bytes),
        of.runtime_ms / 1e3,
    );
    let Lat { min, max, mean, stddev, percentiles } = of.lat_ns;
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let _ = writeln!(
        text,
        "    lat (usec): min={}, max={}, avg={}, stdev={}",
        us(min as f64),
        us(max as f64),
        us(mean),
        us(stddev),
    );
    let cells = PERCENTILES.iter().zip(percentiles);
    let cells = cells.map(|((percent, _), ns)| format!("{percent:.2}th=[{}]", us(ns as f64)));
    let _ = writeln!(text, "    lat percentiles (usec):");
    let _ = writeln!(text, "     | {}", cells.collect::<Vec<_>>().join(", "));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_transport::Nanos;

    use super::super::latency::Latencies;
    use super::*;

    #[test]
    fn a_direction_reads_as_fio_has_it() {
        let mut latencies = Latencies::new().expect("bounds that fit");
        for us in [100, 200, 300] {
            latencies.add(Nanos::from_micros(us), 4096);
        }
        let direction = latencies.direction(Duration::from_millis(500)).expect("there were some");
        let text = direction_text("read", &direction);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "  read: IOPS=6, BW=24 KiB/s (0.0 MB/s), 3 requests, 12 KiB in 0.500 s"
        );
        assert!(lines[1].starts_with("    lat (usec): min=100.0, max=300.0, avg=200.0, stdev="));
        assert!(
            lines[3].starts_with("     | 50.00th=[200.") && lines[3].ends_with("99.99th=[300.0]")
        );
    }
}
