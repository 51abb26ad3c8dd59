//! How a file is cut.
//!
//! Unit after unit, row by row over the data parts: a stripe. Units are of whole slices, and those
//! of the last stripe are as short as the rest of the file allows. What is missing of the last
//! stripe reads as zeros. All parts are equally long.

use towpath_fastpath::SLICE_BYTES;

/// How a file of so many bytes is cut over data parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripes {
    bytes: u64,
    data: usize,
    unit: usize,
}

/// One stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Where its units begin in their parts.
    pub(crate) offset: u64,
    /// Bytes of each unit.
    pub(crate) unit: usize,
    /// Bytes of the file in it.
    pub(crate) bytes: usize,
}

impl Stripe {
    /// One of so many bytes of the file, over `data` parts, whose units begin there.
    pub(crate) fn new(offset: u64, bytes: usize, data: usize) -> Self {
        let unit = bytes.div_ceil(data).next_multiple_of(SLICE_BYTES);
        Self { offset, unit, bytes }
    }
}

impl Stripes {
    pub(crate) fn new(bytes: u64, data: usize, unit: usize) -> Self {
        Self { bytes, data, unit }
    }

    /// Bytes of a whole stripe.
    pub(crate) fn stripe_bytes(&self) -> usize {
        self.data * self.unit
    }

    /// Bytes of each part.
    pub(crate) fn part_bytes(&self) -> u64 {
        let last = self.count().checked_sub(1).map(|index| self.at(index));
        last.map_or(0, |last| last.offset + last.unit as u64)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Stripe> {
        (0..self.count()).map(move |index| self.at(index))
    }

    /// The bytes of each part, in windows of whole units, of about `most` bytes.
    pub(crate) fn windows(self, most: u64) -> impl Iterator<Item = (u64, u64)> {
        let (unit, end) = (self.unit as u64, self.part_bytes());
        let window = (most / unit).max(1) * unit;
        (0..end.div_ceil(window)).map(move |index| {
            let offset = index * window;
            (offset, (end - offset).min(window))
        })
    }

    /// The first byte of the file in the stripe in which this byte of each part is.
    pub(crate) fn file_offset(&self, part_offset: u64) -> u64 {
        part_offset / self.unit as u64 * self.stripe_bytes() as u64
    }

    /// The stripe that has this byte of the file, and where in it.
    pub(crate) fn around(&self, file_offset: u64) -> (Stripe, usize) {
        let stripe = self.stripe_bytes() as u64;
        (self.at(file_offset / stripe), (file_offset % stripe) as usize)
    }

    fn count(&self) -> u64 {
        self.bytes.div_ceil(self.stripe_bytes() as u64)
    }

    fn at(&self, index: u64) -> Stripe {
        let stripe = self.stripe_bytes() as u64;
        let bytes = (self.bytes - index * stripe).min(stripe) as usize;
        Stripe::new(index * self.unit as u64, bytes, self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_into_windows_of_whole_units() {
        let windows = |most| Stripes::new(100_000, 3, 8_192).windows(most).collect::<Vec<_>>();
        assert_eq!(windows(20_000), [(0, 16_384), (16_384, 16_384), (32_768, 4_096)]);
        assert_eq!(windows(1), windows(8_192), "a unit at least");
        assert_eq!(windows(1 << 40), [(0, 36_864)]);
        assert_eq!(Stripes::new(0, 3, 8_192).windows(4_096).count(), 0);
    }

    #[test]
    fn a_file_is_cut_into_stripes_whose_last_one_is_short() {
        let cut = |bytes| Stripes::new(bytes, 3, 8_192).iter().collect::<Vec<_>>();
        assert_eq!(cut(0), []);
        assert_eq!(cut(1), [Stripe { offset: 0, unit: 4_096, bytes: 1 }]);
        let whole = Stripe { offset: 0, unit: 8_192, bytes: 24_576 };
        assert_eq!(cut(24_576), [whole]);
        let rest = Stripe { offset: 8_192, unit: 8_192, bytes: 12_289 };
        assert_eq!(cut(24_576 + 12_289), [whole, rest]);
        assert_eq!(Stripes::new(24_577, 3, 8_192).part_bytes(), 12_288);
        assert_eq!(Stripes::new(0, 3, 8_192).part_bytes(), 0);
        // Known at once, however many stripes there are.
        assert_eq!(Stripes::new(1 << 62, 1, 4_096).part_bytes(), 1 << 62);
    }
}
