//! The table that serves: readers take no lock, and a change is one step.

use super::gate::Gate;
use super::growth::compute;
use super::ring::{Ring, Slot};
use super::room::{Claim, Figures, Room, cost};
use super::{Bytes, Evict, Held, Refused, Step, Store, check};
use crate::limits::{ENTRY_COST_BYTES, LOOKS_MAX, VALUE_BYTES_MAX};
use crate::published::Published;
use papaya::{Compute, HashMap, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use towpath_base::Time;

/// Evictions for one change at most: as many of the smallest entries as the longest value needs.
const EVICTIONS_MAX: u64 = 2 * (VALUE_BYTES_MAX as u64 / ENTRY_COST_BYTES);

/// A store that threads read without a lock.
///
/// Memory of entries that were replaced is given back when no reader can see them any more: some
/// 32 of each thread may be kept until then, beyond the bound.
#[derive(Debug)]
pub struct Table {
    map: HashMap<Bytes, Entry>,
    room: Room,
    /// Where entries may be evicted.
    ring: Option<Ring>,
    /// Where clients may read entries by themselves: a key changes while its bucket is closed.
    published: Option<Arc<Published>>,
    gate: Gate,
}

#[derive(Debug)]
struct Entry {
    value: Bytes,
    expires: Time,
    /// Of its key, however often the value changes.
    slot: Option<Slot>,
    /// Since the hand of the ring last came by.
    is_used: AtomicBool,
}

impl Entry {
    fn is_there(&self, now: Time) -> bool {
        now < self.expires
    }

    fn held(&self) -> Held<'_> {
        Held { value: &self.value, expires: self.expires }
    }
}

/// Why a change ended without one.
enum Ended {
    AsItWas,
    Refused(Refused),
    NoRoom,
}

impl Table {
    /// An empty store of at most so many bytes.
    #[must_use]
    pub fn new(bytes_max: u64, evict: Evict) -> Self {
        let ring = (evict == Evict::LeastRecentlyUsed).then(Ring::default);
        let (map, room, gate) = (HashMap::new(), Room::new(bytes_max), Gate::default());
        Self { map, room, ring, published: None, gate }
    }

    /// The same, whose entries are published as far as they fit.
    #[must_use]
    pub fn publishing(bytes_max: u64, evict: Evict, published: Arc<Published>) -> Self {
        Self { published: Some(published), ..Self::new(bytes_max, evict) }
    }

    /// Removes a key whose entry is one to remove; whether it was.
    fn remove_if(&self, key: &[u8], is_one: impl Fn(&Entry) -> bool) -> bool {
        let map = self.map.pin();
        let removed = map.remove_if(key, |_, entry| is_one(entry));
        let Ok(Some((_, entry))) = removed else { return false };
        self.forget(key, entry);
        true
    }

    /// An entry was taken out of the table by this thread.
    fn forget(&self, key: &[u8], entry: &Entry) {
        self.room.forget(cost(key, &entry.value));
        self.free(entry.slot);
    }

    fn free(&self, slot: Option<Slot>) {
        if let (Some(ring), Some(slot)) = (&self.ring, slot) {
            ring.remove(slot);
        }
    }

    fn expire(&self, key: &[u8], now: Time) -> bool {
        let is_expired = self.remove_if(key, |entry| !entry.is_there(now));
        self.room.expired.fetch_add(u64::from(is_expired), Relaxed);
        is_expired
    }

    /// Evicts one entry; false where there is none, or none may go.
    fn evict(&self) -> bool {
        let Some(ring) = &self.ring else { return false };
        for look in 0..2 * LOOKS_MAX {
            let Some((slot, key)) = ring.next() else { return false };
            // A key whose bucket is closed is spared: that change may take long.
            let closing = self.published.as_ref().map(|published| published.try_begin(&key));
            let change = match closing {
                Some(None) => continue,
                Some(change) => change,
                None => None,
            };
            // Another thread may have removed the key, and its slot is another's now.
            let goes = self.remove_if(&key, |entry| {
                let is_used = entry.is_used.swap(false, Relaxed);
                entry.slot == Some(slot) && (!is_used || look >= LOOKS_MAX)
            });
            if goes {
                if let Some(change) = change {
                    change.end_without(&key);
                }
                self.room.evicted.fetch_add(1, Relaxed);
                return true;
            }
        }
        false
    }

    /// One try of a change.
    fn attempt(
        &self,
        key: &[u8],
        now: Time,
        decide: &mut dyn FnMut(Option<Held<'_>>) -> Step,
        publish: &mut dyn FnMut(Option<&Entry>),
    ) -> Result<(), Ended> {
        let (mut claim, mut added) = (Claim::new(&self.room), None);
        let mut saw_entry = false;
        let map = self.map.pin();
        let done = compute(&map, key.into(), |held| {
            let held = held.map(|(_, entry)| entry);
            saw_entry = held.is_some();
            let (value, expires) = match decide(held.filter(|e| e.is_there(now)).map(Entry::held)) {
                Step::Leave => return Operation::Abort(Ended::AsItWas),
                Step::Remove if held.is_some() => return Operation::Remove,
                Step::Remove => return Operation::Abort(Ended::AsItWas),
                Step::Put { value, expires } => (value, expires),
            };
            if let Err(refused) = check(key, &value) {
                return Operation::Abort(Ended::Refused(refused));
            }
            let old = held.map_or(0, |entry| cost(key, &entry.value));
            if !claim.cover(old, cost(key, &value)) {
                return Operation::Abort(Ended::NoRoom);
            }
            let slot = match (held, &self.ring) {
                (Some(entry), _) => entry.slot,
                (None, Some(ring)) => {
                    added = added.or_else(|| ring.add(key));
                    added
                }
                (None, None) => None,
            };
            Operation::Insert(Entry {
                value,
                expires,
                slot,
                is_used: AtomicBool::new(held.is_some()),
            })
        });
        let made = |entry: &Entry| cost(key, &entry.value);
        if !matches!(done, Compute::Aborted(_)) {
            self.gate.note_change(key);
        }
        match done {
            Compute::Inserted(_, new) => {
                // The table keeps what it computed for no entry, and makes that where an entry came
                // and went since. Whoever decides must know which of its answers holds.
                if saw_entry {
                    decide(None);
                }
                publish(Some(new));
                self.room.note_expiry(new.expires);
                claim.keep(None, made(new));
                return Ok(());
            }
            Compute::Updated { old: (_, old), new: (_, new) } => {
                publish(Some(new));
                self.room.note_expiry(new.expires);
                claim.keep(Some(made(old)), made(new));
            }
            Compute::Removed(_, old) => {
                publish(None);
                self.forget(key, old);
            }
            Compute::Aborted(ended) => {
                self.free(added);
                return Err(ended);
            }
        }
        self.free(added);
        Ok(())
    }
}

impl Store for Table {
    fn get(&self, key: &[u8], now: Time, take: &mut dyn FnMut(&[u8])) -> bool {
        let map = self.map.pin();
        let Some(entry) = map.get(key) else { return false };
        if !entry.is_there(now) {
            self.expire(key, now);
            return false;
        }
        // A line that many threads read is written only where that says something.
        if self.ring.is_some() && !entry.is_used.load(Relaxed) {
            entry.is_used.store(true, Relaxed);
        }
        take(&entry.value);
        true
    }

    fn change(
        &self,
        key: &[u8],
        now: Time,
        decide: &mut dyn FnMut(Option<Held<'_>>) -> Step,
    ) -> Result<(), Refused> {
        for _ in 0..EVICTIONS_MAX {
            // Closed from before the change takes effect until it is published; while others are
            // evicted for it, it can be read.
            let mut change = self.published.as_ref().map(|published| published.begin(key));
            let done = self.attempt(key, now, decide, &mut |entry| {
                let Some(change) = change.take() else { return };
                let lasting = entry.filter(|entry| entry.expires == Time::NEVER);
                change.end(key, lasting.map(|entry| &entry.value[..]));
            });
            drop(change);
            match done {
                Ok(()) | Err(Ended::AsItWas) => return Ok(()),
                Err(Ended::Refused(refused)) => return Err(refused),
                Err(Ended::NoRoom) if self.evict() => {}
                Err(Ended::NoRoom) => break,
            }
        }
        self.room.refused.fetch_add(1, Relaxed);
        Err(Refused::Full)
    }

    fn each(&self, now: Time, take: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let map = self.map.pin();
        let there = map.iter().filter(|(_, entry)| entry.is_there(now));
        for (key, entry) in there {
            if !take(key, &entry.value) {
                return;
            }
        }
    }

    fn clear(&self) {
        self.gate.note_clear();
        let map = self.map.pin();
        for (key, _) in map.iter() {
            let change = self.published.as_ref().map(|published| published.begin(key));
            if self.remove_if(key, |_| true)
                && let Some(change) = change
            {
                change.end_without(key);
            }
        }
    }

    fn sweep(&self, now: Time) -> u64 {
        if !self.room.take_expiring() {
            return 0;
        }
        let map = self.map.pin();
        let mut gone = 0;
        for (key, entry) in map.iter() {
            self.room.note_expiry(entry.expires);
            gone += u64::from(!entry.is_there(now) && self.expire(key, now));
        }
        gone
    }

    fn figures(&self) -> Figures {
        self.room.figures()
    }

    fn published(&self) -> Option<&Arc<Published>> {
        self.published.as_ref()
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn set_bytes_max(&self, bytes_max: u64) {
        self.room.set_bytes_max(bytes_max);
    }
}
