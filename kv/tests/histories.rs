//! What threads see of each key could have happened one after the other.

mod common;

use common::linear::{Deed, Op, check};
use common::{seeds, stores, value_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use towpath_base::{Prng, Time};
use towpath_kv::limits::ENTRY_COST_BYTES;
use towpath_kv::{Evict, Put, Store, Table, When};

const THREADS: u64 = 8;
const KEYS: u64 = 3;
const OPS: u64 = 3_000;

fn number_of(value: Vec<u8>) -> i64 {
    String::from_utf8(value).expect("text").parse().expect("a number")
}

fn deed(store: &dyn Store, key: &[u8], prng: &mut Prng, fresh: i64) -> Deed {
    let text = fresh.to_string();
    let set = |when| {
        let put = Put { when, expires: Time::NEVER };
        store.set(key, text.as_bytes(), put, Time::ZERO).expect("room")
    };
    match prng.below(8) {
        0 => {
            assert!(set(When::Always));
            Deed::Set(fresh)
        }
        1 => Deed::SetAbsent(fresh, set(When::Absent)),
        2 => Deed::Del(store.del(key, Time::ZERO)),
        3 | 4 => Deed::Incr(store.incr(key, 1, Time::ZERO).expect("numbers alone")),
        _ => Deed::Get(value_of(store, key, Time::ZERO).map(number_of)),
    }
}

fn run(store: &dyn Store, seed: u64) -> BTreeMap<u64, Vec<Op>> {
    let clock = AtomicU64::new(0);
    let work = |thread: u64| {
        let mut prng = Prng::new(seed << 8 | thread);
        let ops = (0..OPS).map(|number| {
            let key = prng.below(KEYS);
            // No two are alike, and their sums are not either.
            let fresh = ((thread * OPS + number + 1) * 1_000_000) as i64;
            let begin = clock.fetch_add(1, SeqCst);
            let deed = deed(store, &key.to_le_bytes(), &mut prng, fresh);
            (key, Op { deed, begin, end: Some(clock.fetch_add(1, SeqCst)) })
        });
        ops.collect::<Vec<_>>()
    };
    let mut histories: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n))).collect();
        for thread in threads {
            for (key, op) in thread.join().expect("no panic") {
                histories.entry(key).or_default().push(op);
            }
        }
    });
    histories
}

#[test]
fn operations_on_a_key_take_effect_at_one_moment_each() {
    for seed in seeds(6) {
        for store in stores(1 << 30) {
            for (key, history) in run(&*store, seed) {
                let found = check(history);
                assert_eq!(found, Ok(()), "key {key} of seed {seed} in {:?}", store.figures());
            }
        }
    }
}

#[test]
fn the_bytes_in_use_are_exact_after_threads_changed_the_same_keys() {
    for seed in seeds(4) {
        let bytes_max = 100 * ENTRY_COST_BYTES;
        let evicting: Arc<dyn Store> = Arc::new(Table::new(bytes_max, Evict::LeastRecentlyUsed));
        for store in stores(bytes_max).into_iter().chain([evicting]) {
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let store = &*store;
                    scope.spawn(move || change_at_random(store, seed << 8 | thread));
                }
            });
            let mut bytes = 0;
            store.each(Time::ZERO, &mut |key, value| {
                bytes += (key.len() + value.len()) as u64 + ENTRY_COST_BYTES;
                true
            });
            let figures = store.figures();
            assert_eq!(figures.bytes, bytes, "{figures:?}");
            assert!(figures.refused + figures.evicted > 0, "there was always room");
            store.clear();
            assert_eq!((store.figures().bytes, store.figures().keys), (0, 0));
        }
    }
}

fn change_at_random(store: &dyn Store, seed: u64) {
    let mut prng = Prng::new(seed);
    for _ in 0..20_000 {
        let key = prng.below(120).to_le_bytes();
        match prng.below(4) {
            0 => {
                store.del(&key, Time::ZERO);
            }
            1 => {
                let _ = store.incr(&key, 1, Time::ZERO);
            }
            _ => {
                let value = vec![b'x'; prng.below(ENTRY_COST_BYTES) as usize];
                let _ = store.set(&key, &value, Put::ALWAYS, Time::ZERO);
            }
        }
    }
}
