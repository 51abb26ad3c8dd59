//! Vegas: a window that keeps a few packets waiting, the worked example of a new algorithm.

use core::fmt;
use core::str::FromStr;

use towpath_base::{Nanos, Time};

use crate::delay::DelayFloor;
use crate::limits::{VEGAS_QUEUE_DEFAULT, VEGAS_QUEUE_MAX, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};
use crate::{AckSample, ConfigError, Controller, LossSample, PathFacts, Rate};

/// Settings of [`Vegas`]; as text `queue=4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VegasConfig {
    queue: u32,
}

impl Default for VegasConfig {
    fn default() -> Self {
        Self { queue: VEGAS_QUEUE_DEFAULT }
    }
}

impl FromStr for VegasConfig {
    type Err = ConfigError;

    /// `queue`: packets of this sender that shall wait in the network, 1 to 1,000.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let value = text.strip_prefix("queue=").ok_or(ConfigError::Setting)?;
        let queue = value.parse().ok().filter(|queue| (1..=VEGAS_QUEUE_MAX).contains(queue));
        queue.map(|queue| Self { queue }).ok_or(ConfigError::Count)
    }
}

impl fmt::Display for VegasConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue={}", self.queue)
    }
}

/// Congestion control by what waits, after Brakmo and Peterson, "TCP Vegas" (1995).
///
/// Of a window of `w` packets, `w * (1 - floor / rtt)` wait in queues, where `floor` is the least
/// round trip seen. Once in a round trip the window grows by a packet where fewer than wanted
/// wait, and shrinks by one where more than twice as many do; until that first happens it
/// doubles. Loss without a queue says nothing; a timeout halves the window.
///
/// It is here to show how an algorithm is added (docs/new-congestion-control.md) and to compare
/// with: it never goes below one packet, so it cannot share a port among thousands.
#[derive(Clone, Debug)]
pub struct Vegas {
    config: VegasConfig,
    packet_bytes: f64,
    /// A fraction of packets: whole ones would round slow growth away.
    packets: f64,
    starting: bool,
    floor: DelayFloor,
    /// The least round trip since `moved_at`: what a host's pause adds to one does not count.
    least: Option<Nanos>,
    moved_at: Time,
}

impl Vegas {
    /// The word for it on command lines.
    pub const NAME: &str = "vegas";

    /// A controller that starts with one packet.
    #[must_use]
    pub fn new(config: VegasConfig, now: Time, path: &PathFacts) -> Self {
        Self {
            config,
            packet_bytes: f64::from(path.packet_bytes.max(1)),
            packets: 1.0,
            starting: true,
            floor: DelayFloor::new(now),
            least: None,
            moved_at: now,
        }
    }

    fn move_window(&mut self, waiting: f64, may_grow: bool) {
        let wanted = f64::from(self.config.queue);
        let by = if waiting > 2.0 * wanted {
            self.starting = false;
            -1.0
        } else if waiting >= wanted {
            self.starting = false;
            0.0
        } else if !may_grow {
            0.0
        } else if self.starting {
            self.packets
        } else {
            1.0
        };
        self.set(self.packets + by);
    }

    fn set(&mut self, packets: f64) {
        let most = WINDOW_BYTES_MAX as f64 / self.packet_bytes;
        self.packets = packets.clamp(1.0, most.max(1.0));
    }
}

impl Controller for Vegas {
    fn on_ack(&mut self, sample: &AckSample) {
        let Some(rtt) = sample.rtt else { return };
        let floor = self.floor.with(sample.now, rtt);
        let least = self.least.map_or(rtt, |least| least.min(rtt)).max(Nanos(1));
        self.least = Some(least);
        if sample.now.since(self.moved_at) < least {
            return;
        }
        let waiting = self.packets * (1.0 - floor.0 as f64 / least.0 as f64).max(0.0);
        self.move_window(waiting, sample.window_limited);
        (self.moved_at, self.least) = (sample.now, None);
    }

    fn on_loss(&mut self, _sample: &LossSample) {}

    fn on_rto(&mut self, _now: Time) {
        self.starting = false;
        self.set(self.packets / 2.0);
    }

    fn set_packet_bytes(&mut self, packet_bytes: u32) {
        let bytes = self.packets * self.packet_bytes;
        self.packet_bytes = f64::from(packet_bytes.max(1));
        self.set(bytes / self.packet_bytes);
    }

    fn window_bytes(&self) -> u64 {
        ((self.packets * self.packet_bytes) as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    /// A line of 10 packets in a round trip of 10 us: what is above them waits.
    fn rounds(vegas: &mut Vegas, count: u64, limited: bool) -> Vec<u64> {
        let round = |index| {
            let rtt = Nanos(1_000 * (vegas.packets as u64).max(10));
            let sample = AckSample {
                now: Time(vegas.moved_at.0 + rtt.0.max(index)),
                rtt: Some(rtt),
                endpoint: Nanos::ZERO,
                acked_bytes: vegas.window_bytes(),
                acked_chunks: 1,
                in_flight_bytes: vegas.window_bytes(),
                window_limited: limited,
                chunk_bytes: 4096,
            };
            vegas.on_ack(&sample);
            vegas.packets as u64
        };
        (0..count).map(round).collect()
    }

    #[test]
    fn the_window_doubles_and_settles_with_the_wanted_packets_waiting() {
        let mut vegas = Vegas::new(VegasConfig::default(), Time::ZERO, &PathFacts::default());
        assert_eq!(rounds(&mut vegas, 4, true), [2, 4, 8, 16]);
        let settled = rounds(&mut vegas, 20, true);
        assert!(settled[10..].iter().all(|packets| (14..=18).contains(packets)), "{settled:?}");
    }

    #[test]
    fn a_trickle_opens_nothing_and_a_timeout_halves() {
        let mut vegas = Vegas::new(VegasConfig::default(), Time::ZERO, &PathFacts::default());
        assert_eq!(rounds(&mut vegas, 3, false), [1, 1, 1]);
        vegas.set(16.0);
        vegas.on_rto(Time(1));
        assert_eq!(vegas.window_bytes(), 8 * 4096);
    }

    #[test]
    fn the_settings_survive_their_text_form_and_bad_ones_are_refused() {
        assert_eq!("queue=9".parse::<VegasConfig>().unwrap().to_string(), "queue=9");
        assert_eq!("queue=0".parse::<VegasConfig>(), Err(ConfigError::Count));
        assert_eq!("delay=1us".parse::<VegasConfig>(), Err(ConfigError::Setting));
    }
}
