//! The table of registered memory that a software device looks keys up in.

use crate::hold::{Holder, Piece};
use crate::mapping::Mapping;
use crate::region::Region;
use crate::shared_memory::SharedMemory;
use crate::words::{self, WORD_BYTES};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use towpath_base::Prng;
use towpath_base::passes::{Pass, note};
use towpath_verbs::{Access, MrKeys, PdNum, RemoteAddr, Verb, VerbError};

/// The most registrations of a device: far above what pools need, and the index fits a key.
const REGISTRATIONS_MAX: usize = 1 << 16;

/// The most protection domains of a device: one for each of as many links as an endpoint has.
const DOMAINS_MAX: usize = 1 << 15;

/// Bits of a key that are an index; the others are random.
const INDEX_BITS: u32 = 16;

#[derive(Clone)]
pub(crate) struct Entry {
    /// Where the registered range begins.
    start: NonNull<u8>,
    bytes: usize,
    /// Peers may change it at any time: it is reached by words.
    pub(crate) is_shared: bool,
    pub(crate) access: Access,
    pub(crate) pd: PdNum,
    key: u32,
    /// It was taken back: nothing finds it any more. It is here for those who still hold its
    /// memory.
    is_deregistered: bool,
    /// Keeps the range alive.
    pub(crate) mapping: Arc<Mapping>,
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
    holder: Holder,
}

impl Entry {
    /// Whether any device has a hold on its memory: shared memory has none.
    fn is_held(&self) -> bool {
        !self.is_shared && self.mapping.slots.any_held()
    }
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
        static NEXT_HOLDER: AtomicU32 = AtomicU32::new(1);
        let next =
            NEXT_HOLDER.try_update(Ordering::Relaxed, Ordering::Relaxed, Holder::number_after);
        let holder = Holder(next.expect("fewer than 2^31 devices in the life of a process"));
        let prng = Prng::new(seed);
        Self { entries: Vec::new(), domains: vec![true], prng, holder }
    }

    /// Whose holds this table takes.
    #[must_use]
    #[inline]
    pub fn holder(&self) -> Holder {
        self.holder
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
        if self.entries.iter().flatten().any(|entry| entry.pd == pd && !entry.is_deregistered) {
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
        self.add(pd, memory.mapping(), range, access, true)
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
        self.forget_unheld();
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
        let (mapping, is_deregistered) = (Arc::clone(mapping), false);
        self.entries[index] =
            Some(Entry { start, bytes, is_shared, access, pd, key, is_deregistered, mapping });
        Ok(MrKeys { lkey: key, rkey: key })
    }

    /// Makes of a key here what it is in another table, which registers and takes back for both: a
    /// device may have one for each of its threads.
    pub fn follow(&mut self, leader: &Self, key: u32) {
        self.forget_unheld();
        let index = index_of(key);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = leader.entries.get(index).cloned().flatten();
    }

    /// Takes a registration back. From here on nothing is reached under its key. Its memory stays
    /// mapped, and no buffers are made of it, for as long as posted work requests hold any of it.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`] for an unknown key.
    pub fn deregister(&mut self, key: u32) -> Result<(), VerbError> {
        self.entry(key).ok_or(VerbError::NoSuchObject(Verb::DeregMr))?;
        if let Some(entry) = &mut self.entries[index_of(key)] {
            entry.is_deregistered = true;
        }
        self.forget_unheld();
        Ok(())
    }

    /// Lets go of the memory that was taken back and is not held any more.
    fn forget_unheld(&mut self) {
        for place in &mut self.entries {
            let is_free = |entry: &mut Entry| entry.is_deregistered && !entry.is_held();
            place.take_if(is_free);
        }
    }

    /// The entry of a key, which may have been taken back.
    #[inline]
    pub(crate) fn find_entry(&self, key: u32) -> Option<&Entry> {
        self.entries.get(index_of(key))?.as_ref().filter(|entry| entry.key == key)
    }

    fn entry(&self, key: u32) -> Option<&Entry> {
        self.find_entry(key).filter(|entry| !entry.is_deregistered)
    }

    /// The entry and the start of `len` bytes at `addr`, when they lie within the registered range.
    #[inline]
    pub(crate) fn locate(&self, key: u32, addr: u64, len: usize) -> Option<(&Entry, NonNull<u8>)> {
        let entry = self.entry(key)?;
        let offset = usize::try_from(addr.checked_sub(entry.start.as_ptr() as u64)?).ok()?;
        if offset.checked_add(len)? > entry.bytes {
            return None;
        }
        // SAFETY: just checked to lie within the range.
        Some((entry, unsafe { entry.start.add(offset) }))
    }

    /// As [`locate`](Self::locate), for what this table holds.
    #[inline]
    fn locate_piece(&self, piece: &Piece<'_>) -> Option<(&Entry, NonNull<u8>)> {
        let (entry, start) = self.locate(piece.lkey, piece.addr, piece.length as usize)?;
        let is_ours = entry.is_shared == piece.is_shared && piece.holder == self.holder;
        is_ours.then_some((entry, start))
    }

    /// What a peer reaches through a queue pair of `pd`, if `may` says that it may.
    pub(crate) fn locate_remote(
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

    /// The bytes of a piece that is held for sending. They are borrowed of the table, which writes
    /// nothing and gives no hold up meanwhile.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, or the piece is in shared memory.
    #[inline]
    pub fn gather(&self, piece: &Piece<'_>) -> Result<&[u8], VerbError> {
        if piece.length == 0 {
            return Ok(&[]);
        }
        let (_, start) = self
            .locate_piece(piece)
            .filter(|(entry, _)| !entry.is_shared)
            .ok_or(VerbError::BadMemory(Verb::PostSend))?;
        // SAFETY: in bounds and alive while the table holds the region. This table has a hold on
        // the slot: its owner does not write it, no other table does, and this one does not while
        // it is borrowed, nor does it give the hold up.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), piece.length as usize) })
    }

    /// Copies the bytes of a piece that is held for sending to `out`, which is as long.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, or `out` has another length.
    pub fn gather_into(&self, piece: &Piece<'_>, out: &mut [u8]) -> Result<(), VerbError> {
        let refused = VerbError::BadMemory(Verb::PostSend);
        if out.len() != piece.length as usize {
            return Err(refused);
        }
        if out.is_empty() {
            return Ok(());
        }
        let (entry, start) = self.locate_piece(piece).ok_or(refused)?;
        note(Pass::Device, out.len());
        // SAFETY: in bounds and alive while the table holds the memory. Shared memory is reached by
        // words; a region's bytes are held, as in `gather`, and `out` is elsewhere: nobody has a
        // slice to write them.
        unsafe {
            match entry.is_shared {
                true => words::load(start, out),
                false => out.as_mut_ptr().copy_from_nonoverlapping(start.as_ptr(), out.len()),
            }
        }
        Ok(())
    }

    /// Copies `bytes` into a piece that is held for writing, to its front.
    ///
    /// # Errors
    /// [`VerbError::BadMemory`] when the key is gone, the piece is shorter, or not writable.
    pub fn scatter(&mut self, piece: &Piece<'_>, bytes: &[u8]) -> Result<(), VerbError> {
        let refused = VerbError::BadMemory(Verb::PostRecv);
        if bytes.len() > piece.length as usize {
            return Err(refused);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, is_shared) = self.writable(piece).ok_or(refused)?;
        // SAFETY: in bounds and alive while the table holds the memory. Shared memory is reached by
        // words. What is held for writing nobody else reaches, and of it there is no slice.
        unsafe {
            match is_shared {
                true => words::store(start, bytes),
                false => start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()),
            }
        }
        note(Pass::Device, bytes.len());
        Ok(())
    }

    /// Where a piece begins that this table holds for writing, and whether that is shared memory.
    #[inline]
    pub(crate) fn writable(&mut self, piece: &Piece<'_>) -> Option<(NonNull<u8>, bool)> {
        let (entry, start) = self.locate_piece(piece)?;
        (piece.writes && entry.access.local_write).then_some((start, entry.is_shared))
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
