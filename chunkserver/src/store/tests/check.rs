//! A look at a store that no server has, and its repair.

use super::sweep::{Fault, compare, damage, pages, workload};
use super::*;
use crate::store::header::log_name;
use crate::store::{CheckReport, OpenError, RepairError, Repaired, SliceRun};

fn check(media: &SimMedia) -> CheckReport {
    crate::store::check(&mut media.clone(), true).expect("it can be read")
}

fn repair(media: &SimMedia, accept_loss: bool) -> Repaired {
    crate::store::repair(media.clone(), small_config(), accept_loss).expect("the medium flushes")
}

fn files(media: &SimMedia) -> Vec<(String, Option<Vec<u8>>)> {
    let names = media.list().expect("it lists");
    names.into_iter().map(|name| (name.clone(), media.content(&name))).collect()
}

#[test]
fn a_check_changes_nothing_whole_or_damaged() {
    let (media, model) = workload(1);
    let before = files(&media);
    let report = check(&media);
    assert!(report.is_whole(), "{:?}", report.damage);
    assert_eq!(report.chunks, model.chunks.len() as u64);
    assert_eq!(report.slices_checked, report.slices);
    assert_eq!(files(&media), before);
    for (name, _) in before {
        let media = media.fork(1);
        media.flip_bit(&name, 20);
        let before = files(&media);
        assert!(name == "mark" || !check(&media).is_whole(), "{name}");
        assert_eq!(files(&media), before);
    }
}

#[test]
fn a_check_of_no_store_or_of_one_that_a_server_has_is_an_error() {
    let media = SimMedia::new(1);
    let nothing = crate::store::check(&mut media.clone(), false);
    assert!(matches!(nothing, Err(OpenError::NoStore)));
    let store = open(&media);
    assert!(matches!(crate::store::check(&mut media.clone(), false), Err(OpenError::Locked)));
    drop(store);
    assert!(check(&media).is_whole());
}

#[test]
fn after_a_repair_the_store_is_sound_takes_changes_and_serves_nothing_wrong() {
    for seed in 0..4 {
        let (media, model) = workload(seed);
        let mut prng = Prng::new(seed ^ 0xbad);
        for (name, _) in files(&media) {
            let half = pages(&media, &name) / 2;
            let is_log = name.starts_with("log.");
            for page in 0..if is_log { half.min(6) } else { 1 } {
                let media = media.fork(seed);
                damage(&media, &name, page, Fault::Flip, &mut prng);
                if is_log {
                    damage(&media, &name, half + page, Fault::Flip, &mut prng);
                }
                let place = format!("seed {seed}, {name}, page {page}");
                let before = check(&media);
                let Repaired { before: said, aside } = repair(&media, false);
                assert_eq!(said.damage, before.damage, "{place}");
                let after = check(&media);
                assert!(after.damage.is_empty(), "{place}: {:?}", after.damage);
                assert_eq!(after.suspect, before.suspect, "{place}: a loss is forgotten");
                assert_eq!(before.loses_records(), !aside.is_empty(), "{place}: {aside:?}");
                let mut store = open(&media);
                let chunks = model.chunks.clone().into_iter();
                let known = chunks.filter(|(id, _)| store.stat(*id).is_some()).collect();
                compare(&mut store, &Model { chunks: known })
                    .unwrap_or_else(|e| panic!("{place}: {e}"));
                create(&mut store, ChunkId(0xfeed));
                drop(store);
                repair(&media, true);
                assert!(check(&media).suspect.is_empty(), "{place}");
            }
        }
    }
}

#[test]
fn what_lay_in_a_missing_segment_stays_known_as_lost_after_a_repair() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let chunk = ChunkId(1);
    create(&mut store, chunk);
    write(&mut store, chunk, 0, &[1; 40 * 4096]);
    let pages: Vec<_> = store.map.chunks[&chunk].slices_from(0).map(|(_, at)| at.page).collect();
    drop(store);
    let lost: Vec<_> = (0..40u64).filter(|slice| pages[*slice as usize] / 32 == 0).collect();
    let expected = [SliceRun { chunk, first: lost[0], count: lost.len() as u64 }];
    media.remove("data.0000").unwrap();
    assert_eq!(check(&media).lost, expected);
    repair(&media, false);
    let after = check(&media);
    assert!(after.damage.is_empty() && !after.is_whole());
    assert_eq!(after.lost, expected);
    let mut store = open(&media);
    assert_eq!(store.damage(), []);
    for slice in 0..40 {
        let found = read(&mut store, chunk, slice * 4096, 4096);
        assert_eq!(found.is_err(), lost.contains(&slice), "slice {slice}");
    }
    assert!(read(&mut store, chunk, 0, 40 * 4096).is_err());
    // Written anew they are sound, on pages of the segment that was made in its place too.
    write(&mut store, chunk, 0, &[2; 40 * 4096]);
    assert_eq!(read(&mut store, chunk, 0, 40 * 4096).unwrap(), [2; 40 * 4096]);
    store.close().unwrap();
    assert!(check(&media).is_whole());
}

#[test]
fn a_page_that_a_lost_record_gave_to_another_chunk_is_served_and_freed_for_that_one_only() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let (old, new) = (ChunkId(1), ChunkId(2));
    create(&mut store, old);
    write(&mut store, old, 0, &[1; 90 * 4096]);
    let at = store.log.end;
    store.stage_delete(old).unwrap();
    store.commit().unwrap();
    create(&mut store, new);
    write(&mut store, new, 0, &[2; 90 * 4096]);
    drop(store);
    for copy in [0, 64 << 10] {
        media.flip_bit(&log_name(1), copy + at + 20);
    }
    let mut store = open(&media);
    assert!(store.is_damaged() && store.stat(old).expect("it was made").suspect);
    assert_eq!(read(&mut store, new, 0, 90 * 4096).unwrap(), [2; 90 * 4096]);
    drop(store);
    repair(&media, true);
    let report = check(&media);
    assert_eq!(report.lost, [SliceRun { chunk: old, first: 0, count: 90 }]);
    assert!(report.bad_slices.is_empty() && report.suspect.is_empty());
    let mut store = open(&media);
    assert!(matches!(read(&mut store, old, 0, 4096), Err(ReadError::Media(_))));
    store.stage_delete(old).unwrap();
    store.commit().unwrap();
    create(&mut store, ChunkId(3));
    let full = stage_cut(&mut store, ChunkId(3), 0, &[3; 4096], 0);
    assert!(matches!(full, Err(WriteError::Refused(Refused::NoSpace))));
    assert_eq!(read(&mut store, new, 0, 90 * 4096).unwrap(), [2; 90 * 4096]);
}

#[test]
fn a_chunk_whose_finish_is_lost_is_kept_and_with_the_loss_accepted_it_counts_as_finished() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let chunk = ChunkId(1);
    store.stage_unfinished(chunk, None).unwrap();
    store.commit().unwrap();
    write(&mut store, chunk, 0, &[1; 4096]);
    let at = store.log.end;
    store.stage_finish(chunk, 4096).unwrap();
    store.commit().unwrap();
    create(&mut store, ChunkId(2));
    drop(store);
    for copy in [0, 64 << 10] {
        media.flip_bit(&log_name(1), copy + at + 20);
    }
    repair(&media, false);
    let mut store = open(&media);
    assert!(store.stat(chunk).expect("it is kept").suspect);
    assert_eq!(store.map.unfinished().count(), 0, "so nobody removes it");
    assert!(matches!(read(&mut store, chunk, 0, 4096), Err(ReadError::Suspect(_))));
    drop(store);
    repair(&media, true);
    assert_eq!(read(&mut open(&media), chunk, 0, 4096).unwrap(), [1; 4096]);
}

#[test]
fn a_suspect_chunk_is_neither_finished_nor_written_to() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let chunk = ChunkId(1);
    create(&mut store, chunk);
    write(&mut store, chunk, 0, &[1; 4096]);
    let at = store.log.end;
    write(&mut store, chunk, 0, &[2; 4096]);
    store.close().unwrap();
    for copy in [0, 64 << 10] {
        media.flip_bit(&log_name(1), copy + at + 70);
    }
    repair(&media, false);
    let mut store = open(&media);
    assert_eq!(store.stage_finish(chunk, 4096), Err(FinishError::Suspect(chunk)));
    let written = stage_cut(&mut store, chunk, 0, &[3; 5], 0);
    assert!(matches!(written, Err(WriteError::Suspect(_))), "{written:?}");
    // Made anew it is like any other.
    store.stage_delete(chunk).unwrap();
    store.stage_unfinished(chunk, None).unwrap();
    stage_cut(&mut store, chunk, 0, &[3; 5], 0).unwrap();
    store.stage_finish(chunk, 5).unwrap();
    store.commit().unwrap();
    assert_eq!(read(&mut store, chunk, 0, 5).unwrap(), [3; 5]);
}

/// A repair that finds room for the generation that a loss of records asks for, and `pages` more.
fn repair_without_room(media: &SimMedia, pages: u64, accept_loss: bool) {
    media.limit_space(media.used_bytes() + pages * 4096);
    let done = crate::store::repair(media.clone(), small_config(), accept_loss);
    assert!(matches!(done, Err(RepairError::NoRoom)), "{done:?}");
    assert!(!check(media).is_whole());
    media.limit_space(u64::MAX);
}

#[test]
fn a_repair_without_room_for_its_checkpoint_fails_and_one_with_room_later_does_all() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    write(&mut store, ChunkId(1), 0, &[1; 60 * 4096]);
    let at = store.log.end;
    write(&mut store, ChunkId(1), 0, &[2; 4096]);
    create(&mut store, ChunkId(2));
    store.close().unwrap();
    let whole = media.fork(1);
    for copy in [0, 64 << 10] {
        media.flip_bit(&log_name(1), copy + at + 70);
    }
    repair_without_room(&media, 2 * 16 + 3, true);
    repair(&media, true);
    assert!(check(&media).is_whole());
    let media = whole;
    media.remove("data.0001").unwrap();
    let _ = media.remove(&log_name(2));
    let _ = media.remove("map.tmp");
    repair_without_room(&media, 2, false);
    let lost = check(&media).lost;
    repair(&media, false);
    let after = check(&media);
    assert!(after.damage.is_empty(), "{:?}", after.damage);
    assert_eq!(after.lost, lost);
}

#[test]
fn no_power_cut_in_a_repair_makes_a_missing_segment_look_whole() {
    use crate::store::sim::Loss;
    let base = SimMedia::new(1);
    let mut store = open(&base);
    for id in 1..=3 {
        create(&mut store, ChunkId(id));
        write(&mut store, ChunkId(id), 0, &[id as u8; 20 * 4096]);
    }
    store.close().unwrap();
    base.remove("data.0001").unwrap();
    base.power_on(Loss::Nothing);
    let lost = check(&base).lost;
    let whole = base.fork(1);
    repair(&whole, false);
    for cut in 1..=whole.ops() - base.ops() {
        let media = base.fork(cut);
        media.cut_power_at(media.ops() + cut);
        let _ = crate::store::repair(media.clone(), small_config(), false);
        media.power_on(Loss::Nothing);
        assert_eq!(check(&media).lost, lost, "cut {cut}");
        repair(&media, false);
        let after = check(&media);
        assert!(after.damage.is_empty() && after.bad_slices.is_empty(), "cut {cut}: {after:?}");
        assert_eq!(after.lost, lost, "cut {cut}");
    }
}

#[test]
fn what_a_segment_was_cut_by_is_said_and_stays_lost_after_a_repair_and_the_rest_is_served() {
    for byte_len in [0, 4096, 5 * 4096 + 100] {
        let media = SimMedia::new(1);
        let mut store = open(&media);
        let chunk = ChunkId(1);
        create(&mut store, chunk);
        write(&mut store, chunk, 0, &[1; 20 * 4096]);
        let end = byte_len / 4096;
        let pages = store.map.chunks[&chunk].slices_from(0).map(|(_, at)| u64::from(at.page));
        let kept: Vec<_> = pages.map(|page| page < end).collect();
        store.close().unwrap();
        let file = media.open("data.0000").unwrap();
        media.set_len(&file, byte_len).unwrap();
        let served = |place: &str| {
            let mut store = open(&media);
            for (slice, is_kept) in (0..).zip(&kept) {
                let found = read(&mut store, chunk, slice * 4096, 4096);
                assert_eq!(found.is_ok(), *is_kept, "{byte_len}, {place}, slice {slice}");
            }
            store.damage().iter().any(|damage| damage.kind.name() == "segment")
        };
        assert!(served("cut") && served("again"), "{byte_len}: nothing is said");
        let lost = check(&media).lost;
        assert_eq!(lost.iter().map(|run| run.count).sum::<u64>(), 20 - end.saturating_sub(1));
        repair(&media, false);
        assert!(!served("repaired"));
        assert_eq!(check(&media).lost, lost);
        let mut store = open(&media);
        write(&mut store, chunk, 0, &[2; 20 * 4096]);
        assert_eq!(read(&mut store, chunk, 0, 20 * 4096).unwrap(), [2; 20 * 4096]);
        store.close().unwrap();
        assert!(check(&media).is_whole());
    }
}
