//! Copying from one registered region to another.

use crate::mr::MrTable;
use crate::slots::Slot;
use crate::words;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Registered bytes that may be copied from, and are never seen as a slice: others may write
/// them. Copies are taken from its front. They are held until it is dropped.
pub struct Source<'t> {
    start: NonNull<u8>,
    len: usize,
    /// Of a region; the table keeps that alive. None in shared memory.
    held: Option<Slot<'t>>,
}

/// Registered bytes that may be copied to; filled from the front.
#[derive(Debug)]
pub struct Target<'t> {
    start: NonNull<u8>,
    len: usize,
    is_shared: bool,
    /// It alone reaches the table meanwhile.
    table: PhantomData<&'t mut MrTable>,
}

impl<'t> Source<'t> {
    /// Of no bytes.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), len: 0, held: None };

    /// `len` bytes at `start`, within memory that the table holds for `'t`. The hold goes over to
    /// it.
    #[inline]
    pub(crate) fn new(start: NonNull<u8>, len: usize, held: Option<Slot<'t>>) -> Self {
        Self { start, len, held }
    }

    /// Bytes that are left.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.len
    }
}

impl Drop for Source<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.held.take() {
            slot.release();
        }
    }
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({} bytes)", self.len)
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
        // checked when it made them. Shared memory is reached by words. Slots of a region are held:
        // of the target's no slice exists, and no other table reaches it, since this one holds it
        // for writing and is borrowed for that; nobody writes the source's. `copy` allows that
        // they overlap. (Bytes of no mapping, of which there are none, may count as shared.)
        unsafe {
            match (from.held.is_none(), self.is_shared) {
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

    /// Moves on by `bytes`, copying them; there must be room.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len, "more than there is room for");
        // SAFETY: as in `fill`; the source is no slice of what is held for writing.
        unsafe {
            match self.is_shared {
                true => words::store(self.start, bytes),
                false => self.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()),
            }
            self.start = self.start.add(bytes.len());
        }
        self.len -= bytes.len();
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
