//! Loss, bursts, black holes: how much, what the link says it took, and that it replays.

mod common;

use common::{Bench, assert_share, numbered, packets, send_numbers};
use towpath_sim::{Burst, FaultControl, FaultCounters, FaultLink, FaultPlan};
use towpath_verbs::PacketLink;

fn faulty(seed: u64, plan: FaultPlan) -> (Bench, FaultLink<common::BenchLink>, FaultControl) {
    let (bench, control) = (Bench::default(), FaultControl::new(plan));
    let link = FaultLink::new(bench.link(), seed, control.clone());
    (bench, link, control)
}

/// The numbers that get through of `0..n`, offered in batches, by a link that takes as it likes.
fn survivors(seed: u64, plan: FaultPlan, n: u32, batch: usize, takes: &[usize]) -> Vec<u32> {
    let (bench, mut link, control) = faulty(seed, plan);
    bench.0.borrow_mut().takes = takes.iter().copied().collect();
    send_numbers(&mut link, 0..n, batch);
    let counters = control.counters();
    assert_eq!(counters.taken, u64::from(n));
    assert_eq!(counters.passed, bench.0.borrow().sent.len() as u64);
    assert_eq!(counters.passed + counters.lost(), u64::from(n));
    bench.sent_numbers()
}

#[test]
fn without_faults_a_batch_goes_through_in_one_call() {
    let (bench, mut link, control) = faulty(1, FaultPlan::none());
    let bytes = numbered(0..50);
    assert_eq!(link.transmit(&packets(&bytes, 2)), 50);
    assert_eq!(bench.0.borrow().offers, [50]);
    assert_eq!(control.counters(), FaultCounters { taken: 50, passed: 50, ..Default::default() });
}

#[test]
fn random_loss_is_as_likely_as_asked_and_dropped_packets_count_as_taken() {
    for p in [0.01, 0.1, 0.5] {
        let passed = survivors(11, FaultPlan::none().drop(p), 100_000, 64, &[]);
        assert_share(100_000 - passed.len() as u64, 100_000, p, 1.0);
        assert!(passed.is_sorted(), "loss alone keeps the order");
    }
    assert_eq!(survivors(11, FaultPlan::none().drop(1.0), 1_000, 64, &[]), [0_u32; 0]);
}

#[test]
fn random_loss_passes_the_others_by_reference_in_runs() {
    let (bench, mut link, control) = faulty(5, FaultPlan::none().drop(0.01));
    let bytes = numbered(0..1_000);
    let lent: Vec<*const u8> = bytes.iter().map(|bytes| bytes.as_ptr()).collect();
    assert_eq!(link.transmit(&packets(&bytes, 1)), 1_000);
    let state = bench.0.borrow();
    assert!(state.pointers.iter().all(|pointer| lent.contains(pointer)));
    let dropped = control.counters().dropped_random as usize;
    assert!(dropped > 0 && state.offers.len() <= dropped + 1, "{} calls", state.offers.len());
}

#[test]
fn bursts_are_as_long_and_as_frequent_as_asked() {
    let burst = Burst { enter: 0.01, leave: 0.1, loss: 1.0 };
    let n = 200_000;
    let passed = survivors(21, FaultPlan::none().burst(burst), n, 64, &[]);
    // Neighbours are correlated by r = 1 - enter - leave: the variance grows by (1+r) / (1-r).
    let r = 1.0 - burst.enter - burst.leave;
    let lost = u64::from(n) - passed.len() as u64;
    assert_share(lost, u64::from(n), burst.mean_loss(), (1.0 + r) / (1.0 - r));
    let bursts = passed.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
    let mean_length = lost as f64 / bursts as f64;
    // Lengths are geometric, so their deviation is below the mean; five of them over the root.
    assert!((mean_length - 10.0).abs() < 5.0 * 10.0 / (bursts as f64).sqrt(), "{mean_length}");
}

#[test]
fn decisions_depend_on_the_seed_and_the_packets_and_not_on_the_batches() {
    let burst = Burst { enter: 0.02, leave: 0.2, loss: 0.8 };
    let plan = FaultPlan::none().drop(0.05).burst(burst);
    let whole = survivors(3, plan.clone(), 5_000, 5_000, &[]);
    assert_eq!(whole, survivors(3, plan.clone(), 5_000, 1, &[]));
    assert_eq!(whole, survivors(3, plan.clone(), 5_000, 37, &[]));
    assert_ne!(whole, survivors(4, plan, 5_000, 37, &[]));
}

#[test]
fn a_packet_that_the_inner_link_did_not_take_meets_the_same_fate_when_offered_again() {
    let burst = Burst { enter: 0.02, leave: 0.2, loss: 0.8 };
    let plan = FaultPlan::none().drop(0.3).burst(burst).corrupt(0.1);
    let takes: Vec<usize> = (0..3_000).map(|i| [0, 1, 3, 0, 2, 9][i % 6]).collect();
    let run = |takes: &[usize]| {
        let (bench, mut link, control) = faulty(9, plan.clone());
        bench.0.borrow_mut().takes = takes.iter().copied().collect();
        send_numbers(&mut link, 0..2_000, 16);
        let sent = bench.0.borrow().sent.clone();
        (sent, control.counters())
    };
    let (whole, in_parts) = (run(&[]), run(&takes));
    assert!(whole.1.corrupted > 50 && whole.1.dropped_random > 400);
    assert_eq!(whole, in_parts);
}

#[test]
fn the_link_says_how_many_it_took_up_to_where_the_inner_link_stopped() {
    let plan = FaultPlan::none().black_hole_ports([1]);
    let (bench, mut link, control) = faulty(1, plan);
    bench.0.borrow_mut().takes = [1, 0].into();
    let bytes = numbered(0..6);
    // Ports 0 1 0 1 0 1: the first passes, the second falls in the hole, the third is refused.
    assert_eq!(link.transmit(&packets(&bytes, 2)), 2);
    let counters = control.counters();
    assert_eq!((counters.taken, counters.passed, counters.black_holed), (2, 1, 1));
    assert_eq!(link.transmit(&packets(&bytes, 2)[2..]), 4);
    assert_eq!(bench.sent_numbers(), [0, 2, 4]);
}

#[test]
fn a_black_hole_takes_its_source_ports_and_no_others() {
    let (bench, mut link, control) = faulty(1, FaultPlan::none().black_hole_ports([2, 5]));
    let bytes = numbered(0..80);
    assert_eq!(link.transmit(&packets(&bytes, 8)), 80);
    let ports: Vec<u16> = bench.0.borrow().sent.iter().map(|packet| packet.0).collect();
    assert_eq!(ports.len(), 60);
    assert!(!ports.contains(&2) && !ports.contains(&5));
    assert_eq!(control.transmit_counters().black_holed, 20);
}

#[test]
fn a_black_hole_is_of_one_direction() {
    let (bench, mut link, control) = faulty(1, FaultPlan::none());
    let arrive = || {
        let packets = [(50_001, vec![1]), (50_002, vec![2])];
        bench.0.borrow_mut().arriving.extend(packets);
    };
    let receive = |link: &mut FaultLink<_>| {
        let mut seen = Vec::new();
        let handed = link.receive(9, &mut |packet| seen.push(packet.bytes[0]));
        assert_eq!(handed, seen.len());
        seen
    };
    control.set_receive(FaultPlan::none().black_hole_ports([50_001]));
    arrive();
    assert_eq!(receive(&mut link), [2]);
    control.set_receive(FaultPlan::none().black_hole(true));
    arrive();
    assert_eq!(receive(&mut link), [0_u8; 0]);
    send_numbers(&mut link, 0..3, 3);
    assert_eq!(bench.sent_numbers(), [0, 1, 2]);
    assert_eq!(control.receive_counters().black_holed, 3);
    assert_eq!(control.transmit_counters().lost(), 0);
}

#[test]
fn loss_on_the_receive_path_is_as_likely_and_hides_no_packet_behind_a_dropped_one() {
    let (bench, mut link, control) = faulty(8, FaultPlan::none());
    control.set_receive(FaultPlan::none().drop(0.5));
    let bytes = numbered(0..20_000);
    bench.0.borrow_mut().arriving.extend(bytes.iter().map(|bytes| (50_000, bytes.to_vec())));
    let mut handed = 0;
    // A zero means that nothing is there: a loop that stops at it must have seen them all.
    loop {
        let now = link.receive(4, &mut |_| {});
        assert!(now <= 4);
        if now == 0 {
            break;
        }
        handed += now as u64;
    }
    assert!(bench.0.borrow().arriving.is_empty());
    assert_eq!(handed + control.counters().dropped_random, 20_000);
    assert_share(handed, 20_000, 0.5, 1.0);
}

#[test]
fn packets_beyond_a_length_are_lost_and_no_others() {
    let (bench, mut link, control) = faulty(1, FaultPlan::none());
    send_numbers(&mut link, 0..10, 5);
    let bytes = bench.0.borrow().sent[0].1.len();
    control.set_transmit(FaultPlan::none().drop_longer_than(Some(bytes - 1)));
    send_numbers(&mut link, 10..20, 5);
    control.set_transmit(FaultPlan::none().drop_longer_than(Some(bytes)));
    send_numbers(&mut link, 20..30, 5);
    assert_eq!(bench.sent_numbers(), (0..10).chain(20..30).collect::<Vec<_>>());
    let counters = control.counters();
    assert_eq!((counters.dropped_long, counters.lost(), counters.held()), (10, 10, 0));
}

#[test]
fn a_plan_changes_while_the_link_runs_on_another_thread() {
    fn assert_shared<T: Clone + Send + Sync>(_: &T) {}
    let (bench, mut link, control) = faulty(1, FaultPlan::none());
    assert_shared(&control);
    send_numbers(&mut link, 0..10, 5);
    let remote = control.clone();
    let changed = std::thread::spawn(move || {
        remote.set_transmit(FaultPlan::none().black_hole(true));
        remote.counters().taken
    });
    assert_eq!(changed.join().expect("the thread ran"), 10);
    assert_eq!(control.transmit_plan(), FaultPlan::none().black_hole(true));
    send_numbers(&mut link, 10..20, 5);
    control.set_transmit(FaultPlan::none());
    send_numbers(&mut link, 20..30, 5);
    assert_eq!(bench.sent_numbers(), (0..10).chain(20..30).collect::<Vec<_>>());
    assert_eq!(control.counters().black_holed, 10);
}

#[test]
fn links_that_share_a_control_add_to_the_same_counters() {
    let control = FaultControl::new(FaultPlan::none().drop(0.5));
    let benches = [Bench::default(), Bench::default()];
    for (seed, bench) in (1..).zip(&benches) {
        let mut link = FaultLink::new(bench.link(), seed, control.clone());
        send_numbers(&mut link, 0..100, 10);
    }
    assert_eq!(control.counters().taken, 200);
    assert_ne!(benches[0].sent_numbers(), benches[1].sent_numbers());
}
