//! What an ack newly told, of all numbers together.

use super::{Sent, State};
use towpath_base::Time;

/// What an ack newly told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckDigest {
    pub(crate) acked_chunks: u32,
    pub(crate) acked_bytes: u64,
    /// What is not in flight any more.
    pub(crate) landed_bytes: u64,
    /// The smallest and the largest number newly acknowledged, when any was.
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
    /// When the largest acknowledged number was sent, if this ack is the first to tell of it.
    pub(crate) largest_sent_at: Option<Time>,
    /// How many were acknowledged after they had been declared lost.
    pub(crate) spurious: u32,
    /// Those of them that a timeout had declared lost, not a gap.
    pub(crate) timed_out: u32,
    /// When the oldest was sent that a gap had declared lost.
    pub(super) oldest_late: Option<Time>,
    /// Some were acknowledged after one that was sent later.
    pub(super) is_disordered: bool,
    /// Those below were overtaken: the largest number acknowledged before.
    pub(super) largest_before: Option<u64>,
    /// Of how many that a timeout had declared lost it will never be known whether they came.
    pub(crate) unknown: u32,
    /// Of how many that a timeout had declared lost it is known that they did not come.
    pub(crate) gone: u32,
    /// What the last timeouts declared lost is known: whether all of it had come.
    pub(crate) timeouts_were_false: Option<bool>,
    /// The numbers that they declared lost.
    pub(super) timed_out_numbers: (u64, u64),
}

impl AckDigest {
    /// Takes in that `number` is acknowledged; true when it was not before. What it carried is
    /// looked at in its place: a copy would cost more than the rest.
    #[inline(always)]
    pub(super) fn take_in(&mut self, number: u64, largest: u64, sent: &mut Sent) -> bool {
        let charge = u64::from(sent.charge);
        match sent.state {
            State::Done => return false,
            State::Outstanding => self.landed_bytes += charge,
            State::Lost => {
                let (first, end) = self.timed_out_numbers;
                let has_timed_out = (first..end).contains(&number);
                self.spurious += 1;
                self.timed_out += u32::from(has_timed_out);
                if !has_timed_out {
                    let oldest = self.oldest_late.unwrap_or(sent.sent_at);
                    self.oldest_late = Some(oldest.min(sent.sent_at));
                }
            }
        }
        self.is_disordered |= Some(number) < self.largest_before;
        sent.state = State::Done;
        if number == largest {
            self.largest_sent_at = Some(sent.sent_at);
        }
        self.acked_chunks += 1;
        self.acked_bytes += charge;
        self.lowest = self.lowest.min(number);
        self.highest = self.highest.max(number);
        true
    }
}
