//! Two links over a faulty wire: delivery, loss, credit, giving up, channels.

mod as_they_come;
mod bufs;
mod carriers;
mod credit;
mod end;
mod frames;
mod given_up;
mod grow;
mod hostile;
mod mtu;
mod numbers;
mod order;
mod paths;
mod piggyback;
mod ports;
mod presence;
mod queues;
mod rails;
mod renewals;
mod runs;
mod spurious;
mod stalls;
mod wire;

use super::*;
use crate::channel::{SendError, SendRequest};
use crate::event::Outcome;
use crate::event::{DownReason, SendKey};
use alloc::vec;
use alloc::vec::Vec;
use std::println;
use towpath_base::Prng;
use wire::{Faults, Wire};

extern crate std;

fn content(prng: &mut Prng, token: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    let mark = token.to_le_bytes();
    let marked = len.min(8);
    bytes[..marked].copy_from_slice(&mark[..marked]);
    bytes
}

fn any_len(prng: &mut Prng) -> usize {
    match prng.below(10) {
        0..5 => prng.between(8, 300) as usize,
        5..9 => prng.between(8, 200_000) as usize,
        _ => prng.between(8, 2_000_000) as usize,
    }
}

const ALL_FAULTS: Faults = Faults { drop: 0.03, duplicate: 0.03, late: 0.02, corrupt: 0.02 };

fn exchange(seed: u64, ordered: bool, faults: Faults) -> Wire {
    println!("seed {seed} ordered {ordered}");
    let (mut wire, channel) = Wire::open(seed, faults, ordered);
    let mut prng = Prng::new(seed ^ 0x5eed);
    let mut sent = [Vec::new(), Vec::new()];
    for token in 0..60 {
        for (at, sent) in sent.iter_mut().enumerate() {
            let len = any_len(&mut prng);
            let bytes = content(&mut prng, token, len);
            sent.push(bytes.clone());
            wire.ends[at].send(channel, token, bytes, Time::NEVER);
        }
        wire.turn((token % 2) as usize);
    }
    wire.run_until(Wire::settled);
    for (at, mut sent) in sent.into_iter().enumerate() {
        let mut received = wire.ends[1 - at].received.clone();
        if !ordered {
            sent.sort();
            received.sort();
        }
        assert!(received == sent, "seed {seed}: messages of end {at} differ");
        assert!(wire.ends[at].outcomes.values().all(|&o| o == Outcome::Delivered));
    }
    wire.check_clean();
    wire
}

#[test]
fn messages_arrive_once_and_intact_under_all_faults_ordered_and_not() {
    for seed in 0..60 {
        exchange(seed, seed % 2 == 0, ALL_FAULTS);
    }
}

#[test]
fn without_faults_nothing_is_sent_twice_and_no_timer_fires() {
    let wire = exchange(1, true, Faults::default());
    for end in &wire.ends {
        let stats = end.link.stats();
        assert_eq!((stats.chunks_retransmitted, stats.rtos, stats.tail_probes), (0, 0, 0));
        assert_eq!((stats.violations, stats.chunks_duplicate), (0, 0));
    }
}

#[test]
fn loss_alone_is_repaired_by_gaps_and_almost_never_by_timeouts() {
    let wire = exchange(7, false, Faults { drop: 0.02, ..Faults::default() });
    let stats = wire.ends[0].link.stats();
    assert!(stats.losses_by_gap > 0);
    assert!(stats.rtos <= 2, "{stats:?}");
}

#[test]
fn a_reader_that_keeps_its_buffers_stops_its_channel_and_probes_find_the_new_grant() {
    let (mut wire, channel) = Wire::open(3, Faults { drop: 0.2, ..Faults::default() }, true);
    wire.ends[1].hoards = true;
    for token in 0..400 {
        wire.ends[0].send(channel, token, vec![1; 100], Time::NEVER);
    }
    let quota = 128;
    wire.run_until(|wire| wire.ends[0].link.stats().credit_probes > 3);
    assert_eq!((wire.ends[1].received.len(), wire.ends[1].hoarded), (quota, quota as u32));
    wire.ends[1].hoards = false;
    let hoarded = core::mem::take(&mut wire.ends[1].hoarded);
    wire.ends[1].link.release(channel, hoarded);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 400);
    assert_eq!(wire.ends[1].link.stats().violations, 0);
}

/// Each message, by its token, was received once if that is its outcome, and else not at all.
fn check_outcomes(wire: &Wire, contents: &[Vec<u8>], seed: u64) {
    for (token, bytes) in contents.iter().enumerate() {
        let seen = wire.ends[1].received.iter().filter(|r| *r == bytes).count();
        let want = match wire.ends[0].outcomes[&(token as u64)] {
            Outcome::Delivered => 1,
            Outcome::Abandoned => 0,
            Outcome::Unknown => panic!("the peer was never gone"),
        };
        assert_eq!(seen, want, "seed {seed} token {token}");
    }
}

#[test]
fn a_cancelled_message_has_the_outcome_that_its_receiver_saw() {
    for seed in 0..60 {
        println!("seed {seed}");
        let (mut wire, channel) = Wire::open(seed, ALL_FAULTS, seed % 2 == 0);
        let mut prng = Prng::new(seed);
        let mut contents = Vec::new();
        for token in 0..40 {
            let len = any_len(&mut prng);
            contents.push(content(&mut prng, token, len));
            let deadline = wire.now + Nanos(prng.below(400_000));
            let deadline = if prng.chance(0.5) { deadline } else { Time::NEVER };
            wire.ends[0].send(channel, token, contents[token as usize].clone(), deadline);
            wire.turn(0);
            if prng.chance(0.2) {
                let (key, _) = wire.ends[0].sending[&token].clone();
                wire.ends[0].link.cancel(key).unwrap();
            }
        }
        wire.run_until(Wire::settled);
        check_outcomes(&wire, &contents, seed);
        wire.check_clean();
    }
}

#[test]
fn chunks_that_come_behind_their_abandon_do_not_make_the_message_delivered() {
    let (mut wire, channel) = Wire::open(8, Faults::default(), true);
    wire.ends[0].send(channel, 1, vec![7; 100_000], Time::NEVER);
    wire.turn(0);
    let chunks = core::mem::take(&mut wire.flight);
    let (key, _) = wire.ends[0].sending[&1].clone();
    wire.ends[0].link.cancel(key).unwrap();
    wire.turn(0);
    let abandon = core::mem::take(&mut wire.flight);
    for (to, frame) in abandon.into_values().chain(chunks.into_values()) {
        wire.deliver(to, frame);
    }
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[0].outcomes[&1], Outcome::Abandoned);
    assert_eq!(wire.ends[1].received.len(), 0);
    wire.check_clean();
}

#[test]
fn abandoned_messages_give_the_credit_back_of_chunks_that_never_came() {
    let (mut wire, channel) = Wire::open(6, Faults::default(), false);
    for token in 0..64 {
        wire.faults.drop = 1.0;
        let deadline = wire.now + Nanos(1000);
        wire.ends[0].send(channel, token, vec![7; 100_000], deadline);
        wire.turn(0);
        wire.faults.drop = 0.0;
        wire.run_until(Wire::settled);
        assert_eq!(wire.ends[0].outcomes[&token], Outcome::Abandoned);
    }
    wire.ends[0].send(channel, 64, vec![8; 10], Time::NEVER);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[0].link.stats().credit_probes, 0, "128 chunks are lost, and made good");
    wire.check_clean();
}

#[test]
fn a_whole_message_of_many_short_segments_fits_the_smallest_quota() {
    let tune = |config: LinkConfig| config.quota_chunks(1);
    let (mut wire, channel) = Wire::open_tuned(7, Faults::default(), true, tune);
    for token in 0..10 {
        let segments = [1, 2, 3, 4];
        let (segments, deadline) = (&segments, Time::NEVER);
        let request = SendRequest { channel, token, segments, deadline, at_pages: false };
        let key = wire.ends[0].link.send(&request).unwrap();
        wire.ends[0].sending.insert(token, (key, vec![9; 10]));
    }
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received, vec![vec![9; 10]; 10]);
    wire.check_clean();
}

#[test]
fn a_deadline_frees_a_stream_at_both_ends_and_the_reader_is_told() {
    let (mut wire, channel) = Wire::open(5, Faults::default(), true);
    let deadline = wire.now + Nanos::from_micros(100);
    wire.ends[0].send(channel, 1, vec![7; 16 << 20], deadline);
    wire.ends[0].send(channel, 2, vec![8; 10], Time::NEVER);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[0].outcomes[&1], Outcome::Abandoned);
    assert_eq!((wire.ends[1].aborted, &wire.ends[1].received), (1, &vec![vec![8; 10]]));
    wire.check_clean();
}

#[test]
fn hosts_that_were_away_for_long_do_not_take_that_for_the_silence_of_their_peers() {
    for has_sent in [true, false] {
        let (mut wire, channel) = Wire::open(5, Faults::default(), true);
        wire.run_until(Wire::settled);
        if has_sent {
            wire.ends[0].send(channel, 1, vec![7; 100_000], Time::NEVER);
            wire.turn(0);
        }
        // Nobody runs, and nothing is lost.
        wire.now += Nanos::from_secs(60);
        wire.ends[0].send(channel, 2, vec![8; 10], Time::NEVER);
        wire.run_until(|wire| wire.ends[0].outcomes.contains_key(&2) && wire.settled());
        wire.run_for(Nanos::from_secs(30));
        assert!(wire.ends.iter().all(|end| end.down.is_none()), "sent before: {has_sent}");
        assert_eq!(wire.ends[0].outcomes[&2], Outcome::Delivered);
    }
}

#[test]
fn a_silent_peer_ends_the_link_and_every_message_has_an_outcome() {
    let (mut wire, channel) = Wire::open(5, Faults::default(), true);
    wire.faults.drop = 1.0;
    wire.ends[0].send(channel, 1, vec![7; 1000], Time::NEVER);
    for token in 2..20 {
        wire.ends[0].send(channel, token, vec![7; 1 << 20], Time::NEVER);
    }
    wire.run_until(|wire| wire.ends[0].down.is_some());
    assert!(matches!(wire.ends[0].down, Some(DownReason::Silent(_))));
    assert_eq!(wire.ends[0].outcomes[&1], Outcome::Unknown);
    assert_eq!(wire.ends[0].outcomes[&19], Outcome::Abandoned, "nothing of it was sent");
    assert_eq!(wire.ends[0].outcomes.len(), 19);
}

#[test]
fn goodbye_delivers_what_is_queued_and_then_ends_both_ends() {
    for seed in 0..20 {
        let (mut wire, channel) = Wire::open(seed, ALL_FAULTS, true);
        for token in 0..20 {
            wire.ends[0].send(channel, token, vec![7; 10_000], Time::NEVER);
        }
        wire.ends[0].link.goodbye();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.down.is_some()));
        assert_eq!(wire.ends[0].down, Some(DownReason::Local));
        assert_eq!(wire.ends[1].down, Some(DownReason::Goodbye));
        assert_eq!(wire.ends[1].received.len(), 20);
    }
}

#[test]
fn channels_open_and_close_many_times_and_leave_nothing() {
    let mut wire = Wire::new(9, ALL_FAULTS, |config| config);
    for round in 0..100u64 {
        let at = (round % 2) as usize;
        let channel = wire.open_channel(at, true);
        wire.ends[at].send(channel, round, vec![round as u8; 100], Time::NEVER);
        wire.ends[at].link.close_channel(channel).unwrap();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.is_empty()));
        assert_eq!(wire.ends[at].outcomes[&round], Outcome::Delivered);
    }
    wire.run_until(Wire::settled);
    for end in &wire.ends {
        assert_eq!((end.link.channels.open, end.link.channels.quota_sum), (0, 0));
    }
}

#[test]
fn a_place_used_again_at_once_is_another_channel_to_whatever_comes_late() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut wire = Wire::new(seed, ALL_FAULTS, |config| config.channels_max(1));
        let mut ids = Vec::new();
        for round in 0..20u64 {
            let channel = wire.ends[0].link.open_channel(true).unwrap();
            assert_eq!(channel.place(), 0);
            ids.push(channel);
            // The peer may not have heard of the end of the channel before.
            wire.run_until(|wire| wire.ends.iter().all(|end| end.channels == [channel]));
            wire.ends[0].send(channel, round, vec![round as u8; 100], Time::NEVER);
            wire.run_until(|wire| wire.ends[0].sending.is_empty());
            // Closed from the far side: the opener knows first whether the place is free.
            wire.ends[1].link.close_channel(channel).unwrap();
            wire.run_until(|wire| wire.ends[0].channels.is_empty());
        }
        wire.run_until(Wire::settled);
        assert!(wire.ends[1].received.iter().map(|m| u64::from(m[0])).eq(0..20), "seed {seed}");
        ids.dedup();
        assert_eq!(ids.len(), 20);
    }
}

#[test]
fn acks_stay_exact_where_their_32_bits_wrap() {
    for seed in 0..10 {
        let mut wire = Wire::new(seed, ALL_FAULTS, |config| config);
        for end in &mut wire.ends {
            end.link.paths[0].tx = crate::path::SendWindow::starting_at((1 << 32) - 40);
        }
        let channel = wire.open_channel(0, true);
        for token in 0..100 {
            for end in &mut wire.ends {
                end.send(channel, token, vec![token as u8; 60_000], Time::NEVER);
            }
        }
        wire.run_until(Wire::settled);
        for end in &wire.ends {
            assert!(end.received.iter().map(|m| u64::from(m[0])).eq(0..100), "seed {seed}");
            assert!(end.link.paths[0].tx.next() > 1 << 32, "the wrap was passed");
            assert_eq!(end.link.stats().violations, 0);
        }
    }
}

#[test]
fn a_channel_that_runs_out_of_credit_again_and_again_is_listed_once() {
    let tune = |config: LinkConfig| config.quota_chunks(8);
    let (mut wire, channel) = Wire::open_tuned(1, Faults::default(), false, tune);
    for token in 0..2_000 {
        wire.ends[0].send(channel, token, vec![1; 10], Time::NEVER);
    }
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 2_000);
    assert!(
        wire.ends[0].link.channels.starved.len() <= 1,
        "{}",
        wire.ends[0].link.channels.starved.len()
    );
}

#[test]
fn credit_stays_exact_where_its_16_bits_wrap() {
    let (mut wire, channel) = Wire::open(1, Faults::default(), false);
    for round in 0..700u64 {
        for token in 0..100 {
            wire.ends[0].send(channel, round * 100 + token, vec![1; 10], Time::NEVER);
        }
        wire.run_until(Wire::settled);
    }
    assert_eq!(wire.ends[1].received.len(), 70_000);
    let (sender, receiver) = (wire.ends[0].link.stats(), wire.ends[1].link.stats());
    assert_eq!((receiver.violations, sender.violations, sender.credit_probes), (0, 0, 0));
}

#[test]
fn a_channel_beyond_the_total_credit_is_refused_at_both_ends() {
    let mut wire = Wire::new(1, Faults::default(), |config| config);
    for _ in 0..2 {
        wire.ends[0].link.open_channel(false).unwrap();
    }
    assert_eq!(wire.ends[0].link.open_channel(false), Err(OpenError::NoCredit));
    let advice = std::string::ToString::to_string(&OpenError::NoCredit);
    for setting in ["credit_total", "quota_chunks", "32 channels", "Raise", "both ends"] {
        assert!(advice.contains(setting), "{advice}");
    }
    wire.run_until(|wire| wire.ends[1].channels.len() == 2);
    assert_eq!(wire.ends[1].link.open_channel(false), Err(OpenError::NoCredit));
}
