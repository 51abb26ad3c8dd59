//! CRC32C of pages behind one another from the CRC32C of each, without their bytes, and of zeros.
//!
//! CRC32C is linear: the bytes behind some others change what these contribute by a linear function
//! that depends on how many they are alone. For a page that function is four tables of 256 words,
//! made when this is compiled; for any number of zeros it is put together from those of powers of
//! two.

/// Bytes of a page: one slice of the store, and the unit in which payloads are cut.
pub const PAGE_BYTES: usize = 4096;

/// CRC32C of bytes whose own is `front` and a whole page behind them whose own is `page`.
///
/// The CRC32C of no bytes is 0. Other lengths than a page are not the business of this.
///
/// ```
/// use towpath_base::crc::{crc32c, crc32c_then_page};
///
/// let bytes = [7; 100 + 4096];
/// let joined = crc32c_then_page(crc32c(&bytes[..100]), crc32c(&bytes[100..]));
/// assert_eq!(joined, crc32c(&bytes));
/// ```
#[must_use]
#[inline]
pub fn crc32c_then_page(front: u32, page: u32) -> u32 {
    let bytes = front.to_le_bytes().into_iter().zip(&PAST_PAGE);
    bytes.fold(page, |sum, (byte, table)| sum ^ table[usize::from(byte)])
}

/// By what the CRC32C of data changes when its last eight bytes change by xor with `by`, in
/// little-endian order.
///
/// ```
/// use towpath_base::crc::{crc32c, crc32c_change};
///
/// let [before, after] = [6_u64, 9].map(|number| crc32c(&number.to_le_bytes()));
/// assert_eq!(before ^ crc32c_change(6 ^ 9), after);
/// ```
#[must_use]
pub const fn crc32c_change(by: u64) -> u32 {
    let mut value = by;
    let mut bit = 0;
    while bit < u64::BITS {
        value = (value >> 1) ^ (super::POLYNOMIAL as u64 * (value & 1));
        bit += 1;
    }
    value as u32
}

/// CRC32C of so many zeros, in steps that are fewer than the bits of their number.
///
/// It is the constant in CRC32C, which is linear but for it: the CRC of the xor of two buffers of
/// one length is the xor of their CRCs and of this.
///
/// ```
/// use towpath_base::crc::{crc32c, crc32c_of_zeros};
///
/// assert_eq!(crc32c_of_zeros(1000), crc32c(&[0; 1000]));
/// ```
#[must_use]
pub fn crc32c_of_zeros(bytes: u32) -> u32 {
    let powers = PAST_POWER.iter().enumerate();
    !powers
        .filter(|(power, _)| bytes >> power & 1 == 1)
        .fold(u32::MAX, |crc, (_, past)| apply(past, crc))
}

/// What `1 << power` zeros make of a CRC in its running form.
static PAST_POWER: [Matrix; 32] = {
    let mut matrices = [[0; 32]; 32];
    let mut power = 0;
    let mut matrix = past(8);
    while power < 32 {
        matrices[power] = matrix;
        matrix = squared(&matrix);
        power += 1;
    }
    matrices
};

/// `PAST_PAGE[k][b]` takes the byte `b` at place `k` of a CRC past a page.
static PAST_PAGE: [[u32; 256]; 4] = {
    let matrix = past(8 * PAGE_BYTES);
    let mut tables = [[0; 256]; 4];
    let mut k = 0;
    while k < 4 {
        let mut byte = 0;
        while byte < 256 {
            tables[k][byte] = apply(&matrix, (byte as u32) << (8 * k));
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// A linear function of words: what becomes of each bit.
type Matrix = [u32; 32];

/// What so many bits behind it, a power of two, make of each bit of a CRC: what one bit makes of
/// it, squared until it is that of all.
const fn past(bits: usize) -> Matrix {
    let mut matrix = [super::POLYNOMIAL; 32];
    let mut bit = 1;
    while bit < 32 {
        matrix[bit] = 1 << (bit - 1);
        bit += 1;
    }
    let mut done = 1;
    while done < bits {
        matrix = squared(&matrix);
        done *= 2;
    }
    matrix
}

/// A function twice.
const fn squared(matrix: &Matrix) -> Matrix {
    let mut twice = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        twice[bit] = apply(matrix, matrix[bit]);
        bit += 1;
    }
    twice
}

const fn apply(matrix: &Matrix, word: u32) -> u32 {
    let mut sum = 0;
    let mut bit = 0;
    while bit < 32 {
        sum ^= matrix[bit] * (word >> bit & 1);
        bit += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::{Crc32c, crc32c};
    use super::*;
    use alloc::vec;

    #[test]
    fn every_bit_of_the_front_goes_past_a_page_as_its_bytes_do() {
        let page = [0; PAGE_BYTES];
        let of_page = crc32c(&page);
        // Both are affine: what holds for no bit and for each bit alone holds for all.
        for front in (0..32).map(|bit| 1 << bit).chain([0, u32::MAX]) {
            let mut crc = Crc32c::resume(front);
            crc.update(&page);
            assert_eq!(crc32c_then_page(front, of_page), crc.value(), "{front:#x}");
        }
    }

    #[test]
    fn pages_behind_a_head_of_any_length_have_the_crc_of_all_the_bytes() {
        let seed = 5;
        std::println!("seed {seed}");
        let mut prng = crate::Prng::new(seed);
        for round in 0..200 {
            let (head, pages) = (prng.below(5000) as usize, prng.below(6) as usize);
            let mut bytes = vec![0; head + pages * PAGE_BYTES];
            prng.fill(&mut bytes);
            let (head, pages) = bytes.split_at(head);
            let joined = pages.chunks(PAGE_BYTES).map(crc32c).fold(crc32c(head), crc32c_then_page);
            assert_eq!(joined, crc32c(&bytes), "round {round}");
        }
    }

    #[test]
    fn zeros_have_their_crc_whatever_their_number() {
        let zeros = vec![0; 70_000];
        let lengths = (0..600).chain([4095, 4096, 4097, 65_535, 65_536, 70_000]);
        for bytes in lengths {
            assert_eq!(crc32c_of_zeros(bytes as u32), crc32c(&zeros[..bytes]), "{bytes}");
        }
        let most = crc32c_of_zeros(u32::MAX);
        let mut crc = Crc32c::resume(crc32c_of_zeros(u32::MAX - 70_000));
        crc.update(&zeros);
        assert_eq!(crc.value(), most);
    }

    #[test]
    fn a_change_of_the_last_bytes_changes_the_crc_alike_whatever_is_in_front() {
        let seed = 6;
        std::println!("seed {seed}");
        let mut prng = crate::Prng::new(seed);
        for round in 0..200 {
            let mut bytes = vec![0; 8 + prng.below(40) as usize];
            prng.fill(&mut bytes);
            let before = crc32c(&bytes);
            let by = prng.next_u64() >> prng.below(64);
            let at = bytes.len() - 8;
            bytes[at..].iter_mut().zip(by.to_le_bytes()).for_each(|(byte, by)| *byte ^= by);
            assert_eq!(crc32c(&bytes), before ^ crc32c_change(by), "round {round}");
        }
    }
}
