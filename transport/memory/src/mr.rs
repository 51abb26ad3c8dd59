//! The table of registered regions that a software device looks keys up in.

use crate::extent::{Source, Target};
use crate::region::Region;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use towpath_verbs::{Access, MrKeys, RemoteAddr, Sge, Verb, VerbError};

/// The most registered regions of a device: far above what pools need, and the index fits a key.
const REGIONS_MAX: usize = 1 << 16;

/// What an atomic reads and writes: the only size that verbs know.
const ATOMIC_BYTES: usize = 8;

struct Entry {
    region: Region,
    access: Access,
    key: u32,
}

/// Registered regions by key. A key is an index and a tag that changes with each registration,
/// so a key that outlived its region does not reach the next one.
#[derive(Default)]
pub struct MrTable {
    entries: Vec<Option<Entry>>,
    tag: u8,
}

impl MrTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a region; it lives at least until [`deregister`](Self::deregister).
    ///
    /// # Errors
    /// [`VerbError::OutOfResources`] when the table is full.
    pub fn register(&mut self, region: &Region, access: Access) -> Result<MrKeys, VerbError> {
        let index = match self.entries.iter().position(Option::is_none) {
            Some(index) => index,
            None if self.entries.len() < REGIONS_MAX => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return Err(VerbError::OutOfResources(Verb::RegMr)),
        };
        self.tag = self.tag.wrapping_add(1);
        let key = (index as u32) << 8 | u32::from(self.tag);
        self.entries[index] = Some(Entry { region: region.clone(), access, key });
        Ok(MrKeys { lkey: key, rkey: key })
    }

    /// Takes a registration back.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`] for an unknown key.
    pub fn deregister(&mut self, key: u32) -> Result<(), VerbError> {
        self.entry(key).ok_or(VerbError::NoSuchObject(Verb::DeregMr))?;
        self.entries[(key >> 8) as usize] = None;
        Ok(())
    }

    fn entry(&self, key: u32) -> Option<&Entry> {
        self.entries.get((key >> 8) as usize)?.as_ref().filter(|entry| entry.key == key)
    }

    /// The entry and the start of `len` bytes at `addr`, when they lie within the region.
    #[inline]
    fn locate(&self, key: u32, addr: u64, len: usize) -> Option<(&Entry, NonNull<u8>)> {
        let entry = self.entry(key)?;
        let offset = usize::try_from(addr.checked_sub(entry.region.addr())?).ok()?;
        Some((entry, entry.region.mapping.try_at(offset, len)?))
    }

    /// Whether work requests may name `sge`: in bounds, and writable when `write` is wanted.
    #[must_use]
    pub fn allows(&self, sge: &Sge, write: bool) -> bool {
        self.locate(sge.lkey, sge.addr, sge.length as usize)
            .is_some_and(|(entry, _)| !write || entry.access.local_write)
    }

    /// The bytes of a gather entry of a posted send.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone or the range leaves the region.
    pub fn gather(&self, sge: &Sge) -> Result<&[u8], VerbError> {
        let len = sge.length as usize;
        let (_, start) =
            self.locate(sge.lkey, sge.addr, len).ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: in bounds and alive while the table holds the region. The range belongs to a
        // posted send, so it is lent: nobody writes it until the completion (crate rules 1 to 3).
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// Copies `bytes` into a scatter entry of a posted receive, `skip` bytes from its start.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, the range leaves the entry, or the region
    /// is not writable.
    pub fn scatter(&self, sge: &Sge, skip: usize, bytes: &[u8]) -> Result<(), VerbError> {
        let fits = skip.checked_add(bytes.len()).is_some_and(|end| end <= sge.length as usize);
        let found = self.locate(sge.lkey, sge.addr, sge.length as usize);
        let (_, start) = found
            .filter(|(entry, _)| fits && entry.access.local_write)
            .ok_or(VerbError::BadMemory(Verb::PostRecv))?;
        // SAFETY: `skip` and the bytes behind it lie within the entry.
        copy_into(unsafe { start.add(skip) }, bytes);
        Ok(())
    }

    /// The bytes of a gather entry of a posted send, to be copied within this process.
    #[must_use]
    #[inline]
    pub fn source(&self, sge: &Sge) -> Option<Source<'_>> {
        let len = sge.length as usize;
        let (_, start) = self.locate(sge.lkey, sge.addr, len)?;
        Some(Source::new(start, len))
    }

    /// The room of a scatter entry of a posted receive, when its region is writable.
    #[must_use]
    #[inline]
    pub fn target(&self, sge: &Sge) -> Option<Target<'_>> {
        let len = sge.length as usize;
        let (entry, start) = self.locate(sge.lkey, sge.addr, len)?;
        entry.access.local_write.then(|| Target::new(start, len))
    }

    /// The room of a peer's WRITE, when the key, the range and the region's access allow it.
    #[must_use]
    pub fn remote_target(&self, remote: RemoteAddr, len: usize) -> Option<Target<'_>> {
        let (entry, start) = self.locate(remote.rkey, remote.addr, len)?;
        entry.access.remote_write.then(|| Target::new(start, len))
    }

    /// Whether a peer may WRITE `len` bytes there.
    #[must_use]
    pub fn allows_remote_write(&self, remote: RemoteAddr, len: usize) -> bool {
        self.locate(remote.rkey, remote.addr, len)
            .is_some_and(|(entry, _)| entry.access.remote_write)
    }

    /// Copies a peer's WRITE to its place.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key, the range or the region's access forbids it.
    pub fn remote_write(&self, remote: RemoteAddr, bytes: &[u8]) -> Result<(), VerbError> {
        let found = self.locate(remote.rkey, remote.addr, bytes.len());
        let (_, start) = found
            .filter(|(entry, _)| entry.access.remote_write)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        copy_into(start, bytes);
        Ok(())
    }

    /// Whether a peer may READ `len` bytes there.
    #[must_use]
    pub fn allows_remote_read(&self, remote: RemoteAddr, len: usize) -> bool {
        self.locate(remote.rkey, remote.addr, len)
            .is_some_and(|(entry, _)| entry.access.remote_read)
    }

    /// Copies what a peer READs to `out`. Bytes that somebody is just writing may be a mix of old
    /// and new.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key, the range or the region's access forbids it.
    pub fn remote_read(&self, remote: RemoteAddr, out: &mut [u8]) -> Result<(), VerbError> {
        let found = self.locate(remote.rkey, remote.addr, out.len());
        let (_, from) = found
            .filter(|(entry, _)| entry.access.remote_read)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: in bounds and alive while the table holds the region; `out` is a slice of the
        // device, elsewhere. The region is open to peers, so it is accessed by copies alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Whether a peer may do an atomic on the eight bytes there, aligned or not.
    #[must_use]
    pub fn allows_remote_atomic(&self, remote: RemoteAddr) -> bool {
        self.locate(remote.rkey, remote.addr, ATOMIC_BYTES)
            .is_some_and(|(entry, _)| entry.access.remote_atomic)
    }

    /// Changes the eight bytes there to what `change` makes of them, as one atomic step towards
    /// every thread and device of this process; returns what they were. Both are numbers in the
    /// byte order of this host.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key, the range or the region's access forbids it,
    /// [`VerbError::BadArgument`] when the address is no multiple of eight.
    pub fn remote_atomic(
        &self,
        remote: RemoteAddr,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, VerbError> {
        let found = self.locate(remote.rkey, remote.addr, ATOMIC_BYTES);
        let (_, at) = found
            .filter(|(entry, _)| entry.access.remote_atomic)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        let at = at.cast::<u64>();
        if !at.is_aligned() {
            return Err(VerbError::BadArgument(Verb::PostSend));
        }
        // SAFETY: in bounds, alive while the table holds the region, and aligned. Others reach
        // these bytes by copies alone, as with a NIC across the bus.
        let word = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        let (mut was, order) = (word.load(Ordering::SeqCst), Ordering::SeqCst);
        while let Err(now) = word.compare_exchange_weak(was, change(was), order, order) {
            was = now;
        }
        Ok(was)
    }
}

/// Copies to where [`MrTable::locate`] found room for as many bytes.
fn copy_into(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: in bounds; the source is a received packet, never inside a registered region's posted
    // receive; the target is lent to the device or open to peers, so no slice of it exists.
    unsafe { std::ptr::copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
}
