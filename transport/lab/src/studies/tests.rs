//! Studies on tiny parameters: the same from run to run, whatever the threads, and honest.

use super::*;
use crate::studies::runner::Unwatched;
use std::collections::BTreeMap;

fn ask(study: &'static Study, seed: u64, threads: usize, given: &[(&str, &str)]) -> Report {
    let given = given.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    let params = Params::new(study.params, seed, Level::Quick, &given).expect("good parameters");
    (study.run)(&params, &Runner::new(threads, &Unwatched)).expect("it runs")
}

const TINY: [(&str, &str); 3] = [("sizes", "64K"), ("loss", "0,1/256"), ("bytes", "2M")];

#[test]
fn every_default_parses_and_names_are_flags() {
    let mut names = Vec::new();
    for study in ALL {
        names.push(study.name);
        for level in [Level::Quick, Level::Default, Level::Full] {
            Params::new(study.params, 1, level, &BTreeMap::new()).expect(study.name);
        }
        let flags: Vec<_> = study.params.iter().map(|param| param.name).collect();
        for name in flags.iter().chain([&study.name]) {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(plain), "{name}");
        }
        for taken in ["seed", "quick", "full", "threads", "json", "svg", "help"] {
            assert!(!flags.contains(&taken), "{} has its own --{taken}", study.name);
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_report_follows_from_seed_and_parameters_and_not_from_the_threads() {
    let report = ask(&loss::STUDY, 7, 1, &TINY);
    assert_eq!(report, ask(&loss::STUDY, 7, 3, &TINY));
    assert_ne!(report.trace_hash(), ask(&loss::STUDY, 8, 1, &TINY).trace_hash());
    for table in &report.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }
}

#[test]
fn a_claim_is_met_or_says_by_how_much_it_is_missed() {
    let claim = |demand, measured| Claim {
        name: String::new(),
        what: String::new(),
        demand,
        measured,
        unit: "%",
        decimals: 1,
    };
    assert!(claim(Demand::AtLeast(97.0), 97.0).is_met());
    let missed = claim(Demand::AtLeast(97.0), 95.5);
    assert!(!missed.is_met() && (missed.missed_by() - 1.5).abs() < 1e-9);
    let missed = claim(Demand::AtMost(0.0), 3.0);
    assert!(!missed.is_met() && (missed.missed_by() - 3.0).abs() < 1e-9);
    assert!(!claim(Demand::AtLeast(1.0), f64::NAN).is_met(), "what is no number meets nothing");
}

/// With a window of less than the wire holds the wire cannot be filled, and the study says so.
#[test]
fn a_study_whose_target_is_missed_says_so() {
    let starved = [("controller", "fixed:64KiB"), ("loss", "1/256")];
    let given: Vec<_> = [TINY[0], TINY[2]].into_iter().chain(starved).collect();
    let report = ask(&loss::STUDY, 1, 2, &given);
    assert!(!report.is_all_met(), "{:?}", report.claims);
    let given = [TINY[0], ("loss", "1/256"), ("bytes", "16M")];
    let report = ask(&loss::STUDY, 1, 2, &given);
    assert!(report.is_all_met(), "{:?}", report.claims);
}

#[test]
fn values_are_read_as_people_write_them() {
    let of = |name: &str| loss::STUDY.params.iter().find(|param| param.name == name);
    let loss = of("loss").expect("it is there");
    let shares = Value::Shares(vec![0.0, 1.0 / 256.0, 0.01, 0.01]);
    assert_eq!(loss.parse("0, 1/256,1%,0.01"), Ok(shares));
    for wrong in ["", "1/0", "x", "nan", "0.3", "-0.1"] {
        assert!(loss.parse(wrong).is_err(), "{wrong:?}");
    }
    let sizes = of("sizes").expect("it is there");
    assert_eq!(sizes.parse("4K,1MiB,7"), Ok(Value::Counts(vec![4096, 1 << 20, 7])));
    for wrong in ["K", "0", "1G", "-1"] {
        assert!(sizes.parse(wrong).is_err(), "{wrong:?}");
    }
    let rate = of("rate-gbps").expect("it is there");
    assert_eq!(rate.parse("1,2"), Err(ParamError::NotOne));
    let unknown = [("colour".to_owned(), "red".to_owned())].into_iter().collect();
    let refused = Params::new(loss::STUDY.params, 1, Level::Quick, &unknown);
    assert_eq!(refused, Err(("colour".to_owned(), ParamError::Unknown("colour".to_owned()))));
}

#[test]
fn bytes_are_shown_with_a_unit_where_it_is_whole() {
    let whole = [(4096, "4 KiB"), (1 << 20, "1 MiB"), (3 << 30, "3 GiB")];
    for (bytes, text) in whole.into_iter().chain([(0, "0 B"), (4097, "4097 B")]) {
        assert_eq!(show_bytes(bytes), text);
    }
}

#[test]
fn shares_are_shown_as_people_say_them() {
    for (share, text) in [
        (0.0, "0 %"),
        (1.0 / 4096.0, "1/4096"),
        (1.0 / 256.0, "1/256"),
        (0.01, "1 %"),
        (0.03, "3 %"),
        (0.5, "50 %"),
    ] {
        assert_eq!(show_share(share), text);
    }
}

struct Stopped;

impl Progress for Stopped {
    fn at(&self, _: usize, _: usize) {}

    fn stop(&self) -> bool {
        true
    }
}

#[test]
fn a_study_that_is_stopped_or_fails_has_no_report() {
    let runner = Runner::new(2, &Stopped);
    assert!(matches!(runner.map(&[1, 2], |&point| Ok(point)), Err(StudyError::Stopped)));
    let run = |&point: &i32| {
        if point == 2 { Err(StudyError::run("two", "no")) } else { Ok(point) }
    };
    let failed = Runner::new(1, &Unwatched).map(&[1, 2, 3], run);
    assert!(matches!(failed, Err(StudyError::Run { run, .. }) if run == "two"));
}

/// The studies of many hosts, on tiny parameters.
const OF_HOSTS: [(&Study, &[(&str, &str)]); 11] = [
    (&incast::STUDY, &[("senders", "4"), ("rounds", "1"), ("controllers", "swift,fixed:64KiB")]),
    (&fairness::STUDY, &[("phase-ms", "1")]),
    (&mixed_nics::STUDY, &[("hosts", "1,2"), ("span-ms", "1")]),
    (&cross_pod::STUDY, &[("remote", "0,4"), ("span-ms", "1"), ("hosts", "5")]),
    (&classes::STUDY, &[("hosts", "2"), ("span-ms", "1")]),
    (&foreground::STUDY, &[("background", "16K,128K"), ("span-ms", "1")]),
    (&isolation::STUDY, &[("span-ms", "1"), ("rounds", "1"), ("queues", "own"), ("flood", "256")]),
    (&blackhole::STUDY, &[("faults", "spine,reverse"), ("hosts", "2"), ("span-ms", "20")]),
    (&ports::STUDY, &[("hosts", "1"), ("span-ms", "20"), ("rate-ms", "1")]),
    (&failover::STUDY, &[("spines", "2"), ("hosts", "2"), ("step-ms", "10"), ("noticed-ms", "5")]),
    (&timestamps::STUDY, &[("jitter-us", "0,10"), ("pings", "20"), ("span-ms", "2")]),
];

#[test]
fn studies_of_many_hosts_follow_from_seed_and_parameters_alone() {
    for (study, given) in OF_HOSTS {
        let report = ask(study, 7, 1, given);
        assert_eq!(report, ask(study, 7, 2, given), "{}", study.name);
        let other = ask(study, 8, 1, given);
        assert_ne!(report.trace_hash(), other.trace_hash(), "{}", study.name);
        assert!(!report.claims.is_empty() && !report.plots.is_empty(), "{}", study.name);
        for table in &report.tables {
            let whole = |row: &Vec<Cell>| row.len() == table.columns.len();
            assert!(!table.rows.is_empty() && table.rows.iter().all(whole), "{}", table.name);
        }
    }
}

#[test]
fn a_short_message_is_sooner_on_a_channel_of_its_own_unless_all_is_posted_ahead() {
    let report = ask(&foreground::STUDY, 1, 2, &[]);
    let is_saved = |report: &Report| {
        let name = "mean_saved_at_131072";
        report.claims.iter().find(|claim| claim.name == name).map(Claim::is_met)
    };
    assert_eq!(is_saved(&report), Some(true), "{:?}", report.claims);
    let ahead = [("background", "128K"), ("ahead", "4M"), ("controller", "fixed:4MiB")];
    let report = ask(&foreground::STUDY, 1, 2, &ahead);
    assert_eq!(is_saved(&report), Some(false), "{:?}", report.claims);
}

#[test]
fn channels_of_their_own_keep_what_they_have_and_one_queue_for_all_does_not() {
    let tiny = [("span-ms", "1"), ("rounds", "1"), ("queues", "own")];
    let report = ask(&isolation::STUDY, 1, 2, &tiny);
    assert!(report.is_all_met() && report.claims.len() == 3, "{:?}", report.claims);
    let one = [tiny[0], tiny[1], ("queues", "one")];
    let report = ask(&isolation::STUDY, 1, 2, &one);
    let missed = |name: &str| report.claims.iter().any(|it| it.name == name && !it.is_met());
    assert!(missed("kept_beside_stall") && missed("kept_beside_flood"), "{:?}", report.claims);
}

#[test]
fn stamps_keep_late_hosts_out_of_round_trips_and_calls_do_not() {
    let few = [("jitter-us", "0,100"), ("pings", "300"), ("span-ms", "20"), ("noise-us", "0")];
    let report = ask(&timestamps::STUDY, 1, 2, &few);
    assert!(report.is_all_met() && report.claims.len() > 6, "{:?}", report.claims);
    let calls = [few[0], few[1], few[2], few[3], ("sources", "call"), ("held-to", "wire")];
    let report = ask(&timestamps::STUDY, 1, 2, &calls);
    assert!(!report.is_all_met(), "{:?}", report.claims);
}

const FEW: [(&str, &str); 2] = [("messages", "2000"), ("naive-messages", "2000")];

#[test]
fn late_packets_change_no_memory_of_towpath_and_the_naive_design_is_caught() {
    let report = ask(&late_packet::STUDY, 1, 2, &FEW);
    assert!(report.is_all_met(), "{:?}", report.claims);
    assert_eq!(report, ask(&late_packet::STUDY, 1, 1, &FEW));
}

#[test]
fn without_late_packets_and_copies_the_naive_design_is_fine_and_the_claims_say_so() {
    let harmless = [FEW[0], FEW[1], ("late", "0"), ("copies", "0"), ("loss", "0")];
    let report = ask(&late_packet::STUDY, 1, 2, &harmless);
    let claim = |name: &str| report.claims.iter().find(|claim| claim.name == name);
    assert_eq!(claim("naive_bytes_changed").map(|claim| claim.measured), Some(0.0));
    assert!(!report.is_all_met());
}

#[test]
fn atomics_happen_once_or_not_at_all_and_the_claims_say_when_nothing_was_lost() {
    let few = [("additions", "4000"), ("every", "100")];
    let report = ask(&one_sided::STUDY, 1, 1, &few);
    assert!(report.is_all_met() && report.claims.len() == 3, "{:?}", report.claims);
    assert_eq!(report, ask(&one_sided::STUDY, 1, 2, &few));
    assert_ne!(report.trace_hash(), ask(&one_sided::STUDY, 2, 1, &few).trace_hash());
    let harmless = ask(&one_sided::STUDY, 1, 1, &[few[0], ("every", "0")]);
    assert!(!harmless.is_all_met(), "{:?}", harmless.claims);
}

/// Found by the study of chunk sizes: an ack that carried a grant was lost while the sender had no
/// credit and nothing outstanding, and the wire stood still for milliseconds.
#[test]
fn a_lost_grant_costs_round_trips_and_not_milliseconds() {
    let given = BTreeMap::new();
    let params = Params::new(chunk_size::STUDY.params, 1, Level::Default, &given).expect("good");
    let stream = loss::stream_of(&params, 1 << 20).expect("good");
    let short_chunks = stream::Stream { loss: 0.01, chunk_packets: Some(1), ..stream };
    let seen = short_chunks.towpath().expect("it runs");
    assert!(seen.goodput_bits_per_s > 0.9 * seen.bound_bits_per_s, "seed 1: {seen:?}");
}

/// Those whose quick runs were once too short for their targets.
#[test]
fn a_quick_run_is_long_enough_for_the_targets_that_it_is_held_to() {
    for study in
        [&loss::STUDY, &failover::STUDY, &blackhole::STUDY, &timestamps::STUDY, &ports::STUDY]
    {
        let report = ask(study, 1, 2, &[]);
        assert!(report.is_all_met(), "{}: {:?}", study.name, report.claims);
    }
}

#[test]
fn the_quick_black_hole_is_met_by_links_without_rerouting_or_the_report_says_it_was_not() {
    let has_comparison = |report: &Report, fault: &str| {
        report.claims.iter().any(|claim| claim.name == format!("fewer_late_{fault}"))
    };
    let quick = ask(&blackhole::STUDY, 1, 2, &[]);
    assert!(has_comparison(&quick, "spine") && has_comparison(&quick, "reverse"));
    let few = [("faults", "reverse"), ("spines", "16"), ("hosts", "1"), ("span-ms", "20")];
    let unmet = ask(&blackhole::STUDY, 1, 2, &few);
    assert!(!has_comparison(&unmet, "reverse"));
    assert!(unmet.notes.iter().any(|note| note.contains("reverse: no packet")), "{unmet:?}");
}

#[test]
fn a_flow_is_drawn_only_while_it_sends() {
    let report = ask(&fairness::STUDY, 1, 2, &[("phase-ms", "1")]);
    let flows = &report.plots[0].series;
    assert_eq!(flows.len(), 4);
    for (flow, begin) in flows.iter().zip([0.0, 1.0, 2.0, 3.0]) {
        let times: Vec<f64> = flow.points.iter().map(|point| point.0).collect();
        assert!(times.iter().all(|at| (begin..begin + 4.0).contains(at)), "{times:?}");
        assert!(times.len() > 70, "{times:?}");
    }
}
