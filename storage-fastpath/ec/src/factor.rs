//! One coefficient, for a repair that goes from server to server.

use crate::buffers::BufferError;
use crate::linear::Linear;
use alloc::vec;

/// Multiplies bytes by a coefficient of a [`crate::Decoder`] or a [`crate::Code`].
///
/// ```
/// use towpath_ec::{Code, Decoder, Factor, Shape, ShardSet};
///
/// let code = Code::new(Shape::new(2, 1)?);
/// let (lost, kept, mut parity) = (*b"lost", *b"kept", [0; 4]);
/// code.encode(&[&lost, &kept], &mut [&mut parity])?;
/// let decoder = Decoder::new(&code, ShardSet::from_iter([1, 2]), ShardSet::from_iter([0]))?;
///
/// let mut passed_on = [0; 4];
/// for (shard, bytes) in [(1, kept), (2, parity)] {
///     Factor::new(decoder.coefficient(0, shard)).add_to(&bytes, &mut passed_on)?;
/// }
/// assert_eq!(passed_on, lost);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Factor {
    linear: Linear,
}

impl Factor {
    /// Prepares a coefficient, once for all ranges that it multiplies.
    #[must_use]
    pub fn new(coefficient: u8) -> Self {
        Self { linear: Linear::new(rusty_erasure::best_kernels(), (1, 1), vec![coefficient]) }
    }

    /// Which one it is.
    #[must_use]
    pub fn coefficient(&self) -> u8 {
        self.linear.coefficients().first().copied().unwrap_or(0)
    }

    /// `product` becomes the bytes times the coefficient.
    ///
    /// # Errors
    /// [`BufferError`] if they differ in length.
    pub fn multiply(&self, bytes: &[u8], product: &mut [u8]) -> Result<(), BufferError> {
        self.linear.apply_part(0, bytes, &mut [product])
    }

    /// The bytes times the coefficient are added to `sum`.
    ///
    /// # Errors
    /// [`BufferError`] if they differ in length.
    pub fn add_to(&self, bytes: &[u8], sum: &mut [u8]) -> Result<(), BufferError> {
        self.linear.add_part(0, bytes, &mut [sum])
    }
}
