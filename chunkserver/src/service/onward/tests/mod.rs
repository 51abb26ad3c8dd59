//! Histories in virtual time: servers that pass writes on, clients that write and read, a network
//! that loses, repeats and reorders packets, and whoever dies or stalls in the middle.
//!
//! Each slice of what is written along rings and trees is a register, as read at the lowest rank
//! that is alive of those that are waited for; what is acknowledged is at each of these, also after
//! a power cut; a copy that nobody waited for has nothing that was refused; the
//! parity of acknowledged stripes fits their data; and when all deadlines are over nothing is left
//! of any request. A history follows from its seed alone.
//!
//! | file | contents |
//! |---|---|
//! | `history` | one history: what its seed says, how it goes on, what is checked |
//! | `scene` | the hosts, and the time that passes |
//! | `server`, `client` | what runs on a host |
//! | `work` | what clients ask for, and when |
//! | `log` | what became of that |

mod client;
mod history;
mod log;
#[path = "../../../../tests/common/register.rs"]
#[allow(unreachable_pub, reason = "it is shared with other tests")]
mod register;
mod scene;
mod server;
mod work;

use history::{has_stripes, run};
use log::Tally;
use server::Bug;

use crate::service::StopReason;

/// How many histories, for long runs.
const COUNT_VARIABLE: &str = "TOWPATH_HISTORIES";
const COUNT: u64 = 150;

/// The seed of the only one to run, or of the first one.
const SEED_VARIABLE: &str = "TOWPATH_SEED";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn what_servers_pass_on_is_one_register_for_each_slice_and_leaves_nothing_behind() {
    let first = number(SEED_VARIABLE).unwrap_or(0);
    let count = if number(SEED_VARIABLE).is_some() { 1 } else { COUNT };
    let count = number(COUNT_VARIABLE).unwrap_or(count);
    println!("seeds from {first}, {count} histories ({COUNT_VARIABLE})");
    let mut all = Tally::default();
    for seed in first..first + count {
        match run(seed, None) {
            Ok((tally, _)) => all += tally,
            Err(wrong) => panic!(
                "seed {seed}: {wrong}\nagain: {SEED_VARIABLE}={seed} cargo test -p \
                 towpath-chunkserver --lib onward::tests::what_servers"
            ),
        }
    }
    println!("{all:?}");
    if count == COUNT {
        assert!(all.slices_behind > 0);
        let stopped = |reason: StopReason| all.stopped[reason as usize];
        for reason in [
            StopReason::Cancelled,
            StopReason::Abandoned,
            StopReason::Deadline,
            StopReason::Chain,
            StopReason::Busy,
            StopReason::Behind,
        ] {
            assert!(stopped(reason) > 0, "no {}: {:?}", reason.label(), all.stopped);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    for seed in 0..8 {
        let hashes = [0; 2].map(|_| run(seed, None).map(|(_, hash)| hash));
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
}

/// Whether among some histories one is wrong in a certain way where something is switched off.
fn is_noticed(bug: Bug, wrong: &str) -> bool {
    let mut seeds = (0..1_000).filter(|seed| bug == Bug::NoClaims || has_stripes(*seed));
    seeds.any(|seed| match run(seed, Some(bug)) {
        Err(found) if found.contains(wrong) => {
            println!("seed {seed}: {found}");
            true
        }
        _ => false,
    })
}

#[test]
fn writes_of_the_same_bytes_at_a_time_are_noticed() {
    assert!(is_noticed(Bug::NoClaims, "Copies"));
}

#[test]
fn what_is_added_to_a_sum_twice_is_noticed() {
    assert!(is_noticed(Bug::NoSeen, "parity"));
}
