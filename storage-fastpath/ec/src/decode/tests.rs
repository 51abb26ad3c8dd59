//! That what is lost comes back, whatever is lost and however it is put together.

use super::*;
use crate::stripes::{SHAPES, any_length, any_shape, cut, kernels, of, shuffle, stripe, views_mut};
use crate::{Factor, add};
use alloc::vec;
use std::println;
use towpath_base::Prng;

fn shape(k: usize, m: usize) -> Shape {
    Shape::new(k, m).unwrap()
}

fn decoded(decoder: &Decoder, shards: &[Vec<u8>], bytes: usize) -> Vec<Vec<u8>> {
    let mut made = vec![vec![0xee; bytes]; decoder.wanted().len()];
    decoder.decode(&of(shards, decoder.sources()), &mut views_mut(&mut made)).unwrap();
    made
}

/// All subsets of the shards of a shape.
fn subsets(shape: Shape) -> impl Iterator<Item = ShardSet> {
    (0..=shape.all().bits()).map(ShardSet::from_bits)
}

#[test]
fn every_pattern_of_up_to_m_lost_shards_comes_back() {
    let seed = 31;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for (k, m) in SHAPES {
        let code = Code::new(shape(k, m));
        let shards = stripe(&code, 77, &mut prng);
        let mut patterns = 0;
        for lost in subsets(code.shape()).filter(|lost| lost.len() <= m) {
            let present = code.shape().all().without(lost);
            let decoder = Decoder::new(&code, present, lost).unwrap();
            assert_eq!(decoded(&decoder, &shards, 77), of(&shards, lost), "{k}+{m}, {lost:?}");
            patterns += 1;
        }
        println!("{k}+{m}: {patterns} patterns");
    }
}

#[test]
fn any_k_shards_make_all_others_and_themselves() {
    let seed = 32;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for (k, m) in SHAPES {
        let code = Code::new(shape(k, m));
        let shards = stripe(&code, 33, &mut prng);
        for present in subsets(code.shape()).filter(|present| present.len() == k) {
            let decoder = Decoder::new(&code, present, code.shape().all()).unwrap();
            assert_eq!(decoder.sources(), present);
            assert_eq!(decoded(&decoder, &shards, 33), shards, "{k}+{m}, {present:?}");
        }
    }
}

#[test]
fn fewer_than_k_shards_are_refused_and_so_are_those_that_there_are_not() {
    for (k, m) in SHAPES {
        let code = Code::new(shape(k, m));
        for present in subsets(code.shape()).filter(|present| present.len() < k) {
            let error = DecoderError::TooFew { present: present.len(), k };
            let decoder = Decoder::new(&code, present, ShardSet::from_bits(1));
            assert_eq!(decoder.err(), Some(error));
        }
        let (all, no_such) =
            (code.shape().all(), DecoderError::NoSuchShard { shard: k + m, shards: k + m });
        let beyond = ShardSet::from_bits(1 << (k + m) | 1 << 31);
        assert_eq!(Decoder::new(&code, all, beyond).err(), Some(no_such));
        assert_eq!(Decoder::new(&code, all.with(beyond), all).err(), Some(no_such));
    }
}

#[test]
fn random_shapes_lose_random_shards_and_get_them_back_with_every_instruction_set() {
    let seed = 33;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for kernels in kernels() {
        for round in 0..200 {
            let code = Code::with_kernels(any_shape(&mut prng), kernels);
            let (shape, bytes) = (code.shape(), any_length(&mut prng).min(700));
            let shards = stripe(&code, bytes, &mut prng);
            let mut order: Vec<usize> = (0..shape.shards()).collect();
            shuffle(&mut order, &mut prng);
            let lost = prng.below(shape.m() as u64 + 1) as usize;
            let present: ShardSet = order[lost..].iter().copied().collect();
            let wanted: ShardSet = (0..shape.shards()).filter(|_| prng.chance(0.5)).collect();
            let decoder = Decoder::new(&code, present, wanted).unwrap();
            let made = decoded(&decoder, &shards, bytes);
            assert_eq!(made, of(&shards, wanted), "{}, round {round}, {shape}", kernels.name);
        }
    }
}

#[test]
fn ranges_are_decoded_as_the_whole_is() {
    let seed = 34;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for (k, m) in SHAPES {
        let code = Code::new(shape(k, m));
        let bytes = any_length(&mut prng);
        let shards = stripe(&code, bytes, &mut prng);
        let present = code.shape().all().without((0..m).collect());
        let decoder = Decoder::new(&code, present, (0..m).collect()).unwrap();
        let mut made = vec![vec![0; bytes]; m];
        for range in cut(bytes, &mut prng) {
            let sources = decoder.sources().iter().map(|shard| &shards[shard][range.clone()]);
            let mut outputs: Vec<_> =
                made.iter_mut().map(|shard| &mut shard[range.clone()]).collect();
            decoder.decode(&sources.collect::<Vec<_>>(), &mut outputs).unwrap();
        }
        assert_eq!(made, shards[..m], "{k}+{m}");
    }
}

#[test]
fn sources_are_added_as_they_come_in_any_order() {
    let seed = 35;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..100 {
        let code = Code::new(any_shape(&mut prng));
        let (shape, bytes) = (code.shape(), any_length(&mut prng));
        let shards = stripe(&code, bytes, &mut prng);
        let lost: ShardSet =
            (0..shape.m()).map(|_| prng.below(shape.shards() as u64) as usize).collect();
        let decoder = Decoder::new(&code, shape.all().without(lost), lost).unwrap();
        let mut made = vec![vec![0; bytes]; lost.len()];
        let mut sources: Vec<usize> = decoder.sources().iter().collect();
        shuffle(&mut sources, &mut prng);
        for source in sources {
            decoder.add_part(source, &shards[source], &mut views_mut(&mut made)).unwrap();
        }
        assert_eq!(made, of(&shards, lost), "round {round}");
    }
}

#[test]
fn a_repair_from_server_to_server_makes_what_a_decoder_makes() {
    let seed = 36;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..200 {
        let shape = any_shape(&mut prng);
        if shape.m() == 0 {
            continue;
        }
        let code = Code::new(shape);
        let bytes = any_length(&mut prng);
        let shards = stripe(&code, bytes, &mut prng);
        let lost = prng.below(shape.shards() as u64) as usize;
        let wanted: ShardSet = [lost].into_iter().collect();
        let decoder = Decoder::new(&code, shape.all().without(wanted), wanted).unwrap();
        let mut ring: Vec<usize> = decoder.sources().iter().collect();
        shuffle(&mut ring, &mut prng);
        let mut repaired = vec![0; bytes];
        // Pieces go round one after the other; each server knows its own coefficient alone.
        for range in cut(bytes, &mut prng) {
            let mut came = vec![0; range.len()];
            for &server in &ring {
                let factor = Factor::new(decoder.coefficient(lost, server));
                let mut product = vec![0xee; range.len()];
                factor.multiply(&shards[server][range.clone()], &mut product).unwrap();
                add(&mut product, &came).unwrap();
                factor.add_to(&shards[server][range.clone()], &mut came).unwrap();
                assert_eq!(product, came);
            }
            repaired[range].copy_from_slice(&came);
        }
        assert_eq!(repaired, decoded(&decoder, &shards, bytes)[0], "round {round}");
        assert_eq!(repaired, shards[lost], "round {round}");
    }
}

#[test]
fn buffers_that_do_not_fit_a_decoder_are_refused() {
    let code = Code::new(shape(3, 2));
    let (present, wanted) = (ShardSet::from_iter([0, 3, 4]), ShardSet::from_iter([1, 2]));
    let decoder = Decoder::new(&code, present, wanted).unwrap();
    let (mut one, mut two) = ([1; 8], [1; 8]);
    let sources = BufferError::Sources { expected: 3, given: 2 };
    assert_eq!(decoder.decode(&[&[0; 8][..]; 2], &mut [&mut one, &mut two]), Err(sources));
    let outputs = BufferError::Outputs { expected: 2, given: 1 };
    assert_eq!(decoder.decode(&[&[0; 8][..]; 3], &mut [&mut one]), Err(outputs));
    let no_source = BufferError::Source { source_at: 1, sources: 3 };
    assert_eq!(decoder.add_part(1, &[0; 8], &mut [&mut one, &mut two]), Err(no_source));
    let length = BufferError::Length { expected: 7, given: 8 };
    assert_eq!(decoder.add_part(0, &[0; 7], &mut [&mut one, &mut two]), Err(length));
    assert_eq!((one, two), ([1; 8], [1; 8]));
    assert_eq!([decoder.coefficient(0, 0), decoder.coefficient(1, 1)], [0, 0]);
    let factor = Factor::new(decoder.coefficient(1, 4));
    assert_eq!(factor.add_to(&[0; 7], &mut one), Err(length));
    assert_eq!(factor.coefficient(), decoder.coefficient(1, 4));
}

#[test]
fn nothing_wanted_is_nothing_made() {
    let code = Code::new(shape(3, 0));
    let decoder = Decoder::new(&code, code.shape().all(), ShardSet::NONE).unwrap();
    decoder.decode(&[&[1, 2, 3][..]; 3], &mut []).unwrap();
    decoder.add_part(0, &[1, 2, 3], &mut []).unwrap();
}
