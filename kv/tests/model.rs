//! Both tables do what a plain map does, and keep within their bounds.

mod common;

use common::{seeds, stores, value_of};
use std::collections::BTreeMap;
use towpath_base::{Nanos, Prng, Time};
use towpath_kv::limits::{ENTRY_COST_BYTES, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use towpath_kv::{Evict, IncrError, Put, Refused, Store, Table, When};

const STEPS: usize = 20_000;
/// Keys: few, so that each comes often.
const KEYS: u64 = 40;

/// A map that does the same, with nothing but what the words say.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, (Vec<u8>, Time)>);

impl Model {
    fn get(&self, key: &[u8], now: Time) -> Option<&(Vec<u8>, Time)> {
        self.0.get(key).filter(|(_, expires)| now < *expires)
    }

    fn set(&mut self, key: &[u8], value: &[u8], put: Put, now: Time) -> bool {
        let is_there = self.get(key, now).is_some();
        let holds = match put.when {
            When::Always => true,
            When::Absent => !is_there,
            When::Present => is_there,
        };
        if holds {
            self.0.insert(key.to_vec(), (value.to_vec(), put.expires));
        }
        holds
    }

    fn incr(&mut self, key: &[u8], by: i64, now: Time) -> Result<i64, IncrError> {
        let (text, expires) = self.get(key, now).cloned().unwrap_or((b"0".to_vec(), Time::NEVER));
        let number: Option<i64> = String::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let number = number.ok_or(IncrError::NotANumber)?;
        let sum = number.checked_add(by).ok_or(IncrError::Overflow)?;
        self.0.insert(key.to_vec(), (sum.to_string().into_bytes(), expires));
        Ok(sum)
    }
}

fn random_value(prng: &mut Prng) -> Vec<u8> {
    match prng.below(3) {
        0 => prng.below(100).to_string().into_bytes(),
        1 => i64::MAX.to_string().into_bytes(),
        _ => {
            let mut value = vec![0; prng.below(300) as usize];
            prng.fill(&mut value);
            value
        }
    }
}

fn random_put(prng: &mut Prng, now: Time) -> Put {
    let when = [When::Always, When::Absent, When::Present][prng.below(3) as usize];
    let expires = match prng.below(3) {
        0 => now + Nanos(prng.below(2_000)),
        _ => Time::NEVER,
    };
    Put { when, expires }
}

fn compare(store: &dyn Store, seed: u64) {
    let (mut prng, mut model, mut now) = (Prng::new(seed), Model::default(), Time::ZERO);
    for step in 0..STEPS {
        now += Nanos(prng.below(100));
        let key = format!("key {}", prng.below(KEYS)).into_bytes();
        match prng.below(1_000) {
            0 => {
                store.clear();
                model.0.clear();
            }
            1..20 => {
                store.sweep(now);
            }
            20..300 => {
                let (value, put) = (random_value(&mut prng), random_put(&mut prng, now));
                let is_put = store.set(&key, &value, put, now);
                assert_eq!(is_put, Ok(model.set(&key, &value, put, now)), "step {step}: {put:?}");
            }
            300..400 => {
                let was_there = model.get(&key, now).is_some();
                model.0.remove(&key);
                assert_eq!(store.del(&key, now), was_there, "step {step}");
            }
            400..600 => {
                let by = prng.between(0, 3) as i64 - 1;
                assert_eq!(store.incr(&key, by, now), model.incr(&key, by, now), "step {step}");
            }
            _ => {
                let expected = model.get(&key, now).map(|(value, _)| value.clone());
                assert_eq!(value_of(store, &key, now), expected, "step {step}");
            }
        }
    }
    let mut listed = BTreeMap::new();
    store.each(now, &mut |key, value| listed.insert(key.to_vec(), value.to_vec()).is_none());
    model.0.retain(|_, (_, expires)| now < *expires);
    store.sweep(now);
    let (figures, expected) = (store.figures(), model.0);
    let cost = |(key, (value, _)): (&Vec<u8>, &(Vec<u8>, Time))| {
        (key.len() + value.len()) as u64 + ENTRY_COST_BYTES
    };
    assert_eq!(figures.bytes, expected.iter().map(cost).sum::<u64>());
    assert_eq!(figures.keys, expected.len() as u64);
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(key, (v, _))| (key, v)).collect();
    assert_eq!(listed, expected);
}

#[test]
fn each_table_does_what_a_map_does() {
    for seed in seeds(8) {
        for store in stores(1 << 30) {
            compare(&*store, seed);
        }
    }
}

#[test]
fn what_has_no_room_is_refused_and_what_is_there_stays() {
    for store in stores(10 * (ENTRY_COST_BYTES + 100)) {
        let value = [7; 98];
        for number in 0..10u8 {
            assert_eq!(store.set(&[0, number], &value, Put::ALWAYS, Time::ZERO), Ok(true));
        }
        let more = store.set(b"10", &value, Put::ALWAYS, Time::ZERO);
        assert_eq!(more, Err(Refused::Full), "{store:?}");
        assert_eq!(store.set(&[0, 1], &[8; 98], Put::ALWAYS, Time::ZERO), Ok(true), "as long");
        assert_eq!(store.set(&[0, 1], &[8; 99], Put::ALWAYS, Time::ZERO), Err(Refused::Full));
        assert_eq!(value_of(&*store, &[0, 1], Time::ZERO), Some(vec![8; 98]));
        assert!(store.del(&[0, 2], Time::ZERO));
        assert_eq!(store.set(b"10", &value, Put::ALWAYS, Time::ZERO), Ok(true), "its place");
        let figures = store.figures();
        assert_eq!((figures.bytes, figures.keys), (figures.bytes_max, 10));
        assert_eq!((figures.refused, figures.evicted), (2, 0));
    }
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    for store in stores(1 << 30) {
        let key = vec![1; KEY_BYTES_MAX + 1];
        let value = vec![1; VALUE_BYTES_MAX + 1];
        let set = |key: &[u8], value: &[u8]| store.set(key, value, Put::ALWAYS, Time::ZERO);
        assert_eq!(set(&key, b"value"), Err(Refused::KeyTooLong));
        assert_eq!(set(b"key", &value), Err(Refused::ValueTooLong));
        assert_eq!(set(&key[1..], &value[1..]), Ok(true));
        assert_eq!(store.incr(&key, 1, Time::ZERO), Err(Refused::KeyTooLong.into()));
        assert_eq!(store.figures().keys, 1);
    }
}

#[test]
fn of_what_is_evicted_little_was_used_lately() {
    const HOT: u64 = 100;
    for seed in seeds(4) {
        let mut prng = Prng::new(seed);
        let store = Table::new(1_000 * (ENTRY_COST_BYTES + 16), Evict::LeastRecentlyUsed);
        let key = |number: u64| number.to_le_bytes();
        let (mut missed, mut asked) = (0, 0);
        for number in 0..100_000 {
            // A tenth of the room is read again and again, and the rest is written once.
            let hot = prng.below(HOT);
            asked += 1;
            if !store.get(&key(hot), Time::ZERO, &mut |_| ()) {
                missed += 1;
                assert_eq!(store.set(&key(hot), &[1; 8], Put::ALWAYS, Time::ZERO), Ok(true));
            }
            assert_eq!(store.set(&key(HOT + number), &[2; 8], Put::ALWAYS, Time::ZERO), Ok(true));
        }
        let figures = store.figures();
        assert!(figures.bytes <= figures.bytes_max && figures.keys >= 999, "{figures:?}");
        assert!(figures.evicted > 90_000, "{figures:?}");
        // Each once at first, and those few that the hand found untouched for a whole round.
        assert!(missed < HOT + asked / 1_000, "{missed} of {asked}");
    }
}

#[test]
fn a_long_value_takes_the_place_of_many_short_ones() {
    let store = Table::new(2 * VALUE_BYTES_MAX as u64, Evict::LeastRecentlyUsed);
    for number in 0..8_000u64 {
        let set = store.set(&number.to_le_bytes(), &[1; 8], Put::ALWAYS, Time::ZERO);
        assert_eq!(set, Ok(true));
    }
    let value = vec![9; VALUE_BYTES_MAX];
    assert_eq!(store.set(b"long", &value, Put::ALWAYS, Time::ZERO), Ok(true));
    assert_eq!(value_of(&store, b"long", Time::ZERO), Some(value));
    let figures = store.figures();
    assert!(figures.bytes <= figures.bytes_max && figures.keys > 1_000, "{figures:?}");
}

#[test]
fn a_lower_bound_evicts_when_room_is_needed_next() {
    let store = Table::new(1 << 20, Evict::LeastRecentlyUsed);
    let set = |number: u64| store.set(&number.to_le_bytes(), &[1; 8], Put::ALWAYS, Time::ZERO);
    assert!((0..1_000).all(|number| set(number) == Ok(true)));
    store.set_bytes_max(100 * (ENTRY_COST_BYTES + 16));
    assert_eq!(store.figures().keys, 1_000);
    assert_eq!(set(1_000), Ok(true));
    assert_eq!(store.figures().keys, 100);
}

#[test]
fn what_was_replaced_may_be_evicted_as_well() {
    let store = Table::new(100 * (ENTRY_COST_BYTES + 16), Evict::LeastRecentlyUsed);
    for number in 0..1_000u64 {
        for value in [[1; 8], [2; 8]] {
            let set = store.set(&number.to_le_bytes(), &value, Put::ALWAYS, Time::ZERO);
            assert_eq!(set, Ok(true), "key {number}");
        }
    }
    assert_eq!(store.figures().keys, 100);
}
