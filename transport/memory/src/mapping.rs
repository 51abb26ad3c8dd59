//! Bytes of memory that stay where they are: mapped here, or lent by the caller.

use crate::MemoryError;
use crate::region::{PAGE_BYTES, RegionId};
use crate::slots::Slots;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// From here on huge pages are asked for: one such page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Whose bytes they are.
enum Owner {
    /// Ours, an anonymous mapping.
    Us,
    /// The caller's: dropped when the bytes are not needed any more.
    Caller(#[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>),
}

pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    id: RegionId,
    owner: Owner,
    /// Who has which bytes, where buffers are made of it.
    pub(crate) slots: Slots,
    /// A device has pinned the pages, so that they must stay.
    keeps_pages: Mutex<bool>,
}

// SAFETY: the mapping is plain memory with no thread affinity. Who may touch which bytes is decided
// by `Buf` (exclusive), `SharedMemory` (by atomics) and by the device contract (lent), as the
// crate's documentation says.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` by itself gives no access to bytes outside this crate.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Us) {
            // SAFETY: `base` and `bytes` are exactly what mmap returned, and nobody holds them.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

impl Mapping {
    /// At least `bytes`, all zero, rounded up to whole pages (huge ones where the system gives them
    /// and the size is worth it).
    pub(crate) fn new(bytes: usize) -> Result<Self, MemoryError> {
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES);
        let Some(rounded) = rounded.filter(|&r| r > 0 && r <= isize::MAX as usize) else {
            return Err(MemoryError::BadSize { bytes });
        };
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                rounded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(MemoryError::OutOfMemory { bytes: rounded, errno });
        }
        // Miri knows no advice.
        if rounded >= HUGE_PAGE_BYTES && !cfg!(miri) {
            // SAFETY: advice on our own mapping; refusal only costs speed.
            unsafe { libc::madvise(base, rounded, libc::MADV_HUGEPAGE) };
        }
        let Some(base) = NonNull::new(base.cast()) else {
            return Err(MemoryError::OutOfMemory { bytes: rounded, errno: 0 });
        };
        let (bytes, id, slots) = (rounded, RegionId::next(), Slots::whole(rounded));
        Ok(Self { base, bytes, id, owner: Owner::Us, slots, keeps_pages: Mutex::default() })
    }

    /// Bytes of the caller's, of which start and length must be multiples of `align`.
    pub(crate) fn of_caller(
        base: NonNull<u8>,
        bytes: usize,
        align: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        if bytes == 0 || bytes > isize::MAX as usize {
            return Err(MemoryError::BadSize { bytes });
        }
        if !base.addr().get().is_multiple_of(align) || !bytes.is_multiple_of(align) {
            return Err(MemoryError::Misaligned { align });
        }
        let (id, owner, slots) = (RegionId::next(), Owner::Caller(owner), Slots::whole(bytes));
        Ok(Self { base, bytes, id, owner, slots, keeps_pages: Mutex::default() })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn addr(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(crate) fn id(&self) -> RegionId {
        self.id
    }

    /// The pages stay from here on; one that is being given back is back when this returns.
    pub(crate) fn keep_pages(&self) {
        *self.keeps_pages.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Gives the pages of a range back to the system; they read as zeroes then. The caller alone
    /// reaches those bytes. Memory of somebody else's, and memory whose pages are
    /// [kept](Self::keep_pages), stays as it is; then false.
    pub(crate) fn discard(&self, offset: usize, len: usize) -> bool {
        let keeps_pages = self.keeps_pages.lock().unwrap_or_else(PoisonError::into_inner);
        if *keeps_pages || !matches!(self.owner, Owner::Us) {
            return false;
        }
        let start = self.at(offset, len);
        debug_assert!(offset.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES));
        if cfg!(miri) {
            // SAFETY: as below; it comes to the same.
            unsafe { start.write_bytes(0, len) };
            return true;
        }
        // SAFETY: the range lies within our own mapping, private and anonymous, so that its pages
        // become zero pages; no slice of it exists, since the caller has the only access. A refusal
        // leaves everything as it was.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) == 0 }
    }

    /// The pointer to `offset`, when `len` bytes are there.
    #[inline]
    pub(crate) fn try_at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.bytes {
            return None;
        }
        // SAFETY: just checked to lie within the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    /// The pointer to `offset`, checked for `len` bytes.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.try_at(offset, len).expect("within the region")
    }

    /// The pointer to `offset`, where bytes are that nobody need ask for.
    ///
    /// # Safety
    /// `offset` lies within the mapping.
    #[inline]
    pub(crate) unsafe fn at_unchecked(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.bytes, "beyond the region");
        // SAFETY: as the caller promises.
        unsafe { self.base.add(offset) }
    }
}
