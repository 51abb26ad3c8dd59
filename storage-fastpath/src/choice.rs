//! How to bring a write to `k` servers: flat, along a ring or along a tree, chosen by size and `k`.
//!
//! A pure function of figures that a client knows or measures. It compares three estimates:
//!
//! - **flat**: the client sends all copies, so its port carries the data `k` times;
//! - **ring**: each port carries it once, but `k - 1` servers pass it on, one after the other;
//! - **tree**: as many steps as the tree is high, but a server with two children sends it twice.
//!
//! So flat is best for little data, where a step takes longer than sending further copies does; a
//! ring for much of it; and a tree between the two, where there are many copies. The estimates
//! are held against a simulation by `towpath sim policies fig9` and `fig10`.

use std::fmt;
use std::str::FromStr;

/// The ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// The client sends to each server.
    Flat,
    /// Each server passes on to the next.
    Ring,
    /// Each server passes on to two: server `i` to `2 i + 1` and `2 i + 2`, from 0.
    Tree,
}

impl Way {
    /// As a word, as in `ring:3`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Ring => "ring",
            Self::Tree => "tree",
        }
    }
}

/// A text that is no costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "costs are three numbers with commas between, as in 20480,500,80: picoseconds of a port for \
     1,024 bytes, and nanoseconds of a step and of a fork"
)]
pub struct CostsError;

impl FromStr for Costs {
    type Err = CostsError;

    fn from_str(text: &str) -> Result<Self, CostsError> {
        let mut numbers = text.split(',').map(|number| number.trim().parse::<u64>());
        let mut next = || numbers.next().and_then(Result::ok).ok_or(CostsError);
        let (port_ps_per_kib, step_ns, fork_ns) = (next()?, next()?, next()?);
        match numbers.next() {
            None => Ok(Self { port_ps_per_kib, step_ns, fork_ns }),
            Some(_) => Err(CostsError),
        }
    }
}

/// What is known of links and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// What a port takes for 1,024 bytes of data, in picoseconds, headers included.
    pub port_ps_per_kib: u64,
    /// The step through a server, in nanoseconds: the check of the request, from a packet's arrival
    /// until its copy arrives at the next server, and the way of an acknowledgement back. The check
    /// counts for much data too: what waits for it leaves in a burst, and a port that is busy all
    /// the time never catches up.
    pub step_ns: u64,
    /// What a step takes beyond that, in nanoseconds, to the second of two servers: handing a
    /// packet to the port once more, and the port's time for it.
    pub fork_ns: u64,
}

/// What was chosen, and the estimates behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// What each takes beyond what any write takes, in nanoseconds: flat, ring, tree.
    pub estimates_ns: [u64; 3],
}

impl Choice {
    /// Why it was chosen, in words.
    #[must_use]
    pub const fn why(&self) -> &'static str {
        match self.way {
            Way::Flat => "sending all copies takes less than passing one on",
            Way::Ring => "each port carries the data once",
            Way::Tree => "it has fewer steps than a ring",
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([flat, ring, tree], why) = (self.estimates_ns, self.why());
        write!(f, "{}: {why} (flat {flat} ns, ring {ring} ns, tree {tree} ns)", self.way.word())
    }
}

/// Chooses the way for `bytes` bytes in `copies` copies. Of ways that take equally long it takes
/// the first of flat, ring and tree: the one with the fewest parts that can fail.
#[must_use]
pub fn choose(copies: u8, bytes: u64, costs: &Costs) -> Choice {
    let copies = u64::from(copies.max(1));
    let port = u128::from(bytes) * u128::from(costs.port_ps_per_kib) / (1_024 * 1_000);
    let port = u64::try_from(port).unwrap_or(u64::MAX);
    let steps = |steps: u64| costs.step_ns.saturating_mul(steps);
    // A server has two children from three servers on.
    let widest = if copies > 2 { 2 } else { 1 };
    let of = |ports: u64, far: u64| port.saturating_mul(ports).saturating_add(far);
    let estimates_ns =
        [of(copies, 0), of(1, steps(copies - 1)), of(widest, deepest(copies, costs))];
    let ways = [Way::Flat, Way::Ring, Way::Tree];
    let least = ways.into_iter().zip(estimates_ns).min_by_key(|&(_, ns)| ns);
    Choice { way: least.map_or(Way::Flat, |(way, _)| way), estimates_ns }
}

/// The longest way through a tree, to any of its servers. The second child of a server has a packet
/// after the first.
fn deepest(copies: u64, costs: &Costs) -> u64 {
    let way = |server: u64| {
        let parents = std::iter::successors(Some(server), |at| Some(at.checked_sub(1)? / 2));
        parents.filter(|at| *at > 0).fold(0_u64, |far, at| {
            let fork = if at % 2 == 0 { costs.fork_ns } else { 0 };
            far.saturating_add(costs.step_ns).saturating_add(fork)
        })
    };
    (0..copies).map(way).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_from_their_text() {
        assert_eq!("20480, 500,80".parse(), Ok(COSTS));
        for text in ["", "1,2", "1,2,3,4", "1,2,x", "1,2,-3"] {
            assert_eq!(text.parse::<Costs>(), Err(CostsError), "{text}");
        }
    }

    /// 400 Gb/s.
    const COSTS: Costs = Costs { port_ps_per_kib: 20_480, step_ns: 500, fork_ns: 80 };

    fn way(copies: u8, bytes: u64) -> Way {
        choose(copies, bytes, &COSTS).way
    }

    #[test]
    fn little_data_goes_flat_and_much_along_a_ring() {
        for copies in 2..=8 {
            assert_eq!(way(copies, 1_024), Way::Flat, "{copies}");
            assert_eq!(way(copies, 1 << 20), Way::Ring, "{copies}");
        }
    }

    #[test]
    fn a_tree_is_for_many_copies_between_the_two() {
        assert_eq!(way(8, 24 << 10), Way::Tree);
        assert_ne!(way(2, 24 << 10), Way::Tree, "a tree of two is a ring");
        let slow = Costs { fork_ns: 2_000, ..COSTS };
        assert_ne!(choose(8, 24 << 10, &slow).way, Way::Tree, "passing on to two is dear");
    }

    #[test]
    fn estimates_are_ports_and_steps() {
        // 16 KiB take a port 327 ns.
        let choice = choose(4, 16 << 10, &COSTS);
        assert_eq!(choice.estimates_ns, [4 * 327, 327 + 3 * 500, 2 * 327 + 2 * 500]);
        assert_eq!(choice.way, Way::Flat);
        // The sixth server is the second child of the second child of the first.
        assert_eq!(choose(7, 16 << 10, &COSTS).estimates_ns[2], 2 * 327 + 2 * 580);
        assert_eq!(choose(8, 16 << 10, &COSTS).estimates_ns[2], 2 * 327 + 3 * 500);
    }

    #[test]
    fn one_copy_goes_flat() {
        assert!([0, 1].into_iter().all(|copies| way(copies, 1 << 30) == Way::Flat));
    }

    #[test]
    fn no_figures_overflow() {
        let most = u64::MAX;
        let costs = Costs { port_ps_per_kib: most, step_ns: most, fork_ns: most };
        let choice = choose(u8::MAX, u64::MAX, &costs);
        assert_eq!(choice.estimates_ns, [u64::MAX; 3]);
        assert!(choice.to_string().starts_with("flat: "));
    }
}
