//! A writing process killed at fifty points: what it said was written is there.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::store::FileMedia;

const DIR_VARIABLE: &str = "TOWPATH_TEST_KILL_DIR";
const START_VARIABLE: &str = "TOWPATH_TEST_KILL_START";
const BATCH: u64 = 3;

/// Change number `index` of a history that parent and child both know.
fn change(index: u64) -> Change {
    let chunk = ChunkId(u128::from(index % 4));
    if index < 4 {
        return Change::Create(chunk);
    }
    let mut prng = Prng::new(index);
    let offset = prng.below(30_000);
    let len = 1 + prng.below(12_000) as usize;
    Change::Write(chunk, offset, random_bytes(&mut prng, len))
}

fn open_files(dir: &Path) -> Store<FileMedia> {
    let media = FileMedia::new(dir).expect("the directory is there");
    Store::open(media, small_config()).expect("the store opens")
}

#[test]
#[ignore = "the process that the test below starts and kills"]
fn child() {
    let Some(dir) = std::env::var_os(DIR_VARIABLE) else { return };
    let start = std::env::var(START_VARIABLE).expect("the parent sets it");
    let mut index: u64 = start.parse().expect("the parent sets a number");
    let mut store = open_files(Path::new(&dir));
    loop {
        for _ in 0..BATCH {
            assert_eq!(change(index).stage(&mut store, index), Ok(true));
            index += 1;
        }
        store.log.wants_checkpoint |= index.is_multiple_of(7);
        store.commit().expect("the medium flushes");
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {index}").and_then(|()| out.flush()).expect("the parent reads");
    }
}

/// Starts the child, kills it after `lines` lines, gives how many changes it acknowledged.
fn run_child(dir: &Path, start: u64, lines: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", "store::tests::kill::child", "--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .env(START_VARIABLE, start.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut acknowledged = start;
    let mut seen = 0;
    for line in output.lines().map_while(Result::ok) {
        // The test harness may have begun the first line with words of its own.
        let said = line.rsplit_once("acknowledged ").and_then(|(_, number)| number.parse().ok());
        if let Some(number) = said {
            acknowledged = number;
            seen += 1;
            if seen == lines {
                child.kill().expect("the child runs");
            }
        }
    }
    child.wait().expect("the child ends");
    assert!(seen >= lines, "the child died by itself after {seen} commits");
    acknowledged
}

#[test]
fn fifty_kills_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let mut model = Model::default();
    let mut applied = 0;
    let mut prng = Prng::new(50);
    for point in 0..50 {
        let acknowledged = run_child(dir.path(), applied, 1 + prng.below(12));
        (applied..acknowledged).for_each(|index| model.apply(&change(index)));
        applied = acknowledged;
        let mut store = open_files(dir.path());
        let found = Model::of(&mut store).expect("all slices are sound");
        while found != model {
            assert!(applied < acknowledged + 2 * BATCH, "point {point}: a change is lost or torn");
            model.apply(&change(applied));
            applied += 1;
        }
    }
}
