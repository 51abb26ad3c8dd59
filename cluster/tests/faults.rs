//! What a store in virtual time does to those who rely on it.

mod common;

use std::collections::BTreeMap;

use common::{asker, virtual_time};
use towpath_base::{Nanos, Prng, Time};
use towpath_cluster::meta::sim::{SimClient, SimFaults, SimStore};
use towpath_cluster::meta::{
    Change, Changed, Meta, MetaError, Op, Outcome, PAGE_MAX, Report, Revision, Tag, Transaction,
};

/// A client that follows a prefix through all that goes wrong.
struct Follower {
    meta: SimClient,
    state: Following,
    last: Tag,
    entries: BTreeMap<String, Vec<u8>>,
    seen: Revision,
    repeats: u32,
    ends: u32,
    lists: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    Nothing,
    Lists(Tag),
    Watches(Tag),
}

impl Follower {
    fn new(store: &SimStore) -> Self {
        Self {
            meta: store.client(),
            state: Following::Nothing,
            last: 0,
            entries: BTreeMap::new(),
            seen: Revision(0),
            repeats: 0,
            ends: 0,
            lists: 0,
        }
    }

    fn start(&mut self, op: Op, now: Time) -> Tag {
        self.last += 1;
        self.meta.submit(self.last, op, now);
        self.last
    }

    fn turn(&mut self, now: Time) {
        if self.state == Following::Nothing {
            let list = Op::List { prefix: "f/".into(), after: None, limit: PAGE_MAX };
            self.state = Following::Lists(self.start(list, now));
            self.lists += 1;
        }
        while let Some(report) = self.meta.poll(now) {
            match report {
                Report::Changed { tag, changed } => {
                    assert_eq!(self.state, Following::Watches(tag));
                    self.takes(changed);
                }
                Report::Done { tag, result: Ok(Outcome::Listed { entries, revision, .. }) } => {
                    assert_eq!(self.state, Following::Lists(tag));
                    assert!(revision >= self.seen, "a list is older than what a watch has told");
                    let entries = entries.into_iter().map(|entry| (entry.key, entry.value));
                    self.entries = entries.collect();
                    self.seen = revision;
                    self.watch(now);
                }
                Report::Done { result: Err(MetaError::Compacted(_)), .. } => {
                    self.state = Following::Nothing;
                    return;
                }
                Report::Done { result: Err(_), .. } => {
                    self.ends += 1;
                    match self.state {
                        Following::Watches(_) => self.watch(now),
                        _ => self.state = Following::Nothing,
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn watch(&mut self, now: Time) {
        let watch = Op::Watch { prefix: "f/".into(), after: self.seen };
        self.state = Following::Watches(self.start(watch, now));
    }

    fn takes(&mut self, changed: Changed) {
        if changed.revision <= self.seen {
            self.repeats += 1;
            return;
        }
        self.seen = changed.revision;
        for change in changed.changes {
            match change {
                Change::Put { key, value, .. } => self.entries.insert(key, value),
                Change::Delete { key } => self.entries.remove(&key),
            };
        }
    }
}

/// What went on under one seed, as text.
fn followed(seed: u64) -> (String, [u32; 3]) {
    let faults = SimFaults { lost_leases: 0.0, ..SimFaults::MANY };
    let store = SimStore::new(seed, faults);
    let (mut prng, mut writer) = (Prng::new(seed), store.client());
    let mut follower = Follower::new(&store);
    let (mut now, mut unknown) = (Time::ZERO, 0);
    let quiet_at = Time(8_000_000_000);
    for tag in 0..400 {
        let key = format!("f/{}", prng.below(8));
        let transaction = match prng.chance(0.3) {
            true => Transaction::new().delete(key),
            false => Transaction::new().put(key, tag.to_string()),
        };
        writer.submit(tag, Op::Commit(transaction), now);
        if prng.chance(0.02) {
            store.stop(now);
            now += Nanos::from_millis(prng.below(100));
            store.start(now);
        }
        for _ in 0..prng.below(20) {
            now += Nanos::from_millis(1);
            follower.turn(now);
        }
        while let Some(Report::Done { result, .. }) = writer.poll(now) {
            unknown += u32::from(matches!(result, Err(MetaError::Unknown(_))));
        }
    }
    while now < quiet_at.max(Time::ZERO) {
        now += Nanos::from_millis(1);
        follower.turn(now);
    }
    let mut reader = store.client();
    let found = (0..).find_map(|tag| {
        let list = Op::List { prefix: "f/".into(), after: None, limit: PAGE_MAX };
        reader.submit(tag, list, now);
        loop {
            match reader.poll(now) {
                Some(Report::Done { result: Ok(Outcome::Listed { entries, .. }), .. }) => {
                    return Some(entries);
                }
                Some(_) => return None,
                None => now += Nanos::from_millis(1),
            }
        }
    });
    let found: BTreeMap<String, Vec<u8>> =
        found.into_iter().flatten().map(|entry| (entry.key, entry.value)).collect();
    assert_eq!(follower.entries, found, "seed {seed}: what a watch told is not what there is");
    let text = format!("{found:?} {:?} {:?} {unknown}", follower.seen, store.revision());
    (text, [follower.repeats, follower.ends, follower.lists])
}

#[test]
fn whoever_follows_a_prefix_misses_nothing_whatever_goes_wrong() {
    let mut sums = [0; 3];
    for seed in 0..60 {
        let (text, counts) = followed(seed);
        assert_eq!(followed(seed).0, text, "seed {seed} goes another way the second time");
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    println!("{sums:?} repeats, ends of watches and lists");
    assert!(sums.iter().all(|sum| *sum > 60), "{sums:?}");
}

#[test]
fn a_lease_that_the_store_loses_takes_its_entries_along() {
    let faults = SimFaults { lost_leases: 0.2, ..SimFaults::NONE };
    let mut store = asker(SimStore::new(3, faults).client(), virtual_time);
    let lease = store.grant(Nanos::from_secs(3_000));
    store.commit(Transaction::new().put_leased("a", "", lease)).expect("it checks nothing");
    store.wait_until_gone("a");
    assert!(store.now < Time(3_000_000_000_000), "by itself it ends later");
    assert_eq!(store.ask(Op::Keep(lease)), Err(MetaError::NoLease(lease)));
}
