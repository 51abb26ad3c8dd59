//! Cutting a segment whose bytes come in any order.

use super::*;
use crate::channel::runs::Runs;
use alloc::vec;
use std::println;
use towpath_base::Prng;

extern crate std;

const SIZES: PieceSizes = PieceSizes { shortest: 16 << 10, longest: 56 << 10, unit: 4096 };

/// A segment of `len` bytes divided at random, in random order.
fn shuffled(prng: &mut Prng, len: u32, mean: u32) -> Vec<(u32, u32)> {
    let (mut at, mut ranges) = (0, Vec::new());
    while at < len {
        let step = (prng.between(1, u64::from(2 * mean)) as u32).next_multiple_of(8);
        let end = (at + step).min(len);
        ranges.push((at, end));
        at = end;
    }
    for at in (1..ranges.len()).rev() {
        ranges.swap(at, prng.below(at as u64 + 1) as usize);
    }
    ranges
}

/// Where a piece at the frontier ends, for which a sender has room of so many bytes.
fn end_of(growing: &Growing, next: &Next, room: u32) -> u32 {
    let there = next.until - next.start;
    let ends_it = next.until == growing.len;
    match there & !(SIZES.unit - 1) {
        _ if ends_it && there <= room => next.until,
        few if few < SIZES.shortest => (next.start + SIZES.shortest).min(growing.len),
        enough => next.start + enough.min(room & !(SIZES.unit - 1)),
    }
}

#[test]
fn whatever_the_order_pieces_have_indices_in_the_order_of_their_offsets_and_cover_all_once() {
    for seed in 0..400 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let len = prng.between(1, 1_000_000) as u32;
        let mean = [700, 5_000, 30_000, 100_000][prng.below(4) as usize];
        let head = prng.between(1, 4) as u32;
        let mut growing = Growing::new((1, 100, len), SIZES, prng.chance(0.5));
        let (mut cut, mut runs) = (head, Runs::default());
        // The pieces of the head, and then those that are cut; which bytes went where.
        for index in 0..head {
            runs.insert(index, index, 1).unwrap();
        }
        let mut sent = vec![0; len as usize];
        let mut shortest_cut = 0;
        for (from, until) in shuffled(&mut prng, len, mean) {
            let mut mark = |piece: Range<u32>, there: Range<u32>| {
                assert!(piece.start <= there.start && there.end <= piece.end);
                assert!(from <= there.start && there.end <= until || !there.is_empty());
                for byte in there {
                    sent[byte as usize] += 1;
                }
            };
            let late = |piece, _, there| mark(piece, there);
            match growing.supply((from, until - from), late) {
                Ok(()) => {}
                Err(SupplyError::TooMany { max }) => {
                    assert!(mean < 1_000 && max == SUPPLIES_FEW + len / SUPPLY_BYTES_MEAN);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            while prng.chance(0.7) {
                let Some(next) = growing.next(cut) else { break };
                let room = prng.between(16 << 10, 56 << 10) as u32;
                let end = next.end.unwrap_or_else(|| end_of(&growing, &next, room));
                let length = end - next.start;
                runs.insert(next.index, head + next.start, length).expect("it fits the others");
                shortest_cut += u32::from(length < SIZES.shortest);
                assert!(length <= SIZES.longest && (next.start.is_multiple_of(SIZES.unit)));
                growing.cut(next, end, cut, |there| mark(next.start..end, there));
                cut += 1;
                assert!(growing.may_hold(cut) <= cut);
            }
        }
        while let Some(next) = growing.next(cut) {
            let end = next.end.unwrap_or_else(|| end_of(&growing, &next, 56 << 10));
            runs.insert(next.index, head + next.start, end - next.start).unwrap();
            shortest_cut += u32::from(end - next.start < SIZES.shortest);
            growing.cut(next, end, cut, |there| {
                there.for_each(|byte| sent[byte as usize] += 1);
            });
            cut += 1;
        }
        assert!(shortest_cut <= 1, "the last piece alone may be short");
        if growing.is_supplied() {
            assert!(sent.iter().all(|&times| times == 1) && runs.are_whole(head + len));
            assert!(growing.pieces.iter().all(|piece| piece.is_cut && piece.missing == 0));
        }
    }
}

#[test]
fn what_is_out_of_range_there_already_or_off_the_grain_is_refused_and_changes_nothing() {
    let mut growing = Growing::new((1, 10, 100), SIZES, false);
    let mut supply = |from, length| growing.supply((from, length), |_, _, _| {});
    supply(16, 32).unwrap();
    let out = SupplyError::OutOfRange { len: 100 };
    assert_eq!((supply(0, 0), supply(96, 8), supply(u32::MAX, 8)), (Err(out), Err(out), Err(out)));
    let twice = Err(SupplyError::Overlap);
    assert_eq!((supply(16, 32), supply(8, 16), supply(40, 60)), (twice, twice, twice));
    assert_eq!(supply(0, 100), twice);
    assert_eq!([supply(49, 7), supply(48, 7)], [Err(SupplyError::Misaligned); 2]);
    supply(48, 52).unwrap();
    supply(0, 16).unwrap();
    assert!(growing.is_supplied());
    assert!(growing.have.has(0..100));
    assert_eq!(growing.ready_bytes(), 100);
}

#[test]
fn credit_that_may_be_held_counts_from_the_first_gap_where_pieces_are_handed_out_in_order() {
    let cut_behind_a_gap = |held_whole| {
        let mut growing = Growing::new((1, 10, 1 << 20), SIZES, held_whole);
        let mut cut = 1;
        for at in [100 << 10, 200 << 10] {
            growing.supply((at, 32 << 10), |_, _, _| {}).unwrap();
            let next = growing.next(cut).unwrap();
            let with = growing.may_hold_with(next.index, true, cut);
            growing.cut(next, next.start + (32 << 10), cut, |_| {});
            cut += 1;
            assert_eq!(with, growing.may_hold(cut));
        }
        growing.supply((0, 56 << 10), |_, _, _| {}).unwrap();
        let next = growing.next(cut).unwrap();
        assert_eq!((next.index, next.end), (1, Some(56 << 10)));
        let with = growing.may_hold_with(next.index, true, cut);
        growing.cut(next, 56 << 10, cut, |_| {});
        (with, growing.may_hold(cut + 1))
    };
    assert_eq!(cut_behind_a_gap(false), (2, 2));
    assert_eq!(cut_behind_a_gap(true), (4, 4));
}

#[test]
fn a_piece_comes_home_once_when_the_device_has_returned_it() {
    let mut growing = Growing::new((1, 10, 50_000), SIZES, false);
    growing.supply((0, 50_000), |_, _, _| {}).unwrap();
    let next = growing.next(1).unwrap();
    growing.cut(next, 50_000, 1, |_| {});
    growing.on_posted(next.index);
    growing.on_posted(next.index);
    growing.on_returned(next.index);
    assert_eq!(growing.take_home(next.index), None, "it was posted twice");
    growing.on_returned(next.index);
    assert_eq!(growing.take_home(next.index), Some((0, 50_000)));
    assert_eq!((growing.take_home(next.index), growing.take_home(0)), (None, None));
}
