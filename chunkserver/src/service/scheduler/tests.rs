//! Requests that wait, without a server.

use super::*;
use crate::service::limits::CHANGES_MAX;

const NOW: Time = Time(1_000);

fn due(link: usize, class: Class, kind: Kind, deadline: u64) -> Due {
    Due::new((link, class), (kind, 4096), Price::default(), (NOW, Time(deadline)))
}

fn with(items: &[(usize, Class, &'static str)]) -> Scheduler<&'static str> {
    let mut sched = Scheduler::default();
    for &(link, class, item) in items {
        assert_eq!(sched.push(due(link, class, Kind::Write, 2_000), item), Ok(()));
    }
    sched
}

/// All that goes in one round.
fn round(
    sched: &mut Scheduler<&'static str>,
    fit: impl Fn(&str) -> Fit<(), ()>,
) -> Vec<&'static str> {
    sched.begin();
    let mut gone = Vec::new();
    while let Some(next) = sched.next(NOW, |_, item| fit(item)) {
        gone.push(match next {
            Next::Goes { token, .. } => *sched.get_mut(token).expect("it has its place"),
            Next::Ends(item, ()) => item,
        });
    }
    sched.end(NOW);
    gone
}

#[test]
fn higher_classes_go_first_and_links_of_a_class_in_turn() {
    let (gold, copper) = (Class::Gold, Class::Copper);
    let items =
        [(0, copper, "c1"), (1, gold, "b1"), (0, gold, "a1"), (0, gold, "a2"), (1, gold, "b2")];
    let mut sched = with(&items);
    assert_eq!(round(&mut sched, |_| Fit::Goes(())), ["b1", "a1", "b2", "a2", "c1"]);
    assert_eq!((sched.waiting(), sched.at_store()), (0, 5));
}

#[test]
fn what_finds_no_room_lets_others_of_its_link_pass_and_what_finds_no_buffer_does_not() {
    let gold = Class::Gold;
    let mut sched = with(&[(0, gold, "a1"), (0, gold, "a2"), (1, gold, "b1"), (1, gold, "b2")]);
    let gone = round(&mut sched, |item| match item {
        "a1" => Fit::NoRoom,
        "b1" => Fit::NoBuffer,
        _ => Fit::Goes(()),
    });
    assert_eq!(gone, ["a2"]);
    assert_eq!((sched.waiting(), sched.at_store()), (3, 1));
    assert_eq!(round(&mut sched, |_| Fit::Ends(())), ["b1", "a1", "b2"]);
    assert_eq!((sched.waiting(), sched.at_store()), (0, 1), "what ends leaves no place");
}

#[test]
fn the_changes_of_a_link_at_the_store_are_bounded_until_they_are_done() {
    let mut sched = Scheduler::default();
    for _ in 0..CHANGES_MAX {
        let change = due(0, Class::Gold, Kind::Change, 2_000);
        assert_eq!(sched.push(change, "change"), Ok(()));
    }
    let gone = round(&mut sched, |_| Fit::Goes(())).len();
    assert!(gone < CHANGES_MAX, "one link has all");
    assert_eq!(sched.push(due(0, Class::Gold, Kind::Read, 2_000), "read"), Ok(()));
    assert_eq!(round(&mut sched, |_| Fit::Goes(())), ["read"], "a read is no change");
    assert_eq!(sched.done(NOW, 0, 0), Some(("change", TenantId::default())));
    assert_eq!(sched.done(NOW, 0, 0), None, "it has ended");
    assert_eq!(round(&mut sched, |_| Fit::Goes(())), ["change"]);
}

#[test]
fn what_waits_ends_with_its_time_and_what_must_be_done_does_not() {
    let mut sched = Scheduler::default();
    for (deadline, item) in [(1_500, "soon"), (3_000, "later"), (Time::NEVER.0, "must")] {
        assert_eq!(sched.push(due(0, Class::Gold, Kind::Write, deadline), item), Ok(()));
    }
    assert!(sched.expire(Time(1_499)).is_empty());
    assert_eq!(sched.expire(Time(1_500)), ["soon"]);
    assert_eq!(sched.expire(Time(5_000)), ["later"]);
    assert!(sched.cancel(NOW, 0, |_| true).is_empty(), "nobody can give it up");
    assert_eq!(round(&mut sched, |_| Fit::Goes(())), ["must"]);
    assert!(sched.expire(Time::NEVER).is_empty(), "the store has it");
}

#[test]
fn a_link_that_is_gone_and_a_request_that_is_given_up_leave_nothing_waiting() {
    let (gold, copper) = (Class::Gold, Class::Copper);
    let mut sched = with(&[(0, gold, "a1"), (0, copper, "a2"), (1, gold, "b1"), (1, gold, "b2")]);
    assert!(sched.cancel(NOW, 0, |item| *item == "b1").is_empty(), "of another link");
    assert_eq!(sched.cancel(NOW, 1, |item| *item == "b1"), ["b1"]);
    assert_eq!(sched.cancel(NOW, 0, |_| true), ["a1", "a2"]);
    assert_eq!((sched.waiting(), sched.at_store()), (1, 0));
}

#[test]
fn what_goes_past_the_queues_has_a_token_and_no_turn() {
    let mut sched = with(&[]);
    let token = sched.pass("stage");
    assert_eq!((sched.waiting(), sched.at_store()), (0, 1));
    assert!(round(&mut sched, |_| Fit::Goes(())).is_empty());
    assert_eq!(sched.take(token), Some("stage"));
    assert_eq!(sched.at_store(), 0);
}
