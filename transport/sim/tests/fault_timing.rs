//! Delay, lateness, duplicates, reordering, corruption: when packets come out, and as what.

mod common;

use core::cmp::Ordering;

use common::{Bench, BenchLink, PACKET_BYTES_MAX, assert_share, number_of, send_numbers};
use towpath_base::{Nanos, Time};
use towpath_sim::limits::{HELD_BYTES_MAX, HELD_PACKETS_MAX, REORDER_PACKETS_MAX};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, World};
use towpath_verbs::{PacketLink, TxPacket};

const US: Nanos = Nanos(1_000);

fn faulty(seed: u64, plan: FaultPlan) -> (Bench, FaultLink<BenchLink>, FaultControl) {
    let (bench, control) = (Bench::default(), FaultControl::new(plan));
    let link = FaultLink::new(bench.link(), seed, control.clone());
    (bench, link, control)
}

/// Goes from release to release until nothing is held, and returns the times.
fn settle(bench: &Bench, link: &mut FaultLink<BenchLink>) -> Vec<Time> {
    let mut times = Vec::new();
    while let Some(time) = link.next_release() {
        bench.go_to(time);
        link.transmit(&[]);
        times.push(time);
    }
    times
}

#[test]
fn a_delay_holds_each_packet_exactly_so_long_and_keeps_the_order() {
    let (bench, mut link, control) = faulty(1, FaultPlan::none().delay(US, Nanos::ZERO));
    for number in 0..5 {
        bench.go_to(Time(u64::from(number) * 300));
        send_numbers(&mut link, number..number + 1, 1);
    }
    // Number 0 was sent at 0 and the clock stands at 1,200: it left with the last call.
    assert_eq!(bench.sent_numbers(), [0]);
    assert_eq!(settle(&bench, &mut link), [1_300, 1_600, 1_900, 2_200].map(Time));
    assert_eq!(bench.sent_numbers(), [0, 1, 2, 3, 4]);
    assert_eq!((control.counters().delayed, control.counters().held()), (5, 0));
}

#[test]
fn nothing_comes_out_before_it_is_due() {
    let (bench, mut link, control) = faulty(1, FaultPlan::none().delay(US, Nanos::ZERO));
    send_numbers(&mut link, 0..1, 1);
    bench.go_to(Time(999));
    link.transmit(&[]);
    link.receive(1, &mut |_| {});
    assert_eq!((bench.sent_numbers().len(), control.counters().held()), (0, 1));
    bench.go_to(Time(1_000));
    link.receive(1, &mut |_| {});
    assert_eq!(bench.sent_numbers(), [0]);
}

#[test]
fn jitter_stays_within_its_range_and_reorders() {
    let (bench, mut link, _) = faulty(2, FaultPlan::none().delay(US, US));
    send_numbers(&mut link, 0..1_000, 100);
    let times = settle(&bench, &mut link);
    assert!(times.iter().all(|time| (1_000..=2_000).contains(&time.0)));
    assert_eq!(bench.sent_numbers().len(), 1_000);
    assert!(!bench.sent_numbers().is_sorted());
}

#[test]
fn a_late_packet_comes_out_within_its_range_after_all_others() {
    let (low, high) = (Nanos::from_millis(10), Nanos::from_millis(500));
    let (bench, mut link, control) = faulty(3, FaultPlan::none().late(0.01, low, high));
    send_numbers(&mut link, 0..20_000, 50);
    let on_time = bench.sent_numbers();
    let times = settle(&bench, &mut link);
    let late = control.counters().late;
    assert_share(late, 20_000, 0.01, 1.0);
    assert_eq!(on_time.len() as u64 + late, 20_000);
    assert!(times.iter().all(|time| (low.0..=high.0).contains(&time.0)));
    let mut all = bench.sent_numbers();
    assert!(on_time.is_sorted() && all.starts_with(&on_time));
    all.sort_unstable();
    assert_eq!(all, (0..20_000).collect::<Vec<_>>(), "late, and not lost");
}

#[test]
fn a_duplicate_is_the_same_packet_again_and_comes_later() {
    let (bench, mut link, control) = faulty(4, FaultPlan::none().duplicate(0.1, US));
    send_numbers(&mut link, 0..10_000, 50);
    assert!(bench.sent_numbers().len() >= 10_000, "the originals are not held");
    let times = settle(&bench, &mut link);
    assert!(times.iter().all(|time| time.0 <= 1_000));
    let mut seen = vec![0; 10_000];
    let mut newest = None;
    for number in bench.sent_numbers() {
        seen[number as usize] += 1;
        if seen[number as usize] == 1 {
            assert!(newest < Some(number), "first comings are in order");
            newest = Some(number);
        }
    }
    assert!(seen.iter().all(|copies| (1..=2).contains(copies)));
    let twice = seen.iter().filter(|copies| **copies == 2).count() as u64;
    assert_eq!(twice, control.counters().duplicated);
    assert_share(twice, 10_000, 0.1, 1.0);
}

#[test]
fn a_displaced_packet_is_overtaken_by_at_most_as_many_as_asked() {
    let (bench, mut link, control) = faulty(5, FaultPlan::none().reorder(0.1, 4, US));
    send_numbers(&mut link, 0..10_000, 64);
    settle(&bench, &mut link);
    let sent = bench.sent_numbers();
    assert_eq!(sent.len(), 10_000);
    let mut furthest = 0;
    for (position, &number) in sent.iter().enumerate() {
        let overtakers = sent[..position].iter().rev().take(2_000).filter(|&&n| n > number);
        furthest = furthest.max(overtakers.count());
    }
    assert_eq!(furthest, 4);
    assert_share(control.counters().reordered, 10_000, 0.1, 1.0);
}

#[test]
fn a_displaced_packet_that_nobody_overtakes_comes_out_after_its_time() {
    let (bench, mut link, _) = faulty(6, FaultPlan::none().reorder(1.0, 4, US));
    send_numbers(&mut link, 0..1, 1);
    assert_eq!(bench.sent_numbers(), [0_u32; 0]);
    assert_eq!(settle(&bench, &mut link), [Time(1_000)]);
    assert_eq!(bench.sent_numbers(), [0]);
}

#[test]
fn displacement_by_time_alone_and_under_a_delay_only_adds_to_it() {
    let plan = FaultPlan::none().delay(US, Nanos::ZERO).reorder(0.5, 9, US);
    let (bench, mut link, control) = faulty(7, plan);
    send_numbers(&mut link, 0..200, 10);
    assert_eq!(bench.sent_numbers().len(), 0, "none comes out before the delay");
    let times = settle(&bench, &mut link);
    assert_eq!((times[0], bench.sent_numbers().len()), (Time(1_000), 200));
    assert_eq!(control.counters().delayed + control.counters().reordered, 200);
    let (_, mut link, _) = faulty(7, FaultPlan::none().reorder(1.0, 0, US));
    send_numbers(&mut link, 0..50, 10);
    assert!(link.next_release().is_some_and(|time| time < Time(1_000)));
}

#[test]
fn displacement_and_holding_are_bounded_and_what_is_too_much_is_dropped_and_counted() {
    let long = Nanos::from_secs(1);
    let (bench, mut link, control) = faulty(8, FaultPlan::none().reorder(1.0, u32::MAX, long));
    send_numbers(&mut link, 0..4 * REORDER_PACKETS_MAX, 64);
    let waiting = control.counters().held();
    assert!((1..=u64::from(REORDER_PACKETS_MAX)).contains(&waiting), "{waiting}");
    drop((bench, link));

    let (bench, mut link, control) = faulty(8, FaultPlan::none().delay(long, Nanos::ZERO));
    send_numbers(&mut link, 0..HELD_PACKETS_MAX as u32 + 7, 64);
    assert_eq!(control.counters().held(), HELD_PACKETS_MAX as u64);
    assert_eq!(control.counters().dropped_overflow, 7);
    settle(&bench, &mut link);
    assert_eq!(bench.sent_numbers(), (0..HELD_PACKETS_MAX as u32).collect::<Vec<_>>());
}

#[test]
fn held_bytes_are_bounded_too() {
    let (_bench, mut link, control) =
        faulty(8, FaultPlan::none().delay(Nanos::from_secs(1), Nanos::ZERO));
    let bytes = vec![0; 60_000];
    let mut packet = TxPacket::new(common::peer(), 0, 0);
    packet.push(&bytes);
    let fitting = HELD_BYTES_MAX / bytes.len();
    for _ in 0..fitting + 3 {
        assert_eq!(link.transmit(&[packet]), 1);
    }
    assert_eq!(control.counters().held(), fitting as u64);
    assert_eq!(control.counters().dropped_overflow, 3);
}

#[test]
fn released_packets_wait_for_a_full_inner_link_and_nothing_passes_them() {
    let (bench, mut link, control) = faulty(9, FaultPlan::none().delay(US, Nanos::ZERO));
    send_numbers(&mut link, 0..3, 3);
    control.set_transmit(FaultPlan::none());
    bench.go_to(Time(1_000));
    bench.0.borrow_mut().takes = [2, 0].into();
    let bytes = common::numbered(3..5);
    let packets = common::packets(&bytes, 1);
    assert_eq!((link.transmit(&packets), link.transmit(&packets)), (0, 0));
    assert_eq!(link.next_release(), Some(Time(1_000)));
    assert_eq!(link.transmit(&packets), 2);
    assert_eq!(bench.sent_numbers(), [0, 1, 2, 3, 4]);
}

#[test]
fn corruption_changes_a_bit_or_the_length_and_reaches_every_byte() {
    let (bench, mut link, control) = faulty(10, FaultPlan::none().corrupt(1.0));
    let bytes = [0x5a; 200];
    let mut packet = TxPacket::new(common::peer(), 3, 7);
    packet.push(&bytes[..50]);
    packet.push(&bytes[50..]);
    for _ in 0..8_000 {
        assert_eq!(link.transmit(&[packet]), 1);
    }
    assert_eq!(control.counters().corrupted, 8_000);
    let (mut flipped, mut shorter, mut longer) = ([0_u32; 200], 0_u64, 0_u64);
    for (source_port, sent) in &bench.0.borrow().sent {
        assert_eq!(*source_port, 3);
        assert!((1..=PACKET_BYTES_MAX as usize).contains(&sent.len()));
        match sent.len().cmp(&200) {
            Ordering::Less => shorter += u64::from(bytes.starts_with(sent)),
            Ordering::Greater => longer += u64::from(sent.starts_with(&bytes)),
            Ordering::Equal => {
                let off: Vec<usize> = (0..200).filter(|&i| sent[i] != 0x5a).collect();
                assert_eq!((off.len(), (sent[off[0]] ^ 0x5a).count_ones()), (1, 1));
                flipped[off[0]] += 1;
            }
        }
    }
    assert_share(shorter, 8_000, 0.25, 1.0);
    assert_share(longer, 8_000, 0.25, 1.0);
    assert!(flipped.iter().all(|&hits| hits > 0), "20 hits a byte on average");
}

#[test]
fn what_is_received_is_delayed_duplicated_and_reordered_alike() {
    let (bench, mut link, control) = faulty(11, FaultPlan::none());
    control.set_receive(FaultPlan::none().duplicate(0.2, US).reorder(0.2, 3, US).late(
        0.1,
        Nanos(5_000),
        Nanos(9_000),
    ));
    let arriving = common::numbered(0..1_000).into_iter().map(|bytes| (50_000, bytes.to_vec()));
    bench.0.borrow_mut().arriving.extend(arriving);
    let mut seen = Vec::new();
    loop {
        link.receive(32, &mut |packet| seen.push((number_of(packet.bytes), packet.timestamp)));
        match link.next_release() {
            Some(time) => bench.go_to(time),
            None if bench.0.borrow().arriving.is_empty() => break,
            None => {}
        }
    }
    let counters = control.receive_counters();
    assert_eq!(seen.len() as u64, 1_000 + counters.duplicated);
    assert!(counters.duplicated > 100 && counters.reordered > 100 && counters.late > 50);
    assert_eq!(counters.held(), 0);
    assert!(seen.is_sorted_by_key(|(_, timestamp)| *timestamp), "stamped as they come out");
    let mut numbers: Vec<u32> = seen.iter().map(|(number, _)| *number).collect();
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1_000);
}

#[test]
fn on_the_virtual_wire_a_late_packet_arrives_after_the_wire_fell_silent() {
    let world = World::new(12);
    let (near, mut far) = world.link(&LinkConfig::default());
    let late = Nanos::from_millis(10);
    let control = FaultControl::new(FaultPlan::none().late(1.0, late, late));
    let mut near = FaultLink::new(near, world.next_seed(), control.clone());
    send_numbers(&mut near, 0..1, 1);
    control.set_transmit(FaultPlan::none());
    send_numbers(&mut near, 1..2, 1);
    let mut seen = Vec::new();
    while let Some(time) =
        [world.next_event_time(), near.next_release()].into_iter().flatten().min()
    {
        world.advance_to(time);
        near.transmit(&[]);
        far.receive(9, &mut |packet| seen.push((number_of(packet.bytes), packet.timestamp)));
    }
    assert_eq!(seen.iter().map(|packet| packet.0).collect::<Vec<_>>(), [1, 0]);
    assert!(seen[1].1 > Time(late.0) && seen[0].1 < Time(late.0));
}
