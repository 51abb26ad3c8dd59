//! Parity of data: whole, by contributions, of changes; and whether it is right.

use crate::buffers::{self, BufferError};
use crate::linear::Linear;
use crate::shape::{SHARDS_MAX, Shape, ShardSet};
use alloc::vec::Vec;
use rusty_erasure::gf;
use rusty_erasure::kernel::Kernels;

#[cfg(test)]
mod tests;

/// Bytes of each parity shard that [`Code::check`] works out at a time, on the stack.
const CHECKED_BYTES: usize = 256;

/// The code of one shape, ready to make parity.
#[derive(Clone, Debug)]
pub struct Code {
    shape: Shape,
    linear: Linear,
}

impl Code {
    /// For the vector instructions that this processor has.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self::with_kernels(shape, rusty_erasure::best_kernels())
    }

    pub(crate) fn with_kernels(shape: Shape, kernels: Kernels) -> Self {
        let (k, parity) = (shape.k(), shape.parity().iter());
        let coefficients: Vec<u8> =
            parity.flat_map(|row| (0..k).map(move |data| coefficient(k, row, data))).collect();
        Self { shape, linear: Linear::new(kernels, (shape.m(), shape.k()), coefficients) }
    }

    /// How many shards.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The instructions that multiply, by name.
    #[must_use]
    pub fn instructions(&self) -> &'static str {
        self.linear.kernels().name
    }

    /// What data shard `data` is multiplied by in parity shard `k + parity`; 0 if there is no such
    /// shard.
    #[must_use]
    pub fn coefficient(&self, parity: usize, data: usize) -> u8 {
        self.linear.row(parity).get(data).copied().unwrap_or(0)
    }

    /// Makes all parity of the same range of all data shards, both in the order of their numbers.
    ///
    /// # Errors
    /// [`BufferError`] if there are not `k` and `m` buffers of one length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), BufferError> {
        self.linear.apply(data, parity)
    }

    /// Makes what data shard `data` contributes to each parity shard ("intermediate parity"). The
    /// contributions of all data shards add up ([`crate::add`]) to the parity, in any order.
    ///
    /// # Errors
    /// [`BufferError`] if there is no such data shard, or not `m` buffers of its length.
    pub fn encode_part(
        &self,
        data: usize,
        bytes: &[u8],
        contributions: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        self.linear.apply_part(data, bytes, contributions)
    }

    /// Adds what data shard `data` contributes to each parity shard.
    ///
    /// # Errors
    /// As [`Code::encode_part`].
    pub fn add_part(
        &self,
        data: usize,
        bytes: &[u8],
        parity: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        self.linear.add_part(data, bytes, parity)
    }

    /// Makes the change of each parity shard when bytes of data shard `data` change from `before`
    /// to `after`. Added ([`crate::add`]) to the parity of before, it gives that of after; added
    /// twice, it takes itself back.
    ///
    /// # Errors
    /// As [`Code::encode_part`], of either.
    pub fn update(
        &self,
        data: usize,
        (before, after): (&[u8], &[u8]),
        changes: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        buffers::check_pair(before, after)?;
        // c * (before + after), without a buffer for the sum.
        self.linear.apply_part(data, before, changes)?;
        self.linear.add_part(data, after, changes)
    }

    /// The parity shards, by number, that are not those of the data. Bytes, or sketches of them
    /// ([`crate::Sketch`]), may be given.
    ///
    /// # Errors
    /// [`BufferError`] if there are not `k` and `m` buffers of one length.
    pub fn check(&self, data: &[&[u8]], parity: &[&[u8]]) -> Result<ShardSet, BufferError> {
        let (k, m) = (self.shape.k(), self.shape.m());
        if parity.len() != m {
            return Err(BufferError::Sources { expected: m, given: parity.len() });
        }
        let bytes = data.first().map_or(0, |shard| shard.len());
        for shard in data.iter().chain(parity) {
            if shard.len() != bytes {
                return Err(BufferError::Length { expected: bytes, given: shard.len() });
            }
        }
        if data.len() != k {
            return Err(BufferError::Sources { expected: k, given: data.len() });
        }
        let mut wrong = ShardSet::NONE;
        let mut made = [[0; CHECKED_BYTES]; SHARDS_MAX];
        for from in (0..bytes).step_by(CHECKED_BYTES) {
            let to = bytes.min(from + CHECKED_BYTES);
            let mut sources = [&[][..]; SHARDS_MAX];
            for (source, shard) in sources.iter_mut().zip(data) {
                *source = &shard[from..to];
            }
            let mut outputs = made.each_mut().map(|output| &mut output[..to - from]);
            self.linear.apply(&sources[..k], &mut outputs[..m])?;
            for (at, shard) in parity.iter().enumerate() {
                if *outputs[at] != shard[from..to] {
                    wrong.insert(k + at);
                }
            }
        }
        Ok(wrong)
    }

    /// The row of the whole matrix for a shard: what each data shard is multiplied by in it.
    pub(crate) fn row(&self, shard: usize) -> Vec<u8> {
        let k = self.shape.k();
        if shard < k {
            return (0..k).map(|data| u8::from(data == shard)).collect();
        }
        self.linear.row(shard - k).to_vec()
    }

    pub(crate) fn kernels(&self) -> Kernels {
        self.linear.kernels()
    }
}

/// The coefficient of a data shard in a parity shard, both by their numbers in the stripe.
///
/// `1 / (parity + data)` in the field makes a Cauchy matrix, as these numbers all differ. Each
/// column is divided by its coefficient in the first parity shard, `1 / (k + data)`, so that this
/// shard is the plain sum of the data. Every square part of the matrix still has an inverse.
fn coefficient(k: usize, parity: usize, data: usize) -> u8 {
    gf::mul((k ^ data) as u8, gf::inv((parity ^ data) as u8))
}
