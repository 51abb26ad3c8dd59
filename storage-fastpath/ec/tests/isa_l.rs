//! Parity is that of Intel's ISA-L with the same matrix, in all 496 shapes that have parity.
//!
//! `isa_l/vectors.txt` was made by ISA-L 2.30 with `isa_l/vectors.c`, which says how.

use towpath_base::crc::Crc32c;
use towpath_ec::{Code, Shape};

/// Bytes of each shard there.
const BYTES: usize = 97;

/// The shard that the vectors were made of.
fn data(shard: usize) -> Vec<u8> {
    let mut state = shard as u32 + 1;
    let mut next = || {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (state >> 16) as u8
    };
    (0..BYTES).map(|_| next()).collect()
}

#[test]
fn parity_is_what_isa_l_makes_in_every_shape() {
    let vectors = include_str!("isa_l/vectors.txt");
    let mut shapes = 0;
    for line in vectors.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [k, m, crc] = words[..] else { panic!("{line}") };
        let (k, m) = (k.parse().unwrap(), m.parse().unwrap());
        let crc = u32::from_str_radix(crc, 16).unwrap();
        let data: Vec<Vec<u8>> = (0..k).map(data).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; BYTES]; m];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        Code::new(Shape::new(k, m).unwrap()).encode(&data, &mut outputs).unwrap();
        let mut made = Crc32c::new();
        parity.iter().for_each(|shard| made.update(shard));
        assert_eq!(made.value(), crc, "{k}+{m}");
        shapes += 1;
    }
    assert_eq!(shapes, 31 * 32 / 2);
}
