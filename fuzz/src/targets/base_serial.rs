//! Serial numbers: what was narrowed comes back, and PSN distances are those of the ring.

use crate::class;
use towpath_base::serial::{Psn, expand_u16, expand_u32};

/// Sixteen bytes: a number to stay near to, and a distance to go from it.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((head, rest)) = input.split_first_chunk::<8>() else { return 0 };
    let Some((tail, _)) = rest.split_first_chunk::<8>() else { return 1 };
    let near = u64::from_le_bytes(*head);
    let step = i64::from_le_bytes(*tail);

    let wide = near.wrapping_add_signed(i64::from(step as i32));
    assert_eq!(expand_u32(wide as u32, near), wide, "32 bits near {near:#x}");
    let narrow = near.wrapping_add_signed(i64::from(step as i16));
    assert_eq!(expand_u16(narrow as u16, near), narrow, "16 bits near {near:#x}");

    let psn = Psn::new(near as u32);
    // Within half of the 24-bit range a distance is exact.
    let distance = (step as i32) >> (32 - Psn::BITS);
    let other = psn.plus(distance as u32);
    assert_eq!(other.distance(psn), distance, "{psn:?} to {other:?}");
    let wrapped = u64::from(other.value() < psn.value());
    class(&[2, wrapped, u64::from(step < 0), u64::from(near.leading_zeros())])
}
