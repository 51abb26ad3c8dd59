//! Resident chunks: what is in memory is what the commits left, and no more than fits.

use super::*;
use crate::resident::Arena;
use crate::store::error::{ChangeError, LookError};
use crate::store::residence::Slots;
use towpath_fastpath::resident::{Found, SLOT_BYTES, inspect};
use towpath_transport::SharedMemory;

const SLOTS: u64 = 40;

/// A store with an arena; gives the arena's memory, and how many chunks did not fit.
fn with_arena(medium: &Medium, slots: u64) -> (Core, SharedMemory, u64) {
    let mut core = open(medium).expect("it is whole");
    let arena = Arena::new(slots * SLICE_BYTES as u64).expect("memory");
    let memory = arena.memory();
    let (_, left_out) = core.keep_in(Box::new(arena)).expect("the disk speaks");
    (core, memory, left_out)
}

fn resident_request(chunk: ChunkId, unfinished: bool) -> Request<Vec<u8>, Buf> {
    let kind = NewChunk { unfinished, resident: true, chain: 0 };
    Request::Create { chunk, limit_bytes: None, kind, stamp: 0 }
}

fn create_resident(core: &mut Core, chunk: ChunkId) -> Result<(), ChangeError> {
    match ask(core, resident_request(chunk, false)) {
        Reply::Change(made) => made.map(drop),
        _ => panic!("another answer"),
    }
}

/// A chunk as its slots hold it; none where it has none.
fn resident(core: &Core, memory: &SharedMemory, chunk: ChunkId) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let located = core.locate(chunk, 0, 2).expect("it is there");
    located.slots.as_ref()?;
    loop {
        let next = (bytes.len() / SLICE_BYTES) as u64;
        let (runs, more) = core.locate(chunk, next, 2).expect("it is there").slots?;
        for Slots { first_slice, slot, count } in runs {
            assert_eq!(first_slice, (bytes.len() / SLICE_BYTES) as u64);
            for at in 0..count {
                let mut found = [0; SLOT_BYTES];
                memory.read((slot + at) as usize * SLOT_BYTES, &mut found).expect("within");
                let is_whole = inspect(chunk, first_slice + u64::from(at), &found);
                assert!(matches!(is_whole, Found::Whole { version } if version <= located.version));
                bytes.extend_from_slice(&found[..SLICE_BYTES]);
            }
        }
        if !more {
            break;
        }
    }
    bytes.truncate(located.byte_len as usize);
    Some(bytes)
}

/// Every resident chunk is in memory as it is on the disk.
fn compare(core: &mut Core, memory: &SharedMemory) {
    let mut slices = 0;
    for stat in stats_of(core) {
        let count = stat.byte_len.div_ceil(SLICE_BYTES as u64);
        slices += if stat.resident { count } else { 0 };
        if stat.unfinished {
            let refused = core.locate(stat.chunk, 0, 1);
            assert_eq!(refused, Err(LookError::Unfinished(stat.chunk)));
            continue;
        }
        let found = resident(core, memory, stat.chunk);
        assert_eq!(found.is_some(), stat.resident, "{}", stat.chunk);
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            let stored = read(core, stat.chunk, 0, found.len()).expect("it is whole");
            assert!(stored == found, "chunk {} at version {}", stat.chunk, stat.version);
        }
    }
    let stats = core.stats();
    assert_eq!(stats.resident_bytes, slices * SLICE_BYTES as u64);
    assert_eq!(stats.resident_bytes_max, SLOTS * SLICE_BYTES as u64);
}

#[test]
fn memory_follows_the_commits_and_a_restart_fills_it_again() {
    let seed = 17;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let medium = medium(seed);
    let (mut core, mut memory, _) = with_arena(&medium, SLOTS);
    let mut full = 0;
    for round in 0..1500 {
        for token in 0..prng.between(1, 5) {
            let request = match Change::random(&mut prng) {
                Change::Create(chunk) if prng.chance(0.8) => {
                    resident_request(chunk, prng.chance(0.2))
                }
                change => change.request(),
            };
            core.submit(Client { asker: 0, token }, request);
        }
        settle(&mut core);
        full += core.take_answers().filter(|(_, answer)| is_full(&answer.reply)).count();
        compare(&mut core, &memory);
        if round % 100 == 99 {
            let before = stats_of(&core);
            drop(core);
            let left_out;
            (core, memory, left_out) = with_arena(&medium, SLOTS);
            assert_eq!(left_out, 0, "it all fitted before");
            assert_eq!(stats_of(&core), before);
            compare(&mut core, &memory);
        }
    }
    assert!(full > 5, "only {full} changes did not fit");
}

fn is_full(reply: &Reply<Vec<u8>, Buf>) -> bool {
    let full = |refused: &Refused| matches!(refused, Refused::ResidentFull { .. });
    match reply {
        Reply::Change(Err(ChangeError::Refused(refused)))
        | Reply::Write { result: Err(ChangeError::Refused(refused)), .. } => full(refused),
        _ => false,
    }
}

#[test]
fn a_change_that_is_not_durable_is_not_in_memory() {
    let medium = medium(2);
    let (mut core, memory, _) = with_arena(&medium, SLOTS);
    let chunk = ChunkId(1);
    create_resident(&mut core, chunk).expect("room");
    write(&mut core, chunk, 0, &[1; 8192]);
    core.submit(Client { asker: 0, token: 1 }, write_request(chunk, 0, &[2; 12_288]));
    core.turn(None).expect("the disk speaks");
    assert_eq!(resident(&core, &memory, chunk).expect("in memory"), [1; 8192]);
    medium.fail_flush(0);
    settle(&mut core);
    assert!(core.failure().is_some());
    assert_eq!(resident(&core, &memory, chunk).expect("in memory"), [1; 8192]);
}

#[test]
fn a_chunk_that_does_not_fit_is_refused_and_told_what_is_left() {
    let medium = medium(3);
    let mut core = open(&medium).expect("a new store");
    let is_refused = |made: Result<(), ChangeError>| {
        let none = Refused::ResidentFull { left_bytes: 0 };
        matches!(made, Err(ChangeError::Refused(found)) if found == none)
    };
    assert!(is_refused(create_resident(&mut core, ChunkId(1))), "there is no memory");
    drop(core);
    let (mut core, _, _) = with_arena(&medium, 3);
    create_resident(&mut core, ChunkId(1)).expect("room");
    write(&mut core, ChunkId(1), 4096, &[1; 10]);
    let reply = ask(&mut core, write_request(ChunkId(1), 8192, &[1; 4097]));
    let Reply::Write { result, .. } = reply else { panic!("another answer") };
    let left = Refused::ResidentFull { left_bytes: 4096 };
    assert!(matches!(result, Err(ChangeError::Refused(found)) if found == left), "{result:?}");
    write(&mut core, ChunkId(1), 8192, &[1; 4096]);
    assert!(is_refused(create_resident(&mut core, ChunkId(2))), "there is no slot");
    create(&mut core, ChunkId(2));
    write(&mut core, ChunkId(2), 0, &[1; 9000]);
    // Rewriting takes nothing, and a delete gives all.
    write(&mut core, ChunkId(1), 100, &[2; 8000]);
    delete(&mut core, ChunkId(1));
    create_resident(&mut core, ChunkId(1)).expect("room");
    write(&mut core, ChunkId(1), 0, &[1; 3 * 4096]);
}

#[test]
fn chunks_that_no_longer_fit_at_a_start_are_left_out_whole_and_still_served() {
    let medium = medium(4);
    let (mut core, _, _) = with_arena(&medium, 10);
    for name in 1..4u8 {
        create_resident(&mut core, ChunkId(name.into())).expect("room");
        write(&mut core, ChunkId(name.into()), 0, &[name; 3 * 4096]);
    }
    drop(core);
    let (mut core, memory, left_out) = with_arena(&medium, 7);
    assert_eq!((left_out, core.stats().resident_bytes), (1, 6 * 4096));
    assert_eq!(resident(&core, &memory, ChunkId(2)).expect("in memory"), [2; 3 * 4096]);
    assert_eq!(resident(&core, &memory, ChunkId(3)), None);
    assert!(core.stat(ChunkId(3)).expect("there").resident);
    // It takes no slots, so it may grow.
    write(&mut core, ChunkId(3), 3 * 4096, &[3; 4 * 4096]);
    assert_eq!(read(&mut core, ChunkId(3), 0, 7 * 4096).expect("whole"), [3; 7 * 4096]);
}

#[test]
fn a_damaged_slice_is_not_in_memory_and_says_so_until_it_is_written_again() {
    let medium = medium(5);
    let (mut core, _, _) = with_arena(&medium, SLOTS);
    let chunk = ChunkId(1);
    create_resident(&mut core, chunk).expect("room");
    write(&mut core, chunk, 0, &[7; 3 * 4096]);
    bring_home(&mut core);
    core.request_checkpoint();
    settle(&mut core);
    let page = core.map.chunks[&chunk].slice(1).page;
    medium.flip_bit(core.layout.data_page(page).byte_offset() + 9);
    drop(core);
    let (mut core, memory, _) = with_arena(&medium, SLOTS);
    let (runs, _) = core.locate(chunk, 0, 9).expect("there").slots.expect("in memory");
    let found = |slice: u64| {
        let mut bytes = [0; SLOT_BYTES];
        memory.read((u64::from(runs[0].slot) + slice) as usize * SLOT_BYTES, &mut bytes).unwrap();
        inspect(chunk, slice, &bytes)
    };
    assert_eq!((runs.len(), found(1)), (1, Found::Absent));
    assert!(matches!(found(0), Found::Whole { .. }) && matches!(found(2), Found::Whole { .. }));
    write(&mut core, chunk, 4096, &[9; 4096]);
    assert!(matches!(found(1), Found::Whole { .. }));
    assert_eq!(resident(&core, &memory, chunk).expect("in memory")[4096..8192], [9; 4096]);
}
