//! A change of a key in the concurrent table that also carries on the table's growth.

use papaya::{Compute, Guard, HashMapRef, Operation};
use std::hash::{BuildHasher, Hash};

/// [`HashMapRef::compute`]; one that adds a key may then carry on a move of the entries into a
/// larger table, where there is one.
///
/// What computes an entry of papaya (0.2.5) begins a larger table and moves nothing there, so that
/// each look at a key would go through all tables that there ever were. A removal does its share
/// of that where it does not find its key in the older table within the limit of a look there, or
/// finds it being copied, and does none else. So the move is carried on, and not finished, by a key
/// that is added, and meanwhile a look may pass two tables. The removal here finds the new key and
/// leaves it.
pub(super) fn compute<'m, K, V, S, T>(
    map: &'m HashMapRef<'_, K, V, S, impl Guard>,
    key: K,
    decide: impl FnMut(Option<(&'m K, &'m V)>) -> Operation<V, T>,
) -> Compute<'m, K, V, T>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    let done = map.compute(key, decide);
    if let Compute::Inserted(key, _) = &done {
        let _ = map.remove_if(*key, |_, _| false);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use papaya::HashMap;
    use std::cell::Cell;
    use std::hash::Hasher;

    thread_local!(static COMPARED: Cell<u64> = const { Cell::new(0) });

    /// A key that counts how often it is compared.
    #[derive(Eq)]
    struct Key(u64);

    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    /// One in 128 entries that a look passes has its key compared for nothing.
    #[test]
    fn a_look_at_a_table_that_has_grown_passes_few_entries() {
        const KEYS: u64 = 50_000;
        let map = HashMap::<Key, ()>::new();
        for key in 0..KEYS {
            let _ = compute(&map.pin(), Key(key), |_| Operation::<_, ()>::Insert(()));
        }
        COMPARED.set(0);
        assert!((0..KEYS).all(|key| map.pin().contains_key(&Key(key))));
        let compared = COMPARED.get();
        assert!(compared < KEYS + KEYS / 4, "{compared} for {KEYS} keys");
    }
}
