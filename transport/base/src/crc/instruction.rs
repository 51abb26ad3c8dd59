//! CRC32C of a header by the processor's own instruction.
#![allow(unsafe_code)]

use core::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};

cpufeatures::new!(sse42, "sse4.2");

/// Of the first 60 bytes; none where the processor has no such instruction.
#[inline]
pub(super) fn crc32c_of_60(bytes: &[u8; 64]) -> Option<u32> {
    if !sse42::get() {
        return None;
    }
    // SAFETY: the processor was asked for all that the function needs.
    Some(unsafe { eight_steps(bytes) })
}

/// One step for each word, the last of which is half a one.
#[target_feature(enable = "sse4.2")]
fn eight_steps(bytes: &[u8; 64]) -> u32 {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    let crc = (0..7).fold(u64::from(u32::MAX), |crc, at| _mm_crc32_u64(crc, word(at)));
    !_mm_crc32_u32(crc as u32, word(7) as u32)
}
