//! Stores on real files: by io_uring and by threads, past the page cache and through it, and a
//! process that is killed at fifty points.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use towpath_disk::{NewFile, Options};

#[test]
fn a_store_whose_folder_is_removed_acknowledges_nothing_more_and_is_read() {
    let outer = tempfile::tempdir().expect("room for a folder");
    let dir = outer.path().join("data");
    std::fs::create_dir(&dir).expect("room for a folder");
    let mut core = open_file(&dir, &options());
    create(&mut core, ChunkId(1));
    write(&mut core, ChunkId(1), 0, &[7; 4096]);
    std::fs::remove_dir_all(&dir).expect("it is there");
    assert_ne!(fate(&ask(&mut core, create_request(ChunkId(2)))), Fate::Done);
    assert_eq!(fate(&ask(&mut core, create_request(ChunkId(3)))), Fate::NotDone);
    assert!(core.stats().read_only.is_some());
    assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("it is still there"), [7; 4096]);
}

const DIR_VARIABLE: &str = "TOWPATH_TEST_KILL_DIR";
const START_VARIABLE: &str = "TOWPATH_TEST_KILL_START";

/// Changes that are under way together.
const BATCH: u64 = 3;

fn options() -> Options {
    let create = Some(NewFile { page_count: PAGES, room_pages: PAGES });
    Options { depth: 16, create, thread_count: 4, ..Options::default() }
}

fn open_file(dir: &Path, options: &Options) -> Core {
    let (disk, report) = towpath_disk::open(&dir.join("disk"), options).expect("there is room");
    println!("{report}");
    Core::open(disk, &CONFIG).expect("it opens")
}

#[test]
fn real_files_hold_what_was_written_across_restarts_whoever_drives_them() {
    let mut prng = Prng::new(3);
    let on_disk = tempfile::tempdir().expect("room for a folder");
    let shm = Path::new("/dev/shm");
    let in_memory = match shm.is_dir() {
        true => tempfile::tempdir_in(shm),
        false => tempfile::tempdir(),
    };
    let in_memory = in_memory.expect("room for a folder");
    for dir in [on_disk.path(), in_memory.path()] {
        let mut model = Model::default();
        for (is_uring, is_direct) in [(true, true), (false, true), (false, false), (true, true)] {
            let options = Options { is_uring, is_direct, ..options() };
            let mut core = open_file(dir, &options);
            assert_eq!(core.damage(), []);
            assert_eq!(Model::of(&mut core).expect("all is sound"), model);
            for step in 0..40 {
                let change = model.random(&mut prng);
                let reply = ask(&mut core, change.request());
                model.take(&change, &reply).unwrap_or_else(|wrong| panic!("{wrong}"));
                if step == 20 {
                    checkpoint(&mut core);
                }
            }
        }
    }
}

/// Change number `index` of a history that parent and child both know.
fn change(index: u64) -> Change {
    let chunk = ChunkId(u128::from(index % 4));
    if index < 4 {
        return Change::Create(chunk);
    }
    let mut prng = Prng::new(index);
    let (offset, len) = (prng.below(30_000), 1 + prng.below(12_000) as usize);
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    Change::Write(chunk, offset, bytes)
}

#[test]
#[ignore = "the process that the test below starts and kills"]
fn child() {
    let Some(dir) = std::env::var_os(DIR_VARIABLE) else { return };
    let start = std::env::var(START_VARIABLE).expect("the parent sets it");
    let mut index: u64 = start.parse().expect("the parent sets a number");
    let mut core = open_file(Path::new(&dir), &options());
    loop {
        for _ in 0..BATCH {
            core.submit(Client { asker: 0, token: index }, change(index).request());
            index += 1;
        }
        if index.is_multiple_of(7) {
            core.request_checkpoint();
        }
        settle(&mut core);
        assert!(core.take_answers().all(|(_, answer)| fate(&answer.reply) == Fate::Done));
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {index}").and_then(|()| out.flush()).expect("the parent reads");
    }
}

/// Starts the child, kills it after `lines` lines, gives how many changes it acknowledged.
fn run_child(dir: &Path, start: u64, lines: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", "store::core::tests::files::child", "--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .env(START_VARIABLE, start.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let (mut acknowledged, mut seen) = (start, 0);
    for line in output.lines().map_while(Result::ok) {
        // The test harness may have begun the first line with words of its own.
        let said = line.rsplit_once("acknowledged ").and_then(|(_, number)| number.parse().ok());
        if let Some(number) = said {
            (acknowledged, seen) = (number, seen + 1);
            if seen == lines {
                child.kill().expect("the child runs");
            }
        }
    }
    child.wait().expect("the child ends");
    assert!(seen >= lines, "the child died by itself after {seen} commits");
    acknowledged
}

/// What a chunk may hold: the acknowledged changes, and then some of those under way, of each chunk
/// the first ones.
#[test]
fn fifty_kills_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let (mut model, mut start, mut prng) = (Model::default(), 0, Prng::new(50));
    for point in 0..50 {
        let acknowledged = run_child(dir.path(), start, 1 + prng.below(12));
        (start..acknowledged).for_each(|index| model.apply(&change(index), 0));
        // More than this the child never asked for.
        start = acknowledged + 2 * BATCH;
        let mut core = open_file(dir.path(), &options());
        assert!(!core.is_damaged(), "{:?}", core.damage());
        let found = Model::of(&mut core).expect("all slices are sound");
        for chunk in (0..4).map(ChunkId) {
            let mut rest = (acknowledged..start).map(change).filter(|next| next.chunk() == chunk);
            while found.chunks.get(&chunk) != model.chunks.get(&chunk) {
                let next = rest.next();
                let next =
                    next.unwrap_or_else(|| panic!("point {point}: a change is lost or torn"));
                model.apply(&next, 0);
            }
        }
        assert_eq!(found, model);
    }
}
