//! What a demo found, for programs and for people.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use towpath_transport::LinkStats;

use super::journey::{Found, Journey};
use crate::cli::args::DemoArgs;
use crate::cli::bytes::{show_count, show_size};
use crate::perftest::summary::Summary;

/// What one end of the link did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndReport {
    /// Packets that the loss took from what this end sent.
    pub(super) packets_dropped: u64,
    /// Transport chunks sent, retransmissions included.
    pub(super) chunks_sent: u64,
    /// Transport chunks sent again.
    pub(super) chunks_retransmitted: u64,
    /// Retransmission timeouts: losses that neither acks nor probes showed.
    pub(super) retransmission_timeouts: u64,
}

impl EndReport {
    /// Of an end whose links counted `links`, and whose loss took so many packets.
    pub(super) fn of(links: LinkStats, packets_dropped: u64) -> Self {
        Self {
            packets_dropped,
            chunks_sent: links.chunks_sent,
            chunks_retransmitted: links.chunks_retransmitted,
            retransmission_timeouts: links.rtos,
        }
    }
}

impl std::ops::AddAssign for EndReport {
    fn add_assign(&mut self, other: Self) {
        self.packets_dropped += other.packets_dropped;
        self.chunks_sent += other.chunks_sent;
        self.chunks_retransmitted += other.chunks_retransmitted;
        self.retransmission_timeouts += other.retransmission_timeouts;
    }
}

/// Percentiles of a latency, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Latency {
    /// Of samples in nanoseconds.
    pub(super) fn of(mut samples_ns: Vec<u64>) -> Self {
        samples_ns.sort_unstable();
        let Summary { typical, p99, .. } = Summary::of_sorted(&samples_ns);
        Self { p50_us: typical, p99_us: p99 }
    }
}

/// The JSON object of `towpath demo`; docs/tools.md says what each field means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DemoReport {
    pub(super) bytes: u64,
    pub(super) device: String,
    pub(super) loss: Option<f64>,
    pub(super) seed: u64,
    pub(super) mtu_bytes: Option<u32>,
    pub(super) depth: u32,
    pub(super) op_bytes: u64,
    pub(super) stored_chunks: u64,
    pub(super) packets_dropped: u64,
    pub(super) chunks_sent: u64,
    pub(super) chunks_retransmitted: u64,
    pub(super) verified: bool,
    pub(super) write_gbps: f64,
    pub(super) read_gbps: f64,
    pub(super) tcp_lossless_gbps: Option<f64>,
    pub(super) tcp_durable_gbps: Option<f64>,
    pub(super) lat_4k_p50_us: f64,
    pub(super) lat_4k_p99_us: f64,
    pub(super) lat_4k_read_p50_us: f64,
    pub(super) lat_4k_read_p99_us: f64,
    pub(super) client: EndReport,
    pub(super) server: EndReport,
    pub(super) virtual_time: bool,
    pub(super) trace_hash: Option<String>,
}

impl DemoReport {
    /// Of a journey over sockets; what else there is to say of the ground is set afterwards.
    pub(super) fn new(
        args: &DemoArgs,
        journey: &Journey<'_>,
        found: Found,
        client: EndReport,
        server: EndReport,
    ) -> Self {
        let verified = journey.changed_at.is_none();
        Self {
            bytes: journey.source.byte_len(),
            device: args.device.device.to_string(),
            loss: args.loses().then(|| args.loss()),
            seed: args.seed,
            mtu_bytes: None,
            depth: args.depth,
            op_bytes: journey.pipeline.op_bytes,
            stored_chunks: journey.stored.len() as u64,
            packets_dropped: client.packets_dropped + server.packets_dropped,
            chunks_sent: client.chunks_sent + server.chunks_sent,
            chunks_retransmitted: client.chunks_retransmitted + server.chunks_retransmitted,
            verified,
            write_gbps: found.write_gbps,
            read_gbps: found.read_gbps,
            tcp_lossless_gbps: None,
            tcp_durable_gbps: None,
            lat_4k_p50_us: found.writes.p50_us,
            lat_4k_p99_us: found.writes.p99_us,
            lat_4k_read_p50_us: found.reads.p50_us,
            lat_4k_read_p99_us: found.reads.p99_us,
            client,
            server,
            virtual_time: false,
            trace_hash: None,
        }
    }

    /// The table at the end.
    pub(super) fn table(&self) -> String {
        let towpath = match self.loss {
            Some(loss) => format!("Towpath, {} loss", show_percent(loss)),
            None => format!("Towpath on {}", self.device),
        };
        let tcp = if self.virtual_time { "" } else { "kernel TCP, no loss" };
        let mut text = format!("\n{}\n", format!("{:24}{towpath:>22}{tcp:>24}", "").trim_end());
        let mut row = |what: &str, ours: String, theirs: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", format!("  {what:22}{ours:>22}{theirs:>24}").trim_end());
        };
        let none = String::new;
        let rate = |gbps: Option<f64>| gbps.map_or_else(none, |g| format!("{g:.1} Gb/s"));
        // Each figure of TCP stands beside what does the same, or beside nothing.
        row("write, durable", format!("{:.1} Gb/s", self.write_gbps), rate(self.tcp_durable_gbps));
        if self.tcp_lossless_gbps.is_some() {
            row("network only", "-".into(), rate(self.tcp_lossless_gbps));
        }
        row("read, verified", format!("{:.1} Gb/s", self.read_gbps), none());
        let pair = |p50, p99| format!("{p50:.0} / {p99:.0} us");
        row("4 KiB write p50 / p99", pair(self.lat_4k_p50_us, self.lat_4k_p99_us), none());
        let reads = pair(self.lat_4k_read_p50_us, self.lat_4k_read_p99_us);
        row("4 KiB read p50 / p99", reads, none());
        row("packets lost", show_count(self.packets_dropped), none());
        row("chunks sent", show_count(self.chunks_sent), none());
        row("chunks sent again", show_count(self.chunks_retransmitted), none());
        if self.tcp_lossless_gbps.is_some() {
            text.push_str(
                "\n  Kernel TCP loses nothing. Its durable write goes to one file, is flushed \
                 once, at the end,\n  and nothing is checked. Towpath checks every 4 KiB and \
                 flushes before each answer.\n",
            );
        }
        text
    }

    /// The last line.
    pub(super) fn verdict(&self) -> String {
        let size = show_size(self.bytes);
        if self.verified {
            format!("\nEvery byte of {size} came back as it was sent.\n")
        } else {
            String::from("\nWhat came back is not what was sent.\n")
        }
    }
}

/// A share in percent, with as many digits as it needs.
pub(crate) fn show_percent(share: f64) -> String {
    // Nine decimals hide what binary fractions add.
    let digits = format!("{:.9}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_come_in_any_order() {
        let samples: Vec<u64> = (1..=200).rev().map(|us| us * 1000).collect();
        assert_eq!(Latency::of(samples), Latency { p50_us: 100.0, p99_us: 198.0 });
    }

    #[test]
    fn shares_are_shown_in_percent() {
        for (share, text) in [(0.0, "0 %"), (0.01, "1 %"), (0.07, "7 %"), (0.0015, "0.15 %")] {
            assert_eq!(show_percent(share), text);
        }
        assert_eq!(show_percent(0.1), "10 %");
    }
}
