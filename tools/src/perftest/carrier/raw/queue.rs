//! What is under way on one raw queue pair.

use crate::perftest::limits::POLL_BATCH;
use towpath_verbs::{QpNum, RecvWr, RemoteAddr, SendWr, UdAddress};

/// Bits of a `wr_id` that count messages; the queue pair stands above them.
const COUNT_BITS: u32 = 48;

/// The word of the message that is `count` of its queue pair, from 1.
pub(super) fn wr_id(queue: usize, count: u64) -> u64 {
    (queue as u64) << COUNT_BITS | count
}

/// Which queue pair and message a word is of.
pub(super) fn split(wr_id: u64) -> (usize, u64) {
    ((wr_id >> COUNT_BITS) as usize, wr_id & ((1 << COUNT_BITS) - 1))
}

/// A queue pair, and how many messages it has taken and is done with.
///
/// A completion stands for all messages before it, so only some ask for one: each so many, and
/// the last before a poll, because nobody knows whether there will be another.
pub(super) struct Queue {
    pub(super) qp_num: QpNum,
    /// UD: where messages go.
    pub(super) dest: Option<UdAddress>,
    /// Where the peer's memory for this queue pair begins.
    pub(super) remote: RemoteAddr,
    pub(super) batch: Vec<SendWr>,
    /// Receives to be posted again.
    pub(super) recvs: Vec<RecvWr>,
    pub(super) posted: u64,
    pub(super) completed: u64,
    unsignaled: u32,
}

impl Queue {
    pub(super) fn new(qp_num: QpNum, dest: Option<UdAddress>, remote: RemoteAddr) -> Self {
        let (batch, recvs) = (Vec::new(), Vec::with_capacity(POLL_BATCH));
        Self { qp_num, dest, remote, batch, recvs, posted: 0, completed: 0, unsignaled: 0 }
    }

    /// Messages that have not completed.
    pub(super) fn under_way(&self) -> u64 {
        self.posted - self.completed
    }

    /// Whether the message just posted, one of `left` that go out before the next poll, may be the
    /// last here until then. They go round `queues` of `depth`: those that stay short of it are all
    /// among the last so many.
    pub(super) fn may_be_last(&self, left: u64, queues: u64, depth: u64) -> bool {
        left <= queues || self.under_way() == depth
    }

    /// Takes a message, which asks for a completion when it may be the last or is the `every`th
    /// without.
    pub(super) fn push(&mut self, mut wr: SendWr, last: bool, every: u32) {
        self.unsignaled += 1;
        wr.flags.signaled = last || self.unsignaled >= every;
        if wr.flags.signaled {
            self.unsignaled = 0;
        }
        self.batch.push(wr);
    }

    /// A completion came for message `count`; returns how many it stands for.
    pub(super) fn complete(&mut self, count: u64) -> u64 {
        let done = count.saturating_sub(self.completed);
        self.completed = self.completed.max(count);
        done
    }

    /// A new row begins: what has not completed by now was told of in another way.
    pub(super) fn forget(&mut self) {
        self.completed = self.posted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_verbs::{SendOp, SgList};

    fn queue() -> Queue {
        Queue::new(QpNum(1), None, RemoteAddr::default())
    }

    fn push(queue: &mut Queue, count: u32, every: u32) -> Vec<bool> {
        for at in 1..=count {
            queue.push(SendWr::new(0, SendOp::Send, <SgList>::default()), at == count, every);
        }
        queue.batch.drain(..).map(|wr| wr.flags.signaled).collect()
    }

    #[test]
    fn each_so_many_and_the_last_ask_for_a_completion() {
        let mut queue = queue();
        let (no, yes) = (false, true);
        assert_eq!(push(&mut queue, 7, 3), [no, no, yes, no, no, yes, yes]);
        assert_eq!(push(&mut queue, 3, 3), [no, no, yes]);
        assert_eq!(push(&mut queue, 1, 3), [yes]);
    }

    /// Posts `count` messages on queues with room for so many of 8, one after another in turn; how
    /// many of each ask for a completion, and whether the last one does.
    fn round(count: u64, room: &[u64], every: u32) -> Vec<(usize, bool)> {
        let mut queues: Vec<Queue> = room.iter().map(|_| queue()).collect();
        for (queue, room) in queues.iter_mut().zip(room) {
            queue.posted = 8 - room;
        }
        let mut next = (0..room.len()).cycle();
        for left in (1..=count).rev() {
            let at = next.by_ref().take(room.len()).find(|&at| queues[at].under_way() < 8);
            let among = room.len() as u64;
            let queue = &mut queues[at.expect("room for all of them")];
            queue.posted += 1;
            let last = queue.may_be_last(left, among, 8);
            queue.push(SendWr::new(0, SendOp::Send, <SgList>::default()), last, every);
        }
        let signaled = |wr: &SendWr| wr.flags.signaled;
        let of = |queue: &Queue| {
            let asked = queue.batch.iter().filter(|wr| signaled(wr)).count();
            (asked, queue.batch.last().is_none_or(signaled))
        };
        queues.iter().map(of).collect()
    }

    #[test]
    fn the_last_before_a_poll_asks_on_each_queue_pair_and_few_others_do() {
        assert_eq!(round(7, &[8], 3), [(3, true)]);
        assert_eq!(round(7, &[8], 100), [(1, true)]);
        assert_eq!(round(6, &[8, 1], 100), [(2, true), (1, true)]);
        for count in 1..=12 {
            let lasts = round(count, &[6, 1, 5], 100);
            assert!(lasts.iter().all(|&(_, asked)| asked), "{count}: {lasts:?}");
        }
    }

    #[test]
    fn a_completion_stands_for_what_came_before_it_and_once() {
        let mut queue = queue();
        queue.posted = 10;
        assert_eq!((queue.complete(4), queue.complete(4), queue.complete(9)), (4, 0, 5));
        assert_eq!(queue.under_way(), 1);
        queue.forget();
        assert_eq!((queue.under_way(), queue.complete(10)), (0, 0));
    }

    #[test]
    fn a_word_tells_queue_and_count() {
        assert_eq!(split(wr_id(31, 1 << 40)), (31, 1 << 40));
    }
}
