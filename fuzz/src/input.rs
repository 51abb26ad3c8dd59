//! Reading choices out of an input, and folding counts into classes.

/// The input as a source of choices; past its end every choice is zero.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// At most `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.bytes(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.number())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.number())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.number())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.number())
    }
}

/// A count on a coarse logarithmic scale: 0, 1, 2 to 3, 4 to 15, 16 to 63 and so on.
pub(crate) fn coarse(count: u64) -> u64 {
    count.checked_ilog2().map_or(0, |log| match log {
        0 | 1 => u64::from(log) + 1,
        _ => u64::from(log / 2) + 2,
    })
}
