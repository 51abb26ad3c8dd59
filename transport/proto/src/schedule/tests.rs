//! What fair queueing promises, with channels that come, go, and send chunks of any length.

use super::FairQueue;
use alloc::vec;
use alloc::vec::Vec;
use towpath_base::Prng;

/// Serves channels that always have more, by their place in `lengths`; what each one got.
fn serve(
    scheduler: &mut FairQueue,
    lengths: &[u32],
    weights: &[u16],
    total_bytes: u64,
) -> Vec<u64> {
    for (place, &weight) in weights.iter().enumerate() {
        scheduler.enter(place as u32, weight);
    }
    let mut got = vec![0; lengths.len()];
    while got.iter().sum::<u64>() < total_bytes {
        let place = scheduler.turn().expect("all have more") as usize;
        got[place] += u64::from(lengths[place]);
        scheduler.served(lengths[place], Some(weights[place]));
    }
    got
}

#[test]
fn equal_weights_give_each_channel_a_chunk_in_turn() {
    let mut line = FairQueue::default();
    let got = serve(&mut line, &[1, 1, 1], &[16; 3], 300);
    assert_eq!(got, [100, 100, 100]);
}

#[test]
fn weighted_fair_shares_bytes_by_weight_whatever_the_lengths() {
    let mut line = FairQueue::default();
    let (lengths, weights) = ([64, 4096, 57_344, 57_344], [16, 16, 16, 32]);
    let total = 100 << 20;
    let got = serve(&mut line, &lengths, &weights, total);
    for (place, (&got, &weight)) in got.iter().zip(&weights).enumerate() {
        let due = total as f64 * f64::from(weight) / 80.0;
        // No more than a chunk of its own and one of the longest off.
        let off = (got as f64 - due).abs();
        assert!(off <= 2.0 * 57_344.0, "channel {place} got {got} where {due} was due");
    }
}

#[test]
fn a_newcomer_waits_for_one_chunk_of_each_other_and_is_owed_nothing() {
    let mut line = FairQueue::default();
    let busy = 7;
    serve(&mut line, &[57_344; 7], &[16; 7], 7 << 20);
    let late = busy;
    line.enter(late, 16);
    let mut waited = 0;
    while line.turn() != Some(late) {
        line.served(57_344, Some(16));
        waited += 1;
    }
    assert!(waited <= busy, "waited for {waited} chunks");
    // It was idle for long: that earns it no more than its turn.
    let mut own = 0;
    for _ in 0..800 {
        own += u32::from(line.turn() == Some(late));
        line.served(57_344, Some(16));
    }
    assert!((99..=102).contains(&own), "{own} of 800 turns");
}

#[test]
fn who_comes_and_goes_gets_no_more_than_who_stays() {
    let mut line = FairQueue::default();
    line.enter(0, 16);
    line.enter(1, 16);
    let (mut got, mut outside) = ([0u64; 2], false);
    for _ in 0..10_000 {
        let place = line.turn().expect("channel 0 always has more") as usize;
        got[place] += 1000;
        // Channel 1 leaves after each chunk, and is back before the next.
        line.served(1000, (place == 0).then_some(16));
        outside |= place == 1;
        if core::mem::take(&mut outside) {
            line.enter(1, 16);
        }
    }
    assert!(got[0].abs_diff(got[1]) <= 2000, "{got:?}");
}

#[test]
fn nobody_is_lost_and_nobody_is_twice_in_line_whatever_happens() {
    let seed = 0x5eed;
    let mut random = Prng::new(seed);
    let mut line = FairQueue::default();
    let mut inside = [false; 32];
    for step in 0..20_000 {
        let place = random.below(32) as u32;
        match random.below(5) {
            0 | 1 if !inside[place as usize] => {
                line.enter(place, 1 + random.below(64) as u16);
                inside[place as usize] = true;
            }
            2 => {
                line.remove(place);
                inside[place as usize] = false;
            }
            3 => {
                let Some(turn) = line.turn() else { continue };
                line.pass();
                inside[turn as usize] = false;
            }
            _ => {
                let Some(turn) = line.turn() else { continue };
                assert!(inside[turn as usize], "seed {seed}, step {step}");
                let more = (random.below(2) == 0).then_some(16);
                line.served(random.below(60_000) as u32, more);
                inside[turn as usize] = more.is_some();
            }
        }
    }
    let mut left = 0;
    while line.turn().is_some() {
        line.pass();
        left += 1;
    }
    assert_eq!(left, inside.iter().filter(|&&is| is).count(), "seed {seed}");
}
