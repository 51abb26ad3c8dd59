//! The table: perftest's rules, head and columns, then ours.

use super::{BwRow, LatRow, Row, bandwidth, number};
use crate::perftest::args::values::Connection;
use crate::perftest::carrier::Counters;
use crate::perftest::settings::{Goal, Only, Settings};
use crate::perftest::tool::Tool;
use std::fmt::Write;

/// 87 dashes.
pub(crate) const RULE: &str =
    "---------------------------------------------------------------------------------------";

/// Below so many Gb/s an average is shown with six decimals.
const SMALL_GBITS: f64 = 0.1;

/// The name of the test.
pub(crate) fn title(settings: &Settings) -> String {
    let plan = &settings.plan;
    let carrier = match plan.connection {
        Connection::Uc => "Towpath_Write",
        Connection::Tcp => "TCP_Write",
    };
    let kind = match plan.tool {
        Tool::WriteBw if plan.bidirectional => "Bidirectional BW",
        Tool::WriteBw => "BW",
        Tool::WriteLat => "Latency",
    };
    format!("{carrier} {kind} Test")
}

/// Everything above the first row.
pub(crate) fn head(settings: &Settings, local: &str, remote: &str) -> String {
    let plan = &settings.plan;
    let uc = plan.connection == Connection::Uc;
    let title = title(settings);
    let indent = (RULE.len() - title.len()) / 2;
    let mut text = format!("{RULE}\n{:indent$}{title}\n", "");
    let on = |yes: bool| if yes { "ON" } else { "OFF" };
    let device = if uc { "roce (userspace)" } else { "kernel TCP" };
    let transport = if uc { "RoCEv2 over UDP" } else { "TCP" };
    pair(&mut text, ("Dual-port", "OFF"), ("Device", device));
    pair(&mut text, ("Number of qps", &plan.qps.to_string()), ("Transport type", transport));
    let connection = plan.connection.to_string();
    pair(&mut text, ("Connection type", &connection), ("Using SRQ", on(uc)));
    for (name, value) in details(settings) {
        line(&mut text, name, &value);
    }
    for note in &settings.notes {
        let _infallible = writeln!(text, " Note: {note}");
    }
    let _infallible =
        write!(text, "{RULE}\n local address: {local}\n remote address: {remote}\n{RULE}\n");
    text.push_str(&columns(settings).header());
    text
}

/// The parameter lines that both table and JSON show.
pub(crate) fn details(settings: &Settings) -> Vec<(&'static str, String)> {
    let (plan, ours) = (&settings.plan, &settings.ours);
    let uc = plan.connection == Connection::Uc;
    let mut lines = vec![("TX depth", plan.tx_depth.to_string())];
    if let Some(cq_mod) = settings.cq_mod {
        lines.push(("CQ Moderation", cq_mod.to_string()));
    }
    if uc {
        lines.push(("RX depth", settings.rx_depth.to_string()));
        lines.push(("Mtu", format!("{}[B]", plan.mtu.bytes())));
        lines.push(("Chunk", format!("{}[B]", ours.chunk_bytes)));
        lines.push(("Payload CRC32C", if ours.no_payload_crc { "OFF" } else { "ON" }.to_owned()));
        lines.push(("Congestion ctrl", ours.window.unwrap_or(ours.cc).to_string()));
        let buffers = if ours.stock_buffers { "stock (212992[B])" } else { "as granted" };
        lines.push(("Socket buffers", buffers.to_owned()));
    } else {
        lines.push(("Read size", format!("{}[B]", ours.tcp_read_bytes)));
        lines.push(("Socket buffers", "autotuned by the kernel".to_owned()));
    }
    lines.push(("Max inline data", "0[B]".to_owned()));
    lines.push(("Data ex. method", "Ethernet".to_owned()));
    if settings.faulty() {
        lines.push((
            "Faults",
            format!(
                "loss {} duplicate {} reorder {} corrupt {} delay {}[usec] seed {}",
                ours.loss, ours.duplicate, ours.reorder, ours.corrupt, ours.delay, ours.seed
            ),
        ));
    }
    lines
}

fn pair(text: &mut String, left: (&str, &str), right: (&str, &str)) {
    let line = format!(" {:<15} : {:<12} {:<15}: {}", left.0, left.1, right.0, right.1);
    text.push_str(line.trim_end());
    text.push('\n');
}

fn line(text: &mut String, name: &str, value: &str) {
    let _infallible = writeln!(text, " {name:<15} : {value}");
}

/// Columns, each as wide as its heading and two blanks.
struct Columns(Vec<&'static str>);

impl Columns {
    fn header(&self) -> String {
        self.row(self.0.iter().map(|&name| name.to_owned()))
    }

    fn row(&self, values: impl IntoIterator<Item = String>) -> String {
        let mut text = String::from(" ");
        for (name, value) in self.0.iter().zip(values) {
            let _infallible = write!(text, "{value:<width$}", width = name.len().max(8) + 3);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

fn columns(settings: &Settings) -> Columns {
    let mut names = vec!["#bytes", "#iterations"];
    match settings.plan.tool {
        Tool::WriteBw if settings.show.gbits => {
            names.extend(["BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]"]);
        }
        Tool::WriteBw => {
            names.extend(["BW peak[MiB/sec]", "BW average[MiB/sec]", "MsgRate[Mpps]"]);
        }
        Tool::WriteLat if is_timed(settings) => names.extend(["t_avg[usec]", "tps average"]),
        Tool::WriteLat => names.extend([
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "t_stdev[usec]",
            "99% percentile[usec]",
            "99.9% percentile[usec]",
        ]),
    }
    if settings.show.cpu_util {
        names.push("CPU_Util[%]");
    }
    names.extend(["lost[packets]", "retransmitted[chunks]", "RTO", "duplicate[chunks]"]);
    Columns(names)
}

fn is_timed(settings: &Settings) -> bool {
    matches!(settings.plan.goal, Goal::Span { .. })
}

/// One row.
pub(crate) fn row(settings: &Settings, row: &Row) -> String {
    let (mut values, counters, cpu_util) = match row {
        Row::Bw(row) => (bw_values(settings, row), row.counters, row.cpu_util),
        Row::Lat(row) => (lat_values(settings, row), row.counters, row.cpu_util),
    };
    if settings.show.cpu_util {
        values.push(cpu_util.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.2}")));
    }
    values.extend(ours(counters));
    columns(settings).row(values)
}

fn ours(counters: Option<Counters>) -> [String; 4] {
    let Some(counters) = counters else { return std::array::from_fn(|_| "-".to_owned()) };
    let Counters { packets_lost, chunks_retransmitted, rtos, chunks_duplicate } = counters;
    [packets_lost, chunks_retransmitted, rtos, chunks_duplicate].map(|count| count.to_string())
}

fn bw_values(settings: &Settings, row: &BwRow) -> Vec<String> {
    let of = |per_second| bandwidth(settings, row.size, per_second);
    let small = settings.show.gbits && of(row.per_second) < SMALL_GBITS;
    let decimals = if small { 6 } else { 2 };
    vec![
        row.size.to_string(),
        row.iterations.to_string(),
        format!("{:.decimals$}", of(row.peak_per_second)),
        format!("{:.decimals$}", of(row.per_second)),
        format!("{:.6}", row.per_second / 1e6),
    ]
}

fn lat_values(settings: &Settings, row: &LatRow) -> Vec<String> {
    let mut values = vec![row.size.to_string(), row.iterations.to_string()];
    let of = &row.summary;
    if is_timed(settings) {
        values.extend([of.mean, row.per_second].map(|number| format!("{number:.2}")));
    } else {
        let numbers = [of.min, of.max, of.typical, of.mean, of.stdev, of.p99, of.p99_9];
        values.extend(numbers.map(|us| format!("{us:.2}")));
    }
    values
}

/// Samples, one a line, in microseconds.
pub(crate) fn samples(samples_ns: &[u64]) -> String {
    let mut text = String::from("#, usec\n");
    for (at, &ns) in samples_ns.iter().enumerate() {
        let _infallible = writeln!(text, "{}, {:.3}", at + 1, ns as f64 / 1e3);
    }
    text
}

/// The one number of `--output`, on a line.
pub(crate) fn only(settings: &Settings, row: &Row, only: Only) -> String {
    format!("{:.6}\n", number(settings, row, only))
}
