//! Every message that is acknowledged was delivered exactly once and intact, whatever befalls it.

mod scenario;

use scenario::{Report, Scenario, Sizes};
use towpath_lab::pair::Seals;
use towpath_sim::FaultCounters;
use towpath_tests::{hold, seeds};
use towpath_transport::keys::{Refusal, Sealing};
use towpath_transport::{Icrc, Spreading};

/// Runs of the test. Each has its own wire or fabric, sizes (1 byte to 16 MiB), faults, stalls and
/// ends.
const RUNS: u64 = 10_000;

/// Of the same with sealed links: a quarter of the time.
const SEALED_RUNS: u64 = 2_000;

/// What all runs did together.
#[derive(Default)]
struct Sum {
    runs: u64,
    messages: u64,
    faults: FaultCounters,
    retransmitted: u64,
    stale: u64,
    duplicate: u64,
    abandoned: u64,
    restarts: u64,
    overflows: u64,
    on_fabric: u64,
}

impl Sum {
    fn add(&mut self, spines: u32, report: &Report) {
        self.runs += 1;
        self.on_fabric += u64::from(spines > 0);
        self.messages += report.messages;
        self.faults = self.faults.plus(report.faults);
        self.retransmitted += report.links.chunks_retransmitted;
        self.stale += report.links.chunks_stale;
        self.duplicate += report.links.chunks_duplicate;
        self.abandoned += report.links.messages_abandoned;
        self.restarts += u64::from(report.lives - 1);
        self.overflows += report.wire.dropped_queue + report.wire.dropped_rx_buffer;
    }

    /// A test in which nothing goes wrong shows nothing: each kind of trouble has to have come up
    /// at least once every so many runs.
    fn check_that_there_was_trouble(&self) {
        let faults = self.faults;
        for (what, count, each) in [
            ("packets lost", faults.dropped_random + faults.dropped_burst, 1),
            ("packets doubled", faults.duplicated, 1),
            ("packets disordered", faults.reordered, 1),
            ("packets damaged", faults.corrupted, 1),
            ("packets late", faults.late, 1),
            ("chunks retransmitted", self.retransmitted, 1),
            ("duplicate chunks found", self.duplicate, 2),
            ("chunks of another life found", self.stale, 10),
            ("messages abandoned", self.abandoned, 2),
            ("restarts", self.restarts, 4),
            ("runs over leaf and spine switches", self.on_fabric, 4),
            ("packets lost to full buffers", self.overflows, 100),
        ] {
            assert!(count >= self.runs / each, "{what}: only {count} in {} runs", self.runs);
        }
    }
}

#[test]
fn every_acknowledged_message_is_delivered_once_and_intact_under_all_faults() {
    let mut sum = Sum::default();
    let seeds = seeds(RUNS);
    let one = seeds.end - seeds.start == 1;
    let run = |seed| {
        let scenario = Scenario::draw(seed);
        scenario.run().map(|report| (scenario.spines, report))
    };
    hold("exactly_once", seeds, run, |(spines, report)| sum.add(spines, &report));
    if !one {
        sum.check_that_there_was_trouble();
    }
    println!(
        "{} runs, {} messages, {} chunks sent again, {} stale, {} to full buffers, {:?}",
        sum.runs, sum.messages, sum.retransmitted, sum.stale, sum.overflows, sum.faults
    );
}

/// Damage to one packet in twenty, in headers most of all, with ICRCs and without.
#[test]
fn nothing_that_was_damaged_is_delivered_with_icrcs_or_without() {
    for icrc in [Icrc::Auto, Icrc::Always] {
        let (mut damaged, mut found_late) = (0, 0);
        let run = |seed| {
            let scribbled = Scenario { scribbles: true, harshness: 1.0, ..Scenario::draw(seed) };
            Scenario { icrc, ..scribbled }.run()
        };
        hold("exactly_once", 0..300, run, |report| {
            damaged += report.faults.corrupted;
            found_late += report.links.headers_bad + report.links.payloads_bad;
        });
        println!("{icrc}: {damaged} packets damaged, {found_late} chunks found to be");
        assert!(damaged > 5_000, "{damaged}");
        // Where packets have ICRCs, what else is found are messages that UC put together wrongly.
        let share = found_late as f64 / damaged as f64;
        assert_eq!(share > 0.1, icrc == Icrc::Auto, "{share}");
    }
}

/// The same where links are sealed and keys roll over all the time: what a seal refuses is sent
/// again as what is lost.
#[test]
fn sealed_links_deliver_once_and_intact_under_all_faults_while_their_keys_roll_over() {
    let mut sum = Seals::default();
    let run = |seed| {
        let sealing = if seed % 4 == 0 { Sealing::Authenticate } else { Sealing::Encrypt };
        Scenario { sealed: Some((sealing, 1u64 << (seed % 8))), ..Scenario::draw(seed) }.run()
    };
    hold("exactly_once", seeds(SEALED_RUNS), run, |report| {
        sum.refused.add(&report.seals.refused);
        sum.roll_overs += report.seals.roll_overs;
    });
    println!("{sum:?}");
    for kind in [Refusal::WrongLink, Refusal::StaleKey, Refusal::Replay, Refusal::BadTag] {
        assert!(sum.refused.of(kind) >= SEALED_RUNS / 10, "{kind:?}: {sum:?}");
    }
    assert!(sum.roll_overs >= SEALED_RUNS, "{sum:?}");
}

/// One packet in a hundred is lost, on each of sixteen paths.
#[test]
fn keys_roll_over_on_sixteen_paths_that_lose_packets() {
    let mut roll_overs = 0;
    let run = |seed| {
        let sizes = Sizes { bytes_max: 64 << 10, bytes_total: 4 << 20, messages_max: 400 };
        let many = Scenario { paths: 16, spines: 4, ipv6: false, sizes, ..Scenario::draw(seed) };
        let sealed = Some((Sealing::Encrypt, 32));
        Scenario { sealed, harshness: 0.1, lives: 1, spreading: Spreading::Bytes(1), ..many }.run()
    };
    hold("exactly_once", 0..40, run, |report| roll_overs += report.seals.roll_overs);
    println!("{roll_overs} times");
    assert!(roll_overs > 400, "{roll_overs}");
}
