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
/// the last of a batch, because nobody knows whether there will be another.
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

    /// Takes a message, which asks for a completion when it is the `every`th without.
    pub(super) fn push(&mut self, mut wr: SendWr, every: u32) {
        self.unsignaled += 1;
        wr.flags.signaled = self.unsignaled >= every;
        if wr.flags.signaled {
            self.unsignaled = 0;
        }
        self.batch.push(wr);
    }

    /// Has the last message of the batch ask for a completion.
    pub(super) fn end_batch(&mut self) {
        if let Some(last) = self.batch.last_mut() {
            last.flags.signaled = true;
            self.unsignaled = 0;
        }
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
        for _ in 0..count {
            queue.push(SendWr::new(0, SendOp::Send, SgList::default()), every);
        }
        queue.end_batch();
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
