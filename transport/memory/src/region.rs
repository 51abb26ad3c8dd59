//! Memory regions: page-aligned anonymous mappings.

use crate::MemoryError;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Regions and pool slots are aligned to this many bytes.
pub const PAGE_BYTES: usize = 4096;

/// From here on huge pages are asked for: one such page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Tells regions apart within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    id: RegionId,
}

// SAFETY: the mapping is plain memory with no thread affinity. Who may touch which bytes is decided
// by `Buf` (exclusive) and by the device contract (lent), as the crate's documentation says.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` by itself gives no access to bytes outside this crate.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are exactly what mmap returned, and nobody holds the mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Mapping {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn addr(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Gives the pages of a range back to the system; they read as zeroes then. The caller alone
    /// reaches those bytes.
    pub(crate) fn discard(&self, offset: usize, len: usize) {
        let start = self.at(offset, len);
        debug_assert!(offset.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES));
        // SAFETY: the range lies within our own mapping, private and anonymous, so that its pages
        // become zero pages; no slice of it exists, since the caller has the only access. A refusal
        // leaves everything as it was.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) };
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

/// A piece of page-aligned, zeroed memory that devices can register. Cheap to clone: clones are
/// the same memory, which lives until the last of them and of its buffers is gone.
#[derive(Clone)]
pub struct Region {
    pub(crate) mapping: Arc<Mapping>,
}

impl Region {
    /// A region of at least `bytes`, rounded up to whole pages (huge ones where the system gives
    /// them and the size is worth it).
    ///
    /// # Errors
    /// [`MemoryError::BadSize`], [`MemoryError::OutOfMemory`].
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
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
        if rounded >= HUGE_PAGE_BYTES {
            // SAFETY: advice on our own mapping; refusal only costs speed.
            unsafe { libc::madvise(base, rounded, libc::MADV_HUGEPAGE) };
        }
        let Some(base) = NonNull::new(base.cast()) else {
            return Err(MemoryError::OutOfMemory { bytes: rounded, errno: 0 });
        };
        let id = RegionId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Ok(Self { mapping: Arc::new(Mapping { base, bytes: rounded, id }) })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.mapping.bytes()
    }

    /// Its virtual address: what peers are told together with the `rkey`.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.mapping.addr()
    }

    /// Tells it apart from other regions.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.mapping.id
    }

    /// Whether this is the only handle, with everything done through earlier ones behind it.
    pub(crate) fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.mapping).is_some()
    }

    /// Whether someone else still holds it: a pool, a buffer, a device.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.mapping) > 1
    }

    /// Makes the region a window that peers may write, read here by copy only. Consumes the only
    /// handle, so that no [`Buf`](crate::Buf) of the same bytes can exist.
    ///
    /// # Errors
    /// The region itself, when it is shared.
    pub fn into_window(mut self) -> Result<Window, Self> {
        if self.is_alone() { Ok(Window { region: self }) } else { Err(self) }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes)", self.byte_len())
    }
}

/// Memory that peers write and read under us by key: every access here is a copy.
#[derive(Debug)]
pub struct Window {
    region: Region,
}

impl Window {
    /// The region, to register it.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Copies `out.len()` bytes from `offset` on. Bytes that a peer is just writing may be a mix
    /// of old and new: infer arrival from completions, never from the bytes.
    ///
    /// # Errors
    /// [`MemoryError::TooLong`] when the range leaves the window.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), MemoryError> {
        let from = self.check(offset, out.len())?;
        // SAFETY: the range lies within the mapping, `out` is ours and elsewhere. Devices of this
        // process write by copying too; a torn mix is documented.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`MemoryError::TooLong`] when the range leaves the window.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result<NonNull<u8>, MemoryError> {
        let capacity = self.region.byte_len();
        match offset.checked_add(len) {
            Some(end) if end <= capacity => Ok(self.region.mapping.at(offset, len)),
            end => Err(MemoryError::TooLong { wanted: end.unwrap_or(usize::MAX), capacity }),
        }
    }
}
