//! Where the slices of resident chunks lie, as servers have told.

use super::slot::SLOT_BYTES;
use crate::control::{LocateReply, SlotRun};
use crate::limits::{PLACES_CHUNKS_MAX, PLACES_RUNS_MAX, RUNS_MAX};
use crate::slice::{ChunkId, SLICE_BYTES};
use crate::wire::WireError;
use std::collections::{BTreeMap, HashMap, VecDeque};
use towpath_transport::{GrantId, Time};

/// Slots that lie together and hold slices that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) slot: u32,
    pub(crate) count: u32,
}

/// A checked answer to a locate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    grant: GrantId,
    byte_len: u64,
    /// One past the last slice that the answer tells of; none: of all from the first that was
    /// asked for.
    told_to: Option<u64>,
    runs: Vec<(u64, Run)>,
}

impl Located {
    /// What a server says of a chunk from slice `first_slice` on; none where the chunk has no
    /// slots. Nothing that a server says makes a READ leave the 4 GiB that an offset can name.
    ///
    /// # Errors
    /// [`WireError::Runs`].
    pub fn check(first_slice: u64, reply: &LocateReply) -> Result<Option<Self>, WireError> {
        if !reply.resident {
            return Ok(None);
        }
        let slices = reply.byte_len.div_ceil(SLICE_BYTES as u64);
        let mut next = first_slice;
        let mut runs = Vec::with_capacity(reply.runs.len().min(RUNS_MAX));
        for &SlotRun { first_slice, slot, count } in &reply.runs {
            let end = first_slice.checked_add(count.into()).filter(|end| *end <= slices);
            let slots_end = u64::from(slot) + u64::from(count);
            let is_reachable = slots_end * SLOT_BYTES as u64 <= u64::from(u32::MAX);
            match end {
                Some(end) if first_slice >= next && count > 0 && is_reachable => {
                    runs.push((first_slice, Run { slot, count }));
                    next = end;
                }
                _ => return Err(WireError::Runs),
            }
        }
        if runs.len() > RUNS_MAX || reply.more && runs.is_empty() {
            return Err(WireError::Runs);
        }
        let told_to = reply.more.then_some(next);
        Ok(Some(Self { grant: GrantId(reply.grant), byte_len: reply.byte_len, told_to, runs }))
    }

    /// The runs, with the slice that each begins with.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

/// What is known of a chunk.
#[derive(Clone, Debug)]
enum Place {
    /// It has no slots, as far as was known: nobody asks again before that time.
    Nowhere { until: Time },
    /// Its slots.
    Slots { grant: GrantId, byte_len: u64, runs: BTreeMap<u64, Run> },
}

/// What a range of slices was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// Not known: ask from this slice on.
    Unknown(u64),
    /// It has no slots, or ends beyond what the chunk was known to have.
    Elsewhere,
    /// These runs hold it, in order: first slice, and its slots.
    Runs { grant: GrantId, byte_len: u64, runs: Vec<(u64, Run)> },
}

/// What is known of all chunks: bounded, the longest known go first.
#[derive(Debug, Default)]
pub(crate) struct Places {
    chunks: HashMap<ChunkId, Place>,
    order: VecDeque<ChunkId>,
    runs: usize,
}

impl Places {
    /// Where slices `first` to `last` of a chunk lie, of which the bytes up to `end` are wanted.
    pub(crate) fn find(
        &self,
        now: Time,
        chunk: ChunkId,
        (first, last): (u64, u64),
        end: u64,
    ) -> Range {
        let (grant, byte_len, known) = match self.chunks.get(&chunk) {
            Some(Place::Nowhere { until }) if now < *until => return Range::Elsewhere,
            Some(Place::Slots { grant, byte_len, runs }) => (*grant, *byte_len, runs),
            // One question tells of all slices, where their runs fit one answer.
            _ => return Range::Unknown(0),
        };
        if end > byte_len {
            return Range::Elsewhere;
        }
        let mut next = first;
        let mut runs = Vec::new();
        while next <= last {
            let before = known.range(..=next).next_back();
            let Some((&start, &Run { slot, count })) = before else { return Range::Unknown(next) };
            let skip = next - start;
            if skip >= u64::from(count) {
                return Range::Unknown(next);
            }
            let count = (u64::from(count) - skip).min(last + 1 - next) as u32;
            runs.push((next, Run { slot: slot + skip as u32, count }));
            next += u64::from(count);
        }
        Range::Runs { grant, byte_len, runs }
    }

    /// Takes in that a chunk has no slots.
    pub(crate) fn learn_nowhere(&mut self, chunk: ChunkId, until: Time) {
        self.forget(chunk);
        self.insert(chunk, Place::Nowhere { until });
    }

    /// Takes in what was told of the slices from `first` on.
    pub(crate) fn learn(&mut self, chunk: ChunkId, first: u64, located: Located) {
        let Located { grant: told, byte_len: length, told_to, runs: fresh } = located;
        let is_same =
            matches!(self.chunks.get(&chunk), Some(Place::Slots { grant, .. }) if *grant == told);
        if !is_same {
            self.forget(chunk);
            let runs = BTreeMap::new();
            self.insert(chunk, Place::Slots { grant: told, byte_len: length, runs });
        }
        let Some(Place::Slots { byte_len, runs, .. }) = self.chunks.get_mut(&chunk) else { return };
        *byte_len = length;
        let before = runs.len();
        cut(runs, first, told_to.unwrap_or(u64::MAX));
        runs.extend(fresh);
        self.runs = self.runs + runs.len() - before.min(self.runs + runs.len());
        while self.runs > PLACES_RUNS_MAX && self.order.len() > 1 {
            let Some(&oldest) = self.order.iter().find(|oldest| **oldest != chunk) else { break };
            self.forget(oldest);
        }
    }

    /// Forgets a chunk whose slots are another's.
    pub(crate) fn forget(&mut self, chunk: ChunkId) {
        if let Some(place) = self.chunks.remove(&chunk) {
            self.runs -= place.runs();
            self.order.retain(|other| *other != chunk);
        }
    }

    /// Forgets all chunks whose slots lie in a grant that is gone.
    pub(crate) fn forget_grant(&mut self, gone: GrantId) {
        let is_there =
            |place: &Place| matches!(place, Place::Slots { grant, .. } if *grant == gone);
        let found = self.chunks.iter().filter(|(_, place)| is_there(place));
        let found: Vec<ChunkId> = found.map(|(&chunk, _)| chunk).collect();
        found.into_iter().for_each(|chunk| self.forget(chunk));
    }

    /// Forgets a chunk that has grown beyond what is known of it.
    pub(crate) fn forget_shorter(&mut self, chunk: ChunkId, length: u64) {
        let is_shorter =
            |place: &Place| matches!(place, Place::Slots { byte_len, .. } if *byte_len < length);
        if self.chunks.get(&chunk).is_some_and(is_shorter) {
            self.forget(chunk);
        }
    }

    fn insert(&mut self, chunk: ChunkId, place: Place) {
        if self.chunks.len() == PLACES_CHUNKS_MAX
            && let Some(&oldest) = self.order.front()
        {
            self.forget(oldest);
        }
        self.chunks.insert(chunk, place);
        self.order.push_back(chunk);
    }
}

impl Place {
    fn runs(&self) -> usize {
        match self {
            Self::Nowhere { .. } => 0,
            Self::Slots { runs, .. } => runs.len(),
        }
    }
}

/// Takes slices `from` to `to` out of `runs`.
fn cut(runs: &mut BTreeMap<u64, Run>, from: u64, to: u64) {
    let head = runs.range(..from).next_back().map(|(&start, &run)| (start, run));
    let touched: Vec<u64> = runs.range(from..to).map(|(&start, _)| start).collect();
    let mut rest = Vec::new();
    if let Some((start, run)) = head
        && start + u64::from(run.count) > from
    {
        runs.insert(start, Run { count: (from - start) as u32, ..run });
        rest.push((start, run));
    }
    for start in touched {
        rest.extend(runs.remove(&start).map(|run| (start, run)));
    }
    // What lies behind the end stays.
    for (start, Run { slot, count }) in rest {
        let end = start + u64::from(count);
        if end > to {
            let skip = (to - start) as u32;
            runs.insert(to, Run { slot: slot + skip, count: count - skip });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    const CHUNK: ChunkId = ChunkId(1);

    fn reply(byte_len: u64, runs: &[(u64, u32, u32)], more: bool) -> LocateReply {
        let runs = runs.iter();
        let runs = runs.map(|&(first_slice, slot, count)| SlotRun { first_slice, slot, count });
        LocateReply { resident: true, grant: 1, version: 1, byte_len, runs: runs.collect(), more }
    }

    #[test]
    fn impossible_answers_are_refused() {
        let bad = |first, reply: LocateReply| {
            assert_eq!(Located::check(first, &reply), Err(WireError::Runs), "{reply:?}");
        };
        bad(0, reply(4096, &[(0, 0, 0)], false));
        bad(0, reply(4096, &[(0, 0, 2)], false));
        bad(0, reply(4096, &[(u64::MAX, 0, 1)], false));
        bad(1, reply(1 << 20, &[(0, 0, 4)], false));
        bad(0, reply(1 << 20, &[(0, 0, 4), (3, 9, 1)], false));
        bad(0, reply(1 << 20, &[(0, u32::MAX, 1)], false));
        bad(0, reply(1 << 20, &[(0, u32::MAX / SLOT_BYTES as u32, 1)], false));
        bad(0, reply(1 << 20, &[], true));
        let many: Vec<_> = (0..=RUNS_MAX as u64).map(|at| (at, 0, 1)).collect();
        bad(0, reply(1 << 40, &many, false));
        let good = reply(8192, &[(0, 7, 1), (1, 5, 1)], false);
        assert_eq!(Located::check(0, &good).map(|found| found.map(|l| l.runs())), Ok(Some(2)));
        let none = LocateReply { resident: false, ..good };
        assert_eq!(Located::check(0, &none), Ok(None));
    }

    #[test]
    fn what_is_told_later_replaces_what_was_known_and_the_rest_stays() {
        let seed = 5;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let slices = 64;
        let mut places = Places::default();
        let mut model = vec![None; slices];
        for round in 0..2000 {
            let first = prng.below(slices as u64);
            let mut runs = Vec::new();
            let mut next = first;
            while next < slices as u64 && prng.below(5) > 0 {
                let count = prng.between(1, (slices as u64 - next).min(9)) as u32;
                runs.push((next, prng.below(1000) as u32, count));
                next += u64::from(count);
            }
            let more = !runs.is_empty() && prng.below(2) == 0;
            let to = if more { next as usize } else { slices };
            model[first as usize..to].fill(None);
            for &(start, slot, count) in &runs {
                for at in 0..count {
                    model[start as usize + at as usize] = Some(slot + at);
                }
            }
            let told = reply(slices as u64 * 4096, &runs, more);
            let told = Located::check(first, &told).expect("sound").expect("resident");
            places.learn(CHUNK, first, told);
            let from = prng.below(slices as u64);
            let last = prng.between(from, slices as u64 - 1);
            let found = places.find(Time::ZERO, CHUNK, (from, last), (last + 1) * 4096);
            let gap = (from..=last).find(|at| model[*at as usize].is_none());
            match (gap, found) {
                (Some(at), Range::Unknown(asked)) => assert_eq!(asked, at, "round {round}"),
                (None, Range::Runs { runs, .. }) => {
                    let mut at = from;
                    for (start, Run { slot, count }) in runs {
                        assert_eq!(start, at);
                        for place in slot..slot + count {
                            assert_eq!(model[at as usize], Some(place), "round {round}");
                            at += 1;
                        }
                    }
                    assert_eq!(at, last + 1);
                }
                other => panic!("round {round}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut places = Places::default();
        let runs: Vec<_> = (0..RUNS_MAX as u64).map(|at| (2 * at, 0, 1)).collect();
        let told = reply(1 << 30, &runs, false);
        for name in 0..3 * PLACES_RUNS_MAX / RUNS_MAX {
            let told = Located::check(0, &told).expect("sound").expect("resident");
            places.learn(ChunkId(name as u128), 0, told);
            assert!(places.runs <= PLACES_RUNS_MAX);
        }
        for name in 0..2 * PLACES_CHUNKS_MAX as u128 {
            places.learn_nowhere(ChunkId(name), Time::NEVER);
        }
        assert_eq!(
            (places.chunks.len(), places.order.len()),
            (PLACES_CHUNKS_MAX, PLACES_CHUNKS_MAX)
        );
        assert_eq!(places.runs, 0);
    }

    #[test]
    fn a_chunk_without_slots_is_asked_for_again_after_a_while() {
        let mut places = Places::default();
        let later = Time::ZERO + towpath_transport::Nanos::from_secs(1);
        let find = |places: &Places, now| places.find(now, CHUNK, (0, 0), 1);
        assert_eq!(find(&places, Time::ZERO), Range::Unknown(0));
        places.learn_nowhere(CHUNK, later);
        assert_eq!(find(&places, Time::ZERO), Range::Elsewhere);
        assert_eq!(find(&places, later), Range::Unknown(0));
        let told = Located::check(0, &reply(4096, &[(0, 3, 1)], false)).expect("sound");
        places.learn(CHUNK, 0, told.expect("resident"));
        let runs = vec![(0, Run { slot: 3, count: 1 })];
        let grant = GrantId(1);
        assert_eq!(find(&places, Time::ZERO), Range::Runs { grant, byte_len: 4096, runs });
        let beyond = places.find(Time::ZERO, CHUNK, (0, 1), 4097);
        assert_eq!(beyond, Range::Elsewhere);
        places.forget_shorter(CHUNK, 4096);
        assert_ne!(find(&places, Time::ZERO), Range::Unknown(0));
        places.forget_shorter(CHUNK, 4097);
        assert_eq!(find(&places, Time::ZERO), Range::Unknown(0));
    }
}
