//! The program itself: start, clean stop, restart, and everything that keeps it from starting.

mod common;

use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Client, Process, command, config, pattern};
use towpath_chunkserver::daemon::{DaemonConfig, LogFormat};
use towpath_chunkserver::store::ChunkId;

const CHUNK: ChunkId = ChunkId(77);

/// Runs the program to its end.
fn run(config: &DaemonConfig) -> Output {
    command(config).stderr(Stdio::piped()).output().expect("the server starts")
}

/// Expects the program to end with a code, and to say something about it.
fn fails(config: &DaemonConfig, code: i32, words: &[&str]) {
    let output = run(config);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    assert!(output.stdout.is_empty(), "a server that is not ready says nothing on stdout");
}

#[test]
fn the_service_manager_is_told_when_clients_can_connect() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let name = dir.path().join("notify");
    let manager = UnixDatagram::bind(&name).expect("a free name");
    let mut command = command(&config(&dir.path().join("store")));
    let server = Process::of(command.env("NOTIFY_SOCKET", &name));
    let mut told = [0; 256];
    let len = manager.recv(&mut told).expect("it is told");
    let said = std::str::from_utf8(&told[..len]).expect("words");
    assert_eq!(said, format!("READY=1\nSTATUS=serving on {}", server.addr));
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing_and_changes_no_exit_code() {
    let unwritable = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // As if who reads the log had died.
        drop(reader);
        let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
        [Stdio::from(full), Stdio::from(writer)]
    };
    for (stderr, log_format) in unwritable().into_iter().zip([LogFormat::Text, LogFormat::Json]) {
        let dir = tempfile::tempdir().expect("room for a directory");
        let log = String::from("debug");
        let config = config(&dir.path().join("store")).with(|config| {
            config.telemetry.log = log;
            config.telemetry.log_format = log_format;
        });
        let mut server = Process::of(command(&config).stderr(stderr));
        let mut client = Client::connect(server.addr);
        client.create(CHUNK, None).expect("a fresh name");
        client.write(CHUNK, 0, &pattern(10_000, 1)).expect("there is room");
        server.signal("TERM");
        while client.endpoint.links().next().is_some() {
            client.turn();
        }
        assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    }
    let program = || Command::new(env!("CARGO_BIN_EXE_towpath-chunkserver"));
    for stderr in unwritable() {
        let wrong = program().args(["--log", "ifno"]).stderr(stderr).status();
        assert_eq!(wrong.expect("it starts").code(), Some(2));
    }
    for stdout in unwritable() {
        let mut unprinted = program();
        unprinted.arg("--print-config").stdout(stdout).stderr(Stdio::piped());
        let child = unprinted.spawn().expect("it starts");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{said}");
        assert!(said.contains("cannot write to stdout"), "{said}");
    }
}

#[test]
fn sigterm_ends_it_cleanly_and_a_restart_has_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    for round in 0..3u64 {
        let mut server = Process::start(&config);
        let mut client = Client::connect(server.addr);
        if round == 0 {
            client.create(CHUNK, None).expect("a fresh name");
        }
        for before in 0..round * 20 {
            let read = client.read(CHUNK, before * 10_000, 10_000).expect("acknowledged");
            assert!(read == pattern(10_000, before), "write {before} is lost");
        }
        for index in round * 20..round * 20 + 20 {
            client.write(CHUNK, index * 10_000, &pattern(10_000, index)).expect("there is room");
        }
        server.signal(if round == 1 { "INT" } else { "TERM" });
        // A client that stays sees the server leave, and does not keep it.
        while client.endpoint.links().next().is_some() {
            client.turn();
        }
        assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    }
    // A clean stop seals the store: the log ends with a seal, nothing is torn.
    let mut server = Process::start(&config);
    server.signal("TERM");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_terminal_that_closes_ends_it_cleanly_unless_it_runs_under_nohup() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let plain = command(&config);
    // Whoever runs this test may do so under nohup.
    let mut listening = Command::new("env");
    listening.arg("--default-signal=HUP").arg(plain.get_program());
    listening.args(plain.get_args()).stdout(Stdio::piped());
    let mut server = Process::of(&mut listening);
    server.signal("HUP");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));

    // What nohup does, without its redirections.
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(plain.get_program());
    ignoring.args(plain.get_args()).stdout(Stdio::piped());
    let mut server = Process::of(&mut ignoring);
    server.signal("HUP");
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("it serves on");
    server.signal("TERM");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
}

/// What a server writes to stderr from its start to a clean stop.
fn log_of(config: &DaemonConfig) -> String {
    let mut server = Process::of(command(config).stderr(Stdio::piped()));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    server.signal("TERM");
    let mut said = String::new();
    let mut err = server.child.stderr.take().expect("it is piped");
    err.read_to_string(&mut said).expect("text");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    said
}

#[test]
fn the_log_is_lines_for_people_or_objects_for_programs_and_its_end_is_short() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let mut config = config(&dir.path().join("text"));
    config.telemetry.log = "info".into();
    let said = log_of(&config);
    let last = said.lines().last().expect("a line");
    for word in ["stopped", "clients=1", "requests_done=1", "all_answered=true"] {
        assert!(last.contains(word), "{word:?} is not in {last:?}");
    }
    assert!(last.len() < 250, "{last}");

    config.store.data_dir = dir.path().join("json");
    config.telemetry.log_format = LogFormat::Json;
    let said = log_of(&config);
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        for field in ["time", "level", "part", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
    }
    let last = lines.last().expect("a line");
    assert_eq!((&last["message"], &last["level"]), (&"stopped".into(), &"info".into()));
    assert_eq!((&last["clients"], &last["all_answered"]), (&1.into(), &true.into()));
}

#[test]
fn what_was_staged_when_the_signal_came_is_finished_and_answered() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let mut server = Process::start(&config);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let mut started = Vec::new();
    for index in 0..24 {
        let data = pattern(65_536, index);
        let op = client.chunks.start_write_copy(&mut client.endpoint, CHUNK, index * 65_536, &data);
        started.push(op.expect("room for 24"));
    }
    client.turn();
    server.signal("TERM");
    let mut acknowledged = Vec::new();
    while client.chunks.under_way() > 0 {
        if let Some((op, result)) = client.turn() {
            let index = started.iter().position(|started| *started == op).expect("ours");
            if result.is_ok() {
                acknowledged.push(index as u64);
            }
        }
    }
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    let server = Process::start(&config);
    let mut client = Client::connect(server.addr);
    for index in acknowledged {
        let read = client.read(CHUNK, index * 65_536, 65_536).expect("acknowledged");
        assert!(read == pattern(65_536, index), "write {index} is lost");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = taken.local_addr().expect("it has one");
    let mut config = config(&dir.path().join("store"));
    config.network.listen = addr;
    fails(&config, 3, &[&addr.port().to_string(), "in use"]);
    assert!(
        !config.store.data_dir.exists(),
        "nothing was made for a server that cannot be reached"
    );
    config.network.listen = "192.0.2.1:0".parse().expect("an address");
    config.device.device_ip = Some("127.0.0.1".parse().expect("an address"));
    fails(&config, 3, &["192.0.2.1", "not an address of this host"]);
}

#[test]
fn a_directory_that_cannot_be_a_store_is_named() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, b"no directory").expect("room for a file");
    fails(&config(&file), 4, &["file", "is not a directory", "data_dir"]);
    let below = config(&dir.path().join("store"));
    let config_below = below.clone().with(|config| config.store.data_dir = file.join("below"));
    let args = ["--data-dir", config_below.store.data_dir.to_str().expect("a plain path")];
    let output = command(&below).args(args).stderr(Stdio::piped()).output();
    assert_eq!(output.expect("it starts").status.code(), Some(4));

    let _server = Process::start(&below);
    fails(&below, 4, &["store", "another server"]);
}

#[test]
fn files_of_another_version_are_told_from_damage() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let mut server = Process::start(&config);
    server.signal("TERM");
    server.child.wait().expect("it ends");
    let disk = File::options().read(true).write(true).open(config.store.data_dir.join("disk"));
    let disk = disk.expect("it is there");
    let mut superblock = [0; 4096];
    disk.read_exact_at(&mut superblock, 0).expect("it is so long");
    superblock[12] = 9;
    // Version and checksum keep their places (docs/store-core.md section 2), so the checksum of
    // the page has to be right for the version to be believed.
    superblock[8..12].fill(0);
    let crc = towpath_base::crc::crc32c(&superblock);
    superblock[8..12].copy_from_slice(&crc.to_le_bytes());
    disk.write_all_at(&superblock, 0).expect("it is ours");
    fails(&config, 4, &["version 9", "disk"]);
}

#[test]
fn files_of_the_unreleased_format_are_refused_with_the_way_to_a_new_store() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    std::fs::create_dir(&config.store.data_dir).expect("room for a directory");
    std::fs::write(config.store.data_dir.join("map.00000001"), [0; 4096]).expect("room for a file");
    fails(&config, 4, &["in no release", "towpath put"]);
}

#[test]
fn a_config_that_cannot_be_used_is_told_with_its_place() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let mut program = command(&config);
    let file = config.store.data_dir.with_extension("toml");
    std::fs::write(&file, "links_max = 4\nlisten_to = \"127.0.0.1:0\"\n").expect("it is ours");
    let output = program.stderr(Stdio::piped()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("store.toml:2:1: there is no key `listen_to`"), "{said}");
    assert!(said.contains("`listen`"), "{said}");

    let program = || Command::new(env!("CARGO_BIN_EXE_towpath-chunkserver"));
    let missing = program().args(["--config", "/no/such/file"]).output().expect("it starts");
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such/file"));
    let everywhere = program().args(["--listen", "0.0.0.0:0", "--check"]).output();
    let everywhere = everywhere.expect("it starts");
    assert_eq!(everywhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&everywhere.stderr).contains("device_ip"));
    let elsewhere = program().args(["--listen", "192.0.2.1:7400", "--check"]).output();
    let elsewhere = elsewhere.expect("it starts");
    let said = String::from_utf8_lossy(&elsewhere.stderr);
    assert_eq!(elsewhere.status.code(), Some(3), "{said}");
    assert!(said.contains("`listen` is 192.0.2.1"), "{said}");
    let flags = ["--device-ip", "203.0.113.9", "--check"];
    let elsewhere = program().args(flags).output().expect("it starts");
    assert_eq!(elsewhere.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("`device_ip` is 203.0.113.9"));
    for flags in [&["--log", "ifno"][..], &["--check", "--log", "warn,ifno"]] {
        let output = program().args(flags).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains("`ifno`, which is not a level"), "{said}");
    }
    let wrong: [&[&str]; 4] = [
        &["--log", "=;="],
        &["--check", "--log", "=;="],
        &["--check", "--log-bytes", "5GiB"],
        &["--segment-bytes", "33000"],
    ];
    for flags in wrong {
        let output = program().args(flags).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
    }
}

#[test]
fn the_printed_config_is_in_effect_when_it_is_read_back() {
    let program = || Command::new(env!("CARGO_BIN_EXE_towpath-chunkserver"));
    let flags = ["--links-max", "5", "--capacity-bytes", "3GiB", "--print-config"];
    let printed = program().args(flags).output().expect("it starts");
    assert!(printed.status.success());
    let dir = tempfile::tempdir().expect("room for a directory");
    let file = dir.path().join("printed.toml");
    std::fs::write(&file, &printed.stdout).expect("room for a file");
    let again = program().arg("--config").arg(&file).arg("--print-config").output();
    assert_eq!(again.expect("it starts").stdout, printed.stdout);
    let check = program().arg("--config").arg(&file).arg("--check").output();
    assert!(check.expect("it starts").status.success());
}

#[test]
fn an_idle_server_does_not_burn_a_core() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Process::start(&config(&dir.path().join("store")));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let ticks = || {
        let mut text = String::new();
        let path = format!("/proc/{}/stat", server.child.id());
        let mut file = File::open(path).expect("it runs");
        file.read_to_string(&mut text).expect("it is read");
        let fields = text.rsplit_once(") ").expect("a name in brackets").1.split(' ');
        let used: u64 = fields.skip(11).take(2).map(|f| f.parse::<u64>().expect("a number")).sum();
        used
    };
    let ticks_of_a_second = || {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        ticks() - before
    };
    // The client stays, and says nothing. A machine that is busy may bill others' work to the
    // server now and then; a hundred ticks are one second of a core.
    let mut seconds = std::iter::repeat_with(ticks_of_a_second).take(8);
    assert!(seconds.any(|used| used <= 30), "over 30 ticks of CPU in each second of nothing");
}

#[cfg(not(feature = "verbs"))]
#[test]
fn a_build_without_the_feature_says_how_to_get_other_devices() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let mut config = config(&dir.path().join("store"));
    config.device.device = "mlx5_0".parse().expect("a name");
    fails(&config, 6, &["--features verbs"]);
}
