//! From one carrier to another, and back (docs/protocol.md section 10).

use super::Link;
use crate::carrier::{Carrier, CarrierReason};
use crate::event::Event;
use crate::path::{AckDigest, bit};
use core::hint::cold_path;
use towpath_base::Time;

impl Link {
    /// A path has answered. One of the carrier that we ride on is well; one of another may be a
    /// reason to go there.
    pub(super) fn on_path_answer(&mut self, now: Time, index: usize, digest: &AckDigest) {
        if !self.paths.is_in_use(index) {
            let carrier = self.paths[index].carrier;
            if self.paths.ladder.on_answer_of(now, carrier) {
                let why = self.paths.ladder.reason(now, carrier);
                self.ride_on(now, carrier, why);
            }
            return;
        }
        let was_silent = self.paths.is_silent();
        self.paths.on_answer(now, index, digest.largest_sent_at);
        if self.paths.watched() & bit(index) != 0 {
            self.on_doubtful_answer(now, index, (digest.lowest, digest.highest), was_silent);
        }
    }

    /// The peer was heard on a path. When it rides on a worse carrier than we, and what we send
    /// has not been answered of late, or may not be sent yet, we do as it does: its answer would
    /// take as long as its question to find the way.
    #[inline(never)]
    pub(super) fn on_heard(&mut self, now: Time, index: usize) {
        if self.paths[index].carrier != self.carrier() {
            cold_path();
            // The answer may be there and wait.
            self.settle_piggyback();
            if self.is_down() {
                return;
            }
        }
        // What may not be sent to the peer's address yet is never answered: nothing to wait for.
        let heard = self.paths[index].carrier;
        let has_to_follow = self.has_to_wait(self.carrier()) && !self.has_to_wait(heard);
        if self.paths.on_heard(now, index) || has_to_follow {
            cold_path();
            self.ride_on(now, heard, CarrierReason::Peer);
        }
    }

    /// Probes carriers that we do not ride on. What was asked there before counts no more.
    pub(super) fn ask_other_carriers(&mut self, now: Time) {
        let asked = self.paths.ladder.on_due(now);
        for index in 0..self.paths.len() {
            if asked & bit(index) != 0 && !self.paths.is_in_use(index) {
                self.send_all_again(index);
            }
        }
        self.paths.probes_due |= asked & !self.paths.failed();
        // Better carriers than ours that have been silent for long: one of their paths changes.
        let dark = self.paths.ladder.dark(now) & !self.paths.failed();
        if dark != 0 {
            let index = self.paths.draw(dark);
            self.change_port(now, index);
        }
    }

    /// A path has failed; when it was the last of the carrier that we ride on, another one is
    /// taken without asking.
    pub(super) fn leave_failed_carrier(&mut self, now: Time, index: usize) {
        let carrier = self.paths[index].carrier;
        let failed = self.paths.failed();
        if let Some(carrier) = self.paths.ladder.on_failed(carrier, failed) {
            self.ride_on(now, carrier, CarrierReason::Failed);
        }
    }

    /// Rides on another carrier from now on. Everything under way goes again there, and what has
    /// come in is acknowledged there once more: acks may have been lost with the way before. The
    /// receiver knows what comes twice.
    #[inline(never)]
    pub(super) fn ride_on(&mut self, now: Time, to: Carrier, why: CarrierReason) {
        let from = self.carrier();
        for index in 0..self.paths.len() {
            if self.paths.is_in_use(index) {
                self.send_all_again(index);
            }
        }
        self.paths.ride_on(now, to);
        self.paths.acks_due |= self.paths.received();
        self.flow.ride_on(now, to, (&self.config, &self.peer));
        self.reckon_packets();
        self.doubts.duplicates = 0;
        if to > from {
            self.stats.carrier_falls += 1;
        } else {
            self.stats.carrier_returns += 1;
        }
        self.events.push_back(Event::CarrierChanged { from, to, why });
    }
}
