//! The stores: what an operation takes, and which lock it needs.

use super::plan::{Plan, Program};
use std::collections::VecDeque;
use towpath_kv::limits::BUCKETS;
use towpath_kv::workload::{Kind, Task, scramble};

const ABSENT: u32 = u32::MAX;

/// The lists of the thesis, or our table.
#[derive(Debug)]
pub(super) struct Model {
    is_lists: bool,
    /// Entries of each list.
    lengths: Vec<u32>,
    /// By key: how many entries of its list are older.
    older: Vec<u32>,
    store: u64,
    /// For each entry that is looked at.
    list: u64,
    change: u64,
}

impl Model {
    /// Lists are empty at the begin, as the thesis's are; the keys of YCSB are loaded before.
    pub(super) fn new(plan: &Plan, loaded: bool) -> Self {
        let is_lists = plan.program == Program::Thesis;
        let mut model = Self {
            is_lists,
            lengths: vec![0; plan.lists.max(1) as usize],
            older: if is_lists { vec![ABSENT; plan.keys as usize] } else { Vec::new() },
            store: plan.costs.store,
            list: plan.costs.list,
            change: plan.costs.change,
        };
        if loaded && is_lists {
            (0..plan.keys).for_each(|key| model.insert(key));
        }
        model
    }

    /// Which lock an operation needs. GETs of the thesis's program take none, whatever its text
    /// says; and by its table 4.4 hardly anything waits for one.
    pub(super) fn lock(&self, task: Task) -> Option<usize> {
        (self.is_lists && task.kind != Kind::Read).then(|| number(task.key, BUCKETS))
    }

    /// What an operation takes, and does it.
    pub(super) fn carry_out(&mut self, task: Task) -> u64 {
        let changes = task.kind != Kind::Read;
        if !self.is_lists {
            return self.store + if changes { self.change } else { 0 };
        }
        let key = task.key as usize;
        if key >= self.older.len() {
            self.older.resize(key + 1, ABSENT);
        }
        let length = self.lengths[number(task.key, self.lengths.len())];
        // New entries are put in front.
        let looked_at = match self.older[key] {
            ABSENT => length,
            older => length - older,
        };
        if changes && self.older[key] == ABSENT {
            self.insert(task.key);
        }
        self.store + u64::from(looked_at) * self.list
    }

    fn insert(&mut self, key: u64) {
        let list = number(key, self.lengths.len());
        let length = &mut self.lengths[list];
        self.older[key as usize] = *length;
        *length += 1;
    }
}

fn number(key: u64, of: usize) -> usize {
    // Another function than that of the draws, which would put popular keys into one list.
    (scramble(key ^ 0x5bd1_e995) % of as u64) as usize
}

/// A mutex: who waits sleeps.
#[derive(Debug, Default)]
pub(super) struct Lock {
    is_held: bool,
    waiting: VecDeque<u32>,
}

impl Lock {
    /// Whether it is the thread's now; otherwise it waits.
    pub(super) fn take(&mut self, thread: u32) -> bool {
        if self.is_held {
            self.waiting.push_back(thread);
        }
        !std::mem::replace(&mut self.is_held, true)
    }

    /// Gives it back, or to the thread that has waited longest.
    pub(super) fn release(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        self.is_held = next.is_some();
        next
    }
}
