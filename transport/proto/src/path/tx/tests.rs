//! Numbers of one path: how many are known, and for how long.

use super::*;
use crate::limits::{FRAMES_MAX, FRAMES_OUTSTANDING_MAX};
use crate::path::frames::tests::frame;

fn send(window: &mut SendWindow) -> u64 {
    let (number, _) = window.send(What::Nothing, 1, Time(window.next()));
    window.returned(number..number + 1, None, |_| {});
    number
}

#[test]
fn the_ring_grows_with_what_is_under_way_and_no_further() {
    let mut window = SendWindow::new();
    for number in 0..10 * RING_FIRST as u64 {
        assert_eq!(send(&mut window), number);
        window.on_ack(Time::ZERO, (number, number + 1), core::iter::empty(), |_, _| {}, |_| {});
    }
    assert_eq!(window.ring.len(), RING_FIRST, "nothing is under way for long");
    let first = window.next();
    while window.has_number() {
        send(&mut window);
    }
    assert_eq!(window.next() - first, NUMBER_WINDOW);
    assert_eq!(window.in_flight_bytes(), NUMBER_WINDOW);
    let digest = window.on_ack(
        Time::ZERO,
        (window.next() - 1, window.next()),
        core::iter::empty(),
        |_, _| {},
        |_| {},
    );
    assert_eq!(u64::from(digest.acked_chunks), NUMBER_WINDOW, "none was forgotten");
    assert!(!window.any_outstanding());
}

#[test]
fn what_the_device_returned_is_told_once_and_nothing_behind_it() {
    let mut window = SendWindow::new();
    let sent = frame(7);
    for now in 0..4 {
        window.send_frames(&[sent; 3][..now as usize % 2 + 1], 1, Time(now));
    }
    // One that the device refused, of two frames.
    let mut count = 0;
    window.returned(1..2, None, |_| count += 1);
    assert_eq!(count, 2);
    window.returned(window.posted_upto(2), Some(Time(9)), |_| count += 1);
    assert_eq!(count, 4, "0 and 2");
    window.returned(window.posted_upto(2), Some(Time(99)), |_| count += 1);
    window.returned(window.posted_upto(0), None, |_| count += 1);
    assert_eq!(count, 4, "an old completion tells nothing");
    window.returned(2..3, None, |_| count += 1);
    assert_eq!(count, 4, "2 was returned before");
    window.returned(3..4, None, |_| count += 1);
    assert_eq!(count, 6);
    let sent_at = [0, 1, 2, 3].map(|number| window.at(number).sent_at);
    assert_eq!(sent_at, [0, 1, 9, 3].map(Time), "a timestamp is of the last one");
}

#[test]
fn frames_are_kept_while_they_are_outstanding_or_posted_and_no_number_is_given_beyond_them() {
    let mut window = SendWindow::new();
    let frames = alloc::vec![frame(1); FRAMES_MAX];
    let mut sent = 0;
    while window.has_number() && window.has_room_for_frames() {
        window.send_frames(&frames, 1, Time::ZERO);
        sent += 1;
    }
    assert!(sent < NUMBER_WINDOW && sent as usize * FRAMES_MAX <= FRAMES_OUTSTANDING_MAX);
    let acked = |window: &mut SendWindow, number: u64| {
        let mut count = 0;
        let words = core::iter::empty();
        window.on_ack(Time::ZERO, (number, number + 1), words, |_, _| {}, |_| count += 1);
        count
    };
    assert_eq!(acked(&mut window, sent / 2), (sent as usize / 2 + 1) * FRAMES_MAX);
    assert!(!window.has_room_for_frames(), "the device has them");
    window.returned(window.posted_upto(sent - 1), None, |_| {});
    assert!(window.has_room_for_frames());
    assert_eq!(acked(&mut window, sent - 1), (sent as usize - sent as usize / 2 - 1) * FRAMES_MAX);
}

#[test]
fn a_lost_number_is_known_until_the_window_has_passed_it() {
    let mut window = SendWindow::new();
    for _ in 0..2 {
        send(&mut window);
    }
    window.on_ack(Time::ZERO, (1, 0), [(1, 1)].into_iter(), |_, _| {}, |_| {});
    window.detect_losses(Time::ZERO, |_, _, _| {});
    for number in 2..NUMBER_WINDOW {
        send(&mut window);
        window.on_ack(Time::ZERO, (number, 0), [(number, 1)].into_iter(), |_, _| {}, |_| {});
    }
    let late =
        window.on_ack(Time::ZERO, (NUMBER_WINDOW - 1, 0), [(0, 1)].into_iter(), |_, _| {}, |_| {});
    assert_eq!((late.spurious, late.acked_chunks), (1, 1));
}
