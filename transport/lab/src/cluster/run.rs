//! The loop: hosts that have something to do are turned, then time goes on.

use towpath_base::{Nanos, Time};
use towpath_sim::World;
use towpath_sim::world::HostId;

/// What runs on a host.
pub trait Machine {
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
pub struct MachineLoop<M: Machine> {
    world: World,
    seats: Vec<Seat<M>>,
    /// What the machines have in common.
    pub shared: M::Shared,
    due: Vec<usize>,
    woken: Vec<HostId>,
    pause: Nanos,
    /// Hosts of the world that each machine has.
    nics: u32,
}

impl<M: Machine> MachineLoop<M> {
    /// Machines on the hosts of `world`, in their order.
    #[must_use]
    pub fn new(world: World, machines: Vec<M>, shared: M::Shared) -> Self {
        let seat = |machine| Seat { machine, rests_until: Time::ZERO, is_listed: false };
        let seats: Vec<Seat<M>> = machines.into_iter().map(seat).collect();
        let (due, woken) = (Vec::new(), Vec::new());
        Self { world, seats, shared, due, woken, pause: Nanos(1), nics: 1 }
    }

    /// A host that was turned is turned again no sooner than this.
    pub fn set_pause(&mut self, span: Nanos) {
        self.pause = span.max(Nanos(1));
    }

    /// Each machine has so many hosts of the world, one behind the other: its NICs.
    pub fn set_nics(&mut self, nics: u32) {
        self.nics = nics.max(1);
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The machines, in the order of their hosts.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = &M> {
        self.seats.iter().map(|seat| &seat.machine)
    }

    /// The machine of a host.
    #[must_use]
    pub fn machine(&self, host: usize) -> &M {
        &self.seats[host].machine
    }

    /// A machine, which is turned before time goes on.
    pub fn machine_mut(&mut self, host: usize) -> &mut M {
        self.list(host);
        &mut self.seats[host].machine
    }

    /// Has a machine turned before time goes on.
    pub fn wake(&mut self, host: usize) {
        self.list(host);
    }

    fn list(&mut self, host: usize) {
        if !std::mem::replace(&mut self.seats[host].is_listed, true) {
            self.due.push(host);
        }
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: Time) {
        loop {
            self.turn();
            let mut woken = std::mem::take(&mut self.woken);
            let goes_on = self.world.advance_to_next(end, &mut woken);
            woken.drain(..).for_each(|host| self.list((host.0 / self.nics) as usize));
            self.woken = woken;
            if !goes_on {
                return;
            }
        }
    }

    fn turn(&mut self) {
        let now = self.world.now();
        let mut due = std::mem::take(&mut self.due);
        for number in due.drain(..) {
            let seat = &mut self.seats[number];
            seat.is_listed = false;
            if seat.rests_until > now {
                self.world.set_timer(HostId(number as u32 * self.nics), seat.rests_until);
                continue;
            }
            seat.machine.turn(&mut self.shared);
            seat.rests_until = now + self.pause;
            let next = seat.machine.next_time(now, &self.shared);
            self.world.set_timer(HostId(number as u32 * self.nics), next.max(seat.rests_until));
        }
        self.due = due;
    }
}
