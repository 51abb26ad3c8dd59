//! Slices of a write that go to the disk before the write is asked for, while its data still comes.
//!
//! Nothing names their pages until the write is asked for, so a power cut, or whoever gives the
//! write up, leaves nothing of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;

use slab::Slab;
use towpath_disk::{DiskError, Op};
use towpath_transport::Class;

use super::io::Purpose;
use super::space::EDGE_PAGES;
use super::state::StoreCore;
use super::write::{OP_PAGES, write_failed};
use crate::store::error::ChangeError;
use crate::store::gather::Gather;
use crate::store::record::{Extent, Extents};
use crate::store::slice::{ChunkId, SLICE_BYTES};

/// Slices that are held at most for writes that nobody has asked for yet, 64 MiB: four writes of
/// the longest kind. What finds no room waits in the memory of who asks.
const EARLY_SLICES_MAX: u64 = (64 << 20) / SLICE_BYTES as u64;

/// Slices that are held at most for one owner: room for one write of the longest kind, so that none
/// is too long to be staged.
const OWNER_SLICES_MAX: u64 = EARLY_SLICES_MAX / 4;

/// The slices of one write that is still to be asked for, or that are still on their way.
#[derive(Debug)]
struct Early {
    name: (usize, u64),
    owner: Owner,
    chunk: ChunkId,
    /// The page of each.
    pages: BTreeMap<u64, u32>,
    /// Writes of them under way.
    writes_left: usize,
    failed: Option<ChangeError>,
    next: Next,
}

/// What becomes of slices that are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The write is still to be asked for.
    Wait,
    /// The write was asked for: this member has the slices.
    Member(usize),
    /// The write was given up.
    Release,
}

/// Who asks, and whom it asks for.
type Owner = (usize, usize);

/// All writes that are still to be asked for.
#[derive(Debug, Default)]
pub(super) struct Earlies {
    by_name: HashMap<(usize, u64), usize>,
    all: Slab<Early>,
    /// Of those that nobody has asked for.
    slices: u64,
    /// The same by owner, of those that have any.
    by_owner: HashMap<Owner, u64>,
}

impl Earlies {
    /// The write that an asker calls `stage`, of a chunk.
    pub(super) fn find(&self, asker: usize, stage: u64, chunk: ChunkId) -> Option<usize> {
        let key = self.by_name.get(&(asker, stage)).copied()?;
        (self.all[key].chunk == chunk).then_some(key)
    }

    /// The pages of the slices of a write.
    pub(super) fn pages(&self, key: usize) -> &BTreeMap<u64, u32> {
        &self.all[key].pages
    }

    /// How many writes of its slices are under way.
    pub(super) fn writes_left(&self, key: usize) -> usize {
        self.all[key].writes_left
    }

    /// Whether nobody has any.
    #[cfg(test)]
    pub(super) fn has_none(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// Why slices of a write did not get to the disk, if any did not.
    pub(super) fn take_failure(&mut self, key: usize) -> Option<ChangeError> {
        self.all[key].failed.take()
    }

    /// Bytes that pages are taken for.
    pub(super) fn bytes(&self) -> u64 {
        self.slices * SLICE_BYTES as u64
    }

    /// Whether an owner may have so many slices more. It never has more than it leaves free, so
    /// that there is room for another one, however many there are.
    fn may_take(&self, owner: Owner, count: u64) -> bool {
        let free = EARLY_SLICES_MAX.saturating_sub(self.slices);
        let held = self.by_owner.get(&owner).copied().unwrap_or(0);
        held + count <= free.min(OWNER_SLICES_MAX)
    }

    /// Puts pages to the slices of a write from `first_slice` on.
    fn put(&mut self, key: usize, first_slice: u64, pages: impl Iterator<Item = u32>) {
        let early = &mut self.all[key];
        let before = early.pages.len();
        early.pages.extend((first_slice..).zip(pages));
        let count = (early.pages.len() - before) as u64;
        self.slices += count;
        *self.by_owner.entry(early.owner).or_default() += count;
    }

    /// A member has the slices from now on, and hears of those that are under way.
    pub(super) fn hand_over(&mut self, key: usize, member: usize) {
        self.end(key, Next::Member(member));
        if self.all[key].writes_left == 0 {
            self.all.remove(key);
        }
    }

    /// Nobody asks for the write any more: its name may be used again.
    fn end(&mut self, key: usize, next: Next) {
        let early = &mut self.all[key];
        early.next = next;
        let count = early.pages.len() as u64;
        self.slices -= count;
        self.by_name.remove(&early.name);
        if let Entry::Occupied(mut held) = self.by_owner.entry(early.owner) {
            *held.get_mut() -= count;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Whole slices of a chunk, which the caller has checked, for a write that follows. They are
    /// not taken where there is no room for them just now, or where they must stay in memory.
    pub(super) fn begin_early(
        &mut self,
        class: Class,
        owner: Owner,
        stage: u64,
        (chunk, first_slice): (ChunkId, u64),
        data: &[W],
    ) -> bool {
        let Some((key, extents)) = self.take_early((owner, stage), (chunk, first_slice), data)
        else {
            return false;
        };
        let Ok(ops) = self.early_writes(class, &extents, data) else {
            extents.iter().for_each(|extent| self.space.pages.release(*extent));
            return false;
        };
        let pages = extents.iter().flat_map(|extent| extent.page..extent.page + extent.count);
        self.early.put(key, first_slice, pages);
        self.early.all[key].writes_left += ops.len();
        ops.into_iter().for_each(|op| self.io.submit_as(class, Purpose::Early { key }, op));
        true
    }

    /// The write, new or not, and pages for more of its slices.
    fn take_early(
        &mut self,
        (owner, stage): (Owner, u64),
        (chunk, first_slice): (ChunkId, u64),
        data: &[W],
    ) -> Option<(usize, Extents)> {
        let name = (owner.0, stage);
        self.check_usable().ok()?;
        let head = self.known(chunk).head.filter(|head| !head.has_slots)?;
        let byte_len: u64 = data.iter().map(|piece| piece.as_ref().len() as u64).sum();
        let count = byte_len / SLICE_BYTES as u64;
        let end = first_slice.checked_add(count)?.checked_mul(SLICE_BYTES as u64)?;
        let is_sound = byte_len > 0 && byte_len == count * SLICE_BYTES as u64;
        let has_room = self.early.may_take(owner, count);
        if !is_sound || end > head.limit_bytes || !has_room || !self.is_room_for(byte_len) {
            return None;
        }
        let known = self.early.by_name.get(&name).copied();
        let is_new = known.is_none_or(|key| {
            let Early { chunk: of, pages, .. } = &self.early.all[key];
            let range = first_slice..first_slice + count;
            *of == chunk && pages.range(range).next().is_none()
        });
        if !is_new {
            return None;
        }
        let extents = self.space.take(count as u32, EDGE_PAGES)?;
        let key = known.unwrap_or_else(|| {
            let (pages, writes_left, failed) = (BTreeMap::new(), 0, None);
            let next = Next::Wait;
            let early = Early { name, owner, chunk, pages, writes_left, failed, next };
            let key = self.early.all.insert(early);
            self.early.by_name.insert(name, key);
            key
        });
        Some((key, extents))
    }

    fn early_writes(&self, class: Class, extents: &[Extent], data: &[W]) -> io::Result<Vec<Op>> {
        let (mut data, mut ops) = (Gather::new(data), Vec::with_capacity(extents.len()));
        let op_pages = OP_PAGES[class.index()];
        for &Extent { page, count } in extents {
            for run in (0..count).step_by(op_pages) {
                let pages = (count - run).min(op_pages as u32) as usize;
                let from = self.io.memory.all_filled(pages, |buf| data.copy(buf))?;
                ops.push(Op::write_all(self.layout.data_page(page + run), from));
            }
        }
        Ok(ops)
    }

    pub(super) fn on_early(&mut self, key: usize, op: Op, outcome: Result<(), DiskError>) {
        let Some(early) = self.early.all.get_mut(key) else { return };
        early.writes_left -= 1;
        let (next, is_last) = (early.next, early.writes_left == 0);
        match (next, outcome) {
            (Next::Member(member), outcome) => {
                if is_last {
                    self.early.all.remove(key);
                }
                self.on_data(member, op, outcome);
            }
            (Next::Release | Next::Wait, Ok(())) => {}
            (Next::Release | Next::Wait, Err(error)) => {
                self.quarantine(&op, &error);
                let failed = write_failed(&error);
                self.note_if_full(&failed);
                self.early.all[key].failed.get_or_insert(failed);
            }
        }
        if next == Next::Release && is_last {
            self.release_early(key);
        }
    }

    /// A write is not asked for after all.
    pub(super) fn drop_early(&mut self, key: usize) {
        self.early.end(key, Next::Release);
        if self.early.all[key].writes_left == 0 {
            self.release_early(key);
        }
    }

    /// The write that an asker calls `stage` is not asked for after all.
    pub(super) fn drop_early_of(&mut self, asker: usize, stage: u64) {
        if let Some(key) = self.early.by_name.get(&(asker, stage)).copied() {
            self.drop_early(key);
        }
    }

    /// Who asked is gone, and asks for nothing any more.
    pub(super) fn drop_all_early_of(&mut self, asker: usize) {
        let names = self.early.by_name.iter().filter(|((of, _), _)| *of == asker);
        let keys: Vec<_> = names.map(|(_, key)| *key).collect();
        keys.into_iter().for_each(|key| self.drop_early(key));
    }

    fn release_early(&mut self, key: usize) {
        let early = self.early.all.remove(key);
        early
            .pages
            .into_values()
            .for_each(|page| self.space.pages.release(Extent { page, count: 1 }));
        self.held.wake();
    }

    /// Slices that are kept for writes that nobody has asked for yet.
    #[cfg(test)]
    pub(super) fn early_slices(&self) -> u64 {
        self.early.slices
    }
}
