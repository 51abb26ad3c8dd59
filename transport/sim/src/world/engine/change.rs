//! Cables and switches that fail and come back, and faults that change.

use super::Engine;
use crate::world::agenda::Event;
use crate::world::change::{Change, Health};
use crate::world::ids::{LinkId, Node, SwitchId};
use crate::world::routes::Hop;
use crate::world::trace::PacketFate;
use towpath_base::Time;

impl Engine {
    pub(in crate::world) fn change_at(&mut self, time: Time, change: Change) {
        let number = self.next_change;
        self.next_change += 1;
        self.changes.insert(number, change);
        self.agenda.push(time.max(self.clock.now()), Event::Change { number });
    }

    pub(super) fn change_due(&mut self, number: u32) {
        if let Some(change) = self.changes.remove(&number) {
            self.change(change);
        }
    }

    pub(in crate::world) fn change(&mut self, change: Change) {
        match change {
            Change::Faults(wire, plan) => self.set_faults(wire, plan),
            Change::Cable(link, health) => self.set_cable(link, health),
            Change::Switch(switch, health) => self.set_switch(switch, health),
        }
    }

    fn set_cable(&mut self, link: LinkId, health: Health) {
        for wire in [link.forth(), link.back()] {
            self.wires[wire.index()].is_cut = health != Health::Up;
        }
        self.cables.insert(link, health);
        self.routes = None;
    }

    fn set_switch(&mut self, switch: SwitchId, health: Health) {
        self.switches[switch.index()].health = health;
        self.routes = None;
        if health == Health::Up {
            return;
        }
        for wire in 0..self.wires.len() as u32 {
            if self.wires[wire as usize].from == Node::Switch(switch) {
                self.flush(wire);
            }
        }
    }

    /// Loses what waits in front of a wire.
    fn flush(&mut self, wire: u32) {
        self.settle(wire);
        while let Some((class, flight)) = self.wires[wire as usize].flush_one(&self.flights) {
            let flushed = &self.flights[flight];
            let bytes = self.wires[wire as usize].bytes_of(flushed);
            self.leave(flushed.ingress, class, bytes);
            self.finish(flight, PacketFate::DroppedDown);
        }
    }

    /// Whether packets may be sent over a cable between switches, as far as the switches know.
    pub(super) fn is_usable(&self, hop: &Hop) -> bool {
        let is_up = |switch: u32| self.switches[switch as usize].health != Health::Down;
        let cable = self.cables.get(&hop.wire.link()).copied().unwrap_or_default();
        cable != Health::Down && is_up(hop.from) && is_up(hop.to)
    }

    /// Whether it is a switch that forwards nothing.
    pub(super) fn is_dead(&self, node: Node) -> bool {
        let Node::Switch(switch) = node else { return false };
        self.switches[switch.index()].health != Health::Up
    }
}
