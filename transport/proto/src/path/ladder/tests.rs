//! A ladder of carriers, its falls and its ways up.

use super::*;
use Carrier::{Rc, Tcp, Uc};
use alloc::vec::Vec;

const AFTER: Nanos = Nanos::from_millis(100);
const STAY: Nanos = Nanos::from_secs(1);

fn ladder() -> Ladder {
    Ladder::new(&[Uc, Uc, Rc, Tcp], (AFTER, STAY), Time::ZERO)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Nanos::from_millis(ms)
}

#[test]
fn a_silent_rung_is_asked_first_then_the_next_below_then_the_last() {
    let mut ladder = ladder();
    assert_eq!(ladder.due(), Time::NEVER, "nothing is under way");
    ladder.on_sent(ms(5));
    assert_eq!(ladder.due(), ms(105));
    let mut asked = Vec::new();
    while ladder.due() < ms(400) {
        let now = ladder.due();
        asked.push(ladder.on_due(now));
    }
    assert_eq!(asked[0], 0b0011);
    assert_eq!(asked[1], 0b0111);
    assert!(asked.contains(&0b1111), "{asked:?}");
    ladder.on_answer(ms(400), false);
    ladder.on_due(ms(410));
    assert_eq!(ladder.due(), Time::NEVER, "it has answered after all");
}

#[test]
fn silence_alone_is_no_reason_to_go_and_an_answer_without_silence_is_none_either() {
    let mut ladder = ladder();
    assert!(!ladder.on_answer_of(ms(1), Tcp), "nobody asked");
    ladder.on_sent(ms(0));
    ladder.on_due(ms(100));
    ladder.on_due(ms(130));
    assert!(ladder.on_answer_of(ms(131), Rc));
    let mut other = self::ladder();
    other.on_sent(ms(0));
    other.on_due(ms(100));
    other.on_due(ms(130));
    other.on_answer(ms(131), true);
    assert!(!other.on_answer_of(ms(132), Rc), "ours has answered meanwhile");
}

#[test]
fn the_way_up_takes_answers_in_a_row_and_a_stay_that_doubles_with_each_fall() {
    let mut ladder = ladder();
    let mut now = Time::ZERO;
    let mut stays = Vec::new();
    for _ in 0..4 {
        ladder.go(now, Tcp);
        let start = now;
        loop {
            now = ladder.due();
            assert_eq!(ladder.on_due(now) & 0b0111, 0b0111, "both above are asked");
            if ladder.on_answer_of(now, Uc) {
                break;
            }
        }
        stays.push(now.since(start).0 / STAY.0);
        ladder.go(now, Uc);
    }
    assert_eq!(stays, [1, 2, 4, 8]);
    ladder.go(now + Nanos::from_secs(60), Tcp);
    assert_eq!(ladder.stay_now(), STAY, "clean conduct makes up for it");
}

#[test]
fn an_unanswered_round_starts_the_count_anew() {
    let mut ladder = ladder();
    ladder.go(Time::ZERO, Tcp);
    let mut now = ladder.due();
    for round in 0..200 {
        ladder.on_due(now);
        if round % 3 != 2 {
            assert!(!ladder.on_answer_of(now, Uc), "two in a row, never three");
        }
        now = ladder.due();
    }
}

#[test]
fn a_peer_that_goes_down_is_followed_and_one_that_stays_down_is_not() {
    let mut ladder = ladder();
    assert!(!ladder.on_heard(ms(60), Uc));
    ladder.on_answer(ms(70), false);
    assert!(!ladder.on_heard(ms(71), Tcp), "ours was well just now");
    ladder.on_heard(ms(72), Uc);
    assert!(ladder.on_heard(ms(130), Tcp));
    ladder.go(ms(130), Tcp);
    assert!(!ladder.on_heard(ms(200), Tcp), "we are there");
    ladder.go(ms(2_000), Uc);
    assert!(!ladder.on_heard(ms(3_000), Tcp), "we have found a better way");
}

#[test]
fn a_failed_rung_is_left_at_once_and_never_asked_again() {
    let mut ladder = ladder();
    assert_eq!(ladder.on_failed(Uc, 0b0001), None, "another path of it works");
    assert_eq!(ladder.on_failed(Uc, 0b0011), Some(Rc));
    ladder.go(ms(1), Rc);
    assert_eq!(ladder.on_failed(Tcp, 0b1011), None, "we do not ride on it");
    assert_eq!(ladder.due(), Time::NEVER, "nothing else is left");
    assert_eq!(ladder.on_failed(Rc, 0b1111), None);
}

/// Answers come all the time for so many spans, and of a hundred packets in each so many are
/// lost; TCP answers each question. Where that leads.
fn lose(ladder: &mut Ladder, (from, spans): (u64, u64), lost: u32) -> Option<Carrier> {
    for span in 1..=spans {
        ladder.loss.on_sent(100);
        ladder.loss.on_lost(lost);
        for part in 0..4 {
            let now = ms(from + 100 * span + 25 * part);
            ladder.on_answer(now, true);
            let asks = ladder.due() <= now && ladder.on_due(now) & 0b1000 != 0;
            if asks && ladder.on_answer_of(now, Tcp) {
                return Some(Tcp);
            }
        }
    }
    None
}

#[test]
fn a_rung_that_answers_and_loses_too_much_for_long_is_left_for_tcp() {
    assert_eq!(lose(&mut ladder(), (0, 40), 10), None);
    assert_eq!(lose(&mut ladder(), (0, 3), 60), None, "not for long");
    assert_eq!(lose(&mut ladder(), (0, 40), 30), Some(Tcp));
    let carriers = [Uc, Rc];
    let mut without = Ladder::new(&carriers, (AFTER, STAY), Time::ZERO);
    assert_eq!(lose(&mut without, (0, 40), 60), None, "RC loses as much");
}

#[test]
fn one_that_was_left_for_loss_is_gone_back_to_after_many_answers_of_one_path() {
    let mut ladder = ladder();
    assert_eq!(lose(&mut ladder, (0, 40), 50), Some(Tcp));
    let start = ms(10_000);
    ladder.go(start, Tcp);
    let mut rounds = 0;
    loop {
        let now = ladder.due();
        assert_eq!(ladder.on_due(now), 0b0001, "one path of UC, and RC not at all");
        rounds += 1;
        // The stay alone takes forty rounds; an answer is missing now and then.
        let is_answered = rounds % 11 != 0 || rounds > 70;
        if is_answered && ladder.on_answer_of(now, Uc) {
            break;
        }
    }
    assert!(rounds >= 66 + PROBES_TO_RETURN_AFTER_LOSS, "{rounds}");
    ladder.go(ladder.due(), Uc);
    assert!(ladder.rungs.iter().all(|rung| !rung.is_lossy));
}

#[test]
fn a_failed_rung_that_is_made_anew_is_asked_and_gone_back_to() {
    let mut ladder = ladder();
    assert_eq!(ladder.on_failed(Uc, 0b0011), Some(Rc));
    ladder.go(ms(0), Rc);
    assert_eq!(ladder.on_failed(Tcp, 0b1011), None);
    assert_eq!(ladder.due(), Time::NEVER, "nothing else is left");
    ladder.on_renewed(ms(500), Uc);
    let mut now = ladder.due();
    assert_eq!(now, ms(525));
    while now < ms(1_000) {
        assert_eq!(ladder.on_due(now), 0b0011);
        assert!(!ladder.on_answer_of(now, Uc), "not yet");
        now = ladder.due();
    }
    ladder.on_due(now);
    assert!(ladder.on_answer_of(now, Uc));
}
