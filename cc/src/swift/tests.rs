//! Swift: one test for each trap that its implementations have fallen into, and its shape.

use std::vec::Vec;

use super::*;
use crate::limits::{
    SHARED_PACKETS_MIN, SHARED_START_BYTES, SWIFT_SMALL_GROWTH, SWIFT_TIMEOUTS_TO_RESET,
};

const PACKET: u32 = 4096;
const RTT: Nanos = Nanos::from_micros(10);

fn swift(settings: &str) -> Swift {
    Swift::new(settings.parse().unwrap(), Time::ZERO, &PathFacts::default())
}

/// An ack of `packets` packets at `now` that saw `rtt`, the window being the limit.
fn ack(now: Time, rtt: Nanos, packets: u64) -> AckSample {
    AckSample {
        now,
        rtt: Some(rtt),
        endpoint: Nanos::ZERO,
        acked_bytes: packets * u64::from(PACKET),
        acked_chunks: 1,
        in_flight_bytes: packets * u64::from(PACKET),
        window_limited: true,
        chunk_bytes: PACKET,
    }
}

fn loss(now: Time) -> LossSample {
    LossSample { now, lost_bytes: 1 << 20, lost_chunks: 100, in_flight_bytes: 2 << 20 }
}

/// Past the start, with a window of `packets` and one delay above target in its past.
fn settled(settings: &str, packets: f64) -> Swift {
    let mut swift = swift(settings);
    let late = Nanos::from_micros(2_000);
    swift.on_ack(&ack(Time(1), late, 1));
    for _ in 0..200 {
        swift.on_ack(&ack(Time(2), RTT, 0));
    }
    swift.fabric.set_packets(packets);
    swift.endpoint.set_packets(packets);
    swift
}

#[test]
fn the_window_starts_with_one_packet_and_doubles_each_round_trip_until_the_target() {
    let mut swift = swift("base=25us");
    let mut windows = Vec::new();
    let mut now = Time::ZERO;
    for _ in 0..6 {
        windows.push(swift.window_packets());
        now += RTT;
        for _ in 0..swift.window_packets() as u64 {
            swift.on_ack(&ack(now, RTT, 1));
        }
    }
    assert_eq!(windows, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    // Expect: what a first delay above the target ends does not come back below it.
    now += RTT;
    for _ in 0..9 {
        swift.on_ack(&ack(now, Nanos::from_micros(400), 1));
    }
    let before = swift.window_packets();
    for _ in 0..9 {
        now += Nanos(60_000);
        swift.on_ack(&ack(now, RTT, before as u64));
    }
    assert!(swift.window_packets() < before + 10.0, "{}", swift.window_packets());
}

#[test]
fn trap_guard_the_window_is_cut_once_in_a_round_trip() {
    let mut swift = settled("base=25us", 64.0);
    let late = Nanos::from_micros(1_000);
    let mut now = Time(1_000_000_000);
    let mut cuts = 0;
    let mut before = swift.window_packets();
    // Ten milliseconds of acks, one each microsecond, all late by far: ten round trips.
    for _ in 0..10_000 {
        now += Nanos(1_000);
        swift.on_ack(&ack(now, late, 1));
        cuts += u32::from(swift.window_packets() < before);
        before = swift.window_packets();
    }
    assert!((9..=16).contains(&cuts), "{cuts}: the smoothed round trip starts below 1 ms");
}

#[test]
fn trap_truncation_increases_far_below_a_byte_add_up() {
    let mut swift = settled("base=25us", 10_000.0);
    for i in 0..10_000 {
        swift.on_ack(&ack(Time(1_000_000_000 + i * 1_000), RTT, 1));
    }
    // A round trip's worth of acks is one packet, though each of them is 0.4 bytes.
    let grown = swift.window_packets() - 10_000.0;
    assert!((0.99..=1.01).contains(&grown), "{grown}");
}

#[test]
fn trap_wrap_a_window_below_what_is_in_flight_leaves_no_room() {
    let mut swift = settled("base=25us", 64.0);
    let in_flight = swift.window_bytes();
    assert_eq!(swift.room_bytes(in_flight - 1), 1);
    swift.on_rto(Time(1_000_000_000));
    assert!(swift.window_bytes() < in_flight);
    assert_eq!(swift.room_bytes(in_flight), 0);
    assert_eq!(swift.room_bytes(u64::MAX), 0);
}

#[test]
fn trap_idle_growth_acks_of_a_trickle_open_nothing() {
    let mut swift = settled("base=25us", 8.0);
    for i in 0..1_000 {
        let sample = ack(Time(1_000_000_000 + i * 20_000), RTT, 1);
        swift.on_ack(&AckSample { window_limited: false, ..sample });
    }
    assert_eq!(swift.window_bytes(), 8 * u64::from(PACKET));
}

#[test]
fn trap_min_rtt_a_claim_of_no_delay_at_all_neither_lowers_the_target_nor_breaks_the_sums() {
    let mut swift = swift("base=auto");
    swift.on_ack(&ack(Time(1), Nanos::ZERO, 1));
    swift.on_ack(&ack(Time(2), Nanos::ZERO, 1));
    assert!(swift.fabric_target() >= SWIFT_BASE_DEFAULT);
    assert!(swift.window_packets().is_finite());
    swift.on_ack(&ack(Time(3), Nanos(u64::MAX), u64::MAX >> 13));
    assert!(swift.window_packets() >= SWIFT_WINDOW_PACKETS_MIN);
    assert!(swift.fabric_target() < Nanos::from_secs(2));
}

#[test]
fn trap_retransmissions_an_ack_without_a_sample_moves_no_delay() {
    let mut swift = settled("base=25us", 8.0);
    let (delay, srtt) = (swift.fabric_delay, swift.srtt);
    swift.on_ack(&AckSample { rtt: None, ..ack(Time(1_000_000_000), RTT, 1) });
    assert_eq!((swift.fabric_delay, swift.srtt), (delay, srtt));
    assert_eq!(swift.window_packets(), 8.125, "it still acknowledges a packet");
}

#[test]
fn trap_units_packets_count_as_what_the_path_says_and_the_rate_is_bytes() {
    let facts = PathFacts { packet_bytes: 1_000, delay_noise: Nanos::ZERO };
    let mut swift = Swift::new(SwiftConfig::default(), Time::ZERO, &facts);
    assert_eq!(swift.window_bytes(), 1_000);
    let sample = AckSample { acked_bytes: 1_000, ..ack(Time(1), RTT, 1) };
    swift.on_ack(&sample);
    assert_eq!((swift.window_packets(), swift.window_bytes()), (2.0, 2_000));
    swift.fabric.set_packets(0.5);
    // Half a packet of 1,000 bytes in each 10 us.
    assert_eq!(swift.pacing_rate(), Some(Rate(50_000_000)));
}

#[test]
fn trap_loss_below_the_target_takes_nothing() {
    let mut swift = settled("base=25us", 64.0);
    for i in 0..100 {
        let now = Time(1_000_000_000 + i * 50_000);
        swift.on_loss(&loss(now));
        swift.on_ack(&ack(now, RTT, 0));
    }
    assert_eq!(swift.window_packets(), 64.0);
}

#[test]
fn a_loss_above_the_target_takes_half_once_a_round_trip() {
    let mut swift = settled("base=25us,decrease=1%", 64.0);
    let now = Time(1_000_000_000);
    swift.on_ack(&ack(now, Nanos::from_micros(200), 1));
    let later = now + Nanos::from_micros(1_000);
    let before = swift.window_packets();
    swift.on_loss(&loss(later));
    swift.on_loss(&loss(later + Nanos(1)));
    assert_eq!(swift.window_packets(), before / 2.0);
}

#[test]
fn timeouts_halve_and_the_fifth_in_a_row_leaves_the_least_window() {
    let mut swift = settled("base=25us", 64.0);
    let at = |seconds: u64| Time(1_000_000_000 * seconds);
    (1..=4).for_each(|second| swift.on_rto(at(second)));
    assert_eq!(swift.window_packets(), 4.0);
    swift.on_ack(&ack(at(4) + RTT, RTT, 0));
    (5..=8).for_each(|second| swift.on_rto(at(second)));
    assert_eq!(swift.window_packets(), 0.25, "an ack starts the count again");
    swift.on_rto(at(9));
    assert_eq!(swift.window_packets(), SWIFT_WINDOW_PACKETS_MIN);
    assert_eq!(swift.window_bytes(), 4);
    let acks = (1..).find(|&count| {
        swift.on_ack(&ack(at(9 + count), RTT, 1));
        swift.window_packets() >= 1.0
    });
    assert!(acks <= Some(8), "a free path is found again within {acks:?} acks");
}

#[test]
fn a_window_below_a_packet_grows_by_a_part_of_itself_and_takes_less_than_a_packet() {
    for window in [0.02, 0.1, 0.4] {
        let mut swift = settled("base=25us", window);
        swift.on_ack(&ack(Time(2_000_000_000), RTT, 1));
        let grown = swift.window_packets() / window;
        assert!((grown - (1.0 + SWIFT_SMALL_GROWTH)).abs() < 1e-9, "{window}: {grown} times");
    }
}

#[test]
fn a_window_below_a_packet_is_a_packet_in_so_many_round_trips() {
    let mut swift = settled("base=25us", 0.1);
    swift.on_ack(&AckSample { window_limited: false, ..ack(Time(2_000_000_000), RTT, 1) });
    let rate = swift.pacing_rate().unwrap();
    let gap = rate.time_for(u64::from(PACKET));
    let ten = swift.srtt.saturating_mul(10);
    assert!(gap >= ten && gap < ten + Nanos::from_micros(5), "{gap} {ten}");
    swift.fabric.set_packets(1.0);
    swift.endpoint.set_packets(1.0);
    assert_eq!(swift.pacing_rate(), None);
}

#[test]
fn trap_stall_the_least_window_never_waits_for_a_thousand_long_round_trips() {
    let mut swift = settled("base=25us", 1.0);
    swift.on_ack(&ack(Time(3), Nanos::from_millis(20), 1));
    for late in 1..=SWIFT_TIMEOUTS_TO_RESET {
        swift.on_rto(Time(u64::from(late) * 1_000_000_000));
    }
    assert!(swift.window_packets() <= SWIFT_WINDOW_PACKETS_MIN);
    assert!(swift.srtt > Nanos::from_millis(1), "{}", swift.srtt);
    let gap = swift.pacing_rate().unwrap().time_for(u64::from(PACKET));
    assert!(gap <= SWIFT_GAP_MAX + Nanos(1000), "{gap}");
}

/// A controller of a wire that others may share, past its first round trip.
fn noisy() -> Swift {
    let facts = PathFacts { delay_noise: Nanos::from_millis(5), ..PathFacts::default() };
    let mut swift = Swift::new(SwiftConfig::default(), Time::ZERO, &facts);
    swift.on_ack(&AckSample { window_limited: false, ..ack(Time(1), RTT, 1) });
    swift.on_ack(&AckSample { window_limited: false, ..ack(Time(100_000), RTT, 1) });
    swift
}

#[test]
fn trap_noise_a_sender_on_a_shared_wire_starts_small_and_delays_leave_it_a_few_packets() {
    let mut swift = noisy();
    let start = SHARED_START_BYTES as f64 / f64::from(PACKET);
    assert_eq!(swift.window_packets(), start);
    let late = |round: u64| ack(Time(round * 100_000_000), Nanos::from_millis(40), 1);
    (1..8).for_each(|round| swift.on_ack(&late(round)));
    assert!((1.0..=SHARED_PACKETS_MIN).contains(&swift.window_packets()));
    (50..60).for_each(|round| swift.on_rto(Time(round * 100_000_000)));
    assert_eq!(swift.window_packets(), 1.0, "nothing came through at all");
}

#[test]
fn a_timeout_that_was_false_takes_nothing() {
    let mut swift = noisy();
    let before = swift.window_packets();
    swift.on_rto(Time(1_000_000));
    swift.on_rto(Time(4_000_000));
    assert!(swift.window_packets() < before / 2.0);
    swift.on_false_rto();
    assert_eq!(swift.window_packets(), before);
    swift.on_rto(Time(9_000_000));
    swift.on_loss(&loss(Time(20_000_000)));
    let after = swift.window_packets();
    swift.on_false_rto();
    assert_eq!(swift.window_packets(), after, "a loss was seen meanwhile");
}

#[test]
fn trap_start_on_a_path_longer_than_the_first_timeout_the_window_doubles_all_the_same() {
    let facts = PathFacts { delay_noise: Nanos::from_millis(5), ..PathFacts::default() };
    for facts in [facts, PathFacts::default()] {
        let mut swift = Swift::new(SwiftConfig::default(), Time::ZERO, &facts);
        let rtt = Nanos::from_millis(40);
        swift.on_rto(Time(20_000_000));
        swift.on_ack(&ack(Time(40_000_000), rtt, 1));
        swift.on_false_rto();
        let before = swift.window_packets();
        let packets = before.ceil() as u64;
        (1..=packets).for_each(|i| swift.on_ack(&ack(Time(40_000_000 + i * 1_000_000), rtt, 1)));
        let grown = swift.window_packets() / before;
        assert!(grown > 1.9, "{grown} times {before}");
    }
}

#[test]
fn small_windows_wait_longer_and_the_range_bounds_it() {
    let mut swift = swift("base=25us,hops=4,hop=2us,scaling=100us");
    let mut at = |packets| {
        swift.fabric.set_packets(packets);
        swift.target(RTT)
    };
    let fixed = Nanos::from_micros(33);
    assert_eq!([at(100.0), at(1e6)], [fixed; 2]);
    assert_eq!([at(0.01), at(0.001)], [fixed + Nanos::from_micros(100); 2]);
    assert!(at(1.0) > at(2.0) && at(2.0) > at(50.0));
}

#[test]
fn the_automatic_base_leaves_a_queue_above_the_least_round_trip() {
    let us = Nanos::from_micros;
    let mut swift = swift("base=auto");
    swift.fabric.set_packets(100.0);
    assert_eq!(swift.target(us(5)), us(25));
    assert_eq!(swift.target(us(60)), us(75));
    let shared = noisy();
    let measured = shared.shared.as_ref().unwrap().noise();
    assert_eq!(shared.target_at(us(60), 100.0), us(110), "and what is measured as noise above it");
    assert_eq!(shared.target_at(us(4_000), 100.0), us(4_500));
    assert_eq!(measured, Nanos::ZERO);
}

#[test]
fn a_slow_host_shrinks_the_endpoint_window_and_a_queue_the_other() {
    let mut swift = settled("base=25us", 64.0);
    let mut now = Time(1_000_000_000);
    for _ in 0..100 {
        now += Nanos::from_micros(20);
        let endpoint = Nanos::from_micros(400);
        swift.on_ack(&AckSample { endpoint, ..ack(now, RTT, 1) });
    }
    assert!(swift.endpoint.packets() < 32.0, "{}", swift.endpoint.packets());
    assert!(swift.fabric.packets() < 65.0, "the larger one does not grow");
    assert_eq!(swift.window_packets(), swift.endpoint.packets());
}

#[test]
fn packets_of_another_size_change_the_step_and_not_the_window() {
    for noise in [Nanos::ZERO, Nanos::from_millis(5)] {
        let facts = PathFacts { delay_noise: noise, ..PathFacts::default() };
        let mut swift = Swift::new(SwiftConfig::default(), Time::ZERO, &facts);
        swift.on_ack(&AckSample { window_limited: false, ..ack(Time(1), RTT, 1) });
        // Neither kind of window doubles any more.
        swift.on_rto(Time(2));
        let rounds = |swift: &mut Swift, from: u64| {
            let before = swift.window_bytes();
            for round in 0..8 {
                let acked_bytes = swift.window_bytes();
                let now = Time(from + round * 1_000);
                swift.on_ack(&AckSample { acked_bytes, ..ack(now, RTT, 1) });
            }
            swift.window_bytes() - before
        };
        let long = rounds(&mut swift, 1_000_000);
        let before = swift.window_bytes();
        swift.set_packet_bytes(1_024);
        assert!(swift.window_bytes().abs_diff(before) <= 1, "{} {before}", swift.window_bytes());
        let short = rounds(&mut swift, 2_000_000);
        swift.set_packet_bytes(PACKET);
        assert!((long / 5..=long / 3).contains(&short), "{noise}: {long} and then {short} bytes");
    }
}

/// Whether a sender on a shared wire gives a part of its window up where one chunk of `lost_in` is
/// lost, of `bytes` each.
fn yields_to_loss(bytes: u64, lost_in: u64) -> bool {
    let mut swift = noisy();
    let before = swift.window_bytes();
    for number in 1..=20_000 {
        let now = Time(1_000_000 + number * 1_000);
        if number % lost_in == 0 {
            let (lost_bytes, lost_chunks) = (bytes, 1);
            let in_flight_bytes = before;
            swift.on_loss(&LossSample { now, lost_bytes, lost_chunks, in_flight_bytes });
        } else {
            let sample = AckSample { window_limited: false, ..ack(now, RTT, 1) };
            swift.on_ack(&AckSample { acked_bytes: bytes, ..sample });
        }
    }
    swift.window_bytes() < before
}

#[test]
fn the_share_of_losses_is_one_of_packets_however_short_chunks_are() {
    for bytes in [100, 1_000, u64::from(PACKET)] {
        assert!(!yields_to_loss(bytes, 200), "{bytes}: half a percent is borne");
        assert!(yields_to_loss(bytes, 20), "{bytes}: five percent are too many");
    }
    // A long chunk is lost with any of its packets.
    let long = 4 * u64::from(PACKET);
    assert!(!yields_to_loss(long, 50), "half a percent of packets");
    assert!(yields_to_loss(long, 5), "five percent of packets");
}
