//! Memory that peers may reach.

use crate::MemoryError;
use crate::mapping::Mapping;
use crate::region::{Region, RegionId};
use crate::words::{self, WORD_BYTES};
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Memory that peers may read and change while this host looks at it. No slice of it exists: its
/// bytes are reached by copies and by atomic words alone. Cheap to clone: clones are the same
/// memory, which lives until the last of them is gone and no device has it registered.
///
/// A copy takes each aligned word of eight bytes at once. A range that somebody is just writing may
/// be a mix of old words and new ones: infer from completions that it has arrived, or from a word
/// that is written last.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use towpath_memory::SharedMemory;
/// let memory = SharedMemory::new(4096)?;
/// memory.write(100, b"hello")?;
/// memory.word(0)?.fetch_add(5, Ordering::SeqCst);
/// let mut bytes = [0; 5];
/// memory.read(100, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), towpath_memory::MemoryError>(())
/// ```
///
/// It has no bytes to borrow:
/// ```compile_fail
/// let memory = towpath_memory::SharedMemory::new(4096).unwrap();
/// let bytes: &[u8] = &memory[..];
/// ```
/// nor can buffers be made of it:
/// ```compile_fail
/// let memory = towpath_memory::SharedMemory::new(4096).unwrap();
/// let pool = towpath_memory::Pool::new(memory, 4096);
/// ```
#[derive(Clone)]
pub struct SharedMemory {
    mapping: Arc<Mapping>,
}

impl SharedMemory {
    /// At least `bytes`, all zero, rounded up to whole pages.
    ///
    /// # Errors
    /// [`MemoryError::BadSize`], [`MemoryError::OutOfMemory`].
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        Ok(Self { mapping: Arc::new(Mapping::new(bytes)?) })
    }

    /// A region with what is in it. It takes the only handle, so that no [`Buf`](crate::Buf) of the
    /// same bytes can exist.
    ///
    /// # Errors
    /// The region itself, while a pool, a buffer or a device holds it too.
    pub fn from_region(region: Region) -> Result<Self, Region> {
        region.into_mapping().map(|mapping| Self { mapping })
    }

    /// Memory of the caller's own: a mapped file, an arena of a C program. `owner` is dropped when
    /// nobody uses the memory any more.
    ///
    /// # Errors
    /// [`MemoryError::Misaligned`] unless start and length are multiples of eight,
    /// [`MemoryError::BadSize`] for no bytes.
    ///
    /// # Safety
    /// Until `owner` is dropped the bytes stay mapped, readable and writable, and whoever else
    /// reaches them in this process does so by atomic words of eight bytes.
    pub unsafe fn from_raw_parts(
        start: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        let mapping = Mapping::of_caller(start, bytes, WORD_BYTES, owner)?;
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.mapping.bytes()
    }

    /// All of it, to register it.
    #[must_use]
    pub fn whole(&self) -> Range<usize> {
        0..self.byte_len()
    }

    /// Its virtual address: what peers are told together with the `rkey`.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.mapping.addr()
    }

    /// Tells it apart from other memory.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.mapping.id()
    }

    /// Copies `out.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::TooLong`] when the range leaves the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), MemoryError> {
        let from = self.check(offset, out.len())?;
        // SAFETY: within the mapping, which begins and ends with a word; it is shared memory, which
        // all reach by words.
        unsafe { words::load(from, out) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`MemoryError::TooLong`] when the range leaves the memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { words::store(to, bytes) };
        Ok(())
    }

    /// The word of eight bytes at `offset`, in the byte order of this host. Atomics of peers
    /// through a device of this process are atomic towards it; those of a NIC need not be.
    ///
    /// # Errors
    /// [`MemoryError::Misaligned`] unless `offset` is a multiple of eight,
    /// [`MemoryError::TooLong`] when the word leaves the memory.
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, MemoryError> {
        let at = self.check(offset, WORD_BYTES)?.cast::<u64>();
        if !at.is_aligned() {
            return Err(MemoryError::Misaligned { align: WORD_BYTES });
        }
        // SAFETY: aligned and within the mapping, which lives as long as `self`.
        Ok(unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    fn check(&self, offset: usize, len: usize) -> Result<NonNull<u8>, MemoryError> {
        self.mapping.try_at(offset, len).ok_or_else(|| MemoryError::TooLong {
            wanted: offset.saturating_add(len),
            capacity: self.byte_len(),
        })
    }
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.byte_len())
    }
}
