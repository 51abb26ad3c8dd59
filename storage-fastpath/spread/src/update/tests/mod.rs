//! Histories of changes in place, in virtual time: writers, readers and a repairer of one file,
//! who die at any moment, over servers that are away or lost, and a network that delays, loses and
//! repeats what they say.
//!
//! All changes of a file have one order, by their numbers. Each read must be exactly what the
//! changes up to some number make of the file, with every change in it that was answered before
//! the read began, or seen by a read that had ended. In the end every choice of enough parts says
//! the same. A history follows from its seed alone.
//!
//! | file | contents |
//! |---|---|
//! | `world` | servers, messages and time |
//! | `history` | one history, and what is checked |
//! | `repairer` | whoever repairs the file in it |
//! | `steps` | single steps that are left half-way |
//! | `wrong` | changes made as they must not be |

mod history;
mod repairer;
mod steps;
mod world;
mod wrong;

use history::{Tally, run};

/// What is switched off that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Parts are changed at once, and nobody is told before.
    NoIntent,
    /// Parts are changed when the first server knows of it.
    OneHolder,
    /// An answer does not wait for all parts.
    EarlyAnswer,
}

const COUNT_VARIABLE: &str = "TOWPATH_HISTORIES";
const COUNT: u64 = 2_000;
const SEED_VARIABLE: &str = "TOWPATH_SEED";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_stripe_is_read_as_before_or_after_each_change_whoever_dies_in_the_middle() {
    let first = number(SEED_VARIABLE).unwrap_or(0);
    let count = if number(SEED_VARIABLE).is_some() { 1 } else { COUNT };
    let count = number(COUNT_VARIABLE).unwrap_or(count);
    println!("seeds from {first}, {count} histories ({COUNT_VARIABLE})");
    let mut all = Tally::default();
    for seed in first..first + count {
        match run(seed, None) {
            Ok(tally) => all += tally,
            Err(wrong) => panic!(
                "seed {seed}: {wrong}\nagain: {SEED_VARIABLE}={seed} cargo test -p towpath-spread \
                 --lib update::tests::a_stripe"
            ),
        }
    }
    println!("{all:?}");
    let Tally { answered, unsure, finished, conflicts, reads, mended, .. } = all;
    if count == COUNT {
        assert!([answered, unsure, finished, conflicts, reads].iter().all(|n| *n > 100), "{all:?}");
        assert!(mended > 10, "{all:?}");
    }
}

/// Whether some history is wrong where something is switched off.
fn is_noticed(bug: Bug) -> bool {
    (0..2_000).any(|seed| match run(seed, Some(bug)) {
        Ok(_) => false,
        // That nobody has put them in order is not enough.
        Err(wrong) if wrong.contains("have the number") => false,
        Err(wrong) => {
            println!("seed {seed}: {wrong}");
            true
        }
    })
}

#[test]
fn parts_that_are_changed_before_anybody_is_told_are_noticed() {
    assert!(is_noticed(Bug::NoIntent));
}

#[test]
fn parts_that_are_changed_before_all_are_told_are_noticed() {
    assert!(is_noticed(Bug::OneHolder));
}

#[test]
fn a_change_that_is_answered_before_all_parts_have_it_is_noticed() {
    assert!(is_noticed(Bug::EarlyAnswer));
}
