//! What the events of one instant need of the memory, asked for all at once.
//!
//! A world of thousands of hosts is larger than the caches, and one event after another would wait
//! for its flight, then for its wire, then for the next wire. The more hosts, the more happens at
//! one instant: then the waits go on side by side, and an event waits no longer than in a small
//! world. Nothing here changes anything.

use super::Engine;
use crate::world::agenda::Event;
use crate::world::flight::NONE;
use crate::world::ids::Node;
use crate::world::switch::choose;
use core::hint::black_box;

/// With fewer events at an instant there is too little to do side by side.
const EVENTS_MIN: usize = 3;

/// So many events are looked ahead at: what they need, ten cache lines each, stays in the smallest
/// cache until their turn comes.
pub(super) const EVENTS_FORESEEN: usize = 32;

/// What an event is going to need.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    flight: u32,
    /// The wire that the event is about, then the one that its flight goes on to; [`NONE`] for
    /// none.
    wire: u32,
}

impl Engine {
    /// Has `events` find in the cache what they need.
    pub(super) fn foresee(&mut self, events: &[Event]) {
        if events.len() < EVENTS_MIN {
            return;
        }
        let mut sights = core::mem::take(&mut self.sights);
        sights.clear();
        // Each step only loads what the step before has brought: no load waits for another, and
        // no branch for a load.
        for event in events {
            sights.push(match *event {
                Event::Land { flight } | Event::Arrive { flight } => {
                    Sight { flight, wire: self.flights[flight].wire }
                }
                Event::Serve { wire } => Sight { flight: NONE, wire },
                _ => continue,
            });
        }
        for sight in &sights {
            black_box(self.wires[sight.wire as usize].look());
        }
        for sight in &mut sights {
            sight.wire = self.way_on(*sight);
        }
        for sight in sights.iter().filter(|sight| sight.wire != NONE) {
            black_box(self.wires[sight.wire as usize].look());
        }
        self.sights = sights;
    }

    /// The wire that a flight goes on to; [`NONE`] where it does not, or nobody knows yet.
    fn way_on(&self, sight: Sight) -> u32 {
        if sight.flight == NONE {
            return NONE;
        }
        let flight = &self.flights[sight.flight];
        match (self.wires[sight.wire as usize].to, &self.routes) {
            (Node::Host(host), _) => {
                black_box(self.hosts[host.index()].look());
                black_box(flight.source.port());
                NONE
            }
            (Node::Switch(switch), Some(routes)) if flight.dest_host != NONE => {
                let berth = self.berths[flight.dest_host as usize];
                if berth.leaf == switch.0 {
                    return berth.wire.0;
                }
                let wires = routes.towards(switch.0, berth.leaf);
                let salt = self.switches[switch.index()].salt;
                wires.get(choose(flight.flow, salt, wires.len())).map_or(NONE, |wire| wire.0)
            }
            _ => NONE,
        }
    }
}
