//! Receives on their way from the owner of a queue to who lands messages in them.

use rtrb::{Consumer, Producer, RingBuffer};
use towpath_verbs::RecvWr;

/// The taking end of a receive queue.
pub(crate) struct Recvs {
    posted: Consumer<RecvWr>,
    /// Of a shared queue, what came out of `posted`, oldest first; as many again as fit that.
    stack: Option<Vec<RecvWr>>,
    depth: usize,
}

impl Recvs {
    /// Of one queue pair: taken in the order in which they were posted.
    pub(crate) fn new(depth: u32) -> (Producer<RecvWr>, Self) {
        let depth = depth as usize;
        let (producer, posted) = RingBuffer::new(depth);
        (producer, Self { posted, stack: None, depth })
    }

    /// Shared by queue pairs. The order in which these are taken is the device's own affair: the
    /// one posted last is, whose memory is the likeliest to be in the CPU's caches.
    pub(crate) fn shared(depth: u32) -> (Producer<RecvWr>, Self) {
        let (producer, recvs) = Self::new(depth);
        let stack = Some(Vec::with_capacity(recvs.depth));
        (producer, Self { stack, ..recvs })
    }

    /// The next, which stays where it is.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&RecvWr> {
        let Some(stack) = &mut self.stack else { return self.posted.peek().ok() };
        while stack.len() < self.depth
            && let Ok(wr) = self.posted.pop()
        {
            stack.push(wr);
        }
        stack.last()
    }

    /// Takes the next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<RecvWr> {
        self.peek()?;
        match &mut self.stack {
            Some(stack) => stack.pop(),
            None => self.posted.pop().ok(),
        }
    }
}
