//! The oracle notices each thing that it is there to notice.

use super::*;

const FLOW: FlowId = FlowId { life: 0, from: 0, channel: 2 };

fn oracle(ordered: bool) -> Oracle {
    let mut oracle = Oracle::new();
    for fingerprint in [10, 11, 12] {
        oracle.sent(FLOW, ordered, 100, fingerprint);
    }
    oracle
}

#[test]
fn messages_that_come_once_in_order_and_are_acknowledged_are_fine() {
    let mut oracle = oracle(true);
    for number in 0..3 {
        oracle.delivered(FLOW, 100, 10 + number);
        assert!(!oracle.is_settled(0));
        oracle.outcome(FLOW, number, Outcome::Delivered);
    }
    assert!(oracle.is_settled(0));
    oracle.end_life(0, [Ending::Orderly; 2]);
    assert_eq!(oracle.violations(), []);
}

#[test]
fn a_second_copy_shows_even_of_messages_of_equal_bytes() {
    let mut oracle = oracle(false);
    oracle.sent(FLOW, false, 100, 10);
    for _ in 0..2 {
        oracle.delivered(FLOW, 100, 10);
    }
    assert_eq!(oracle.violations(), [], "two were sent");
    oracle.delivered(FLOW, 100, 10);
    assert_eq!(oracle.violations(), [Violation::Duplicate { flow: FLOW, number: 3 }]);
}

#[test]
fn damage_and_messages_of_another_life_show_as_what_they_are() {
    let mut oracle = oracle(false);
    let later = FlowId { life: 1, ..FLOW };
    oracle.delivered(FLOW, 100, 99);
    oracle.delivered(later, 100, 11);
    let stale = Violation::Foreign { flow: later, len: 100, from: Some((FLOW, 1)) };
    let damaged = Violation::Foreign { flow: FLOW, len: 100, from: None };
    assert_eq!(oracle.violations(), [damaged, stale]);
}

#[test]
fn order_counts_where_it_was_promised() {
    for ordered in [true, false] {
        let mut oracle = oracle(ordered);
        oracle.delivered(FLOW, 100, 12);
        oracle.delivered(FLOW, 100, 11);
        assert_eq!(oracle.violations().len(), usize::from(ordered));
    }
}

#[test]
fn what_was_said_to_the_sender_must_be_so() {
    let mut oracle = oracle(false);
    oracle.delivered(FLOW, 100, 10);
    oracle.outcome(FLOW, 0, Outcome::Abandoned);
    oracle.outcome(FLOW, 1, Outcome::Delivered);
    oracle.end_life(0, [Ending::Orderly; 2]);
    let (flow, found) = (FLOW, oracle.violations());
    for expected in [
        Violation::AbandonedCame { flow, number: 0 },
        Violation::DeliveredMissing { flow, number: 1 },
        Violation::NoOutcome { flow, number: 2 },
    ] {
        assert!(found.contains(&expected), "{found:?}");
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn of_hosts_that_died_nothing_is_demanded_that_they_could_not_know() {
    let mut oracle = oracle(false);
    oracle.outcome(FLOW, 1, Outcome::Delivered);
    oracle.end_life(0, [Ending::Died, Ending::Died]);
    assert_eq!(oracle.violations(), []);
}

#[test]
fn a_reader_that_lost_its_peer_may_wait_for_a_turn_but_only_on_an_ordered_channel() {
    for ordered in [true, false] {
        let mut oracle = oracle(ordered);
        oracle.outcome(FLOW, 1, Outcome::Delivered);
        oracle.end_life(0, [Ending::Died, Ending::Bereft]);
        assert_eq!(oracle.violations().len(), usize::from(!ordered));
    }
}

#[test]
fn a_second_outcome_shows() {
    let mut oracle = oracle(false);
    oracle.outcome(FLOW, 0, Outcome::Unknown);
    oracle.outcome(FLOW, 0, Outcome::Delivered);
    assert_eq!(oracle.violations(), [Violation::OutcomeTwice { flow: FLOW, number: 0 }]);
}
