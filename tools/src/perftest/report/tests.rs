//! Golden reports from fixed inputs.

use super::{BwRow, LatRow, Report, Row, RowCpu};
use crate::perftest::args;
use crate::perftest::args::values::Connection;
use crate::perftest::carrier::Counters;
use crate::perftest::settings::Settings;
use crate::perftest::summary::Summary;
use crate::perftest::tool::Tool;
use towpath_base::Nanos;
use towpath_status::PathStatus;
use towpath_transport::Mtu;

fn shown(tool: Tool, flags: &[&str], row: Row, samples_ns: &[u64]) -> String {
    let words = std::iter::once(tool.name()).chain(flags.iter().copied());
    let settings = Settings::new(tool, args::parse(tool, words).unwrap()).unwrap();
    let mut out = Vec::new();
    let mut report = Report::new(&settings, &mut out);
    let ends = ("IP 127.0.0.1 UDP port 7", "IP 127.0.0.2 UDP port 8");
    let is_tcp = settings.plan.connection == Connection::Tcp;
    report.begin(ends.0, ends.1, (!is_tcp).then_some(Mtu::Mtu4096)).unwrap();
    report.row(row, samples_ns).unwrap();
    report.end().unwrap();
    let text = String::from_utf8(out).unwrap();
    // A rule is as wide as the columns; golden reports have one of perftest's width.
    let rule = super::table::rule(&settings);
    assert!(text.lines().all(|line| !line.starts_with("--") || line == rule), "{text}");
    text.replace(&rule, super::table::RULE)
}

#[test]
fn rules_are_as_wide_as_the_widest_of_head_and_columns() {
    for (tool, flags) in [(Tool::WriteBw, &["--cpu_util"][..]), (Tool::WriteLat, &[])] {
        let words = std::iter::once(tool.name()).chain(flags.iter().copied());
        let settings = Settings::new(tool, args::parse(tool, words).unwrap()).unwrap();
        let head = super::table::head(&settings, ("here", "there"), None);
        let columns = head.lines().last().unwrap();
        assert_eq!(super::table::rule(&settings).len(), columns.len(), "{head}");
        assert!(columns.len() > super::table::RULE.len(), "{head}");
    }
}

fn bw_row() -> Row {
    Row::Bw(BwRow {
        size: 65536,
        iterations: 5000,
        peak_per_second: 60_000.0,
        per_second: 56_000.0,
        counters: Some(Counters {
            packets_lost: Some(12),
            chunks_sent: 10_034,
            chunks_retransmitted: 34,
            acks_sent: 5_000,
            tail_probes: 7,
            rtos: 5,
            chunks_duplicate: 6,
            reroutes: 8,
            rtt: Some(Nanos::from_micros(20)),
            window_bytes: 1 << 20,
        }),
        messages_lost: None,
        cpu: RowCpu { util: Some(12.5), serving_ns: None },
    })
}

fn lat_row() -> Row {
    let samples = [3_000, 4_000, 4_500, 5_000, 9_000];
    Row::Lat(LatRow {
        size: 64,
        iterations: 5,
        summary: Summary::of_sorted(&samples),
        per_second: 98_039.2,
        counters: None,
        cpu: RowCpu::default(),
    })
}

fn settings_of(flags: &[&str]) -> Settings {
    let words = std::iter::once("tow_write_bw").chain(flags.iter().copied());
    Settings::new(Tool::WriteBw, args::parse(Tool::WriteBw, words).unwrap()).unwrap()
}

/// The part behind the head: columns and rows.
fn body(text: &str) -> String {
    let rules: Vec<usize> = text.match_indices(super::table::RULE).map(|(at, _)| at).collect();
    text[rules[2] + super::table::RULE.len() + 1..].to_owned()
}

#[test]
fn the_bandwidth_table_has_the_layout_of_perftest_and_then_our_columns() {
    let text = shown(Tool::WriteBw, &["--loss", "0.01"], bw_row(), &[]);
    let wanted = "\
---------------------------------------------------------------------------------------
                                 Towpath_Write BW Test
 Dual-port       : OFF          Device         : roce (userspace)
 Number of qps   : 1            Transport type : RoCEv2 over UDP
 Connection type : UC           Using SRQ      : ON
 TX depth        : 128
 CQ Moderation   : 1
 RX depth        : 128
 Mtu             : 4096[B]
 Chunk           : 57344[B]
 Payload CRC32C  : ON
 Congestion ctrl : swift
 Socket buffers  : as granted
 Local buffers   : one for all messages
 Max inline data : 0[B]
 Data ex. method : Ethernet
 Faults          : loss 0.01 duplicate 0 reorder 0 corrupt 0 delay 0[usec] seed 1
---------------------------------------------------------------------------------------
 local address: IP 127.0.0.1 UDP port 7
 remote address: IP 127.0.0.2 UDP port 8
---------------------------------------------------------------------------------------
 #bytes     #iterations   BW peak[MiB/sec]   BW average[MiB/sec]   MsgRate[Mpps]   \
lost[packets]   retransmitted[chunks]   RTO        duplicate[chunks]   reroutes
 65536      5000          3750.00            3500.00               0.056000        \
12              34                      5          6                   8
---------------------------------------------------------------------------------------
";
    assert_eq!(text, wanted);
}

#[test]
fn the_paths_of_a_link_are_shown_where_there_are_several_or_one_that_was_left() {
    let show = |flags: &[&str], paths: Vec<PathStatus>| {
        let words = std::iter::once("tow_write_bw").chain(flags.iter().copied());
        let args = args::parse(Tool::WriteBw, words).unwrap();
        let settings = Settings::new(Tool::WriteBw, args).unwrap();
        let mut out = Vec::new();
        let mut report = Report::new(&settings, &mut out);
        report.paths(paths).unwrap();
        report.end().unwrap();
        String::from_utf8(out).unwrap()
    };
    let path = |state: &str, moves: u64| {
        let text = format!(r#"{{"state":"{state}","moves":{moves}}}"#);
        serde_json::from_str::<PathStatus>(&text).unwrap()
    };
    let wide = settings_of(&[]);
    let rule = format!("{}\n", super::table::rule(&wide));
    assert_eq!(show(&[], vec![path("good", 0)]), rule);
    assert_eq!(show(&[], Vec::new()), rule);
    let text = show(&[], vec![path("good", 1)]);
    assert!(text.contains("path  over  state") && text.contains("good"), "{text}");
    let text = show(&["--paths", "2"], vec![path("good", 0), path("suspect", 0)]);
    assert!(text.contains("suspect") && text.lines().count() == 5, "{text}");
    let text = show(&["--json"], vec![path("probing", 3)]);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&object["paths"][0]["state"], &object["paths"][0]["moves"]),
        (&"probing".into(), &3.into())
    );
}

#[test]
fn gigabits_and_the_cpu_have_their_columns() {
    let text = shown(Tool::WriteBw, &["--report_gbits", "--cpu_util", "-N"], bw_row(), &[]);
    let wanted =
        " #bytes     #iterations   BW peak[Gb/sec]   BW average[Gb/sec]   MsgRate[Mpps]   \
CPU_Util[%]   lost[packets]   retransmitted[chunks]   RTO        duplicate[chunks]   reroutes
 65536      5000          31.46             29.36                0.056000        12.50         \
12              34                      5          6                   8
---------------------------------------------------------------------------------------
";
    assert_eq!(body(&text), wanted);
}

#[test]
fn plain_verbs_have_the_head_of_perftest_and_count_lost_messages() {
    let Row::Bw(mut row) = bw_row() else { unreachable!("made as one") };
    (row.counters, row.messages_lost) = (None, Some(7));
    let flags = ["--raw", "-c", "UC", "-d", "mlx5_0"];
    let text = shown(Tool::SendBw, &flags, Row::Bw(row), &[]);
    let wanted = "\
---------------------------------------------------------------------------------------
                                     Send BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 1            Transport type : IB
 Connection type : UC           Using SRQ      : OFF
 TX depth        : 128
 CQ Moderation   : 1
 RX depth        : 512
 Mtu             : 4096[B]
 Local buffers   : one for all messages
 Max inline data : 0[B]
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
";
    assert!(text.starts_with(wanted), "{text}");
    let wanted =
        " #bytes     #iterations   BW peak[MiB/sec]   BW average[MiB/sec]   MsgRate[Mpps]   \
lost[messages]   retransmitted[chunks]   RTO        duplicate[chunks]   reroutes
 65536      5000          3750.00            3500.00               0.056000        \
7                -                       -          -                   -
---------------------------------------------------------------------------------------
";
    assert_eq!(body(&text), wanted);
    for (tool, flags, title) in [
        (Tool::WriteBw, &["--raw", "-b"][..], "RDMA_Write Bidirectional BW Test"),
        (Tool::ReadBw, &["--raw"], "RDMA_Read BW Test"),
        (Tool::ReadBw, &[], "Towpath_Read BW Test"),
        (Tool::AtomicBw, &["--raw"], "Atomic FETCH_AND_ADD BW Test"),
        (Tool::AtomicLat, &[], "Towpath_Atomic FETCH_AND_ADD Latency Test"),
        (Tool::SendBw, &[], "Towpath_Send BW Test"),
    ] {
        let text = shown(tool, flags, bw_row(), &[]);
        assert_eq!(text.lines().nth(1).map(str::trim), Some(title));
    }
}

#[test]
fn less_than_a_tenth_of_a_gigabit_has_six_decimals() {
    let Row::Bw(mut row) = bw_row() else { unreachable!("made as one") };
    (row.size, row.counters) = (2, None);
    let text = shown(Tool::WriteBw, &["--report_gbits", "-s", "2"], Row::Bw(row), &[]);
    let line = body(&text).lines().nth(1).unwrap().to_owned();
    let wanted = " 2          5000          0.000960          0.000896             0.056000        \
                  -               -                       -          -                   -";
    assert_eq!(line, wanted);
}

#[test]
fn the_latency_table_has_the_columns_of_perftest_and_its_samples() {
    let samples = [5_000, 3_000, 9_000, 4_500, 4_000];
    let text = shown(Tool::WriteLat, &["-H", "-U", "-s", "64"], lat_row(), &samples);
    assert!(text.contains("                              Towpath_Write Latency Test\n"), "{text}");
    let wanted =
        " #bytes     #iterations   t_min[usec]   t_max[usec]   t_typical[usec]   t_avg[usec]   \
t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]   lost[packets]   \
retransmitted[chunks]   RTO        duplicate[chunks]   reroutes
 64         5             3.00          9.00          4.50              5.10          \
2.06            9.00                   9.00                     -               \
-                       -          -                   -
#, usec
1, 5.000
2, 3.000
3, 9.000
4, 4.500
5, 4.000
#, usec
1, 3.000
2, 4.000
3, 4.500
4, 5.000
5, 9.000
---------------------------------------------------------------------------------------
";
    assert_eq!(body(&text), wanted);
}

#[test]
fn a_timed_latency_run_shows_the_average_and_the_rate() {
    let text = shown(Tool::WriteLat, &["-D", "1"], lat_row(), &[]);
    let first = body(&text).lines().next().unwrap().to_owned();
    assert!(first.starts_with(" #bytes     #iterations   t_avg[usec]   tps average   "), "{first}");
    assert!(body(&text).contains(" 64         5             5.10          98039.20      "));
}

#[test]
fn one_number_is_all_that_output_prints() {
    let number = |tool, flags: &[&str], row| shown(tool, flags, row, &[]);
    assert_eq!(number(Tool::WriteBw, &["--output", "bandwidth"], bw_row()), "3500.000000\n");
    assert_eq!(number(Tool::WriteBw, &["--output", "message_rate"], bw_row()), "0.056000\n");
    assert_eq!(number(Tool::WriteLat, &["--output", "latency"], lat_row()), "4.500000\n");
}

#[test]
fn the_bandwidth_json_has_the_names_of_perftest_and_ours() {
    let text = shown(Tool::WriteBw, &["--json", "--seed", "9"], bw_row(), &[]);
    let wanted = r#"{
  "paths": [],
  "results": [
    {
      "BW_average": 3500.0,
      "BW_peak": 3750.0,
      "BW_unit": "MiB/sec",
      "CPU_util": 12.5,
      "MsgRate": 0.056,
      "MsgSize": 65536,
      "acks_sent": 5000,
      "chunks_duplicate": 6,
      "chunks_retransmitted": 34,
      "chunks_sent": 10034,
      "gbps": 29.360128,
      "messages_lost": null,
      "n_iterations": 5000,
      "packets_lost": 12,
      "reroutes": 8,
      "rtos": 5,
      "rtt_us": 20.0,
      "serving_cpu_ms": null,
      "tail_probes": 7,
      "window_bytes": 1048576
    }
  ],
  "test_info": {
    "CQ_Moderation": 1,
    "Chunk": 57344,
    "Congestion_ctrl": "swift",
    "Connection_type": "UC",
    "Data_ex_method": "Ethernet",
    "Local_buffers": "one for all messages",
    "Max_inline_data": 0,
    "Mtu": 4096,
    "Number_of_qps": 1,
    "Payload_CRC32C": "ON",
    "RX_depth": 128,
    "Socket_buffers": "as granted",
    "TX_depth": 128,
    "bidirectional": false,
    "data_validation": false,
    "device": "roce (userspace)",
    "local_address": "IP 127.0.0.1 UDP port 7",
    "loss": 0.0,
    "raw": false,
    "remote_address": "IP 127.0.0.2 UDP port 8",
    "seed": 9,
    "test": "Towpath_Write_BW_Test",
    "tool": "tow_write_bw",
    "warm_up": false
  }
}
"#;
    assert_eq!(text, wanted);
}

#[test]
fn the_latency_json_is_null_where_nothing_is_known() {
    let text = shown(Tool::WriteLat, &["--json", "-c", "TCP"], lat_row(), &[]);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = &object["results"][0];
    assert_eq!(row["t_typical"], 4.5);
    assert_eq!(row["t_99_9_percentile"], 9.0);
    assert_eq!(row["tps_average"], 98_039.2);
    assert!(row["packets_lost"].is_null() && row["CPU_util"].is_null(), "{row}");
    assert_eq!(object["test_info"]["test"], "TCP_Write_Latency_Test");
    assert_eq!(object["test_info"]["Read_size"], 131_072);
}
