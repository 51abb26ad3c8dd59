//! Whether what several threads saw of one key could have happened one after the other.
//!
//! The search of J. Wing and C. Gong (Testing and Verifying Concurrent Objects, 1993): an operation
//! may come next if none that is left ended before it began. States that were reached before are
//! not looked at again.

use std::collections::HashSet;

/// What was done to a key, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Put this.
    Set(i64),
    /// Put this where there is nothing; whether it was.
    SetAbsent(i64, bool),
    /// Read; what was there.
    Get(Option<i64>),
    /// Removed; whether there was something.
    Del(bool),
    /// Added 1; the sum.
    Incr(i64),
    /// Removed, whether there was something or not: nobody was told.
    DelUnseen,
    /// Added 1: nobody was told the sum.
    IncrUnseen,
    /// All was lost with a server.
    Lost,
}

/// An operation, and when it began and ended: numbers of one counter.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub deed: Deed,
    pub begin: u64,
    /// None where nobody knows whether it was done: it may be done at any time, or never.
    pub end: Option<u64>,
}

/// What a key has after a deed, if it can have been done to what it had.
fn after(had: Option<i64>, deed: Deed) -> Option<Option<i64>> {
    match deed {
        Deed::Set(value) => Some(Some(value)),
        Deed::SetAbsent(value, is_put) => {
            (had.is_none() == is_put).then_some(if is_put { Some(value) } else { had })
        }
        Deed::Get(found) => (found == had).then_some(had),
        Deed::Del(was_there) => (had.is_some() == was_there).then_some(None),
        Deed::DelUnseen | Deed::Lost => Some(None),
        Deed::IncrUnseen => Some(Some(had.unwrap_or(0) + 1)),
        Deed::Incr(sum) => (had.unwrap_or(0) + 1 == sum).then_some(Some(sum)),
    }
}

/// Whether the operations could have happened one after the other, from nothing on.
///
/// # Errors
/// How many could, at most.
pub fn check(mut ops: Vec<Op>) -> Result<(), String> {
    ops.sort_by_key(|op| op.begin);
    let end = |at: usize| ops[at].end.unwrap_or(u64::MAX);
    // The earliest end from each on.
    let mut ends = vec![u64::MAX; ops.len() + 1];
    for at in (0..ops.len()).rev() {
        ends[at] = ends[at + 1].min(end(at));
    }
    // All before the number are done but those of the list, which are still under way.
    let mut open = vec![(0, Vec::new(), None)];
    let (mut seen, mut furthest) = (HashSet::new(), 0);
    while let Some((next, left, had)) = open.pop() {
        furthest = furthest.max(next - left.len());
        let bound = left.iter().map(|&at| end(at)).min().unwrap_or(u64::MAX).min(ends[next]);
        if bound == u64::MAX {
            return Ok(());
        }
        let later = (next..ops.len()).take_while(|&at| ops[at].begin < bound);
        for at in left.iter().copied().chain(later) {
            let Some(has) = after(had, ops[at].deed) else { continue };
            let skipped = left.iter().copied().chain(next..at).filter(|&other| other != at);
            let state = (next.max(at + 1), skipped.collect(), has);
            if seen.insert(state.clone()) {
                open.push(state);
            }
        }
    }
    Err(format!("after {furthest} of {} operations none can come next", ops.len()))
}

#[test]
fn what_cannot_have_happened_is_found() {
    let op = |deed, begin, end| Op { deed, begin, end: Some(end) };
    let set = |value, begin, end| op(Deed::Set(value), begin, end);
    let get = |value, begin, end| op(Deed::Get(value), begin, end);
    assert_eq!(check(vec![set(1, 1, 2), get(Some(1), 3, 4)]), Ok(()));
    assert!(check(vec![set(1, 1, 2), get(None, 3, 4)]).is_err(), "a lost write");
    assert_eq!(check(vec![set(1, 1, 4), get(None, 2, 3), get(Some(1), 5, 6)]), Ok(()));
    let back = vec![set(1, 1, 10), get(Some(1), 2, 3), get(None, 4, 5)];
    assert!(check(back).is_err(), "what was seen is gone");
    let twice = vec![op(Deed::Incr(1), 1, 3), op(Deed::Incr(1), 2, 4)];
    assert!(check(twice).is_err(), "an addition was lost");
    let both = vec![op(Deed::SetAbsent(1, true), 1, 3), op(Deed::SetAbsent(2, true), 2, 4)];
    assert!(check(both).is_err(), "both were first");
    let unknown = Op { deed: Deed::Set(1), begin: 1, end: None };
    assert_eq!(check(vec![unknown, get(None, 2, 3), get(Some(1), 4, 5)]), Ok(()));
    assert_eq!(check(vec![unknown, get(None, 2, 3)]), Ok(()));
    let lost = op(Deed::Lost, 3, 6);
    assert_eq!(check(vec![set(1, 1, 2), lost, get(Some(1), 4, 5), get(None, 7, 8)]), Ok(()));
    assert!(check(vec![set(1, 1, 2), lost, get(Some(1), 7, 8)]).is_err(), "it was lost");
    assert!(check(vec![set(1, 0, 1), get(None, 2, 2), lost]).is_err(), "not yet");
    let unseen = Op { deed: Deed::IncrUnseen, begin: 1, end: None };
    let sum = |sum, begin, end| op(Deed::Incr(sum), begin, end);
    assert_eq!(check(vec![unseen, sum(2, 2, 3)]), Ok(()));
    assert_eq!(check(vec![unseen, sum(1, 2, 3)]), Ok(()));
    assert!(check(vec![unseen, sum(3, 2, 3)]).is_err(), "it was done twice");
}
