//! Which servers get the parts of something new.
//!
//! Each server draws a number for each part group by its name and the group's, and the highest
//! numbers win, one in each failure domain: rendezvous hashing. A server of twice the weight wins
//! twice as often, and a server that comes or goes changes nothing between the others. What was
//! chosen is stored, so that this is asked once: a change of weights moves nothing by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// A server that may get a part.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a str,
    /// What fails together with it: a rack, a host.
    pub domain: &'a str,
    /// Its share of what there is: bytes that it can hold, commonly.
    pub weight: f64,
    /// Bytes that are free.
    pub free_bytes: u64,
}

/// What is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A number of its own, drawn at random.
    pub group: u128,
    /// Servers that it needs.
    pub servers: usize,
    /// Bytes that each of them gets.
    pub bytes: u64,
    /// Bytes that are left free on each of them afterwards, at least.
    pub keep_free: u64,
    /// Servers in one failure domain at most; 0 says that domains do not matter.
    pub in_domain_max: usize,
}

/// Why something cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// There are too few servers.
    #[error(
        "{wanted} servers are needed, and {found} are up: add servers, or take a policy of fewer"
    )]
    Servers {
        /// Servers that are needed.
        wanted: usize,
        /// Servers that there are.
        found: usize,
    },
    /// There is too little room.
    #[error(
        "{wanted} servers need room for {bytes} bytes each, and {found} of {all} have it: add \
         servers, or delete something"
    )]
    Room {
        /// Servers that are needed.
        wanted: usize,
        /// Servers that have room.
        found: usize,
        /// Servers that there are.
        all: usize,
        /// Bytes that each gets.
        bytes: u64,
    },
    /// There are too few failure domains.
    #[error(
        "{wanted} servers are needed, at most {in_domain_max} in each failure domain, and only \
         {found} can be had in {domains} domains with room: add servers in other domains, or allow \
         more in one"
    )]
    Domains {
        /// Servers that are needed.
        wanted: usize,
        /// Servers in one domain at most.
        in_domain_max: usize,
        /// Servers that could be chosen.
        found: usize,
        /// Domains that have a server with room.
        domains: usize,
    },
}

/// The servers of something new, in the order of their draws, by their places among the
/// candidates.
///
/// Servers that hold parts of it already are `held`: they are not chosen again, and count for their
/// failure domains.
///
/// ```
/// use towpath_cluster::placement::{Candidate, Wanted, place};
///
/// let racks = ["a", "a", "b", "c"];
/// let names = ["a1", "a2", "b1", "c1"];
/// let servers: Vec<_> = names
///     .iter()
///     .zip(racks)
///     .map(|(name, domain)| Candidate { name, domain, weight: 1.0, free_bytes: 1 << 40 })
///     .collect();
/// let wanted =
///     Wanted { group: 7, servers: 3, bytes: 1 << 20, keep_free: 1 << 30, in_domain_max: 1 };
/// let chosen = place(&servers, &[], wanted)?;
/// let domains: Vec<_> = chosen.iter().map(|&server| servers[server].domain).collect();
/// assert_eq!(domains.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
/// # Ok::<(), towpath_cluster::placement::PlacementError>(())
/// ```
///
/// # Errors
///
/// [`PlacementError`], with the first of servers, room and domains that is missing.
pub fn place(
    candidates: &[Candidate<'_>],
    held: &[Candidate<'_>],
    wanted: Wanted,
) -> Result<Vec<usize>, PlacementError> {
    let Wanted { servers, bytes, keep_free, in_domain_max, .. } = wanted;
    let holders: BTreeSet<&str> = held.iter().map(|server| server.name).collect();
    let is_new = |server: &Candidate<'_>| !holders.contains(server.name) && server.weight > 0.0;
    let others = || candidates.iter().enumerate().filter(|(_, server)| is_new(server));
    let all = others().count();
    if all < servers {
        return Err(PlacementError::Servers { wanted: servers, found: all });
    }
    let needed = bytes.saturating_add(keep_free);
    let mut draws: Vec<(f64, usize)> = others()
        .filter(|(_, server)| server.free_bytes >= needed)
        .map(|(place, server)| (draw(server, wanted.group), place))
        .collect();
    if draws.len() < servers {
        let found = draws.len();
        return Err(PlacementError::Room { wanted: servers, found, all, bytes });
    }
    draws.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut in_domain: BTreeMap<&str, usize> = BTreeMap::new();
    for server in held {
        *in_domain.entry(server.domain).or_default() += 1;
    }
    let mut chosen = Vec::with_capacity(servers);
    for &(_, place) in &draws {
        if chosen.len() == servers {
            break;
        }
        let count = in_domain.entry(candidates[place].domain).or_default();
        if in_domain_max > 0 && *count >= in_domain_max {
            continue;
        }
        *count += 1;
        chosen.push(place);
    }
    if chosen.len() == servers {
        return Ok(chosen);
    }
    let domains: BTreeSet<&str> =
        draws.iter().map(|(_, place)| candidates[*place].domain).collect();
    let (found, domains) = (chosen.len(), domains.len());
    Err(PlacementError::Domains { wanted: servers, in_domain_max, found, domains })
}

/// What a server draws: the time until the first event of a process whose rate is its weight, with
/// a minus, so that the soonest is the highest.
fn draw(server: &Candidate<'_>, group: u128) -> f64 {
    let mut hasher = SipHasher13::new_with_keys(group as u64, (group >> 64) as u64);
    hasher.write(server.name.as_bytes());
    // 53 bits, in the middle of their steps, so that the logarithm is finite.
    let unit = ((hasher.finish() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    unit.ln() / server.weight
}

#[cfg(test)]
mod tests {
    use towpath_base::Prng;

    use super::*;

    const PLENTY: u64 = 1 << 50;

    fn names(count: usize) -> Vec<(String, String)> {
        (0..count).map(|n| (format!("s{n}"), format!("rack{}", n / 3))).collect()
    }

    fn equals(names: &[(String, String)]) -> Vec<Candidate<'_>> {
        names
            .iter()
            .map(|(name, domain)| Candidate { name, domain, weight: 1.0, free_bytes: PLENTY })
            .collect()
    }

    fn wanted(group: u128, servers: usize) -> Wanted {
        Wanted { group, servers, bytes: 1, keep_free: 0, in_domain_max: 1 }
    }

    fn drawn_group(prng: &mut Prng) -> u128 {
        u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64())
    }

    #[test]
    fn servers_get_parts_by_their_weights() {
        let names = names(30);
        let mut servers = equals(&names);
        for (number, server) in servers.iter_mut().enumerate() {
            server.weight = [1.0, 2.0, 4.0][number % 3] * 1e12;
        }
        let mut prng = Prng::new(1);
        let mut counts = [0u32; 30];
        const GROUPS: u32 = 70_000;
        for _ in 0..GROUPS {
            counts[place(&servers, &[], wanted(drawn_group(&mut prng), 1)).expect("room")[0]] += 1;
        }
        for (number, count) in counts.into_iter().enumerate() {
            let share = f64::from([1, 2, 4][number % 3]) / 70.0;
            let expected = f64::from(GROUPS) * share;
            // Five standard deviations.
            let off = (f64::from(count) - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "server {number} got {count} for {expected}");
        }
    }

    #[test]
    fn domains_are_respected_whatever_is_drawn() {
        for seed in 0..500 {
            let mut prng = Prng::new(seed);
            let names = names(prng.between(1, 24) as usize);
            let mut servers = equals(&names);
            for server in &mut servers {
                server.weight = prng.below(4) as f64;
                server.free_bytes = prng.below(3) * 1_000;
            }
            let in_domain_max = prng.below(3) as usize;
            let count = prng.between(1, 9) as usize;
            let group = drawn_group(&mut prng);
            let wanted =
                Wanted { group, servers: count, bytes: 900, keep_free: 200, in_domain_max };
            let fits = |server: &Candidate<'_>| server.weight > 0.0 && server.free_bytes >= 1_100;
            // The most that can be had.
            let mut left: BTreeMap<&str, usize> = BTreeMap::new();
            for server in servers.iter().filter(|server| fits(server)) {
                *left.entry(server.domain).or_default() += 1;
            }
            let cap = if in_domain_max == 0 { usize::MAX } else { in_domain_max };
            let most: usize = left.values().map(|count| (*count).min(cap)).sum();
            match place(&servers, &[], wanted) {
                Ok(chosen) => {
                    assert_eq!(chosen.len(), count);
                    let distinct: BTreeSet<usize> = chosen.iter().copied().collect();
                    assert_eq!(distinct.len(), count, "seed {seed}: one twice");
                    assert!(chosen.iter().all(|&server| fits(&servers[server])), "seed {seed}");
                    for domain in left.keys() {
                        let is_in = |server: &&usize| servers[**server].domain == *domain;
                        assert!(chosen.iter().filter(is_in).count() <= cap, "seed {seed}");
                    }
                }
                Err(error) => assert!(most < count, "seed {seed}: {error}"),
            }
        }
    }

    #[test]
    fn a_server_that_comes_takes_its_share_and_moves_nothing_else() {
        let names = names(10);
        let (before, after) = (equals(&names[..9]), equals(&names));
        let mut prng = Prng::new(3);
        let (mut moved, mut to_new) = (0, 0);
        const GROUPS: usize = 20_000;
        for _ in 0..GROUPS {
            let group = drawn_group(&mut prng);
            let anywhere = Wanted { in_domain_max: 0, ..wanted(group, 3) };
            let old: BTreeSet<usize> =
                place(&before, &[], anywhere).expect("room").into_iter().collect();
            let new: BTreeSet<usize> =
                place(&after, &[], anywhere).expect("room").into_iter().collect();
            let gone = old.difference(&new).count();
            moved += gone;
            to_new += usize::from(new.contains(&9));
            assert!(gone <= 1 && new.difference(&old).all(|&server| server == 9));
        }
        assert_eq!(moved, to_new);
        let share = to_new as f64 / GROUPS as f64;
        assert!((share - 0.3).abs() < 0.02, "{share} of the groups use one of ten servers");
    }

    #[test]
    fn what_is_held_counts_for_its_domain_and_is_not_chosen_again() {
        let names = names(9);
        let servers = equals(&names);
        for group in 0..200 {
            let held = [servers[0].clone(), servers[3].clone()];
            let chosen = place(&servers, &held, wanted(group, 1)).expect("room");
            assert_eq!(servers[chosen[0]].domain, "rack2");
        }
        let held = [servers[0].clone(), servers[3].clone(), servers[6].clone()];
        let error = place(&servers, &held, wanted(1, 1)).expect_err("each domain has one");
        assert_eq!(
            error.to_string(),
            "1 servers are needed, at most 1 in each failure domain, and only 0 can be had in 3 \
             domains with room: add servers in other domains, or allow more in one"
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        let names = names(3);
        let mut servers = equals(&names);
        let found = place(&servers, &[], wanted(1, 4));
        assert_eq!(found, Err(PlacementError::Servers { wanted: 4, found: 3 }));
        let found = place(&servers, &[], wanted(1, 2));
        let in_one = PlacementError::Domains { wanted: 2, in_domain_max: 1, found: 1, domains: 1 };
        assert_eq!(found, Err(in_one));
        servers[1].free_bytes = 0;
        let found = place(&servers, &[], wanted(1, 3));
        assert_eq!(found, Err(PlacementError::Room { wanted: 3, found: 2, all: 3, bytes: 1 }));
        assert_eq!(place(&servers, &[], wanted(1, 0)), Ok(Vec::new()));
    }
}
