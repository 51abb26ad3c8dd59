//! One direction of a fault link: its plan, its dice, what it holds back.

use super::counters::FaultCounters;
use super::dice::{Dice, Hit, Hold, Loss, Mishap, Subject};
use super::held::{Held, Parked};
use super::plan::FaultPlan;
use towpath_base::Time;
use towpath_verbs::TxPacket;

pub(super) struct Lane<O> {
    pub(super) plan: FaultPlan,
    pub(super) held: Held<O>,
    /// How many packets it has taken.
    pub(super) number: u64,
    dice: Dice,
    byte_len_max: usize,
}

/// Packets at the head of a batch that pass untouched, and what befalls the one after them.
pub(super) struct Run {
    pub(super) len: usize,
    pub(super) stop: Option<Stop>,
    before: Dice,
}

pub(super) struct Stop {
    pub(super) hit: Hit,
    before: Dice,
}

impl<O: Clone> Lane<O> {
    pub(super) fn new(plan: FaultPlan, seed: u64, byte_len_max: usize) -> Self {
        let dice = Dice::new(seed);
        Self { plan, held: Held::new(), number: 0, dice, byte_len_max }
    }

    /// Whether it leaves every packet alone and holds none.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.plan.is_none()
    }

    pub(super) fn roll(&mut self, source_port: u16, byte_len: usize) -> Option<Hit> {
        let byte_len_max = self.byte_len_max;
        let subject = Subject { source_port, byte_len, byte_len_max, packets: 1 };
        self.dice.roll(&self.plan, subject)
    }

    /// Rolls for the head of a batch, up to where a packet is hit or a held one is overtaken.
    pub(super) fn run(&mut self, packets: &[TxPacket<'_>]) -> Run {
        let before = self.dice.clone();
        let overtaken = self.held.next_number().map_or(u64::MAX, |number| number - self.number);
        let len_max = packets.len().min(usize::try_from(overtaken).unwrap_or(usize::MAX));
        for (len, packet) in packets[..len_max].iter().enumerate() {
            let bookmark = self.dice.clone();
            if let Some(hit) = self.roll(packet.source_port, packet.byte_len()) {
                return Run { len, stop: Some(Stop { hit, before: bookmark }), before };
            }
        }
        Run { len: len_max, stop: None, before }
    }

    /// Takes back the rolls of a run but for the `packets` that were sent of it, so that those
    /// offered again meet the same fates.
    pub(super) fn rewind(&mut self, run: Run, packets: &[TxPacket<'_>]) {
        self.dice = run.before;
        for packet in packets {
            self.roll(packet.source_port, packet.byte_len());
        }
    }

    /// Takes back the roll for one packet.
    pub(super) fn rewind_one(&mut self, stop: Stop) {
        self.dice = stop.before;
    }

    pub(super) fn take(&mut self, packets: usize, batch: &mut FaultCounters) {
        self.number += packets as u64;
        batch.taken += packets as u64;
    }

    /// Does to a packet what the dice said. `hand_on` says whether it took the packet; where it
    /// did not, nothing has happened.
    pub(super) fn befall(
        &mut self,
        mishap: Mishap,
        mut packet: Parked<O>,
        now: Time,
        batch: &mut FaultCounters,
        hand_on: &mut dyn FnMut(&Parked<O>) -> bool,
    ) -> bool {
        let copy = mishap.copy_after.map(|after| (now + after, packet.clone()));
        if let Some(damage) = mishap.damage {
            damage.apply(&mut packet.bytes);
        }
        match mishap.hold {
            Some(hold) => self.hold_back(hold, packet, now, batch),
            None if hand_on(&packet) => batch.passed += 1,
            None => return false,
        }
        batch.corrupted += u64::from(mishap.damage.is_some());
        if let Some((due, copy)) = copy {
            batch.duplicated += 1;
            self.park(due, None, copy, batch);
        }
        true
    }

    fn hold_back(&mut self, hold: Hold, packet: Parked<O>, now: Time, batch: &mut FaultCounters) {
        let (due, overtaken_by, counter) = match hold {
            Hold::Delayed(span) => (now + span, None, &mut batch.delayed),
            Hold::Late(span) => (now + span, None, &mut batch.late),
            Hold::Displaced { packets, at_most } => (now + at_most, packets, &mut batch.reordered),
        };
        *counter += 1;
        // This packet is number `number` and not yet taken.
        let after_number = overtaken_by.map(|packets| self.number + 1 + u64::from(packets));
        self.park(due, after_number, packet, batch);
    }

    fn park(
        &mut self,
        due: Time,
        after_number: Option<u64>,
        packet: Parked<O>,
        batch: &mut FaultCounters,
    ) {
        if self.held.park(due, after_number, packet).is_err() {
            batch.dropped_overflow += 1;
        }
    }
}

/// Counts a lost packet.
pub(crate) fn count_loss(loss: Loss, batch: &mut FaultCounters) {
    *match loss {
        Loss::BlackHole => &mut batch.black_holed,
        Loss::Burst => &mut batch.dropped_burst,
        Loss::Long => &mut batch.dropped_long,
        Loss::Random => &mut batch.dropped_random,
    } += 1;
}
