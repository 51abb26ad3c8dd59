//! What bringing a copy to servers costs, measured, to choose between flat, ring and tree.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_fastpath::choice::{Choice, Costs, Way, choose};
use towpath_fastpath::{ChunkId, Client, NewChunk, Pending, Route, RouteKind};

use crate::error::{PartError, SpreadError};
use crate::layout::Node;
use crate::policy::{COPIES_MAX, Policy, PolicyError};
use crate::servers::Servers;

/// Writes whose times are compared: of a slice, and of as much as every server takes at a time.
/// What the longer one takes more is what a port takes for the bytes between.
const SHORT_BYTES: usize = 4 << 10;
const LONG_BYTES: usize = 64 << 10;

/// Rounds of a measurement, of four writes each, the first of which counts for nothing: links
/// between servers are made in it. The median of so many is that of a quiet moment.
const ROUNDS: usize = 9;

/// No round begins later than that after the first one has ended.
const SPAN: Duration = Duration::from_secs(2);

/// The time of a write that is not made.
const NEVER: u64 = u64::MAX;

/// Times of writes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    /// To one server.
    short: u64,
    long: u64,
    /// Of a slice, along a ring of two.
    ring: u64,
    /// Of a slice, along a tree of three.
    tree: u64,
}

impl Times {
    fn costs(self) -> Costs {
        let more = |time: u64, than: u64| match time {
            NEVER => NEVER,
            time => time.saturating_sub(than),
        };
        let longer = u128::from(self.long.saturating_sub(self.short));
        let kib = (LONG_BYTES - SHORT_BYTES) as u128 >> 10;
        Costs {
            port_ps_per_kib: u64::try_from(longer * 1_000 / kib).unwrap_or(u64::MAX),
            step_ns: more(self.ring, self.short),
            fork_ns: more(self.tree, self.ring),
        }
    }

    fn median(of: &[Self]) -> Self {
        let median = |time: fn(&Self) -> u64| {
            let mut times: Vec<u64> = of.iter().map(time).collect();
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or(0)
        };
        Self {
            short: median(|times| times.short),
            long: median(|times| times.long),
            ring: median(|times| times.ring),
            tree: median(|times| times.tree),
        }
    }
}

impl Policy {
    /// So many copies, brought to their servers by the way that takes the shortest time for a file
    /// of so many bytes, and why it is that.
    ///
    /// # Errors
    /// [`PolicyError::Copies`].
    pub fn of_copies(
        copies: usize,
        bytes: u64,
        costs: &Costs,
    ) -> Result<(Self, Choice), PolicyError> {
        let known = u8::try_from(copies).ok().filter(|_| (1..=COPIES_MAX).contains(&copies));
        let choice = choose(known.ok_or(PolicyError::Copies(copies))?, bytes, costs);
        let policy = match choice.way {
            Way::Flat => Self::Flat(copies),
            Way::Ring => Self::Ring(copies),
            Way::Tree => Self::Tree(copies),
        };
        Ok((policy, choice))
    }
}

impl Servers {
    /// Measures what a port takes for data and what a step from server to server takes, by up to
    /// nine rounds of four short writes to the first three of the servers, in chunks of names that
    /// nobody knows, which are deleted then. It takes about two seconds at most, where the servers
    /// answer.
    ///
    /// Where servers do not pass a write on, a step costs more than anything, and where they do not
    /// to two of them, the step to the second one does.
    ///
    /// # Errors
    /// [`SpreadError::Unmeasured`].
    pub fn measure(&self, servers: &[SocketAddr]) -> Result<Costs, SpreadError> {
        let places = &servers[..servers.len().min(3)];
        let chunk = ChunkId::random();
        let node = |server: &SocketAddr| Node { server: *server, chunk, version: None };
        let nodes: Vec<Node> = places.iter().map(node).collect();
        let measured = self.measure_in(chunk, places);
        // What is left of them is unfinished, and its server deletes it after a while.
        self.discard(&nodes);
        measured.map(Times::costs)
    }

    fn measure_in(&self, chunk: ChunkId, places: &[SocketAddr]) -> Result<Times, SpreadError> {
        let mut clients: Vec<Client> = Vec::new();
        for (server, client) in places.iter().zip(self.clients(places)) {
            let made = client.and_then(|client| {
                let kind = NewChunk { unfinished: true, ..NewChunk::default() };
                client.create(chunk, None, kind).wait()?;
                Ok(client)
            });
            clients.push(made.map_err(|error| unmeasured(*server, error))?);
        }
        let Some(first) = clients.first() else { return Ok(Times::default()) };
        let along = |kind, count: usize| match places.get(..count) {
            None => Ok(None),
            Some(places) => Route::new(kind, places).map(|route| Some(Arc::new(route))),
        };
        let (ring, tree) = (along(RouteKind::Ring, 2)?, along(RouteKind::Tree, 3)?);
        let write = |bytes: usize| timed(|| first.write(chunk, 0, vec![0; bytes]));
        let pass = |route: &Option<Arc<Route>>| match route {
            None => 0,
            Some(route) => {
                timed(|| first.write_along(Arc::clone(route), chunk, 0, vec![0; SHORT_BYTES]))
                    .unwrap_or(NEVER)
            }
        };
        let round = |works: bool| {
            Ok(Times {
                short: write(SHORT_BYTES)?,
                long: write(LONG_BYTES)?,
                ring: if works { pass(&ring) } else { NEVER },
                tree: if works { pass(&tree) } else { NEVER },
            })
        };
        let failed = |error| unmeasured(places[0], error);
        // What takes its time to fail is not tried again.
        let works = round(true).map_err(failed)?.ring != NEVER;
        let (began, mut rounds) = (Instant::now(), Vec::new());
        while rounds.len() < ROUNDS - 1 && (rounds.is_empty() || began.elapsed() < SPAN) {
            rounds.push(round(works).map_err(failed)?);
        }
        Ok(Times::median(&rounds))
    }
}

fn unmeasured(server: SocketAddr, error: PartError) -> SpreadError {
    SpreadError::Unmeasured { server, source: Box::new(error) }
}

/// How long a write takes, in nanoseconds.
fn timed(write: impl FnOnce() -> Pending<()>) -> Result<u64, PartError> {
    let began = Instant::now();
    write().wait()?;
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_from_the_times_of_writes_and_no_time_makes_them_less_than_nothing() {
        let times = Times { short: 100_000, long: 160_000, ring: 130_000, tree: 135_000 };
        let costs = Costs { port_ps_per_kib: 1_000_000, step_ns: 30_000, fork_ns: 5_000 };
        assert_eq!(times.costs(), costs);
        let nothing = Costs { port_ps_per_kib: 0, step_ns: 0, fork_ns: 0 };
        let odd = Times { short: 100, long: 90, ring: 80, tree: 70 };
        assert_eq!(odd.costs(), nothing);
        let apart = Times { tree: NEVER, ..times }.costs();
        assert_eq!((apart.step_ns, apart.fork_ns), (30_000, NEVER));
        let alone = Times { ring: NEVER, tree: NEVER, ..times }.costs();
        for (costs, expected) in [(apart, Policy::Ring(3)), (alone, Policy::Flat(3))] {
            let (policy, _) = Policy::of_copies(3, 1 << 30, &costs).expect("three copies");
            assert_eq!(policy, expected);
        }
        let of = |short| Times { short, ..times };
        assert_eq!(Times::median(&[of(5), of(1), of(9)]), of(5));
        assert_eq!(Times::median(&[]), Times::default());
    }

    #[test]
    fn the_way_of_copies_is_that_of_the_shortest_time() {
        let costs = Costs { port_ps_per_kib: 1_000_000, step_ns: 30_000, fork_ns: 5_000 };
        let way = |copies, bytes| Policy::of_copies(copies, bytes, &costs).map(|(of, _)| of);
        assert_eq!(way(3, 4_096), Ok(Policy::Flat(3)));
        assert_eq!(way(3, 1 << 20), Ok(Policy::Ring(3)));
        assert_eq!(way(7, 60 << 10), Ok(Policy::Tree(7)));
        assert_eq!(way(1, 1 << 20), Ok(Policy::Flat(1)));
        assert_eq!(
            [0, 8].map(|copies| way(copies, 1)),
            [0, 8].map(|n| Err(PolicyError::Copies(n)))
        );
    }
}
