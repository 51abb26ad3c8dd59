//! Copying from one registered region to another.

use crate::mr::MrTable;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Registered bytes that may be copied from, and are never seen as a slice: others may write
/// them. Copies are taken from its front.
#[derive(Clone, Copy, Debug)]
pub struct Source<'t> {
    start: NonNull<u8>,
    len: usize,
    /// The table keeps the region alive.
    table: PhantomData<&'t MrTable>,
}

/// Registered bytes that may be copied to; filled from the front.
#[derive(Debug)]
pub struct Target<'t> {
    start: NonNull<u8>,
    len: usize,
    table: PhantomData<&'t MrTable>,
}

impl<'t> Source<'t> {
    /// Of no bytes.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), len: 0, table: PhantomData };

    /// `len` bytes at `start`, within a region that the table holds for `'t`.
    pub(crate) fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, table: PhantomData }
    }

    /// Bytes that are left.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.len
    }
}

impl<'t> Target<'t> {
    /// `len` bytes at `start`, within a region that the table holds for `'t`.
    pub(crate) fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, table: PhantomData }
    }

    /// Of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(NonNull::dangling(), 0)
    }

    /// Room that is left, in bytes.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.len
    }

    /// Moves on both by as many bytes as both have, copying them; returns how many that was.
    #[inline]
    pub fn fill(&mut self, from: &mut Source<'_>) -> usize {
        let len = self.len.min(from.len);
        // SAFETY: both ranges lie within mappings that their tables keep alive, as `MrTable`
        // checked when it made them, and no slice of either exists: the source is lent for
        // sending, the target posted for receiving or open to peers (crate rules 1 to 3).
        // `copy` allows that they overlap.
        unsafe {
            std::ptr::copy(from.start.as_ptr(), self.start.as_ptr(), len);
            self.start = self.start.add(len);
            from.start = from.start.add(len);
        }
        self.len -= len;
        from.len -= len;
        len
    }
}
