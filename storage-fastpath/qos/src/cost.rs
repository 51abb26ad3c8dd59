//! What an I/O costs: one token for each 4 KiB, times a weight of its operation.

/// Bytes that one token pays for.
pub const TOKEN_BYTES: u32 = 4096;

/// Weights of operations, in tokens for each 4 KiB: what a write takes of a server that copies or
/// encodes it is more than what a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of reads.
    pub read: u16,
    /// Of writes, all copies and checksums included.
    pub write: u16,
}

impl Default for Weights {
    fn default() -> Self {
        Self { read: 1, write: 1 }
    }
}

/// Tokens for so many bytes at a weight: at least one.
#[must_use]
pub fn tokens(bytes: u64, weight: u16) -> u32 {
    let units = bytes.div_ceil(TOKEN_BYTES.into()).max(1);
    u32::try_from(units.saturating_mul(weight.max(1).into())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_pays_for_each_page_that_is_begun() {
        assert_eq!([0, 1, 4096, 4097, 65_536].map(|bytes| tokens(bytes, 1)), [1, 1, 1, 2, 16]);
        assert_eq!(tokens(8192, 3), 6);
        assert_eq!(tokens(u64::MAX, u16::MAX), u32::MAX);
    }
}
