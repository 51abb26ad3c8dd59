//! What the tests of the store have in common.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

pub mod clients;
pub mod linear;
pub mod lossy;
pub mod process;
pub mod resp;
pub mod serving;

use std::sync::Arc;
use towpath_kv::published::Published;
use towpath_kv::{Buckets, Evict, Store, Table};

/// The seeds of a test: one where `TOWPATH_SEED` names it. Each is printed before its run.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let one = std::env::var("TOWPATH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..count, |seed: u64| seed..seed + 1);
    seeds.inspect(|seed| println!("seed {seed}: replay with TOWPATH_SEED={seed}"))
}

/// So many keys of one bucket, as numbers: their changes meet there.
pub fn keys_of_one_bucket(published: &Published, count: usize) -> Vec<u64> {
    let shape = published.shape();
    (0..).filter(|key: &u64| shape.bucket_of(&key.to_le_bytes()) == 0).take(count).collect()
}

/// Both tables, bounded to so many bytes, and evicting nothing.
pub fn stores(bytes_max: u64) -> [Arc<dyn Store>; 2] {
    [Arc::new(Table::new(bytes_max, Evict::Never)), Arc::new(Buckets::new(bytes_max))]
}

/// The value of a key, if there is one.
pub fn value_of(store: &dyn Store, key: &[u8], now: towpath_base::Time) -> Option<Vec<u8>> {
    let mut found = None;
    let is_there = store.get(key, now, &mut |value| found = Some(value.to_vec()));
    assert_eq!(is_there, found.is_some());
    found
}
