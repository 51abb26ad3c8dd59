//! Which queue pair numbers are whose, where several devices share one address.

use crate::qp::QpNum;

/// The most devices that share one address: six bits of a queue pair number say whose it is, and
/// 18 are left.
pub const SHARES_MAX: u8 = 64;

/// One device's share of all queue pair numbers. Its lowest bits tell whose a number is; numbers
/// that nobody draws are the first device's: 0, 1 and the largest, which are for management and
/// multicast, and those whose lowest bits name a device that is not there.
///
/// ```
/// use towpath_verbs::{QpNum, QpShare};
///
/// let share = QpShare::new(1, 3).expect("the second of three");
/// assert!(share.owns(QpNum(0b1_01)) && !share.owns(QpNum(0b1_10)));
/// assert_eq!(share.owner_of(QpNum(0b1_11)), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpShare {
    index: u8,
    count: u8,
}

impl QpShare {
    /// All numbers: the address is not shared.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// The share of device `index` of `count`; `None` when there is no such device, or there are
    /// more than [`SHARES_MAX`].
    #[must_use]
    pub fn new(index: u8, count: u8) -> Option<Self> {
        (index < count && count <= SHARES_MAX).then_some(Self { index, count })
    }

    /// Which device, from 0.
    #[must_use]
    pub fn index(self) -> u8 {
        self.index
    }

    /// How many devices.
    #[must_use]
    pub fn count(self) -> u8 {
        self.count
    }

    /// How many of the lowest bits of a number tell whose it is.
    #[must_use]
    pub fn bits(self) -> u32 {
        u32::from(self.count).next_power_of_two().trailing_zeros()
    }

    /// Whose a number is.
    #[inline]
    #[must_use]
    pub fn owner_of(self, qp_num: QpNum) -> u8 {
        let drawn = qp_num > QpNum(1) && qp_num < QpNum::MAX;
        let index = (qp_num.0 & ((1 << self.bits()) - 1)) as u8;
        if drawn && index < self.count { index } else { 0 }
    }

    /// Whether a number is this device's.
    #[inline]
    #[must_use]
    pub fn owns(self, qp_num: QpNum) -> bool {
        self.owner_of(qp_num) == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_owner_and_shares_are_alike() {
        for count in [1, 2, 3, 8, 63, SHARES_MAX] {
            let shares: [Option<QpShare>; SHARES_MAX as usize] =
                core::array::from_fn(|index| QpShare::new(index as u8, count));
            let mut owned = [0_u32; SHARES_MAX as usize];
            for number in 0..4096 {
                let owners = shares.iter().flatten().filter(|share| share.owns(QpNum(number)));
                assert_eq!(owners.count(), 1, "{number} of {count}");
                owned[usize::from(shares[0].expect("the first").owner_of(QpNum(number)))] += 1;
            }
            let period = u32::from(count).next_power_of_two();
            assert!(owned[1..usize::from(count)].iter().all(|&n| n.abs_diff(4096 / period) <= 1));
            assert!(owned[usize::from(count)..].iter().all(|&n| n == 0));
        }
    }

    #[test]
    fn special_numbers_are_the_first_ones() {
        for index in 0..3 {
            let share = QpShare::new(index, 3).expect("one of three");
            for number in [QpNum(0), QpNum(1), QpNum::MAX] {
                assert_eq!(share.owner_of(number), 0);
            }
        }
        assert_eq!(QpShare::new(3, 3), None);
        assert_eq!(QpShare::new(0, SHARES_MAX + 1), None);
        assert_eq!(QpShare::new(0, 1), Some(QpShare::ALL));
    }
}
