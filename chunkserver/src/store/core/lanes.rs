//! Which class's operation a disk gets next, and how many bytes of each class it has at a time.

use smallvec::SmallVec;
use towpath_transport::Class;

/// What a class may have under way at the disk.
struct Lane {
    /// Bytes while a higher class has something there, or had just now: about what the device does
    /// in the time of one of its own operations, so that this is all that a higher class waits for.
    busy_bytes: u64,
    /// Bytes otherwise: as many as keep a device at work, and a higher class that comes waits for
    /// them once.
    calm_bytes: u64,
    /// Where several classes wait for a place in the disk's queue, one byte in so many is of this
    /// class at least.
    share: u64,
}

const LANES: [Lane; Class::COUNT] = [
    Lane { busy_bytes: u64::MAX, calm_bytes: u64::MAX, share: 1 },
    Lane { busy_bytes: 1 << 20, calm_bytes: 16 << 20, share: 4 },
    Lane { busy_bytes: 128 << 10, calm_bytes: 2 << 20, share: 16 },
];

/// Operations of a class that end without a higher one's coming before that is taken to be gone.
const CALM_AFTER: u32 = 64;

/// The bytes of each class at a disk.
#[derive(Debug)]
pub(super) struct Lanes {
    in_flight: [u64; Class::COUNT],
    /// Operations that ended since a higher class had something.
    calm: [u32; Class::COUNT],
    /// Bytes that others had while this class waited, of which it gets its share.
    owed: [u64; Class::COUNT],
}

impl Lanes {
    pub(super) fn new() -> Self {
        let (in_flight, owed) = ([0; Class::COUNT], [0; Class::COUNT]);
        Self { in_flight, calm: [CALM_AFTER; Class::COUNT], owed }
    }

    /// Whether the disk may get an operation of so many bytes. One is always allowed: no class
    /// waits for good.
    fn may_start(&self, class: Class, bytes: u64) -> bool {
        let (at, lane) = (class.index(), &LANES[class.index()]);
        let is_calm = self.calm[at] >= CALM_AFTER;
        let most = if is_calm { lane.calm_bytes } else { lane.busy_bytes };
        self.in_flight[at] == 0 || self.in_flight[at].saturating_add(bytes) <= most
    }

    /// The class whose first operation is next, of those that wait with so many bytes: the highest,
    /// unless a lower one is owed its share.
    pub(super) fn next(&mut self, waiting: [Option<u64>; Class::COUNT]) -> Option<Class> {
        let may = |class: &Class| {
            waiting[class.index()].is_some_and(|bytes| self.may_start(*class, bytes))
        };
        let able: SmallVec<[_; Class::COUNT]> = Class::ALL.into_iter().filter(may).collect();
        let is_owed = |class: &&Class| {
            let at = class.index();
            waiting[at].is_some_and(|bytes| self.owed[at] >= bytes.saturating_mul(LANES[at].share))
        };
        let next = *able.iter().skip(1).rev().find(is_owed).or(able.first())?;
        let bytes = waiting[next.index()].unwrap_or(0);
        for class in able.into_iter().filter(|class| *class > next) {
            self.owed[class.index()] += bytes;
        }
        self.owed[next.index()] = 0;
        Some(next)
    }

    pub(super) fn started(&mut self, class: Class, bytes: u64) {
        self.in_flight[class.index()] += bytes;
        for lower in Class::ALL.into_iter().filter(|lower| *lower > class) {
            self.calm[lower.index()] = 0;
        }
    }

    pub(super) fn ended(&mut self, class: Class, bytes: u64) {
        self.in_flight[class.index()] -= bytes;
        let is_alone = Class::ALL[..class.index()].iter().all(|c| self.in_flight[c.index()] == 0);
        let calm = &mut self.calm[class.index()];
        *calm = if is_alone { calm.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{Copper, Gold, Silver};

    const PAGE: u64 = 4096;

    /// A disk that does operations in the order in which it got them, `depth` at a time; each class
    /// waits with operations of so many bytes without an end. Gives the bytes that it did of each.
    fn run(depth: usize, waiting: [Option<u64>; 3], ops: usize) -> ([u64; 3], u64) {
        let (mut lanes, mut disk) = (Lanes::new(), std::collections::VecDeque::new());
        let (mut done, mut most) = ([0; 3], 0);
        for _ in 0..ops {
            while disk.len() < depth
                && let Some(class) = lanes.next(waiting)
            {
                let bytes = waiting[class.index()].expect("it waits");
                lanes.started(class, bytes);
                disk.push_back((class, bytes));
                most = most.max(lanes.in_flight[Copper.index()]);
            }
            let (class, bytes) = disk.pop_front().expect("one may always start");
            lanes.ended(class, bytes);
            done[class.index()] += bytes;
        }
        (done, most)
    }

    #[test]
    fn a_lower_class_has_few_bytes_at_the_disk_beside_a_higher_one_and_many_alone() {
        let (_, beside) = run(128, [None, Some(PAGE), Some(16 * PAGE)], 1000);
        // The first ones came before anything of Silver's did.
        assert!(beside <= 128 << 10, "{beside}");
        let (_, alone) = run(1024, [None, None, Some(16 * PAGE)], 1000);
        assert_eq!(alone, 2 << 20);
    }

    #[test]
    fn where_the_queue_of_the_disk_is_full_each_class_gets_its_share_and_the_highest_the_rest() {
        let (done, _) = run(4, [Some(PAGE), Some(PAGE), Some(PAGE)], 100_000);
        let all: u64 = done.iter().sum();
        let share = |class: Class| done[class.index()] as f64 / all as f64;
        assert!((0.18..0.26).contains(&share(Silver)), "{done:?}");
        assert!((0.04..0.08).contains(&share(Copper)), "{done:?}");
        assert!(share(Gold) > 0.65, "{done:?}");
    }

    #[test]
    fn an_operation_that_is_longer_than_its_class_may_have_goes_alone() {
        let mut lanes = Lanes::new();
        lanes.started(Gold, PAGE);
        let long = 16 << 20;
        assert_eq!(lanes.next([None, None, Some(long)]), Some(Copper));
        lanes.started(Copper, long);
        assert_eq!(lanes.next([None, None, Some(PAGE)]), None);
        lanes.ended(Copper, long);
        assert_eq!(lanes.next([None, None, Some(PAGE)]), Some(Copper));
    }
}
