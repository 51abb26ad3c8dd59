//! Shards from `k` others.

use crate::buffers::BufferError;
use crate::code::Code;
use crate::linear::Linear;
use crate::shape::{Shape, ShardSet};
use alloc::vec::Vec;
use rusty_erasure::Matrix;

#[cfg(test)]
mod tests;

/// Why there is no decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecoderError {
    /// Too few shards are present: what is wanted is lost until others come back.
    #[error("{present} shards are present, of which {k} are needed")]
    TooFew {
        /// How many are present.
        present: usize,
        /// How many it takes.
        k: usize,
    },
    /// A shard was named that the stripe does not have.
    #[error("a stripe of {shards} shards has no shard {shard}")]
    NoSuchShard {
        /// The lowest one of these.
        shard: usize,
        /// How many the stripe has.
        shards: usize,
    },
}

/// Makes the wanted shards from `k` that are present; prepared once for all stripes that lost the
/// same ones.
#[derive(Clone, Debug)]
pub struct Decoder {
    sources: ShardSet,
    wanted: ShardSet,
    linear: Linear,
}

impl Decoder {
    /// Makes `wanted` from `present`, data or parity both. If more than `k` are present, the lowest
    /// `k` are the sources.
    ///
    /// # Errors
    /// [`DecoderError`] if fewer than `k` are present, or shards are named that there are not.
    pub fn new(code: &Code, present: ShardSet, wanted: ShardSet) -> Result<Self, DecoderError> {
        let shape = code.shape();
        if let Some(shard) = present.with(wanted).without(shape.all()).iter().next() {
            return Err(DecoderError::NoSuchShard { shard, shards: shape.shards() });
        }
        let sources: ShardSet = present.iter().take(shape.k()).collect();
        let too_few = DecoderError::TooFew { present: present.len(), k: shape.k() };
        if sources.len() < shape.k() {
            return Err(too_few);
        }
        // Every square part of a Cauchy matrix has an inverse, so this has one.
        let coefficients = coefficients(code, shape, sources, wanted).ok_or(too_few)?;
        let linear = Linear::new(code.kernels(), (wanted.len(), shape.k()), coefficients);
        Ok(Self { sources, wanted, linear })
    }

    /// The `k` shards that are read. Sources are given in the order of their numbers.
    #[must_use]
    pub fn sources(&self) -> ShardSet {
        self.sources
    }

    /// The shards that are made. Outputs are given in the order of their numbers.
    #[must_use]
    pub fn wanted(&self) -> ShardSet {
        self.wanted
    }

    /// What `source` is multiplied by in `wanted`, both by number, and 0 if they are not of these.
    ///
    /// In a repair that goes from server to server, each multiplies its shard by this
    /// ([`crate::Factor`]) and adds what came from the one before it.
    #[must_use]
    pub fn coefficient(&self, wanted: usize, source: usize) -> u8 {
        let (row, column) = (rank(self.wanted, wanted), rank(self.sources, source));
        let (Some(row), Some(column)) = (row, column) else { return 0 };
        self.linear.row(row).get(column).copied().unwrap_or(0)
    }

    /// Makes the same range of all wanted shards, from that of all sources.
    ///
    /// # Errors
    /// [`BufferError`] if there is not one buffer for each, or they differ in length.
    pub fn decode(&self, sources: &[&[u8]], wanted: &mut [&mut [u8]]) -> Result<(), BufferError> {
        self.linear.apply(sources, wanted)
    }

    /// Adds what one source, by number, contributes to each wanted shard. When each has been added
    /// once to buffers of zeros, in any order, these are the wanted shards.
    ///
    /// # Errors
    /// [`BufferError`] if that shard is no source, or buffers do not fit.
    pub fn add_part(
        &self,
        source: usize,
        bytes: &[u8],
        wanted: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        // One that is no source has no rank, and no matrix has a column of this number.
        let at = rank(self.sources, source).unwrap_or(usize::MAX);
        self.linear.add_part(at, bytes, wanted).map_err(|error| match error {
            BufferError::Source { sources, .. } => {
                BufferError::Source { source_at: source, sources }
            }
            other => other,
        })
    }
}

/// How many of the set come before a shard that is in it.
fn rank(set: ShardSet, shard: usize) -> Option<usize> {
    set.iter().position(|one| one == shard)
}

/// Row by row, what sources are multiplied by in each wanted shard.
///
/// Sources are rows of the whole matrix times the data. Its inverse times the sources is therefore
/// the data, and the row of a wanted shard times that inverse makes it from the sources.
fn coefficients(code: &Code, shape: Shape, sources: ShardSet, wanted: ShardSet) -> Option<Vec<u8>> {
    let k = shape.k();
    let rows: Vec<u8> = sources.iter().flat_map(|shard| code.row(shard)).collect();
    let inverse = Matrix::from_bytes(k, k, rows).ok()?.invert().ok()?;
    if wanted.is_empty() {
        return Some(Vec::new());
    }
    let rows: Vec<u8> = wanted.iter().flat_map(|shard| code.row(shard)).collect();
    let wanted = Matrix::from_bytes(wanted.len(), k, rows).ok()?;
    Some(wanted.multiply(&inverse).ok()?.as_bytes().to_vec())
}
