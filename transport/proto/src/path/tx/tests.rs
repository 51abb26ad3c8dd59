//! Numbers of one path: how many are known, and for how long.

use super::*;

fn send(window: &mut SendWindow) -> u64 {
    let (number, _) = window.send(What::Nothing, 1, Time(window.next()));
    window.returned(number, None);
    number
}

#[test]
fn the_ring_grows_with_what_is_under_way_and_no_further() {
    let mut window = SendWindow::new();
    for number in 0..10 * RING_FIRST as u64 {
        assert_eq!(send(&mut window), number);
        window.on_ack(number, number + 1, core::iter::empty(), |_| {});
    }
    assert_eq!(window.ring.len(), RING_FIRST, "nothing is under way for long");
    let first = window.next();
    while window.has_number() {
        send(&mut window);
    }
    assert_eq!(window.next() - first, NUMBER_WINDOW);
    assert_eq!(window.in_flight_bytes(), NUMBER_WINDOW);
    let digest = window.on_ack(window.next() - 1, window.next(), core::iter::empty(), |_| {});
    assert_eq!(u64::from(digest.acked_chunks), NUMBER_WINDOW, "none was forgotten");
    assert!(!window.any_outstanding());
}

#[test]
fn what_the_device_returned_is_told_once_and_nothing_behind_it() {
    let mut window = SendWindow::new();
    for now in 0..4 {
        window.send(What::Nothing, 1, Time(now));
    }
    // One that the device refused.
    assert!(window.returned(1, None).is_some());
    let mut count = 0;
    window.returned_upto(2, Some(Time(9)), |_| count += 1);
    assert_eq!(count, 2, "0 and 2");
    window.returned_upto(2, Some(Time(99)), |_| count += 1);
    window.returned_upto(0, None, |_| count += 1);
    assert_eq!(count, 2, "an old completion tells nothing");
    assert!(window.returned(2, None).is_none() && window.returned(3, None).is_some());
    let sent_at = [0, 1, 2, 3].map(|number| window.at(number).sent_at);
    assert_eq!(sent_at, [0, 1, 9, 3].map(Time), "a timestamp is of the last one");
}

#[test]
fn a_lost_number_is_known_until_the_window_has_passed_it() {
    let mut window = SendWindow::new();
    for _ in 0..2 {
        send(&mut window);
    }
    window.on_ack(1, 0, [(1, 1)].into_iter(), |_| {});
    window.detect_losses(|_, _| {});
    for number in 2..NUMBER_WINDOW {
        send(&mut window);
        window.on_ack(number, 0, [(number, 1)].into_iter(), |_| {});
    }
    let late = window.on_ack(NUMBER_WINDOW - 1, 0, [(0, 1)].into_iter(), |_| {});
    assert_eq!((late.spurious, late.acked_chunks), (1, 1));
}
