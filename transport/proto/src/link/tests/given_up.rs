//! What giving messages up says of the network, and what it costs.

use super::paths::{EACH, send};
use super::wire::{Faults, Frame, Wire};
use super::*;
use crate::event::Outcome;

#[test]
fn chunks_that_come_behind_their_abandon_on_another_path_are_no_loss() {
    for seed in 0..20 {
        println!("seed {seed}");
        let tune = |config: LinkConfig| config.spreading(EACH).seed(seed);
        let mut wire = Wire::with_paths(seed, Faults::default(), 2, tune);
        let channel = wire.open_channel(0, false);
        send(&mut wire, channel, 0..32, 10_000);
        wire.run_until(Wire::settled);
        let longest = |wire: &Wire| wire.ends[0].link.flow.chunk_size.body_within(u64::MAX);
        let chunk_bytes = longest(&wire);
        for round in 1..20 {
            let first = round * 100;
            send(&mut wire, channel, first..first + 8, 10_000);
            wire.turn(0);
            for token in first..first + 8 {
                if let Some((key, _)) = wire.ends[0].sending.get(&token) {
                    let _ = wire.ends[0].link.cancel(*key);
                }
            }
            wire.turn(0);
            // What is under way on one path is overtaken by what goes on the other.
            let slow = PathId((round % 2) as u8);
            let flight = core::mem::take(&mut wire.flight);
            for ((at, order), (to, frame)) in flight {
                let is_slow = matches!(&frame, Frame::Chunk { path, .. } if *path == slow);
                let at = if is_slow { at + 50_000 } else { at };
                wire.flight.insert((at, order), (to, frame));
            }
            wire.run_until(Wire::settled);
            send(&mut wire, channel, first + 50..first + 58, 100);
            wire.run_until(Wire::settled);
        }
        let given_up = wire.ends[0].outcomes.values().filter(|&&o| o == Outcome::Abandoned);
        assert!(given_up.count() > 50, "seed {seed}");
        let stats = wire.ends[0].link.stats();
        assert_eq!(stats.losses_by_gap, 0, "seed {seed}: the wire loses nothing");
        assert_eq!(stats.refused_by_peer, 0, "seed {seed}: what came too late is acknowledged");
        assert_eq!(longest(&wire), chunk_bytes, "seed {seed}");
        assert!(wire.ends[0].link.paths().all(|path| path.lost == 0), "seed {seed}");
        wire.check_clean();
    }
}

#[test]
fn chunks_of_given_up_messages_that_an_only_path_loses_are_losses() {
    let (mut wire, channel) = Wire::open(3, Faults::default(), false);
    send(&mut wire, channel, 0..32, 10_000);
    wire.run_until(Wire::settled);
    wire.ends[0].send(channel, 100, vec![1; 10_000], Time::NEVER);
    wire.turn(0);
    wire.flight.clear();
    let (key, _) = wire.ends[0].sending[&100].clone();
    wire.ends[0].link.cancel(key).unwrap();
    wire.run_until(Wire::settled);
    let stats = wire.ends[0].link.stats();
    assert_eq!((stats.losses_by_gap, stats.refused_by_peer), (1, 0));
}

/// What was looked at so far to give messages up, in messages.
fn steps(link: &Link) -> u64 {
    let queues = link.channels.all.iter().flatten().map(|channel| channel.tx.queue.steps);
    link.sends.messages.steps.get() + queues.sum::<u64>()
}

#[test]
fn giving_up_thousands_of_messages_takes_a_few_steps_for_each() {
    // All deadlines at once, all cancelled one by one from either end, and some of them anyhow.
    for (how, has_deadline) in [(0, true), (1, false), (2, false), (3, false)] {
        println!("how {how}");
        let tune = |config: LinkConfig| config.credit_total(4 * 128);
        let mut wire = Wire::new(1, Faults::default(), tune);
        let channels: Vec<ChannelId> =
            (0..4).map(|_| wire.ends[0].link.open_channel(false).unwrap()).collect();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.len() == 4));
        let count = 4_096;
        let deadline = wire.now + Nanos::from_micros(100);
        let deadline = if has_deadline { deadline } else { Time::NEVER };
        for token in 0..count {
            let channel = channels[token as usize % 4];
            wire.ends[0].send(channel, token, vec![1; 3_000], deadline);
        }
        let before = steps(&wire.ends[0].link);
        wire.turn(0);
        let mut tokens: Vec<u64> = (0..count).collect();
        match how {
            1 => {}
            2 => tokens.reverse(),
            3 => tokens = (0..count).map(|token| token * 1_013 % count).collect(),
            _ => tokens.clear(),
        }
        for token in tokens {
            let (key, _) = wire.ends[0].sending[&token].clone();
            wire.ends[0].link.cancel(key).unwrap();
        }
        wire.run_until(Wire::settled);
        let given_up = wire.ends[0].outcomes.values().filter(|&&o| o == Outcome::Abandoned);
        assert!(given_up.count() as u64 > count / 2);
        let steps = steps(&wire.ends[0].link) - before;
        assert!(steps <= 8 * count, "{steps} steps for {count} messages, how {how}");
        wire.check_clean();
    }
}
