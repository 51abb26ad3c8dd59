//! Deletes and clears of scattered chunks: what they leave is freed some at a time, and is what a
//! restart finds whenever it comes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use super::*;
use crate::store::core::map_page::BLOCK_SLICES;
use towpath_disk::sim::{Loss, SimDisk};
use towpath_disk::{Disk, Done, Limits, Op, What};

/// Bytes of the slices that one block of the map names.
const BLOCK_BYTES: u64 = (BLOCK_SLICES * SLICE_BYTES) as u64;

/// A disk that notes what it was asked to do, and the most flushes that it had at a time.
struct Noting {
    disk: SimDisk,
    flushing: Vec<u64>,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    asked: Vec<What>,
    flushes_most: usize,
}

impl Noting {
    fn open(medium: &Medium, config: &CoreConfig) -> (Core, Arc<Mutex<Notes>>) {
        let notes = Arc::<Mutex<Notes>>::default();
        let disk = medium.open(128).expect("nobody has it open");
        let disk = Self { disk, flushing: Vec::new(), notes: Arc::clone(&notes) };
        (StoreCore::open(Box::new(disk), config).expect("a new store"), notes)
    }

    fn note_done(&mut self, done: &[Done]) {
        self.flushing.retain(|tag| !done.iter().any(|done| done.tag == *tag));
    }
}

impl Disk for Noting {
    fn limits(&self) -> Limits {
        self.disk.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), towpath_disk::Refused> {
        let what = op.what();
        self.disk.submit(tag, op)?;
        self.flushing.extend((what == What::Flush).then_some(tag));
        let mut notes = self.notes.lock().expect("nobody panics");
        notes.asked.push(what);
        notes.flushes_most = notes.flushes_most.max(self.flushing.len());
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        let before = done.len();
        let outcome = self.disk.poll(done);
        self.note_done(&done[before..]);
        outcome
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        let before = done.len();
        let outcome = self.disk.wait(timeout, done);
        self.note_done(&done[before..]);
        outcome
    }

    fn arm(&mut self) -> io::Result<bool> {
        self.disk.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

/// A sparse store with a chunk of `blocks` blocks, of each of which it has one slice; between any
/// two of its pages is one of another chunk.
fn scattered(blocks: u64) -> (Core, Arc<Mutex<Notes>>) {
    let config = CoreConfig { is_sparse: true, log_pages: 1024, ..CONFIG };
    let medium = Medium::new(1, 16 * blocks + 10_000);
    medium.set_durable_writes(DurableWrites::None);
    medium.limit_room(u64::MAX);
    let (mut core, notes) = Noting::open(&medium, &config);
    create(&mut core, ChunkId(1));
    create(&mut core, ChunkId(2));
    for at in 0..blocks {
        for (chunk, offset) in [(1, at * BLOCK_BYTES), (2, at * 4096)] {
            let request = write_request(ChunkId(chunk), offset, &[at as u8; 4096]);
            core.submit(Client { asker: 0, token: at }, request);
        }
        while !core.has_room(Class::default(), 1) || core.changes.gathering().len() > 200 {
            core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
        }
    }
    settle(&mut core);
    assert!(core.take_answers().all(|(_, answer)| fate(&answer.reply) != Fate::NotDone));
    // The file system runs short.
    let used = u64::MAX / 4096 - core.io.disk().free_bytes().expect("it tells") / 4096;
    medium.limit_room(used * 4096 + 2 * core.space.full_bytes());
    core.measure_room();
    (core, notes)
}

/// What others' commits have between them while `change` of the scattered chunk is done: the most
/// discards, and the most slices that a turn frees.
fn beside(change: &dyn Fn() -> Request<Vec<u8>, Buf>) -> (usize, u64, u64) {
    let blocks = 1500;
    let (mut core, notes) = scattered(blocks);
    let (chunk, before) = (ChunkId(3), core.stats().live_bytes / 4096);
    create(&mut core, chunk);
    notes.lock().expect("nobody panics").asked.clear();
    core.submit(Client { asker: 0, token: 0 }, change());
    let (mut turn_most, mut writes) = (0, 0);
    let gives_back = |core: &Core| core.space.pages.stale_pages() > 0 && core.space.is_short();
    while gives_back(&core) || core.has_steps() || writes < 20 {
        let request = write_request(chunk, writes * 4096 % (64 * 4096), &[1; 4096]);
        core.submit(Client { asker: 0, token: 7 }, request);
        loop {
            let live = core.map.live_slices;
            core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
            turn_most = turn_most.max(live.saturating_sub(core.map.live_slices));
            if core.take_answers().any(|(_, answer)| answer.token == 7) {
                break;
            }
        }
        writes += 1;
    }
    settle(&mut core);
    let notes = notes.lock().expect("nobody panics");
    let between = notes.asked.split(|what| *what == What::Flush);
    let discards = between.map(|ops| ops.iter().filter(|what| **what == What::Discard).count());
    let freed = before + writes.min(64) - core.stats().live_bytes / 4096;
    (discards.max().unwrap_or(0), turn_most, freed)
}

#[test]
fn what_takes_a_scattered_chunk_away_puts_little_between_the_commits_of_others() {
    let clear = |clear| Request::Clear { chunk: ChunkId(1), clear, terms: Terms::default() };
    let range = (0, 1500 * BLOCK_BYTES);
    let (offset, byte_len) = range;
    let changes: [&dyn Fn() -> Request<Vec<u8>, Buf>; 4] = [
        &|| Request::Delete { chunk: ChunkId(1), version: None },
        &|| clear(Clear::Trim { offset, byte_len }),
        &|| clear(Clear::Zero { offset, byte_len }),
        &|| clear(Clear::Truncate { byte_len: 0 }),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (discards, turn_slices, freed) = beside(change);
        println!("change {number}: {discards} discards, {turn_slices} slices a turn");
        assert_eq!(freed, 1500, "change {number}");
        // One at a time, each about as long as a write: a commit is two writes and a flush.
        assert!(discards <= 16, "change {number}: {discards} discards between two flushes");
        assert!(turn_slices <= 300, "change {number}: {turn_slices} slices in one turn");
    }
}

#[test]
fn room_is_given_back_to_the_file_system_when_nobody_has_anything_to_do() {
    let (mut core, notes) = scattered(100);
    notes.lock().expect("nobody panics").asked.clear();
    delete(&mut core, ChunkId(1));
    delete(&mut core, ChunkId(2));
    settle(&mut core);
    let discards = |asked: &[What]| asked.iter().filter(|what| **what == What::Discard).count();
    let count = discards(&notes.lock().expect("nobody panics").asked);
    assert!((1..=100).contains(&count), "{count}: pages that lie together go together");
    assert!(!core.space.is_short() || core.space.pages.stale_pages() == 0, "it has enough again");
    assert_eq!(core.stats().retired_bytes, 0);
}

#[test]
fn no_two_flushes_are_under_way_at_a_time() {
    let (mut core, notes) = Noting::open(&medium(3), &CONFIG);
    create(&mut core, ChunkId(1));
    for at in 0..400u64 {
        core.submit(Client { asker: 0, token: at }, write_request(ChunkId(1), 0, &[1; 4096]));
        if at % 5 == 0 {
            core.request_checkpoint();
        }
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
    }
    settle(&mut core);
    assert!(core.stats().checkpoints > 3, "{}", core.stats().checkpoints);
    assert_eq!(notes.lock().expect("nobody panics").flushes_most, 1);
}

/// Blocks of the chunks of the test below.
const BLOCKS: u64 = 12;

/// By chunk and block: what its first slice has.
type Expected = BTreeMap<u128, BTreeMap<u64, u8>>;

/// Makes one change and waits for its answer.
fn change(core: &mut Core, expected: &mut Expected, prng: &mut Prng) {
    let name = u128::from(1 + prng.below(3));
    let chunk = ChunkId(name);
    let Some(blocks) = expected.get_mut(&name) else {
        create(core, chunk);
        expected.insert(name, BTreeMap::new());
        return;
    };
    let block = prng.below(BLOCKS);
    let clear = match prng.below(12) {
        0 => {
            delete(core, chunk);
            expected.remove(&name);
            return;
        }
        1 => {
            blocks.retain(|at, _| *at < block);
            Clear::Truncate { byte_len: block * BLOCK_BYTES }
        }
        2 | 3 => {
            let (offset, count) = (block * BLOCK_BYTES, 1 + prng.below(6));
            let byte_len = count * BLOCK_BYTES;
            blocks.retain(|at, _| !(block..block + count).contains(at));
            match prng.chance(0.5) {
                true => Clear::Zero { offset, byte_len },
                false => Clear::Trim { offset, byte_len },
            }
        }
        _ => {
            let byte = 1 + prng.below(255) as u8;
            write(core, chunk, block * BLOCK_BYTES, &[byte; 4096]);
            blocks.insert(block, byte);
            return;
        }
    };
    let reply = ask(core, Request::Clear { chunk, clear, terms: Terms::default() });
    assert!(matches!(reply, Reply::Change(Ok(_))), "{reply:?}");
}

fn check(core: &mut Core, expected: &Expected) {
    for name in 1..=3 {
        let Some(blocks) = expected.get(&name) else {
            assert_eq!(core.stat(ChunkId(name)), None);
            continue;
        };
        let chunk_bytes = core.stat(ChunkId(name)).expect("it is there").byte_len;
        for block in (0..BLOCKS).filter(|block| block * BLOCK_BYTES + 4096 <= chunk_bytes) {
            let found = read(core, ChunkId(name), block * BLOCK_BYTES, 4096).expect("sound");
            let byte = blocks.get(&block).copied().unwrap_or(0);
            assert_eq!(found, [byte; 4096], "block {block} of chunk {name}");
        }
        let last = blocks.keys().next_back().map_or(0, |block| block * BLOCK_BYTES + 4096);
        assert!(chunk_bytes >= last);
    }
}

/// Whether each page is somewhere, and none twice.
fn check_pages(core: &mut Core, expected: &Expected) {
    settle(core);
    let live: u64 = expected.values().map(|blocks| blocks.len() as u64).sum();
    assert_eq!(core.map.live_slices, live);
    let all = core.space.pages.free_pages() + core.space.pages.unbacked_pages() + live;
    assert_eq!(all, u64::from(core.layout.data_pages));
    let named: std::collections::BTreeSet<_> = core.map.pages().collect();
    assert_eq!(named.len() as u64, live, "no page is named twice");
}

#[test]
fn what_a_restart_finds_is_what_was_acknowledged_wherever_the_steps_were() {
    for seed in 0..40 {
        println!("seed {seed}");
        let (mut prng, medium) = (Prng::new(seed), Medium::new(seed, 600));
        medium.limit_room(u64::MAX);
        let config = CoreConfig { is_sparse: seed % 2 == 0, ..CONFIG };
        let (mut expected, mut core) = (Expected::new(), open_as(&medium, &config).expect("new"));
        let mut stepping = 0;
        for _ in 0..150 {
            change(&mut core, &mut expected, &mut prng);
            stepping += u32::from(core.has_steps());
            if prng.chance(0.2) {
                core.request_checkpoint();
            }
            for _ in 0..prng.below(4) {
                core.turn(Some(Duration::from_secs(1))).expect("it always speaks");
            }
            check(&mut core, &expected);
            match prng.below(30) {
                0 => check_pages(&mut core, &expected),
                1 => {
                    drop(core);
                    core = open_as(&medium, &config).expect("it was left whole");
                }
                2 => {
                    medium.end_process();
                    drop(core);
                    medium.power_on(Loss::Everything);
                    core = open_as(&medium, &config).expect("it was left whole");
                }
                _ => continue,
            }
            assert_eq!(core.damage(), []);
            check(&mut core, &expected);
        }
        assert!(stepping > 5, "{stepping}: changes leave something for later");
        check_pages(&mut core, &expected);
    }
}

#[test]
fn a_delete_and_a_clear_say_how_many_blocks_they_leave() {
    let blocks = 10;
    let (mut core, _) = scattered(blocks);
    let mut left_by = |request| {
        core.submit(Client { asker: 0, token: 0 }, request);
        settle(&mut core);
        let left: Vec<u64> = core.take_answers().map(|(_, answer)| answer.blocks_left).collect();
        left
    };
    let trim = |offset, byte_len| Request::Clear {
        chunk: ChunkId(1),
        clear: Clear::Trim { offset, byte_len },
        terms: Terms::default(),
    };
    assert_eq!(left_by(write_request(ChunkId(1), 0, &[9; 4096])), [0]);
    assert_eq!(left_by(trim(3 * BLOCK_BYTES, 2 * BLOCK_BYTES)), [2]);
    assert_eq!(left_by(trim(3 * BLOCK_BYTES, 2 * BLOCK_BYTES)), [0], "there is nothing any more");
    assert_eq!(left_by(trim(100 * BLOCK_BYTES, BLOCK_BYTES)), [0]);
    assert_eq!(left_by(trim(0, 8 * BLOCK_BYTES)), [blocks - 4]);
    let delete = || Request::Delete { chunk: ChunkId(1), version: None };
    assert_eq!(left_by(delete()), [2]);
    assert_eq!(left_by(delete()), [0], "there is no such chunk");
    let truncate = Request::Clear {
        chunk: ChunkId(2),
        clear: Clear::Truncate { byte_len: 0 },
        terms: Terms::default(),
    };
    assert_eq!(left_by(truncate), [1], "ten slices beside each other");
}
