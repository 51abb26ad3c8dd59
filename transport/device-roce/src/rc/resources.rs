//! What a responder owes to READs and atomics: replies in the order of their PSNs, and the
//! results of atomics, so that none is done twice.
//!
//! As the Linux rxe driver does, a READ that is asked for again is read again, and an atomic that
//! is asked for again is answered from memory: as many results are kept as the requester may have
//! outstanding (`max_dest_rd_atomic`), so one that is gone is one that it cannot want any more.

use std::collections::VecDeque;
use towpath_verbs::RemoteAddr;

/// What a reply carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// So many bytes from there.
    Read { remote: RemoteAddr, byte_len: u32 },
    /// What eight bytes were.
    Atomic { original: u64 },
}

/// An answer of its own PSNs to a READ or an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Its first packet's number.
    pub(crate) start: u64,
    /// The next packet to send.
    pub(crate) next: u64,
    /// One behind its last packet.
    pub(crate) end: u64,
    /// The message sequence number that it carries.
    pub(crate) msn: u32,
    pub(crate) content: Content,
    /// To a request that came for the first time.
    pub(crate) fresh: bool,
}

/// What came of a request for a reply that was owed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It is on its way up to there still, and goes on as it is.
    GoesOn,
    /// It is given once more from there on: so many packets more than were still owed.
    StartsOver { packets: u64 },
    /// One too many: the requester will ask again.
    Refused,
}

/// The replies and results of one queue pair.
#[derive(Default)]
pub(crate) struct Resources {
    /// By `start`. In front stand those that are handed to the link but not yet taken.
    replies: VecDeque<Reply>,
    results: VecDeque<(u64, u64)>,
    limit: usize,
}

impl Resources {
    /// For a requester with so many READs and atomics outstanding.
    pub(crate) fn new(max_dest_rd_atomic: u8) -> Self {
        let limit = usize::from(max_dest_rd_atomic);
        let replies = VecDeque::with_capacity(2 * limit);
        Self { replies, results: VecDeque::with_capacity(limit), limit }
    }

    pub(crate) fn clear(&mut self) {
        self.replies.clear();
        self.results.clear();
    }

    /// Whether the requester may have one more outstanding.
    pub(crate) fn has_room(&self) -> bool {
        self.replies.iter().filter(|reply| reply.fresh).count() < self.limit
    }

    /// Owes a reply to a new request.
    pub(crate) fn push(&mut self, reply: Reply) {
        self.replies.push_back(reply);
    }

    /// Owes a reply once more. It goes before all later ones, because the requester can use it
    /// only then.
    pub(crate) fn repeat(&mut self, again: Reply) -> Repeat {
        let at = self.replies.partition_point(|reply| reply.end <= again.start);
        if let Some(reply) = self.replies.get_mut(at).filter(|reply| reply.start <= again.start) {
            if reply.next <= again.start {
                return Repeat::GoesOn;
            }
            let owed = reply.end - reply.next;
            *reply = Reply { fresh: reply.fresh, ..again };
            return Repeat::StartsOver { packets: (again.end - again.start).saturating_sub(owed) };
        }
        if self.replies.iter().filter(|reply| !reply.fresh).count() >= self.limit {
            return Repeat::Refused;
        }
        self.replies.insert(at, again);
        Repeat::StartsOver { packets: again.end - again.start }
    }

    pub(crate) fn remember(&mut self, seq: u64, original: u64) {
        if self.results.len() == self.limit {
            self.results.pop_front();
        }
        self.results.push_back((seq, original));
    }

    pub(crate) fn result_of(&self, seq: u64) -> Option<u64> {
        self.results.iter().find(|result| result.0 == seq).map(|result| result.1)
    }

    /// The reply whose packet goes next.
    pub(crate) fn current(&mut self) -> Option<&mut Reply> {
        self.replies.iter_mut().find(|reply| reply.next < reply.end)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.replies.iter().all(|reply| reply.next == reply.end)
    }

    /// The link took the packet `seq`.
    pub(crate) fn on_taken(&mut self, seq: u64) {
        let done = |reply: &Reply| reply.next == reply.end && reply.end <= seq + 1;
        while self.replies.front().is_some_and(done) {
            self.replies.pop_front();
        }
    }

    /// The link did not take the packet `seq`.
    pub(crate) fn undo(&mut self, seq: u64) {
        let covers = |reply: &&mut Reply| reply.start <= seq && seq < reply.end;
        if let Some(reply) = self.replies.iter_mut().find(covers) {
            reply.next = reply.next.min(seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(start: u64, end: u64) -> Reply {
        let content = Content::Read { remote: RemoteAddr::default(), byte_len: 1 };
        Reply { start, next: start, end, msn: 0, content, fresh: true }
    }

    fn again(start: u64, end: u64) -> Reply {
        Reply { fresh: false, ..read(start, end) }
    }

    #[test]
    fn a_repeated_reply_starts_over_where_it_is_asked_for_and_goes_first() {
        let mut owed = Resources::new(2);
        owed.push(read(10, 20));
        owed.push(read(20, 30));
        owed.current().unwrap().next = 15;
        assert_eq!(owed.repeat(again(16, 20)), Repeat::GoesOn, "not yet there");
        assert_eq!(owed.current().unwrap().next, 15);
        assert_eq!(owed.repeat(again(12, 20)), Repeat::StartsOver { packets: 3 });
        assert_eq!((owed.current().unwrap().start, owed.current().unwrap().next), (12, 12));
        assert_eq!(owed.repeat(again(5, 10)), Repeat::StartsOver { packets: 5 }, "long gone");
        assert_eq!(owed.current().unwrap().start, 5);
        assert_eq!(owed.repeat(again(2, 5)), Repeat::StartsOver { packets: 3 });
        assert_eq!(owed.repeat(again(0, 2)), Repeat::Refused, "a storm of repeats is bounded");
        assert!(!owed.has_room());
    }

    #[test]
    fn what_the_link_did_not_take_is_sent_again_and_what_it_took_is_gone() {
        let mut owed = Resources::new(2);
        owed.push(read(10, 12));
        owed.push(read(12, 13));
        owed.current().unwrap().next = 12;
        owed.current().unwrap().next = 13;
        assert!(owed.is_idle() && owed.current().is_none());
        owed.on_taken(10);
        assert!(!owed.has_room(), "its last packet is not yet out");
        owed.on_taken(11);
        assert!(owed.has_room());
        owed.undo(12);
        assert_eq!(owed.current().unwrap().next, 12);
    }

    #[test]
    fn as_many_results_are_kept_as_can_be_outstanding() {
        let mut owed = Resources::new(2);
        for seq in 0..3 {
            owed.remember(seq, 100 + seq);
        }
        assert_eq!([0, 1, 2].map(|seq| owed.result_of(seq)), [None, Some(101), Some(102)]);
    }
}
