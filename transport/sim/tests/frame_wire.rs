//! One direction of a wire for Ethernet frames: each fault alone, all at once, replay from a seed.

use core::num::NonZeroU64;
use towpath_base::{Nanos, Time};
use towpath_sim::{Burst, FaultPlan, FramePlan, FrameRate, FrameWire, Outage};

const SEED: u64 = 7;
const FRAME_BYTES: usize = 100;

type Out = Vec<(Time, Vec<u8>)>;

/// A frame that tells its number.
fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0x55; bytes];
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().expect("eight bytes"))
}

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// Sends `count` frames, one each `gap`, and lets all of them come out.
fn run(wire: &mut FrameWire, count: u64, gap: Nanos) -> Out {
    let mut out = Vec::new();
    let mut exit = |at: Time, frame: &[u8]| out.push((at, frame.to_vec()));
    for sent in 0..count {
        wire.offer(Time(sent * gap.0), &frame(sent, FRAME_BYTES), &mut exit);
    }
    while let Some(due) = wire.next_release() {
        wire.release(due, &mut exit);
    }
    let counters = wire.counters();
    assert_eq!(counters.in_wire(), 0, "seed {SEED}: {counters:?}");
    assert_eq!(counters.faults.passed, out.len() as u64, "seed {SEED}");
    let bytes: usize = out.iter().map(|(_, frame)| frame.len()).sum();
    assert_eq!(counters.passed_bytes, bytes as u64, "seed {SEED}");
    out
}

fn faulty(faults: FaultPlan) -> FrameWire {
    FrameWire::new(FramePlan { faults, ..FramePlan::default() }, SEED)
}

fn numbers(out: &Out) -> Vec<u64> {
    out.iter().map(|(_, frame)| number(frame)).collect()
}

fn rated(bits_per_s: u64, queue_bytes: usize) -> FramePlan {
    let bits_per_s = NonZeroU64::new(bits_per_s).expect("not zero");
    FramePlan { rate: Some(FrameRate { bits_per_s, queue_bytes }), ..FramePlan::default() }
}

#[test]
fn a_wire_without_faults_hands_on_every_frame_at_once_and_unchanged() {
    let out = run(&mut faulty(FaultPlan::none()), 1_000, us(3));
    for (sent, (at, bytes)) in out.iter().enumerate() {
        assert_eq!((*at, bytes), (Time(sent as u64 * 3_000), &frame(sent as u64, FRAME_BYTES)));
    }
    assert_eq!(out.len(), 1_000);
}

#[test]
fn frames_are_lost_independently_and_in_bursts_at_the_rates_asked_for() {
    let count = 100_000;
    let mut wire = faulty(FaultPlan::none().drop(0.01));
    run(&mut wire, count, us(1));
    let lost = wire.counters().faults.dropped_random;
    assert!((800..1_200).contains(&lost), "seed {SEED}: {lost} of {count}");

    let burst = Burst { enter: 0.001, leave: 0.05, loss: 1.0 };
    let mut wire = faulty(FaultPlan::none().burst(burst));
    let came = numbers(&run(&mut wire, count, us(1)));
    let bursts = came.windows(2).filter(|pair| pair[1] != pair[0] + 1).count() as u64;
    let lost = wire.counters().faults.dropped_burst;
    assert!((60..140).contains(&bursts), "seed {SEED}: {bursts} bursts");
    assert!((14..27).contains(&(lost / bursts)), "seed {SEED}: {lost} lost in {bursts}");
}

#[test]
fn a_delay_keeps_the_order_and_is_exact() {
    let delay = FaultPlan::none().delay(Nanos::from_millis(20), Nanos::ZERO);
    let out = run(&mut faulty(delay), 1_000, us(3));
    assert!(out.iter().all(|(at, bytes)| at.0 == number(bytes) * 3_000 + 20_000_000));
    assert!(numbers(&out).is_sorted());
}

#[test]
fn jitter_reorders_unless_frames_are_to_keep_their_order() {
    let jitter = || FaultPlan::none().delay(us(100), us(50));
    let out = run(&mut faulty(jitter()), 1_000, us(3));
    assert!(!numbers(&out).is_sorted(), "seed {SEED}");

    let plan = FramePlan { faults: jitter(), keeps_order: true, ..FramePlan::default() };
    let out = run(&mut FrameWire::new(plan, SEED), 1_000, us(3));
    assert!(numbers(&out).is_sorted(), "seed {SEED}");
    for (at, bytes) in &out {
        let late = at.0 - number(bytes) * 3_000;
        assert!((100_000..=150_000).contains(&late), "seed {SEED}: {late} ns");
    }
    assert_eq!(out.len(), 1_000);
}

#[test]
fn reordered_frames_are_overtaken_by_as_many_as_asked_for_at_most() {
    let mut wire = faulty(FaultPlan::none().reorder(0.05, 3, Nanos::from_secs(1)));
    let came = numbers(&run(&mut wire, 10_000, us(3)));
    let reordered = wire.counters().faults.reordered;
    assert!((400..600).contains(&reordered), "seed {SEED}: {reordered}");
    let mut sorted = came.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..10_000).collect::<Vec<_>>(), "none is lost");
    for (place, sent) in came.iter().enumerate() {
        // The last ones have nobody to overtake them, and come out in the end.
        let moved = (place as u64).abs_diff(*sent);
        assert!(moved <= 3, "seed {SEED}: frame {sent} came {moved} places from its own");
    }
}

#[test]
fn copies_come_right_behind_or_up_to_a_delay_later() {
    let mut wire = faulty(FaultPlan::none().duplicate(0.05, Nanos::ZERO));
    let out = run(&mut wire, 10_000, us(3));
    assert!(numbers(&out).is_sorted(), "a copy without a delay comes right behind");
    let copies = wire.counters().faults.duplicated;
    assert!((400..600).contains(&copies), "seed {SEED}: {copies}");
    assert_eq!(out.len() as u64, 10_000 + copies);

    let mut wire = faulty(FaultPlan::none().duplicate(1.0, Nanos::ZERO));
    let mut came = 0;
    wire.offer(Time(5), &frame(0, FRAME_BYTES), &mut |_, _| came += 1);
    assert_eq!(came, 2, "such a copy does not wait for the next frame");

    let mut wire = faulty(FaultPlan::none().duplicate(0.05, us(100)));
    let out = run(&mut wire, 10_000, us(3));
    assert!(!numbers(&out).is_sorted(), "seed {SEED}: others come in between");
    assert!(out.iter().all(|(at, bytes)| at.0 <= number(bytes) * 3_000 + 100_000));
}

#[test]
fn corrupted_frames_differ_and_the_others_do_not() {
    let mut wire = faulty(FaultPlan::none().corrupt(0.05));
    let out = run(&mut wire, 10_000, us(3));
    let differ = out.iter().enumerate();
    let differ = differ.filter(|(sent, (_, bytes))| *bytes != frame(*sent as u64, FRAME_BYTES));
    let corrupted = wire.counters().faults.corrupted;
    assert_eq!(differ.count() as u64, corrupted, "seed {SEED}");
    assert!((400..600).contains(&corrupted), "seed {SEED}: {corrupted}");
}

#[test]
fn a_rate_spaces_frames_and_a_full_queue_drops_them() {
    // 100 bytes at 8 Mb/s are 100 us.
    let mut wire = FrameWire::new(rated(8_000_000, 10 * FRAME_BYTES), SEED);
    let out = run(&mut wire, 100, us(50));
    for pair in out.windows(2) {
        assert_eq!(pair[1].0.since(pair[0].0), us(100), "the wire is never idle");
    }
    assert_eq!(out[0].0, Time(100_000), "a frame is out once its last bit is");
    let dropped = wire.counters().queue_dropped;
    assert_eq!(out.len() as u64 + dropped, 100);
    // 5 ms bring 100 frames; 49 leave meanwhile, and 10 wait.
    assert!((40..=42).contains(&dropped), "{dropped}");
    let waited = out.iter().map(|(at, bytes)| at.0 - number(bytes) * 50_000).max();
    assert!(waited <= Some(1_050_000), "no more than the queue: {waited:?}");
}

#[test]
fn a_wire_that_is_looked_at_late_keeps_its_rate() {
    let mut wire = FrameWire::new(rated(8_000_000, 1 << 20), SEED);
    let mut out = Vec::new();
    let mut exit = |at: Time, frame: &[u8]| out.push((at, frame.to_vec()));
    (0..100).for_each(|sent| wire.offer(Time::ZERO, &frame(sent, FRAME_BYTES), &mut exit));
    wire.release(Time(3_777_777), &mut exit);
    wire.release(Time(20_000_000), &mut exit);
    assert!(out.iter().enumerate().all(|(at, (time, _))| time.0 == (at as u64 + 1) * 100_000));
    assert_eq!(out.len(), 100);
}

#[test]
fn a_frame_longer_than_the_queue_passes_when_nothing_is_before_it() {
    let mut wire = FrameWire::new(rated(8_000_000, 10), SEED);
    let out = run(&mut wire, 3, us(1_000));
    assert_eq!(out.len(), 3);
}

#[test]
fn reordering_counts_frames_behind_a_rate_too() {
    let faults = FaultPlan::none().reorder(0.1, 3, Nanos::from_secs(1));
    let plan = FramePlan { faults, ..rated(8_000_000, 1 << 20) };
    let mut wire = FrameWire::new(plan, SEED);
    let came = numbers(&run(&mut wire, 1_000, us(10)));
    assert!(!came.is_sorted(), "seed {SEED}");
    assert!(came.iter().enumerate().all(|(place, sent)| (place as u64).abs_diff(*sent) <= 3));
}

#[test]
fn frames_above_the_mtu_are_dropped_and_a_tag_does_not_count() {
    let mut wire = FrameWire::new(FramePlan { mtu: Some(1_500), ..FramePlan::default() }, SEED);
    let mut came = Vec::new();
    let mut exit = |_: Time, frame: &[u8]| came.push(frame.len());
    let mut tagged = frame(0, 1_518);
    tagged[12..14].copy_from_slice(&[0x81, 0x00]);
    for frame in [frame(0, 1_514), frame(1, 1_515), tagged, frame(3, 60), vec![1]] {
        wire.offer(Time::ZERO, &frame, &mut exit);
    }
    assert_eq!(came, [1_514, 1_518, 60, 1]);
    assert_eq!(wire.counters().too_large, 1);
}

#[test]
fn an_outage_loses_all_and_comes_again_where_that_is_asked_for() {
    let outage = |every| Outage { after: us(100), span: us(50), every };
    let mut plan = FramePlan { outages: vec![outage(Nanos::ZERO)], ..FramePlan::default() };
    let came = numbers(&run(&mut FrameWire::new(plan.clone(), SEED), 500, us(1)));
    assert_eq!(came, (0..100).chain(150..500).collect::<Vec<_>>());

    plan.outages = vec![outage(us(200))];
    let mut wire = FrameWire::new(plan, SEED);
    let came = numbers(&run(&mut wire, 500, us(1)));
    assert_eq!(came, (0..100).chain(150..300).chain(350..500).collect::<Vec<_>>());
    assert_eq!(wire.counters().lost_down, 100);
}

/// Everything at once, of a seed.
fn everything(seed: u64) -> FrameWire {
    let faults = FaultPlan::none()
        .drop(0.05)
        .burst(Burst { enter: 0.01, leave: 0.2, loss: 0.8 })
        .duplicate(0.05, us(200))
        .reorder(0.05, 5, us(300))
        .corrupt(0.05)
        .delay(us(100), us(40))
        .late(0.01, us(1_000), us(2_000));
    let outages = vec![Outage { after: us(900), span: us(100), every: us(5_000) }];
    let plan = FramePlan { faults, mtu: Some(FRAME_BYTES), outages, ..rated(100_000_000, 2_000) };
    FrameWire::new(plan, seed)
}

#[test]
fn the_same_seed_gives_the_same_frames_at_the_same_times_and_another_one_does_not() {
    let of = |seed| run(&mut everything(seed), 5_000, us(7));
    assert_eq!(of(SEED), of(SEED));
    assert_ne!(of(SEED), of(SEED + 1));
}

#[test]
fn every_frame_is_accounted_for_at_every_moment() {
    let mut wire = everything(SEED);
    let mut passed = 0;
    for sent in 0..5_000 {
        wire.offer(Time(sent * 4_000), &frame(sent, 90 + sent as usize % 40), &mut |_, _| {
            passed += 1;
        });
        let counters = wire.counters();
        let lost = counters.too_large
            + counters.lost_down
            + counters.queue_dropped
            + counters.faults.lost()
            + counters.in_wire();
        assert_eq!(sent + 1 + counters.faults.duplicated, passed + lost, "{counters:?}");
    }
    let counters = wire.counters();
    for (what, count) in [
        ("too large", counters.too_large),
        ("down", counters.lost_down),
        ("queue", counters.queue_dropped),
        ("random", counters.faults.dropped_random),
        ("burst", counters.faults.dropped_burst),
        ("copies", counters.faults.duplicated),
        ("late", counters.faults.late),
    ] {
        assert!(count > 0, "seed {SEED}: no {what}");
    }
}

#[test]
fn what_is_held_is_bounded() {
    let delay = FaultPlan::none().delay(Nanos::from_secs(100), Nanos::ZERO);
    let mut wire = faulty(delay);
    let held_max = towpath_sim::limits::HELD_PACKETS_MAX as u64;
    for sent in 0..held_max + 10 {
        wire.offer(Time(sent), &[0; 60], &mut |_, _| {});
    }
    assert_eq!(wire.counters().in_wire(), held_max);
    assert_eq!(wire.counters().faults.dropped_overflow, 10);
}

#[test]
fn an_outage_of_udp_loses_that_alone_over_both_families_tagged_or_not() {
    let ip = |is_v4: bool, fragment: bool, protocol: u8| {
        let mut ip = vec![0; 60];
        match (is_v4, fragment) {
            (true, _) => ip[9] = protocol,
            (false, false) => ip[6] = protocol,
            (false, true) => (ip[6], ip[40]) = (44, protocol),
        }
        ip
    };
    let frame = |is_v4: bool, is_tagged: bool, ip: &[u8]| {
        let mut frame = vec![2; 12];
        frame.extend(if is_tagged { &[0x81, 0, 0, 7][..] } else { &[] });
        frame.extend(if is_v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(ip);
        frame
    };
    let outage = Outage { after: us(100), span: us(100), every: Nanos::ZERO };
    let plan = FramePlan { udp_outages: vec![outage], ..FramePlan::default() };
    let mut wire = FrameWire::new(plan, 1);
    let mut passes = |at: Nanos, frame: &[u8]| {
        let mut came = 0;
        wire.offer(Time::ZERO + at, frame, &mut |_, _| came += 1);
        came == 1
    };
    for at in [us(50), us(150), us(250)] {
        for (is_v4, fragment) in [(true, false), (false, false), (false, true)] {
            for is_tagged in [false, true] {
                let of = |protocol| frame(is_v4, is_tagged, &ip(is_v4, fragment, protocol));
                assert!(passes(at, &of(6)), "TCP goes through");
                assert_eq!(passes(at, &of(17)), at != us(150), "{at:?} {is_v4} {is_tagged}");
            }
        }
        // ARP, and frames too short for what they say that they are.
        let short = frame(true, true, &[]);
        assert!(passes(at, &[1; 60]) && passes(at, &short) && passes(at, &short[..13]));
    }
    assert_eq!(wire.counters().lost_down, 6);
}
