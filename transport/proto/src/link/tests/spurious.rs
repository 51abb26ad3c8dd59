//! What looked lost and was only late: it is counted as that, and nothing is left for it.

use super::paths::send;
use super::ports::open;
use super::wire::Wire;
use super::*;

#[test]
fn what_a_peer_without_a_processor_acknowledges_late_was_not_lost() {
    for paths in [1, 2, 4] {
        for seed in 0..20 {
            let (mut wire, channel) = open(seed, paths);
            let mut prng = Prng::new(seed);
            for round in 1..20 {
                let first = 100 * round;
                send(&mut wire, channel, first..first + prng.between(1, 60), 3_000);
                let away = Nanos::from_micros(prng.between(500, 12_000));
                wire.away_until[1] = wire.now + away;
                wire.run_until(Wire::settled);
                // Something later, so that all is known of what was before.
                wire.run_for(Nanos::from_millis(3));
            }
            let link = &wire.ends[0].link;
            let stats = link.stats();
            assert!(stats.rtos > 0 && stats.losses_by_timeout > 0, "{stats:?}");
            assert_eq!((stats.lost(), stats.losses_by_gap), (0, 0), "seed {seed}: {stats:?}");
            assert_eq!(stats.rtos_spurious, stats.rtos, "seed {seed}: {stats:?}");
            assert!(link.paths().all(|path| path.lost == 0), "seed {seed}");
            wire.check_clean();
        }
    }
}

#[test]
fn what_is_counted_as_lost_is_what_the_network_has_dropped() {
    for paths in [1, 4] {
        for seed in 0..30 {
            let (mut wire, channel) = open(seed, paths);
            let mut prng = Prng::new(seed);
            for round in 1..10 {
                wire.faults.drop = [0.0, 0.05, 0.3, 1.0][prng.below(4) as usize];
                let first = 100 * round;
                send(&mut wire, channel, first..first + prng.between(1, 60), 3_000);
                if prng.chance(0.5) {
                    let away = Nanos::from_micros(prng.between(500, 6_000));
                    wire.away_until[1] = wire.now + away;
                }
                wire.run_for(Nanos::from_millis(3));
                wire.faults.drop = 0.0;
                wire.run_until(Wire::settled);
            }
            // Something later on each path, so that all is known of what was before.
            let all_is_known =
                |wire: &Wire| wire.ends[0].link.paths.iter().all(|path| !path.tx.any_outstanding());
            let mut tokens = 5_000..6_000;
            while !all_is_known(&wire)
                && let Some(token) = tokens.next()
            {
                send(&mut wire, channel, token..token + 1, 100);
                wire.run_until(Wire::settled);
            }
            assert!(all_is_known(&wire), "seed {seed}");
            let stats = wire.ends[0].link.stats();
            let (lost, dropped) = (stats.lost(), wire.dropped[1]);
            assert!(lost <= dropped, "seed {seed}: {lost} of {dropped}, {stats:?}");
            // Where no path answered at all, as here in half of the rounds, it is not known.
            let least = if paths == 1 { dropped } else { dropped / 16 };
            assert!(lost >= least, "seed {seed}: {lost} of {dropped}, {stats:?}");
            wire.check_clean();
        }
    }
}

#[test]
fn acks_stay_where_they_are_when_what_was_sent_again_was_only_late() {
    for paths in [1, 4] {
        for seed in 0..10 {
            let (mut wire, channel) = open(seed, paths);
            let mut prng = Prng::new(seed);
            for round in 1..100 {
                let first = 100 * round;
                send(&mut wire, channel, first..first + prng.between(1, 60), 3_000);
                let at = prng.below(2) as usize;
                let away = Nanos::from_micros(prng.between(500, 12_000));
                wire.away_until[at] = wire.now + away;
                wire.run_until(Wire::settled);
            }
            let stats = wire.ends[1].link.stats();
            assert!(stats.chunks_duplicate > 100, "seed {seed}: {stats:?}");
            // A peer that says that it hears nothing is heeded at once where there are other ways.
            assert!(paths > 1 || stats.ack_reroutes == 0, "seed {seed}: {stats:?}");
            assert_eq!(stats.reroutes(), stats.reroutes_in_vain, "seed {seed}: {stats:?}");
        }
    }
}
