//! Registered memory: the driver's keys, and the table that knows the bytes behind them.

use crate::limits::GRH_BYTES;
use crate::sys;
use std::collections::BTreeMap;
use std::sync::Arc;
use towpath_memory::{MrTable, Region};
use towpath_verbs::{Access, MrKeys, Sge, Verb, VerbError};

struct Entry {
    /// Goes before the region does, so that the device has let go of the bytes.
    _mr: sys::Mr,
    /// The key of the same region in the table.
    key: u32,
}

/// The regions of a device by their `lkey`.
pub(crate) struct Regions {
    entries: BTreeMap<u32, Entry>,
    table: MrTable,
    /// The lkey that was asked for last, and its key in the table: most lists stay in one pool.
    last: (u32, u32),
}

impl Regions {
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), table: MrTable::new(), last: (0, u32::MAX) }
    }

    pub(crate) fn register(
        &mut self,
        pd: &Arc<sys::Pd>,
        region: &Region,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        let mr = sys::Mr::register(pd, region, access)?;
        let keys = mr.keys();
        let key = self.table.register(region, access)?.lkey;
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
    pub(crate) fn allow(&mut self, list: &[Sge], write: bool) -> bool {
        list.iter().all(|sge| {
            sge.length == 0 || self.inner(sge).is_some_and(|inner| self.table.allows(&inner, write))
        })
    }

    /// The header that the device put in front of a datagram.
    pub(crate) fn routing_header(&mut self, list: &[Sge]) -> Option<[u8; GRH_BYTES]> {
        let mut header = [0; GRH_BYTES];
        let mut filled = 0;
        for sge in list.iter().filter(|sge| sge.length > 0) {
            let wanted = (GRH_BYTES - filled).min(sge.length as usize);
            let inner = self.inner(&Sge { length: wanted as u32, ..*sge })?;
            header[filled..filled + wanted].copy_from_slice(self.table.gather(&inner).ok()?);
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
