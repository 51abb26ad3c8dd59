//! Parity and decoders are right by the field of the crate `reed-solomon-erasure`, which shares no
//! code with what multiplies here.

use reed_solomon_erasure::galois_8::{add, div, mul, mul_slice_xor};
use towpath_base::Prng;
use towpath_ec::{Code, Decoder, Shape, ShardSet};

/// The matrix as docs/erasure-coding.md defines it, in that field.
fn coefficient(k: usize, parity: usize, data: usize) -> u8 {
    let number = |shard: usize| shard as u8;
    let cauchy = |row| div(1, add(number(row), number(data)));
    div(cauchy(k + parity), cauchy(k))
}

#[test]
fn parity_of_every_shape_is_what_that_field_makes() {
    let seed = 41;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for k in 1..32 {
        for m in 1..=32 - k {
            let bytes = prng.below(200) as usize;
            let mut data = vec![vec![0; bytes]; k];
            data.iter_mut().for_each(|shard| prng.fill(shard));
            let mut parity = vec![vec![0; bytes]; m];
            let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            Code::new(Shape::new(k, m).unwrap()).encode(&sources, &mut outputs).unwrap();
            for (row, parity) in parity.iter().enumerate() {
                let mut expected = vec![0; bytes];
                for (column, shard) in data.iter().enumerate() {
                    mul_slice_xor(coefficient(k, row, column), shard, &mut expected);
                }
                assert_eq!(*parity, expected, "{k}+{m}, row {row}");
            }
        }
    }
}

#[test]
fn decoders_of_every_pattern_make_the_rows_of_the_matrix_in_that_field() {
    for (k, m) in [(3, 2), (4, 2), (6, 3), (8, 3), (10, 4)] {
        let shape = Shape::new(k, m).unwrap();
        let code = Code::new(shape);
        let row = |shard: usize, data: usize| match shard.checked_sub(k) {
            Some(parity) => coefficient(k, parity, data),
            None => u8::from(shard == data),
        };
        for present in (0..=shape.all().bits()).map(ShardSet::from_bits) {
            if present.len() != k {
                continue;
            }
            let decoder = Decoder::new(&code, present, shape.all()).unwrap();
            for wanted in 0..k + m {
                for data in 0..k {
                    let made = present.iter().fold(0, |sum, source| {
                        add(sum, mul(decoder.coefficient(wanted, source), row(source, data)))
                    });
                    assert_eq!(made, row(wanted, data), "{k}+{m}, {present:?}, {wanted}");
                }
            }
        }
    }
}
