//! A medium that is full: nothing is lost, deletes are taken, and what they free is used again.

use super::*;
use crate::store::sim::Loss;

/// No limit of its own: the medium is the only one. Many small segments, and a log that ends soon.
fn config() -> StoreConfig {
    StoreConfig::default().segment_bytes(64 * 4096).log_bytes(64 << 10)
}

fn open_on(media: &SimMedia) -> Store<SimMedia> {
    Store::open(media.clone(), config()).expect("the store opens")
}

/// Does a change as the worker does: when the batch is full, commits it and tries once more.
fn change<T, E>(
    store: &mut Store<SimMedia>,
    is_full: impl Fn(&E) -> bool,
    stage: impl Fn(&mut Store<SimMedia>) -> Result<T, E>,
) -> Result<T, E> {
    let mut done = stage(store);
    if done.as_ref().is_err_and(&is_full) {
        store.commit().expect("the medium flushes");
        done = stage(store);
    }
    done
}

fn delete(store: &mut Store<SimMedia>, chunk: ChunkId) {
    let is_full = |e: &DeleteError| matches!(e, DeleteError::Refused(Refused::BatchFull));
    change(store, is_full, |s| s.stage_delete(chunk)).expect("a delete is never refused");
}

/// Makes a chunk of `pages` pages in pieces; false, with no chunk left, when there is no room.
fn put(store: &mut Store<SimMedia>, chunk: ChunkId, pages: u32, byte: u8) -> bool {
    let is_full = |e: &CreateError| matches!(e, CreateError::Refused(Refused::BatchFull));
    match change(store, is_full, |s| s.stage_create(chunk, None)) {
        Ok(_) => {}
        Err(CreateError::Refused(Refused::NoSpace)) => return false,
        Err(other) => panic!("{other}"),
    }
    let is_full = |e: &WriteError| matches!(e, WriteError::Refused(Refused::BatchFull));
    for page in (0..pages).step_by(4) {
        let bytes = vec![byte; 4096 * 4.min(pages - page) as usize];
        let offset = u64::from(page) * 4096;
        match change(store, is_full, |s| stage_cut(s, chunk, offset, &bytes, 0)) {
            Ok(_) => {}
            Err(WriteError::Refused(Refused::NoSpace)) => {
                delete(store, chunk);
                store.commit().expect("the medium flushes");
                return false;
            }
            Err(other) => panic!("{other}"),
        }
    }
    store.commit().expect("the medium flushes");
    true
}

fn check(store: &mut Store<SimMedia>, held: &BTreeMap<ChunkId, (u32, u8)>) {
    assert_eq!(store.stats().chunks, held.len() as u64);
    for (chunk, (pages, byte)) in held {
        let bytes = read(store, *chunk, 0, *pages as usize * 4096).expect("it was acknowledged");
        assert!(bytes.iter().all(|b| b == byte), "chunk {chunk}");
    }
}

/// Fills, empties in part and fills again, with restarts; each time it is empty as many chunks
/// have to fit as at first.
fn fill_and_empty(seed: u64, cycles: u32) {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let media = SimMedia::new(seed);
    media.limit_space((1 << 20) + prng.below(1 << 20));
    let mut store = open_on(&media);
    let pages = 1 + prng.below(24) as u32;
    let mut held = BTreeMap::new();
    let mut next = 0u128;
    let mut fits = None;
    for _ in 0..cycles {
        while put(&mut store, ChunkId(next), pages, next as u8) {
            held.insert(ChunkId(next), (pages, next as u8));
            next += 1;
        }
        check(&mut store, &held);
        assert!(held.len() >= *fits.get_or_insert(held.len()), "fewer fit: {}", held.len());
        if prng.chance(0.5) {
            drop(store);
            media.power_on(if prng.chance(0.5) { Loss::Everything } else { Loss::Scattered });
            store = open_on(&media);
            check(&mut store, &held);
        }
        let share = if prng.chance(0.5) { 1.0 } else { 0.3 };
        for chunk in held.keys().copied().collect::<Vec<_>>() {
            if prng.chance(share) {
                delete(&mut store, chunk);
                held.remove(&chunk);
            }
        }
        store.commit().expect("the medium flushes");
    }
    assert!(fits.is_some_and(|fits| fits > 4));
    assert!(store.stats().checkpoints_deferred == 0, "each checkpoint had its room");
}

#[test]
fn a_full_medium_takes_deletes_for_ever_and_as_much_fits_again_after_each() {
    (0..8).for_each(|seed| fill_and_empty(seed, 30));
}

#[test]
fn chunks_made_and_deleted_on_a_full_medium_never_wear_out_the_log() {
    let media = SimMedia::new(1);
    let mut store = open_on(&media);
    media.limit_space(media.used_bytes() + (300 << 10));
    let mut last = 0;
    while put(&mut store, ChunkId(last), 4, 1) {
        last += 1;
    }
    for id in 0..3000 {
        delete(&mut store, ChunkId(id));
        store.commit().expect("the medium flushes");
        let fits = put(&mut store, ChunkId(id + last), 4, 1);
        assert!(fits, "a chunk that was deleted leaves its room, turn {id}");
    }
    assert!(store.stats().checkpoints > 3);
}

/// A store as releases made it that kept one log and one map, and sparse segments: its last segment
/// has its whole length, with holes behind what was written.
fn of_an_earlier_release(media: &SimMedia, chunks: u128) {
    let mut store = open_on(media);
    for id in 0..chunks {
        assert!(put(&mut store, ChunkId(id), 4, id as u8));
    }
    drop(store);
    for name in media.list().expect("it lists") {
        let file = media.open(&name).expect("it is there");
        if name.starts_with("data.") {
            let written = 1 + 4 * chunks as u64;
            media.set_len(&file, written * 4096).expect("it is longer");
            media.set_len(&file, 64 * 4096).expect("it may be sparse");
            media.fdatasync(&file).expect("it flushes");
        }
    }
    for name in ["log.00000002", "map.tmp"] {
        media.remove(name).expect("it is there");
    }
    media.sync_dir().expect("it flushes");
}

#[test]
fn a_store_of_an_earlier_release_gets_its_room_where_the_medium_has_it() {
    let media = SimMedia::new(1);
    of_an_earlier_release(&media, 3);
    let before = media.used_bytes();
    let mut store = open_on(&media);
    assert_eq!(free_bytes(&store), (63 - 12) * 4096);
    let made = store.reserve.map_bytes + (128 << 10) + (64 - 13) * 4096;
    assert_eq!(media.used_bytes() - before, made, "log, map and pages have room");
    media.limit_space(media.used_bytes());
    for id in 3..15 {
        assert!(put(&mut store, ChunkId(id), 4, id as u8), "a free page has room");
    }
    assert!(!put(&mut store, ChunkId(15), 4, 15));
    check(&mut store, &(0..15).map(|id| (ChunkId(id), (4, id as u8))).collect());
}

#[test]
fn a_store_of_an_earlier_release_on_a_full_medium_changes_nothing_but_deletes_until_there_is_room()
{
    let media = SimMedia::new(1);
    of_an_earlier_release(&media, 3);
    media.limit_space(media.used_bytes());
    let mut store = open_on(&media);
    assert_eq!(free_bytes(&store), 0, "a hole is no free page");
    assert!(!put(&mut store, ChunkId(9), 1, 9));
    delete(&mut store, ChunkId(1));
    store.commit().expect("the medium flushes");
    assert_eq!(free_bytes(&store), 4 * 4096);
    assert!(!put(&mut store, ChunkId(9), 1, 9), "a checkpoint has no room yet");
    let held = BTreeMap::from([(ChunkId(0), (4, 0)), (ChunkId(2), (4, 2))]);
    check(&mut store, &held);
    drop(store);
    let mut store = open_on(&media);
    check(&mut store, &held);
    media.limit_space(media.used_bytes() + (256 << 10));
    assert!(put(&mut store, ChunkId(9), 4, 9));
    let names = media.list().expect("it lists");
    assert!(names.contains(&"log.00000002".to_owned()), "{names:?}");
}

#[test]
fn pages_whose_write_finds_no_room_are_not_given_out_again_before_they_have_it() {
    let media = SimMedia::new(1);
    let mut store = open_on(&media);
    assert!(put(&mut store, ChunkId(1), 4, 1));
    let free = free_bytes(&store);
    // Somebody cuts a hole into the file and fills the medium.
    let file = media.open("data.0000").expect("it is there");
    media.set_len(&file, 5 * 4096).expect("it is longer");
    media.limit_space(media.used_bytes());
    assert!(!put(&mut store, ChunkId(2), 4, 2));
    assert_eq!(free_bytes(&store), free - 4 * 4096);
    media.limit_space(u64::MAX);
    for id in 2..100 {
        assert!(put(&mut store, ChunkId(id), 4, id as u8));
    }
    check(&mut store, &(1..100).map(|id| (ChunkId(id), (4, id as u8))).collect());
}

#[test]
fn free_space_is_what_can_be_written_and_the_capacity_what_can_be_held() {
    let media = SimMedia::new(1);
    let mut store = open_on(&media);
    assert_eq!(store.stats().capacity_bytes, u64::from(u32::MAX) * 4096, "as many as have numbers");
    media.limit_space(media.used_bytes() + (1 << 20));
    let first = store.stats();
    assert!(first.capacity_bytes <= 1 << 20 && first.capacity_bytes >= 900 << 10, "{first:?}");
    assert_eq!(first.free_bytes, first.capacity_bytes);
    let mut chunks = 0;
    while put(&mut store, ChunkId(chunks), 4, 1) {
        chunks += 1;
        let stats = store.stats();
        assert_eq!(stats.live_bytes + stats.free_bytes, stats.capacity_bytes);
        assert!(stats.capacity_bytes <= first.capacity_bytes);
    }
    assert!(store.stats().free_bytes < 16 << 10, "a full store says so");
    delete(&mut store, ChunkId(0));
    store.commit().expect("the medium flushes");
    assert!(store.stats().free_bytes >= 16 << 10);
    let small = Store::open(SimMedia::new(2), config().capacity_bytes(64 << 10)).expect("it opens");
    assert_eq!((small.stats().capacity_bytes, small.stats().free_bytes), (64 << 10, 64 << 10));
}

#[test]
fn a_store_without_a_descriptor_left_makes_checkpoints_and_goes_on_later() {
    let media = SimMedia::new(1);
    let mut store = open_on(&media);
    assert!(put(&mut store, ChunkId(1), 20, 1));
    media.run_out_of_descriptors(true);
    for turn in 0..3 {
        store.log.wants_checkpoint = true;
        store.commit().expect("the medium flushes");
        assert_eq!(store.stats().checkpoints, turn + 1);
    }
    // The segment has 43 pages left, and the next one cannot be made.
    let bytes = vec![2; 50 * 4096];
    let error = stage_cut(&mut store, ChunkId(1), 0, &bytes, 0).expect_err("it has no room");
    assert!(matches!(error, WriteError::Media(_)), "{error}");
    assert!(put(&mut store, ChunkId(2), 20, 2), "what is open is used");
    media.run_out_of_descriptors(false);
    assert!(put(&mut store, ChunkId(3), 40, 3));
    check(
        &mut store,
        &BTreeMap::from(
            [1, 2, 3].map(|id| (ChunkId(id), (if id == 3 { 40 } else { 20 }, id as u8))),
        ),
    );
}

#[test]
fn a_full_store_of_an_earlier_release_gives_back_what_is_free_at_the_end_of_a_segment() {
    let media = SimMedia::new(1);
    of_an_earlier_release(&media, 15);
    media.limit_space(media.used_bytes());
    let mut store = open_on(&media);
    assert!(!put(&mut store, ChunkId(99), 1, 9), "a second log has no room");
    for id in 1..15 {
        delete(&mut store, ChunkId(id));
    }
    store.close().expect("the medium flushes");
    let mut store = open_on(&media);
    check(&mut store, &BTreeMap::from([(ChunkId(0), (4, 0))]));
    assert!(put(&mut store, ChunkId(99), 1, 9), "the free pages gave their room to the log");
    drop(store);
    check(&mut open_on(&media), &BTreeMap::from([(ChunkId(0), (4, 0)), (ChunkId(99), (1, 9))]));
}
