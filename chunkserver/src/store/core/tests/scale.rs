//! A store of a terabyte: what its map takes, how long it takes to open, and what a checkpoint of
//! all of it does to changes beside it.

use std::time::Instant;

use super::*;
use crate::store::record::{Body, Extent, Frame, Record, WriteBody};
use towpath_disk::{NewFile, Options};

/// Pages of the disk.
const DISK_PAGES: u64 = 1 << 28;

/// Slices that it holds, nearly all that it can.
const SLICES: u64 = 240 << 20;

/// Slices of one write, and of one chunk.
const WRITE_SLICES: u64 = 4096;
const CHUNK_SLICES: u64 = 1 << 22;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Fills the map alone: nobody reads the slices.
fn fill(core: &mut Core) {
    let mut sequence = 1;
    let mut apply = |core: &mut Core, chunk: ChunkId, body: Body<'_>| {
        let frame = Frame { sequence, ..Frame::default() };
        let record = Record { frame, header_crc: 0, chunk, stamp: 0, body };
        sequence += 1;
        core.map.apply(&record, &mut |_| ()).expect("there is room");
    };
    for first in (0..SLICES).step_by(WRITE_SLICES as usize) {
        let chunk = ChunkId(u128::from(first / CHUNK_SLICES));
        if first % CHUNK_SLICES == 0 {
            let (limit_bytes, kind) = (1 << 40, NewChunk::default());
            apply(core, chunk, Body::Create { limit_bytes, kind });
        }
        let extents = [Extent { page: first as u32 + 1, count: WRITE_SLICES as u32 }];
        let crcs: Vec<u32> = (0..WRITE_SLICES as u32).map(|at| at ^ first as u32).collect();
        let (offset, byte_len) = (first % CHUNK_SLICES * 4096, WRITE_SLICES * 4096);
        apply(core, chunk, Body::Write(WriteBody::new((offset, byte_len), None, &extents, &crcs)));
    }
}

/// Durable writes, one at a time, until there were `count` and no checkpoint is under way; how long
/// each took.
fn latencies(core: &mut Core, chunk: ChunkId, count: usize) -> Vec<Duration> {
    let mut all = Vec::new();
    while all.len() < count || (core.checkpoints.is_under_way() && core.failure().is_none()) {
        let began = Instant::now();
        write(core, chunk, (all.len() as u64 % 64) * 4096, &[1; 4096]);
        all.push(began.elapsed());
    }
    all.sort_unstable();
    all
}

fn say(what: &str, latencies: &[Duration]) {
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!(
        "{what}: {} writes, median {:?}, p99.9 {:?}, most {:?}",
        latencies.len(),
        at(0.5),
        at(0.999),
        at(1.0)
    );
}

#[test]
#[ignore = "minutes, 3 GiB of memory and 8 GiB of disk"]
fn a_terabyte_takes_little_memory_and_its_checkpoint_stalls_nobody() {
    let folder = tempfile::tempdir_in(std::env::var("TOWPATH_DIR").unwrap_or(".".into()));
    let path = folder.as_ref().expect("a folder").path().join("disk");
    let create = Some(NewFile { page_count: DISK_PAGES, room_pages: 0 });
    let options = Options { create, ..Options::default() };
    let config = CoreConfig { log_pages: 1 << 15, chunks_max: 1 << 20, is_sparse: true, ..CONFIG };
    let open = || {
        let (disk, report) = towpath_disk::open(&path, &options).expect("there is room");
        println!("{report}");
        Core::open(disk, &config).expect("it opens")
    };
    let mut core = open();
    let before = resident_bytes();
    fill(&mut core);
    let each = (resident_bytes() - before) as f64 / SLICES as f64;
    println!("{} slices, {each:.1} bytes of memory each", core.map.live_slices);
    // All pages that the map names are taken.
    assert!(core.space.take(SLICES as u32, 0).is_some());
    create_and_measure(&mut core);
    drop(core);
    let began = Instant::now();
    let mut core = open();
    println!("opened in {:?}, {} slices", began.elapsed(), core.map.live_slices);
    assert_eq!(core.map.live_slices, SLICES + 64);
    assert_eq!(core.damage(), []);
    let found = core.map.chunks[&ChunkId(3)].slice(77_777);
    assert_eq!(u64::from(found.page), 3 * CHUNK_SLICES + 77_777 + 1);
    say("after a restart", &latencies(&mut core, ChunkId(1 << 100), 2_000));
}

fn create_and_measure(core: &mut Core) {
    let chunk = ChunkId(1 << 100);
    create(core, chunk);
    say("without a checkpoint", &latencies(core, chunk, 2_000));
    let began = Instant::now();
    core.request_checkpoint();
    core.turn(None).expect("it speaks");
    say("beside a checkpoint of all", &latencies(core, chunk, 2_000));
    println!("which took {:?}", began.elapsed());
    assert!(core.stats().checkpoints > 0 && core.failure().is_none());
}

/// Writes one slice to each of `blocks` blocks of a chunk, and between any two of them one to
/// another chunk, so that no two pages of the first lie together.
fn scatter(core: &mut Core, blocks: u64) {
    create(core, ChunkId(1));
    create(core, ChunkId(2));
    for at in 0..blocks {
        for (chunk, offset) in [(1, at << 18), (2, at * 4096)] {
            let request = write_request(ChunkId(chunk), offset, &[at as u8; 4096]);
            core.submit(Client { asker: 0, token: at }, request);
        }
        while core.changes.gathering().len() > 200 || !core.has_room(Class::default(), 1) {
            core.turn(Some(Duration::from_secs(1))).expect("it speaks");
        }
    }
    settle(core);
    assert!(core.take_answers().all(|(_, answer)| fate(&answer.reply) != Fate::NotDone));
}

/// Durable writes beside what is asked for, until all of that is done; how long each took.
fn beside(core: &mut Core, request: Request<Vec<u8>, Buf>) -> Vec<Duration> {
    core.submit(Client { asker: 0, token: 0 }, request);
    let mut all = Vec::new();
    while all.len() < 1_000 || core.has_steps() || core.space.pages.stale_pages() > 0 {
        let began = Instant::now();
        write(core, ChunkId(3), (all.len() as u64 % 64) * 4096, &[1; 4096]);
        all.push(began.elapsed());
    }
    all.sort_unstable();
    all
}

#[test]
#[ignore = "a minute and 2 GiB of disk; it measures: TOWPATH_SLICES says how many, in TOWPATH_DIR"]
fn writes_beside_the_delete_of_a_scattered_chunk() {
    let count = std::env::var("TOWPATH_SLICES").ok().and_then(|text| text.parse().ok());
    let count: u64 = count.unwrap_or(240_000);
    for change in ["delete", "trim", "truncate"] {
        let folder = tempfile::tempdir_in(std::env::var("TOWPATH_DIR").unwrap_or(".".into()));
        let path = folder.as_ref().expect("a folder").path().join("disk");
        let page_count = 16 * count + 100_000;
        let create_file = Some(NewFile { page_count, room_pages: 0 });
        let options = Options { create: create_file, ..Options::default() };
        let config = CoreConfig { log_pages: 1 << 13, is_sparse: true, ..CONFIG };
        let (disk, report) = towpath_disk::open(&path, &options).expect("there is room");
        let mut core = Core::open(disk, &config).expect("it opens");
        scatter(&mut core, count);
        create(&mut core, ChunkId(3));
        println!("{report}; {} slices, then a {change}", core.map.live_slices);
        say("alone", &latencies(&mut core, ChunkId(3), 1_000));
        let (chunk, terms) = (ChunkId(1), Terms::default());
        let request = match change {
            "delete" => Request::Delete { chunk, version: None },
            "trim" => {
                let clear = Clear::Trim { offset: 0, byte_len: count << 18 };
                Request::Clear { chunk, clear, terms }
            }
            _ => Request::Clear { chunk, clear: Clear::Truncate { byte_len: 0 }, terms },
        };
        let began = Instant::now();
        say("beside it", &beside(&mut core, request));
        println!("all of it was done after {:?}", began.elapsed());
        assert!(core.failure().is_none());
    }
}
