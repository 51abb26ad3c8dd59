//! Bytes of chunks that a write has to itself from when it begins until it ends, whichever worker
//! has it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slice::ChunkId;

/// The claims of all workers of a server.
///
/// A write that goes on to other servers is made here after it was made there. Two writes of the
/// same bytes at a time could be made here in another order than there, and the copies would differ
/// for good. So a second one is refused while the first has not ended. There are as many claims as
/// writes under way, which are bounded where requests are taken in.
#[derive(Debug, Default)]
pub struct Claims {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<ChunkId, Vec<(u64, Range<u64>)>>,
    next: u64,
    /// They keep nobody out.
    #[cfg(test)]
    is_off: bool,
}

/// A claim, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    claims: Arc<Claims>,
    chunk: ChunkId,
    number: u64,
}

impl Claims {
    /// Claims bytes of a chunk; none where some of them are claimed.
    pub fn take(self: &Arc<Self>, chunk: ChunkId, bytes: Range<u64>) -> Option<Claim> {
        let mut state = self.lock();
        let number = state.next;
        #[cfg(test)]
        let is_off = state.is_off;
        let held = state.chunks.entry(chunk).or_default();
        let is_taken =
            held.iter().any(|(_, held)| held.start < bytes.end && bytes.start < held.end);
        #[cfg(test)]
        let is_taken = is_taken && !is_off;
        if is_taken {
            return None;
        }
        held.push((number, bytes));
        state.next += 1;
        Some(Claim { claims: Arc::clone(self), chunk, number })
    }

    /// Has them keep nobody out, for tests that must notice.
    #[cfg(test)]
    pub(crate) fn switch_off(&self) {
        self.lock().is_off = true;
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().chunks.values().map(Vec::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.claims.lock();
        if let Some(held) = state.chunks.get_mut(&self.chunk) {
            held.retain(|(number, _)| *number != self.number);
            if held.is_empty() {
                state.chunks.remove(&self.chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_claimed_once_at_a_time_and_others_beside_them() {
        let claims = Arc::new(Claims::default());
        let (one, other) = (ChunkId(1), ChunkId(2));
        let first = claims.take(one, 10..20).expect("nobody has them");
        assert!(claims.take(one, 19..21).is_none());
        assert!(claims.take(one, 0..11).is_none());
        let beside = claims.take(one, 20..30).expect("nobody has them");
        let elsewhere = claims.take(other, 10..20).expect("another chunk");
        drop(first);
        assert!(claims.take(one, 19..21).is_none(), "the second half is claimed");
        drop(claims.take(one, 0..20).expect("they are free again"));
        drop((beside, elsewhere));
        assert!(claims.lock().chunks.is_empty(), "nothing is kept of what has ended");
    }
}
