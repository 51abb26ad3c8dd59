//! Power cuts at every write and flush of a workload, and proof that the test would notice.

use super::*;
use crate::store::damage::Damage;
use towpath_disk::sim::Loss;
use towpath_transport::Class;

const LOSSES: [Loss; 5] =
    [Loss::Nothing, Loss::Everything, Loss::Suffix, Loss::Scattered, Loss::Scattered];

/// What a run left: what was acknowledged, and what was under way when the power went.
#[derive(Default)]
struct Left {
    acknowledged: Model,
    under_way: Vec<(u64, Change)>,
    /// An answer that must not come.
    wrong: Option<String>,
}

impl Left {
    fn take_answers(&mut self, core: &mut Core) {
        for (_, Completion { token, reply, .. }) in core.take_answers() {
            let Some(at) = self.under_way.iter().position(|(known, _)| *known == token) else {
                continue;
            };
            let change = &self.under_way[at].1;
            let chunk = change.chunk();
            let is_first = self.under_way[..at].iter().all(|(_, before)| before.chunk() != chunk);
            match self.acknowledged.take(change, &reply) {
                Ok(Fate::Done) if !is_first => {
                    let wrong = format!("change {token} overtook one of its chunk");
                    self.wrong.get_or_insert(wrong);
                }
                Ok(Fate::Done | Fate::NotDone) => drop(self.under_way.remove(at)),
                Ok(Fate::Unknown) => {}
                Err(wrong) => {
                    self.wrong.get_or_insert(wrong);
                }
            }
        }
    }
}

/// Goes on with the workload of `seed` until it ends or the power does.
fn go_on(medium: &Medium, acknowledged: Model, seed: u64, batches: u32, bug: Option<Bug>) -> Left {
    let (mut prng, mut classes) = (Prng::new(seed), Prng::new(!seed));
    let mut left = Left { acknowledged, ..Left::default() };
    let Ok(mut core) = open(medium) else { return left };
    core.bug = bug;
    let mut token = 0;
    for _ in 0..batches {
        for _ in 0..1 + prng.below(5) {
            let change = left.acknowledged.random(&mut prng);
            token += 1;
            let class = Class::ALL[classes.below(3) as usize];
            submit(&mut core, (class, token), &change, &mut prng);
            left.under_way.push((token, change));
        }
        if prng.chance(0.2) {
            core.request_checkpoint();
        }
        if prng.chance(0.1) {
            core.seal();
        }
        // Sometimes the next ones come while these are on their way.
        for _ in 0..prng.below(30) {
            core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
            left.take_answers(&mut core);
        }
        if medium.is_off() {
            break;
        }
    }
    settle(&mut core);
    left.take_answers(&mut core);
    left
}

/// What a chunk may hold: what was acknowledged, and then any number of the changes under way in
/// their order, each wholly there or not at all. Those that are meant for a version are there only
/// where they came first, and those that name another chain version never.
fn compare(found: &Model, left: &Left) -> Result<(), String> {
    let mut names: Vec<_> = left.under_way.iter().map(|(_, change)| change.chunk()).collect();
    names.extend(found.chunks.keys().chain(left.acknowledged.chunks.keys()));
    names.sort_unstable();
    names.dedup();
    for chunk in names {
        let content = found.chunks.get(&chunk);
        let mut expected = left.acknowledged.chunks.get(&chunk).cloned();
        let mut version = left.acknowledged.versions.get(&chunk).copied();
        let mut chain = left.acknowledged.chains.get(&chunk).copied();
        let found_chain = found.chains.get(&chunk).copied();
        if !left.under_way.iter().any(|(_, change)| change.chunk() == chunk)
            && version != found.versions.get(&chunk).copied()
        {
            return Err(format!("chunk {chunk}: it had version {version:?}"));
        }
        let mut changes = left.under_way.iter().filter(|(_, change)| change.chunk() == chunk);
        while content != expected.as_ref() || found_chain != chain {
            let Some((_, change)) = changes.next() else {
                return Err(format!("chunk {chunk}: something acknowledged is lost, or torn"));
            };
            let is_wanted = change.wants().is_none_or(|wanted| version == Some(wanted));
            if is_wanted && change.suits(chain) {
                (expected, version) = (change.apply(expected), None);
                chain = change.chain_after(chain);
            }
        }
    }
    Ok(())
}

/// Opens what the power cut left, and compares it.
fn check(medium: &Medium, left: &Left) -> Result<Model, String> {
    if let Some(wrong) = &left.wrong {
        return Err(wrong.clone());
    }
    let mut core = open(medium).map_err(|e| format!("open: {e}"))?;
    if core.is_damaged() {
        return Err(format!("damage: {:?}", core.damage()));
    }
    // A superblock may be torn; what a whole one names was durable before it.
    let of_map = |damage: &Damage| damage.to_string().contains("a page of the");
    if core.damage().iter().any(of_map) {
        return Err(format!("damage: {:?}", core.damage()));
    }
    let found = Model::of(&mut core).map_err(|e| format!("read: {e}"))?;
    compare(&found, left)?;
    let Reply::Scrub(scrub) =
        ask(&mut core, Request::Scrub { budget_slices: u64::MAX, from: None })
    else {
        panic!("another answer")
    };
    if !scrub.corrupt.is_empty() {
        return Err(format!("scrub: {:?}", scrub.corrupt));
    }
    // What one opening has shown must outlive the next power cut, and the store must go on.
    medium.power_on(Loss::Everything);
    drop(core);
    let mut core = open(medium).map_err(|e| format!("second open: {e}"))?;
    if Model::of(&mut core).map_err(|e| format!("second read: {e}"))? != found {
        return Err("what was read before the second power cut is gone".into());
    }
    let mut found = found;
    let chunk = ChunkId(99);
    if core.stat(chunk).is_none() {
        create(&mut core, chunk);
        let version = core.stat(chunk).map_or(0, |stat| stat.version);
        found.apply(&Change::Create(chunk), version);
    }
    Ok(found)
}

/// Cuts of one workload, each `stride`th, with every kind of loss; the first thing that goes
/// wrong.
fn cut_everywhere(seed: u64, batches: u32, stride: usize, bug: Option<Bug>) -> Result<u64, String> {
    cut_everywhere_of(any_medium, (seed, batches), stride, bug)
}

fn cut_everywhere_of(
    medium: fn(u64) -> Medium,
    (seed, batches): (u64, u32),
    stride: usize,
    bug: Option<Bug>,
) -> Result<u64, String> {
    let whole = medium(seed);
    drop(open(&whole).expect("a new store"));
    let made = whole.events();
    go_on(&whole, Model::default(), seed, batches, bug);
    let events = whole.events();
    for cut in (made + 1 + seed % stride as u64..=events).step_by(stride) {
        let medium = medium(seed);
        drop(open(&medium).expect("a new store"));
        medium.cut_power_at(cut);
        let left = go_on(&medium, Model::default(), seed, batches, bug);
        for (turn, loss) in LOSSES.into_iter().enumerate() {
            let after = medium.fork(seed ^ cut << 8 ^ (turn as u64) << 32);
            after.power_on(loss);
            check(&after, &left)
                .map_err(|e| format!("seed {seed}, cut {cut} of {events}, {loss:?}: {e}"))?;
        }
    }
    Ok(events)
}

#[test]
fn no_power_cut_loses_an_acknowledged_byte_or_shows_a_torn_one() {
    let mut events = 0;
    for seed in 0..24 {
        println!("seed {seed}");
        events += cut_everywhere(seed, 12, 7, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    assert!(events > 24 * 60, "there are only {events} boundaries");
}

#[test]
fn no_power_cut_while_the_log_grows_loses_an_acknowledged_byte() {
    let mut grew = 0;
    for seed in 0..10 {
        println!("seed {seed}");
        let cut = cut_everywhere_of(large_medium, (seed, 60), 41, None);
        cut.unwrap_or_else(|wrong| panic!("{wrong}"));
        let medium = large_medium(seed);
        go_on(&medium, Model::default(), seed, 60, None);
        let core = open(&medium).expect("it was left whole");
        grew += u64::from(core.commits.log.ring.now.pages > CONFIG.log_pages);
    }
    assert!(grew > 3, "it grew in {grew} of 10");
}

#[test]
#[ignore = "an hour: every boundary of a thousand workloads"]
fn stress_no_power_cut_loses_an_acknowledged_byte() {
    let first = std::env::var("TOWPATH_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or(1_000);
    for seed in first..first + 1_000 {
        println!("seed {seed}");
        cut_everywhere(seed, 16, 1, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn one_crash_after_another_loses_nothing_acknowledged() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let medium = any_medium(seed);
        if seed % 2 == 1 {
            let config = CoreConfig { is_sparse: true, ..CONFIG };
            drop(open_as(&medium, &config).expect("a new store"));
            medium.limit_room(u64::MAX);
        }
        let mut model = Model::default();
        for round in 0..12 {
            medium.cut_power_at(medium.events() + 1 + prng.below(150));
            let left = go_on(&medium, model, prng.next_u64(), 12, None);
            let loss = LOSSES[prng.below(LOSSES.len() as u64) as usize];
            medium.power_on(loss);
            model = check(&medium, &left)
                .unwrap_or_else(|wrong| panic!("seed {seed}, round {round}, {loss:?}: {wrong}"));
        }
    }
}

fn is_noticed(bug: Bug, batches: u32, stride: usize) {
    // What is read is compared with its checksums by what panics.
    let wrong =
        |seed| std::panic::catch_unwind(|| cut_everywhere(seed, batches, stride, Some(bug)));
    let noticed = (0..30).any(|seed| !matches!(wrong(seed), Ok(Ok(_))));
    assert!(noticed, "the crash test does not notice {bug:?}");
}

#[test]
fn the_crash_test_notices_a_missing_flush() {
    is_noticed(Bug::SkipFlush, 12, 5);
}

#[test]
fn the_crash_test_notices_a_missing_flush_of_the_map() {
    is_noticed(Bug::SkipMapFlush, 12, 5);
}

#[test]
fn the_crash_test_notices_pages_that_are_used_again_too_early() {
    is_noticed(Bug::ReuseTooEarly, 120, 37);
}

#[test]
fn the_crash_test_notices_changes_that_are_made_for_another_version() {
    is_noticed(Bug::AnyVersion, 12, 23);
}

#[test]
fn the_crash_test_notices_changes_that_are_made_on_another_chain_version() {
    is_noticed(Bug::AnyChain, 12, 23);
}

#[test]
fn the_crash_test_notices_a_truncate_that_leaves_the_rest_of_a_slice() {
    is_noticed(Bug::KeepTail, 12, 23);
}

#[test]
fn the_crash_test_notices_changes_of_a_chunk_that_overtake_each_other() {
    is_noticed(Bug::Overtake, 12, 23);
}

#[test]
fn power_cuts_while_a_store_is_made_leave_it_openable() {
    for cut in 1..=26 {
        for loss in LOSSES {
            println!("cut {cut}, {loss:?}");
            let medium = medium(cut);
            medium.cut_power_at(cut);
            drop(open(&medium));
            medium.power_on(loss);
            create(&mut open(&medium).expect("it is made anew"), ChunkId(1));
        }
    }
}

#[test]
fn power_cuts_during_a_restart_change_nothing() {
    for cut in 0..24 {
        for (turn, loss) in LOSSES.into_iter().enumerate() {
            println!("cut {cut}, {loss:?}");
            let medium = medium(40 + cut + 100 * turn as u64);
            drop(open(&medium).expect("a new store"));
            medium.cut_power_at(medium.events() + 120);
            let left = go_on(&medium, Model::default(), 77 + cut, 14, None);
            medium.power_on(Loss::Scattered);
            medium.cut_power_at(medium.events() + 1 + cut);
            drop(open(&medium));
            medium.power_on(loss);
            check(&medium, &left).unwrap_or_else(|wrong| panic!("cut {cut} {loss:?}: {wrong}"));
        }
    }
}

#[test]
fn a_process_that_ends_loses_nothing_acknowledged_even_after_a_flush_that_failed() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let medium = any_medium(seed);
        drop(open(&medium).expect("a new store"));
        medium.fail_flush(prng.below(20));
        let left = go_on(&medium, Model::default(), seed, 12, None);
        medium.end_process();
        let checked = match check(&medium, &left) {
            // There were too few of them before.
            Err(wrong) if wrong.contains("flush error") => check(&medium, &left),
            checked => checked,
        };
        checked.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}
