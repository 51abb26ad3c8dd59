//! Parity parts of stripes that are being added up, whichever worker gets what they are made of.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_ec::{Code, Factor, Shape};

use super::slice::{ChunkId, SLICE_BYTES};

/// Bytes that are added up at a time: as many stripes as some clients have under way. What is more
/// is refused, and its client sends it again.
pub const SUM_BYTES_MAX: usize = 64 << 20;

/// Sums that were stored which are remembered: who asks for one again hears so.
const MADE_MAX: usize = 4096;

/// Which unit of which part, and of which writing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumName {
    /// The chunk of the part.
    pub chunk: ChunkId,
    /// Where the unit begins in it: a multiple of the slice.
    pub offset: u64,
    /// Bytes of the unit: a multiple of the slice.
    pub byte_len: u32,
    /// The version of the stripe: one that is written again has another.
    pub stamp: u64,
    /// Data and parity parts.
    pub shape: Shape,
    /// Which of the parity parts.
    pub parity: usize,
}

/// Who begins a sum: the number of who asks the store, and its link.
pub type SumOwner = (usize, usize);

/// How a sum has ended: the version of the chunk, or the code of an error.
pub type SumEnd = Result<u64, u16>;

/// The sums of all workers of a server.
#[derive(Debug, Default)]
pub struct Sums {
    state: Mutex<State>,
    /// What was added before is added again.
    #[cfg(test)]
    forgets: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Each with how many hold it.
    sums: HashMap<SumName, (Arc<Sum>, usize)>,
    bytes: usize,
    /// The same by who began them, of those who have any.
    by_owner: HashMap<SumOwner, usize>,
    /// Those that were stored lately, and the version that each made.
    made: HashMap<SumName, u64>,
    /// The same, the oldest first.
    order: VecDeque<SumName>,
}

/// A sum, for as long as anybody waits for it.
#[derive(Debug)]
struct Sum {
    name: SumName,
    owner: SumOwner,
    /// What each data part is multiplied by.
    factors: Vec<Factor>,
    of: Mutex<Of>,
}

#[derive(Debug)]
struct Of {
    bytes: Vec<u8>,
    /// Of each slice the data parts that were added.
    seen: Vec<u32>,
    /// Slices of data parts that were not.
    left: usize,
    is_taken: bool,
    end: Option<SumEnd>,
}

/// What there is of a sum.
#[derive(Debug)]
pub enum Held {
    /// It is being added up.
    Sum(Hold),
    /// It was stored lately: the chunk had this version then.
    Made(u64),
}

/// One who adds to a sum, or waits for it. The sum is forgotten with the last of them.
#[derive(Debug)]
pub struct Hold {
    sums: Arc<Sums>,
    sum: Arc<Sum>,
}

impl Sums {
    /// Takes hold of a sum, which is begun where nobody has it; none where there is no room. Nobody
    /// has more of what it has begun than it leaves free, so that there is room for another one.
    pub fn hold(self: &Arc<Self>, name: SumName, owner: SumOwner) -> Option<Held> {
        let mut state = lock(&self.state);
        if let Some(version) = state.made.get(&name) {
            return Some(Held::Made(*version));
        }
        if let Some((sum, holders)) = state.sums.get_mut(&name) {
            *holders += 1;
            return Some(Held::Sum(Hold { sums: Arc::clone(self), sum: Arc::clone(sum) }));
        }
        let byte_len = name.byte_len as usize;
        let held = state.by_owner.get(&owner).copied().unwrap_or(0);
        if held + byte_len > SUM_BYTES_MAX - state.bytes {
            return None;
        }
        let slices = byte_len / SLICE_BYTES;
        let of = Of {
            bytes: vec![0; byte_len],
            seen: vec![0; slices],
            left: slices * name.shape.k(),
            is_taken: false,
            end: None,
        };
        let (code, data) = (Code::new(name.shape), 0..name.shape.k());
        let factors = data.map(|data| Factor::new(code.coefficient(name.parity, data))).collect();
        let sum = Arc::new(Sum { name, owner, factors, of: Mutex::new(of) });
        state.bytes += byte_len;
        *state.by_owner.entry(owner).or_default() += byte_len;
        state.sums.insert(name, (Arc::clone(&sum), 1));
        Some(Held::Sum(Hold { sums: Arc::clone(self), sum }))
    }

    /// Has it forget what was added, for tests that must notice.
    #[cfg(test)]
    pub(crate) fn switch_off_seen(&self) {
        self.forgets.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(test)]
    fn forgets(&self) -> bool {
        self.forgets.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Bytes of all sums.
    #[must_use]
    pub fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }
}

impl State {
    fn remove(&mut self, sum: &Sum) {
        let byte_len = sum.name.byte_len as usize;
        self.sums.remove(&sum.name);
        self.bytes -= byte_len;
        if let Entry::Occupied(mut held) = self.by_owner.entry(sum.owner) {
            *held.get_mut() -= byte_len;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

impl Hold {
    /// Adds whole slices of a data part from `at` of the unit on. What was added before is not
    /// added again, so whoever does not know may add it once more.
    pub fn add(&self, data: usize, at: usize, bytes: &[u8]) {
        let Some(factor) = self.sum.factors.get(data) else { return };
        let (mut of, bit) = (lock(&self.sum.of), 1 << data);
        let Of { bytes: sums, seen, left, .. } = &mut *of;
        let first = at / SLICE_BYTES;
        let slices = sums.chunks_exact_mut(SLICE_BYTES).zip(seen).skip(first);
        for ((sum, seen), slice) in slices.zip(bytes.chunks_exact(SLICE_BYTES)) {
            let is_new = *seen & bit == 0;
            #[cfg(test)]
            let is_new = is_new || self.sums.forgets();
            if is_new && factor.add_to(slice, sum).is_ok() {
                *seen |= bit;
                *left = left.saturating_sub(1);
            }
        }
    }

    /// The bytes of the part, once everything is added: whoever gets them stores them.
    #[must_use]
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut of = lock(&self.sum.of);
        if of.left > 0 || of.is_taken {
            return None;
        }
        of.is_taken = true;
        Some(std::mem::take(&mut of.bytes))
    }

    /// It was stored, or not.
    pub fn finish(&self, end: SumEnd) {
        let is_first = {
            let mut of = lock(&self.sum.of);
            let is_first = of.end.is_none();
            of.end.get_or_insert(end);
            is_first
        };
        match end {
            _ if !is_first => {}
            Ok(version) => {
                let mut state = lock(&self.sums.state);
                if state.order.len() == MADE_MAX
                    && let Some(oldest) = state.order.pop_front()
                {
                    state.made.remove(&oldest);
                }
                state.order.push_back(self.sum.name);
                state.made.insert(self.sum.name, version);
            }
            // Whoever begins again begins from nothing.
            Err(_) => self.sums.forget(&self.sum),
        }
    }

    /// How it has ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<SumEnd> {
        lock(&self.sum.of).end
    }
}

impl Sums {
    fn forget(&self, sum: &Arc<Sum>) {
        let mut state = lock(&self.state);
        let is_it = state.sums.get(&sum.name).is_some_and(|(known, _)| Arc::ptr_eq(known, sum));
        if is_it {
            state.remove(sum);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = lock(&self.sums.state);
        let Some((known, holders)) = state.sums.get_mut(&self.sum.name) else { return };
        if !Arc::ptr_eq(known, &self.sum) {
            return;
        }
        *holders -= 1;
        if *holders == 0 {
            state.remove(&self.sum);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    fn name(byte_len: u32, stamp: u64) -> SumName {
        let shape = Shape::new(3, 2).expect("a shape");
        SumName { chunk: ChunkId(1), offset: 0, byte_len, stamp, shape, parity: 1 }
    }

    fn hold(sums: &Arc<Sums>, name: SumName) -> Hold {
        // Each of another link.
        match sums.hold(name, (0, name.stamp as usize)) {
            Some(Held::Sum(hold)) => hold,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_slice_of_each_data_part_counts_once_in_whatever_order_and_however_often_it_comes() {
        let seed = 61;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let name = name(4 * SLICE_BYTES as u32, 1);
        for _ in 0..50 {
            let sums = Arc::new(Sums::default());
            let mut data = vec![vec![0; name.byte_len as usize]; 3];
            data.iter_mut().for_each(|part| prng.fill(part));
            let hold = hold(&sums, name);
            let mut seen = std::collections::HashSet::new();
            while seen.len() < 12 {
                assert!(hold.take().is_none());
                let (part, first) = (prng.below(3) as usize, prng.below(4) as usize);
                let count = 1 + prng.below(4 - first as u64) as usize;
                let at = first * SLICE_BYTES;
                hold.add(part, at, &data[part][at..at + count * SLICE_BYTES]);
                seen.extend((first..first + count).map(|slice| (part, slice)));
            }
            let mut parity = vec![vec![0; name.byte_len as usize]; 2];
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut into: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            Code::new(name.shape).encode(&data, &mut into).expect("equal lengths");
            assert!(hold.take().as_ref() == Some(&parity[1]));
            assert!(hold.take().is_none(), "one stores it");
            hold.finish(Ok(7));
            assert_eq!(hold.end(), Some(Ok(7)));
            drop(hold);
            assert_eq!(sums.bytes(), 0);
            assert!(matches!(sums.hold(name, (0, 0)), Some(Held::Made(7))), "it is remembered");
        }
    }

    #[test]
    fn sums_are_bounded_and_gone_with_the_last_who_waits() {
        let sums = Arc::new(Sums::default());
        let byte_len = 16 << 20;
        let held: Vec<Hold> = (0..4).map(|stamp| hold(&sums, name(byte_len, stamp))).collect();
        assert!(sums.hold(name(byte_len, 9), (0, 9)).is_none());
        let again = hold(&sums, name(byte_len, 0));
        drop(held);
        assert_eq!(sums.bytes(), byte_len as usize, "one of them is held");
        drop(again);
        assert_eq!((sums.bytes(), lock(&sums.state).sums.len()), (0, 0));
    }

    #[test]
    fn whoever_begins_many_sums_leaves_room_for_others() {
        let sums = Arc::new(Sums::default());
        let begin = |stamp, link| match sums.hold(name(1 << 20, stamp), (1, link)) {
            Some(Held::Sum(hold)) => Some(hold),
            _ => None,
        };
        let greedy: Vec<_> = (0..100).map_while(|stamp| begin(stamp, 0)).collect();
        assert_eq!(greedy.len(), 32, "half of all");
        let other: Vec<_> = (100..200).map_while(|stamp| begin(stamp, 1)).collect();
        assert_eq!(other.len(), 16, "half of the rest");
        assert!(begin(0, 1).is_some(), "whoever adds to one that is there needs no room");
        drop(greedy);
        assert!(begin(300, 0).is_some());
        drop(other);
        assert_eq!((sums.bytes(), lock(&sums.state).by_owner.len()), (0, 0));
    }

    #[test]
    fn a_sum_that_could_not_be_stored_begins_anew() {
        let sums = Arc::new(Sums::default());
        let first = hold(&sums, name(4096, 1));
        (0..3).for_each(|part| first.add(part, 0, &[1; 4096]));
        assert!(first.take().is_some());
        first.finish(Err(12));
        let second = hold(&sums, name(4096, 1));
        assert_eq!((first.end(), second.end()), (Some(Err(12)), None));
        drop(first);
        (0..3).for_each(|part| second.add(part, 0, &[1; 4096]));
        assert!(second.take().is_some(), "nothing of the first is in it");
        drop(second);
        assert_eq!(sums.bytes(), 0);
    }
}
