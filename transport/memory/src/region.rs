//! Memory regions: page-aligned memory that this process and its devices have to themselves.

use crate::MemoryError;
use crate::mapping::Mapping;
use crate::shared_memory::SharedMemory;
use crate::slots::Slots;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Regions and pool slots are aligned to this many bytes.
pub const PAGE_BYTES: usize = 4096;

/// Tells regions, and shared memory, apart within a process; what was made later has the greater
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(u64);

impl RegionId {
    pub(crate) fn next() -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self(NEXT_ID.fetch_add(1, Ordering::Relaxed))
    }
}

/// A piece of page-aligned memory that buffers are made of and devices register for their own
/// sends and receives; no peer ever reaches it by key ([`SharedMemory`] is for
/// that). Cheap to clone: clones are the same memory, which lives until the last of them and of its
/// buffers is gone.
#[derive(Clone)]
pub struct Region {
    pub(crate) mapping: Arc<Mapping>,
}

impl Region {
    /// A region of at least `bytes`, all zero, rounded up to whole pages (huge ones where the
    /// system gives them and the size is worth it).
    ///
    /// # Errors
    /// [`MemoryError::BadSize`], [`MemoryError::OutOfMemory`].
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        Ok(Self { mapping: Arc::new(Mapping::new(bytes)?) })
    }

    /// Memory of the caller's own, such as an arena of a C program. `owner` is dropped when nobody
    /// uses the memory any more.
    ///
    /// # Errors
    /// [`MemoryError::Misaligned`] unless start and length are multiples of [`PAGE_BYTES`],
    /// [`MemoryError::BadSize`] for no bytes.
    ///
    /// # Safety
    /// Until `owner` is dropped the bytes stay mapped, initialised, readable and writable, and
    /// nobody reaches them but through the buffers that are made of this region.
    pub unsafe fn from_raw_parts(
        start: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        let mapping = Mapping::of_caller(start, bytes, PAGE_BYTES, owner)?;
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.mapping.bytes()
    }

    /// Its virtual address.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.mapping.addr()
    }

    /// Tells it apart from other regions.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.mapping.id()
    }

    /// From here on the pages stay: [`Buf::give_back_pages`](crate::Buf::give_back_pages) leaves
    /// them alone. For a device that [pins](towpath_verbs::DeviceCaps::pins_memory) memory, before
    /// the region is registered with it.
    pub fn keep_pages(&self) {
        self.mapping.keep_pages();
    }

    /// Cuts it into slots, which have their owners from here on; false when there is another
    /// handle.
    pub(crate) fn carve(&mut self, slot_bytes: usize, count: usize) -> bool {
        let mapping = Arc::get_mut(&mut self.mapping);
        mapping.map(|mapping| mapping.slots = Slots::carved(slot_bytes, count)).is_some()
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

    /// What is below, when this is the only handle.
    pub(crate) fn into_mapping(mut self) -> Result<Arc<Mapping>, Self> {
        if self.is_alone() { Ok(self.mapping) } else { Err(self) }
    }
}

impl towpath_verbs::Memory for Region {
    type Shared = SharedMemory;
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes)", self.byte_len())
    }
}
