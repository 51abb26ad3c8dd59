//! Stripes for tests.

use crate::{Code, Shape, ShardSet};
use alloc::vec;
use alloc::vec::Vec;
use rusty_erasure::kernel::Kernels;
use towpath_base::Prng;

/// The shapes of which every pattern is tried.
pub(crate) const SHAPES: [(usize, usize); 5] = [(3, 2), (4, 2), (6, 3), (8, 3), (10, 4)];

/// Any shape, with as little as no parity shard.
pub(crate) fn any_shape(prng: &mut Prng) -> Shape {
    let k = prng.between(1, 32) as usize;
    Shape::new(k, prng.below(33 - k as u64) as usize).unwrap()
}

/// Lengths around those that vector instructions take at a time, and others.
pub(crate) fn any_length(prng: &mut Prng) -> usize {
    let near = [0, 1, 16, 32, 64, 128, 256, 4096, 8192][prng.below(9) as usize];
    (near + prng.below(40) as usize).saturating_sub(prng.below(20) as usize)
}

/// All kernels that this processor can run.
pub(crate) fn kernels() -> Vec<Kernels> {
    let names = ["scalar", "ssse3", "avx2", "gfni", "neon"];
    names.iter().filter_map(|name| rusty_erasure::kernels_named(name)).collect()
}

/// All shards of a stripe, of random data.
pub(crate) fn stripe(code: &Code, bytes: usize, prng: &mut Prng) -> Vec<Vec<u8>> {
    let shape = code.shape();
    let mut shards = vec![vec![0; bytes]; shape.shards()];
    let (data, parity) = shards.split_at_mut(shape.k());
    data.iter_mut().for_each(|shard| prng.fill(shard));
    code.encode(&views(data), &mut views_mut(parity)).unwrap();
    shards
}

pub(crate) fn views(shards: &[Vec<u8>]) -> Vec<&[u8]> {
    shards.iter().map(Vec::as_slice).collect()
}

pub(crate) fn views_mut(shards: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    shards.iter_mut().map(Vec::as_mut_slice).collect()
}

/// The shards of a set, in the order of their numbers.
pub(crate) fn of(shards: &[Vec<u8>], set: ShardSet) -> Vec<&[u8]> {
    set.iter().map(|shard| &shards[shard][..]).collect()
}

/// Cuts `0..bytes` at random places, and shuffles the pieces.
pub(crate) fn cut(bytes: usize, prng: &mut Prng) -> Vec<core::ops::Range<usize>> {
    let mut cuts: Vec<usize> =
        (0..prng.below(6)).map(|_| prng.below(bytes as u64 + 1) as usize).collect();
    cuts.extend([0, bytes]);
    cuts.sort_unstable();
    let mut ranges: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
    shuffle(&mut ranges, prng);
    ranges
}

pub(crate) fn shuffle<T>(items: &mut [T], prng: &mut Prng) {
    for last in (1..items.len()).rev() {
        items.swap(last, prng.below(last as u64 + 1) as usize);
    }
}
