//! What the policies promise, over a device that serves its classes in turn.

use super::{AtDevice, ClassLine, ClassOrder};
use crate::class::Class;

const AHEAD_BYTES: u64 = 1 << 20;
const CHUNK_BYTES: u64 = 57_344;

/// A device that sends a chunk of each class that it has in turn, while every class of `busy` has
/// more at all times; what each one got through of `total` chunks.
fn serve(order: ClassOrder, busy: &[Class], total: u64) -> [u64; Class::COUNT] {
    let mut line = ClassLine::new(order);
    let mut device = AtDevice { bytes: [0; Class::COUNT], ahead_bytes: AHEAD_BYTES };
    let mut sent = [0; Class::COUNT];
    let mut turn = 0;
    while sent.iter().sum::<u64>() < total {
        busy.iter().for_each(|&class| line.enter(class));
        while let Some(class) = line.turn(&device) {
            device.bytes[class.index()] += CHUNK_BYTES;
            line.served(class, CHUNK_BYTES, true);
        }
        let of_all: u64 = device.bytes.iter().sum();
        assert!(of_all < 2 * AHEAD_BYTES + CHUNK_BYTES, "bounded: {device:?}");
        assert!(of_all > 0, "the device never runs dry");
        let next = (turn..turn + Class::COUNT).map(|at| at % Class::COUNT);
        let class = next.into_iter().find(|&at| device.bytes[at] > 0).expect("it has something");
        device.bytes[class] -= CHUNK_BYTES;
        sent[class] += 1;
        turn = class + 1;
    }
    sent
}

#[test]
fn under_strict_priority_the_most_urgent_has_it_all_and_the_rest_what_it_leaves() {
    assert_eq!(serve(ClassOrder::Strict, &Class::ALL, 10_000), [10_000, 0, 0]);
    let lower = [Class::Silver, Class::Copper];
    assert_eq!(serve(ClassOrder::Strict, &lower, 10_000), [0, 10_000, 0]);
    assert_eq!(serve(ClassOrder::Strict, &[Class::Copper], 10_000), [0, 0, 10_000]);
}

#[test]
fn a_newcomer_that_is_more_urgent_waits_for_nobody_who_is_less() {
    let mut line = ClassLine::new(ClassOrder::Strict);
    let mut device = AtDevice { bytes: [0, 0, AHEAD_BYTES], ahead_bytes: AHEAD_BYTES };
    line.enter(Class::Copper);
    assert_eq!(line.turn(&device), None, "the device has enough");
    line.enter(Class::Gold);
    assert_eq!(line.turn(&device), Some(Class::Gold));
    line.served(Class::Gold, 100, false);
    device.bytes = [100, 0, 0];
    assert_eq!(line.turn(&device), Some(Class::Copper), "a little of Gold holds nobody up");
    device.bytes = [64 << 10, 0, 0];
    assert_eq!(line.turn(&device), None, "much of it does");
}

#[test]
fn shares_are_those_of_the_weights_and_nobody_starves() {
    let total = 100_000;
    for weights in [[1, 1, 1], [8, 4, 1], [1, 1, 100]] {
        let got = serve(ClassOrder::Shares(weights), &Class::ALL, total);
        let sum: u16 = weights.iter().sum();
        for (place, weight) in weights.into_iter().enumerate() {
            let due = total as f64 * f64::from(weight) / f64::from(sum);
            let off = (got[place] as f64 - due).abs() / due;
            assert!(off < 0.02, "{weights:?}: {got:?}");
        }
    }
    let got = serve(ClassOrder::Shares([3, 0, 1]), &[Class::Silver, Class::Copper], total);
    assert!(got[1].abs_diff(got[2]) < 100, "a weight of 0 counts as 1: {got:?}");
}

#[test]
fn who_was_idle_is_owed_nothing_for_it() {
    let mut line = ClassLine::new(ClassOrder::Shares([1, 1, 1]));
    let device = AtDevice { bytes: [0; Class::COUNT], ahead_bytes: AHEAD_BYTES };
    line.enter(Class::Copper);
    for _ in 0..1000 {
        assert_eq!(line.turn(&device), Some(Class::Copper));
        line.served(Class::Copper, CHUNK_BYTES, true);
    }
    line.enter(Class::Gold);
    let mut turns = [0_u32; Class::COUNT];
    for _ in 0..100 {
        let class = line.turn(&device).expect("both wait");
        turns[class.index()] += 1;
        line.served(class, CHUNK_BYTES, true);
    }
    assert!(turns[0].abs_diff(turns[2]) <= 2, "{turns:?}");
}
