//! Buffers: exclusively owned pieces of a region, and the pools they come from.

use crate::MemoryError;
use crate::accounts::Accounts;
use crate::free::FreeSlots;
use crate::region::{PAGE_BYTES, Region, RegionId};
use crate::slots::{Lending, Slot};
use crate::wanted::Wanted;
use std::hint::cold_path;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;
use towpath_base::passes::{Pass, note};
use towpath_base::share::may_take;
use towpath_verbs::Sge;

/// A region cut into equal slots. A buffer is a slot, so that it is small and cheap to move.
struct Slab {
    region: Region,
    slot_bytes: usize,
    free: FreeSlots,
    wanted: Wanted,
    /// None where nobody asks for whom a buffer is.
    accounts: Option<Accounts>,
}

impl Slab {
    /// The region itself when there is another handle of it: its bytes may already belong to other
    /// buffers, or to devices.
    fn new(mut region: Region, slot_bytes: usize, accounts: usize) -> Result<Arc<Self>, Region> {
        let count = region.byte_len() / slot_bytes;
        if !region.carve(slot_bytes, count) {
            return Err(region);
        }
        let free = FreeSlots::full(count as u32);
        let accounts = (accounts > 0).then(|| Accounts::new(count, accounts));
        Ok(Arc::new(Self { region, slot_bytes, free, wanted: Wanted::default(), accounts }))
    }

    fn take(self: &Arc<Self>) -> Option<Buf> {
        let slot = self.free.pop()?;
        Some(Buf { slab: Arc::clone(self), slot, len: 0 })
    }
}

/// Equal page-aligned buffers carved from one region. Cheap to clone; taking and returning
/// buffers takes no lock.
#[derive(Clone)]
pub struct Pool {
    slab: Arc<Slab>,
}

impl Pool {
    /// Carves `region` into buffers of `buf_bytes` each, the starts aligned to pages (buffers
    /// below a page: to their size rounded up to a power of two).
    ///
    /// # Panics
    /// When another handle of the region exists: its bytes may already belong to other buffers.
    /// Also when not even one buffer fits, or a buffer would have 4 GiB or more.
    #[must_use]
    pub fn new(region: Region, buf_bytes: usize) -> Self {
        Self::carved(region, buf_bytes, 0)
    }

    fn carved(region: Region, buf_bytes: usize, accounts: usize) -> Self {
        let slot_bytes = slot_bytes(buf_bytes);
        let count = region.byte_len() / slot_bytes;
        assert!(count > 0, "the region holds no buffer of {slot_bytes} bytes");
        assert!(u32::try_from(slot_bytes).is_ok(), "{slot_bytes} bytes are too many for a buffer");
        let slab = Slab::new(region, slot_bytes, accounts);
        Self { slab: slab.expect("the region is not carved or registered elsewhere") }
    }

    /// `count` buffers of `buf_bytes` each, in a region of their own.
    ///
    /// # Errors
    /// [`MemoryError::BadSize`], [`MemoryError::OutOfMemory`].
    pub fn with_count(buf_bytes: usize, count: usize) -> Result<Self, MemoryError> {
        Self::with_accounts(buf_bytes, count, 0)
    }

    /// The same, where each buffer may be [taken for](Self::take_for) one of so many accounts.
    ///
    /// # Errors
    /// As [`with_count`](Self::with_count).
    pub fn with_accounts(
        buf_bytes: usize,
        count: usize,
        accounts: usize,
    ) -> Result<Self, MemoryError> {
        let bytes = slot_bytes(buf_bytes).checked_mul(count);
        let bytes = bytes.ok_or(MemoryError::BadSize { bytes: usize::MAX })?;
        Ok(Self::carved(Region::new(bytes)?, buf_bytes, accounts))
    }

    /// The region, to register it with a device.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.slab.region
    }

    /// An empty buffer, or `None` while all are out.
    #[must_use]
    pub fn take(&self) -> Option<Buf> {
        self.slab.take()
    }

    /// An empty buffer that counts as held by an account until it is back in the pool, whoever has
    /// it by then.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn take_for(&self, account: usize) -> Result<Buf, NotTaken> {
        let (held, free) = (self.held_by(account), self.free());
        if free == 0 {
            return Err(NotTaken::AllOut);
        }
        if !may_take(held, free) {
            return Err(NotTaken::OverShare);
        }
        let buf = self.take().ok_or(NotTaken::AllOut)?;
        if let Some(accounts) = &self.slab.accounts {
            accounts.charge(buf.slot, account);
        }
        Ok(buf)
    }

    /// Buffers that an account holds.
    #[must_use]
    pub fn held_by(&self, account: usize) -> usize {
        self.slab.accounts.as_ref().map_or(0, |accounts| accounts.held(account))
    }

    /// The account that holds most buffers, and how many; none where no account holds any. Takes
    /// time in proportion to the accounts.
    #[must_use]
    pub fn most_held(&self) -> Option<(usize, usize)> {
        self.slab.accounts.as_ref()?.most()
    }

    /// Has `waker` woken once when a buffer comes back. True when one is free already: then take
    /// it, or wait all the same. Wakers that wake the same are kept once.
    pub fn want(&self, waker: &Waker) -> bool {
        self.slab.wanted.add(waker);
        !self.slab.free.is_empty()
    }

    /// Takes back a [`want`](Self::want) that did not come to pass.
    pub fn unwant(&self, waker: &Waker) {
        self.slab.wanted.remove(waker);
    }

    /// Bytes of each buffer.
    #[must_use]
    pub fn buf_bytes(&self) -> usize {
        self.slab.slot_bytes
    }

    /// Buffers that are not out.
    #[must_use]
    pub fn free(&self) -> usize {
        self.slab.free.len()
    }

    /// All buffers, out or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slab.free.count()
    }
}

/// Why an account gets no buffer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// All buffers are out.
    AllOut,
    /// The account holds its share ([`may_take`]): what it holds has to come back first.
    OverShare,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} of {} x {} free)", self.free(), self.count(), self.buf_bytes())
    }
}

/// How far apart buffers of `buf_bytes` start.
fn slot_bytes(buf_bytes: usize) -> usize {
    if buf_bytes < PAGE_BYTES {
        buf_bytes.max(64).next_power_of_two()
    } else {
        buf_bytes.next_multiple_of(PAGE_BYTES)
    }
}

/// A buffer that you own: nobody else, no device either, reaches its bytes. Dropping it returns
/// it to its pool.
pub struct Buf {
    slab: Arc<Slab>,
    slot: u32,
    len: u32,
}

impl Buf {
    /// A whole region as one buffer of full length.
    ///
    /// # Errors
    /// The region itself, when it is shared or of 4 GiB or more.
    pub fn from_region(region: Region) -> Result<Self, Region> {
        let bytes = region.byte_len();
        let Ok(len) = u32::try_from(bytes) else { return Err(region) };
        let mut buf = Slab::new(region, bytes, 0)?.take().expect("a fresh slab has its slot");
        buf.len = len;
        Ok(buf)
    }

    /// Bytes in it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Which region it lies in.
    #[must_use]
    pub fn region_id(&self) -> RegionId {
        self.slab.region.id()
    }

    /// The region it lies in, to register it.
    #[must_use]
    pub fn region(&self) -> Region {
        self.slab.region.clone()
    }

    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slab.slot_bytes
    }

    /// Where in the region it starts.
    fn offset(&self) -> usize {
        self.slot as usize * self.slab.slot_bytes
    }

    /// Its first byte; behind it are `capacity()` bytes, and no more than that is its length.
    #[inline]
    fn start(&self) -> NonNull<u8> {
        debug_assert!(self.offset() + self.capacity() <= self.slab.region.byte_len());
        debug_assert!(self.len() <= self.capacity());
        // SAFETY: a slab has as many slots as its region holds, and hands out those alone.
        unsafe { self.slab.region.mapping.at_unchecked(self.offset()) }
    }

    /// Sets the length; bytes that become visible are whatever they were.
    ///
    /// # Errors
    /// [`MemoryError::TooLong`] beyond the capacity.
    pub fn set_len(&mut self, len: usize) -> Result<(), MemoryError> {
        if len > self.capacity() {
            return Err(MemoryError::TooLong { wanted: len, capacity: self.capacity() });
        }
        // A slot is shorter than 4 GiB.
        self.len = len as u32;
        Ok(())
    }

    /// Gives the whole pages of the buffer back to the system: its bytes are zeroes from here on,
    /// and take memory again, page by page, when they are next written. Its length is zero
    /// afterwards. Not for memory that a device has
    /// [pinned](towpath_verbs::DeviceCaps::pins_memory): that would go on with the old pages. Where
    /// the region [keeps its pages](Region::keep_pages) they stay.
    pub fn give_back_pages(&mut self) {
        self.len = 0;
        let (offset, bytes) = (self.offset(), self.capacity() / PAGE_BYTES * PAGE_BYTES);
        // Slots of a page or more begin at pages.
        if bytes > 0 {
            self.slab.region.mapping.discard(offset, bytes);
        }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`MemoryError::TooLong`], and nothing was appended.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), MemoryError> {
        let start = self.len();
        self.set_len(start + bytes.len())?;
        self[start..].copy_from_slice(bytes);
        note(Pass::Copy, bytes.len());
        Ok(())
    }

    /// Which slot of its region it is.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Who has its bytes.
    #[inline]
    pub(crate) fn state(&self) -> Slot<'_> {
        self.slab.region.mapping.slots.at(self.slot)
    }

    /// For those who lend it only.
    pub(crate) fn sge(&self, lkey: u32, start: usize, len: usize) -> Sge {
        let capacity = self.capacity();
        assert!(start <= capacity && len <= capacity - start, "outside the buffer");
        let addr = self.slab.region.addr() + (self.offset() + start) as u64;
        Sge { addr, length: len as u32, lkey }
    }

    /// Gives the bytes to a device until [`Lent::reclaim`].
    pub fn lend(self) -> Lent {
        let is_lent = self.state().lend(Lending::Many);
        debug_assert!(is_lent, "nobody else has a buffer that somebody owns");
        Lent { buf: Some(self) }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.start();
        // SAFETY: within the mapping, initialised (mmap zeroes), and only this `Buf` reaches these
        // bytes: slots are handed out once, and a device that has a hold on this one only reads.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len()) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.start();
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive: no device has a hold
        // on the slot, since who lends or freezes a buffer hands out no `&mut` before it is taken
        // back.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len()) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if !self.state().take_back() {
            cold_path();
            // A device reads it still: the slot stays taken, and the mapping stays.
            std::mem::forget(Arc::clone(&self.slab));
            return;
        }
        if let Some(accounts) = &self.slab.accounts {
            accounts.settle(self.slot);
        }
        self.slab.free.push(self.slot);
        self.slab.wanted.tell();
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} of {} bytes)", self.len, self.capacity())
    }
}

/// A buffer that a device may be using, in any number of work requests: its bytes are out of reach
/// until it is reclaimed. Dropping a `Lent` leaks its slot rather than hand memory in use to
/// someone else.
#[derive(Debug)]
#[must_use = "dropping a lent buffer leaks it: reclaim it after its completion"]
pub struct Lent {
    buf: Option<Buf>,
}

impl Lent {
    /// The scatter / gather entry for `len` bytes from `start` on, under the key that the device
    /// gave for the buffer's region. A receive may name bytes beyond the buffer's length.
    ///
    /// # Panics
    /// When the range leaves the buffer.
    #[must_use]
    pub fn sge(&self, lkey: u32, start: usize, len: usize) -> Sge {
        self.buf().sge(lkey, start, len)
    }

    /// Which region it lies in.
    #[must_use]
    pub fn region_id(&self) -> RegionId {
        self.buf().region_id()
    }

    /// Bytes in the buffer.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.buf().len()
    }

    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buf().capacity()
    }

    /// Takes the buffer back, when every work request that names it is done.
    ///
    /// # Errors
    /// The lent buffer, while a device holds it.
    pub fn reclaim(mut self) -> Result<Buf, Self> {
        if !self.buf().state().take_back() {
            return Err(self);
        }
        Ok(self.buf.take().expect("a lent buffer holds its buffer until it is reclaimed"))
    }

    fn buf(&self) -> &Buf {
        self.buf.as_ref().expect("a lent buffer holds its buffer until it is reclaimed")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The slot stays taken, and the mapping must outlive the device's use of it.
        std::mem::forget(self.buf.take());
    }
}
