//! Slices whose bytes lie in the log, until they are brought home to their pages.
//!
//! A small write is durable as soon as its record is, since its bytes stand behind the record. Its
//! slices have their pages from the beginning, but those are written later: many together, in the
//! order of their place, and none at all where the slice was overwritten meanwhile. Until then
//! readers are served from here. The log keeps the bytes until a checkpoint has made their pages
//! durable (docs/store-core.md sections 6 and 7).

use std::collections::BTreeMap;

use towpath_disk::{Buffers, DiskError, Op, WritePages};
use towpath_memory::Frozen;

use super::io::Purpose;
use super::space::Pin;
use super::state::StoreCore;
use crate::store::error::CommitStep;
use crate::store::slice::SLICE_BYTES;

/// Pages that are away before any is brought home, 64 MiB: what is overwritten sooner is never
/// written home.
const AWAY_LOW: usize = 16384;

/// Pages that are away at most, 128 MiB: groups wait then.
const AWAY_MAX: usize = 2 * AWAY_LOW;

/// Writes home that are under way together.
const MOVES_MAX: usize = 16;

/// Pages of one of them.
const MOVE_PAGES: usize = 16;

/// A page of data whose bytes are in the log.
#[derive(Debug)]
struct Logged {
    bytes: Frozen,
    /// How many checkpoints had begun when it was logged.
    era: u64,
    is_moving: bool,
}

/// All pages whose bytes are in the log and not at home.
#[derive(Debug, Default)]
pub(super) struct Away {
    pages: BTreeMap<u32, Logged>,
    /// How many checkpoints have begun.
    era: u64,
    /// Pages that were logged before the last of them began.
    old_count: usize,
    /// Where the way home goes on: from the first page to the last, again and again.
    next: u32,
    /// Writes home under way.
    moves: usize,
    /// The store rests: all go home.
    is_resting: bool,
    /// A page found no room at home: none goes before there may be some.
    is_stuck: bool,
    /// All that are to go are on their way: a look at each would find none.
    is_all_moving: bool,
}

impl Away {
    /// The bytes of a page that is away.
    pub(super) fn get(&self, page: u32) -> Option<&Frozen> {
        self.pages.get(&page).map(|logged| &logged.bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether any of these pages is away.
    pub(super) fn has_any(&self, page: u32, count: usize) -> bool {
        self.pages.range(page..page.saturating_add(count as u32)).next().is_some()
    }

    pub(super) fn byte_len(&self) -> u64 {
        (self.pages.len() * SLICE_BYTES) as u64
    }

    /// Whether so many more pages may be away.
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.pages.len() + count <= AWAY_MAX
    }

    /// The bytes of a page are in the log.
    pub(super) fn insert(&mut self, page: u32, bytes: Frozen) {
        let logged = Logged { bytes, era: self.era, is_moving: false };
        let before = self.pages.insert(page, logged);
        debug_assert!(before.is_none(), "a page is given out once");
        self.is_resting = false;
        // While old ones go, a new one does not.
        self.is_all_moving &= self.has_old();
    }

    /// Nobody wants the bytes of a page any more.
    pub(super) fn remove(&mut self, page: u32) {
        if let Some(logged) = self.pages.remove(&page)
            && logged.era < self.era
        {
            self.old_count -= 1;
            self.is_all_moving &= self.has_old();
        }
    }

    /// A checkpoint begins: it covers what is away now, once that is home.
    pub(super) fn begin_era(&mut self) {
        self.era += 1;
        self.is_all_moving = false;
        self.old_count = self.pages.len();
    }

    /// Whether something is away that was logged before the last checkpoint began.
    pub(super) fn has_old(&self) -> bool {
        self.old_count > 0
    }

    /// There may be room at home again.
    pub(super) fn try_again(&mut self) {
        self.is_stuck = false;
    }

    /// The first page of the next run that goes home, and the bytes of its pages.
    fn take_run(&mut self) -> Option<(u32, Buffers<WritePages>)> {
        let only_old = self.has_old();
        let is_due = only_old || self.pages.len() > AWAY_LOW || self.is_resting;
        if !is_due || self.is_all_moving {
            return None;
        }
        let era = self.era;
        let goes = |logged: &Logged| !logged.is_moving && (!only_old || logged.era < era);
        let after = self.pages.range(self.next..).find(|(_, logged)| goes(logged));
        let found = after.or_else(|| self.pages.iter().find(|(_, logged)| goes(logged)));
        let Some((&first, _)) = found else {
            self.is_all_moving = true;
            return None;
        };
        let mut from = Buffers::new();
        let run = (first..).zip(self.pages.range_mut(first..));
        for (due, (page, logged)) in run.take(MOVE_PAGES) {
            let is_next = due == *page && goes(logged);
            let Some(bytes) = is_next.then(|| WritePages::new(logged.bytes.clone()).ok()).flatten()
            else {
                break;
            };
            logged.is_moving = true;
            from.push(bytes);
        }
        self.next = first + from.len() as u32;
        Some((first, from))
    }

    /// A write home has ended, of `count` pages from `page` on.
    fn end_run(&mut self, page: u32, count: u32, is_home: bool) {
        self.moves -= 1;
        self.is_all_moving &= is_home;
        for page in page..page + count {
            match self.pages.get_mut(&page) {
                Some(logged) if logged.is_moving && is_home => self.remove(page),
                Some(logged) => logged.is_moving = false,
                // It was overwritten meanwhile.
                None => {}
            }
        }
    }
}

/// Pages on their way home. Nobody gets them before that is over.
#[derive(Debug)]
pub(super) struct Move {
    page: u32,
    count: u32,
    pin: Pin,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Brings home the slices that the checkpoint under way waits for; where it waits for none,
    /// those of more than [`AWAY_LOW`], or all while the store rests.
    pub(super) fn go_home(&mut self) {
        while self.away.moves < MOVES_MAX && !self.away.is_stuck && self.health.failed.is_none() {
            let Some((page, from)) = self.away.take_run() else { return };
            self.away.moves += 1;
            let (count, pin) = (from.len() as u32, self.space.pages.pin());
            let op = Op::write_all(self.layout.data_page(page), from);
            self.io.submit(Purpose::Home(Move { page, count, pin }), op);
        }
    }

    /// Brings all slices home, until the next write: the store has nothing else to do.
    pub fn rest(&mut self) {
        self.away.is_resting = !self.away.is_empty();
        self.away.try_again();
        self.go_home();
    }

    pub(super) fn on_home(&mut self, moved: Move, outcome: Result<(), DiskError>) {
        let Move { page, count, pin } = moved;
        self.away.end_run(page, count, outcome.is_ok());
        self.space.pages.unpin(pin);
        self.held.wake();
        match outcome {
            Ok(()) => {}
            // The bytes are safe in the log. Writes are refused until there is room.
            Err(error) if error.is_full() => {
                self.away.is_stuck = true;
                self.space.fill();
                self.measure_room();
            }
            Err(error) => self.fail_at(CommitStep::Home, &error.source),
        }
    }
}
