//! The memory that a message lands in, and copying to it.

use crate::hold::{Hold, Holds};
use crate::mr::MrTable;
use crate::words;
use std::fmt;
use std::hint::cold_path;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use towpath_verbs::{PdNum, RemoteAddr, Sge};

/// Where a message lands, filled from the front: the entries of a receive one after the other, or
/// the memory that a WRITE names.
pub struct Room<'t> {
    at: NonNull<u8>,
    len: usize,
    is_shared: bool,
    /// What follows.
    rest: slice::Iter<'t, Hold>,
    is_gone: bool,
    /// The room alone reaches the table meanwhile.
    table: &'t mut MrTable,
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} bytes, {} entries behind)", self.len, self.rest.len())
    }
}

impl<'t> Room<'t> {
    /// The memory that a receive names.
    #[must_use]
    #[inline]
    pub fn of_receive(table: &'t mut MrTable, holds: &'t Holds) -> Self {
        Self::new(table, (NonNull::dangling(), 0), holds.iter())
    }

    /// The memory of a peer's WRITE through a queue pair of `pd`, when key, domain, range and
    /// access allow it. A WRITE of no bytes reaches no memory, and its key is not looked at.
    #[must_use]
    pub fn of_write(
        table: &'t mut MrTable,
        pd: PdNum,
        remote: RemoteAddr,
        len: usize,
    ) -> Option<Self> {
        let at = match len {
            0 => NonNull::dangling(),
            _ => table.locate_remote(pd, remote, len, |access| access.remote_write)?,
        };
        Some(Self { is_shared: true, ..Self::new(table, (at, len), [].iter()) })
    }

    fn new(
        table: &'t mut MrTable,
        (at, len): (NonNull<u8>, usize),
        rest: slice::Iter<'t, Hold>,
    ) -> Self {
        Self { at, len, is_shared: false, rest, is_gone: false, table }
    }

    /// Whether memory that bytes were to land in is not registered for that any more. It and all
    /// behind it stays as it was.
    #[must_use]
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Moves on by `bytes`, copying them as far as there is room.
    pub fn write(&mut self, bytes: &[u8]) {
        // SAFETY: a slice of what is not held for writing.
        unsafe { self.fill(NonNull::from(bytes).cast(), bytes.len(), false) }
    }

    /// Moves on by `len` bytes of shared memory, copying them as far as there is room.
    ///
    /// # Safety
    /// There must be so many bytes at `from`.
    #[cold]
    unsafe fn fill_from_shared(&mut self, from: NonNull<u8>, len: usize) {
        // SAFETY: passed on.
        unsafe { self.fill(from, len, true) }
    }

    /// Moves on by `len` bytes, copying them as far as there is room.
    ///
    /// # Safety
    /// There must be so many bytes at `from`, which nobody writes meanwhile but by words of shared
    /// memory, where `is_shared` says that it is some.
    #[inline(always)]
    unsafe fn fill(&mut self, mut from: NonNull<u8>, mut len: usize, is_shared: bool) {
        while len > 0 && (self.len > 0 || self.begin_next()) {
            let part = len.min(self.len);
            // SAFETY: both ranges lie within mappings that their tables keep alive. Shared memory
            // is reached by words. Of what is held for writing no slice exists, and no other table
            // reaches it; this one is borrowed.
            unsafe {
                match is_shared || self.is_shared {
                    false => copy(from, self.at, part),
                    true => copy_words(from, self.at, part),
                }
                self.at = self.at.add(part);
                from = from.add(part);
            }
            (self.len, len) = (self.len - part, len - part);
        }
    }

    /// Goes on to the next entry of a receive; false when there is none.
    #[inline]
    fn begin_next(&mut self) -> bool {
        let Some(hold) = self.rest.find(|hold| hold.byte_len() > 0) else { return false };
        let Some((at, is_shared)) = self.table.writable(&hold.whole()) else {
            cold_path();
            self.is_gone = true;
            self.rest = [].iter();
            return false;
        };
        (self.at, self.len, self.is_shared) = (at, hold.byte_len() as usize, is_shared);
        true
    }
}

impl MrTable {
    /// Copies what a send of a queue pair of `pd` names, entry by entry, as far as there is room.
    /// False at the first entry whose memory the device may not read: its key is not of this
    /// domain, its range leaves what is registered or is more than one buffer, or the buffer is
    /// not lent.
    #[must_use]
    #[inline]
    pub fn copy_to(&self, pd: PdNum, list: &[Sge], room: &mut Room<'_>) -> bool {
        for sge in list {
            // SAFETY: these bytes are registered and held while this copies them; where they are
            // shared memory, `fill_from_shared` reaches them by words.
            let copy = |from, len, is_shared| unsafe {
                match is_shared {
                    true => room.fill_from_shared(from, len),
                    false => room.fill(from, len, false),
                }
            };
            if !self.read_entry(pd, sge, copy) {
                cold_path();
                return false;
            }
        }
        true
    }

    /// Whether [`copy_to`](Self::copy_to) would read all of a list now.
    #[must_use]
    pub fn covers(&self, pd: PdNum, list: &[Sge]) -> bool {
        list.iter().all(|sge| self.read_entry(pd, sge, |_, _, _| ()))
    }

    /// Runs `read` with the start and length of the bytes that an entry names, and whether they are
    /// shared memory; a buffer is held meanwhile. False, without running it, where the device may
    /// not read them. True, without running it, for an entry of no bytes.
    #[inline(always)]
    fn read_entry(
        &self,
        pd: PdNum,
        sge: &Sge,
        mut read: impl FnMut(NonNull<u8>, usize, bool),
    ) -> bool {
        let &Sge { addr, length, lkey } = sge;
        if length == 0 {
            return true;
        }
        let len = length as usize;
        let Some((entry, start)) = self.locate(lkey, addr, len) else { return false };
        if entry.pd != pd {
            return false;
        }
        if entry.is_shared {
            read(start, len, true);
            return true;
        }
        let read = || read(start, len, false);
        entry.slot(addr, length).is_some_and(|(_, slot)| slot.read_by(self.holder().0, read))
    }
}

/// Copies as `ptr::copy`, and headers, of which there are most, without a call.
///
/// # Safety
/// As for `ptr::copy`.
#[inline]
unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    type Line = MaybeUninit<[u8; 64]>;
    // SAFETY: passed on. All of a line is read before any of it is written.
    unsafe {
        match len {
            64 => to.cast::<Line>().write_unaligned(from.cast::<Line>().read_unaligned()),
            _ => to.copy_from(from, len),
        }
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
