//! The store against a model in memory, with restarts.

use towpath_base::Prng;

use super::*;

fn check_ranges(store: &mut Store<SimMedia>, model: &Model, prng: &mut Prng) {
    for (chunk, content) in &model.chunks {
        if content.is_empty() {
            continue;
        }
        let offset = prng.below(content.len() as u64);
        let len = 1 + prng.below(content.len() as u64 - offset) as usize;
        let found = read(store, *chunk, offset, len).expect("a sound range");
        assert!(found == content[offset as usize..offset as usize + len], "{chunk} at {offset}");
    }
}

fn run(seed: u64) {
    let mut prng = Prng::new(seed);
    let media = SimMedia::new(seed);
    let mut store = open(&media);
    let mut model = Model::default();
    for _ in 0..120 {
        let committed = model.clone();
        for _ in 0..1 + prng.below(6) {
            let change = Change::random(&mut prng);
            match change.stage(&mut store, prng.next_u64() >> 40) {
                Ok(true) => model.apply(&change),
                Ok(false) => {}
                Err(Refused::BatchFull) => break,
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        check_ranges(&mut store, &committed, &mut prng);
        store.log.wants_checkpoint |= prng.chance(0.1);
        store.commit().expect("the medium flushes");
        check_ranges(&mut store, &model, &mut prng);
        if prng.chance(0.1) {
            if prng.chance(0.5) {
                store.close().expect("the medium flushes");
            } else {
                drop(store);
            }
            store = open(&media);
        }
        assert!(Model::of(&mut store).expect("all slices are sound") == model, "seed {seed}");
        let stats = store.stats();
        let pages: usize = model.chunks.values().map(|c| c.len().div_ceil(SLICE_BYTES)).sum();
        assert!(stats.live_bytes <= (pages * SLICE_BYTES) as u64);
        assert_eq!(stats.retired_bytes, 0, "no reader holds a page");
    }
}

#[test]
fn the_store_holds_what_the_model_holds_across_restarts() {
    (0..24).for_each(run);
}

#[test]
fn every_page_is_either_live_or_free() {
    let media = SimMedia::new(3);
    let mut store = open(&media);
    let mut prng = Prng::new(3);
    for _ in 0..200 {
        let _ = Change::random(&mut prng).stage(&mut store, 0);
        store.commit().expect("the medium flushes");
        let stats = store.stats();
        let made = store.pages.files.len() as u64 * 31 * SLICE_BYTES as u64;
        assert_eq!(stats.live_bytes + free_bytes(&store), made.min(90 * 4096));
    }
}

#[test]
fn a_batch_sees_its_own_staged_slices_and_readers_do_not() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let chunk = ChunkId(5);
    store.stage_create(chunk, None).unwrap();
    for (at, byte) in [(0, 1u8), (100, 2), (50, 3)] {
        stage_cut(&mut store, chunk, at, &[byte; 100], 37).unwrap();
    }
    assert!(store.stat(chunk).is_none(), "nothing is committed");
    store.commit().unwrap();
    let mut expected = [1u8; 200];
    expected[100..].fill(2);
    expected[50..150].fill(3);
    assert_eq!(read(&mut store, chunk, 0, 200).unwrap(), expected);
    // Deleted and made again in one batch, the chunk holds nothing of its old self.
    store.stage_delete(chunk).unwrap();
    store.stage_create(chunk, None).unwrap();
    stage_cut(&mut store, chunk, 10, &[9; 10], 0).unwrap();
    store.commit().unwrap();
    let mut expected = [0u8; 20];
    expected[10..].fill(9);
    assert_eq!(read(&mut store, chunk, 0, 20).unwrap(), expected);
}

#[test]
fn holes_read_as_zeros_with_the_checksums_of_zeros() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    write(&mut store, ChunkId(1), 10 * 4096, &[1; 4096]);
    write(&mut store, ChunkId(1), 300 << 20, &[2]);
    assert_eq!(read(&mut store, ChunkId(1), 0, 40960).unwrap(), [0; 40960]);
    assert_eq!(read(&mut store, ChunkId(1), 40000, 2000).unwrap()[960..], [1; 1040]);
    assert_eq!(store.stats().live_bytes, 2 * 4096, "holes take no pages");
}

#[test]
fn a_listing_is_paged_and_in_order() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    for id in [5, 1, 9, 3] {
        create(&mut store, ChunkId(id));
    }
    let names = |list: Vec<crate::store::ChunkStat>| -> Vec<u128> {
        list.iter().map(|s| s.chunk.0).collect()
    };
    assert_eq!(names(store.list(None, 3)), [1, 3, 5]);
    assert_eq!(names(store.list(Some(ChunkId(5)), 3)), [9]);
    assert_eq!(names(store.list(Some(ChunkId(4)), 1)), [5], "the last name may be gone");
}

#[test]
fn a_version_never_comes_back() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let mut last = 0;
    for _ in 0..3 {
        create(&mut store, ChunkId(1));
        write(&mut store, ChunkId(1), 0, b"x");
        let version = store.stat(ChunkId(1)).unwrap().version;
        assert!(version > last);
        last = version;
        store.stage_delete(ChunkId(1)).unwrap();
        store.commit().unwrap();
        drop(store);
        store = open(&media);
    }
}
