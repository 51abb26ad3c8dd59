//! A controller whose answers are kept until the next sample.

use towpath_base::{Nanos, Time};

use crate::{AckSample, Controller, LossSample, Rate};

/// A controller that works its window and its rate out once for each sample, and not for each of
/// the chunks that are sent by them in between. Nothing but samples changes either.
#[derive(Clone, Debug)]
pub struct Cached<C> {
    controller: C,
    window_bytes: u64,
    pacing_rate: Option<Rate>,
}

impl<C: Controller> Cached<C> {
    /// The controller with what it says at present.
    #[must_use]
    pub fn new(controller: C) -> Self {
        let (window_bytes, pacing_rate) = (controller.window_bytes(), controller.pacing_rate());
        Self { controller, window_bytes, pacing_rate }
    }

    fn ask(&mut self) {
        self.window_bytes = self.controller.window_bytes();
        self.pacing_rate = self.controller.pacing_rate();
    }
}

impl<C: Controller> Controller for Cached<C> {
    fn on_ack(&mut self, sample: &AckSample) {
        self.controller.on_ack(sample);
        self.ask();
    }

    fn on_loss(&mut self, sample: &LossSample) {
        self.controller.on_loss(sample);
        self.ask();
    }

    fn on_rto(&mut self, now: Time) {
        self.controller.on_rto(now);
        self.ask();
    }

    fn on_false_rto(&mut self) {
        self.controller.on_false_rto();
        self.ask();
    }

    fn set_away(&mut self, away: Nanos) {
        self.controller.set_away(away);
        self.ask();
    }

    fn set_packet_bytes(&mut self, packet_bytes: u32) {
        self.controller.set_packet_bytes(packet_bytes);
        self.ask();
    }

    #[inline]
    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing_rate
    }

    fn name(&self) -> &'static str {
        self.controller.name()
    }
}

#[cfg(test)]
mod tests {
    use towpath_base::Prng;

    use super::*;
    use crate::{ControllerConfig, PathFacts};

    #[test]
    fn it_says_after_every_sample_what_the_controller_itself_would() {
        let facts = PathFacts { packet_bytes: 4096, delay_noise: Nanos::ZERO };
        for name in ControllerConfig::NAMES {
            let config: ControllerConfig = name.parse().expect("a word of an algorithm");
            let mut plain = config.build(Time::ZERO, &facts);
            let mut cached = Cached::new(plain.clone());
            let mut prng = Prng::new(1);
            for step in 0..2_000 {
                let now = Time(step * 10_000);
                match prng.below(10) {
                    0 => {
                        plain.on_rto(now);
                        cached.on_rto(now);
                    }
                    1 => {
                        let in_flight_bytes = plain.window_bytes();
                        let (lost_bytes, lost_chunks) = (4096, 1);
                        let sample = LossSample { now, lost_bytes, lost_chunks, in_flight_bytes };
                        plain.on_loss(&sample);
                        cached.on_loss(&sample);
                    }
                    2 => {
                        let away = Nanos(prng.below(20_000_000));
                        plain.set_away(away);
                        cached.set_away(away);
                    }
                    3 => {
                        let packet_bytes = 256 << prng.below(5);
                        plain.set_packet_bytes(packet_bytes);
                        cached.set_packet_bytes(packet_bytes);
                    }
                    _ => {
                        let sample = AckSample {
                            now,
                            rtt: Some(Nanos(prng.between(5_000, 200_000))),
                            endpoint: Nanos(prng.below(50_000)),
                            acked_bytes: 8192,
                            acked_chunks: 2,
                            in_flight_bytes: plain.window_bytes(),
                            window_limited: prng.chance(0.8),
                            chunk_bytes: 4096,
                        };
                        plain.on_ack(&sample);
                        cached.on_ack(&sample);
                    }
                }
                let says = |c: &dyn Controller| (c.window_bytes(), c.pacing_rate());
                assert_eq!(says(&cached), says(&plain), "{name} at step {step}");
            }
        }
    }
}
