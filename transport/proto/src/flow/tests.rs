//! What a link asks of its controller, and what it tells it.

use super::*;
use crate::carrier::Carrier;
use crate::config::Side;
use crate::path::{Path, What};
use crate::rails::Rail;
use alloc::vec;
use core::ops::{Deref, DerefMut};
use towpath_verbs::Mtu;

/// A flow and its only path.
struct One {
    flow: Flow,
    path: Path,
}

impl Deref for One {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl DerefMut for One {
    fn deref_mut(&mut self) -> &mut Flow {
        &mut self.flow
    }
}

fn path(controller: &str) -> One {
    let peer = PeerParams {
        mtu: Mtu::Mtu4096,
        chunk_bytes_max: 56 << 10,
        charge_bytes: 0,
        window_bytes: 1 << 20,
        path_chunks: 4096,
        generations: vec![(1, 2)],
        carriers: vec![Carrier::Uc],
        control_generations: (3, 4),
    };
    let config = LinkConfig::new(Side::Client).controller(controller.parse().unwrap());
    let flow = Flow::new(&config, &peer, Time::ZERO);
    let way = (Carrier::Uc, Rail::default(), 0);
    One { flow, path: Path::new(&config, &peer, way, (1, 2), Time::ZERO) }
}

/// Sends a chunk and has it acknowledged `away` later, by an ack that was held for `hold`.
fn round(one: &mut One, at: Time, payload_bytes: u32, away: Nanos, hold: Nanos) {
    let charge = one.charge(payload_bytes);
    one.on_sent(at, payload_bytes);
    let One { flow, path } = one;
    let (number, _) = path.tx.send(What::Nothing, charge, at);
    path.tx.returned(number..number + 1, None, |_| {});
    let digest =
        path.tx.on_ack(Time::ZERO, (number, number + 1), core::iter::empty(), |_, _| {}, |_| {});
    path.on_ack_digest(at + away, at + away, hold, &digest, Some(flow));
}

#[test]
fn trap_oversize_a_chunk_larger_than_the_window_goes_alone_and_holds_the_next_one() {
    let mut path = path("fixed:4KiB");
    let rtt = Nanos::from_micros(10);
    round(&mut path, Time(1), 1000, rtt, Nanos::ZERO);
    let now = Time(1_000_000);
    assert!(path.has_room(40_000), "nothing is in flight");
    assert_eq!(path.ready_at(now, 40_000), now);
    path.on_sent(now, 40_000);
    let held = path.ready_at(now, 40_000).since(now);
    assert!(held > rtt.saturating_mul(9) && held < rtt.saturating_mul(11), "{held}");
    assert!(!path.has_room(1), "it is larger than the window");
}

#[test]
fn trap_pacing_is_asked_for_every_chunk_whatever_the_window_says() {
    let mut path = path("fixed:1MiB@1Gbps");
    let (mut now, mut bytes) = (Time(1), 0);
    while now < Time(10_000_000) {
        assert!(path.has_room(4032), "the window is no limit here");
        now = now.max(path.ready_at(now, 4032));
        path.on_sent(now, 4032);
        let charge = u64::from(path.charge(4032));
        bytes += charge;
        path.on_gone(charge);
    }
    let allowed = now.0 / 8 + BURST_BYTES;
    assert!(bytes <= allowed + 4096 && bytes > allowed / 2, "{bytes} of {allowed}");
}

#[test]
fn trap_claims_an_ack_held_for_longer_than_it_was_away_gives_no_sample() {
    let mut path = path("swift");
    round(&mut path, Time(1), 1000, Nanos::from_micros(10), Nanos::from_micros(11));
    assert_eq!(path.rtt.smoothed(), None);
    round(&mut path, Time(100_000), 1000, Nanos::from_micros(10), Nanos::from_micros(4));
    assert_eq!(path.rtt.smoothed(), Some(Nanos::from_micros(6)));
}

#[test]
fn trap_idle_growth_who_had_nothing_to_send_is_not_held_back() {
    let mut path = path("fixed:64KiB");
    path.on_rto(Time(1));
    let shrunk = path.cc.window_bytes();
    for index in 0..10 {
        path.has_room(500);
        path.on_nothing_to_send();
        round(&mut path, Time(1000 + index), 500, Nanos(500), Nanos::ZERO);
    }
    assert_eq!(path.cc.window_bytes(), shrunk, "a trickle opens nothing");
    assert!(path.has_room(40_000) && path.window_limited, "more than the window holds");
    round(&mut path, Time(1_000_000), 40_000, Nanos(500), Nanos::ZERO);
    assert!(path.cc.window_bytes() > shrunk);
}

#[test]
fn who_is_away_at_times_waits_longer_before_everything_counts_as_lost() {
    let mut path = path("swift");
    let (us, ms) = (Nanos::from_micros, Nanos::from_millis);
    for index in 0..50 {
        round(&mut path, Time(index * 1_000_000), 1000, us(100), Nanos::ZERO);
    }
    let rto = |path: &One| path.path.timing.rto(&path.flow);
    assert!(rto(&path) <= ms(1));
    path.set_away(ms(30));
    assert!(rto(&path) >= ms(30));
    path.set_away(Nanos::ZERO);
    assert!(rto(&path) <= ms(1), "it is back for good");
}

#[test]
fn a_round_trip_adds_a_packet_of_the_path_that_carries() {
    for (mtu, packet_bytes) in [(Mtu::Mtu4096, 4_096), (Mtu::Mtu1024, 1_024)] {
        let mut one = path("swift");
        let rtt = Nanos::from_micros(10);
        let ack = |one: &mut One, at: u64, acked_bytes: u64| {
            one.window_limited = true;
            one.flow.on_ack(Time(at), mtu, (Some(rtt), Nanos::ZERO), (1, acked_bytes, 0));
        };
        // Without doubling, and with a window of many packets of either size.
        one.on_rto(Time(1));
        (2..4_000).for_each(|at| ack(&mut one, at * 1_000, 4_096));
        let before = one.cc.window_bytes();
        ack(&mut one, 5_000_000, before);
        let grown = one.cc.window_bytes() - before;
        assert!(grown.abs_diff(packet_bytes) <= 2, "{grown} of {packet_bytes}");
    }
}

#[test]
fn chunks_leave_operations_of_the_lane_their_part_of_the_window() {
    let mut one = path("fixed:64KiB");
    let chunks = |one: &mut One| {
        let mut count = 0;
        while one.has_room(4032) {
            one.on_sent(Time(1), 4032);
            count += 1;
        }
        (0..count).for_each(|_| one.on_gone(4096));
        // The next one is the first of a window that was not full.
        one.has_room(0);
        count
    };
    assert_eq!(chunks(&mut one), 16);
    one.operations.in_flight_bytes = 16 << 10;
    assert_eq!(chunks(&mut one), 12);
    one.operations.in_flight_bytes = u64::MAX;
    assert_eq!(chunks(&mut one), 8, "half is left in any case");
}

#[test]
fn the_round_trip_of_an_operation_ends_when_the_device_was_done() {
    let mut one = path("fixed:1MiB");
    let (posted, done, now) = (Time(1_000), Time(11_000), Time(500_000));
    let seen = |one: &One| one.operations.done.map(|done| (done.rtt, done.endpoint));
    one.post_operation(posted, 100).unwrap();
    one.on_operation_done(now, Mtu::Mtu4096, 100, (posted, Some(done)));
    assert_eq!(seen(&one), Some((Some(Nanos(10_000)), Nanos(489_000))));
    // A clock that cannot be that of this host says nothing.
    for (later, done_at) in [(1, None), (2, Some(Time(999))), (3, Some(Time(900_000)))] {
        let now = Time(now.0 + later);
        one.post_operation(posted, 100).unwrap();
        one.on_operation_done(now, Mtu::Mtu4096, 100, (posted, done_at));
        assert_eq!(seen(&one), Some((Some(now.since(posted)), Nanos::ZERO)));
    }
}

#[test]
fn long_operations_beside_short_round_trips_of_chunks_show_no_queue() {
    let (us, ms) = (Nanos::from_micros, Nanos::from_millis);
    let mut one = path("swift");
    for index in 0..50 {
        let at = Time::ZERO + ms(index);
        round(&mut one, at, 1000, us(10), Nanos::ZERO);
    }
    // Longer than any chunk; a short one tells its own round trip.
    for (from, charge, told) in [(100, 1 << 20, one.rtt.min()), (1000, 1 << 10, Some(us(400)))] {
        for index in 0..4 {
            let posted = Time::ZERO + ms(from + 100 * index);
            one.post_operation(posted, charge).unwrap();
            one.on_operation_done(posted + us(400), Mtu::Mtu4096, charge, (posted, None));
            assert_eq!(one.operations.done.and_then(|done| done.rtt), told);
        }
    }
}
