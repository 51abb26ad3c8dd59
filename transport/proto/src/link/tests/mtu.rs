//! Paths that carry shorter packets than both ends can do, from the beginning or later.

use super::*;
use crate::Carrier;
use crate::config::PacketSizes;
use crate::path::{MtuPhase, MtuReason, PathState};
use core::cell::Cell;
use towpath_verbs::Mtu;

/// Within this a path is found out: some dozen round trips.
const FOUND_WITHIN: Nanos = Nanos::from_millis(60);

/// Bytes of the longest packet that a path carries whose packets may be of this size.
fn carrying(mtu: Mtu) -> usize {
    mtu.bytes() as usize + 100
}

/// Devices that cut each send as they are told, and change ports of queue pairs that run.
fn cutting(config: LinkConfig) -> LinkConfig {
    config.packet_sizes(PacketSizes::Cut).source_ports(16)
}

fn open(seed: u64, faults: Faults, paths: u32) -> (Wire, ChannelId) {
    std::println!("seed {seed}, {paths} paths");
    let mut wire = Wire::with_paths(seed, faults, paths, cutting);
    let channel = wire.open_channel(0, true);
    (wire, channel)
}

/// Sends `count` messages of 60,000 bytes from the first end, and waits until they have come.
fn transfer(wire: &mut Wire, channel: ChannelId, count: u64) {
    let first = wire.ends[0].outcomes.len() as u64;
    for token in first..first + count {
        wire.ends[0].send(channel, token, vec![token as u8; 60_000], Time::NEVER);
    }
    wire.run_until(|wire| wire.ends[0].sending.is_empty());
    assert!(wire.ends[0].outcomes.values().all(|&outcome| outcome == Outcome::Delivered));
}

fn sizes(wire: &Wire) -> Vec<Mtu> {
    wire.ends[0].link.paths().map(|path| path.mtu).collect()
}

/// No path was left, or took another port, and nothing is down.
fn check_paths_kept(wire: &Wire) {
    let dead: Vec<_> = wire.ends[0].moves.iter().filter(|to| to.2 == PathState::Dead).collect();
    assert!(dead.is_empty() && wire.moves.is_empty(), "{dead:?} {:?}", wire.moves);
    assert_eq!((wire.ends[0].down, &wire.ends[0].rides[..]), (None, &[][..]));
}

#[test]
fn a_path_that_is_narrow_from_the_beginning_delays_nothing() {
    for (seed, paths) in [(1, 1), (2, 4)] {
        for carried in [Mtu::Mtu1024, Mtu::Mtu2048] {
            let (mut wire, channel) = open(seed, Faults::default(), paths);
            wire.longest[1] = carrying(carried);
            let start = wire.now;
            transfer(&mut wire, channel, 10);
            assert!(wire.now.since(start) < Nanos::from_millis(5), "{}", wire.now.since(start));
            let stats = wire.ends[0].link.stats();
            assert_eq!((stats.rtos, stats.chunks_retransmitted), (0, 0), "{stats:?}");
            while wire.ends[0].mtus.len() < paths as usize {
                transfer(&mut wire, channel, 10);
                wire.run_for(Nanos::from_millis(5));
            }
            let told = (Mtu::Mtu4096, carried, MtuReason::Swallowed);
            assert!(wire.ends[0].mtus.iter().all(|change| *change == told));
            assert_eq!(sizes(&wire), vec![carried; paths as usize]);
            check_paths_kept(&wire);
        }
    }
}

#[test]
fn a_path_that_carries_what_was_agreed_on_is_confirmed_and_nothing_is_told() {
    let (mut wire, channel) = open(3, Faults::default(), 1);
    transfer(&mut wire, channel, 2);
    let snapshot = wire.ends[0].link.paths().next().unwrap();
    let found = (snapshot.mtu, snapshot.mtu_phase, snapshot.mtu_reason);
    assert_eq!(found, (Mtu::Mtu4096, MtuPhase::Complete, MtuReason::Probed));
    assert_eq!(wire.ends[0].mtus, []);
    assert!(wire.ends[0].link.stats().path_probes <= 4);
}

#[test]
fn a_path_that_shrinks_under_a_transfer_goes_on_in_shorter_packets() {
    for (seed, paths) in [(4, 1), (5, 1), (6, 4), (7, 16)] {
        for carried in [Mtu::Mtu256, Mtu::Mtu1024] {
            let (mut wire, channel) = open(seed, Faults::default(), paths);
            transfer(&mut wire, channel, 100);
            for token in 1_000..1_100 {
                wire.ends[0].send(channel, token, vec![7; 60_000], Time::NEVER);
            }
            wire.run_until(|wire| wire.ends[1].received.len() >= 110);
            wire.longest[1] = carrying(carried);
            let (start, count) = (wire.now, wire.ends[1].received.len());
            // What had been on its way does not count.
            wire.run_until(|wire| wire.ends[1].received.len() > count + 20);
            let span = wire.now.since(start);
            let steps = if carried < Mtu::Mtu1024 { 3 } else { 1 };
            assert!(span < FOUND_WITHIN.saturating_mul(steps), "{span}");
            wire.run_until(|wire| wire.ends[0].sending.is_empty());
            check_paths_kept(&wire);
            assert!(sizes(&wire).contains(&carried), "{:?}", sizes(&wire));
        }
    }
}

#[test]
fn a_path_that_shrinks_is_noticed_by_a_single_message() {
    let (mut wire, channel) = open(8, Faults::default(), 1);
    transfer(&mut wire, channel, 3);
    wire.longest[1] = carrying(Mtu::Mtu1024);
    let start = wire.now;
    transfer(&mut wire, channel, 1);
    assert!(wire.now.since(start) < FOUND_WITHIN, "{}", wire.now.since(start));
    check_paths_kept(&wire);
}

#[test]
fn short_messages_that_get_through_all_the_time_do_not_hide_it() {
    let (mut wire, channel) = open(9, Faults::default(), 1);
    transfer(&mut wire, channel, 3);
    wire.longest[1] = carrying(Mtu::Mtu1024);
    wire.ends[0].send(channel, 7, vec![7; 100_000], Time::NEVER);
    let end = wire.now + FOUND_WITHIN;
    let mut token = 100;
    while wire.ends[0].mtus.is_empty() && wire.now < end {
        wire.ends[0].send(channel, token, vec![1; 200], Time::NEVER);
        token += 1;
        wire.run_for(Nanos::from_millis(1));
    }
    assert!(!wire.ends[0].mtus.is_empty());
    wire.run_until(|wire| wire.ends[0].sending.is_empty());
    check_paths_kept(&wire);
}

#[test]
fn loss_that_does_not_look_at_lengths_changes_no_packet_size() {
    for seed in 0..24 {
        let drop = 0.05 + 0.35 * (seed % 6) as f64 / 5.0;
        let (mut wire, channel) = open(seed, Faults { drop, ..Faults::default() }, 1);
        for token in 0..30 {
            wire.ends[0].send(channel, token, vec![1; 60_000], Time::NEVER);
        }
        let end = wire.now + Nanos::from_secs(20);
        wire.run_until(|wire| wire.now >= end || wire.ends[0].sending.is_empty());
        assert_eq!((&wire.ends[0].mtus[..], wire.ends[0].down), (&[][..], None), "drop {drop}");
    }
}

#[test]
fn a_path_that_carries_nothing_is_silent_and_not_narrow() {
    let (mut wire, channel) = open(10, Faults::default(), 1);
    transfer(&mut wire, channel, 3);
    wire.longest = [0; 2];
    wire.ends[0].send(channel, 7, vec![7; 100_000], Time::NEVER);
    wire.run_until(|wire| wire.ends[0].down.is_some());
    let reason = wire.ends[0].down;
    assert!(matches!(reason, Some(DownReason::Silent(_))), "{reason:?}");
    assert_eq!(wire.ends[0].mtus, []);
}

#[test]
fn a_path_that_grows_back_is_used_at_its_full_size_again() {
    let (mut wire, channel) = open(11, Faults::default(), 1);
    transfer(&mut wire, channel, 3);
    wire.longest[1] = carrying(Mtu::Mtu1024);
    transfer(&mut wire, channel, 30);
    wire.run_for(Nanos::from_millis(100));
    assert_eq!(sizes(&wire), [Mtu::Mtu1024]);
    wire.longest[1] = usize::MAX;
    wire.run_for(Nanos::from_secs(3));
    transfer(&mut wire, channel, 30);
    assert_eq!(sizes(&wire), [Mtu::Mtu4096]);
    let down = (Mtu::Mtu4096, Mtu::Mtu1024, MtuReason::Swallowed);
    assert_eq!(wire.ends[0].mtus, [down, (Mtu::Mtu1024, Mtu::Mtu4096, MtuReason::Probed)]);
    let stats = wire.ends[0].link.stats();
    assert_eq!((stats.mtu_lowered, stats.mtu_raised), (1, 1));
}

#[test]
fn a_path_that_comes_and_goes_is_raised_less_and_less_often_and_delivers() {
    let (mut wire, channel) = open(12, Faults::default(), 4);
    let start = wire.now;
    for round in 0..60 {
        wire.longest[1] = if round % 2 == 0 { usize::MAX } else { carrying(Mtu::Mtu1024) };
        transfer(&mut wire, channel, 4);
        wire.run_for(Nanos::from_millis(500));
    }
    let (stats, span) = (wire.ends[0].link.stats(), wire.now.since(start));
    // 30 s: at 1, 2, 4, 8 and 16 s and a few more, on each of four paths.
    assert!(stats.mtu_lowered <= 4 * 8, "{} in {span}", stats.mtu_lowered);
    check_paths_kept(&wire);
}

#[test]
fn no_other_carrier_is_taken_for_it() {
    std::println!("seed 13");
    let carriers = [Carrier::Uc, Carrier::Tcp];
    let mut wire = Wire::with_carriers(13, Faults::default(), &carriers, cutting);
    let channel = wire.open_channel(0, true);
    transfer(&mut wire, channel, 3);
    wire.longest[1] = carrying(Mtu::Mtu512);
    wire.run_for(Nanos::from_secs(2));
    transfer(&mut wire, channel, 30);
    assert_eq!((wire.ends[0].link.carrier(), &wire.ends[0].rides[..]), (Carrier::Uc, &[][..]));
}

#[test]
fn only_the_direction_that_shrinks_goes_on_in_shorter_packets() {
    let (mut wire, channel) = open(14, Faults::default(), 1);
    transfer(&mut wire, channel, 3);
    wire.longest[1] = carrying(Mtu::Mtu1024);
    transfer(&mut wire, channel, 3);
    for token in 0..20 {
        wire.ends[1].send(channel, token, vec![9; 60_000], Time::NEVER);
    }
    wire.run_until(Wire::settled);
    let of = |at: usize| wire.ends[at].link.paths().next().unwrap().mtu;
    assert_eq!((of(0), of(1)), (Mtu::Mtu1024, Mtu::Mtu4096));
}

#[test]
fn who_lies_about_the_network_causes_questions_and_nothing_else() {
    let (mut wire, channel) = open(15, Faults::default(), 4);
    transfer(&mut wire, channel, 60);
    let before = wire.ends[0].link.stats();
    for mtu in [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu4096].repeat(20) {
        let now = wire.now;
        wire.ends[0].link.hint_mtu(now, mtu);
        transfer(&mut wire, channel, 2);
    }
    assert_eq!(wire.ends[0].mtus, []);
    assert!(sizes(&wire).contains(&Mtu::Mtu4096));
    let probes = wire.ends[0].link.stats().path_probes - before.path_probes;
    assert!(probes <= 80 * 4 * 3, "{probes}");
}

#[test]
fn a_hint_that_is_true_is_found_so_within_a_few_probes() {
    let (mut wire, channel) = open(16, Faults::default(), 1);
    transfer(&mut wire, channel, 3);
    wire.longest[1] = carrying(Mtu::Mtu1024);
    let start = wire.now;
    wire.ends[0].link.hint_mtu(start, Mtu::Mtu1024);
    transfer(&mut wire, channel, 1);
    assert!(wire.now.since(start) < Nanos::from_millis(10), "{}", wire.now.since(start));
}

#[test]
fn where_a_device_cannot_cut_sends_a_path_that_shrinks_goes_on_in_lone_packets() {
    for (seed, paths) in [(17, 1), (18, 4)] {
        for carried in [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu2048] {
            std::println!("seed {seed}, {paths} paths, {carried} bytes");
            let lone = |config: LinkConfig| config.packet_sizes(PacketSizes::Lone);
            let mut wire = Wire::with_paths(seed, Faults::default(), paths, lone);
            let channel = wire.open_channel(0, true);
            transfer(&mut wire, channel, 10);
            wire.longest[1] = carrying(carried);
            let start = wire.now;
            transfer(&mut wire, channel, 10);
            let span = wire.now.since(start);
            assert!(span < FOUND_WITHIN.saturating_mul(4), "{span}");
            transfer(&mut wire, channel, 50);
            check_paths_kept(&wire);
            wire.longest[1] = usize::MAX;
            wire.run_for(Nanos::from_secs(2));
            transfer(&mut wire, channel, 50);
            wire.run_for(Nanos::from_secs(8));
            transfer(&mut wire, channel, 50);
            assert!(sizes(&wire).contains(&Mtu::Mtu4096), "{:?}", sizes(&wire));
        }
    }
}

#[test]
fn messages_shorter_than_a_packet_show_what_swallows_them_too() {
    for (seed, bytes, carried) in [(19, 700, Mtu::Mtu512), (20, 1_600, Mtu::Mtu1024)] {
        let (mut wire, channel) = open(seed, Faults::default(), 1);
        transfer(&mut wire, channel, 3);
        wire.longest[1] = carrying(carried);
        let start = wire.now;
        wire.ends[0].send(channel, 900, vec![9; bytes], Time::NEVER);
        wire.run_until(|wire| wire.ends[0].sending.is_empty());
        assert!(wire.now.since(start) < FOUND_WITHIN.saturating_mul(3));
        check_paths_kept(&wire);
    }
}

#[test]
fn long_acks_get_through_paths_that_swallow_them() {
    let search = crate::path::MtuSearch::new(Mtu::Mtu4096, PacketSizes::Cut, Time::ZERO);
    let cuts = |bytes| [0, 1, 2].map(|number| search.cut_ack_at(bytes, number));
    assert_eq!(cuts(256), [Some(Mtu::Mtu1024); 3]);
    assert_eq!(cuts(257), [Some(Mtu::Mtu256), Some(Mtu::Mtu1024), Some(Mtu::Mtu256)]);
}

/// Sends until the first end tells of a packet size and all has come. Gives its least window
/// meanwhile, and whether it knew its round trips throughout.
fn transfer_until_told(wire: &mut Wire, channel: ChannelId) -> (u64, bool) {
    let (least, knew) = (Cell::new(u64::MAX), Cell::new(true));
    for round in 1..100 {
        for token in round * 1_000..round * 1_000 + 20 {
            wire.ends[0].send(channel, token, vec![7; 60_000], Time::NEVER);
        }
        wire.run_until(|wire| {
            let link = &wire.ends[0].link;
            least.set(least.get().min(link.window_bytes()));
            knew.set(knew.get() && link.srtt().is_some());
            wire.ends[0].sending.is_empty()
        });
        if !wire.ends[0].mtus.is_empty() {
            return (least.get(), knew.get());
        }
        wire.run_for(Nanos::from_millis(1));
    }
    panic!("it was never found out");
}

#[test]
fn one_narrow_path_of_several_takes_neither_window_nor_round_trips_of_the_others() {
    for seed in 21..25 {
        let (mut wire, channel) = open(seed, Faults::default(), 4);
        transfer(&mut wire, channel, 100);
        let before = wire.ends[0].link.window_bytes();
        (wire.longest[1], wire.narrow) = (carrying(Mtu::Mtu1024), 1 << 2);
        let (least, knew) = transfer_until_told(&mut wire, channel);
        assert!(knew && least > before / 4, "{least} of {before}");
        assert_eq!(sizes(&wire)[2], Mtu::Mtu1024);
        check_paths_kept(&wire);
    }
}

#[test]
fn a_path_that_proves_narrow_before_anything_was_lost_keeps_its_window() {
    let (mut wire, channel) = open(26, Faults::default(), 1);
    wire.longest[1] = carrying(Mtu::Mtu1024);
    transfer(&mut wire, channel, 2);
    let before = wire.ends[0].link.window_bytes();
    let (least, knew) = transfer_until_told(&mut wire, channel);
    assert!(knew && least >= before, "{least} of {before}");
    assert_eq!(wire.ends[0].link.stats().losses_by_gap, 0, "only probes were lost");
}
