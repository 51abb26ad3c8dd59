//! What is added up, and the CRC of a sum.

use crate::buffers::{self, BufferError};
use towpath_base::crc::crc32c_of_zeros;
use towpath_base::passes::{Pass, note};

/// Adds `part` to `sum`. Adding is xor: what is added a second time is taken away again, so whoever
/// adds contributions that may be repeated must know which ones it has.
///
/// # Errors
/// [`BufferError`] if they differ in length.
pub fn add(sum: &mut [u8], part: &[u8]) -> Result<(), BufferError> {
    buffers::check_pair(sum, part)?;
    note(Pass::Code, part.len());
    // The compiler makes vector instructions of this.
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum ^= part;
    }
    Ok(())
}

/// CRC32C of the sum of some parts, each of `bytes` bytes, from the CRC32C of each.
///
/// The first parity shard is the sum of the data shards, and each parity shard is the sum of the
/// contributions to it. The CRC of bytes times a coefficient does not follow from that of the
/// bytes.
///
/// ```
/// use towpath_base::crc::crc32c;
/// use towpath_ec::{add, crc_of_sum};
///
/// let (mut sum, parts) = (*b"one", [*b"two", *b"six"]);
/// let crcs = [crc32c(&sum), crc32c(&parts[0]), crc32c(&parts[1])];
/// for part in &parts {
///     add(&mut sum, part)?;
/// }
/// assert_eq!(crc_of_sum(3, crcs), crc32c(&sum));
/// # Ok::<(), towpath_ec::BufferError>(())
/// ```
#[must_use]
pub fn crc_of_sum(bytes: u32, crcs: impl IntoIterator<Item = u32>) -> u32 {
    // A CRC is a linear function plus a constant, which is the CRC of as many zeros. An even number
    // of constants is nothing.
    let mut is_even = true;
    let mut sum = 0;
    for crc in crcs {
        sum ^= crc;
        is_even = !is_even;
    }
    if is_even { sum ^ crc32c_of_zeros(bytes) } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::println;
    use towpath_base::Prng;
    use towpath_base::crc::crc32c;

    #[test]
    fn the_crc_of_a_sum_follows_from_those_of_its_parts_whatever_their_number_and_length() {
        let seed = 1;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for parts in 0..12 {
            for _ in 0..40 {
                let bytes = prng.below(300) as usize;
                let mut sum = vec![0; bytes];
                let mut crcs = vec![];
                for _ in 0..parts {
                    let mut part = vec![0; bytes];
                    prng.fill(&mut part);
                    crcs.push(crc32c(&part));
                    add(&mut sum, &part).unwrap();
                }
                assert_eq!(crc_of_sum(bytes as u32, crcs), crc32c(&sum), "{parts} of {bytes}");
            }
        }
    }

    #[test]
    fn what_differs_in_length_is_not_added() {
        let mut sum = [1; 70];
        let error = BufferError::Length { expected: 70, given: 69 };
        assert_eq!(add(&mut sum, &[3; 69]), Err(error));
        assert_eq!(sum, [1; 70]);
        add(&mut sum, &[3; 70]).unwrap();
        assert_eq!(sum, [2; 70]);
    }
}
