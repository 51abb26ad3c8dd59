//! What must be seen on an ordinary network.

use towpath_base::Nanos;

use super::{PLAN, Plan, run};

const KB: u64 = 1_000;
const MBPS: u64 = 1_000_000;
const SPAN: Nanos = Nanos::from_secs(2);

/// Wires with short queues, under a short MTU and a long one.
fn wires() -> impl Iterator<Item = Plan> {
    [(100, 120), (1_000, 120)].into_iter().flat_map(|(mbps, rtt_us)| {
        [30, 64, 150].into_iter().flat_map(move |queue_kb| {
            [(1024, 1448), (4096, 8948)].map(|packet_bytes| Plan {
                rate_bits_per_s: mbps * MBPS,
                base_rtt: Nanos::from_micros(rtt_us),
                queue_bytes: queue_kb * KB,
                packet_bytes,
                ..PLAN
            })
        })
    })
}

#[test]
fn a_sender_alone_fills_a_slow_wire_and_keeps_its_queue_short() {
    for plan in wires() {
        let seen = run(&plan, SPAN);
        assert!(seen.ours > 0.9 && seen.lost < 0.005, "{plan:?}: {seen:?}");
        let hundred_packets = Nanos(100 * 1_500 * 8_000_000_000 / plan.rate_bits_per_s);
        assert!(seen.queue.0 < hundred_packets.0 / 8, "{plan:?}: {seen:?}");
    }
}

#[test]
fn beside_tcp_each_of_the_two_gets_a_part_that_the_other_can_live_with() {
    for plan in wires() {
        // A slow wire has few round trips in a second, and CUBIC is slow to give way.
        let span = if plan.rate_bits_per_s < 1_000 * MBPS { Nanos(5 * SPAN.0) } else { SPAN };
        let seen = run(&Plan { with_tcp: true, ..plan }, span);
        let of = format!("{plan:?}: {seen:?}");
        // In a queue of three long segments there is hardly a place beside TCP's two.
        let least = if plan.queue_bytes == 30 * KB { 0.12 } else { 0.19 };
        assert!(seen.ours > least && seen.tcp > 0.2, "{of}");
        assert!(seen.ours + seen.tcp > 0.9, "{of}");
    }
}

#[test]
fn random_loss_on_an_idle_wire_costs_little_more_than_what_is_lost() {
    for plan in wires() {
        let seen = run(&Plan { loss: 0.01, ..plan }, SPAN);
        assert!(seen.ours > 0.85, "{plan:?}: {seen:?}");
    }
}

#[test]
fn much_random_loss_is_told_from_a_queue_that_overflows() {
    for seed in 1..=5 {
        let seen = run(&Plan { seed, loss: 0.15, queue_bytes: 150 * KB, ..PLAN }, SPAN);
        assert!(seen.ours > 0.5, "{seen:?}");
    }
}

#[test]
fn hosts_that_are_away_now_and_then_neither_flood_the_queue_nor_stand_still() {
    for away_us in [500, 3_000] {
        for plan in wires().filter(|plan| plan.queue_bytes > 30 * KB) {
            let plan = Plan { away: Nanos::from_micros(away_us), ..plan };
            let seen = run(&plan, SPAN);
            assert!(seen.ours > 0.7 && seen.lost < 0.03, "{plan:?}: {seen:?}");
            let seen = run(&Plan { with_tcp: true, ..plan }, SPAN);
            assert!(seen.ours > 0.15 && seen.tcp > 0.2, "{plan:?}: {seen:?}");
        }
    }
}

#[test]
fn a_long_path_fills_within_seconds() {
    let base_rtt = Nanos::from_millis(40);
    for queue_bytes in [256 << 10, 4 << 20] {
        let seen = run(&Plan { base_rtt, queue_bytes, ..PLAN }, Nanos::from_secs(3));

        assert!(seen.ours > 0.6 && seen.lost < 0.1, "{queue_bytes}: {seen:?}");
    }
}

#[test]
#[ignore = "a table to look at"]
fn table() {
    for seed in 1..=3 {
        for plan in wires() {
            let plan = Plan { seed, with_tcp: true, ..plan };
            let away = Plan { away: Nanos::from_millis(1), ..plan };
            let span = Nanos::from_secs(20_000 * MBPS / plan.rate_bits_per_s / 10);
            let [a, b] = [plan, away].map(|plan| run(&plan, span));
            println!(
                "{:4} {:3} {:4}: {:.2} {:.2} lost {:.3} | away {:.2} {:.2} lost {:.3}",
                plan.rate_bits_per_s / MBPS,
                plan.queue_bytes / KB,
                plan.packet_bytes.0,
                a.ours,
                a.tcp,
                a.lost,
                b.ours,
                b.tcp,
                b.lost
            );
        }
    }
}
