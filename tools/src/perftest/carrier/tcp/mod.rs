//! Kernel TCP as a carrier: what Towpath is compared with, given its best chance.
//!
//! Nagle's delay is off, buffers are left to the kernel's own tuning, and as many messages go into
//! a write as iperf3 puts there. A message completes when the receiver has confirmed it, as with
//! Towpath; confirmations come four times for each depth of messages. With one connection and
//! one direction calls block, as iperf3's do, so that neither end burns time on an empty socket;
//! for latency and in all other cases both ends spin, as our own polling does.

mod conn;
mod frame;

use super::{Carrier, Counters, RowPlan, Turn};
use crate::perftest::content::Content;
use crate::perftest::error::RunError;
use crate::perftest::limits::{IDLE_POLLS_MAX, IDLE_SLEEP};
use crate::perftest::patience::Patience;
use conn::Conn;
use std::net::TcpStream;

/// Messages over one or more TCP connections.
#[derive(Debug)]
pub(crate) struct Tcp {
    conns: Vec<Conn>,
    next: usize,
    content: Content,
    buffer: Vec<u8>,
    blocking: bool,
    /// Completed by a flush, to be told by the next poll.
    completed: u64,
    depth_each: u64,
    ended: usize,
    patience: Patience,
}

impl Tcp {
    /// Over these connections, reading at most `read_bytes` at a time.
    pub(crate) fn new(
        streams: Vec<TcpStream>,
        blocking: bool,
        read_bytes: u32,
    ) -> Result<Self, RunError> {
        let conns: Result<Vec<Conn>, RunError> =
            streams.into_iter().map(|stream| Conn::new(stream, blocking)).collect();
        Ok(Self {
            conns: conns?,
            next: 0,
            content: Content::new(1, false),
            buffer: vec![0; read_bytes as usize],
            blocking,
            completed: 0,
            depth_each: 0,
            ended: 0,
            patience: Patience::new(IDLE_POLLS_MAX),
        })
    }
}

impl Carrier for Tcp {
    fn prepare(&mut self, row: &RowPlan) -> Result<(), RunError> {
        self.content = Content::new(row.size, row.validate);
        let each = row.depth / self.conns.len() as u32;
        self.depth_each = u64::from(each);
        self.ended = 0;
        for conn in &mut self.conns {
            conn.prepare(row, each, &self.content);
        }
        Ok(())
    }

    fn post(&mut self, count: u64, _after: u64) -> Result<u64, RunError> {
        if let [conn] = &mut self.conns[..] {
            conn.post(count);
            return Ok(count);
        }
        let mut posted = 0;
        for _ in 0..self.conns.len() {
            let conn = &mut self.conns[self.next];
            let share = (count - posted).min(self.depth_each - conn.under_way());
            conn.post(share);
            posted += share;
            self.next = (self.next + 1) % self.conns.len();
        }
        Ok(posted)
    }

    fn flush(&mut self) -> Result<(), RunError> {
        for conn in &mut self.conns {
            self.completed += conn.flush(&mut self.content)?;
        }
        Ok(())
    }

    fn end_posting(&mut self) -> Result<(), RunError> {
        self.conns.iter_mut().for_each(Conn::end_posting);
        self.flush()
    }

    fn poll(&mut self) -> Result<Turn, RunError> {
        let mut sum = Turn { completed: std::mem::take(&mut self.completed), ..Turn::default() };
        for conn in &mut self.conns {
            let turn = conn.poll(&mut self.buffer, &mut self.content)?;
            sum.completed += turn.completed;
            sum.received += turn.received;
            self.ended += usize::from(turn.ended);
        }
        sum.ended = self.ended == self.conns.len();
        self.patience.note(sum != Turn::default());
        if self.patience.is_over() {
            std::thread::sleep(IDLE_SLEEP);
        }
        Ok(sum)
    }

    fn blocks(&self) -> bool {
        self.blocking
    }

    fn waits(&self) -> bool {
        self.patience.is_over()
    }

    fn digests(&self) -> (u64, u64) {
        (self.content.sent_digest(), self.content.received_digest())
    }

    /// The kernel retransmits without telling.
    fn counters(&self) -> Option<Counters> {
        None
    }
}
