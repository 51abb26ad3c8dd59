//! The table: perftest's rules, head and columns, then ours.

use super::{BwRow, LatRow, Row, bandwidth, number};
use crate::perftest::args::values::Connection;
use crate::perftest::carrier::Counters;
use crate::perftest::settings::{Goal, Only, Settings};
use crate::perftest::tool::Op;
use std::fmt::{self, Write};
use towpath_transport::{DeviceName, Mtu};

/// 87 dashes: perftest's rule. Ours is longer where the columns are.
pub(crate) const RULE: &str =
    "---------------------------------------------------------------------------------------";

/// Below so many Gb/s an average is shown with six decimals.
const SMALL_GBITS: f64 = 0.1;

/// The rule above and below the parts of a report, as wide as its columns.
pub(crate) fn rule(settings: &Settings) -> String {
    let width = columns(settings).header().trim_end().len();
    "-".repeat(width.max(RULE.len()))
}

/// The name of the test: perftest's for plain verbs.
pub(crate) fn title(settings: &Settings) -> String {
    let plan = &settings.plan;
    let what = match (plan.tool.op(), plan.raw, plan.connection) {
        (Op::Send, false, Connection::Tcp) => "TCP_Send".to_owned(),
        (Op::Write, false, Connection::Tcp) => "TCP_Write".to_owned(),
        (Op::Send, false, _) => "Towpath_Send".to_owned(),
        (Op::Write, false, _) => "Towpath_Write".to_owned(),
        (Op::Read, false, _) => "Towpath_Read".to_owned(),
        (Op::Atomic, false, _) => format!("Towpath_Atomic {}", plan.atomic.name()),
        (Op::Send, true, _) => "Send".to_owned(),
        (Op::Write, true, _) => "RDMA_Write".to_owned(),
        (Op::Read, true, _) => "RDMA_Read".to_owned(),
        (Op::Atomic, true, _) => format!("Atomic {}", plan.atomic.name()),
    };
    let kind = match (plan.tool.is_latency(), plan.bidirectional) {
        (true, _) => "Latency",
        (false, true) => "Bidirectional BW",
        (false, false) => "BW",
    };
    format!("{what} {kind} Test")
}

/// The device, as the head shows it.
pub(crate) fn device(settings: &Settings) -> String {
    match (settings.plan.connection, &settings.device.name) {
        (Connection::Tcp, _) => "kernel TCP".to_owned(),
        (_, name @ DeviceName::Roce(_)) => format!("{name} (userspace)"),
        (_, name) => name.to_string(),
    }
}

/// Everything above the first row.
pub(crate) fn head(settings: &Settings, (local, remote): (&str, &str), mtu: Option<Mtu>) -> String {
    let plan = &settings.plan;
    let roce = settings.device.name.is_roce();
    let title = title(settings);
    let indent = (RULE.len() - title.len()) / 2;
    let rule = rule(settings);
    let mut text = format!("{rule}\n{:indent$}{title}\n", "");
    let on = |yes: bool| if yes { "ON" } else { "OFF" };
    let transport = match plan.connection {
        Connection::Tcp => "TCP",
        _ if roce => "RoCEv2 over UDP",
        _ => "IB",
    };
    // Only where a lost packet cannot take the queue with it.
    let srq = plan.connection == Connection::Uc && !plan.raw && roce;
    pair(&mut text, ("Dual-port", "OFF"), ("Device", &device(settings)));
    pair(&mut text, ("Number of qps", &plan.qps.to_string()), ("Transport type", transport));
    let connection = plan.connection.to_string();
    pair(&mut text, ("Connection type", &connection), ("Using SRQ", on(srq)));
    for (name, value) in details(settings, mtu) {
        line(&mut text, name, &value.to_string());
    }
    for note in &settings.notes {
        let _infallible = writeln!(text, " Note: {note}");
    }
    let _infallible =
        write!(text, "{rule}\n local address: {local}\n remote address: {remote}\n{rule}\n");
    text.push_str(&columns(settings).header());
    text
}

/// What stands behind a name in the head: in JSON a number or a text, always the same for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// A number.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// A text.
    Text(String),
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Bytes(bytes) => write!(f, "{bytes}[B]"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The parameter lines that both table and JSON show.
pub(crate) fn details(settings: &Settings, mtu: Option<Mtu>) -> Vec<(&'static str, Detail)> {
    let (plan, ours) = (&settings.plan, &settings.ours);
    let text = |text: &str| Detail::Text(text.to_owned());
    let mut lines = vec![("TX depth", Detail::Count(plan.tx_depth.into()))];
    if let Some(cq_mod) = settings.cq_mod {
        lines.push(("CQ Moderation", Detail::Count(cq_mod.into())));
    }
    if plan.connection == Connection::Tcp {
        lines.push(("Read size", Detail::Bytes(ours.tcp_read_bytes.into())));
        lines.push(("Socket buffers", text("autotuned by the kernel")));
    } else {
        if !plan.one_sided() {
            lines.push(("RX depth", Detail::Count(settings.rx_depth.into())));
        }
        if let Some(mtu) = mtu {
            lines.push(("Mtu", Detail::Bytes(mtu.bytes().into())));
        }
        if plan.raw && plan.tool.fetches() {
            lines.push(("Outstand reads", Detail::Count(plan.outs.into())));
        }
        if plan.on_lane() {
            let crc = text(&ours.window.unwrap_or(ours.cc).to_string());
            lines.push(("Congestion ctrl", crc));
        } else if !plan.raw {
            lines.push(("Chunk", Detail::Bytes(ours.chunk_bytes.into())));
            let crc = if ours.no_payload_crc { "OFF" } else { "ON" };
            lines.push(("Payload CRC32C", text(crc)));
            lines.push(("Congestion ctrl", text(&ours.window.unwrap_or(ours.cc).to_string())));
        }
        if let Some(paths) = plan.paths.filter(|&paths| paths > 1) {
            lines.push(("Paths", Detail::Count(paths.into())));
        }
        if settings.device.name.is_roce() {
            let buffers = if ours.stock_buffers { "stock (212992[B])" } else { "as granted" };
            lines.push(("Socket buffers", text(buffers)));
        }
    }
    let is_apart = settings.apart() || plan.on_lane() && plan.tool.op() == Op::Read;
    let buffers = if is_apart { "one for each message" } else { "one for all messages" };
    lines.push(("Local buffers", text(buffers)));
    lines.push(("Max inline data", Detail::Bytes(0)));
    lines.push(("Data ex. method", text("Ethernet")));
    if settings.faulty() {
        let mut faults = format!(
            "loss {} duplicate {} reorder {} corrupt {} delay {}[usec] seed {}",
            ours.loss, ours.duplicate, ours.reorder, ours.corrupt, ours.delay, ours.seed
        );
        if !ours.black_hole.is_empty() {
            let ports: Vec<String> = ours.black_hole.iter().map(u16::to_string).collect();
            let (ports, after) = (ports.join(","), ours.black_hole_after.unwrap_or(0.0));
            let _infallible = write!(faults, " black hole {ports} after {after}[sec]");
        }
        lines.push(("Faults", Detail::Text(faults)));
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
    match settings.plan.tool.is_latency() {
        false if settings.show.gbits => {
            names.extend(["BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]"]);
        }
        false => {
            names.extend(["BW peak[MiB/sec]", "BW average[MiB/sec]", "MsgRate[Mpps]"]);
        }
        true if is_timed(settings) => names.extend(["t_avg[usec]", "tps average"]),
        true => names.extend([
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
    if settings.plan.on_lane() {
        names.push("serving[CPU msec]");
    }
    // Plain verbs lose whole messages, and who sends again is the device.
    let lost = if settings.plan.raw { "lost[messages]" } else { "lost[packets]" };
    names.extend([lost, "retransmitted[chunks]", "RTO", "duplicate[chunks]", "reroutes"]);
    Columns(names)
}

fn is_timed(settings: &Settings) -> bool {
    matches!(settings.plan.goal, Goal::Span { .. })
}

/// One row.
pub(crate) fn row(settings: &Settings, row: &Row) -> String {
    let (mut values, counters, cpu, messages_lost) = match row {
        Row::Bw(row) => (bw_values(settings, row), row.counters, row.cpu, row.messages_lost),
        Row::Lat(row) => (lat_values(settings, row), row.counters, row.cpu, None),
    };
    let shown = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    if settings.show.cpu_util {
        values.push(shown(cpu.util));
    }
    if settings.plan.on_lane() {
        values.push(shown(cpu.serving_ns.map(|ns| ns as f64 / 1e6)));
    }
    values.extend(ours(counters, messages_lost));
    columns(settings).row(values)
}

/// Our columns, with a dash where nobody can tell.
fn ours(counters: Option<Counters>, messages_lost: Option<u64>) -> [String; 5] {
    let lost = counters.and_then(|c| c.packets_lost).or(messages_lost);
    let of = |count: fn(Counters) -> u64| counters.map(count);
    let again = of(|c| c.chunks_retransmitted);
    [lost, again, of(|c| c.rtos), of(|c| c.chunks_duplicate), of(|c| c.reroutes)]
        .map(|count| count.map_or_else(|| "-".to_owned(), |count| count.to_string()))
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
