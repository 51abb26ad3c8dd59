//! Resident chunks: what is in memory is what the commits left, and no more than fits.

use super::*;
use crate::resident::Arena;
use crate::store::header::data_name;
use crate::store::sim::SimMedia;
use crate::store::{LocateError, Slots};
use towpath_fastpath::resident::{Found, SLOT_BYTES, inspect};
use towpath_transport::SharedMemory;

const SLOTS: u64 = 40;

/// A store with an arena; gives the arena's memory, and how many chunks did not fit.
fn with_arena(media: &SimMedia, slots: u64) -> (Store<SimMedia>, SharedMemory, u64) {
    let mut store = open(media);
    let arena = Arena::new(slots * SLICE_BYTES as u64).expect("memory");
    let memory = arena.memory();
    let (_, left_out) = store.keep_in(Box::new(arena));
    (store, memory, left_out)
}

fn create_resident(store: &mut Store<SimMedia>, chunk: ChunkId) -> Result<Ticket, CreateError> {
    store.stage_new(chunk, None, false, true)
}

/// A chunk as its slots hold it; none where it has none.
fn resident(store: &Store<SimMedia>, memory: &SharedMemory, chunk: ChunkId) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let located = store.locate(chunk, 0, 2).expect("it is there");
    located.slots.as_ref()?;
    loop {
        let next = (bytes.len() / SLICE_BYTES) as u64;
        let (runs, more) = store.locate(chunk, next, 2).expect("it is there").slots?;
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
    assert_eq!(bytes.len() as u64, located.byte_len.next_multiple_of(SLICE_BYTES as u64));
    bytes.truncate(located.byte_len as usize);
    Some(bytes)
}

/// Every resident chunk is in memory as it is on the medium.
fn compare(store: &mut Store<SimMedia>, memory: &SharedMemory) {
    let mut slices = 0;
    for stat in store.list(None, usize::MAX) {
        if stat.unfinished {
            let refused = store.locate(stat.chunk, 0, 1);
            assert_eq!(refused, Err(LocateError::Unfinished(stat.chunk)));
            slices += if stat.resident { stat.byte_len.div_ceil(SLICE_BYTES as u64) } else { 0 };
            continue;
        }
        let found = resident(store, memory, stat.chunk);
        assert_eq!(found.is_some(), stat.resident, "{}", stat.chunk);
        let Some(found) = found else { continue };
        slices += stat.byte_len.div_ceil(SLICE_BYTES as u64);
        if !found.is_empty() {
            let stored = read(store, stat.chunk, 0, found.len()).expect("it is whole");
            assert!(stored == found, "chunk {} at version {}", stat.chunk, stat.version);
        }
    }
    let stats = store.stats();
    assert_eq!(stats.resident_bytes, slices * SLICE_BYTES as u64);
    assert_eq!(stats.resident_bytes_max, SLOTS * SLICE_BYTES as u64);
}

#[test]
fn memory_follows_the_commits_and_a_restart_fills_it_again() {
    let seed = 17;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let media = SimMedia::new(seed);
    let (mut store, mut memory, _) = with_arena(&media, SLOTS);
    let mut full = 0;
    for round in 0..1500 {
        for _ in 0..prng.between(1, 5) {
            let change = Change::random(&mut prng);
            let staged = match change {
                Change::Create(chunk) if prng.chance(0.7) => {
                    create_resident(&mut store, chunk).map(drop).map_err(|error| match error {
                        CreateError::Refused(refused) => refused,
                        _ => Refused::NoSpace,
                    })
                }
                Change::CreateUnfinished(chunk) if prng.chance(0.7) => store
                    .stage_new(chunk, None, true, true)
                    .map(drop)
                    .map_err(|error| match error {
                        CreateError::Refused(refused) => refused,
                        _ => Refused::NoSpace,
                    }),
                change => change.stage(&mut store, 0).map(drop),
            };
            if let Err(Refused::ResidentFull { left_bytes }) = staged {
                assert!(left_bytes < SLOTS * SLICE_BYTES as u64);
                full += 1;
            }
        }
        store.commit().expect("the medium flushes");
        compare(&mut store, &memory);
        if round % 100 == 99 {
            let before = store.list(None, usize::MAX);
            // Once as after a kill, once as after a clean stop.
            match prng.chance(0.5) {
                true => store.close().expect("the medium flushes"),
                false => drop(store),
            }
            let left_out;
            (store, memory, left_out) = with_arena(&media, SLOTS);
            assert_eq!(left_out, 0, "it all fitted before");
            assert_eq!(store.list(None, usize::MAX), before);
            compare(&mut store, &memory);
        }
    }
    assert!(full > 10, "only {full} changes did not fit");
}

#[test]
fn nothing_of_what_is_only_staged_is_in_memory() {
    let media = SimMedia::new(2);
    let (mut store, memory, _) = with_arena(&media, SLOTS);
    let chunk = ChunkId(1);
    create_resident(&mut store, chunk).expect("room");
    store.commit().expect("the medium flushes");
    write(&mut store, chunk, 0, &[1; 5000]);
    stage_cut(&mut store, chunk, 100, &[2; 9000], 0).expect("room");
    assert_eq!(resident(&store, &memory, chunk).expect("in memory"), [1; 5000]);
    store.commit().expect("the medium flushes");
    compare(&mut store, &memory);
    assert_eq!(resident(&store, &memory, chunk).expect("in memory").len(), 9100);
}

#[test]
fn a_change_whose_flush_failed_does_not_reach_the_memory() {
    for passed in 0..2 {
        let media = SimMedia::new(2);
        let (mut store, memory, _) = with_arena(&media, SLOTS);
        let chunk = ChunkId(1);
        create_resident(&mut store, chunk).expect("room");
        store.commit().expect("the medium flushes");
        write(&mut store, chunk, 0, &[1; 8192]);
        stage_cut(&mut store, chunk, 0, &[2; 12_288], 0).expect("room");
        media.fail_flush(passed);
        store.commit().expect_err("the flush fails");
        assert_eq!(resident(&store, &memory, chunk).expect("in memory"), [1; 8192]);
    }
}

#[test]
fn a_chunk_that_does_not_fit_is_refused_and_told_what_is_left() {
    let media = SimMedia::new(3);
    let mut store = open(&media);
    let none = Refused::ResidentFull { left_bytes: 0 };
    let refused = create_resident(&mut store, ChunkId(1)).expect_err("there is no memory");
    assert_eq!(refused, CreateError::Refused(none));
    drop(store);
    let (mut store, _, _) = with_arena(&media, 3);
    create_resident(&mut store, ChunkId(1)).expect("room");
    // What is staged counts.
    stage_cut(&mut store, ChunkId(1), 4096, &[1; 10], 0).expect("room: a hole and a slice");
    let refused = stage_cut(&mut store, ChunkId(1), 8192, &[1; 4097], 0);
    assert!(matches!(refused, Err(WriteError::Refused(Refused::BatchFull))), "{refused:?}");
    store.commit().expect("the medium flushes");
    let refused = stage_cut(&mut store, ChunkId(1), 8192, &[1; 4097], 0);
    let left = Refused::ResidentFull { left_bytes: 4096 };
    assert!(matches!(refused, Err(WriteError::Refused(found)) if found == left), "{refused:?}");
    write(&mut store, ChunkId(1), 8192, &[1; 4096]);
    let refused = create_resident(&mut store, ChunkId(2)).expect_err("there is no slot");
    assert_eq!(refused, CreateError::Refused(none));
    create(&mut store, ChunkId(2));
    write(&mut store, ChunkId(2), 0, &[1; 9000]);
    // Rewriting takes nothing, and a delete gives all.
    write(&mut store, ChunkId(1), 100, &[2; 8000]);
    store.stage_delete(ChunkId(1)).expect("it is there");
    store.commit().expect("the medium flushes");
    create_resident(&mut store, ChunkId(1)).expect("room");
    store.commit().expect("the medium flushes");
    write(&mut store, ChunkId(1), 0, &[1; 3 * 4096]);
}

#[test]
fn chunks_that_no_longer_fit_at_a_start_are_left_out_whole_and_still_served() {
    let media = SimMedia::new(4);
    let (mut store, _, _) = with_arena(&media, 10);
    for name in 1..4u8 {
        create_resident(&mut store, ChunkId(name.into())).expect("room");
        store.commit().expect("the medium flushes");
        write(&mut store, ChunkId(name.into()), 0, &[name; 3 * 4096]);
    }
    drop(store);
    let (mut store, memory, left_out) = with_arena(&media, 7);
    assert_eq!((left_out, store.stats().resident_bytes), (1, 6 * 4096));
    assert_eq!(resident(&store, &memory, ChunkId(2)).expect("in memory"), [2; 3 * 4096]);
    assert_eq!(resident(&store, &memory, ChunkId(3)), None);
    assert!(store.stat(ChunkId(3)).expect("there").resident);
    // It takes no slots, so it may grow.
    write(&mut store, ChunkId(3), 3 * 4096, &[3; 4 * 4096]);
    assert_eq!(read(&mut store, ChunkId(3), 0, 7 * 4096).expect("whole"), [3; 7 * 4096]);
}

#[test]
fn a_damaged_slice_is_not_in_memory_and_says_so_until_it_is_written_again() {
    let media = SimMedia::new(5);
    let (mut store, _, _) = with_arena(&media, SLOTS);
    let chunk = ChunkId(1);
    create_resident(&mut store, chunk).expect("room");
    store.commit().expect("the medium flushes");
    write(&mut store, chunk, 0, &[7; 3 * 4096]);
    let page = store.map.chunks[&chunk].slice(1).page;
    drop(store);
    let file = media.open(&data_name(0)).expect("it is there");
    media.write_at(&file, u64::from(page) * 4096 + 9, &[8]).expect("written");
    let (mut store, memory, _) = with_arena(&media, SLOTS);
    let (runs, _) = store.locate(chunk, 0, 9).expect("there").slots.expect("in memory");
    let found = |slice: u64| {
        let mut bytes = [0; SLOT_BYTES];
        memory.read((u64::from(runs[0].slot) + slice) as usize * SLOT_BYTES, &mut bytes).unwrap();
        inspect(chunk, slice, &bytes)
    };
    assert_eq!(runs.len(), 1);
    assert_eq!(found(1), Found::Absent);
    assert!(matches!(found(0), Found::Whole { .. }) && matches!(found(2), Found::Whole { .. }));
    write(&mut store, chunk, 4096, &[9; 4096]);
    assert!(matches!(found(1), Found::Whole { .. }));
    assert_eq!(resident(&store, &memory, chunk).expect("in memory")[4096..8192], [9; 4096]);
}

#[test]
fn a_chunk_of_a_store_from_before_is_not_resident_and_its_bytes_are_as_they_were() {
    use crate::store::record::Op;
    use crate::store::{Body, Frame, LogKey, parse_record};
    let frame = Frame { sequence: 1, durable_sequence: 0, generation: 1, previous_crc: 0 };
    let encode = |resident| {
        let mut bytes = Vec::new();
        let op = Op::Create { limit_bytes: 1 << 20, unfinished: false, resident };
        op.encode(LogKey::PLAIN, frame, ChunkId(1), &mut bytes);
        bytes
    };
    let (plain, flagged) = (encode(false), encode(true));
    assert_eq!(plain[64..], (1u64 << 20).to_le_bytes(), "as before there was such a flag");
    assert_eq!(flagged[64..], (1u64 << 20 | 1 << 61).to_le_bytes());
    for (bytes, expected) in [(plain, false), (flagged, true)] {
        let (record, _) = parse_record(&bytes, LogKey::PLAIN).expect("sound");
        let body = Body::Create { limit_bytes: 1 << 20, unfinished: false, resident: expected };
        assert_eq!(record.body, body);
    }
}
