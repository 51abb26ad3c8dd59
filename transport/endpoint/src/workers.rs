//! Several endpoints as one: each with a thread and a device of its own, behind one listener.
//!
//! The one that listens reads the HELLO of a peer and places its link: with the worker that has the
//! fewest, or as the caller says. From then on the link is that worker's alone; on the data path
//! the workers share nothing.

use crate::error::AcceptError;
use crate::limits::HANDSHAKES_MAX;
use crossbeam_queue::ArrayQueue;
use smallvec::SmallVec;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use towpath_base::Prng;
use towpath_proto::Class;
use towpath_proto::wire::Hello;

/// What chooses a worker: the peer's HELLO, and how many links each worker has.
type Choose = dyn Fn(&Hello, &[usize]) -> usize + Send + Sync;

/// Which worker a link is placed on.
#[derive(Clone, Default)]
pub enum Placing {
    /// The one with the fewest links; of several the first.
    #[default]
    LeastLinks,
    /// One of those that serve its class, with the fewest links of them. Workers are dealt out to
    /// Gold, Silver and Copper in turn; of two workers the second one has Silver and Copper, and a
    /// single one has all. So a class that keeps its workers busy costs a more urgent one only
    /// what they share: cores, and the network.
    ByClass,
    /// As the caller says, by the peer's HELLO and how many links each worker has: the worker's
    /// number, taken modulo how many there are.
    By(Arc<Choose>),
}

impl fmt::Debug for Placing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeastLinks => "LeastLinks",
            Self::ByClass => "ByClass",
            Self::By(_) => "By",
        })
    }
}

/// A peer that has said who it is, on its way to its worker.
pub(crate) struct Placed {
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    pub(crate) hello: Hello,
    /// Counts for its worker until its link does.
    pub(crate) seat: Option<Seat>,
}

/// What the others see of a worker.
struct Desk {
    placed: ArrayQueue<Placed>,
    /// Links that it has, and peers that are on their way to it.
    links: AtomicUsize,
    owner: Mutex<Owner>,
}

/// The endpoint of a desk.
enum Owner {
    Away,
    /// With what wakes it, where its device can be woken.
    Here(Option<Waker>),
}

impl Desk {
    fn set_owner(&self, owner: Owner) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = owner;
    }

    /// Wakes the owner; false when it is away.
    fn wake(&self) -> bool {
        match &*self.owner.lock().unwrap_or_else(PoisonError::into_inner) {
            Owner::Away => false,
            Owner::Here(waker) => {
                waker.as_ref().inspect(|waker| waker.wake_by_ref());
                true
            }
        }
    }
}

/// Several endpoints that are one to their peers: they have one instance id, and peers that one of
/// them listens for are placed on all.
///
/// Give each the configuration [`of_worker`](crate::EndpointConfig::of_worker), and a device of one
/// address ([`roce_udp_group`](crate::roce_udp_group)).
#[derive(Clone)]
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    instance: u64,
    placing: Placing,
    desks: Box<[Desk]>,
}

impl Workers {
    /// `count` workers, at least one. `seed` is where their instance id comes from: random, and
    /// another for each life, as [`EndpointConfig::seed`](crate::EndpointConfig::seed) is.
    #[must_use]
    pub fn new(count: usize, placing: Placing, seed: u64) -> Self {
        let desk = |_| Desk {
            placed: ArrayQueue::new(HANDSHAKES_MAX),
            links: AtomicUsize::new(0),
            owner: Mutex::new(Owner::Away),
        };
        let desks = (0..count.max(1)).map(desk).collect();
        let instance = Prng::new(seed).next_u64();
        Self { shared: Arc::new(Shared { instance, placing, desks }) }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.desks.len()
    }

    /// How many links each has, those on their way to it included.
    pub fn links(&self) -> impl Iterator<Item = usize> {
        self.shared.desks.iter().map(|desk| desk.links.load(Ordering::Relaxed))
    }

    /// The worker with the fewest links; of several the first.
    #[must_use]
    pub fn least_loaded(&self) -> usize {
        self.least_loaded_of(0, 1)
    }

    /// The same of every `step`-th worker from `first` on.
    fn least_loaded_of(&self, first: usize, step: usize) -> usize {
        let some = self.links().enumerate().skip(first).step_by(step);
        some.min_by_key(|&(_, links)| links).map_or(first, |(index, _)| index)
    }

    /// Which workers serve a class: the first of them, and how far apart they are.
    fn of_class(&self, class: Class) -> (usize, usize) {
        let groups = self.count().min(Class::COUNT);
        (class.index().min(groups - 1), groups)
    }

    fn choose(&self, hello: &Hello) -> usize {
        let index = match &self.shared.placing {
            Placing::LeastLinks => self.least_loaded(),
            Placing::ByClass => {
                let (first, step) = self.of_class(hello.class);
                self.least_loaded_of(first, step)
            }
            Placing::By(choose) => choose(hello, &self.links().collect::<SmallVec<[_; 64]>>()),
        };
        index % self.count()
    }

    fn seat(&self, index: usize) -> Seat {
        self.shared.desks[index].links.fetch_add(1, Ordering::Relaxed);
        Seat { shared: Arc::clone(&self.shared), index }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.links()).finish()
    }
}

/// One of several workers, as the configuration of its endpoint has it.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    workers: Workers,
    index: usize,
}

impl Worker {
    pub(crate) fn new(workers: &Workers, index: usize) -> Self {
        Self { workers: workers.clone(), index: index % workers.count() }
    }

    pub(crate) fn instance(&self) -> u64 {
        self.workers.shared.instance
    }

    /// The seed of this worker, where all have got the same.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        Prng::new(seed ^ self.index as u64).next_u64()
    }
}

/// One link in the count of its worker.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    index: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.desks[self.index].links.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An endpoint's place among the workers, for as long as it is there.
pub(crate) struct Member(Worker);

impl Member {
    pub(crate) fn new(worker: &Worker, waker: Option<Waker>) -> Self {
        let member = Self(worker.clone());
        member.desk().set_owner(Owner::Here(waker));
        member
    }

    fn desk(&self) -> &Desk {
        &self.0.workers.shared.desks[self.0.index]
    }

    /// A place in the count of this worker's links.
    pub(crate) fn seat(&self) -> Seat {
        self.0.workers.seat(self.0.index)
    }

    /// The next peer that was placed here.
    pub(crate) fn next_placed(&self) -> Option<Placed> {
        let placed = &self.desk().placed;
        // Mostly there is none, and to find that by taking one costs a fence.
        if placed.is_empty() { None } else { placed.pop() }
    }

    /// Places a peer. Gives it back when it is to be linked here: its worker is this one, or has
    /// left.
    ///
    /// # Errors
    /// Too many are on their way to its worker.
    pub(crate) fn place(
        &self,
        mut peer: Placed,
    ) -> Result<Option<Placed>, Box<(Placed, AcceptError)>> {
        let Worker { workers, index: here } = &self.0;
        let index = workers.choose(&peer.hello);
        peer.seat = Some(workers.seat(index));
        if index == *here {
            return Ok(Some(peer));
        }
        let desk = &workers.shared.desks[index];
        let busy = AcceptError::Busy { max: HANDSHAKES_MAX };
        desk.placed.push(peer).map_err(|peer| Box::new((peer, busy)))?;
        // The worker may have left before this was on its desk.
        Ok(if desk.wake() { None } else { desk.placed.pop() })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.desk().set_owner(Owner::Away);
        // Their connections close, which tells them.
        while self.next_placed().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_dealt_out_to_classes_and_none_is_left_over() {
        for (count, expected) in [
            (1, [vec![0], vec![0], vec![0]]),
            (2, [vec![0], vec![1], vec![1]]),
            (3, [vec![0], vec![1], vec![2]]),
            (4, [vec![0, 3], vec![1], vec![2]]),
            (8, [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]),
        ] {
            let workers = Workers::new(count, Placing::ByClass, 1);
            for (class, expected) in Class::ALL.into_iter().zip(expected) {
                let (first, step) = workers.of_class(class);
                // As many links as it has workers, and one more: each has one, the first two.
                let mut seats = Vec::new();
                let mut chosen = Vec::new();
                for _ in 0..=expected.len() {
                    let index = workers.least_loaded_of(first, step);
                    seats.push(workers.seat(index));
                    chosen.push(index);
                }
                assert_eq!(chosen[..expected.len()], expected, "{class} of {count}");
                assert_eq!(chosen[expected.len()], expected[0], "{class} of {count}");
            }
            assert!(workers.links().all(|links| links == 0), "seats are given back");
        }
    }
}
