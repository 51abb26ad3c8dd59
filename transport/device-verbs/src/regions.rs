//! Registered memory: the driver's keys, and the table that knows the bytes behind them.

use crate::limits::GRH_BYTES;
use crate::sys;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use towpath_memory::{MrTable, Region, SharedMemory};
use towpath_verbs::{Access, MrKeys, PdNum, Sge, Verb, VerbError};

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

    /// Whether work requests may name all of `list`; `write` where the device will write it.
    pub(crate) fn allow(&mut self, pd: PdNum, list: &[Sge], write: bool) -> bool {
        list.iter().all(|sge| {
            sge.length == 0
                || self.inner(sge).is_some_and(|inner| self.table.allows(pd, &inner, write))
        })
    }

    /// The header that the device put in front of a datagram.
    pub(crate) fn routing_header(&mut self, list: &[Sge]) -> Option<[u8; GRH_BYTES]> {
        let mut header = [0; GRH_BYTES];
        let mut filled = 0;
        for sge in list.iter().filter(|sge| sge.length > 0) {
            let wanted = (GRH_BYTES - filled).min(sge.length as usize);
            let inner = self.inner(&Sge { length: wanted as u32, ..*sge })?;
            self.table.gather_into(&inner, &mut header[filled..filled + wanted]).ok()?;
            filled += wanted;
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
