//! `towpath put --servers`, and the commands that take its layout.

mod towpath_common;

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::Stdio;

use serde_json::{Value, json};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_common::{Bench, Daemon, fails, pattern, stderr, succeeds};

/// A folder, and some servers.
struct Fleet {
    bench: Bench,
    daemons: Vec<Daemon>,
    /// Their addresses, with commas between.
    servers: String,
}

impl Fleet {
    fn new(count: usize) -> Self {
        let bench = Bench::new();
        let start = |number: usize| {
            let data_dir = bench.path(&number.to_string());
            Daemon::with(DaemonConfig::default().with(|config| {
                config.store.data_dir = data_dir;
                config.store.capacity_bytes = 64 << 20;
            }))
        };
        let daemons: Vec<Daemon> = (0..count).map(start).collect();
        let names: Vec<String> = daemons.iter().map(|daemon| daemon.addr.to_string()).collect();
        Self { bench, daemons, servers: names.join(",") }
    }

    fn put(&self, policy: &str, words: &[&str]) -> std::process::Command {
        let args = ["put", "--servers", &self.servers, "--policy", policy];
        self.bench.run(&[&args, words].concat())
    }

    fn chunks(&self) -> Vec<u64> {
        let info = |daemon: &Daemon| {
            let args = ["info", "--json", &daemon.addr.to_string()];
            towpath_common::json(&mut self.bench.run(&args))["chunks"].as_u64().expect("a count")
        };
        self.daemons.iter().map(info).collect()
    }

    fn layout(&self, name: &str) -> Value {
        serde_json::from_slice(&self.bench.read(name)).expect("JSON")
    }

    /// Flips a bit of a slice on the disk of a server.
    fn damage(&self, number: usize, slice: &[u8]) {
        let path = self.bench.path(&number.to_string()).join("disk");
        let disk = File::options().read(true).write(true).open(path).expect("it is there");
        let mut page = vec![0; slice.len()];
        let len = disk.metadata().expect("it is there").len();
        let at = (0..len)
            .step_by(4_096)
            .find(|at| disk.read_exact_at(&mut page, *at).is_ok() && page == slice);
        disk.write_all_at(&[slice[7] ^ 1], at.expect("it is stored") + 7).expect("written");
    }
}

#[test]
fn a_file_goes_to_several_servers_and_back_and_flags_of_one_server_are_refused() {
    let fleet = Fleet::new(3);
    let bytes = pattern(500_000, 1);
    fleet.bench.file("film", &bytes);
    for (policy, words, code, said) in [
        ("flat:3", &["film", "--least", "4"][..], 2, "1 to 3"),
        ("flat:3", &["film", "--depth", "3"], 2, "--depth"),
        ("flat:3", &["film", "--foreign-peers"], 2, "--device"),
        ("flat:3", &["film", "--layout", "none/layout"], 7, "none/layout"),
        ("flat:4", &["film"], 2, "4 servers"),
    ] {
        fails(&mut fleet.put(policy, words), code, &[said]);
    }
    let [first, ..] = &fleet.daemons[..] else { panic!("three are there") };
    let twice = format!("{0},{0}", first.addr);
    let args = ["put", "--servers", &twice, "--policy", "flat:2", "film"];
    fails(&mut fleet.bench.run(&args), 2, &["twice"]);
    assert_eq!(fleet.chunks(), [0, 0, 0], "nothing was stored");
    assert_eq!(succeeds(&mut fleet.put("rs:2+1", &["film"])), "film.layout\n");
    fails(&mut fleet.put("rs:2+1", &["film"]), 2, &["--layout names another"]);
    assert_eq!(fleet.chunks(), [1, 1, 1]);
    let run = |args: &[&str]| fleet.bench.run(args);
    succeeds(&mut run(&["get", "film.layout", "copy"]));
    assert!(fleet.bench.read("copy") == bytes);
    for words in [
        &["get", "film.layout", "other", "127.0.0.1"][..],
        &["get", "film.layout", "other", "--hedge", "127.0.0.1"],
        &["get", "film.layout", "other", "--op-size", "64K"],
        &["stat", "film.layout", "127.0.0.1"],
        &["rm", "film.layout", "127.0.0.1"],
    ] {
        fails(&mut run(words), 2, &["leave them out"]);
    }
    succeeds(&mut run(&["rm", "film.layout"]));
    assert_eq!(fleet.chunks(), [0, 0, 0]);
    assert!(!fleet.bench.path("film.layout").exists());
}

#[test]
fn bytes_of_a_stored_file_are_changed_where_they_are() {
    let fleet = Fleet::new(3);
    let mut bytes = pattern(300_000, 1);
    fleet.bench.file("film", &bytes);
    fleet.bench.file("change", &pattern(70_001, 2));
    succeeds(&mut fleet.put("rs:2+1", &["film"]));
    let run = |args: &[&str]| fleet.bench.run(args);
    let put = ["put", "--at", "131070", "--layout", "film.layout", "change"];
    succeeds(&mut run(&put));
    bytes[131_070..201_071].copy_from_slice(&pattern(70_001, 2));
    succeeds(&mut run(&["get", "film.layout", "copy"]));
    assert!(fleet.bench.read("copy") == bytes);
    succeeds(&mut run(&["scrub", "film.layout"]));
    let told = towpath_common::json(&mut run(&[&put[..], &["--json"]].concat()));
    assert_eq!((&told["bytes"], &told["conflicts"]), (&70_001.into(), &0.into()));
    fails(&mut run(&["put", "--layout", "film.layout", "change"]), 2, &["--at"]);
    let beyond = ["put", "--at", "290000", "--layout", "film.layout", "change"];
    fails(&mut run(&beyond), 2, &["300000 bytes"]);
}

#[test]
fn copies_go_the_way_that_takes_the_shortest_time_and_the_put_says_why() {
    let fleet = Fleet::new(3);
    fleet.bench.file("film", &pattern(500_000, 1));
    let put = |layout: &str, words: &[&str]| {
        let given = ["film", "--json", "--layout", layout];
        towpath_common::json(&mut fleet.put("auto:3", &[&given[..], words].concat()))
    };
    for (costs, policy) in [("1,1000000,1", "flat:3"), ("1000000,1,1", "ring:3")] {
        let told = put(policy, &["--costs", costs]);
        assert_eq!(told["policy"], policy);
        assert_eq!(told["chosen"]["measured"], false);
        assert!(told["chosen"]["estimates_ns"]["tree"].as_u64() > Some(0), "{told}");
    }
    let told = put("layout", &[]);
    assert_eq!(told["chosen"]["measured"], true);
    assert!(told["chosen"]["costs"]["step_ns"].is_u64(), "{told}");
    assert_eq!(fleet.layout("layout")["policy"], told["policy"]);
    assert_eq!(fleet.chunks(), [3, 3, 3], "what was measured with is gone");
    let text = succeeds(&mut fleet.put("auto:2", &["film", "--costs", "1000000,1,1"]));
    assert!(
        text.starts_with("film.layout\nring: each port carries the data once (flat "),
        "{text}"
    );
    for (policy, words) in [("auto:4", &["film"][..]), ("flat:3", &["film", "--costs", "1,2,3"])] {
        fails(&mut fleet.put(policy, words), 2, &[]);
    }
}

#[test]
fn a_put_whose_layout_finds_its_name_taken_leaves_nothing() {
    let fleet = Fleet::new(2);
    let mut put = fleet.put("flat:2", &["-", "--layout", "layout"]);
    let put = put.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut put = put.spawn().expect("it starts");
    // Its own file is there before anything is stored.
    let folder = fleet.bench.path(".");
    let has_begun = || {
        let names = fs::read_dir(&folder).expect("readable").flatten();
        let mut names = names.map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().starts_with(".towpath-layout-"))
    };
    while !has_begun() && put.try_wait().expect("ours").is_none() {}
    fleet.bench.file("layout", b"another");
    put.stdin.take().expect("piped").write_all(&pattern(100_000, 2)).expect("it reads");
    let output = put.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(fleet.bench.read("layout"), b"another");
    assert_eq!(fleet.chunks(), [0, 0]);
    assert!(!has_begun());
}

#[test]
fn damage_is_repaired_and_the_layout_keeps_its_permissions() {
    let fleet = Fleet::new(3);
    let bytes = pattern(500_000, 3);
    fleet.bench.file("film", &bytes);
    succeeds(&mut fleet.put("rs:2+1", &["film"]));
    let path = fleet.bench.path("film.layout");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("ours");
    fleet.damage(0, &bytes[8_192..][..4_096]);
    let run = |args: &[&str]| fleet.bench.run(args);
    let slice = 4_096;
    for (words, came) in
        [(&["scrub", "film.layout"][..], 4), (&["scrub", "--read", "film.layout"], slice)]
    {
        fails(&mut run(words), 1, &["repair --scrub"]);
        let output = run(&[words, &["--json"]].concat()).output().expect("it runs");
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["bad_parts"], json!([0]));
        let bytes_read = found["bytes_read"].as_u64().expect("a number");
        // 3 parts of 62 slices, less what is with the damaged slice in one piece.
        assert!((170 * came..186 * came).contains(&bytes_read), "{bytes_read}");
    }
    let repaired = succeeds(&mut run(&["repair", "film.layout", "--scrub", "--json"]));
    let repaired: Value = serde_json::from_str(&repaired).expect("JSON");
    let stable = ["made", "mended", "bytes_read", "bytes_written", "generation", "left"];
    let told = stable.map(|name| repaired[name].clone());
    let expected = [json!([]), json!([0]), json!(2 * slice), json!(slice), json!(1), json!([])];
    assert_eq!(told, expected, "{repaired}");
    assert_eq!(repaired["bytes_compared"], json!(4 * (3 * 62 - 1)));
    assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o640);
    // With what the servers of the last data part and of the parity remember of the repair.
    assert_eq!(fleet.chunks(), [1, 2, 2]);
    succeeds(&mut run(&["scrub", "film.layout"]));
    succeeds(&mut run(&["get", "film.layout", "copy"]));
    assert!(fleet.bench.read("copy") == bytes);
}

#[test]
fn exit_codes_tell_damage_from_servers_that_are_gone() {
    let mut fleet = Fleet::new(3);
    let bytes = pattern(500_000, 6);
    fleet.bench.file("film", &bytes);
    succeeds(&mut fleet.put("rs:2+1", &["film"]));
    let run = |bench: &Bench, args: &[&str]| bench.run(args);
    // A reader that goes away is no error of servers, and not worth a word.
    let mut get = run(&fleet.bench, &["get", "film.layout", "-"]);
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(get.stdout.take());
    let output = get.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), stderr(&output)), (Some(7), String::new()));
    for number in 0..2 {
        fleet.damage(number, &bytes[number * 65_536..][..4_096]);
    }
    let get = ["get", "film.layout", "copy"];
    fails(&mut run(&fleet.bench, &get), 1, &["at byte 0 of the file 1 parts can be read"]);
    fleet.daemons.drain(..2).for_each(Daemon::stop);
    fails(&mut run(&fleet.bench, &get), 3, &["1 parts of the file are whole, and 2 are needed"]);
    assert!(!fleet.bench.path("copy").exists());
}

#[test]
fn parts_that_do_not_belong_together_are_no_work_for_a_repair() {
    let fleet = Fleet::new(3);
    for (name, seed) in [("one", 4), ("other", 5)] {
        fleet.bench.file(name, &pattern(500_000, seed));
        succeeds(&mut fleet.put("rs:2+1", &[name]));
    }
    let mut mixed = fleet.layout("one.layout");
    mixed["nodes"][1] = fleet.layout("other.layout")["nodes"][1].clone();
    let mixed_up = mixed.to_string();
    fleet.bench.file("mixed.layout", mixed_up.as_bytes());
    // Nobody takes that for what it was.
    let output = fleet.bench.run(&["get", "mixed.layout", "copy"]).output().expect("it runs");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    let (_, checksum) = said.split_once("its fields have ").expect("the right one");
    mixed["checksum"] = checksum[..8].into();
    fleet.bench.file("mixed.layout", mixed.to_string().as_bytes());
    let chunks = fleet.chunks();
    for args in [&["scrub", "mixed.layout"][..], &["repair", "--scrub", "mixed.layout"]] {
        fails(&mut fleet.bench.run(args), 1, &["no repair mends it"]);
    }
    assert_eq!(fleet.layout("mixed.layout"), mixed);
    assert_eq!(fleet.chunks(), chunks);
}

/// The settings of a server that is started again.
fn back(data_dir: std::path::PathBuf, listen: std::net::SocketAddr) -> DaemonConfig {
    DaemonConfig::default().with(|config| {
        config.store.data_dir = data_dir;
        config.network.listen = listen;
        config.store.capacity_bytes = 64 << 20;
    })
}

#[test]
fn a_put_without_a_server_says_so_and_what_mends_it_and_that_mends_it() {
    for policy in ["ring:3", "rs:2+1", "rs:2+1,triec"] {
        let mut fleet = Fleet::new(3);
        let bytes = pattern(500_000, 7);
        fleet.bench.file("film", &bytes);
        let gone = fleet.daemons.remove(1);
        let (addr, data_dir) = (gone.addr, fleet.bench.path("1"));
        gone.stop();
        let output = fleet.put(policy, &["film"]).output().expect("it runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(output.stdout, b"film.layout\n");
        for words in ["without part 1", &addr.to_string(), "`towpath repair film.layout`"] {
            assert!(said.contains(words), "{policy}: {words:?} is not in {said:?}");
        }
        let run = |args: &[&str]| fleet.bench.run(args);
        let text = fails(&mut run(&["stat", "film.layout"]), 10, &["Part 1 is missing", "repair"]);
        assert!(text.contains("2 of 3 parts intact"), "{text}");
        fails(&mut run(&["scrub", "film.layout"]), 1, &["--replacements"]);
        succeeds(&mut run(&["get", "film.layout", "copy"]));
        assert!(fleet.bench.read("copy") == bytes);
        let all = fleet.put(policy, &["film", "--layout", "all", "--least", "3"]).output();
        assert_ne!(all.expect("it runs").status.code(), Some(0), "all are wanted");
        assert!(!fleet.bench.path("all").exists());
        let _back = Daemon::on(back(data_dir, addr));
        let repaired = succeeds(&mut run(&["repair", "film.layout"]));
        assert!(repaired.starts_with("Rebuilt part 1. "), "{repaired}");
        let text = succeeds(&mut run(&["stat", "film.layout"]));
        assert!(text.contains("3 of 3 parts intact"), "{text}");
        let text = succeeds(&mut run(&["scrub", "film.layout"]));
        assert!(text.contains(" stripes match. No parts missing or damaged."), "{text}");
        let text = succeeds(&mut run(&["repair", "film.layout"]));
        assert!(text.starts_with("Nothing to repair"), "{text}");
    }
}

#[test]
fn damage_beyond_what_the_policy_bears_is_told_as_lost() {
    let fleet = Fleet::new(3);
    let bytes = pattern(500_000, 8);
    fleet.bench.file("film", &bytes);
    succeeds(&mut fleet.put("rs:2+1", &["film"]));
    // Slices at one place of both data parts, in the second stripe.
    fleet.damage(0, &bytes[131_072..][..4_096]);
    fleet.damage(1, &bytes[131_072 + 65_536..][..4_096]);
    for args in [
        &["scrub", "film.layout"][..],
        &["scrub", "--read", "film.layout"],
        &["repair", "film.layout"],
        &["repair", "--scrub", "film.layout"],
    ] {
        fails(&mut fleet.bench.run(args), 1, &["1 stripe is lost, at byte 131072 of the file"]);
    }
}

#[test]
fn what_a_repair_could_not_delete_is_deleted_by_the_next_command() {
    let mut fleet = Fleet::new(4);
    let bytes = pattern(300_000, 9);
    fleet.bench.file("film", &bytes);
    succeeds(&mut fleet.put("flat:3", &["film"]));
    let spare = fleet.daemons[3].addr.to_string();
    let gone = fleet.daemons.remove(1);
    let (addr, data_dir) = (gone.addr, fleet.bench.path("1"));
    gone.stop();
    let run = |args: &[&str]| fleet.bench.run(args);
    let repaired = succeeds(&mut run(&["repair", "film.layout", "--replacements", &spare]));
    assert!(repaired.contains("not removed yet"), "{repaired}");
    assert_eq!(fleet.layout("film.layout")["left"][0]["server"], addr.to_string());
    succeeds(&mut run(&["scrub", "film.layout"]));
    assert_eq!(fleet.layout("film.layout")["left"][0]["server"], addr.to_string(), "still gone");
    let back = Daemon::on(back(data_dir, addr));
    let chunks = || towpath_common::json(&mut run(&["info", "--json", &addr.to_string()]));
    assert_eq!(chunks()["chunks"], 1);
    succeeds(&mut run(&["scrub", "film.layout"]));
    assert_eq!(chunks()["chunks"], 0);
    assert!(fleet.layout("film.layout").get("left").is_none());
    // Records of the repair are shown where somebody wants to see them.
    let first = fleet.daemons[0].addr.to_string();
    let output = run(&["ls", &first]).output().expect("it runs");
    let (text, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    assert_eq!(text.lines().count(), 2, "the head and the part: {text}");
    assert!(said.contains("1 records") && said.contains("--all"), "{said}");
    let text = succeeds(&mut run(&["ls", "--all", &first]));
    assert!(text.contains("record of changes") && text.lines().count() == 3, "{text}");
    let listed = towpath_common::json(&mut run(&["ls", "--json", &first]));
    let records = listed["chunks"].as_array().expect("a list").iter();
    assert_eq!(records.filter(|chunk| chunk["record"] == true).count(), 1, "{listed}");
    drop(back);
}

#[test]
fn a_pipe_is_refused_with_the_way_to_store_it() {
    let fleet = Fleet::new(1);
    let fifo = fleet.bench.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let words = ["not a regular file", "towpath put - <"];
    let server = fleet.servers.clone();
    fails(&mut fleet.bench.run(&["put", "fifo", "--server", &server]), 7, &words);
    fails(&mut fleet.put("flat:1", &["fifo"]), 7, &words);
}
