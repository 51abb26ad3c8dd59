//! Messages whose last segment is supplied while they are being sent.

use super::wire::{Faults, Wire};
use super::*;
use crate::channel::SupplyError;
use crate::event::ChannelId;
use crate::limits::MESSAGE_WINDOW;
use towpath_cc::{ControllerConfig, FixedWindowConfig};

/// What is still to be supplied of a message, in the order in which it will be.
struct Supplier {
    token: u64,
    ranges: Vec<(u32, u32)>,
    /// It stops before it has supplied all.
    gives_up: bool,
}

impl Supplier {
    fn new(prng: &mut Prng, token: u64, len: u32) -> Self {
        let mean = [3_000, 20_000, 60_000][prng.below(3) as usize];
        let (mut at, mut ranges) = (0, Vec::new());
        while at < len {
            let step = prng.between(600, 2 * mean) as u32;
            // Mostly pages, as pieces of another message are.
            let unit = if prng.chance(0.8) { 4096 } else { 8 };
            let end = (at + step).next_multiple_of(unit).min(len);
            ranges.push((at, end));
            at = end;
        }
        // From the back, in order, or in any order.
        match prng.below(4) {
            0 => {}
            1 => ranges.reverse(),
            _ => {
                for at in (1..ranges.len()).rev() {
                    ranges.swap(at, prng.below(at as u64 + 1) as usize);
                }
            }
        }
        Self { token, ranges, gives_up: false }
    }

    /// Supplies a few pieces, perhaps none.
    fn go_on(&mut self, prng: &mut Prng, wire: &mut Wire) {
        let stop = if self.gives_up { self.ranges.len() / 2 } else { 0 };
        for _ in 0..prng.below(4) {
            if self.ranges.len() > stop
                && let Some(range) = self.ranges.pop()
            {
                wire.ends[0].supply(self.token, range);
            }
        }
    }
}

fn begin(prng: &mut Prng, wire: &mut Wire, at: (ChannelId, u64), deadline: Time) -> Vec<u8> {
    let (channel, token) = at;
    let len = prng.between(1, 900_000) as usize;
    let head = prng.between(8, 300) as usize;
    let bytes = content(prng, token, head + len);
    wire.ends[0].grow(channel, (token, head), bytes.clone(), deadline);
    bytes
}

fn tuned(seed: u64) -> (Wire, ChannelId) {
    let comes = seed.is_multiple_of(2);
    let quota = [8, 32, 256][(seed % 3) as usize];
    let tune = |config: LinkConfig| config.pieces_as_they_come(comes).quota_chunks(quota);
    let faults = if seed.is_multiple_of(5) { Faults::default() } else { ALL_FAULTS };
    let (mut wire, channel) = Wire::open_tuned(seed, faults, false, tune);
    wire.ends.iter_mut().for_each(|end| end.as_they_come = comes);
    (wire, channel)
}

#[test]
fn pieces_supplied_in_any_order_with_pauses_arrive_as_they_were_beside_other_messages() {
    let mut early = 0;
    for seed in 0..80 {
        println!("seed {seed}");
        let (mut wire, channel) = tuned(seed);
        let mut prng = Prng::new(seed ^ 0x6507);
        let (mut sent, mut suppliers) = (Vec::new(), Vec::new());
        for token in 0..16 {
            let at = (channel, token);
            if token % 4 == 3 {
                let len = any_len(&mut prng);
                sent.push(content(&mut prng, token, len));
                wire.ends[0].send(channel, token, sent[token as usize].clone(), Time::NEVER);
            } else {
                sent.push(begin(&mut prng, &mut wire, at, Time::NEVER));
                let head = wire.ends[0].grown[&token].head;
                let len = sent[token as usize].len() - head;
                suppliers.push(Supplier::new(&mut prng, token, len as u32));
            }
        }
        while suppliers.iter().any(|supplier| !supplier.ranges.is_empty()) {
            for supplier in &mut suppliers {
                supplier.go_on(&mut prng, &mut wire);
            }
            let pause = prng.between(1, 60_000);
            wire.run_for(Nanos(pause));
        }
        wire.run_until(Wire::settled);
        let mut received = wire.ends[1].received.clone();
        sent.sort();
        received.sort();
        assert!(received == sent, "seed {seed}");
        assert!(wire.ends[0].outcomes.values().all(|&o| o == Outcome::Delivered));
        early += wire.ends[1].out_of_order;
        wire.check_clean();
        assert_eq!((wire.ends[1].link.stats().violations, held(&wire, channel)), (0, (0, 0)));
    }
    assert!(early > 100, "{early} pieces came before others");
}

/// Growing messages of a channel, and credit that they may hold.
fn held(wire: &Wire, channel: ChannelId) -> (u32, u32) {
    let tx = &wire.ends[0].link.channel(channel.0).unwrap().tx;
    assert!(tx.growing > 0 || tx.growing_held == 0);
    (tx.growing, tx.growing_held)
}

#[test]
fn what_is_given_up_at_any_stage_leaves_nothing_and_the_others_arrive() {
    let (mut abandoned, mut delivered) = (0, 0);
    for seed in 0..80 {
        println!("seed {seed}");
        let (mut wire, channel) = tuned(seed);
        let mut prng = Prng::new(seed ^ 0x61fe);
        let (mut contents, mut suppliers) = (Vec::new(), Vec::new());
        for token in 0..12 {
            let by_deadline = prng.chance(0.3);
            let deadline = wire.now + Nanos(prng.below(3_000_000));
            let deadline = if by_deadline { deadline } else { Time::NEVER };
            contents.push(begin(&mut prng, &mut wire, (channel, token), deadline));
            let head = wire.ends[0].grown[&token].head;
            let len = contents[token as usize].len() - head;
            let mut supplier = Supplier::new(&mut prng, token, len as u32);
            supplier.gives_up = by_deadline && prng.chance(0.5);
            suppliers.push(supplier);
        }
        for _ in 0..200 {
            for supplier in &mut suppliers {
                supplier.go_on(&mut prng, &mut wire);
                if prng.chance(0.01)
                    && let Some(&(key, _)) = wire.ends[0].sending.get(&supplier.token)
                {
                    wire.ends[0].link.cancel(key).unwrap();
                    let supplied = wire.ends[0].link.supply(key, 0, 8);
                    assert_eq!(supplied, Err(SupplyError::Ended));
                }
            }
            let pause = prng.between(1, 60_000);
            wire.run_for(Nanos(pause));
        }
        for supplier in &mut suppliers {
            if !supplier.gives_up {
                for range in core::mem::take(&mut supplier.ranges) {
                    wire.ends[0].supply(supplier.token, range);
                }
            }
        }
        wire.run_until(Wire::settled);
        check_outcomes(&wire, &contents, seed);
        wire.check_clean();
        assert_eq!(held(&wire, channel), (0, 0));
        let all = wire.ends[0].outcomes.values();
        abandoned += all.clone().filter(|&&outcome| outcome == Outcome::Abandoned).count();
        delivered += all.filter(|&&outcome| outcome == Outcome::Delivered).count();
        let census = wire.ends[1].link.census();
        assert_eq!(wire.ends[0].link.census().credit_used_total, census.credit_taken_total);
        assert_eq!(census.credit_held, 0);
    }
    assert!(abandoned > 100 && delivered > 100, "{abandoned} abandoned, {delivered} delivered");
}

#[test]
fn messages_that_wait_for_their_supplier_hold_half_of_the_credit_and_no_other_message_waits() {
    for (len, comes) in [(250_000, false), (800_000, false), (250_000, true), (800_000, true)] {
        let tune = |config: LinkConfig| config.pieces_as_they_come(comes).quota_chunks(32);
        let (mut wire, channel) = Wire::open_tuned(1, Faults::default(), false, tune);
        wire.ends.iter_mut().for_each(|end| end.as_they_come = comes);
        // Of each all but the first page, and whoever reads in order waits for that.
        for token in 0..20 {
            wire.ends[0].grow(channel, (token, 8), vec![token as u8; 8 + len], Time::NEVER);
            wire.ends[0].supply(token, (4096, len as u32));
        }
        wire.run_for(Nanos::from_millis(50));
        let (growing, in_doubt) = held(&wire, channel);
        let credit_held = wire.ends[1].link.census().credit_held;
        assert!(growing == 20 && in_doubt <= 16, "{in_doubt} of 32");
        assert!(credit_held <= 16, "{credit_held} of 32, {len} bytes");
        for token in 100..150 {
            wire.ends[0].send(channel, token, vec![7; 200_000], Time::NEVER);
        }
        wire.run_until(|wire| (100..150).all(|token| wire.ends[0].outcomes.contains_key(&token)));
        assert_eq!(wire.ends[0].sending.len(), 20);
        for token in 0..20 {
            wire.ends[0].supply(token, (0, 4096));
        }
        wire.run_until(Wire::settled);
        assert!(wire.ends[0].outcomes.values().all(|&o| o == Outcome::Delivered));
        assert_eq!(held(&wire, channel), (0, 0));
        wire.check_clean();
    }
}

#[test]
fn a_message_that_waits_holds_others_up_only_when_ids_run_out_and_its_bytes_free_them() {
    let (mut wire, channel) = Wire::open(1, Faults::default(), false);
    wire.ends[0].grow(channel, (0, 8), vec![1; 100_008], Time::NEVER);
    wire.run_for(Nanos::from_millis(1));
    for token in 1..MESSAGE_WINDOW + 50 {
        wire.ends[0].send(channel, token, vec![2; 100], Time::NEVER);
    }
    wire.run_for(Nanos::from_millis(50));
    assert_eq!(wire.ends[0].outcomes.len() as u64, MESSAGE_WINDOW - 1);
    for range in [(40_960, 100_000), (0, 40_960)] {
        wire.ends[0].supply(0, range);
        wire.run_for(Nanos::from_millis(1));
    }
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len() as u64, MESSAGE_WINDOW + 50);
    wire.check_clean();
}

#[test]
fn what_is_supplied_in_front_of_the_rest_goes_at_once_and_comes_home_before_the_end() {
    let window = FixedWindowConfig::new(1 << 20).unwrap();
    let tune = |config: LinkConfig| config.controller(ControllerConfig::Fixed(window));
    let (mut wire, channel) = Wire::open_tuned(1, Faults::default(), false, tune);
    wire.ends[0].grow(channel, (0, 8), vec![1; 8 + 400_000], Time::NEVER);
    wire.ends[0].supply(0, (57_344, 114_688));
    wire.run_for(Nanos::from_millis(2));
    let grown = &wire.ends[0].grown[&0];
    assert_eq!((grown.home_bytes, &grown.supplied[..]), (57_344, &[(57_344, 114_688, 0)][..]));
    assert_eq!(wire.ends[1].link.census().credit_held, 2, "the head, and a piece behind a gap");
    wire.ends[0].supply(0, (114_688, 400_000));
    wire.ends[0].supply(0, (0, 57_344));
    wire.run_until(Wire::settled);
    let stats = wire.ends[1].link.stats();
    assert_eq!((wire.ends[1].received.len(), stats.violations), (1, 0));
    // Whole pieces, of which nothing was copied.
    assert_eq!(stats.frames_received, wire.ends[0].link.census().credit_used_total);
}

#[test]
fn only_messages_with_a_beginning_on_unordered_channels_grow() {
    let (mut wire, ordered) = Wire::open(1, Faults::default(), true);
    let unordered = wire.ends[0].link.open_channel(false).unwrap();
    wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.len() == 2));
    let link = &mut wire.ends[0].link;
    let mut grow = |channel, segments: &[u32]| {
        let (token, deadline) = (1, Time::NEVER);
        link.send_growing(&SendRequest { channel, token, segments, deadline, at_pages: false })
    };
    assert_eq!(grow(ordered, &[8, 100]), Err(SendError::Ordered));
    assert_eq!(grow(unordered, &[100]), Err(SendError::BadLayout));
    let grown = grow(unordered, &[8, 100]).unwrap();
    let (channel, deadline) = (ordered, Time::NEVER);
    let plain = SendRequest { channel, token: 2, segments: &[8], deadline, at_pages: false };
    let plain = link.send(&plain).unwrap();
    assert_eq!(link.supply(plain, 0, 8), Err(SupplyError::NotGrowing));
    assert_eq!(link.supply(grown, 0, 101), Err(SupplyError::OutOfRange { len: 100 }));
    assert_eq!(link.supply(grown, 0, 96), Ok(()));
    link.cancel(grown).unwrap();
    assert_eq!(link.supply(grown, 96, 4), Err(SupplyError::Ended));
}

#[test]
fn a_link_that_leaves_waits_for_what_is_still_to_come() {
    let (mut wire, channel) = Wire::open(3, Faults::default(), false);
    wire.ends[0].grow(channel, (0, 8), vec![1; 100_008], Time::NEVER);
    wire.run_for(Nanos::from_millis(1));
    wire.ends[0].link.goodbye();
    wire.run_for(Nanos::from_millis(20));
    assert!(wire.ends[0].down.is_none());
    wire.ends[0].supply(0, (0, 100_000));
    wire.run_until(|wire| wire.ends.iter().all(|end| end.down.is_some()));
    assert_eq!(wire.ends[0].outcomes[&0], Outcome::Delivered);
}
