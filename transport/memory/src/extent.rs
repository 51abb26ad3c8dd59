//! Copying from one registered region to another.

use crate::mr::MrTable;
use crate::words;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Registered bytes that may be copied from, and are never seen as a slice: others may write
/// them. Copies are taken from its front.
#[derive(Clone, Copy, Debug)]
pub struct Source<'t> {
    start: NonNull<u8>,
    len: usize,
    is_shared: bool,
    /// The table keeps the region alive.
    table: PhantomData<&'t MrTable>,
}

/// Registered bytes that may be copied to; filled from the front.
#[derive(Debug)]
pub struct Target<'t> {
    start: NonNull<u8>,
    len: usize,
    is_shared: bool,
    table: PhantomData<&'t MrTable>,
}

impl<'t> Source<'t> {
    /// Of no bytes.
    pub const EMPTY: Self =
        Self { start: NonNull::dangling(), len: 0, is_shared: false, table: PhantomData };

    /// `len` bytes at `start`, within memory that the table holds for `'t`.
    pub(crate) fn new(start: NonNull<u8>, len: usize, is_shared: bool) -> Self {
        Self { start, len, is_shared, table: PhantomData }
    }

    /// Bytes that are left.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.len
    }
}

impl<'t> Target<'t> {
    /// `len` bytes at `start`, within memory that the table holds for `'t`.
    pub(crate) fn new(start: NonNull<u8>, len: usize, is_shared: bool) -> Self {
        Self { start, len, is_shared, table: PhantomData }
    }

    /// Of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(NonNull::dangling(), 0, false)
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
        // checked when it made them. Shared memory is reached by words. Of a region no slice
        // exists: the source is lent for sending, the target posted for receiving (crate rules 1
        // to 3). `copy` allows that they overlap.
        unsafe {
            match (from.is_shared, self.is_shared) {
                (false, false) => std::ptr::copy(from.start.as_ptr(), self.start.as_ptr(), len),
                _ => copy_words(from.start, self.start, len),
            }
            self.start = self.start.add(len);
            from.start = from.start.add(len);
        }
        self.len -= len;
        from.len -= len;
        len
    }
}

/// Copies where one of the two is shared memory, by way of bytes of our own.
///
/// # Safety
/// As for [`words::load`] and [`words::store`].
#[cold]
unsafe fn copy_words(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    let mut between = [0; 256];
    let mut done = 0;
    while done < len {
        let part = &mut between[..(len - done).min(256)];
        // SAFETY: parts of the two ranges. Bytes of a region are lent, so that nobody else reaches
        // them; those of a page-aligned mapping lie within whole words.
        unsafe {
            words::load(from.add(done), part);
            words::store(to.add(done), part);
        }
        done += part.len();
    }
}
