//! Chunks that are handed out or in several at a time are those that would be one by one.

use super::wire::Trace;
use super::*;
use crate::Carrier;
use crate::config::Spreading;
use towpath_cc::ControllerConfig;

/// What was sent by both ends, whatever it was, and what they counted, while a driver had room for
/// so many chunks at a time and handed in so many.
fn trace(seed: u64, room_max: u64, row_max: usize) -> (Trace, [LinkStats; 2]) {
    let mut prng = Prng::new(seed);
    let carriers: &[Carrier] = match prng.below(8) {
        0..3 => &[Carrier::Uc],
        3..5 => &[Carrier::Uc; 2],
        5..7 => &[Carrier::Uc; 16],
        _ => &[Carrier::Tcp],
    };
    let names = ControllerConfig::NAMES;
    let controller: ControllerConfig =
        names[prng.below(names.len() as u64) as usize].parse().expect("its own name");
    let spreading = match prng.below(3) {
        0 => Spreading::Message,
        1 => Spreading::Bytes(10_000),
        _ => Spreading::default(),
    };
    let quota = [4, 128][prng.below(2) as usize];
    let tune = |config: LinkConfig| {
        let config = config.controller(controller);
        config.spreading(spreading).quota_chunks(quota).credit_total(1024)
    };
    let faults = if prng.chance(0.5) { ALL_FAULTS } else { Faults::default() };
    let mut wire = Wire::with_carriers(seed, faults, carriers, tune);
    (wire.room_max, wire.row_max) = (room_max, row_max);
    wire.trace = Some(Vec::new());
    let channels = prng.between(1, 3);
    for _ in 0..channels {
        wire.ends[0].link.open_channel(prng.chance(0.5)).unwrap();
    }
    wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.len() as u64 == channels));
    for token in 0..60 {
        let at = prng.below(2) as usize;
        let channel = wire.ends[at].channels[prng.below(channels) as usize];
        let len = any_len(&mut prng);
        let bytes = content(&mut prng, token, len);
        let deadline = if prng.chance(0.1) { wire.now + Nanos(50_000) } else { Time::NEVER };
        wire.ends[at].send(channel, token, bytes, deadline);
        if prng.chance(0.3) {
            wire.turn(at);
        }
    }
    wire.run_until(Wire::settled);
    wire.check_clean();
    let stats = wire.ends.each_ref().map(|end| end.link.stats());
    (wire.trace.take().unwrap(), stats)
}

#[test]
fn a_run_is_what_would_be_sent_one_by_one_and_so_is_a_row_that_comes() {
    let mut chunks = 0;
    for seed in 0..60 {
        let (one_by_one, stats) = trace(seed, 1, 1);
        for (room_max, row_max) in [(2, 1), (64, 1), (1, 2), (64, 64)] {
            let at_a_time = std::format!("seed {seed}, {room_max} out and {row_max} in at a time");
            let (other, other_stats) = trace(seed, room_max, row_max);
            let first = one_by_one.iter().zip(&other).position(|(one, other)| one != other);
            assert_eq!(first, None, "{at_a_time}");
            assert_eq!((one_by_one.len(), stats), (other.len(), other_stats), "{at_a_time}");
        }
        chunks += one_by_one.len();
    }
    assert!(chunks > 10_000, "{chunks}");
}
