//! Power cuts at every write and flush of a workload, and proof that the test would notice.

use towpath_base::Prng;

use super::*;
use crate::store::engine::Bug;
use crate::store::sim::Loss;

pub(super) const LOSSES: [Loss; 5] =
    [Loss::Nothing, Loss::Everything, Loss::Suffix, Loss::Scattered, Loss::Scattered];

/// What a run left: what was acknowledged, and what was staged when the power went.
pub(super) struct Left {
    acknowledged: Model,
    in_flight: Vec<Change>,
}

/// Runs the workload of `seed` on an empty disk until it ends or the power does.
pub(super) fn run(media: &SimMedia, seed: u64, batches: u32, bug: Option<Bug>) -> Left {
    go_on(media, Model::default(), seed, batches, bug)
}

/// Runs the workload of `seed` on a store that holds `acknowledged`.
fn go_on(media: &SimMedia, acknowledged: Model, seed: u64, batches: u32, bug: Option<Bug>) -> Left {
    let mut prng = Prng::new(seed);
    let mut left = Left { acknowledged, in_flight: Vec::new() };
    let Ok(mut store) = Store::open(media.clone(), small_config()) else { return left };
    store.bug = bug;
    for _ in 0..batches {
        for _ in 0..1 + prng.below(4) {
            let change = Change::random(&mut prng);
            match change.stage(&mut store, prng.next_u64() >> 40) {
                Ok(true) => left.in_flight.push(change),
                Ok(false) => {}
                Err(_) => break,
            }
        }
        store.log.wants_checkpoint |= prng.chance(0.15);
        if store.commit().is_err() {
            return left;
        }
        left.in_flight.drain(..).for_each(|change| left.acknowledged.apply(&change));
    }
    left
}

/// Opens what the power cut left, and compares it: acknowledged changes, then any number of the
/// ones in flight in their order, each wholly there or not at all.
fn check(media: &SimMedia, left: &Left) -> Result<Model, String> {
    let mut store = Store::open(media.clone(), small_config()).map_err(|e| format!("open: {e}"))?;
    let found = Model::of(&mut store).map_err(|e| format!("read: {e}"))?;
    let mut expected = left.acknowledged.clone();
    let mut changes = left.in_flight.iter();
    while found != expected {
        let Some(change) = changes.next() else {
            return Err("an acknowledged change is lost, or another one is there in part".into());
        };
        expected.apply(change);
    }
    let scrub = store.scrub_step(u64::MAX);
    if !scrub.corrupt.is_empty() {
        return Err(format!("scrub: {:?}", scrub.corrupt));
    }
    // What one opening has shown must outlive the next power cut, and the store must go on.
    media.power_on(Loss::Everything);
    drop(store);
    let mut store =
        Store::open(media.clone(), small_config()).map_err(|e| format!("second open: {e}"))?;
    if Model::of(&mut store).map_err(|e| format!("second read: {e}"))? != expected {
        return Err("what was read before the second power cut is gone".into());
    }
    let chunk = ChunkId(99);
    if store.stat(chunk).is_none() {
        create(&mut store, chunk);
        expected.apply(&Change::Create(chunk));
    }
    Ok(expected)
}

/// Every cut of one workload, with every kind of loss; the first thing that goes wrong.
fn cut_everywhere(seed: u64, batches: u32, bug: Option<Bug>) -> Result<u64, String> {
    let whole = SimMedia::new(seed);
    run(&whole, seed, batches, bug);
    let ops = whole.ops();
    for cut in 1..=ops + 1 {
        let media = SimMedia::new(seed);
        media.cut_power_at(cut);
        let left = run(&media, seed, batches, bug);
        for (turn, loss) in LOSSES.into_iter().enumerate() {
            let after = media.fork(seed ^ cut << 8 ^ (turn as u64) << 32);
            after.power_on(loss);
            check(&after, &left)
                .map_err(|e| format!("seed {seed}, cut {cut} of {ops}, {loss:?}: {e}"))?;
        }
    }
    Ok(ops)
}

#[test]
fn no_power_cut_loses_an_acknowledged_byte_or_shows_a_torn_one() {
    for seed in 0..12 {
        let ops = cut_everywhere(seed, 20, None).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(ops > 60, "seed {seed} has only {ops} boundaries");
    }
}

#[test]
fn one_crash_after_another_loses_nothing_acknowledged() {
    for seed in 0..120 {
        let mut prng = Prng::new(seed);
        let media = SimMedia::new(seed);
        let mut model = Model::default();
        for round in 0..12 {
            media.cut_power_at(media.ops() + 1 + prng.below(60));
            let left = go_on(&media, model, prng.next_u64(), 20, None);
            let loss = LOSSES[prng.below(LOSSES.len() as u64) as usize];
            media.power_on(loss);
            model = check(&media, &left)
                .unwrap_or_else(|wrong| panic!("seed {seed}, round {round}, {loss:?}: {wrong}"));
        }
    }
}

#[test]
#[ignore = "minutes: the same over many more seeds and longer workloads"]
fn stress_no_power_cut_loses_an_acknowledged_byte() {
    for seed in 1000..1200 {
        cut_everywhere(seed, 30, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

fn is_noticed(bug: Bug) {
    let noticed = (0..30).any(|seed| cut_everywhere(seed, 14, Some(bug)).is_err());
    assert!(noticed, "the crash test does not notice {bug:?}");
}

#[test]
fn the_crash_test_notices_a_missing_data_flush() {
    is_noticed(Bug::SkipDataFlush);
}

#[test]
fn the_crash_test_notices_a_missing_log_flush() {
    is_noticed(Bug::SkipLogFlush);
}

#[test]
fn the_crash_test_notices_a_missing_directory_flush() {
    is_noticed(Bug::SkipDirFlush);
}

#[test]
fn the_crash_test_notices_pages_that_are_used_again_too_early() {
    is_noticed(Bug::ReuseTooEarly);
}

#[test]
fn power_cuts_while_a_store_is_made_leave_it_openable() {
    for cut in 1..12 {
        for loss in LOSSES {
            let media = SimMedia::new(cut);
            media.cut_power_at(cut);
            drop(Store::open(media.clone(), small_config()));
            media.power_on(loss);
            create(&mut open(&media), ChunkId(1));
        }
    }
}

#[test]
fn power_cuts_during_a_restart_change_nothing() {
    for cut in 0..12 {
        for loss in LOSSES {
            let media = SimMedia::new(40 + cut);
            let seed = 77;
            media.cut_power_at(60);
            let left = run(&media, seed, 14, None);
            media.power_on(Loss::Scattered);
            media.cut_power_at(media.ops() + 1 + cut);
            drop(Store::open(media.clone(), small_config()));
            media.power_on(loss);
            check(&media, &left).unwrap_or_else(|wrong| panic!("cut {cut} {loss:?}: {wrong}"));
        }
    }
}

#[test]
fn power_cuts_during_the_restart_after_a_death_inside_a_checkpoint_lose_nothing() {
    let media = SimMedia::new(90);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    write(&mut store, ChunkId(1), 0, &[1; 5000]);
    let left = Left { acknowledged: Model::of(&mut store).unwrap(), in_flight: Vec::new() };
    drop(store);
    let checkpoint = |media: &SimMedia, cut_after: u64| {
        let mut store = open(media);
        let before = media.ops();
        media.cut_power_at(before + cut_after);
        store.log.wants_checkpoint = true;
        store.commit().expect("nothing is staged");
        media.end_process();
        media.ops() - before
    };
    let ops = checkpoint(&media.fork(0), u64::MAX >> 1);
    assert!(ops > 6, "a checkpoint has only {ops} boundaries");
    for death in 1..=ops {
        let dead = media.fork(death);
        checkpoint(&dead, death);
        for cut in 1..12 {
            for seed in 0..16 {
                let after = dead.fork(seed);
                after.cut_power_at(after.ops() + cut);
                drop(Store::open(after.clone(), small_config()));
                after.power_on(Loss::Scattered);
                check(&after, &left)
                    .unwrap_or_else(|e| panic!("death {death}, cut {cut}, seed {seed}: {e}"));
            }
        }
    }
}

#[test]
fn a_segment_whose_making_was_not_flushed_is_made_durable_before_the_next_life_uses_it() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    // The flush of the new segment fails, and its pages count as clean in the cache.
    media.fail_flush(0);
    let failed = stage_cut(&mut store, ChunkId(1), 0, &[1; 4096], 0);
    assert!(matches!(failed, Err(WriteError::Refused(Refused::Failed(_)))));
    drop(store);
    let mut store = open(&media);
    write(&mut store, ChunkId(1), 0, &[1; 4096]);
    drop(store);
    media.power_on(Loss::Everything);
    let mut store = Store::open(media, small_config()).expect("what was acknowledged is there");
    assert_eq!(read(&mut store, ChunkId(1), 0, 4096).unwrap(), [1; 4096]);
}
