//! What a flight meets on its way: queues, wires, switches, faults, a receive buffer.

use super::Engine;
use crate::world::agenda::Event;
use crate::world::faults::{Scene, Verdict, WireFaults};
use crate::world::flight::NONE;
use crate::world::ids::{HostId, Node, SwitchId};
use crate::world::queue::marked;
use crate::world::switch::choose;
use crate::world::trace::PacketFate;
use towpath_base::Time;

impl Engine {
    /// Lets a wire send what it can now, and sees to it that it is served again.
    pub(super) fn serve(&mut self, wire: u32) {
        let now = self.clock.now();
        loop {
            self.tell_of_room(wire);
            let on = &mut self.wires[wire as usize];
            let next = on.next();
            if next.is_none() && !on.room_wanted {
                return;
            }
            if on.free_at > now {
                let free_at = on.free_at;
                return self.serve_again(wire, free_at);
            }
            let Some((class, flight)) = next else { return };
            let ready_at = self.flights[flight].ready_at;
            if ready_at > now {
                return self.serve_again(wire, ready_at);
            }
            let Some(sent) = on.send(class, &self.flights, now) else { return };
            let mut lands_at = sent.head_at;
            if let Node::Host(host) = on.to {
                lands_at = self.hosts[host.index()].rx.enter(sent.tail_at);
            }
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

    pub(super) fn serve_due(&mut self, wire: u32) {
        let on = &mut self.wires[wire as usize];
        if on.serve_at <= self.clock.now() {
            on.serve_at = Time::NEVER;
        }
        self.serve(wire);
    }

    /// Wakes the host that waits for room, once half of the queue is free.
    fn tell_of_room(&mut self, wire: u32) {
        let on = &mut self.wires[wire as usize];
        if on.room_wanted && on.is_half_empty(self.clock.now()) {
            on.room_wanted = false;
            if let Node::Host(host) = on.from {
                self.wake(host);
            }
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
        match on.to {
            Node::Host(host) => self.arrive(host, flight),
            Node::Switch(switch) => self.forward(switch, flight),
        }
    }

    fn arrive(&mut self, host: HostId, flight: u32) {
        let now = self.clock.now();
        let fate = self.hosts[host.index()].admit(flight, now, &mut self.flights);
        self.finish(flight, fate);
        if fate == PacketFate::Delivered {
            self.wake(host);
        }
    }

    fn forward(&mut self, switch: SwitchId, flight: u32) {
        let passing = &self.flights[flight];
        let (dest, flow, packets) = (passing.dest_host, passing.flow, passing.packets);
        if dest == NONE {
            return self.finish(flight, PacketFate::Misaddressed);
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
        passing.wire = out.0;
        passing.is_judged = false;
        let now = self.clock.now();
        if packets > 1 {
            let start = self.wires[out.index()].gapless_start(passing);
            if start > now {
                return self.agenda.push(start, Event::Join { flight });
            }
        }
        self.join(flight);
    }

    /// A flight joins the queue of the wire that it is to take, or finds it full.
    pub(super) fn join(&mut self, flight: u32) {
        let now = self.clock.now();
        let passing = &mut self.flights[flight];
        let wire = passing.wire;
        let class = usize::from(self.classes[usize::from(passing.tclass >> 2)]);
        let on = &mut self.wires[wire as usize];
        if !on.has_room(class, on.bytes_of(passing), now) {
            on.counters.dropped += u64::from(passing.packets);
            return self.finish(flight, PacketFate::DroppedQueue);
        }
        if on.marks(class)
            && let Some(tclass) = marked(passing.tclass)
        {
            passing.tclass = tclass;
            let packets = u64::from(passing.packets);
            on.counters.marked += packets;
            self.counters.ecn_marked += packets;
        }
        passing.ready_at = now;
        on.push(class, flight, &mut self.flights);
        self.serve(wire);
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
