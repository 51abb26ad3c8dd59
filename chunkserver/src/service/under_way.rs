//! What the store has from one worker: bytes of each class, changes of each link.

use towpath_base::share::may_take;
use towpath_transport::Class;

use super::limits::CHANGES_MAX;
use super::scheduler::Due;

/// Bytes of reads and writes of a class that the store may have from one worker, beyond one
/// request: Copper's would else take the worker's buffers for answers. It is some milliseconds of a
/// disk.
const BYTES_MAX: [u64; Class::COUNT] = [u64::MAX, u64::MAX, 4 << 20];

/// Requests that the store has.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Bytes of reads and writes.
    bytes: [u64; Class::COUNT],
    changes: [Changes; Class::COUNT],
}

/// Changes of one class. The store may hold each of them, until others of its chunk have ended or
/// there is room.
#[derive(Debug, Default)]
struct Changes {
    all: usize,
    /// By the index of the link.
    by_link: Vec<usize>,
}

impl Changes {
    fn of(&self, link: usize) -> usize {
        self.by_link.get(link).copied().unwrap_or(0)
    }

    /// Whether the store may have one more of a link.
    fn has_room(&self, link: usize) -> bool {
        may_take(self.of(link), CHANGES_MAX.saturating_sub(self.all))
    }

    fn add(&mut self, link: usize) {
        self.by_link.resize(self.by_link.len().max(link + 1), 0);
        self.by_link[link] += 1;
        self.all += 1;
    }

    fn sub(&mut self, link: usize) {
        if let Some(held) = self.by_link.get_mut(link).filter(|held| **held > 0) {
            *held -= 1;
            self.all -= 1;
        }
    }
}

impl UnderWay {
    /// Whether the store may have a request: its bytes are not too many for its class, and a change
    /// is within the share of its link.
    pub(super) fn has_room(&self, due: &Due) -> bool {
        let class = due.class.index();
        let bytes = self.bytes[class];
        let has_room = bytes == 0 || bytes.saturating_add(due.bytes) <= BYTES_MAX[class];
        has_room && (!due.kind.is_change() || self.changes[class].has_room(due.link))
    }

    /// The store has it.
    pub(super) fn add(&mut self, due: &Due) {
        let class = due.class.index();
        self.bytes[class] += due.bytes;
        if due.kind.is_change() {
            self.changes[class].add(due.link);
        }
    }

    /// The store has it no more.
    pub(super) fn sub(&mut self, due: &Due) {
        let class = due.class.index();
        self.bytes[class] = self.bytes[class].saturating_sub(due.bytes);
        if due.kind.is_change() {
            self.changes[class].sub(due.link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of a link under way, as a server has it by default.
    const UNDER_WAY: usize = 256;

    #[test]
    fn links_whose_changes_wait_for_ever_leave_room_for_those_of_another_one() {
        for links in [1, 2, 3, 4, 16, 64, 256, 1000] {
            let mut changes = Changes::default();
            let mut before = usize::MAX;
            while changes.all != before {
                before = changes.all;
                for link in 0..links {
                    if changes.of(link) < UNDER_WAY && changes.has_room(link) {
                        changes.add(link);
                    }
                }
            }
            if links == 1 {
                assert_eq!(changes.of(0), UNDER_WAY, "one that is alone has all that it may");
            }
            let left = CHANGES_MAX - changes.all;
            assert!(left * (links + 2) >= CHANGES_MAX, "{links} links leave {left}");
            assert!(changes.has_room(links), "{links} links leave none for another one");
            (0..links).for_each(|link| (0..UNDER_WAY).for_each(|_| changes.sub(link)));
            assert_eq!(changes.all, 0);
        }
    }
}
