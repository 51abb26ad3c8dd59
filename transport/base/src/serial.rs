//! Numbers that travel narrower than they are kept, and the 24-bit PSN.
//!
//! Everything here is right only while the two values compared are less than half the narrow
//! range apart; each caller says why that holds.

/// The 64-bit number nearest to `near` whose low 32 bits are `low`.
///
/// ```
/// use towpath_base::serial::expand_u32;
/// assert_eq!(expand_u32(2, 0x1_ffff_fffe), 0x2_0000_0002);
/// assert_eq!(expand_u32(0xffff_ffff, 0x2_0000_0001), 0x1_ffff_ffff);
/// ```
#[must_use]
pub fn expand_u32(low: u32, near: u64) -> u64 {
    let delta = low.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(delta))
}

/// The 64-bit number nearest to `near` whose low 16 bits are `low`.
#[must_use]
pub fn expand_u16(low: u16, near: u64) -> u64 {
    let delta = low.wrapping_sub(near as u16) as i16;
    near.wrapping_add_signed(i64::from(delta))
}

/// A 24-bit packet sequence number as the BTH carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// How many bits of a PSN travel.
    pub const BITS: u32 = 24;
    const MASK: u32 = (1 << Self::BITS) - 1;

    /// The PSN in the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The value, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// How far `self` is ahead of `other`, negative when behind; exact within half the range.
    #[must_use]
    pub const fn distance(self, other: Self) -> i32 {
        // Shifting the 24 bits to the top makes the sign bit the PSN's own top bit.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_takes_the_nearest_number_on_both_sides_of_a_wrap() {
        for near in [0x1_0000_0000u64, 0x1_7fff_ffff, 0x1_8000_0000, 0x1_ffff_ffff] {
            for off in [-0x7fff_ffffi64, -1, 0, 1, 0x7fff_ffff] {
                let truth = near.wrapping_add_signed(off);
                assert_eq!(expand_u32(truth as u32, near), truth, "near {near:#x} off {off}");
            }
        }
        for off in [-0x7fffi64, -1, 0, 1, 0x7fff] {
            let truth = 0x1_0000u64.wrapping_add_signed(off);
            assert_eq!(expand_u16(truth as u16, 0x1_0000), truth);
        }
    }

    #[test]
    fn psn_distance_wraps_at_24_bits() {
        assert_eq!(Psn::new(0).distance(Psn::new(0xff_ffff)), 1);
        assert_eq!(Psn::new(0xff_ffff).distance(Psn::new(0)), -1);
        assert_eq!(Psn::new(0xff_ffff).plus(2), Psn::new(1));
        assert_eq!(Psn::new(0x7f_ffff).distance(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0x80_0000).distance(Psn::new(0)), -0x80_0000);
    }
}
