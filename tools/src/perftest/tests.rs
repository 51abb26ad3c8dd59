//! Whole runs of both tools over loopback, server and client on threads; and their command lines.

mod lane;

use super::args::{self, values::Connection};
use super::error::{RunError, UsageError};
use super::report::Report;
use super::settings::{Goal, Settings};
use super::tool::Tool;
use super::{control, session};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn settings(tool: Tool, words: &[&str]) -> Settings {
    let words = std::iter::once(tool.name()).chain(words.iter().copied());
    Settings::new(tool, args::parse(tool, words).expect("a command line that parses"))
        .expect("settings that make sense")
}

/// Runs a server and a client; what the client printed, and how the server ended.
fn run_ends(
    tool: Tool,
    server: &[&str],
    client: &[&str],
) -> (Result<String, RunError>, Result<String, RunError>) {
    let listener = control::listen(Some(LOOPBACK), 0).expect("a free port");
    let port = listener.local_addr().expect("a bound port").port().to_string();
    let of_server = settings(tool, server);
    let of_client = settings(tool, &[client, &["-p", &port, "127.0.0.1"][..]].concat());
    let serving = std::thread::spawn(move || {
        let mut out = Vec::new();
        session::serve(&listener, &of_server, &mut Report::new(&of_server, &mut out))
            .map(|()| String::from_utf8(out).expect("text"))
    });
    let mut out = Vec::new();
    let joined = session::join("127.0.0.1", &of_client, &mut Report::new(&of_client, &mut out))
        .map(|()| String::from_utf8(out).expect("text"));
    (joined, serving.join().expect("the server does not panic"))
}

/// Runs both ends with the same flags and `--json`; the client's results.
fn results(tool: Tool, flags: &[&str]) -> Vec<Value> {
    let flags = [flags, &["--json"]].concat();
    let (client, server) = run_ends(tool, &flags, &flags);
    let (text, _) = match (client, server) {
        (Ok(client), Ok(server)) => (client, server),
        ends => panic!("{flags:?}: {ends:?}"),
    };
    let object: Value = serde_json::from_str(&text).expect("one JSON object");
    object["results"].as_array().expect("a list").clone()
}

/// The first of some runs that is as wanted, or the last. Where nothing is sent again, a machine
/// that lets the receiver wait loses what its socket does not hold; but not in each of so many.
fn result_where(tool: Tool, flags: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
    let mut row = result(tool, flags);
    for _ in 0..10 {
        if wanted(&row) {
            break;
        }
        row = result(tool, flags);
    }
    row
}

/// For RC: a peer that has no processor for seconds is not given up.
const PATIENT: [&str; 2] = ["-u", "19"];

fn result(tool: Tool, flags: &[&str]) -> Value {
    let mut rows = results(tool, flags);
    assert_eq!(rows.len(), 1, "{flags:?}");
    rows.remove(0)
}

#[test]
fn bandwidth_counts_every_message_on_either_carrier() {
    for connection in ["UC", "TCP"] {
        for (size, iters) in [("1", 2000), ("64", 2000), ("65536", 300), ("1M", 20)] {
            let count = iters.to_string();
            let flags = ["-c", connection, "-s", size, "-n", &count, "--data_validation"];
            let row = result(Tool::WriteBw, &flags);
            assert_eq!(row["n_iterations"], iters, "{flags:?}");
            assert!(row["BW_average"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["BW_peak"].as_f64() >= row["BW_average"].as_f64(), "{row}");
        }
    }
}

#[test]
fn memory_is_one_for_all_messages_unless_they_are_apart() {
    for carrier in [&["-c", "UC"][..], &["-c", "TCP"], &["--raw", "-c", "RC"]] {
        for (more, buffers) in [
            (&[][..], "one for all messages"),
            (&["--cold"], "one for each message"),
            (&["--cold", "-t", "7"], "one for each message"),
        ] {
            let flags = [carrier, &["-s", "50000", "-n", "100", "--json"], more].concat();
            let (client, server) = run_ends(Tool::SendBw, &flags, &flags);
            server.expect("a server that ends well");
            let object: Value = serde_json::from_str(&client.expect("results")).expect("JSON");
            assert_eq!(object["test_info"]["Local_buffers"], buffers, "{flags:?}");
            assert_eq!(object["results"][0]["n_iterations"], 100, "{flags:?}");
        }
    }
}

#[test]
fn both_directions_many_channels_and_lists_work_on_either_carrier() {
    for connection in ["UC", "TCP"] {
        let base = ["-c", connection, "-s", "5000", "-n", "400", "--data_validation"];
        for more in [
            &["-b"][..],
            &["-q", "3"],
            &["-b", "-q", "3", "-t", "7"],
            &["-l", "4"],
            &["-t", "1"],
            &["-t", "3", "-l", "2", "--perform_warm_up", "--cpu_util", "-N"],
        ] {
            let flags = [&base[..], more].concat();
            assert_eq!(result(Tool::WriteBw, &flags)["n_iterations"], 400, "{flags:?}");
        }
    }
}

#[test]
fn latency_takes_every_round_on_either_carrier() {
    for connection in ["UC", "TCP"] {
        for size in ["2", "64", "4096", "300000"] {
            let flags = ["-c", connection, "-s", size, "-n", "200", "--data_validation"];
            let row = result(Tool::WriteLat, &flags);
            assert_eq!(row["n_iterations"], 200, "{flags:?}");
            let at = |name: &str| row[name].as_f64().unwrap();
            assert!(0.0 < at("t_min") && at("t_min") <= at("t_typical"), "{row}");
            assert!(at("t_typical") <= at("t_99_percentile"), "{row}");
            assert!(at("t_99_9_percentile") <= at("t_max"), "{row}");
        }
    }
}

#[test]
fn loss_and_the_other_faults_change_nothing_but_the_counters() {
    let faults =
        ["--loss", "0.05", "--duplicate", "0.02", "--reorder", "0.02", "--corrupt", "0.01"];
    let base = ["--data_validation", "--seed", "7"];
    for more in [&["-s", "64", "-n", "3000"][..], &["-s", "65536", "-n", "200", "-b"]] {
        let flags = [&base[..], &faults, more].concat();
        let row = result(Tool::WriteBw, &flags);
        assert!(row["packets_lost"].as_u64() > Some(0), "{row}");
        assert!(row["chunks_retransmitted"].as_u64() > Some(0), "{row}");
    }
    let flags = [&base[..], &faults, &["-s", "4096", "-n", "300"]].concat();
    let row = result(Tool::WriteLat, &flags);
    assert!(row["packets_lost"].as_u64() > Some(0), "{row}");
    assert_eq!(row["n_iterations"], 300);
}

#[test]
fn a_lossless_run_reports_no_loss_by_faults_and_tcp_reports_nothing() {
    let row = result(Tool::WriteBw, &["-c", "TCP", "-n", "50"]);
    assert!(row["packets_lost"].is_null() && row["chunks_retransmitted"].is_null(), "{row}");
    let row = result(Tool::WriteBw, &["-n", "50"]);
    assert!(row["packets_lost"].is_u64() && row["rtos"].is_u64(), "{row}");
}

#[test]
fn a_path_that_is_swallowed_is_left_and_shown_at_the_end() {
    let flags = ["--paths", "4", "-n", "3000", "-s", "4096", "--data_validation", "--json"];
    let hole = [&flags[..], &["--black-hole", "1,2"]].concat();
    let (client, server) = run_ends(Tool::WriteBw, &flags, &hole);
    let (client, _) = (client.expect("it goes on"), server.expect("it goes on"));
    let object: Value = serde_json::from_str(&client).expect("one JSON object");
    let row = &object["results"][0];
    assert_eq!(row["n_iterations"], 3000);
    let paths = object["paths"].as_array().expect("a list");
    // Those of the carrier that it began on, and that of RC behind them.
    let carriers: Vec<_> = paths.iter().map(|path| path["carrier"].as_str()).collect();
    assert_eq!(carriers, ["UC", "UC", "UC", "UC", "RC"].map(Some));
    assert!(row["reroutes"].is_u64() && row["packets_lost"].is_u64(), "{object}");
    // Not how much was lost: on a busy machine what was declared lost is acknowledged after all.
    // Where the machine is too busy for either end to answer all of them take other ports.
    let left = |path: usize| paths[path]["doubts"] != 0 || paths[path]["moves"] != 0;
    assert!(left(1) && left(2), "{object}");
    assert!(paths.iter().all(|path| path["source_port"].is_u64()));
}

#[test]
fn a_running_end_answers_at_its_status_socket() {
    let path = std::env::temp_dir().join(format!("towpath-perftest-{}", std::process::id()));
    let at = path.to_str().expect("a name in UTF-8").to_owned();
    let running = std::thread::spawn(move || {
        run_ends(Tool::WriteBw, &["-D", "5"], &["-D", "5", "--status", &at])
    });
    let mut answer = None;
    while answer.is_none() && !running.is_finished() {
        answer = towpath_status::ask(&path).ok();
        std::thread::sleep(Duration::from_millis(10));
    }
    let (client, _) = running.join().expect("no panic");
    client.expect("the run is not disturbed");
    let answer = answer.expect("it was asked while it ran");
    assert_eq!((answer.program.as_str(), answer.links.len()), ("tow_write_bw", 1));
    assert!(!path.exists(), "the socket goes with it");
}

#[test]
fn many_channels_share_a_link_and_too_many_are_told_why() {
    let flags = ["-q", "200", "-t", "4", "-s", "1000", "-n", "2000", "--data_validation"];
    assert_eq!(result(Tool::SendBw, &flags)["n_iterations"], 2000);
    let words = ["tow_send_bw", "-q", "256", "-t", "128"];
    let parsed = args::parse(Tool::SendBw, words).expect("a command line that parses");
    let error = Settings::new(Tool::SendBw, parsed).map(drop).expect_err("too much at once");
    assert!(error.to_string().contains("4096"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_told_before_anybody_waits() {
    for words in [&["-d", "nosuch0"][..], &["-d", "nosuch0", "127.0.0.1"]] {
        let settings = settings(Tool::SendBw, words);
        let mut out = Vec::new();
        let error = super::run(&settings, &mut out).expect_err("there is no such device");
        assert!(matches!(error, RunError::Endpoint(_)), "{error}");
        assert!(out.is_empty(), "nobody waits for a client");
    }
}

#[test]
fn what_has_no_links_has_no_status_and_no_paths() {
    for words in [&["--raw"][..], &["-c", "TCP"]] {
        let refused = |flag: &str, value: &str| {
            let words = [&["tow_send_bw", flag, value], words].concat();
            let parsed = args::parse(Tool::SendBw, words).expect("a command line that parses");
            Settings::new(Tool::SendBw, parsed).map(drop)
        };
        assert_eq!(refused("--status", "/nowhere"), Err(UsageError::StatusOfNoLink));
        assert_eq!(refused("--paths", "2"), Err(UsageError::PathsOfNoLink));
        assert_eq!(refused("--fallback", "tcp"), Err(UsageError::PathsOfNoLink));
    }
}

#[test]
fn all_sizes_make_a_row_each() {
    for connection in ["UC", "TCP"] {
        let rows = results(Tool::WriteBw, &["-c", connection, "-a", "-n", "5", "-t", "2"]);
        let sizes: Vec<u64> = rows.iter().map(|row| row["MsgSize"].as_u64().unwrap()).collect();
        assert_eq!(sizes, (1..=23).map(|log2| 1 << log2).collect::<Vec<u64>>());
    }
}

#[test]
fn a_duration_measures_without_its_margins() {
    for connection in ["UC", "TCP"] {
        for tool in [Tool::WriteBw, Tool::WriteLat] {
            // A busy machine may leave nothing of a tenth of a second, but not of longer ones.
            let measured = ["0.2", "2", "10"].into_iter().any(|seconds| {
                let row = result(tool, &["-c", connection, "-D", seconds, "-f", "0.05"]);
                row["n_iterations"].as_u64() > Some(0)
            });
            assert!(measured, "{tool:?} {connection}");
        }
    }
}

#[test]
fn our_own_flags_are_each_ends_own() {
    let client = ["-n", "100", "--no-payload-crc", "--chunk-bytes", "8K", "--window", "64K"];
    let server = ["-n", "100", "--stock-buffers", "-r", "64", "--ordered"];
    let (joined, served) = run_ends(Tool::WriteBw, &server, &client);
    let text = joined.unwrap();
    assert!(text.contains(" Chunk           : 8192[B]\n"), "{text}");
    assert!(text.contains(" Payload CRC32C  : OFF\n"), "{text}");
    assert!(text.contains(" Congestion ctrl : fixed:64KiB\n"), "{text}");
    let text = served.unwrap();
    assert!(text.contains(" Socket buffers  : stock (212992[B])\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with(" 65536      100 ")), "{text}");
}

#[test]
fn ends_that_differ_are_told_in_which_flags() {
    let (client, server) =
        run_ends(Tool::WriteBw, &["-s", "4096", "-b"], &["-s", "65536", "-c", "TCP"]);
    for end in [client, server] {
        let Err(error @ RunError::Disagree(_)) = end else { panic!("{end:?}") };
        assert_eq!(
            error.to_string(),
            "the ends do not agree (-c (connection): client TCP, server UC; -s / -a (size): client \
             65536, server 4096; -b (bidirectional): client off, server on); start both with the \
             same flags"
        );
    }
}

#[test]
fn a_link_that_rc_gave_up_says_so_and_what_to_do() {
    let server = ["-c", "RC", "-D", "60", "-u", "12", "--fallback", "none", "--paths", "1"];
    let client = [&server[..], &["--black-hole", "0", "--black-hole-after", "0.3"]].concat();
    let (client, server) = run_ends(Tool::WriteBw, &server, &client);
    for end in [client, server] {
        let text = end.unwrap_err().to_string();
        assert!(text.contains("raise -u at both ends"), "{text}");
    }
}

#[test]
fn a_client_that_goes_away_is_no_riddle() {
    let listener = control::listen(Some(LOOPBACK), 0).unwrap();
    let addr = listener.local_addr().unwrap();
    let settings = settings(Tool::WriteBw, &[]);
    let client = std::thread::spawn(move || drop(std::net::TcpStream::connect(addr).unwrap()));
    let served = session::serve(&listener, &settings, &mut Report::new(&settings, &mut Vec::new()));
    client.join().unwrap();
    assert!(matches!(served, Err(RunError::PeerGone(_))), "{served:?}");
}

#[test]
fn raw_verbs_take_every_message_on_the_queue_pairs_that_have_them() {
    let base = ["-n", "200", "--data_validation", "-t", "16"];
    for (tool, more) in [
        (Tool::SendBw, &["--raw", "-s", "20000"][..]),
        (Tool::SendBw, &["--raw", "-s", "3", "-b", "-q", "3", "-Q", "7"]),
        (Tool::SendBw, &["--raw", "-s", "3", "-b", "-q", "3", "-Q", "7", "-l", "1"]),
        (Tool::SendBw, &["--raw", "-c", "UC", "-s", "64", "-t", "4"]),
        (Tool::SendBw, &["--raw", "-c", "UD", "-s", "4096", "-t", "4"]),
        (Tool::ReadBw, &["--raw", "-s", "20000", "-q", "2", "-o", "2"]),
        (Tool::ReadBw, &["--raw", "-s", "1", "-b"]),
        (Tool::AtomicBw, &["--raw", "-q", "2", "--perform_warm_up"]),
        (Tool::AtomicBw, &["--raw", "-A", "CMP_AND_SWAP"]),
        (Tool::ReadLat, &["--raw", "-s", "5000"]),
        (Tool::AtomicLat, &["--raw", "-A", "cmp_and_swap"]),
        (Tool::SendLat, &["--raw", "-s", "9000"]),
        (Tool::SendLat, &["--raw", "-c", "UC", "-s", "1"]),
        (Tool::SendLat, &["--raw", "-c", "UD", "-s", "8"]),
    ] {
        // Latency tools have no depth.
        let base = if tool.is_latency() { &base[..3] } else { &base[..] };
        let has_own_depth = more.contains(&"-t");
        let base = if has_own_depth { &base[..3] } else { base };
        let flags = [base, more, &PATIENT].concat();
        let row =
            result_where(tool, &flags, |row| row["messages_lost"].as_u64().is_none_or(|n| n == 0));
        assert_eq!(row["n_iterations"], 200, "{tool:?} {flags:?}");
        if tool == Tool::SendBw {
            assert_eq!(row["messages_lost"], 0, "{flags:?} {row}");
        }
    }
}

#[test]
fn raw_writes_leave_their_receiver_alone() {
    for connection in ["RC", "UC"] {
        for size in ["1", "9000"] {
            let flags = ["--raw", "-c", connection, "-s", size, "-n", "100", "-u", "19"];
            let row = result(Tool::WriteBw, &flags);
            assert_eq!(row["n_iterations"], 100, "{flags:?}");
            assert!(row["messages_lost"].is_null(), "{row}");
            // Each round waits for the number in the last byte, which goes round twice here.
            let flags = ["--raw", "-c", connection, "-s", size, "-n", "600", "-u", "19"];
            assert_eq!(result(Tool::WriteLat, &flags)["n_iterations"], 600, "{flags:?}");
        }
    }
}

#[test]
fn what_raw_datagrams_lose_is_counted_and_the_run_ends() {
    let flags = ["--raw", "-c", "UD", "-s", "1024", "-n", "1000", "-t", "8", "--loss", "0.1"];
    let as_lossy = |row: &Value| (40..=200).contains(&row["messages_lost"].as_u64().unwrap());
    let row = result_where(Tool::SendBw, &flags, as_lossy);
    assert_eq!(row["n_iterations"], 1000);
    assert!(as_lossy(&row), "{row}");
    let flags = ["-c", "RC", "--raw", "-s", "1024", "-n", "1000", "--loss", "0.02", "-u", "17"];
    assert_eq!(result(Tool::SendBw, &flags)["messages_lost"], 0, "RC sends again");
}

#[test]
fn a_device_that_is_not_there_is_told_with_what_to_do() {
    for flags in [&["-d", "rxe77"][..], &["-d", "verbs:rxe77", "--raw", "-c", "UC"]] {
        let (client, _) = run_ends(Tool::SendBw, flags, flags);
        let text = client.unwrap_err().to_string();
        let advice = ["--features verbs", "there are: ", "cannot list"];
        assert!(advice.iter().any(|advice| text.contains(advice)), "{text}");
    }
}

#[test]
fn defaults_are_those_of_perftest() {
    let bw = settings(Tool::WriteBw, &[]);
    assert_eq!((bw.port, bw.plan.size, bw.plan.tx_depth, bw.plan.qps), (18515, 65536, 128, 1));
    assert_eq!(bw.plan.goal, Goal::Messages(5000));
    assert_eq!(bw.plan.connection, Connection::Uc);
    let raw = settings(Tool::SendBw, &["--raw"]);
    assert_eq!((raw.plan.connection, raw.rx_depth, raw.plan.outs), (Connection::Rc, 512, 16));
    assert_eq!(raw.plan.goal, Goal::Messages(1000));
    let one_by_one = settings(Tool::SendBw, &["--raw", "-d", "rxe0"]);
    let as_told = settings(Tool::SendBw, &["--raw", "-d", "rxe0", "-l", "7"]);
    assert_eq!((raw.post_list, one_by_one.post_list, as_told.post_list), (0, 1, 7));
    assert_eq!(settings(Tool::SendBw, &["-d", "rxe0"]).post_list, 0, "a transport knows better");
    let cq_mod = |words: &[&str]| settings(Tool::SendBw, words).cq_mod;
    assert_eq!(cq_mod(&["--raw"]), Some(1), "of long messages each is asked for a completion");
    for few in [&["--raw", "-s", "8192"][..], &["--raw", "-a"]] {
        assert_eq!(cq_mod(few), Some(100), "{few:?}");
    }
    assert_eq!(cq_mod(&["--raw", "-Q", "7"]), Some(7));
    let atomic = settings(Tool::AtomicBw, &[]);
    assert_eq!((atomic.plan.size, atomic.plan.raw), (8, false));
    assert_eq!(atomic.plan.connection, Connection::Uc);
    assert_eq!(settings(Tool::ReadBw, &["--raw"]).plan.connection, Connection::Rc);
    let lat = settings(Tool::WriteLat, &[]);
    assert_eq!((lat.plan.size, lat.plan.tx_depth), (2, 1));
    assert_eq!(lat.plan.goal, Goal::Messages(1000));
    let timed = settings(Tool::WriteBw, &["-D", "2"]);
    let (span, margin) = (Duration::from_secs(2), Duration::from_millis(500));
    assert_eq!(timed.plan.goal, Goal::Span { span, margin });
    assert!(!timed.show.peak);
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_could() {
    let refused = |tool: Tool, words: &[&str]| -> String {
        let words = std::iter::once(tool.name()).chain(words.iter().copied());
        match args::parse(tool, words) {
            Ok(parsed) => Settings::new(tool, parsed).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (words, say) in [
        (&["-c", "UD"][..], "add --raw for plain datagrams"),
        (&["-c", "XRC"], "connection type XRC is not there; there are UC and RC"),
        (&["-c", "carrier pigeon"], "use UC or RC (Towpath) or TCP (kernel TCP)"),
        (&["-s", "0"], "a size is 1 to 1073741824 bytes"),
        (&["-n", "4"], "4 is not in 5.."),
        (&["-m", "9000"], "256, 512, 1024, 2048 or 4096"),
        (&["--loss", "7"], "0.01 is one packet in a hundred"),
        (&["-a", "-s", "4"], "cannot be used with"),
        (&["-q", "32", "-t", "1024"], "more than 4096 messages under way"),
        (&["-D", "1", "-f", "0.5"], "leaves nothing of -D"),
        (&["-c", "TCP", "--loss", "0.1"], "netem"),
        (&["-d", "rxe0", "--loss", "0.1"], "`tc qdisc ... netem`"),
        (&["-d", "no device"], "ibv_devices"),
        (&["--raw", "-c", "TCP"], "leave --raw out for TCP"),
        (&["--raw", "-c", "UD"], "no WRITE on UD"),
        (&["--raw", "--data_validation"], "cannot check the data"),
    ] {
        let text = refused(Tool::WriteBw, words);
        assert!(text.contains(say), "{words:?}: {text}");
    }
    assert!(refused(Tool::WriteLat, &["-b"]).contains("unexpected argument"));
    assert!(refused(Tool::ReadBw, &["--raw", "-c", "UC"]).contains("need RC queue pairs"));
    assert!(refused(Tool::ReadBw, &["-c", "TCP"]).contains("use -c UC or RC"));
    assert!(refused(Tool::AtomicBw, &["-q", "2"]).contains("leave -q out"));
    assert!(refused(Tool::ReadBw, &["-t", "257"]).contains("256 READs and atomics"));
    assert!(refused(Tool::AtomicLat, &["-s", "16"]).contains("8 bytes"));
    let too_long = ["--raw", "-c", "UD", "-m", "1024", "-s", "1025"];
    assert!(refused(Tool::SendBw, &too_long).contains("raise -m"));
    let settings = Settings::new(
        Tool::WriteBw,
        args::parse(Tool::WriteBw, ["tow_write_bw", "-c", "TCP", "--corrupt", "1"]).unwrap(),
    );
    assert_eq!(settings.unwrap_err(), UsageError::TcpFaults);
}

#[test]
fn depth_is_lowered_for_large_messages_only() {
    let plan = settings(Tool::WriteBw, &["-t", "128"]).plan;
    assert_eq!(plan.depth(1 << 16), 128);
    assert_eq!(plan.depth(1 << 19), 128);
    assert_eq!(plan.depth(1 << 23), 8);
    assert_eq!(plan.depth(1 << 30), 1);
}
