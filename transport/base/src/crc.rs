//! The two checksums of the wire: CRC32C for our headers, payloads and slices, CRC-32 for the ICRC.

use crc_fast::CrcAlgorithm;

/// CRC32C (Castagnoli, reflected, as iSCSI defines it) of `bytes`.
///
/// ```
/// assert_eq!(towpath_base::crc::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
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
    fn crc32_resumes_where_it_stopped() {
        let mut first = Crc32::new();
        first.update(b"1234");
        let mut rest = Crc32::resume(first.value());
        rest.update(b"56789");
        assert_eq!(rest.value(), 0xcbf4_3926, "the check value of CRC-32");
    }
}
