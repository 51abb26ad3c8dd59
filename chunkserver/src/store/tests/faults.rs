//! Damage, full disks, failed flushes, two openers, and readers in the way.

use super::*;
use crate::store::error::CommitStep;
use crate::store::sim::{Loss, Mischief};
use crate::store::{FileMedia, OpenError};

const CHUNK: ChunkId = ChunkId(0xabc);

fn with_slices(media: &SimMedia, slices: u8) -> Store<SimMedia> {
    let mut store = open(media);
    create(&mut store, CHUNK);
    for slice in 0..slices {
        write(&mut store, CHUNK, u64::from(slice) * 4096, &[slice + 1; 4096]);
    }
    store
}

#[test]
fn a_damaged_slice_is_named_counted_and_never_served_and_its_neighbours_are() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 4);
    let page = store.map.chunks[&CHUNK].slice(2).page;
    let (_, offset) = store.pages.locate(page);
    media.flip_bit("data.0000", offset + 1000);
    let mut buf = vec![0xa5; 4 * 4096];
    let error = store.read(CHUNK, 0, &mut buf, &mut Vec::new()).unwrap_err();
    let ReadError::Corrupt(corrupt) = error else { panic!("{error}") };
    assert_eq!((corrupt.chunk, corrupt.slice, corrupt.offset), (CHUNK, 2, offset));
    assert_eq!(buf[2 * 4096..3 * 4096], [0; 4096], "no damaged byte is handed out");
    assert_eq!((store.stats().slices_corrupt, store.stats().reads_retried), (1, 1));
    assert_eq!(read(&mut store, CHUNK, 4096, 4096).unwrap(), [2; 4096]);
    assert_eq!(read(&mut store, CHUNK, 3 * 4096, 4096).unwrap(), [4; 4096]);
    assert!(read(&mut store, CHUNK, 2 * 4096 + 5, 7).is_err(), "not in part either");
    let merge = stage_cut(&mut store, CHUNK, 2 * 4096 + 5, &[1; 7], 0);
    assert!(matches!(merge, Err(WriteError::OldSlice(_))), "damage is not sealed in");
    let report = store.scrub_step(100);
    assert_eq!((report.slices, report.corrupt.len(), report.pass_done), (4, 1, true));
    assert_eq!(report.corrupt[0].slice, 2);
    write(&mut store, CHUNK, 2 * 4096, &[9; 4096]);
    assert_eq!(read(&mut store, CHUNK, 2 * 4096, 4096).unwrap(), [9; 4096]);
    assert!(store.scrub_step(100).corrupt.is_empty());
}

#[test]
fn a_read_error_is_tried_once_more() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 2);
    let (_, offset) = store.pages.locate(store.map.chunks[&CHUNK].slice(0).page);
    media.fail_reads("data.0000", offset, 1);
    assert_eq!(read(&mut store, CHUNK, 0, 4096).unwrap(), [1; 4096]);
    media.fail_reads("data.0000", offset, 2);
    assert!(matches!(read(&mut store, CHUNK, 0, 4096), Err(ReadError::Media(_))));
    assert_eq!(read(&mut store, CHUNK, 4096, 4096).unwrap(), [2; 4096]);
}

#[test]
fn lost_and_misdirected_writes_are_caught_by_the_place_in_the_checksum() {
    for mischief in [Mischief::Lost, Mischief::Misdirected(4096)] {
        let media = SimMedia::new(1);
        let mut store = with_slices(&media, 3);
        media.mistreat_write("data.", 0, mischief);
        // The same bytes as in the neighbours: without the place they would pass.
        write(&mut store, CHUNK, 0, &[2; 4096]);
        assert!(matches!(read(&mut store, CHUNK, 0, 4096), Err(ReadError::Corrupt(_))));
    }
}

#[test]
fn scrub_goes_on_where_it_stopped() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 5);
    create(&mut store, ChunkId(0xfff));
    write(&mut store, ChunkId(0xfff), 9 * 4096, &[1; 100]);
    let steps: Vec<_> =
        (0..4).map(|_| store.scrub_step(2)).map(|r| (r.slices, r.pass_done)).collect();
    assert_eq!(steps, [(2, false), (2, false), (2, false), (0, true)]);
    assert_eq!(store.scrub_step(100).slices, 6);
    assert_eq!(store.stats().slices_scrubbed, 12);
}

#[test]
fn data_changed_on_the_wire_is_refused_and_changes_nothing() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 3);
    for (offset, len, bad) in [(0, 8192, 5000), (100, 9000, 3), (100, 9000, 8999)] {
        let mut bytes = vec![7; len];
        let crcs = writer_crcs(CHUNK, offset, &bytes);
        bytes[bad] ^= 1;
        let slice = (offset + bad as u64) / 4096;
        let write =
            Write { chunk: CHUNK, offset, data: &[&bytes[..]], crcs: &crcs, verified: false };
        let error = store.stage_write(&write).unwrap_err();
        assert!(matches!(error, WriteError::WireCorrupt { slice: s } if s == slice), "{error}");
    }
    assert_eq!((store.staged_bytes(), store.stats().wire_corrupt), (0, 3));
    assert_eq!(read(&mut store, CHUNK, 0, 4096).unwrap(), [1; 4096]);
    let made = store.stats();
    assert_eq!(made.live_bytes + free_bytes(&store), 31 * 4096, "its pages came back");
}

#[test]
fn the_writers_checksum_is_stored_and_not_made_anew() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 1);
    let bytes = [5; 4096];
    let write =
        Write { chunk: CHUNK, offset: 0, data: &[&bytes[..]], crcs: &[0xdead], verified: true };
    store.stage_write(&write).unwrap();
    store.commit().unwrap();
    assert!(matches!(read(&mut store, CHUNK, 0, 4096), Err(ReadError::Corrupt(_))));
}

#[test]
fn bad_requests_get_their_own_errors() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 1);
    assert!(matches!(store.stage_create(CHUNK, None), Err(CreateError::Exists(_))));
    assert!(matches!(store.stage_create(ChunkId(2), Some(0)), Err(CreateError::Limit(0))));
    assert!(matches!(store.stage_delete(ChunkId(2)), Err(DeleteError::NoSuchChunk(_))));
    let missing = stage_cut(&mut store, ChunkId(2), 0, b"x", 0);
    assert!(matches!(missing, Err(WriteError::NoSuchChunk(_))));
    assert!(matches!(
        stage_cut(&mut store, CHUNK, 1 << 40, b"x", 0),
        Err(WriteError::LimitExceeded { .. })
    ));
    let past: [&[u8]; 1] = [b"xy"];
    let write = Write { chunk: CHUNK, offset: u64::MAX, data: &past, crcs: &[1], verified: true };
    assert!(matches!(store.stage_write(&write), Err(WriteError::LimitExceeded { .. })));
    let empty: [&[u8]; 0] = [];
    let write = Write { chunk: CHUNK, offset: 0, data: &empty, crcs: &[], verified: false };
    assert!(matches!(store.stage_write(&write), Err(WriteError::Length { byte_len: 0 })));
    let write = Write { chunk: CHUNK, offset: 0, data: &[b"x"], crcs: &[], verified: false };
    assert!(matches!(
        store.stage_write(&write),
        Err(WriteError::CrcCount { expected: 1, found: 0 })
    ));
    assert!(matches!(read(&mut store, CHUNK, 4095, 2), Err(ReadError::PastEnd { byte_len: 4096 })));
    assert!(matches!(read(&mut store, ChunkId(2), 0, 1), Err(ReadError::NoSuchChunk(_))));
    store.stage_create(ChunkId(3), Some(100)).unwrap();
    assert!(stage_cut(&mut store, ChunkId(3), 0, &[0; 100], 0).is_ok());
    assert!(stage_cut(&mut store, ChunkId(3), 1, &[0; 100], 0).is_err());
}

#[test]
fn a_full_store_loses_nothing_still_reads_and_deletes_and_then_has_room_again() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 90);
    let error = stage_cut(&mut store, CHUNK, 0, &[1; 4096], 0).unwrap_err();
    assert!(matches!(error, WriteError::Refused(Refused::NoSpace)), "{error}");
    assert_eq!(store.stats().no_space, 1);
    assert_eq!(read(&mut store, CHUNK, 89 * 4096, 4096).unwrap(), [90; 4096]);
    store.stage_delete(CHUNK).unwrap();
    store.commit().unwrap();
    create(&mut store, ChunkId(2));
    write(&mut store, ChunkId(2), 0, &[3; 90 * 4096]);
    drop(store);
    assert_eq!(read(&mut open(&media), ChunkId(2), 0, 90 * 4096).unwrap(), [3; 90 * 4096]);
}

#[test]
fn segments_are_filled_ahead_as_far_as_asked_and_as_the_medium_goes() {
    let open_filled = |media: &SimMedia, bytes| {
        let config = small_config().preallocate_bytes(bytes);
        Store::open(media.clone(), config).expect("the store opens")
    };
    let media = SimMedia::new(1);
    let empty = open(&media);
    drop(empty);
    let before = media.used_bytes();
    let store = open_filled(&media, 33 * 4096);
    assert_eq!(free_bytes(&store), 2 * 31 * 4096);
    assert_eq!(media.used_bytes() - before, 64 * 4096);
    drop(store);
    media.limit_space(before + 80 * 4096);
    let mut store = open_filled(&media, u64::MAX);
    assert_eq!(free_bytes(&store), 2 * 31 * 4096);
    create(&mut store, CHUNK);
    write(&mut store, CHUNK, 0, &[1; 62 * 4096]);
    assert_eq!(read(&mut store, CHUNK, 0, 4096).unwrap(), [1; 4096]);
}

#[test]
fn a_failed_flush_is_final_for_changes_and_reads_go_on() {
    for (passed, step) in [(0, CommitStep::DataFlush), (1, CommitStep::LogFlush)] {
        let media = SimMedia::new(1);
        let mut store = with_slices(&media, 2);
        stage_cut(&mut store, CHUNK, 0, &[9; 4096], 0).unwrap();
        media.fail_flush(passed);
        assert_eq!(store.commit().unwrap_err().step, step);
        assert!(store.commit().is_err(), "a second try must not succeed");
        assert!(store.stats().failed);
        let refused = stage_cut(&mut store, CHUNK, 0, &[9; 4096], 0);
        assert!(matches!(refused, Err(WriteError::Refused(Refused::Failed(_)))));
        assert!(store.stage_delete(CHUNK).is_err());
        assert_eq!(read(&mut store, CHUNK, 0, 4096).unwrap(), [1; 4096]);
        drop(store);
        let mut store = open(&media);
        let found = read(&mut store, CHUNK, 0, 4096).unwrap();
        assert!(found == [1; 4096] || found == [9; 4096]);
        // The pages of the failed flush counted as clean: only a fresh write keeps what was read.
        media.power_on(Loss::Everything);
        drop(store);
        assert_eq!(read(&mut open(&media), CHUNK, 0, 4096).unwrap(), found);
    }
}

#[test]
fn a_store_whose_last_checkpoint_failed_is_not_said_to_be_closed_well() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 2);
    store.log.wants_checkpoint = true;
    media.fail_flush(0);
    let failed = store.close().expect_err("its checkpoint failed");
    assert_eq!(failed.step, CommitStep::Checkpoint);
    assert_eq!(read(&mut open(&media), CHUNK, 4096, 4096).unwrap(), [2; 4096]);
}

#[test]
fn two_openers_exclude_each_other() {
    let media = SimMedia::new(1);
    let store = open(&media);
    assert!(matches!(Store::open(media.clone(), small_config()), Err(OpenError::Locked)));
    drop(store);
    open(&media);
    let dir = tempfile::tempdir().unwrap();
    let files = || Store::open(FileMedia::new(dir.path()).unwrap(), small_config());
    let store = files().unwrap();
    assert!(matches!(files(), Err(OpenError::Locked)));
    drop(store);
    assert!(files().is_ok());
}

#[test]
fn a_reader_keeps_its_pages_while_writers_use_all_others() {
    let media = SimMedia::new(1);
    let mut store = with_slices(&media, 4);
    let plan = store.begin_read(CHUNK, 0, 4 * 4096).unwrap();
    let given_up = store.begin_read(CHUNK, 0, 4096).unwrap();
    store.abandon_read(given_up);
    for turn in 0..200 {
        match stage_cut(&mut store, CHUNK, 0, &[turn; 4 * 4096], 5) {
            Ok(_) => store.commit().unwrap(),
            Err(WriteError::Refused(Refused::NoSpace)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let mut buf = vec![0; 4 * 4096];
    let done = store.finish_read(plan, &mut buf, &mut Vec::new()).unwrap();
    assert!(buf.chunks(4096).enumerate().all(|(at, part)| part == [at as u8 + 1; 4096]));
    assert!(done.version < store.stat(CHUNK).unwrap().version);
    assert_eq!(store.stats().retired_bytes, 0, "its pages are free now");
    write(&mut store, CHUNK, 0, &[7; 4 * 4096]);
}

#[test]
fn real_files_hold_what_was_written_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let files = || Store::open(FileMedia::new(dir.path()).unwrap(), small_config()).unwrap();
    let mut store = files();
    create(&mut store, CHUNK);
    let mut expected = Vec::new();
    for turn in 0..40u64 {
        let bytes = random_bytes(&mut Prng::new(turn), 5000);
        write(&mut store, CHUNK, turn * 5000, &bytes);
        expected.extend_from_slice(&bytes);
        if turn == 20 {
            store.log.wants_checkpoint = true;
        }
    }
    assert_eq!(store.stats().checkpoints, 1);
    drop(store);
    let mut store = files();
    assert!(store.stats().records_replayed > 0);
    assert_eq!(read(&mut store, CHUNK, 0, expected.len()).unwrap(), expected);
    store.close().unwrap();
}

#[test]
fn a_write_behind_a_finish_in_one_batch_is_merged_with_what_was_there() {
    for is_committed in [true, false] {
        let media = SimMedia::new(1);
        let mut store = open(&media);
        store.stage_unfinished(CHUNK, None).unwrap();
        stage_cut(&mut store, CHUNK, 0, &[1; 4096], 0).unwrap();
        if is_committed {
            store.commit().unwrap();
        }
        store.stage_finish(CHUNK, 4096).unwrap();
        stage_cut(&mut store, CHUNK, 10, &[2; 5], 0).unwrap();
        store.commit().unwrap();
        let mut expected = vec![1; 4096];
        expected[10..15].fill(2);
        assert_eq!(read(&mut store, CHUNK, 0, 4096).unwrap(), expected, "{is_committed}");
    }
}
