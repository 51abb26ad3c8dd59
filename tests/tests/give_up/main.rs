//! Messages given up at any moment leave no buffer, no credit and no state behind at either end.
//!
//! Each run is one long life of a link over which both hosts send messages on ordered and unordered
//! channels, and give nearly all of them up: before the first chunk, while chunks are in flight,
//! while a reader takes them in pieces, after the last. Then, with the link still up, both ends
//! are searched for anything left behind, and the link has to carry messages as before.
//!
//! `cargo test --release -p towpath-tests --test give_up -- --ignored --nocapture` gives a million
//! up and prints how long it took to know what had become of them.

#![allow(unreachable_pub, reason = "the parts of one test")]

mod run;

use run::{GiveUp, GiveUpReport};
use towpath_base::Nanos;
use towpath_lab::app::GiveUpLog;
use towpath_sim::FaultCounters;
use towpath_tests::{hold, seeds};

/// What all runs did together.
#[derive(Default)]
struct Sum {
    runs: u64,
    messages: u64,
    delivered: u64,
    log: GiveUpLog,
    faults: FaultCounters,
    retransmitted: u64,
}

impl Sum {
    fn of(seeds: core::ops::Range<u64>, messages: u64) -> Self {
        let mut sum = Self::default();
        hold("give_up", seeds, |seed| GiveUp { seed, messages }.run(), |report| sum.add(report));
        sum
    }

    fn add(&mut self, report: GiveUpReport) {
        self.runs += 1;
        self.messages += report.messages;
        self.delivered += report.delivered;
        self.log.add(report.log);
        self.faults = self.faults.plus(report.faults);
        self.retransmitted += report.links.chunks_retransmitted;
    }

    /// A test in which nothing is in the way of giving up shows nothing.
    fn check_that_every_moment_was_met(&self) {
        let (log, faults) = (&self.log, &self.faults);
        for (what, count, each) in [
            ("given up before the first chunk", log.at_once, 10),
            ("given up in flight", log.abandoned, 10),
            ("given up when it had arrived", log.delivered, 100),
            ("given up while read in pieces", log.streams_aborted, 1000),
            ("delivered all the same", self.delivered, 10),
            ("packets lost", faults.dropped_random, 100),
            ("packets doubled", faults.duplicated, 100),
            ("packets disordered", faults.reordered, 100),
            ("chunks sent again", self.retransmitted, 100),
        ] {
            let wanted = self.messages / each;
            assert!(count >= wanted, "{what}: only {count} of {} messages", self.messages);
        }
        assert_eq!(log.unknown, 0, "the peer was there all the time");
    }

    fn tell(&mut self) {
        let us = |span: Option<Nanos>| span.map_or(f64::NAN, |span| span.0 as f64 / 1e3);
        let [median, p99, max] =
            [50.0, 99.0, 100.0].map(|percent| us(self.log.percentile(percent)));
        let GiveUpLog { at_once, abandoned, delivered, streams_aborted, .. } = self.log;
        println!(
            "{} runs, {} messages, {} given up: {at_once} before the first chunk, {abandoned} in \
             flight, {delivered} had arrived; {streams_aborted} while read in pieces; {} came; \
             from giving up to the outcome, where it was not known at once: median {median:.1} us, \
             p99 {p99:.1} us, longest {max:.1} us of virtual time",
            self.runs,
            self.messages,
            self.log.given_up(),
            self.delivered,
        );
    }
}

#[test]
fn messages_given_up_at_any_moment_leave_nothing_behind() {
    let seeds = seeds(24);
    let one = seeds.end - seeds.start == 1;
    let mut sum = Sum::of(seeds, 500);
    if !one {
        sum.check_that_every_moment_was_met();
    }
    sum.tell();
}

#[test]
#[ignore = "a million messages take minutes"]
fn a_million_messages_given_up_leave_nothing_behind() {
    let mut sum = Sum::of(seeds(160), 5_000);
    sum.check_that_every_moment_was_met();
    assert!(sum.log.given_up() >= 1_000_000, "only {} were given up", sum.log.given_up());
    sum.tell();
}
