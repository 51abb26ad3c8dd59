//! That parity is what the matrix says, however it is made.

use super::*;
use crate::stripes::{
    SHAPES, any_length, any_shape, cut, kernels, shuffle, stripe, views, views_mut,
};
use crate::{add, crc_of_sum};
use alloc::vec;
use std::println;
use towpath_base::Prng;
use towpath_base::crc::crc32c;

fn shape(k: usize, m: usize) -> Shape {
    Shape::new(k, m).unwrap()
}

fn rows(k: usize, m: usize) -> Vec<Vec<u8>> {
    let code = Code::new(shape(k, m));
    (0..m).map(|row| (0..k).map(|data| code.coefficient(row, data)).collect()).collect()
}

/// As docs/erasure-coding.md writes them down: all rows but the first, which is ones.
#[test]
fn the_matrices_are_those_that_the_format_has() {
    let expected: &[&[u8]] = &[&[201, 83, 122]];
    assert_eq!(rows(3, 2)[1..], *expected);
    let expected: &[&[u8]] = &[&[166, 70, 187, 123]];
    assert_eq!(rows(4, 2)[1..], *expected);
    let expected: &[&[u8]] = &[&[187, 123, 166, 70, 245, 143], &[201, 244, 83, 194, 122, 227]];
    assert_eq!(rows(6, 3)[1..], *expected);
    let expected: &[&[u8]] =
        &[&[156, 172, 153, 220, 171, 60, 151, 92], &[166, 44, 70, 38, 187, 48, 123, 72]];
    assert_eq!(rows(8, 3)[1..], *expected);
    let expected: &[&[u8]] = &[
        &[153, 220, 156, 172, 151, 92, 171, 60, 245, 143],
        &[143, 218, 210, 82, 200, 104, 245, 118, 142, 244],
        &[112, 178, 196, 143, 245, 101, 238, 40, 83, 201],
    ];
    assert_eq!(rows(10, 4)[1..], *expected);
}

#[test]
fn the_first_parity_shard_is_the_sum_of_the_data_in_every_shape() {
    for k in 1..32 {
        for m in 1..=32 - k {
            let code = Code::new(shape(k, m));
            assert!((0..k).all(|data| code.coefficient(0, data) == 1), "{k}+{m}");
            assert_eq!([code.coefficient(m, 0), code.coefficient(0, k)], [0, 0]);
        }
    }
}

#[test]
fn every_instruction_set_makes_the_parity_that_the_matrix_says_at_any_length() {
    let seed = 21;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for kernels in kernels() {
        println!("{}", kernels.name);
        for round in 0..150 {
            let code = Code::with_kernels(any_shape(&mut prng), kernels);
            let bytes = any_length(&mut prng).min(600);
            let shards = stripe(&code, bytes, &mut prng);
            let (data, parity) = shards.split_at(code.shape().k());
            for (row, parity) in parity.iter().enumerate() {
                for (place, &byte) in parity.iter().enumerate() {
                    let expected = data.iter().enumerate().fold(0, |sum, (column, shard)| {
                        sum ^ gf::mul_shift(code.coefficient(row, column), shard[place])
                    });
                    assert_eq!(byte, expected, "{}, round {round}, {place}", code.shape());
                }
            }
        }
    }
}

#[test]
fn all_products_are_right_in_every_instruction_set() {
    let bytes: Vec<u8> = (0..=255).collect();
    for kernels in kernels() {
        for coefficient in 0..=255 {
            let linear = Linear::new(kernels, (1, 1), vec![coefficient]);
            let (mut product, mut sum) = ([0; 256], [0x5a; 256]);
            linear.apply(&[&bytes], &mut [&mut product]).unwrap();
            linear.add_part(0, &bytes, &mut [&mut sum]).unwrap();
            for &byte in &bytes {
                let expected = gf::mul_shift(coefficient, byte);
                let at = usize::from(byte);
                assert_eq!([product[at], sum[at] ^ 0x5a], [expected; 2], "{}", kernels.name);
            }
        }
    }
}

#[test]
fn ranges_of_a_stripe_have_the_parity_that_the_whole_has() {
    let seed = 22;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..200 {
        let code = Code::new(any_shape(&mut prng));
        let (k, bytes) = (code.shape().k(), any_length(&mut prng));
        let shards = stripe(&code, bytes, &mut prng);
        let mut parity = vec![vec![0xee; bytes]; code.shape().m()];
        for range in cut(bytes, &mut prng) {
            let data: Vec<_> = shards[..k].iter().map(|shard| &shard[range.clone()]).collect();
            let mut outputs: Vec<_> =
                parity.iter_mut().map(|shard| &mut shard[range.clone()]).collect();
            code.encode(&data, &mut outputs).unwrap();
        }
        assert_eq!(parity, shards[k..], "round {round}");
    }
}

#[test]
fn contributions_add_up_to_the_parity_in_any_order_and_cut_anywhere() {
    let seed = 23;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..200 {
        let code = Code::with_kernels(any_shape(&mut prng), one_of(&mut prng));
        let (shape, bytes) = (code.shape(), any_length(&mut prng));
        let shards = stripe(&code, bytes, &mut prng);
        let mut parts: Vec<_> = (0..shape.k())
            .flat_map(|data| cut(bytes, &mut prng).into_iter().map(move |range| (data, range)))
            .collect();
        shuffle(&mut parts, &mut prng);
        let mut parity = vec![vec![0; bytes]; shape.m()];
        for (data, range) in parts {
            let part = &shards[data][range.clone()];
            let mut outputs: Vec<_> =
                parity.iter_mut().map(|shard| &mut shard[range.clone()]).collect();
            if prng.chance(0.5) {
                code.add_part(data, part, &mut outputs).unwrap();
                continue;
            }
            // As a data node sends them, and parity nodes add them.
            let mut contributions = vec![vec![0xee; part.len()]; shape.m()];
            code.encode_part(data, part, &mut views_mut(&mut contributions)).unwrap();
            for (sum, contribution) in outputs.iter_mut().zip(&contributions) {
                add(sum, contribution).unwrap();
            }
        }
        assert_eq!(parity, shards[shape.k()..], "round {round}, {shape}, {bytes} bytes");
    }
}

fn one_of(prng: &mut Prng) -> Kernels {
    let all = kernels();
    all[prng.below(all.len() as u64) as usize]
}

#[test]
fn crcs_of_parity_follow_from_those_of_data_or_of_contributions() {
    let seed = 26;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..100 {
        let code = Code::new(any_shape(&mut prng));
        let (shape, bytes) = (code.shape(), any_length(&mut prng));
        let shards = stripe(&code, bytes, &mut prng);
        let (data, parity) = shards.split_at(shape.k());
        // Of each parity shard, the CRCs of the contributions to it.
        let mut crcs = vec![vec![]; shape.m()];
        for (at, shard) in data.iter().enumerate() {
            let mut contributions = vec![vec![0; bytes]; shape.m()];
            code.encode_part(at, shard, &mut views_mut(&mut contributions)).unwrap();
            for (crcs, contribution) in crcs.iter_mut().zip(&contributions) {
                crcs.push(crc32c(contribution));
            }
        }
        for (crcs, parity) in crcs.into_iter().zip(parity) {
            assert_eq!(crc_of_sum(bytes as u32, crcs), crc32c(parity), "round {round}");
        }
        if let Some(first) = parity.first() {
            let crcs = data.iter().map(|shard| crc32c(shard));
            assert_eq!(crc_of_sum(bytes as u32, crcs), crc32c(first), "round {round}");
        }
    }
}

#[test]
fn an_update_gives_the_parity_of_the_new_data() {
    let seed = 24;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..200 {
        let code = Code::with_kernels(any_shape(&mut prng), one_of(&mut prng));
        let (shape, bytes) = (code.shape(), any_length(&mut prng).max(1));
        let mut shards = stripe(&code, bytes, &mut prng);
        let data = prng.below(shape.k() as u64) as usize;
        let from = prng.below(bytes as u64) as usize;
        let range = from..prng.between(from as u64, bytes as u64) as usize;

        let before = shards[data][range.clone()].to_vec();
        let mut after = before.clone();
        prng.fill(&mut after);
        let mut changes = vec![vec![0xee; range.len()]; shape.m()];
        code.update(data, (&before, &after), &mut views_mut(&mut changes)).unwrap();
        shards[data][range.clone()].copy_from_slice(&after);
        for (parity, change) in shards[shape.k()..].iter_mut().zip(&changes) {
            add(&mut parity[range.clone()], change).unwrap();
        }
        let mut expected = vec![vec![0; bytes]; shape.m()];
        code.encode(&views(&shards[..shape.k()]), &mut views_mut(&mut expected)).unwrap();
        assert_eq!(shards[shape.k()..], expected, "round {round}");
    }
}

#[test]
fn parity_that_is_not_that_of_the_data_is_named() {
    let seed = 25;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for (k, m) in SHAPES {
        let code = Code::new(shape(k, m));
        for bytes in [1, 4, 255, 256, 257, 1000] {
            let shards = stripe(&code, bytes, &mut prng);
            let check = |shards: &[Vec<u8>]| {
                code.check(&views(&shards[..k]), &views(&shards[k..])).unwrap()
            };
            assert_eq!(check(&shards), ShardSet::NONE);
            for shard in 0..k + m {
                let mut wrong = shards.clone();
                wrong[shard][prng.below(bytes as u64) as usize] ^= 1 << prng.below(8);
                let expected = if shard < k { code.shape().parity() } else { set(shard) };
                assert_eq!(check(&wrong), expected, "{k}+{m}, shard {shard} of {bytes} bytes");
            }
        }
    }
}

fn set(shard: usize) -> ShardSet {
    [shard].into_iter().collect()
}

#[test]
fn buffers_that_do_not_fit_are_refused_and_left_alone() {
    let code = Code::new(shape(3, 2));
    let (long, short) = (&[7; 20][..], &[7; 19][..]);
    let (mut one, mut two, mut less) = ([1; 20], [1; 20], [1; 19]);
    let refused = |data: &[&[u8]], mut parity: Vec<&mut [u8]>, error| {
        assert_eq!(code.encode(data, &mut parity), Err(error));
        assert!(parity.iter().all(|parity| parity.iter().all(|&byte| byte == 1)));
    };
    let length = BufferError::Length { expected: 20, given: 19 };
    refused(&[long, long, short], vec![&mut one, &mut two], length);
    refused(&[long, long, long], vec![&mut one, &mut less], length);
    let sources = |given| BufferError::Sources { expected: 3, given };
    refused(&[long, long], vec![&mut one, &mut two], sources(2));
    refused(&[long; 4], vec![&mut one, &mut two], sources(4));
    let outputs = BufferError::Outputs { expected: 2, given: 1 };
    refused(&[long; 3], vec![&mut one], outputs);

    let source = BufferError::Source { source_at: 3, sources: 3 };
    assert_eq!(code.encode_part(3, long, &mut [&mut one, &mut two]), Err(source));
    assert_eq!(code.add_part(3, long, &mut [&mut one, &mut two]), Err(source));
    assert_eq!(code.add_part(0, long, &mut [&mut one, &mut less]), Err(length));
    let changed = code.update(0, (long, short), &mut [&mut one, &mut two]);
    assert_eq!(changed, Err(length));
    assert_eq!((one, two, less), ([1; 20], [1; 20], [1; 19]));

    assert_eq!(code.check(&[long; 2], &[long; 2]), Err(sources(2)));
    assert_eq!(code.check(&[long; 3], &[long, short]), Err(length));
    let expected = BufferError::Sources { expected: 2, given: 1 };
    assert_eq!(code.check(&[long; 3], &[long]), Err(expected));
}

#[test]
fn without_parity_there_is_nothing_to_make() {
    let code = Code::new(shape(4, 0));
    code.encode(&[&[1, 2][..]; 4], &mut []).unwrap();
    code.encode_part(1, &[1, 2], &mut []).unwrap();
    code.add_part(1, &[1, 2], &mut []).unwrap();
    code.update(1, (&[1, 2], &[3, 4]), &mut []).unwrap();
    assert_eq!(code.check(&[&[1, 2][..]; 4], &[]), Ok(ShardSet::NONE));
}
