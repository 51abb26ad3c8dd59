//! Faults of one wire: the same plans and dice as a fault link has, at the far end of the wire.

use super::agenda::{Agenda, Event};
use super::flight::Flights;
use super::trace::{PacketFate, damaged};
use crate::fault::dice::{Damage, Dice, EXTEND_BYTES_MAX, Hit, Hold, Subject};
use crate::fault::lane::count_loss;
use crate::fault::{FaultCounters, FaultPlan};
use crate::limits::HELD_PACKETS_MAX;
use towpath_base::{Nanos, Time};

/// A flight that waits to be overtaken.
struct Displaced {
    after_number: u64,
    since: Time,
    due: Time,
    flight: u32,
}

pub(super) struct WireFaults {
    pub(super) plan: FaultPlan,
    pub(super) counters: FaultCounters,
    dice: Dice,
    /// How many flights came by.
    number: u64,
    displaced: Vec<Displaced>,
}

/// What becomes of a flight that came by.
pub(super) enum Verdict {
    /// It goes on.
    Pass,
    /// It lands later.
    Hold,
    /// It is lost.
    Lose(PacketFate),
}

/// What else a flight that came by may touch.
pub(super) struct Scene<'a> {
    pub(super) wire: u32,
    pub(super) now: Time,
    pub(super) flights: &'a mut Flights,
    pub(super) agenda: &'a mut Agenda,
    /// Counts the copies that were made.
    pub(super) copies: usize,
}

impl WireFaults {
    pub(super) fn new(plan: FaultPlan, seed: u64) -> Self {
        let (counters, dice) = (FaultCounters::default(), Dice::new(seed));
        Self { plan, counters, dice, number: 0, displaced: Vec::new() }
    }

    /// Judges a flight that lands. One that was held back passes, and so does a copy.
    pub(super) fn judge(&mut self, flight: u32, scene: &mut Scene<'_>) -> Verdict {
        if core::mem::replace(&mut scene.flights[flight].is_judged, true) {
            self.counters.passed += 1;
            return Verdict::Pass;
        }
        self.counters.taken += 1;
        self.number += 1;
        let landing = &scene.flights[flight];
        let subject = Subject {
            source_port: landing.source_port,
            byte_len: landing.byte_len as usize,
            byte_len_max: landing.byte_len as usize + EXTEND_BYTES_MAX,
            packets: landing.packets,
        };
        let verdict = match self.dice.roll(&self.plan, subject) {
            None => Verdict::Pass,
            Some(Hit::Lose(loss)) => {
                count_loss(loss, &mut self.counters);
                return self.end_turn(Verdict::Lose(PacketFate::DroppedFault), scene);
            }
            Some(Hit::Suffer(mishap)) => {
                if let Some(after) = mishap.copy_after {
                    self.copy(flight, after, scene);
                }
                if let Some(damage) = mishap.damage {
                    self.damage(flight, damage, scene);
                }
                mishap.hold.map_or(Verdict::Pass, |hold| self.hold(flight, hold, scene))
            }
        };
        self.counters.passed += u64::from(matches!(verdict, Verdict::Pass));
        self.end_turn(verdict, scene)
    }

    /// Lands the flights that waited for the one that just came by.
    fn end_turn(&mut self, verdict: Verdict, scene: &mut Scene<'_>) -> Verdict {
        let number = self.number;
        self.land_displaced(scene, |displaced| displaced.after_number <= number);
        verdict
    }

    /// Lands the flights that have waited long enough to be overtaken.
    pub(super) fn release(&mut self, scene: &mut Scene<'_>) {
        let now = scene.now;
        self.land_displaced(scene, |displaced| displaced.due <= now);
    }

    fn land_displaced(&mut self, scene: &mut Scene<'_>, is_ready: impl Fn(&Displaced) -> bool) {
        self.displaced.retain(|displaced| {
            if !is_ready(displaced) {
                return true;
            }
            let flight = displaced.flight;
            scene.flights[flight].tail_at += scene.now.since(displaced.since);
            scene.agenda.push(scene.now, Event::Land { flight });
            false
        });
    }

    fn copy(&mut self, flight: u32, after: Nanos, scene: &mut Scene<'_>) {
        self.counters.duplicated += 1;
        if self.counters.held() > HELD_PACKETS_MAX as u64 {
            self.counters.dropped_overflow += 1;
            return;
        }
        let copy = scene.flights.copy(flight);
        scene.flights[copy].tail_at += after;
        scene.agenda.push(scene.now + after, Event::Land { flight: copy });
        scene.copies += 1;
    }

    /// A train has no bytes of its own, and a damaged packet is no use to anybody: the mark says
    /// that it must not be taken for whole.
    fn damage(&mut self, flight: u32, damage: Damage, scene: &mut Scene<'_>) {
        self.counters.corrupted += 1;
        let hit = &mut scene.flights[flight];
        hit.is_damaged = true;
        hit.content = damaged(hit.content, damage.digest());
        if !hit.is_train {
            damage.apply(&mut hit.bytes);
            hit.byte_len = hit.bytes.len() as u32;
        }
    }

    fn hold(&mut self, flight: u32, hold: Hold, scene: &mut Scene<'_>) -> Verdict {
        if self.counters.held() > HELD_PACKETS_MAX as u64 {
            self.counters.dropped_overflow += 1;
            return Verdict::Lose(PacketFate::DroppedFault);
        }
        let span = match hold {
            Hold::Delayed(span) => {
                self.counters.delayed += 1;
                span
            }
            Hold::Late(span) => {
                self.counters.late += 1;
                span
            }
            Hold::Displaced { packets, at_most } => {
                self.counters.reordered += 1;
                if let Some(packets) = packets {
                    let due = scene.now + at_most;
                    let after_number = self.number + u64::from(packets);
                    let since = scene.now;
                    self.displaced.push(Displaced { after_number, since, due, flight });
                    scene.agenda.push(due, Event::Release { wire: scene.wire });
                    return Verdict::Hold;
                }
                at_most
            }
        };
        scene.flights[flight].tail_at += span;
        scene.agenda.push(scene.now + span, Event::Land { flight });
        Verdict::Hold
    }
}
