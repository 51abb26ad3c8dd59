//! The program begins, serves and ends as it says.

mod common;

use common::process::Process;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use towpath_kv::client::{
    ChannelTransport, Client, ClientConfig, OneSided, RawClientConfig, RawTransport, TcpTransport,
    Waiting,
};
use towpath_kv::raw::RawKind;
use towpath_transport::CarrierChoice;

/// What is answered to these commands.
fn ask(address: &str, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.write_all(format!("{commands}QUIT\r\n").as_bytes()).expect("it reads");
    let mut replies = String::new();
    stream.read_to_string(&mut replies).expect("text");
    replies.strip_suffix("+OK\r\n").expect("a farewell").to_owned()
}

#[test]
fn it_says_when_it_is_ready_and_what_it_did() {
    let process = Process::start(&["--resp", "127.0.0.1:0", "--workers", "2"]);
    assert_eq!(process.ready["event"], "ready");
    assert_eq!(process.ready["workers"], 2);
    let address = process.address("resp");
    assert_eq!(ask(&address, "SET k v\r\nGET k\r\nSET e v PX 1\r\n"), "+OK\r\n$1\r\nv\r\n+OK\r\n");
    // What has expired goes without anybody asking for it.
    let begin = Instant::now();
    while !ask(&address, "INFO\r\n").contains("expired_keys:1\r\n") {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing sweeps");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (code, end) = process.stop();
    assert_eq!(code, Some(0));
    assert_eq!((&end["event"], &end["keys"]), (&"end".into(), &1.into()));
    assert!(end["requests"].as_u64() >= Some(4) && end["expired"] == 1, "{end}");
}

#[test]
fn the_baseline_table_serves_as_well() {
    let process = Process::start(&["--resp", "127.0.0.1:0", "--store", "buckets"]);
    let reply = ask(&process.address("resp"), "INCR n\r\nINCR n\r\n");
    assert_eq!(reply, ":1\r\n:2\r\n");
    assert_eq!(process.stop().0, Some(0));
}

#[test]
fn a_port_that_is_taken_has_an_exit_code_of_its_own() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath-kv"));
        let output = command.args(flags).output().expect("it was built");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--resp", &address]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains(&address), "{said}");
    assert_eq!(run(&["--workers", "0"]).0, Some(2));
}

#[test]
fn what_is_put_over_one_front_is_found_over_the_others() {
    let local = "127.0.0.1:0";
    let process = Process::start(&["--resp", local, "--requests", local, "--links", local]);
    let soon = Duration::from_secs(60);
    assert_eq!(ask(&process.address("resp"), "SET k v\r\n"), "+OK\r\n");
    let addr = process.address("requests").parse().expect("an address");
    let tcp = TcpTransport::connect(addr, Waiting::Blocking, soon).expect("it listens");
    let mut client = Client::new(tcp, ClientConfig::default());
    assert_eq!(client.get(b"k").expect("a reply"), Some(b"v".to_vec()));
    let addr: SocketAddr = process.address("links").parse().expect("an address");
    let channel =
        ChannelTransport::connect(addr.ip(), addr, CarrierChoice::Uc, Waiting::Blocking, soon);
    let mut client = Client::new(channel.expect("it listens"), ClientConfig::default());
    assert_eq!(client.get(b"k").expect("a reply"), Some(b"v".to_vec()));
    assert_eq!(process.stop().0, Some(0));
}

#[test]
fn what_is_put_over_one_front_is_found_over_each_kind_of_raw_queue_pair() {
    let local = "127.0.0.1:0";
    for (kind, name) in RawKind::ALL.into_iter().zip(["rc", "uc", "ud"]) {
        let process = Process::start(&["--resp", local, "--raw", local, "--raw-transport", name]);
        let soon = Duration::from_secs(60);
        assert_eq!(ask(&process.address("resp"), "SET k v\r\n"), "+OK\r\n");
        let addr: SocketAddr = process.address("raw").parse().expect("an address");
        let config = RawClientConfig::new(kind, Waiting::Blocking);
        let raw = RawTransport::udp(addr.ip(), addr, config, soon).expect("it listens");
        let mut client = Client::new(raw, ClientConfig::default());
        assert_eq!(client.get(b"k").expect("a reply"), Some(b"v".to_vec()));
        let (code, end) = process.stop();
        assert_eq!(
            (code, &end["raw"]["failed"], &end["repeated"]),
            (Some(0), &0.into(), &0.into())
        );
    }
}

#[test]
fn what_is_published_is_read_over_links_and_raw_queue_pairs() {
    let local = "127.0.0.1:0";
    let flags = ["--resp", local, "--raw", local, "--links", local, "--publish-mib", "1"];
    let process = Process::start(&flags);
    let soon = Duration::from_secs(60);
    assert_eq!(ask(&process.address("resp"), "SET k v\r\n"), "+OK\r\n");
    let addr: SocketAddr = process.address("raw").parse().expect("an address");
    let config = RawClientConfig::new(RawKind::Rc, Waiting::Blocking);
    let raw = RawTransport::udp(addr.ip(), addr, config, soon).expect("it listens");
    let mut client = OneSided::new(raw, ClientConfig::default());
    assert_eq!(client.get(b"k").expect("in time"), Some(b"v".to_vec()));
    assert_eq!(client.stats().found, 1);
    let addr: SocketAddr = process.address("links").parse().expect("an address");
    let channel =
        ChannelTransport::connect(addr.ip(), addr, CarrierChoice::Uc, Waiting::Blocking, soon);
    let mut client = OneSided::new(channel.expect("it listens"), ClientConfig::default());
    while client.stats().found == 0 {
        assert_eq!(client.get(b"k").expect("in time"), Some(b"v".to_vec()));
    }
    let (code, end) = process.stop();
    assert_eq!((code, &end["published"]["put"]), (Some(0), &1.into()), "{end}");
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // As if who reads the log had died.
    drop(reader);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device of Linux");
    for stderr in [Stdio::from(full), Stdio::from(writer)] {
        let mut command = Command::new("sh");
        // With so few descriptors it has something to log.
        command.args(["-c", "ulimit -n 200 && exec \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_towpath-kv")).args(["--json", "--resp", "127.0.0.1:0"]);
        let process = Process::of(command.stderr(stderr));
        assert_eq!(ask(&process.address("resp"), "SET k v\r\nGET k\r\n"), "+OK\r\n$1\r\nv\r\n");
        assert_eq!(process.stop().0, Some(0));
    }
}
