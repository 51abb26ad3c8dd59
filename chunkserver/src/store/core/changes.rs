//! The changes on their way: which of them gather for a group, how they leave their chunks, and
//! what is promised to them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use slab::Slab;
use towpath_transport::Class;

use super::change::{Change, Head, Kind, Member};
use crate::store::error::{ChangeError, Refused};
use crate::store::hash::NameHash;
use crate::store::slice::ChunkId;

/// Who asked, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The number of who asked.
    pub asker: usize,
    /// The mark of the request.
    pub token: u64,
}

/// A chunk that changes are under way for.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// None where they delete it.
    pub(super) head: Option<Head>,
    /// How many they are.
    count: usize,
    /// The last of them may fail, and if it does, what comes after it is not what it seems:
    /// changes wait until its fate is known.
    pub(super) is_barrier: bool,
}

/// How much of one class gathers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gathered {
    pub(super) members: usize,
    pub(super) record_bytes: u64,
    pub(super) data_bytes: u64,
}

/// Changes that no group under way has.
#[derive(Debug, Default)]
struct Gathering {
    /// In the order of their effect.
    members: Vec<usize>,
    /// What they are, class by class: none keeps another from gathering.
    by_class: [Gathered; Class::COUNT],
    /// Pages that stand in the log behind their records.
    logged_pages: usize,
    /// Changes of this kind were ready when the last group closed, and others went first.
    passed_over: Option<Kind>,
}

impl Gathering {
    fn add<W>(&mut self, key: usize, member: &Member<W>) {
        self.members.push(key);
        self.logged_pages += member.logged_pages();
        let of_class = &mut self.by_class[member.class.index()];
        of_class.members += 1;
        of_class.record_bytes += member.record_bytes as u64;
        of_class.data_bytes += member.data_bytes();
    }
}

/// What changes under way will take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promised {
    /// Chunks made less chunks deleted.
    pub(super) chunks: i64,
    /// Slots of resident chunks.
    pub(super) slots: u64,
    /// Blocks of the map.
    pub(super) blocks: u64,
}

/// All changes that are neither durable nor refused.
#[derive(Debug)]
pub(super) struct Changes<W> {
    members: Slab<Member<W>>,
    gathering: Gathering,
    pending: HashMap<ChunkId, Pending, NameHash>,
    promised: Promised,
}

impl<W> Changes<W> {
    pub(super) fn new(hash: NameHash) -> Self {
        let (gathering, promised) = (Gathering::default(), Promised::default());
        Self { members: Slab::new(), gathering, pending: HashMap::with_hasher(hash), promised }
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn get(&self, key: usize) -> Option<&Member<W>> {
        self.members.get(key)
    }

    pub(super) fn get_mut(&mut self, key: usize) -> Option<&mut Member<W>> {
        self.members.get_mut(key)
    }

    /// What the changes under way make of a chunk; none where there are none for it.
    pub(super) fn pending(&self, chunk: ChunkId) -> Option<&Pending> {
        self.pending.get(&chunk)
    }

    /// What those under way will take.
    pub(super) fn promised(&self) -> Promised {
        self.promised
    }

    /// How much of a class gathers.
    pub(super) fn gathered(&self, class: Class) -> Gathered {
        self.gathering.by_class[class.index()]
    }

    /// Bytes of slices that gather.
    pub(super) fn data_bytes(&self) -> u64 {
        self.gathering.by_class.iter().map(|of_class| of_class.data_bytes).sum()
    }

    /// Pages of slices that gather to stand in the log.
    pub(super) fn logged_pages(&self) -> usize {
        self.gathering.logged_pages
    }

    /// The members that no group has, in the order of their effect.
    pub(super) fn gathering(&self) -> &[usize] {
        &self.gathering.members
    }

    /// Of which kind changes were passed over by the last group.
    pub(super) fn passed_over(&self) -> Option<Kind> {
        self.gathering.passed_over
    }

    /// Adds a member to those that gather, which leaves its chunk like that; gives its key.
    pub(super) fn add(&mut self, member: Member<W>, head: Option<Head>) -> usize {
        self.promised.chunks += member.change.chunks();
        self.promised.slots += member.slots;
        self.promised.blocks += member.blocks;
        if !matches!(member.change, Change::Seal) {
            let pending = self.pending.entry(member.chunk).or_default();
            (pending.head, pending.count) = (head, pending.count + 1);
            pending.is_barrier |= member.is_barrier();
        }
        let key = self.members.insert(member);
        self.gathering.add(key, &self.members[key]);
        key
    }

    /// Takes members away from those that gather, for a group whose first record has that number;
    /// gives how many writes of their data are under way.
    pub(super) fn close(
        &mut self,
        members: &[usize],
        sequence: u64,
        passed_over: Option<Kind>,
    ) -> usize {
        let mut data_left = 0;
        for (key, version) in members.iter().zip(sequence..) {
            let member = &mut self.members[*key];
            (member.is_closed, member.version) = (true, version);
            data_left += member.writes_left;
        }
        let mut gathered = std::mem::take(&mut self.gathering);
        for key in gathered.members.drain(..).filter(|key| !self.members[*key].is_closed) {
            self.gathering.add(key, &self.members[key]);
        }
        self.gathering.passed_over = passed_over;
        data_left
    }

    /// None gathers any more; gives those that did.
    pub(super) fn give_up(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.gathering).members
    }

    /// Takes a member away, and gives up what was promised to it.
    pub(super) fn remove(&mut self, key: usize) -> Member<W> {
        let member = self.members.remove(key);
        self.promised.slots -= member.slots;
        self.promised.blocks -= member.blocks;
        self.promised.chunks -= member.change.chunks();
        if !matches!(member.change, Change::Seal)
            && let Entry::Occupied(mut pending) = self.pending.entry(member.chunk)
        {
            pending.get_mut().count -= 1;
            if pending.get().count == 0 {
                pending.remove();
            }
        }
        member
    }

    /// Checks again those of `keys` that change a chunk, in order and from its durable state on:
    /// those that can no longer happen fail as well.
    pub(super) fn reconsider(
        &mut self,
        chunk: ChunkId,
        keys: &[usize],
        mut head: Option<Head>,
        has_residence: bool,
    ) {
        for key in keys {
            let member = &mut self.members[*key];
            if member.chunk != chunk || member.failed.is_some() {
                continue;
            }
            let Head { byte_len, version, .. } = head.unwrap_or_default();
            member.failed = match member.change {
                _ if member.terms.version.is_some_and(|expected| expected != version) => {
                    Some(Refused::OtherVersion { version }.into())
                }
                Change::Finish { byte_len: wanted } if wanted != byte_len => {
                    Some(ChangeError::WrongLength { byte_len })
                }
                _ => None,
            };
            if member.failed.is_none() {
                head = member.head_after(head, has_residence);
            }
        }
        if let Some(pending) = self.pending.get_mut(&chunk) {
            pending.head = head;
        }
    }
}
