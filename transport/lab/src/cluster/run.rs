//! The loop: hosts that have something to do are turned, then time goes on.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use towpath_base::{Nanos, Time};
use towpath_sim::World;

/// When hosts are to be turned though nothing came in for them.
///
/// A host has one time that counts. One that moves later is left: the host is then turned once
/// for nothing, which is rarer than timers move.
struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    armed: Vec<Time>,
}

impl Timers {
    fn new(hosts: usize) -> Self {
        Self { heap: BinaryHeap::new(), armed: vec![Time::NEVER; hosts] }
    }

    fn arm(&mut self, host: usize, at: Time) {
        if at < self.armed[host] {
            self.armed[host] = at;
            self.heap.push(Reverse((at, host as u32)));
        }
    }

    fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |&Reverse((at, _))| at)
    }

    /// A host that is due.
    fn pop(&mut self, now: Time) -> Option<usize> {
        while let Some(&Reverse((at, host))) = self.heap.peek().filter(|due| due.0.0 <= now) {
            self.heap.pop();
            let host = host as usize;
            if self.armed[host] == at {
                self.armed[host] = Time::NEVER;
                return Some(host);
            }
        }
        None
    }
}

/// What runs on a host.
pub(super) trait Machine {
    /// What the machines of a run have in common.
    type Shared;

    /// Does all that can be done now.
    fn turn(&mut self, shared: &mut Self::Shared);

    /// When it has something to do by itself.
    fn next_time(&self, now: Time, shared: &Self::Shared) -> Time;
}

struct Seat<M> {
    machine: M,
    /// It is not turned before this.
    rests_until: Time,
    is_listed: bool,
}

/// The machines of one world, and the loop that turns them.
pub(super) struct Runner<M: Machine> {
    world: World,
    seats: Vec<Seat<M>>,
    pub(super) shared: M::Shared,
    timers: Timers,
    due: Vec<usize>,
    pause: Nanos,
    turns: u64,
}

impl<M: Machine> Runner<M> {
    /// Machines on the hosts of `world`, in their order.
    pub(super) fn new(world: World, machines: Vec<M>, shared: M::Shared) -> Self {
        let seat = |machine| Seat { machine, rests_until: Time::ZERO, is_listed: false };
        let seats: Vec<Seat<M>> = machines.into_iter().map(seat).collect();
        let (timers, due) = (Timers::new(seats.len()), Vec::new());
        Self { world, seats, shared, timers, due, pause: Nanos(1), turns: 0 }
    }

    /// A host that was turned is turned again no sooner than this.
    pub(super) fn set_pause(&mut self, span: Nanos) {
        self.pause = span.max(Nanos(1));
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    pub(super) fn machines(&self) -> impl ExactSizeIterator<Item = &M> {
        self.seats.iter().map(|seat| &seat.machine)
    }

    pub(super) fn machine(&self, host: usize) -> &M {
        &self.seats[host].machine
    }

    /// A machine, which is turned before time goes on.
    pub(super) fn machine_mut(&mut self, host: usize) -> &mut M {
        self.list(host);
        &mut self.seats[host].machine
    }

    fn list(&mut self, host: usize) {
        if !std::mem::replace(&mut self.seats[host].is_listed, true) {
            self.due.push(host);
        }
    }

    /// Lets time pass until `end`.
    pub(super) fn run_until(&mut self, end: Time) {
        loop {
            self.turn();
            let next = self.world.next_event_time().unwrap_or(Time::NEVER).min(self.timers.next());
            if next > end {
                return self.world.advance_to(end);
            }
            self.world.advance_to(next);
        }
    }

    fn turn(&mut self) {
        let now = self.world.now();
        for host in 0..self.seats.len() {
            self.list(host);
        }
        while let Some(host) = self.timers.pop(now) {
            self.list(host);
        }
        let mut due = std::mem::take(&mut self.due);
        for number in due.drain(..) {
            let seat = &mut self.seats[number];
            seat.is_listed = false;
            if seat.rests_until > now {
                self.timers.arm(number, seat.rests_until);
                continue;
            }
            seat.machine.turn(&mut self.shared);
            self.turns += 1;
            seat.rests_until = now + self.pause;
            let next = seat.machine.next_time(now, &self.shared);
            self.timers.arm(number, next.max(seat.rests_until));
        }
        self.due = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_moves_sooner_counts_once_and_one_that_moves_later_keeps_its_time() {
        let mut timers = Timers::new(2);
        timers.arm(0, Time(50));
        timers.arm(0, Time(30));
        timers.arm(1, Time(40));
        timers.arm(1, Time(60));
        let mut popped = Vec::new();
        for now in (0..100).map(Time) {
            while let Some(host) = timers.pop(now) {
                popped.push((now.0, host));
            }
        }
        assert_eq!(popped, [(30, 0), (40, 1)]);
        assert_eq!(timers.next(), Time::NEVER);
    }
}
