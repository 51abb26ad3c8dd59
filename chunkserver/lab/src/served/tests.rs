//! Tests of chunk servers in virtual time.

use super::*;

fn served(way: Way, copies: usize, bytes: usize) -> Seen {
    let served = Served {
        seed: 7,
        way,
        copies,
        bytes,
        writes: 3,
        rate_bits_per_s: 100_000_000_000,
        delay: Nanos(500),
    };
    let seen = served.run().expect("it runs");
    assert_eq!(seen.end.troubles, [""; 0], "seed 7, {way:?}, {copies} copies of {bytes}");
    seen
}

/// 1 MiB takes 84 us of a wire at 100 Gb/s.
#[test]
fn a_client_sends_each_copy_and_servers_that_pass_on_take_one_wire_after_the_other_at_once() {
    let one = served(Way::Flat, 1, 1 << 20).median_us();
    let flat = served(Way::Flat, 3, 1 << 20).median_us();
    let ring = served(Way::Along(RouteKind::Ring), 3, 1 << 20).median_us();
    assert!((84.0..140.0).contains(&one), "{one} us");
    assert!(flat > 2.5 * one, "{flat} of {one} us");
    assert!(ring < 1.8 * one, "{ring} of {one} us");
}

#[test]
fn a_seed_gives_the_same_packets_again_and_servers_find_each_other_once() {
    let tree = || served(Way::Along(RouteKind::Tree), 4, 16 << 10);
    let (seen, again) = (tree(), tree());
    assert_eq!((&seen.times, &seen.end), (&again.times, &again.end));
    assert!(seen.times.iter().all(|time| *time < seen.first), "{seen:?}");
}

/// 3+2 units of 256 KiB: the client sends five, or three of which servers make the others.
#[test]
fn servers_make_parity_in_less_time_than_a_client_sends_it() {
    let sent = served(Way::Flat, 5, 256 << 10).median_us();
    let made = served(Way::Stripe(3), 5, 256 << 10).median_us();
    println!("{sent} {made} us");
    assert!((63.0..sent).contains(&made), "{made} of {sent} us");
}
