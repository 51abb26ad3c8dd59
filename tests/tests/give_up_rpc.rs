//! Requests given up at any moment: what their callers are told is true, and nothing is left.
//!
//! `cargo test --release -p towpath-tests --test give_up_rpc -- --ignored --nocapture` does it with
//! a hundred thousand and prints how long it took to know what had become of them.

mod rpc_rig;

use rpc_rig::{Report, Rig};
use towpath_lab::app::GiveUpLog;
use towpath_tests::{hold, seeds};

/// What all runs did together.
#[derive(Default)]
struct Sum {
    runs: u64,
    answered: u64,
    happened: u64,
    not_happened: u64,
    unknown: u64,
    unbegun: u64,
    responses_given_up: u64,
    lost: u64,
    log: GiveUpLog,
}

impl Sum {
    fn of(seeds: core::ops::Range<u64>, requests: u64) -> Self {
        let mut sum = Self::default();
        hold("give_up_rpc", seeds, |seed| Rig::new(seed).run(requests), |report| sum.add(report));
        sum
    }

    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.answered += report.answered;
        self.happened += report.happened;
        self.not_happened += report.not_happened;
        self.unknown += report.unknown;
        self.unbegun += report.server.cancelled_unbegun;
        self.responses_given_up += report.server.responses_given_up;
        self.lost += report.packets_lost;
        self.log.add(report.log);
    }

    fn tell(&mut self) {
        let us = |percent| self.log.clone().percentile(percent).map_or(0.0, |t| t.0 as f64 / 1e3);
        println!(
            "{} runs: {} answered; given up and asked after: {} happened, {} did not, {} unknown; \
             {} cancelled unbegun, {} responses given up, {} packets lost; from giving up to the \
             answer: median {:.1} us, p99 {:.1} us, longest {:.1} us of virtual time",
            self.runs,
            self.answered,
            self.happened,
            self.not_happened,
            self.unknown,
            self.unbegun,
            self.responses_given_up,
            self.lost,
            us(50.0),
            us(99.0),
            us(100.0),
        );
    }

    /// A test in which nothing is in the way of giving up shows nothing.
    fn check_that_every_moment_was_met(&self) {
        let all = self.answered + self.happened + self.not_happened + self.unknown;
        for (what, count, each) in [
            ("answered", self.answered, 10),
            ("happened", self.happened, 100),
            ("did not happen", self.not_happened, 10),
            ("unknown", self.unknown, 1000),
            ("cancelled before the service had begun", self.unbegun, 100),
            ("responses given up", self.responses_given_up, 1000),
            ("packets lost", self.lost, 10),
        ] {
            assert!(count >= all / each, "{what}: only {count} of {all}");
        }
        // Silence is the exception: a service that outlasts the grace.
        assert!(self.unknown < all / 20, "{} of {all} unknown", self.unknown);
    }
}

#[test]
fn what_is_said_of_requests_given_up_is_true_and_nothing_is_left_of_them() {
    let seeds = seeds(6);
    let one = seeds.end - seeds.start == 1;
    let mut sum = Sum::of(seeds, 1_000);
    if !one {
        sum.check_that_every_moment_was_met();
    }
    sum.tell();
}

#[test]
#[ignore = "a hundred thousand requests take a minute"]
fn a_hundred_thousand_requests_given_up_leave_nothing_behind() {
    let mut sum = Sum::of(seeds(20), 5_000);
    sum.check_that_every_moment_was_met();
    sum.tell();
}
