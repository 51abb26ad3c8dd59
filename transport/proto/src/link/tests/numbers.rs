//! Paths whose transmission numbers are all outstanding: what is late then, and what was refused.

use super::paths::send;
use super::wire::{Faults, Frame, Wire};
use super::*;
use crate::Carrier;
use towpath_cc::{ControllerConfig, FixedWindowConfig};

/// Numbers that the peer has receives for.
const NUMBERS: u64 = 32;

/// Bytes of a message.
const LEN: usize = 100;

fn open(carrier: Carrier) -> (Wire, ChannelId) {
    let window = FixedWindowConfig::new(1 << 20).unwrap();
    // A message makes a chunk.
    let tune = |config: LinkConfig| {
        config.controller(ControllerConfig::Fixed(window)).chunk_bytes_max(LEN as u32 + 8)
    };
    let mut wire = Wire::with_carriers(1, Faults::default(), &[carrier], tune);
    for end in &mut wire.ends {
        end.link.paths[0].limit_numbers(NUMBERS);
    }
    let channel = wire.open_channel(0, false);
    // Until round trips are known.
    for round in 0..20 {
        send(&mut wire, channel, round..round + 1, LEN);
        wire.run_until(Wire::settled);
    }
    (wire, channel)
}

#[test]
fn acks_that_are_late_when_all_numbers_are_used_are_no_timeout() {
    let (mut wire, channel) = open(Carrier::Uc);
    send(&mut wire, channel, 100..200, LEN);
    wire.turn(0);
    assert_eq!(wire.ends[0].link.paths[0].tx.span(), NUMBERS - 1, "one is left for a probe");
    // Later than a tail probe is sent, and sooner than a timeout.
    wire.away_until[1] = wire.now + Nanos::from_micros(600);
    wire.run_until(Wire::settled);
    let stats = wire.ends[0].link.stats();
    assert_eq!((stats.rtos, stats.losses_by_gap), (0, 0));
    assert_eq!((stats.tail_probes, stats.chunks_retransmitted), (1, 1), "the newest, once");
}

#[test]
fn probes_that_took_the_last_number_are_waited_for_as_long_as_any() {
    let (mut wire, channel) = open(Carrier::Uc);
    send(&mut wire, channel, 100..200, LEN);
    wire.turn(0);
    let now = wire.now;
    // It gets lost.
    let _ = wire.ends[0].link.transmit_probe(now, 0, None);
    assert!(!wire.ends[0].link.paths[0].has_number_for_probe());
    wire.away_until[1] = wire.now + Nanos::from_micros(600);
    wire.run_until(Wire::settled);
    let stats = wire.ends[0].link.stats();
    assert_eq!((stats.rtos, stats.chunks_retransmitted), (0, 0));
}

#[test]
fn an_only_path_of_rc_asks_again_when_all_that_is_outstanding_was_refused() {
    for carrier in [Carrier::Rc, Carrier::Tcp, Carrier::Uc] {
        println!("{carrier:?}");
        let (mut wire, channel) = open(carrier);
        send(&mut wire, channel, 100..200, LEN);
        wire.turn(0);
        // Damaged in memory, say: the carrier has brought them, and the peer does not take them.
        for (_, frame) in wire.flight.values_mut() {
            if let Frame::Chunk { payload, .. } = frame {
                payload[0] ^= 1;
            }
        }
        wire.run_until(|wire| wire.settled() || wire.ends[0].down.is_some());
        assert_eq!(wire.ends[0].down, None, "{carrier:?}");
        assert_eq!(wire.ends[1].received.len(), 120, "{carrier:?}");
        let stats = wire.ends[0].link.stats();
        assert!(stats.chunks_retransmitted >= NUMBERS - 1, "{carrier:?}");
        wire.check_clean();
    }
}
