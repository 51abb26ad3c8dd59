//! Each 4 KiB of each file is flipped or unreadable in turn, against a model that knows what was
//! acknowledged.

use super::*;
use crate::store::ReadError;

/// What a workload acknowledged, on a medium whose server was then killed.
pub(super) fn workload(seed: u64) -> (SimMedia, Model) {
    let mut prng = Prng::new(seed);
    let media = SimMedia::new(seed);
    let mut store = open(&media);
    let mut model = Model::default();
    let checkpoints = seed % 3;
    for turn in 0..30 {
        for _ in 0..1 + prng.below(3) {
            let change = Change::random(&mut prng);
            match change.stage(&mut store, prng.next_u64() >> 40) {
                Ok(true) => model.apply(&change),
                Ok(false) => {}
                Err(_) => break,
            }
        }
        store.log.wants_checkpoint |= turn < checkpoints * 10 && turn % 10 == 9;
        store.commit().expect("the medium flushes");
    }
    assert_eq!(store.stats().checkpoints, checkpoints, "seed {seed}");
    store.mark();
    (media, model)
}

/// Whether everything is served; an error when something wrong is.
pub(super) fn compare(store: &mut Store<SimMedia>, model: &Model) -> Result<bool, String> {
    let mut is_all = true;
    for (chunk, content) in &model.chunks {
        let Some(stat) = store.stat(*chunk) else { return Err(format!("{chunk} is gone")) };
        if stat.suspect {
            is_all = false;
            let said = read(store, *chunk, 0, 1);
            assert!(matches!(said, Err(ReadError::Suspect(_))), "{said:?}");
            continue;
        }
        if stat.byte_len != content.len() as u64 {
            return Err(format!("{chunk} has {} bytes, not {}", stat.byte_len, content.len()));
        }
        for (slice, part) in content.chunks(SLICE_BYTES).enumerate() {
            match read(store, *chunk, (slice * SLICE_BYTES) as u64, part.len()) {
                Ok(found) if found == part => {}
                Ok(_) => return Err(format!("slice {slice} of {chunk} is another")),
                Err(ReadError::Corrupt(_) | ReadError::Media(_)) => is_all = false,
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    match store.list(None, usize::MAX).iter().find(|s| !model.chunks.contains_key(&s.chunk)) {
        None => Ok(is_all),
        // What deleted it may be lost.
        Some(stat) if stat.suspect => Ok(false),
        Some(stat) => Err(format!("{} is here again", stat.chunk)),
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Flip,
    Unreadable,
}

pub(super) fn damage(media: &SimMedia, name: &str, page: u64, fault: Fault, prng: &mut Prng) {
    match fault {
        Fault::Flip => media.flip_bit(name, page * 4096 + prng.below(4096)),
        Fault::Unreadable => media.spoil(name, page * 4096),
    }
}

pub(super) fn pages(media: &SimMedia, name: &str) -> u64 {
    media.content(name).map_or(0, |bytes| bytes.len().div_ceil(4096) as u64)
}

/// Opens and compares; then changes something, and does so again.
fn opens(media: &SimMedia, model: &Model) -> Result<(bool, bool), String> {
    let mut store = Store::open(media.clone(), small_config()).map_err(|e| e.to_string())?;
    let is_all = compare(&mut store, model)?;
    let is_said = !store.damage().is_empty();
    if store.is_damaged() {
        drop(store);
        let mut store = Store::open(media.clone(), small_config()).map_err(|e| e.to_string())?;
        let again = compare(&mut store, model)?;
        return if again { Err("what is lost is forgotten".into()) } else { Ok((is_all, is_said)) };
    }
    let mut model = model.clone();
    let change = Change::Create(ChunkId(0xfeed));
    change.stage(&mut store, 0).map_err(|e| e.to_string())?;
    model.apply(&change);
    store.log.wants_checkpoint = true;
    store.commit().map_err(|e| e.to_string())?;
    drop(store);
    let mut store = Store::open(media.clone(), small_config()).map_err(|e| e.to_string())?;
    let is_mended = !store.damage().iter().any(|d| d.kind.loses_records());
    compare(&mut store, &model)?;
    if is_mended { Ok((is_all, is_said)) } else { Err("damage comes back".into()) }
}

#[test]
fn one_bad_place_in_log_map_or_header_loses_nothing() {
    for seed in 0..6 {
        let (media, model) = workload(seed);
        let mut prng = Prng::new(seed ^ 0xbad);
        let mut said = 0;
        for name in media.list().expect("it lists") {
            let count = if name.starts_with("data.") { 1 } else { pages(&media, &name) };
            for page in 0..count {
                for fault in [Fault::Flip, Fault::Unreadable] {
                    let media = media.fork(seed);
                    damage(&media, &name, page, fault, &mut prng);
                    let found = opens(&media, &model);
                    let place = format!("seed {seed}, {name}, page {page}, {fault:?}");
                    let (is_all, is_said) = found.unwrap_or_else(|e| panic!("{place}: {e}"));
                    assert!(is_all, "{place}: something is not served");
                    said += u64::from(is_said);
                }
            }
        }
        assert!(said > 10, "seed {seed}: only {said} faults are named");
    }
}

#[test]
fn the_same_bad_place_in_both_copies_of_the_log_is_said_and_nothing_wrong_is_served() {
    for seed in 0..9 {
        let (media, model) = workload(seed);
        let mut prng = Prng::new(seed ^ 0xbad);
        let mut lost = 0;
        let logs = media.list().expect("it lists").into_iter().filter(|n| n.starts_with("log."));
        for name in logs.collect::<Vec<_>>() {
            let half = pages(&media, &name) / 2;
            for page in 0..half {
                for fault in [Fault::Flip, Fault::Unreadable] {
                    let media = media.fork(seed);
                    damage(&media, &name, page, fault, &mut prng);
                    damage(&media, &name, half + page, fault, &mut prng);
                    let place = format!("seed {seed}, {name}, page {page}, {fault:?}");
                    let found = opens(&media, &model);
                    let (is_all, is_said) = found.unwrap_or_else(|e| panic!("{place}: {e}"));
                    assert!(is_all || is_said, "{place}: nothing is said");
                    lost += u64::from(!is_all);
                }
            }
        }
        assert!(lost > 0, "seed {seed}: no record was lost in both copies");
    }
}

#[test]
fn zeros_over_the_end_of_the_log_are_said_once_the_mark_is_written() {
    for seed in 0..9 {
        let (media, model) = workload(seed);
        let store = open(&media.fork(seed));
        let (generation, end) = (store.log.generation, store.log.end);
        drop(store);
        let name = crate::store::header::log_name(generation);
        let half = pages(&media, &name) / 2 * 4096;
        for bytes in [64, 512, 2048, 4096] {
            let media = media.fork(seed);
            let file = media.open(&name).expect("it is there");
            let start = end.saturating_sub(bytes).max(4096);
            for copy in [0, half] {
                let zeros = vec![0; (end - start) as usize];
                media.write_at(&file, copy + start, &zeros).expect("it is written");
            }
            let found = opens(&media, &model);
            let (is_all, is_said) = found.unwrap_or_else(|e| panic!("seed {seed}, {bytes}: {e}"));
            assert!(!is_all && is_said, "seed {seed}, {bytes} zeros at the end pass");
        }
    }
}

#[test]
fn each_missing_file_in_turn_is_said_and_nothing_wrong_is_served() {
    for seed in 0..6 {
        let (media, model) = workload(seed);
        for name in media.list().expect("it lists") {
            let media = media.fork(seed);
            media.remove(&name).expect("it is there");
            let (is_all, is_said) =
                opens(&media, &model).unwrap_or_else(|e| panic!("seed {seed}, {name}: {e}"));
            assert!(is_all || is_said, "seed {seed}, {name}: nothing is said");
        }
    }
}

#[test]
fn a_file_that_is_cut_zeroed_or_another_one_is_said_and_nothing_wrong_is_served() {
    for seed in 0..6 {
        let (media, model) = workload(seed);
        if seed >= 3 {
            media.remove("mark").expect("it is there");
        }
        let names = media.list().expect("it lists");
        for name in &names {
            let full = media.content(name).expect("it is there");
            let cuts = [0, 1, 100, 4096, 4200, 8192, full.len() / 2, full.len() - 4096];
            let cuts = cuts.into_iter().filter(|cut| *cut < full.len());
            let mut harms: Vec<_> = cuts.map(|cut| full[..cut].to_vec()).collect();
            harms.push(vec![0; full.len()]);
            harms.push(random_bytes(&mut Prng::new(seed), full.len()));
            harms.push([&full[..], &[0xa5; 5000]].concat());
            let others = names.iter().filter(|other| *other != name);
            harms.extend(others.map(|other| media.content(other).expect("it is there")));
            for (number, bytes) in harms.iter().enumerate() {
                let media = media.fork(seed);
                let file = media.create(name).expect("it is made");
                media.write_at(&file, 0, bytes).expect("it is written");
                media.fdatasync(&file).expect("it is flushed");
                let place = format!("seed {seed}, {name}, {number} with {} bytes", bytes.len());
                let found = opens(&media, &model);
                let (is_all, is_said) = found.unwrap_or_else(|e| panic!("{place}: {e}"));
                assert!(is_all || is_said, "{place}: nothing is said");
            }
        }
    }
}
