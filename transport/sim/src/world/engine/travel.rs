//! What a flight meets on its way: queues, wires, switches, faults, a receive buffer.

use super::Engine;
use crate::world::agenda::Event;
use crate::world::change::Health;
use crate::world::faults::{Scene, Verdict, WireFaults};
use crate::world::flight::NONE;
use crate::world::ids::{Node, SwitchId};
use crate::world::queue::marked;
use crate::world::switch::choose;
use crate::world::trace::PacketFate;
use crate::world::wire::Next;
use towpath_base::Time;
use towpath_verbs::dscp_of;

impl Engine {
    /// Lets a wire send what it can now, and sees to it that it is served again.
    pub(super) fn serve(&mut self, wire: u32) {
        let now = self.clock.now();
        loop {
            self.settle(wire);
            self.tell_of_room(wire);
            let on = &mut self.wires[wire as usize];
            let next = on.next(&self.flights, now);
            if matches!(next, Next::Nothing) && !on.is_wanted() && !on.is_watched {
                return;
            }
            if on.free_at > now {
                let free_at = on.free_at;
                return self.serve_again(wire, free_at);
            }
            let class = match next {
                Next::Nothing => return,
                Next::Wait(ready_at) => return self.serve_again(wire, ready_at),
                Next::Send(class) => class,
            };
            let Some(sent) = on.send(class, &self.flights, now) else { return };
            let is_last_hop = matches!(on.to, Node::Host(_));
            let lands_at = if is_last_hop { sent.tail_at } else { sent.head_at };
            self.flights[sent.flight].tail_at = sent.tail_at;
            self.agenda.push(lands_at, Event::Land { flight: sent.flight });
        }
    }

    fn serve_again(&mut self, wire: u32, time: Time) {
        let on = &mut self.wires[wire as usize];
        if time < on.serve_at {
            on.serve_at = time;
            self.agenda.push(time, Event::Serve { wire });
        }
    }

    /// Gives the room of what a wire has sent back.
    pub(super) fn settle(&mut self, wire: u32) {
        let now = self.clock.now();
        let on = &mut self.wires[wire as usize];
        if let Some(sent) = on.settle(now)
            && sent.ingress != NONE
        {
            self.leave(sent.ingress, sent.class(), sent.bytes);
        }
    }

    /// A switch holds less of what came in on a wire.
    pub(super) fn leave(&mut self, wire: u32, class: usize, bytes: u64) {
        let on = &mut self.wires[wire as usize];
        if on.ingress.as_mut().is_some_and(|ingress| ingress.leave(class, bytes)) {
            self.send_pause(wire, class, false);
        }
    }

    fn send_pause(&mut self, wire: u32, class: usize, on: bool) {
        let time = self.clock.now() + self.wires[wire as usize].pause_delay();
        self.agenda.push(time, Event::Pause { wire, class: class as u8, on });
    }

    /// A pause comes to the near end of a wire.
    pub(super) fn pause(&mut self, wire: u32, class: u8, on: bool) {
        self.wires[wire as usize].pause(usize::from(class), on, self.clock.now());
        self.serve(wire);
    }

    pub(super) fn serve_due(&mut self, wire: u32) {
        let on = &mut self.wires[wire as usize];
        if on.serve_at <= self.clock.now() {
            on.serve_at = Time::NEVER;
        }
        self.serve(wire);
    }

    /// Wakes the host that waits for room, once there is enough.
    fn tell_of_room(&mut self, wire: u32) {
        let on = &mut self.wires[wire as usize];
        if on.tells_of_room()
            && let Node::Host(host) = on.from
        {
            self.wake(host);
        }
    }

    /// A flight comes to the far end of its wire.
    pub(super) fn land(&mut self, flight: u32) {
        let wire = self.flights[flight].wire;
        if self.wires[wire as usize].faults.is_some() && !self.passes_faults(wire, flight) {
            return;
        }
        let on = &mut self.wires[wire as usize];
        on.let_go();
        if on.is_cut {
            return self.finish(flight, PacketFate::DroppedDown);
        }
        match on.to {
            Node::Host(host) => {
                let now = self.clock.now();
                let seen_at = self.hosts[host.index()].enter_software(now);
                if seen_at > now {
                    return self.agenda.push(seen_at, Event::Arrive { flight });
                }
                self.arrive(flight);
            }
            Node::Switch(switch) => self.forward(switch, flight),
        }
    }

    /// A flight comes to the software of a host.
    pub(super) fn arrive(&mut self, flight: u32) {
        let now = self.clock.now();
        let Node::Host(host) = self.wires[self.flights[flight].wire as usize].to else { return };
        let fate = if self.flights[flight].dest_host == host.0 {
            self.hosts[host.index()].admit(flight, now, &mut self.flights)
        } else {
            PacketFate::Misaddressed
        };
        self.finish(flight, fate);
        if fate == PacketFate::Delivered {
            self.wake(host);
        }
    }

    fn forward(&mut self, switch: SwitchId, flight: u32) {
        let passing = &self.flights[flight];
        let (dest, flow) = (passing.dest_host, passing.flow);
        if dest == NONE {
            return self.finish(flight, PacketFate::Misaddressed);
        }
        if self.switches[switch.index()].health != Health::Up {
            return self.finish(flight, PacketFate::DroppedDown);
        }
        let berth = self.berths[dest as usize];
        let out = if berth.leaf == switch.0 {
            berth.wire
        } else {
            let salt = self.switches[switch.index()].salt;
            let wires = self.routes().towards(switch.0, berth.leaf);
            if wires.is_empty() {
                return self.finish(flight, PacketFate::DroppedNoRoute);
            }
            wires[choose(flow, salt, wires.len())]
        };
        let passing = &mut self.flights[flight];
        passing.ingress = core::mem::replace(&mut passing.wire, out.0);
        passing.is_judged = false;
        self.join(flight);
    }

    /// A flight joins the queue of the wire that it is to take, or finds it full.
    fn join(&mut self, flight: u32) {
        let now = self.clock.now();
        let passing = &self.flights[flight];
        let (wire, packets) = (passing.wire, passing.packets);
        let class = usize::from(self.classes[usize::from(dscp_of(passing.tclass))]);
        self.settle(wire);
        if self.is_dead(self.wires[wire as usize].from) {
            return self.finish(flight, PacketFate::DroppedDown);
        }
        if !self.enter(flight, class) {
            self.wires[wire as usize].counters.dropped += u64::from(packets);
            return self.finish(flight, PacketFate::DroppedQueue);
        }
        self.flights[flight].ready_at = now;
        self.queue(flight, class);
    }

    /// Puts a flight behind what waits for its wire, with a mark where the queue is long.
    pub(super) fn queue(&mut self, flight: u32, class: usize) {
        let queued = &mut self.flights[flight];
        let (wire, packets) = (queued.wire, u64::from(queued.packets));
        let on = &mut self.wires[wire as usize];
        if on.marks(class)
            && let Some(tclass) = marked(queued.tclass)
        {
            queued.tclass = tclass;
            on.counters.marked += packets;
            self.counters.ecn_marked += packets;
        }
        on.push(class, flight, &mut self.flights);
        self.serve(wire);
    }

    /// Whether a switch has room for a flight; where that is by the wire on which it came in, it
    /// is booked there.
    fn enter(&mut self, flight: u32, class: usize) -> bool {
        let passing = &self.flights[flight];
        let on = &self.wires[passing.wire as usize];
        let (from, bytes) = (passing.ingress, on.bytes_of(passing));
        let port_has_room = on.has_room(class, bytes);
        let Some(ingress) = &mut self.wires[from as usize].ingress else {
            return port_has_room;
        };
        let has_room = ingress.has_room(class, bytes);
        if has_room && ingress.enter(class, bytes) {
            self.send_pause(from, class, true);
        }
        has_room
    }

    /// Whether a flight that lands gets past the faults of its wire, now.
    fn passes_faults(&mut self, wire: u32, flight: u32) -> bool {
        let verdict = self.with_faults(wire, |faults, scene| faults.judge(flight, scene));
        match verdict {
            None | Some(Verdict::Pass) => return true,
            Some(Verdict::Hold) => {}
            Some(Verdict::Lose(fate)) => {
                self.wires[wire as usize].let_go();
                self.finish(flight, fate);
            }
        }
        false
    }

    pub(super) fn release(&mut self, wire: u32) {
        self.with_faults(wire, WireFaults::release);
    }

    fn with_faults<T>(
        &mut self,
        wire: u32,
        act: impl FnOnce(&mut WireFaults, &mut Scene<'_>) -> T,
    ) -> Option<T> {
        let on = &mut self.wires[wire as usize];
        let mut faults = on.faults.take()?;
        let mut scene = Scene {
            wire,
            now: self.clock.now(),
            flights: &mut self.flights,
            agenda: &mut self.agenda,
            copies: 0,
        };
        let result = act(&mut faults, &mut scene);
        on.hold_more(scene.copies);
        on.faults = Some(faults);
        Some(result)
    }
}
