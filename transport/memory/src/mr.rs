//! The table of registered memory that a software device looks keys up in.

use crate::extent::{Source, Target};
use crate::mapping::Mapping;
use crate::region::Region;
use crate::shared_memory::SharedMemory;
use crate::words::{self, WORD_BYTES};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use towpath_base::Prng;
use towpath_verbs::{Access, MrKeys, PdNum, RemoteAddr, Sge, Verb, VerbError};

/// The most registrations of a device: far above what pools need, and the index fits a key.
const REGISTRATIONS_MAX: usize = 1 << 16;

/// The most protection domains of a device: one for each of as many links as an endpoint has.
const DOMAINS_MAX: usize = 1 << 15;

/// Bits of a key that are an index; the others are random.
const INDEX_BITS: u32 = 16;

struct Entry {
    /// Where the registered range begins.
    start: NonNull<u8>,
    bytes: usize,
    /// Peers may change it at any time: it is reached by words.
    is_shared: bool,
    access: Access,
    pd: PdNum,
    key: u32,
    /// Keeps the range alive.
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointer leads into the mapping, which may be used from any thread; what the table
// does there is the same from each.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// Registered memory by key. Half of a key is random, so that a key that outlived its memory does
/// not reach what comes after it, and nobody can name memory that he was not told of. What a key
/// reaches belongs to a protection domain: a queue pair of another domain does not reach it.
pub struct MrTable {
    entries: Vec<Option<Entry>>,
    domains: Vec<bool>,
    prng: Prng,
    has_shared: bool,
}

impl Default for MrTable {
    fn default() -> Self {
        Self::new(0)
    }
}

impl MrTable {
    /// An empty table, whose keys come from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let prng = Prng::new(seed);
        Self { entries: Vec::new(), domains: vec![true], prng, has_shared: false }
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`VerbError::OutOfResources`] when there are too many.
    pub fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        let index = match self.domains.iter().position(|taken| !taken) {
            Some(index) => index,
            None if self.domains.len() < DOMAINS_MAX => {
                self.domains.push(false);
                self.domains.len() - 1
            }
            None => return Err(VerbError::OutOfResources(Verb::AllocPd)),
        };
        self.domains[index] = true;
        Ok(PdNum(index as u32))
    }

    /// Gives a protection domain up.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`] for one that is not there, or the one that every device has;
    /// [`VerbError::BadArgument`] while memory is registered in it.
    pub fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        if pd == PdNum::DEFAULT || !self.has_pd(pd) {
            return Err(VerbError::NoSuchObject(Verb::DeallocPd));
        }
        if self.entries.iter().flatten().any(|entry| entry.pd == pd) {
            return Err(VerbError::BadArgument(Verb::DeallocPd));
        }
        self.domains[pd.0 as usize] = false;
        Ok(())
    }

    /// Whether this domain is there.
    #[must_use]
    pub fn has_pd(&self, pd: PdNum) -> bool {
        self.domains.get(pd.0 as usize).is_some_and(|taken| *taken)
    }

    /// Registers a region for this device's own sends and receives; it lives at least until
    /// [`deregister`](Self::deregister).
    ///
    /// # Errors
    /// [`VerbError::BadArgument`] when peers are to reach it, who would change bytes that this host
    /// sees as a slice; [`VerbError::NoSuchObject`] without that domain;
    /// [`VerbError::OutOfResources`] when the table is full.
    pub fn register(
        &mut self,
        pd: PdNum,
        region: &Region,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        if access.is_remote() {
            return Err(VerbError::BadArgument(Verb::RegMr));
        }
        self.add(pd, &region.mapping, 0..region.byte_len(), access, false)
    }

    /// Registers a range of shared memory; it lives at least until
    /// [`deregister`](Self::deregister).
    ///
    /// # Errors
    /// [`VerbError::BadArgument`] when the range leaves the memory or is empty;
    /// [`VerbError::NoSuchObject`] without that domain; [`VerbError::OutOfResources`] when the
    /// table is full.
    pub fn register_shared(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        let keys = self.add(pd, memory.mapping(), range, access, true)?;
        self.has_shared = true;
        Ok(keys)
    }

    fn add(
        &mut self,
        pd: PdNum,
        mapping: &Arc<Mapping>,
        range: Range<usize>,
        access: Access,
        is_shared: bool,
    ) -> Result<MrKeys, VerbError> {
        let verb = Verb::RegMr;
        if !self.has_pd(pd) {
            return Err(VerbError::NoSuchObject(verb));
        }
        let bytes = range.len();
        let start = mapping.try_at(range.start, bytes).filter(|_| bytes > 0);
        let start = start.ok_or(VerbError::BadArgument(verb))?;
        let index = match self.entries.iter().position(Option::is_none) {
            Some(index) => index,
            None if self.entries.len() < REGISTRATIONS_MAX => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return Err(VerbError::OutOfResources(verb)),
        };
        // Never zero, which is what an unset key is.
        let random = self.prng.between(1, (1 << (u32::BITS - INDEX_BITS)) - 1) as u32;
        let key = random << INDEX_BITS | index as u32;
        self.entries[index] =
            Some(Entry { start, bytes, is_shared, access, pd, key, _mapping: Arc::clone(mapping) });
        Ok(MrKeys { lkey: key, rkey: key })
    }

    /// Takes a registration back.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`] for an unknown key.
    pub fn deregister(&mut self, key: u32) -> Result<(), VerbError> {
        self.entry(key).ok_or(VerbError::NoSuchObject(Verb::DeregMr))?;
        self.entries[index_of(key)] = None;
        Ok(())
    }

    fn entry(&self, key: u32) -> Option<&Entry> {
        self.entries.get(index_of(key))?.as_ref().filter(|entry| entry.key == key)
    }

    /// The entry and the start of `len` bytes at `addr`, when they lie within the registered range.
    #[inline]
    fn locate(&self, key: u32, addr: u64, len: usize) -> Option<(&Entry, NonNull<u8>)> {
        let entry = self.entry(key)?;
        let offset = usize::try_from(addr.checked_sub(entry.start.as_ptr() as u64)?).ok()?;
        if offset.checked_add(len)? > entry.bytes {
            return None;
        }
        // SAFETY: just checked to lie within the range.
        Some((entry, unsafe { entry.start.add(offset) }))
    }

    #[inline]
    fn locate_sge(&self, sge: &Sge) -> Option<(&Entry, NonNull<u8>)> {
        self.locate(sge.lkey, sge.addr, sge.length as usize)
    }

    /// What a peer reaches through a queue pair of `pd`, if `may` says that it may.
    fn locate_remote(
        &self,
        pd: PdNum,
        remote: RemoteAddr,
        len: usize,
        may: impl Fn(&Access) -> bool,
    ) -> Option<NonNull<u8>> {
        let (entry, start) = self.locate(remote.rkey, remote.addr, len)?;
        // Peers reach shared memory alone: nothing else is registered for them.
        (entry.is_shared && entry.pd == pd && may(&entry.access)).then_some(start)
    }

    /// Whether work requests of a queue pair of `pd` may name `sge`: in bounds, and writable when
    /// `write` is wanted.
    #[must_use]
    pub fn allows(&self, pd: PdNum, sge: &Sge, write: bool) -> bool {
        self.locate_sge(sge)
            .is_some_and(|(entry, _)| entry.pd == pd && (!write || entry.access.local_write))
    }

    /// Whether `sge` is in shared memory, whose bytes have to be copied out: see
    /// [`gather`](Self::gather).
    #[must_use]
    #[inline]
    pub fn is_shared(&self, sge: &Sge) -> bool {
        self.has_shared && self.entry(sge.lkey).is_some_and(|entry| entry.is_shared)
    }

    /// The bytes of a gather entry of a posted send.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, the range leaves what is registered, or is in
    /// shared memory.
    pub fn gather(&self, sge: &Sge) -> Result<&[u8], VerbError> {
        let (_, start) = self
            .locate_sge(sge)
            .filter(|(entry, _)| !entry.is_shared)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: in bounds and alive while the table holds the region. The range belongs to a
        // posted send, so it is lent: nobody writes it until the completion (crate rules 1 to 3).
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), sge.length as usize) })
    }

    /// Copies the bytes of a gather entry of a posted send to `out`, which is as long.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, the range leaves what is registered, or `out`
    /// has another length.
    pub fn gather_into(&self, sge: &Sge, out: &mut [u8]) -> Result<(), VerbError> {
        let (entry, start) = self
            .locate_sge(sge)
            .filter(|_| out.len() == sge.length as usize)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: in bounds and alive while the table holds the memory. Shared memory is reached by
        // words; a region's bytes are lent (crate rules 1 to 3), and `out` is elsewhere.
        unsafe {
            match entry.is_shared {
                true => words::load(start, out),
                false => out.as_mut_ptr().copy_from_nonoverlapping(start.as_ptr(), out.len()),
            }
        }
        Ok(())
    }

    /// Copies `bytes` into a scatter entry of a posted receive, `skip` bytes from its start.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, the range leaves the entry, or the memory is
    /// not writable.
    pub fn scatter(&self, sge: &Sge, skip: usize, bytes: &[u8]) -> Result<(), VerbError> {
        let fits = skip.checked_add(bytes.len()).is_some_and(|end| end <= sge.length as usize);
        let found = self.locate_sge(sge);
        let (entry, start) = found
            .filter(|(entry, _)| fits && entry.access.local_write)
            .ok_or(VerbError::BadMemory(Verb::PostRecv))?;
        // SAFETY: `skip` and the bytes behind it lie within the entry. Shared memory is reached by
        // words. A region's bytes are lent, so no slice of them exists; the source is a received
        // packet, or a slice of the device.
        unsafe {
            let to = start.add(skip);
            match entry.is_shared {
                true => words::store(to, bytes),
                false => std::ptr::copy(bytes.as_ptr(), to.as_ptr(), bytes.len()),
            }
        }
        Ok(())
    }

    /// The bytes of a gather entry of a send of a queue pair of `pd`, to be copied within this
    /// process.
    #[must_use]
    #[inline]
    pub fn source(&self, pd: PdNum, sge: &Sge) -> Option<Source<'_>> {
        let (entry, start) = self.locate_sge(sge).filter(|(entry, _)| entry.pd == pd)?;
        Some(Source::new(start, sge.length as usize, entry.is_shared))
    }

    /// The room of a scatter entry of a posted receive, when its memory is writable.
    #[must_use]
    #[inline]
    pub fn target(&self, sge: &Sge) -> Option<Target<'_>> {
        let (entry, start) = self.locate_sge(sge)?;
        let target = || Target::new(start, sge.length as usize, entry.is_shared);
        entry.access.local_write.then(target)
    }

    /// The room of a peer's WRITE through a queue pair of `pd`, when key, domain, range and access
    /// allow it.
    #[must_use]
    pub fn remote_target(&self, pd: PdNum, remote: RemoteAddr, len: usize) -> Option<Target<'_>> {
        let start = self.locate_remote(pd, remote, len, |access| access.remote_write)?;
        Some(Target::new(start, len, true))
    }

    /// Whether a peer may WRITE `len` bytes there.
    #[must_use]
    pub fn allows_remote_write(&self, pd: PdNum, remote: RemoteAddr, len: usize) -> bool {
        self.locate_remote(pd, remote, len, |access| access.remote_write).is_some()
    }

    /// Copies a peer's WRITE to its place.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when key, domain, range or access forbid it.
    pub fn remote_write(
        &self,
        pd: PdNum,
        remote: RemoteAddr,
        bytes: &[u8],
    ) -> Result<(), VerbError> {
        let to = self
            .locate_remote(pd, remote, bytes.len(), |access| access.remote_write)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: in bounds, alive while the table holds the memory, and shared: reached by words.
        unsafe { words::store(to, bytes) };
        Ok(())
    }

    /// Whether a peer may READ `len` bytes there.
    #[must_use]
    pub fn allows_remote_read(&self, pd: PdNum, remote: RemoteAddr, len: usize) -> bool {
        self.locate_remote(pd, remote, len, |access| access.remote_read).is_some()
    }

    /// Copies what a peer READs to `out`. Bytes that somebody is just writing may be a mix of old
    /// words and new ones.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when key, domain, range or access forbid it.
    pub fn remote_read(
        &self,
        pd: PdNum,
        remote: RemoteAddr,
        out: &mut [u8],
    ) -> Result<(), VerbError> {
        let from = self
            .locate_remote(pd, remote, out.len(), |access| access.remote_read)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: as in `remote_write`.
        unsafe { words::load(from, out) };
        Ok(())
    }

    /// Whether a peer may do an atomic on the eight bytes there, aligned or not.
    #[must_use]
    pub fn allows_remote_atomic(&self, pd: PdNum, remote: RemoteAddr) -> bool {
        self.locate_remote(pd, remote, WORD_BYTES, |access| access.remote_atomic).is_some()
    }

    /// Changes the eight bytes there to what `change` makes of them, as one atomic step towards
    /// every thread and device of this process; returns what they were. Both are numbers in the
    /// byte order of this host.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when key, domain, range or access forbid it,
    /// [`VerbError::BadArgument`] when the address is no multiple of eight.
    pub fn remote_atomic(
        &self,
        pd: PdNum,
        remote: RemoteAddr,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, VerbError> {
        let at = self
            .locate_remote(pd, remote, WORD_BYTES, |access| access.remote_atomic)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        let at = at.cast::<u64>();
        if !at.is_aligned() {
            return Err(VerbError::BadArgument(Verb::PostSend));
        }
        // SAFETY: in bounds, alive while the table holds the memory, aligned, and shared memory,
        // which all reach by atomic words.
        let word = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        let (mut was, order) = (word.load(Ordering::SeqCst), Ordering::SeqCst);
        while let Err(now) = word.compare_exchange_weak(was, change(was), order, order) {
            was = now;
        }
        Ok(was)
    }
}

fn index_of(key: u32) -> usize {
    (key & ((1 << INDEX_BITS) - 1)) as usize
}
