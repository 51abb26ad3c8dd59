//! The two checksums of the wire: CRC32C for our headers, payloads and slices, CRC-32 for the ICRC.

#[cfg(target_arch = "x86_64")]
mod instruction;
mod page;

use crate::passes::{Pass, note};
pub use page::{PAGE_BYTES, crc32c_change, crc32c_of_zeros, crc32c_then_page};

/// The polynomial of CRC32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRC32C (Castagnoli, reflected, as iSCSI defines it) of `bytes`.
///
/// ```
/// assert_eq!(towpath_base::crc::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    note(Pass::Crc, bytes.len());
    #[cfg(feature = "std")]
    return crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    #[cfg(not(feature = "std"))]
    return crc32c_portable(bytes);
}

/// CRC32C of the first 60 of 64 bytes: of a header that ends in its checksum.
///
/// As [`crc32c`], which takes three times as long to find out what it is to do with so few.
///
/// ```
/// use towpath_base::crc::{crc32c, crc32c_of_60};
///
/// let header = std::array::from_fn(|place| place as u8);
/// assert_eq!(crc32c_of_60(&header), crc32c(&header[..60]));
/// ```
#[must_use]
#[inline]
pub fn crc32c_of_60(bytes: &[u8; 64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = instruction::crc32c_of_60(bytes) {
        return crc;
    }
    crc32c(&bytes[..60])
}

/// CRC32C taken over several pieces in turn.
#[derive(Clone, Debug)]
pub struct Crc32c {
    #[cfg(feature = "std")]
    digest: crc_fast::Digest,
    #[cfg(not(feature = "std"))]
    crc: u32,
}

impl Crc32c {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        #[cfg(feature = "std")]
        return Self { digest: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi) };
        #[cfg(not(feature = "std"))]
        return Self { crc: u32::MAX };
    }

    /// Goes on from `crc`, the value of the bytes before.
    #[must_use]
    pub fn resume(crc: u32) -> Self {
        let state = !crc;
        #[cfg(feature = "std")]
        return Self {
            digest: crc_fast::Digest::new_with_init_state(
                crc_fast::CrcAlgorithm::Crc32Iscsi,
                state.into(),
            ),
        };
        #[cfg(not(feature = "std"))]
        return Self { crc: state };
    }

    /// Takes in `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        note(Pass::Crc, bytes.len());
        #[cfg(feature = "std")]
        self.digest.update(bytes);
        #[cfg(not(feature = "std"))]
        {
            self.crc = advance_portable(self.crc, bytes);
        }
    }

    /// The checksum of all that was taken in.
    #[must_use]
    pub fn value(&self) -> u32 {
        #[cfg(feature = "std")]
        return self.digest.finalize() as u32;
        #[cfg(not(feature = "std"))]
        return !self.crc;
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// `TABLES[k][b]` takes byte `b` past `k` more zero bytes.
#[cfg(any(test, not(feature = "std")))]
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
            bit += 1;
        }
        tables[0][i] = value;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let before: u32 = tables[k - 1][i];
            tables[k][i] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    tables
};

/// Eight bytes a step, by tables: what is used where the CPU cannot be asked what it can do.
#[cfg(any(test, not(feature = "std")))]
fn crc32c_portable(bytes: &[u8]) -> u32 {
    !advance_portable(u32::MAX, bytes)
}

/// Takes a CRC in its running form past `bytes`.
#[cfg(any(test, not(feature = "std")))]
fn advance_portable(mut crc: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let mixed = u64::from_le_bytes(*eight) ^ u64::from(crc);
        let folded = mixed.to_le_bytes().into_iter().zip(TABLES.iter().rev());
        crc = folded.fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)]);
    }
    for &byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

/// CRC-32 (as zlib) taken over several pieces in turn.
#[derive(Clone, Debug)]
pub struct Crc32 {
    hasher: crc32fast::Hasher,
}

impl Crc32 {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: crc32fast::Hasher::new() }
    }

    /// Goes on from `crc`, the value of the bytes before.
    #[must_use]
    pub fn resume(crc: u32) -> Self {
        Self { hasher: crc32fast::Hasher::new_with_initial(crc) }
    }

    /// Takes in `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        note(Pass::Icrc, bytes.len());
        self.hasher.update(bytes);
    }

    /// The checksum of all that was taken in.
    #[must_use]
    pub fn value(self) -> u32 {
        self.hasher.finalize()
    }
}

impl Default for Crc32 {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portable_crc32c_agrees_with_the_fast_one_at_every_length_and_alignment() {
        let mut bytes = [0; 300];
        crate::Prng::new(1).fill(&mut bytes);
        assert_eq!(crc32c_portable(b"123456789"), 0xe306_9283, "the check value of CRC-32C");
        for from in 0..9 {
            for to in from..bytes.len() {
                let part = &bytes[from..to];
                assert_eq!(crc32c_portable(part), crc32c(part), "{from}..{to}");
            }
        }
    }

    #[test]
    fn a_header_has_the_crc32c_of_its_first_60_bytes() {
        let mut prng = crate::Prng::new(3);
        for _ in 0..1_000 {
            let mut bytes = [0; 64];
            prng.fill(&mut bytes);
            assert_eq!(crc32c_of_60(&bytes), crc32c_portable(&bytes[..60]), "{bytes:?}");
        }
    }

    #[test]
    fn crc32c_of_pieces_is_that_of_the_whole_wherever_it_is_cut() {
        let mut bytes = [0; 300];
        crate::Prng::new(2).fill(&mut bytes);
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            let mut crc = Crc32c::new();
            crc.update(head);
            crc.update(tail);
            assert_eq!(crc.value(), crc32c(&bytes), "cut at {cut}");
            let mut resumed = Crc32c::resume(crc32c(head));
            resumed.update(tail);
            assert_eq!(resumed.value(), crc.value(), "cut at {cut}");
            assert_eq!(!advance_portable(advance_portable(u32::MAX, head), tail), crc.value());
        }
    }

    #[test]
    fn crc32_resumes_where_it_stopped() {
        let mut first = Crc32::new();
        first.update(b"1234");
        let mut rest = Crc32::resume(first.value());
        rest.update(b"56789");
        assert_eq!(rest.value(), 0xcbf4_3926, "the check value of CRC-32");
    }
}
