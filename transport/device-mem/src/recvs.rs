//! Receives on their way from the owner of a queue to who lands messages in them.

use rtrb::{Consumer, Producer, RingBuffer};
use towpath_memory::{Holder, Holds, MrTable};
use towpath_verbs::{BadWr, PdNum, RecvWr, Verb, VerbError};

/// A posted receive work request, and what it holds for the port.
#[derive(Debug, Default)]
pub(crate) struct PostedRecv {
    pub(crate) wr_id: u64,
    pub(crate) list: Holds,
}

/// The taking end of a receive queue.
pub(crate) struct Recvs {
    posted: Consumer<PostedRecv>,
    /// Of a shared queue, what came out of `posted`, oldest first; as many again as fit that.
    stack: Option<Vec<PostedRecv>>,
    depth: usize,
}

impl Recvs {
    /// Of one queue pair: taken in the order in which they were posted.
    pub(crate) fn new(depth: u32) -> (Producer<PostedRecv>, Self) {
        let depth = depth as usize;
        let (producer, posted) = RingBuffer::new(depth);
        (producer, Self { posted, stack: None, depth })
    }

    /// Shared by queue pairs. The order in which these are taken is the device's own affair: the
    /// one posted last is, whose memory is the likeliest to be in the CPU's caches.
    pub(crate) fn shared(depth: u32) -> (Producer<PostedRecv>, Self) {
        let (producer, recvs) = Self::new(depth);
        let stack = Some(Vec::with_capacity(recvs.depth));
        (producer, Self { stack, ..recvs })
    }

    /// Lets what was posted so far to a shared queue be the next. The owner may post on at any
    /// time; a message that is landing keeps to the receive that it has looked at.
    #[inline]
    pub(crate) fn refill(&mut self) {
        let Some(stack) = &mut self.stack else { return };
        if self.posted.is_empty() {
            return;
        }
        let count = self.posted.slots().min(self.depth - stack.len());
        if let Ok(posted) = self.posted.read_chunk(count) {
            stack.extend(posted);
        }
    }

    /// The next, which stays where it is until it is [taken](Self::take_peeked).
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&PostedRecv> {
        if self.stack.as_ref().is_some_and(Vec::is_empty) {
            self.refill();
        }
        match &self.stack {
            Some(stack) => stack.last(),
            None => self.posted.peek().ok(),
        }
    }

    /// Gives up what the one that [`peek`](Self::peek) has shown holds, and drops it in its place.
    #[inline]
    pub(crate) fn finish_peeked(&mut self, mrs: &mut MrTable) {
        let Some(stack) = &mut self.stack else {
            if let Ok(wr) = self.posted.pop() {
                mrs.release_all(wr.list);
            }
            return;
        };
        if let Some(wr) = stack.last_mut() {
            mrs.release_each(&mut wr.list);
            stack.truncate(stack.len() - 1);
        }
    }

    /// Takes the one that [`peek`](Self::peek) has shown.
    #[inline]
    pub(crate) fn take_peeked(&mut self) -> Option<PostedRecv> {
        match &mut self.stack {
            Some(stack) => stack.pop(),
            None => self.posted.pop().ok(),
        }
    }

    /// Takes all back.
    pub(crate) fn clear(&mut self, mrs: &mut MrTable) {
        while let Some(wr) = self.pop() {
            mrs.release_all(wr.list);
        }
    }

    /// Takes the next.
    pub(crate) fn pop(&mut self) -> Option<PostedRecv> {
        self.peek()?;
        self.take_peeked()
    }
}

/// Posts to a queue what queue pairs of a domain may name; the port's table takes the holds.
pub(crate) fn post(
    verb: Verb,
    (pd, mrs, lands): (PdNum, &MrTable, Holder),
    queue: &mut Producer<PostedRecv>,
    wrs: &[RecvWr],
) -> Result<(), BadWr> {
    let count = queue.slots().min(wrs.len());
    // In their places: a list of holds is long. What is posted is posted by the commit alone.
    let Ok(mut chunk) = queue.write_chunk(count) else {
        return Err(BadWr { index: 0, error: VerbError::QueueFull(verb) });
    };
    let (first, second) = chunk.as_mut_slices();
    let places = first.iter_mut().chain(second);
    let is_held = |(place, wr): (&mut PostedRecv, &RecvWr)| {
        place.wr_id = wr.wr_id;
        mrs.hold_list_as(lands, pd, &wr.sg_list, &mut place.list)
    };
    let bad = places.zip(wrs).map(is_held).position(|is_held| !is_held);
    let index = bad.unwrap_or(count);
    chunk.commit(index);
    match bad {
        Some(index) => Err(BadWr { index, error: VerbError::BadMemory(verb) }),
        None if index < wrs.len() => Err(BadWr { index, error: VerbError::QueueFull(verb) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wr(wr_id: u64) -> PostedRecv {
        PostedRecv { wr_id, list: Holds::default() }
    }

    #[test]
    fn what_was_looked_at_is_what_is_taken_whatever_is_posted_in_between() {
        for (mut owner, mut recvs) in [Recvs::new(4), Recvs::shared(4)] {
            owner.push(wr(1)).expect("an empty queue");
            assert_eq!(recvs.peek().map(|wr| wr.wr_id), Some(1));
            owner.push(wr(2)).expect("a queue of four");
            assert_eq!(recvs.take_peeked().map(|wr| wr.wr_id), Some(1));
            assert_eq!(recvs.pop().map(|wr| wr.wr_id), Some(2));
            assert!(recvs.pop().is_none());
        }
    }

    #[test]
    fn of_a_shared_queue_the_newest_that_was_there_at_the_last_look_is_next() {
        let (mut owner, mut recvs) = Recvs::shared(4);
        for wr_id in 1..=3 {
            owner.push(wr(wr_id)).expect("a queue of four");
        }
        assert_eq!(recvs.pop().map(|wr| wr.wr_id), Some(3));
        owner.push(wr(4)).expect("a queue of four");
        recvs.refill();
        let rest: Vec<u64> = std::iter::from_fn(|| recvs.pop()).map(|wr| wr.wr_id).collect();
        assert_eq!(rest, [4, 2, 1]);
    }
}
