//! Timely: start, steps, bounds.

use super::*;
use crate::limits::TIMELY_STEP_DEFAULT_BYTES_PER_S;

const PACKET: u32 = 4096;

fn timely() -> Timely {
    Timely::new(TimelyConfig::default(), Time::ZERO, &PathFacts::default())
}

/// `rounds` acks, a round trip apart; gives the time of the last.
fn acks(
    timely: &mut Timely,
    mut now: Time,
    rtt_us: u64,
    rounds: u32,
    window_limited: bool,
) -> Time {
    for _ in 0..rounds {
        now += Nanos::from_micros(rtt_us);
        timely.on_ack(&AckSample {
            now,
            rtt: Some(Nanos::from_micros(rtt_us)),
            endpoint: Nanos::ZERO,
            acked_bytes: u64::from(PACKET),
            acked_chunks: 1,
            in_flight_bytes: u64::from(PACKET),
            window_limited,
            chunk_bytes: PACKET,
        });
    }
    now
}

#[test]
fn the_rate_doubles_each_round_trip_until_the_lower_bound_and_then_takes_steps() {
    let mut timely = timely();
    let start = timely.rate;
    let now = acks(&mut timely, Time(1_000_000), 10, 6, true);
    assert_eq!(timely.rate / start, 64.0);
    let now = acks(&mut timely, now, 30, 1, true);
    let before = timely.rate;
    acks(&mut timely, now, 10, 4, true);
    let step = TIMELY_STEP_DEFAULT_BYTES_PER_S as f64;
    assert!((timely.rate - before - 4.0 * 5.0 * step).abs() < 1.0, "{}", timely.rate - before);
}

#[test]
fn between_the_bounds_a_steady_round_trip_settles_at_one_rate_from_either_side() {
    // The fixed point of the patch: step / 2 = rate * 0.008 / 2 * error; at 50 us the error is 1.
    let fixed_point = TIMELY_STEP_DEFAULT_BYTES_PER_S as f64 / TIMELY_PATCHED_DECREASE;
    for rate in [fixed_point / 4.0, fixed_point * 4.0] {
        let mut timely = timely();
        let now = acks(&mut timely, Time(1_000_000), 10, 1, true);
        timely.rate = rate;
        acks(&mut timely, now, 50, 5_000, true);
        assert!((timely.rate / fixed_point - 1.0).abs() < 0.01, "{}", timely.rate);
    }
}

#[test]
fn above_the_upper_bound_no_ack_takes_more_than_half() {
    let mut timely = timely();
    timely.rate = 1e9;
    let now = acks(&mut timely, Time(1_000_000), 10, 1, false);
    acks(&mut timely, now, 50_000, 1, true);
    assert_eq!(timely.rate, 5e8);
    timely.on_rto(now);
    assert_eq!(timely.rate, 2.5e8);
}

#[test]
fn the_rate_grows_only_while_it_is_the_limit() {
    let mut timely = timely();
    let before = timely.rate;
    acks(&mut timely, Time(1_000_000), 10, 100, false);
    assert_eq!(timely.rate, before);
}

#[test]
fn acks_that_come_together_count_as_one_round_trip() {
    let mut timely = timely();
    let now = acks(&mut timely, Time(1_000_000), 10, 1, true);
    let before = timely.rate;
    for _ in 0..50 {
        acks(&mut timely, Time(now.0 - 10_000), 10, 1, true);
    }
    assert_eq!(timely.rate, before, "they span no time");
}

#[test]
fn the_window_is_what_the_rate_sends_in_a_round_trip_at_the_upper_bound() {
    let mut timely = timely();
    timely.rate = 1e9;
    assert_eq!(timely.window_bytes(), 250_000);
    assert_eq!(timely.pacing_rate(), Some(Rate(1_000_000_000)));
}
