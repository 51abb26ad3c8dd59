//! The table of the study that asked which transport a store should choose: 1,024 lists, a mutex
//! each, and a lock for each value.
//!
//! It is here as the baseline: with it the locks are the limit, as they were there. It bounds its
//! bytes as the other table does, and evicts nothing.

use super::gate::Gate;
use super::room::{Claim, Figures, Room, cost};
use super::{Bytes, Held, Refused, Step, Store, check};
use crate::limits::BUCKETS;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use towpath_base::Time;

/// The store of the study.
#[derive(Debug)]
pub struct Buckets {
    lists: Box<[Mutex<List>]>,
    hasher: RandomState,
    room: Room,
    gate: Gate,
}

#[derive(Debug, Default)]
struct List(Option<Box<Node>>);

#[derive(Debug)]
struct Node {
    key: Box<[u8]>,
    pair: Arc<RwLock<Pair>>,
    next: Option<Box<Self>>,
}

#[derive(Clone, Debug)]
struct Pair {
    value: Bytes,
    expires: Time,
}

impl Pair {
    fn is_there(&self, now: Time) -> bool {
        now < self.expires
    }
}

impl List {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.0.as_deref(), |node| node.next.as_deref())
    }

    fn find(&self, key: &[u8]) -> Option<&Arc<RwLock<Pair>>> {
        self.nodes().find(|node| *node.key == *key).map(|node| &node.pair)
    }

    fn push(&mut self, key: &[u8], pair: Pair) {
        let next = self.0.take();
        self.0 = Some(Box::new(Node { key: key.into(), pair: Arc::new(RwLock::new(pair)), next }));
    }

    fn remove(&mut self, key: &[u8]) {
        let mut link = &mut self.0;
        while link.as_ref().is_some_and(|node| *node.key != *key) {
            let Some(node) = link else { return };
            link = &mut node.next;
        }
        if let Some(node) = link.take() {
            *link = node.next;
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // One by one: a node that drops its next one needs a stack as deep as the list.
        let mut next = self.0.take();
        while let Some(mut node) = next {
            next = node.next.take();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under a lock leaves a list or a value half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy of what a node holds. Who asks has the list's lock.
fn copy_of(pair: &RwLock<Pair>) -> Pair {
    pair.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Buckets {
    /// An empty store of at most so many bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let lists = (0..BUCKETS).map(|_| Mutex::default()).collect();
        let (hasher, room, gate) = (RandomState::new(), Room::new(bytes_max), Gate::default());
        Self { lists, hasher, room, gate }
    }

    fn list(&self, key: &[u8]) -> &Mutex<List> {
        &self.lists[self.hasher.hash_one(key) as usize % BUCKETS]
    }

    /// Removes what is to go of a list; how many.
    fn remove_where(&self, list: &Mutex<List>, goes: impl Fn(&Pair) -> bool) -> u64 {
        let mut list = lock(list);
        let gone: Vec<(Box<[u8]>, u64)> = list
            .nodes()
            .map(|node| (node, copy_of(&node.pair)))
            .filter(|(_, pair)| goes(pair))
            .map(|(node, pair)| (node.key.clone(), cost(&node.key, &pair.value)))
            .collect();
        for (key, cost) in &gone {
            list.remove(key);
            self.room.forget(*cost);
        }
        gone.len() as u64
    }
}

impl Store for Buckets {
    fn get(&self, key: &[u8], now: Time, take: &mut dyn FnMut(&[u8])) -> bool {
        let list = lock(self.list(key));
        let Some(pair) = list.find(key).map(Arc::clone) else { return false };
        // The value is locked before its list is free: a change in between would be seen by one
        // that began later, and not by this one.
        let pair = pair.read().unwrap_or_else(PoisonError::into_inner);
        drop(list);
        let is_there = pair.is_there(now);
        if is_there {
            take(&pair.value);
        }
        is_there
    }

    fn change(
        &self,
        key: &[u8],
        now: Time,
        decide: &mut dyn FnMut(Option<Held<'_>>) -> Step,
    ) -> Result<(), Refused> {
        let mut list = lock(self.list(key));
        let found = list.find(key).map(Arc::clone);
        let mut pair =
            found.as_ref().map(|pair| pair.write().unwrap_or_else(PoisonError::into_inner));
        let there = pair.as_deref().filter(|pair| pair.is_there(now));
        let held = there.map(|pair| Held { value: &pair.value, expires: pair.expires });
        let old = pair.as_deref().map(|pair| cost(key, &pair.value));
        match (decide(held), &mut pair) {
            (Step::Leave, _) | (Step::Remove, None) => {}
            (Step::Remove, Some(_)) => {
                list.remove(key);
                self.room.forget(old.unwrap_or_default());
                self.gate.note_change(key);
            }
            (Step::Put { value, expires }, pair) => {
                check(key, &value)?;
                let (mut claim, new) = (Claim::new(&self.room), cost(key, &value));
                if !claim.cover(old.unwrap_or_default(), new) {
                    self.room.refused.fetch_add(1, Relaxed);
                    return Err(Refused::Full);
                }
                claim.keep(old, new);
                self.room.note_expiry(expires);
                self.gate.note_change(key);
                match pair {
                    Some(pair) => **pair = Pair { value, expires },
                    None => list.push(key, Pair { value, expires }),
                }
            }
        }
        Ok(())
    }

    fn each(&self, now: Time, take: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        for list in &self.lists {
            let list = lock(list);
            for node in list.nodes() {
                let pair = copy_of(&node.pair);
                if pair.is_there(now) && !take(&node.key, &pair.value) {
                    return;
                }
            }
        }
    }

    fn clear(&self) {
        self.gate.note_clear();
        for list in &self.lists {
            self.remove_where(list, |_| true);
        }
    }

    fn sweep(&self, now: Time) -> u64 {
        if !self.room.take_expiring() {
            return 0;
        }
        let is_gone = |pair: &Pair| {
            self.room.note_expiry(pair.expires);
            !pair.is_there(now)
        };
        let gone = self.lists.iter().map(|list| self.remove_where(list, is_gone)).sum();
        self.room.expired.fetch_add(gone, Relaxed);
        gone
    }

    fn figures(&self) -> Figures {
        self.room.figures()
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn set_bytes_max(&self, bytes_max: u64) {
        self.room.set_bytes_max(bytes_max);
    }
}
