//! A store of a terabyte: what its map takes, how long it takes to open, and what a checkpoint of
//! all of it does to changes beside it.

use std::time::Instant;

use super::*;
use crate::store::record::{Extent, Frame, Op, parse_record};
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
    let (mut sequence, mut bytes) = (1, Vec::new());
    let mut apply = |core: &mut Core, chunk: ChunkId, op: &Op<'_>| {
        let frame = Frame { sequence, durable_sequence: 0, generation: 0, previous_crc: 0 };
        sequence += 1;
        bytes.clear();
        op.encode(core.key, frame, (chunk, 0), &mut bytes);
        let (record, _) = parse_record(&bytes, core.key).expect("it was encoded here");
        core.map.apply(&record, &mut |_| ()).expect("there is room");
    };
    for first in (0..SLICES).step_by(WRITE_SLICES as usize) {
        let chunk = ChunkId(u128::from(first / CHUNK_SLICES));
        if first % CHUNK_SLICES == 0 {
            let (limit_bytes, kind) = (1 << 40, NewChunk::default());
            apply(core, chunk, &Op::Create { limit_bytes, kind });
        }
        let extents = [Extent { page: first as u32 + 1, count: WRITE_SLICES as u32 }];
        let crcs: Vec<u32> = (0..WRITE_SLICES as u32).map(|at| at ^ first as u32).collect();
        let (offset, byte_len) = (first % CHUNK_SLICES * 4096, WRITE_SLICES * 4096);
        apply(core, chunk, &Op::Write { offset, byte_len, extents: &extents, crcs: &crcs });
    }
}

/// Durable writes, one at a time, until there were `count` and no checkpoint is under way; how long
/// each took.
fn latencies(core: &mut Core, chunk: ChunkId, count: usize) -> Vec<Duration> {
    let mut all = Vec::new();
    while all.len() < count || (core.checkpoint.is_some() && core.failure().is_none()) {
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
    let mut extents = Vec::new();
    assert!(core.space.take(SLICES as u32, &mut extents));
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
