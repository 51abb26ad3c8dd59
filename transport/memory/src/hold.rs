//! Holds: what a device has of the memory that posted work requests name.

use crate::mr::{Entry, MrTable};
use crate::slots::Slot;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::ops::Deref;
use towpath_verbs::{PdNum, SGE_DEFAULT, SgList, Sge};

/// Not a slot: shared memory has none, and no bytes are in none.
const NO_SLOT: u32 = u32::MAX;

/// Who takes holds: a table of registered memory. What one holds for writing no other reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(pub(crate) u32);

impl Holder {
    /// None when a [`Grip`] has no room for more.
    pub(crate) fn number_after(number: u32) -> Option<u32> {
        (number < u32::MAX >> 1).then_some(number + 1)
    }
}

/// Registered bytes that a device keeps until it gives them [up](MrTable::release): their owner
/// does not get them back before. Made by [`MrTable::hold`] of an entry of a work request, and
/// taken along with that for as long as the device may reach the bytes.
///
/// Dropping one gives nothing up: then the owner never gets them back.
#[derive(Debug)]
#[must_use = "dropping a hold leaks the buffer"]
pub struct Hold {
    addr: u64,
    length: u32,
    lkey: u32,
    slot: u32,
    grip: Grip,
}

/// Who holds, and in the lowest bit whether to write: holds are copied for each work request.
#[derive(Clone, Copy, Debug)]
struct Grip(u32);

impl Grip {
    const NONE: Self = Self(0);

    #[inline]
    fn new(holder: Holder, writes: bool) -> Self {
        Self(holder.0 << 1 | u32::from(writes))
    }

    #[inline]
    fn holder(self) -> Holder {
        Holder(self.0 >> 1)
    }

    #[inline]
    fn writes(self) -> bool {
        self.0 & 1 > 0
    }
}

impl Default for Hold {
    /// Of no bytes.
    fn default() -> Self {
        Self { addr: 0, length: 0, lkey: 0, slot: NO_SLOT, grip: Grip::NONE }
    }
}

impl Hold {
    /// Its bytes.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.length
    }

    /// All of it.
    #[must_use]
    #[inline]
    pub fn whole(&self) -> Piece<'_> {
        let Self { addr, length, lkey, slot, grip } = *self;
        let (holder, writes) = (grip.holder(), grip.writes());
        Piece { addr, length, lkey, is_shared: slot == NO_SLOT, holder, writes, hold: PhantomData }
    }
}

/// A part of what a device holds.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'h> {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
    pub(crate) is_shared: bool,
    pub(crate) holder: Holder,
    pub(crate) writes: bool,
    hold: PhantomData<&'h Hold>,
}

impl Piece<'_> {
    /// Its bytes.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.length
    }

    /// Whether it is in shared memory, whose bytes have to be copied out: see
    /// [`MrTable::gather`].
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// What is behind its first `skip` bytes, `len` bytes at most.
    #[must_use]
    #[inline]
    pub fn part(&self, skip: u32, len: u32) -> Self {
        let skip = skip.min(self.length);
        let length = len.min(self.length - skip);
        Self { addr: self.addr + u64::from(skip), length, ..*self }
    }
}

/// The holds of a receive, in place.
#[derive(Debug, Default)]
pub struct Holds {
    holds: [Hold; SGE_DEFAULT],
    len: u32,
}

impl Deref for Holds {
    type Target = [Hold];

    #[inline]
    fn deref(&self) -> &[Hold] {
        &self.holds[..self.len as usize]
    }
}

impl Holds {
    /// Bytes of all of them together.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> u64 {
        self.iter().map(|hold| u64::from(hold.length)).sum()
    }
}

impl MrTable {
    /// Takes a hold on what an entry of a work request of a queue pair of `pd` names, which the
    /// device will `write`. An entry of no bytes reaches no memory, and its key is not looked at.
    ///
    /// None when the key is not of this domain, the range leaves what is registered or is more than
    /// one buffer, the memory is not writable, or the buffer is not lent: somebody has it as a
    /// slice, or another device has it.
    #[inline]
    pub fn hold(&self, pd: PdNum, sge: &Sge, write: bool) -> Option<Hold> {
        self.hold_as(self.holder(), pd, sge, write)
    }

    /// As [`hold`](Self::hold), for another table with the same registrations, which then reaches
    /// the bytes and gives them up.
    #[inline]
    pub fn hold_as(&self, holder: Holder, pd: PdNum, sge: &Sge, write: bool) -> Option<Hold> {
        let &Sge { addr, length, lkey } = sge;
        if length == 0 {
            return Some(Hold::default());
        }
        let (entry, _) = self.locate(lkey, addr, length as usize)?;
        if entry.pd != pd || write && !entry.access.local_write {
            return None;
        }
        let slot = match entry.is_shared {
            true => NO_SLOT,
            false => {
                let (number, slot) = entry.slot(addr, length)?;
                if !slot.hold(holder.0, write) {
                    return None;
                }
                number
            }
        };
        Some(Hold { addr, length, lkey, slot, grip: Grip::new(holder, write) })
    }

    /// Takes holds on all that a receive names, or on nothing.
    #[inline]
    pub fn hold_list(&self, pd: PdNum, list: &SgList) -> Option<Holds> {
        let mut holds = Holds::default();
        self.hold_list_as(self.holder(), pd, list, &mut holds).then_some(holds)
    }

    /// As [`hold_list`](Self::hold_list), for another table: see [`hold_as`](Self::hold_as). The
    /// holds are added to `holds`, which has none; false when it gets none.
    #[inline]
    pub fn hold_list_as(
        &self,
        holder: Holder,
        pd: PdNum,
        list: &SgList,
        holds: &mut Holds,
    ) -> bool {
        if !holds.is_empty() {
            return false;
        }
        for (place, sge) in holds.holds.iter_mut().zip(&**list) {
            let Some(hold) = self.hold_as(holder, pd, sge, true) else {
                cold_path();
                // Nothing of them was reached yet.
                holds.iter().for_each(|hold| self.let_go(hold));
                holds.len = 0;
                return false;
            };
            *place = hold;
            holds.len += 1;
        }
        true
    }

    /// Gives a hold up. By then nothing is borrowed of the table any more.
    #[inline]
    pub fn release(&mut self, hold: Hold) {
        self.let_go(&hold);
    }

    /// Gives all holds of a receive up.
    #[inline]
    pub fn release_all(&mut self, mut holds: Holds) {
        self.release_each(&mut holds);
    }

    /// Gives all holds of a receive up, where they are; none is left.
    #[inline]
    pub fn release_each(&mut self, holds: &mut Holds) {
        holds.iter().for_each(|hold| self.let_go(hold));
        holds.len = 0;
    }

    /// For those who take the hold along, so that it is given up once.
    #[inline]
    fn let_go(&self, hold: &Hold) {
        if hold.slot == NO_SLOT {
            return;
        }
        // A registration that was taken back is here as long as its memory is held.
        if let Some(slot) = self.find_entry(hold.lkey).and_then(|entry| entry.slot_of(hold)) {
            slot.release();
        }
    }
}

impl Entry {
    /// The slot that has the range, and its number.
    #[inline]
    pub(crate) fn slot(&self, addr: u64, length: u32) -> Option<(u32, Slot<'_>)> {
        let slots = &self.mapping.slots;
        let offset = (addr - self.mapping.addr()) as usize;
        let number = slots.find(offset, length as usize)?;
        Some((number, slots.at(number)))
    }

    /// The slot that a hold is on, if it is on one of this memory.
    #[inline]
    pub(crate) fn slot_of(&self, hold: &Hold) -> Option<Slot<'_>> {
        // Memory that is held stays mapped: where the address lies, there is the slot.
        let offset = hold.addr.wrapping_sub(self.mapping.addr());
        let is_here = hold.slot != NO_SLOT && offset < self.mapping.bytes() as u64;
        is_here.then(|| self.mapping.slots.at(hold.slot))
    }
}
