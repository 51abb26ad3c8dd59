//! That sketches are linear, and how often they miss a difference.

use super::*;
use crate::{Code, Shape, ShardSet};
use alloc::vec::Vec;
use std::println;

/// Differences that must not slip through more often than others: one byte, two in one column of
/// the folds, a burst, half the slice, all of it.
fn differences(prng: &mut Prng) -> Vec<(&'static str, Vec<u8>)> {
    let mut of = |places: &[usize]| {
        let mut slice = vec![0; SKETCHED_BYTES_MAX];
        for &place in places {
            slice[place] = prng.between(1, 255) as u8;
        }
        slice
    };
    let mut twice = of(&[5]);
    twice[5 + PIECE_BYTES] = twice[5];
    vec![
        ("the first byte", of(&[0])),
        ("the last byte", of(&[SKETCHED_BYTES_MAX - 1])),
        ("the same in two pieces", twice),
        ("a burst", of(&(1000..1100).collect::<Vec<_>>())),
        ("half", of(&(0..SKETCHED_BYTES_MAX / 2).collect::<Vec<_>>())),
        ("all", of(&(0..SKETCHED_BYTES_MAX).collect::<Vec<_>>())),
    ]
}

#[test]
fn each_byte_of_a_sketch_misses_a_difference_once_in_256_seeds() {
    let seed = 11;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let differences = differences(&mut prng);
    let seeds = 12_800;
    let mut missed = vec![[0; SKETCH_BYTES]; differences.len()];
    let mut missed_by_sum = vec![0; differences.len()];
    for _ in 0..seeds {
        let sketch = Sketch::new(prng.next_u64());
        for (at, (_, difference)) in differences.iter().enumerate() {
            let bytes = sketch.of(difference).unwrap();
            for (missed, byte) in missed[at].iter_mut().zip(bytes) {
                *missed += u32::from(byte == 0);
            }
            // Bytes that hung together would make their sum miss more often.
            missed_by_sum[at] += u32::from(bytes.iter().fold(0, |sum, byte| sum ^ byte) == 0);
        }
    }
    // 50 are expected; the deviation is 7.
    for ((name, _), (bytes, sum)) in differences.iter().zip(missed.iter().zip(&missed_by_sum)) {
        println!("{name}: {bytes:?}, {sum}, of {seeds}");
        for count in bytes.iter().chain([sum]) {
            assert!((15..=85).contains(count), "{name}: {count} of {seeds}");
        }
    }
}

#[test]
fn no_fold_of_a_difference_is_lost_before_the_sketch() {
    // With one fold, a difference in one piece would vanish once in 256 seeds, whatever follows.
    let seed = 12;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for _ in 0..2_000 {
        let sketch = Sketch::new(prng.next_u64());
        let piece = prng.below(PIECES as u64) as usize;
        let column: Vec<u8> = (0..FOLDS).map(|fold| sketch.folds.row(fold)[piece]).collect();
        assert!(column.iter().any(|&one| one != 0), "piece {piece}");
    }
}

#[test]
fn sketches_of_a_stripe_are_a_stripe_and_show_the_parity_that_is_wrong() {
    let seed = 13;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..300 {
        let k = prng.between(1, 31) as usize;
        let m = prng.between(1, 32 - k as u64) as usize;
        let code = Code::new(Shape::new(k, m).unwrap());
        let bytes = prng.between(1, SKETCHED_BYTES_MAX as u64) as usize;
        let mut shards = vec![vec![0; bytes]; k + m];
        let (data, parity) = shards.split_at_mut(k);
        for shard in &mut *data {
            prng.fill(shard);
        }
        let data: Vec<&[u8]> = data.iter().map(|shard| &shard[..]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|shard| &mut shard[..]).collect();
        code.encode(&data, &mut parity).unwrap();

        let sketch = Sketch::new(prng.next_u64());
        let check = |shards: &[Vec<u8>]| {
            let sketches: Vec<_> = shards.iter().map(|shard| sketch.of(shard).unwrap()).collect();
            let sketches: Vec<&[u8]> = sketches.iter().map(|sketch| &sketch[..]).collect();
            code.check(&sketches[..k], &sketches[k..]).unwrap()
        };
        assert_eq!(check(&shards), ShardSet::NONE, "round {round}");
        let (shard, place) = (prng.below((k + m) as u64) as usize, prng.below(bytes as u64));
        shards[shard][place as usize] ^= prng.between(1, 255) as u8;
        let wrong = check(&shards);
        let expected =
            if shard < k { code.shape().parity() } else { [shard].into_iter().collect() };
        assert_eq!(wrong, expected, "round {round}, shard {shard}");
    }
}

#[test]
fn a_short_slice_counts_as_if_zeros_followed_and_a_long_one_is_refused() {
    let seed = 14;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let sketch = Sketch::new(7);
    for bytes in [0, 1, 31, 32, 33, 4000, 4064, 4065, 4095, 4096] {
        let mut slice = vec![0; SKETCHED_BYTES_MAX];
        prng.fill(&mut slice[..bytes]);
        assert_eq!(sketch.of(&slice[..bytes]), sketch.of(&slice), "{bytes}");
    }
    assert_eq!(sketch.of(&[]), Ok([0; 4]));
    assert_eq!(sketch.of(&[0; 4097]), Err(SketchError { bytes: 4097 }));
}

#[test]
fn a_seed_gives_the_same_sketch_with_every_instruction_set() {
    let mut slice = vec![0; SKETCHED_BYTES_MAX];
    Prng::new(15).fill(&mut slice);
    // Fixed: servers of different processors compare them.
    let expected = Ok(FIXED);
    for name in ["scalar", "ssse3", "avx2", "gfni", "neon", "auto"] {
        let Some(kernels) = rusty_erasure::kernels_named(name) else { continue };
        println!("{name}");
        assert_eq!(Sketch::with_kernels(9, kernels).of(&slice), expected, "{name}");
    }
}

/// The sketch by seed 9 of the bytes of seed 15, worked out byte by byte.
const FIXED: [u8; SKETCH_BYTES] = [194, 6, 70, 170];

#[test]
fn the_sketch_is_what_its_definition_says() {
    let seed = 9;
    let mut slice = vec![0; SKETCHED_BYTES_MAX];
    Prng::new(15).fill(&mut slice);
    let mut prng = Prng::new(seed);
    let mut coefficients = vec![0; FOLDS * PIECES];
    prng.fill(&mut coefficients);
    let mut sum = [0; SKETCH_BYTES];
    for fold in 0..FOLDS {
        for column in 0..PIECE_BYTES {
            let byte = (0..PIECES).fold(0, |sum, piece| {
                let coefficient = coefficients[fold * PIECES + piece];
                sum ^ gf::mul_shift(coefficient, slice[piece * PIECE_BYTES + column])
            });
            let last = prng.next_u32().to_le_bytes();
            for (sum, coefficient) in sum.iter_mut().zip(last) {
                *sum ^= gf::mul_shift(coefficient, byte);
            }
        }
    }
    assert_eq!(sum, FIXED);
    assert_eq!(Sketch::new(seed).of(&slice), Ok(sum));
}
