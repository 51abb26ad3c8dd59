//! The program's `check`: what it says of a store, by which exit code, and that a server serves
//! what is left.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Client, Process, config, pattern};
use towpath_chunkserver::store::ChunkId;

const CHUNKS: u128 = 3;
const LEN: usize = 100_000;

/// Where the two copies of the log begin, of 1 MiB each (docs/store-core.md section 1).
const LOG: [u64; 2] = [4096, 4096 + (1 << 20)];

fn check(dir: &Path, flags: &[&str]) -> (i32, String) {
    check_all(&[dir], flags)
}

fn check_all(dirs: &[&Path], flags: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_towpath-chunkserver");
    let output = Command::new(program).arg("check").args(dirs).args(flags).output();
    let Output { status, stdout, .. } = output.expect("it runs");
    let said = String::from_utf8(stdout).expect("it prints text");
    (status.code().expect("it ends by itself"), said)
}

/// A store with chunks, whose server was killed.
fn store(dir: &Path) {
    let mut server = Process::start(&config(dir));
    let mut client = Client::connect(server.addr);
    for id in 0..CHUNKS {
        client.create(ChunkId(id), None).expect("a fresh name");
        client.write(ChunkId(id), 0, &pattern(LEN, id as u64)).expect("there is room");
    }
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
}

fn flip(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("it is so long");
    byte[0] ^= 1;
    file.write_all_at(&byte, offset).expect("it is written");
}

fn all_are_served(dir: &Path) {
    let server = Process::start(&config(dir));
    let mut client = Client::connect(server.addr);
    for id in 0..CHUNKS {
        let found = client.read(ChunkId(id), 0, LEN).expect("it is whole");
        assert!(found == pattern(LEN, id as u64), "chunk {id} is another");
    }
}

#[test]
fn a_bad_byte_in_one_copy_of_the_log_is_named_and_all_is_served() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let path = dir.path().join("store");
    store(&path);
    let (code, said) = check(&path, &["--data"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(" 3 chunks, 75 slices (75 read): whole"), "{said}");
    flip(&path.join("disk"), LOG[0] + 20);
    let (code, said) = check(&path, &["--json"]);
    let object: serde_json::Value = serde_json::from_str(&said).expect("one object");
    assert_eq!(code, 1, "{said}");
    assert_eq!((&object["whole"], &object["takes_changes"]), (&false.into(), &true.into()));
    assert_eq!(object["damage"][0]["kind"], "log-copy");
    assert_eq!(object["damage"][0]["file"], "disk");
    all_are_served(&path);
    assert_eq!(check(&path, &["--data"]).0, 0, "the server has written it again");
}

#[test]
fn records_lost_in_both_copies_are_named_and_a_repair_keeps_the_others() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let path = dir.path().join("store");
    store(&path);
    for copy in LOG {
        // The body of the first write: its group is the second one, and has a page of its own.
        flip(&path.join("disk"), copy + 4096 + 64 + 20);
    }
    let (code, said) = check(&path, &["--json"]);
    let object: serde_json::Value = serde_json::from_str(&said).expect("one object");
    assert_eq!((code, &object["takes_changes"]), (1, &false.into()), "{said}");
    let lost = &object["damage"][0]["lost_records"];
    assert_eq!((&lost["first"], &lost["unnamed"]), (&lost["last"], &0.into()), "one record");
    let lost_record = lost["first"].as_u64().expect("its number");
    assert_eq!(object["suspect"].as_array().expect("a list").len(), 1);
    let server = Process::start(&config(&path));
    let mut client = Client::connect(server.addr);
    let (lost, whole) = (ChunkId(0), ChunkId(1));
    assert!(client.stat(lost).is_err() && client.read(lost, 0, 1).is_err(), "it is not shortened");
    assert!(client.read(whole, 0, LEN).expect("it is whole") == pattern(LEN, 1));
    assert!(client.create(ChunkId(9), None).is_err(), "no change before a repair");
    drop(server);
    let (code, said) = check(&path, &["--repair"]);
    assert_eq!(code, 1, "{said}");
    let named = format!("was damaged: disk: record {lost_record} is lost");
    assert!(said.contains(&named), "{said}");
    let server = Process::start(&config(&path));
    let mut client = Client::connect(server.addr);
    assert!(client.read(lost, 0, 1).is_err(), "it stays known");
    client.delete(lost).expect("that is how to get rid of it");
    client.create(lost, None).expect("it is gone");
    client.write(lost, 0, &pattern(LEN, 0)).expect("there is room");
    drop((client, server));
    all_are_served(&path);
    let (code, said) = check(&path, &["--data"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn each_of_several_disks_is_told_by_itself_and_the_worst_gives_the_code() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let [first, second, none] = ["first", "second", "none"].map(|name| dir.path().join(name));
    store(&first);
    store(&second);
    let (code, said) = check_all(&[&first, &second], &["--data"]);
    assert_eq!((code, said.lines().count()), (0, 2), "{said}");
    flip(&second.join("disk"), LOG[0] + 20);
    let (code, said) = check_all(&[&first, &none, &second], &["--json"]);
    assert_eq!(code, 4, "{said}");
    let objects: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!((&objects[0]["whole"], &objects[2]["whole"]), (&true.into(), &false.into()));
    assert_eq!(objects[1]["dir"].as_str(), none.to_str());
    assert!(objects[1]["error"].is_string(), "{said}");
    let (code, said) = check_all(&[&second, &first], &["--repair"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(check_all(&[&first, &first], &[]).0, 2, "it is named twice");
}

#[test]
fn what_is_no_store_is_not_made_one() {
    let dir = tempfile::tempdir().expect("room for a directory");
    assert_eq!(check(dir.path(), &[]).0, 4);
    assert_eq!(check(&dir.path().join("none"), &["--repair"]).0, 4);
    assert!(!dir.path().join("none").exists());
    assert_eq!(check(dir.path(), &["--accept-loss"]).0, 2, "only with --repair");
}
