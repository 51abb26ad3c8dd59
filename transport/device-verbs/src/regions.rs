//! Registered memory: the driver's keys, and the table that knows the bytes behind them.

use crate::limits::GRH_BYTES;
use crate::sys;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use towpath_memory::{Hold, Holds, MrTable, Region, SharedMemory};
use towpath_verbs::{Access, MrKeys, PdNum, SgList, Sge, Verb, VerbError};

struct Entry {
    /// Goes before the region does, so that the device has let go of the bytes.
    _mr: sys::Mr,
    /// The key of the same region in the table.
    key: u32,
}

/// The registered memory of a device by its `lkey`, and the protection domains.
pub(crate) struct Regions {
    entries: BTreeMap<u32, Entry>,
    table: MrTable,
    /// By number, as the table counts them.
    domains: Vec<Option<Arc<sys::Pd>>>,
    /// The lkey that was asked for last, and its key in the table: most lists stay in one pool.
    last: (u32, u32),
}

impl Regions {
    /// With the domain that every device has.
    pub(crate) fn new(pd: &Arc<sys::Pd>) -> Self {
        Self {
            entries: BTreeMap::new(),
            table: MrTable::default(),
            domains: vec![Some(Arc::clone(pd))],
            last: (0, u32::MAX),
        }
    }

    pub(crate) fn alloc_pd(&mut self, context: &Arc<sys::Context>) -> Result<PdNum, VerbError> {
        let pd = Arc::new(sys::Pd::new(context)?);
        let num = self.table.alloc_pd()?;
        let index = num.0 as usize;
        if self.domains.len() <= index {
            self.domains.resize(index + 1, None);
        }
        self.domains[index] = Some(pd);
        Ok(num)
    }

    /// A domain that no queue pair is in any more.
    pub(crate) fn dealloc_pd(&mut self, num: PdNum) -> Result<(), VerbError> {
        self.table.dealloc_pd(num)?;
        self.domains[num.0 as usize] = None;
        Ok(())
    }

    /// The driver's own.
    pub(crate) fn domain(&self, num: PdNum) -> Option<&Arc<sys::Pd>> {
        self.domains.get(num.0 as usize)?.as_ref()
    }

    pub(crate) fn register(
        &mut self,
        pd: PdNum,
        region: &Region,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        let raw = self.domain(pd).ok_or(VerbError::NoSuchObject(Verb::RegMr))?.clone();
        // The table first: it refuses what a peer must not reach.
        let key = self.table.register(pd, region, access)?.lkey;
        let mr = sys::Mr::register(&raw, region, access);
        self.enter(mr, key)
    }

    pub(crate) fn register_shared(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        let raw = self.domain(pd).ok_or(VerbError::NoSuchObject(Verb::RegMr))?.clone();
        // The table first: it refuses a range that leaves the memory.
        let key = self.table.register_shared(pd, memory, range.clone(), access)?.lkey;
        let mr = sys::Mr::register_shared(&raw, memory, &range, access);
        self.enter(mr, key)
    }

    fn enter(&mut self, mr: Result<sys::Mr, VerbError>, key: u32) -> Result<MrKeys, VerbError> {
        let mr = match mr {
            Ok(mr) => mr,
            Err(error) => {
                self.table.deregister(key)?;
                return Err(error);
            }
        };
        let keys = mr.keys();
        self.entries.insert(keys.lkey, Entry { _mr: mr, key });
        self.last = (keys.lkey, key);
        Ok(keys)
    }

    pub(crate) fn deregister(&mut self, lkey: u32) -> Result<(), VerbError> {
        let entry = self.entries.remove(&lkey).ok_or(VerbError::NoSuchObject(Verb::DeregMr))?;
        self.last = (0, u32::MAX);
        let key = entry.key;
        // The device must have let go before the table gives its handle of the region up.
        drop(entry);
        self.table.deregister(key)
    }

    /// The same entry under the table's key.
    fn inner(&mut self, sge: &Sge) -> Option<Sge> {
        if self.last.0 != sge.lkey || self.last.1 == u32::MAX {
            self.last = (sge.lkey, self.entries.get(&sge.lkey)?.key);
        }
        Some(Sge { lkey: self.last.1, ..*sge })
    }

    /// Takes holds on all of the `list` of a send, behind those that are in `holds`, or on none of
    /// it; `write` where the device will write it.
    pub(crate) fn hold(
        &mut self,
        pd: PdNum,
        list: &[Sge],
        write: bool,
        holds: &mut VecDeque<Hold>,
    ) -> bool {
        let before = holds.len();
        for sge in list {
            let Some(hold) = self.hold_one(pd, sge, write) else {
                self.release(holds.drain(before..));
                return false;
            };
            holds.push_back(hold);
        }
        true
    }

    fn hold_one(&mut self, pd: PdNum, sge: &Sge, write: bool) -> Option<Hold> {
        if sge.length == 0 {
            return Some(Hold::default());
        }
        let inner = self.inner(sge)?;
        self.table.hold(pd, &inner, write)
    }

    /// Takes holds on all that a receive names, or on none of it.
    pub(crate) fn hold_list(&mut self, pd: PdNum, list: &SgList) -> Option<Holds> {
        let mut inner = SgList::default();
        for sge in list.iter() {
            // No bytes reach no memory, and their key is not looked at.
            let sge = if sge.length == 0 { Sge::default() } else { self.inner(sge)? };
            let has_room = inner.push(sge);
            debug_assert!(has_room, "a list of the same length");
        }
        self.table.hold_list(pd, &inner)
    }

    /// The device is done with them.
    pub(crate) fn release(&mut self, holds: impl Iterator<Item = Hold>) {
        holds.for_each(|hold| self.table.release(hold));
    }

    /// The device is done with a receive.
    pub(crate) fn release_all(&mut self, holds: Holds) {
        self.table.release_all(holds);
    }

    /// The header that the device put in front of a datagram.
    pub(crate) fn routing_header(&self, list: &[Hold]) -> Option<[u8; GRH_BYTES]> {
        let mut header = [0; GRH_BYTES];
        let mut filled = 0;
        for hold in list {
            let piece = hold.whole().part(0, (GRH_BYTES - filled) as u32);
            let end = filled + piece.byte_len() as usize;
            self.table.gather_into(&piece, &mut header[filled..end]).ok()?;
            filled = end;
        }
        (filled == GRH_BYTES).then_some(header)
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        // Before the table, which keeps the memory alive.
        self.entries.clear();
    }
}
