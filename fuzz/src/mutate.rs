//! Changing inputs at random, from a seed.

use towpath_base::Prng;

/// The longest input that is made, bytes: more than a jumbo frame, so that every length field
/// can lie both ways, and small enough to try a hundred thousand a second.
pub const INPUT_BYTES_MAX: usize = 16 << 10;

/// Most changes made to one input; a few at a time keep most of a valid input valid.
const STEPS_MAX: u64 = 8;

/// What counts as the front of an input, bytes: the longest of our fixed headers.
const FRONT_BYTES: usize = 64;

/// The numbers at which lengths, indexes and counters go wrong.
const EDGES: [u64; 17] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x7fff,
    0x8000,
    0xffff,
    0xff_ffff,
    0x7fff_ffff,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

/// A changed copy of `input`; `other` lends bytes for splices.
#[must_use]
pub fn mutate(prng: &mut Prng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..prng.between(1, STEPS_MAX) {
        step(prng, &mut out, other);
    }
    out.truncate(INPUT_BYTES_MAX);
    out
}

fn step(prng: &mut Prng, out: &mut Vec<u8>, other: &[u8]) {
    match prng.below(12) {
        0 | 1 => flip_bit(prng, out),
        2 => set_byte(prng, out),
        3 | 4 => write_edge(prng, out),
        5 => add_small(prng, out),
        6 => write_length(prng, out),
        7 => insert(prng, out),
        8 => remove(prng, out),
        9 => repeat(prng, out),
        10 => splice(prng, out, other),
        _ => truncate_or_extend(prng, out),
    }
}

fn index(prng: &mut Prng, len: usize) -> usize {
    prng.below(len.max(1) as u64) as usize
}

/// A place in an input of `len` bytes; half of the time near the front, where headers are.
fn place(prng: &mut Prng, len: usize) -> usize {
    let within = if prng.chance(0.5) { len.min(FRONT_BYTES) } else { len };
    index(prng, within)
}

/// A range within `len`, mostly short.
fn range(prng: &mut Prng, len: usize) -> std::ops::Range<usize> {
    let start = place(prng, len);
    let most = if prng.chance(0.8) { 16 } else { len };
    let end = (start + 1 + index(prng, most)).min(len);
    start..end
}

fn flip_bit(prng: &mut Prng, out: &mut [u8]) {
    let at = place(prng, out.len());
    if let Some(byte) = out.get_mut(at) {
        *byte ^= 1 << prng.below(8);
    }
}

fn set_byte(prng: &mut Prng, out: &mut [u8]) {
    let at = place(prng, out.len());
    if let Some(byte) = out.get_mut(at) {
        *byte = prng.next_u32() as u8;
    }
}

/// Writes the low `width` bytes of `value` in either byte order at `at`, as far as they fit.
fn write_number(prng: &mut Prng, out: &mut [u8], at: usize, width: usize, value: u64) {
    let mut bytes = value.to_le_bytes();
    let bytes = &mut bytes[..width];
    if prng.chance(0.5) {
        bytes.reverse();
    }
    if let Some(field) = out.get_mut(at..at + width) {
        field.copy_from_slice(bytes);
    }
}

fn width(prng: &mut Prng) -> usize {
    1 << prng.below(4)
}

fn write_edge(prng: &mut Prng, out: &mut [u8]) {
    let (at, width) = (place(prng, out.len()), width(prng));
    let value = EDGES[index(prng, EDGES.len())];
    write_number(prng, out, at, width, value);
}

fn add_small(prng: &mut Prng, out: &mut [u8]) {
    let (at, width) = (place(prng, out.len()), width(prng));
    let Some(field) = out.get_mut(at..at + width) else { return };
    let little = prng.chance(0.5);
    let delta = prng.between(0, 70) as i64 - 35;
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(field);
    if !little {
        bytes[..width].reverse();
    }
    let mut sum = u64::from_le_bytes(bytes).wrapping_add_signed(delta).to_le_bytes();
    if !little {
        sum[..width].reverse();
    }
    field.copy_from_slice(&sum[..width]);
}

/// Writes what a length field there might say: the bytes that follow, give or take a few.
fn write_length(prng: &mut Prng, out: &mut [u8]) {
    let (at, width) = (place(prng, out.len()), width(prng));
    let follow = out.len().saturating_sub(at + width) as u64;
    let value = follow.wrapping_add(prng.between(0, 8)).wrapping_sub(4);
    write_number(prng, out, at, width, value);
}

fn insert(prng: &mut Prng, out: &mut Vec<u8>) {
    let at = place(prng, out.len() + 1);
    let mut bytes = [0; 16];
    prng.fill(&mut bytes);
    let count = 1 + index(prng, bytes.len());
    out.splice(at..at, bytes[..count].iter().copied());
}

fn remove(prng: &mut Prng, out: &mut Vec<u8>) {
    let range = range(prng, out.len());
    out.drain(range);
}

fn repeat(prng: &mut Prng, out: &mut Vec<u8>) {
    let range = range(prng, out.len());
    let bytes = out[range.clone()].to_vec();
    out.splice(range.end..range.end, bytes);
}

fn splice(prng: &mut Prng, out: &mut Vec<u8>, other: &[u8]) {
    let from = range(prng, other.len());
    let at = place(prng, out.len() + 1);
    let replaced = if prng.chance(0.5) { (at + from.len()).min(out.len()) } else { at };
    out.splice(at..replaced, other[from].iter().copied());
}

fn truncate_or_extend(prng: &mut Prng, out: &mut Vec<u8>) {
    if prng.chance(0.5) {
        out.truncate(index(prng, out.len() + 1));
    } else {
        let fill = [0, 0xff, 0xa5][index(prng, 3)];
        out.resize(out.len() + 1 + index(prng, 64), fill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_seed_others() {
        let made = |seed| {
            let mut prng = Prng::new(seed);
            (0..100).map(|_| mutate(&mut prng, b"a header and a body", b"other")).collect()
        };
        let first: Vec<_> = made(1);
        assert_eq!(first, made(1));
        assert_ne!(first, made(2));
    }

    #[test]
    fn no_input_is_too_short_or_too_long_to_change() {
        let mut prng = Prng::new(7);
        for len in [0, 1, 2, 7, 8, 9, INPUT_BYTES_MAX] {
            for _ in 0..5_000 {
                let out = mutate(&mut prng, &vec![0x5a; len], &[]);
                assert!(out.len() <= INPUT_BYTES_MAX);
            }
        }
    }

    #[test]
    fn most_changes_leave_an_input_that_differs() {
        let mut prng = Prng::new(11);
        let input: Vec<u8> = (0..64).collect();
        let differ = (0..1_000).filter(|_| mutate(&mut prng, &input, &input) != input).count();
        assert!(differ > 950, "{differ} of 1000");
    }
}
