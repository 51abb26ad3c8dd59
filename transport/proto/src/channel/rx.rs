//! The receiving side of a channel: open and closed message ids, order, credit.

use crate::event::IncomingKey;
use crate::limits::MESSAGE_WINDOW;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use core::hint::cold_path;
use towpath_base::WindowBitmap;

/// How a message id ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Handed to the application, or held complete until its turn.
    Delivered,
    /// Given up.
    Abandoned,
}

/// A piece or message that no correct peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RxViolation {
    /// Beyond the window of open message ids.
    MessageWindow,
    /// More pieces than were granted.
    Credit,
}

/// What is known of a message id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has ended.
    Closed(Closed),
    /// Some of it is here.
    Open(IncomingKey),
    /// Nothing of it came yet.
    New,
}

/// The receiving side of a channel.
#[derive(Debug)]
pub(crate) struct ChannelRx {
    quota: u32,
    accepted: u64,
    released: u64,
    /// The grant that the peer was last told.
    advertised: u64,
    /// In the link's list of channels whose credit is to be told.
    pub(crate) credit_due: bool,
    /// The peer asked for its credit.
    pub(crate) credit_asked: bool,
    closed: WindowBitmap,
    /// Those of them that were given up. A sender may ask again about an id as long as it keeps it
    /// open, and ids up to one window later may have ended meanwhile: older ones are forgotten.
    abandoned: BTreeSet<u64>,
    /// Open messages by id modulo the window; made with the first message.
    open: Box<[Option<IncomingKey>]>,
    /// The id whose turn it is on an ordered channel.
    pub(crate) turn: u64,
}

impl ChannelRx {
    pub(crate) fn new(quota: u32) -> Self {
        Self {
            quota,
            accepted: 0,
            released: 0,
            advertised: u64::from(quota),
            credit_due: false,
            credit_asked: false,
            closed: WindowBitmap::new(0, MESSAGE_WINDOW as usize),
            abandoned: BTreeSet::new(),
            open: Box::default(),
            turn: 0,
        }
    }

    pub(crate) fn quota(&self) -> u32 {
        self.quota
    }

    /// What is known of a message id.
    #[inline(always)]
    pub(crate) fn place(&self, id: u64) -> Result<Place, RxViolation> {
        if self.closed.contains(id) {
            cold_path();
            let is_abandoned = self.abandoned.contains(&id);
            return Ok(Place::Closed(if is_abandoned {
                Closed::Abandoned
            } else {
                Closed::Delivered
            }));
        }
        if !self.closed.reaches(id) {
            cold_path();
            return Err(RxViolation::MessageWindow);
        }
        let open = self.open.get((id % MESSAGE_WINDOW) as usize).copied().flatten();
        Ok(open.map_or(Place::New, Place::Open))
    }

    pub(crate) fn open(&mut self, id: u64, incoming: IncomingKey) {
        if self.open.is_empty() {
            self.open = vec![None; MESSAGE_WINDOW as usize].into_boxed_slice();
        }
        self.open[(id % MESSAGE_WINDOW) as usize] = Some(incoming);
    }

    /// The open message with this id.
    pub(crate) fn opened(&self, id: u64) -> Option<IncomingKey> {
        self.open.get((id % MESSAGE_WINDOW) as usize).copied().flatten()
    }

    /// Ends an id: late chunks do not reopen it. A message that waits for its turn stays known by
    /// [`opened`](Self::opened) until [`forget`](Self::forget).
    #[inline]
    pub(crate) fn close(&mut self, id: u64, verdict: Closed) {
        self.closed.insert(id);
        if verdict == Closed::Abandoned {
            let oldest = self.closed.base().saturating_sub(MESSAGE_WINDOW);
            self.abandoned = self.abandoned.split_off(&oldest);
            self.abandoned.insert(id);
        }
    }

    /// The message is handed over or dropped.
    pub(crate) fn forget(&mut self, id: u64) {
        if let Some(open) = self.open.get_mut((id % MESSAGE_WINDOW) as usize) {
            *open = None;
        }
    }

    /// Open messages, and whole ones that wait for their turn.
    pub(crate) fn open_ids(&self) -> usize {
        self.open.iter().flatten().count()
    }

    /// Ids below the oldest that has not ended.
    pub(crate) fn ended_ids(&self) -> u64 {
        self.closed.base()
    }

    /// Pieces that came or never will, cumulative.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(crate) fn is_closed(&self, id: u64) -> bool {
        self.closed.contains(id)
    }

    /// Whether the peer may send a new piece.
    #[inline(always)]
    pub(crate) fn check_credit(&self) -> Result<(), RxViolation> {
        if self.accepted < self.granted() { Ok(()) } else { Err(RxViolation::Credit) }
    }

    /// Counts a new piece against the grant, for which there was [credit](Self::check_credit).
    #[inline(always)]
    pub(crate) fn count(&mut self) {
        self.accepted += 1;
    }

    /// As if `chunks` more had come, and had been given back, and the peer had been told.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, chunks: u64) {
        self.accepted += chunks;
        self.released += chunks;
        self.advertised += chunks;
    }

    /// Counts pieces that used credit but will never come: their message was given up. More than
    /// were granted are a mistake of the peer and do not count.
    pub(crate) fn forgo(&mut self, chunks: u32) {
        let chunks = u64::from(chunks).min(self.granted() - self.accepted);
        self.accepted += chunks;
        self.released += chunks;
    }

    /// Pieces whose buffers are neither free nor given back.
    pub(crate) fn held(&self) -> u64 {
        self.accepted - self.released
    }

    /// Takes buffers back from the application or from messages that ended. More than are held
    /// are a mistake of the caller and do not count.
    pub(crate) fn release(&mut self, chunks: u64) {
        self.released += chunks.min(self.held());
    }

    pub(crate) fn granted(&self) -> u64 {
        self.released + u64::from(self.quota)
    }

    /// Whether the peer should be told now rather than with the next data: a quarter of the quota
    /// is new, or the peer has nothing left.
    pub(crate) fn should_tell_credit(&self) -> bool {
        let news = self.granted() - self.advertised;
        self.credit_asked
            || news > 0 && (news >= u64::from(self.quota / 4) || self.advertised <= self.accepted)
    }

    /// The grant, which the peer is being told now.
    pub(crate) fn tell_credit(&mut self) -> u64 {
        self.credit_asked = false;
        self.advertised = self.granted();
        self.advertised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_id_stays_abandoned_however_many_end_after_it() {
        let mut rx = ChannelRx::new(8);
        rx.close(0, Closed::Abandoned);
        for id in 1..MESSAGE_WINDOW {
            rx.close(id, Closed::Delivered);
        }
        assert_eq!(rx.place(0), Ok(Place::Closed(Closed::Abandoned)));
        assert_eq!(rx.place(1), Ok(Place::Closed(Closed::Delivered)));
        for id in MESSAGE_WINDOW..3 * MESSAGE_WINDOW {
            rx.close(id, Closed::Abandoned);
        }
        assert!(rx.abandoned.len() as u64 <= 2 * MESSAGE_WINDOW, "older ones are forgotten");
        rx.close(3 * MESSAGE_WINDOW, Closed::Delivered);
        assert_eq!(rx.place(3 * MESSAGE_WINDOW), Ok(Place::Closed(Closed::Delivered)));
    }

    #[test]
    fn ids_are_open_up_to_the_window_and_a_violation_beyond() {
        let rx = ChannelRx::new(8);
        assert_eq!(rx.place(MESSAGE_WINDOW - 1), Ok(Place::New));
        assert_eq!(rx.place(MESSAGE_WINDOW), Err(RxViolation::MessageWindow));
    }

    #[test]
    fn no_more_chunks_are_taken_than_were_granted() {
        let mut rx = ChannelRx::new(2);
        for _ in 0..2 {
            assert_eq!(rx.check_credit(), Ok(()));
            rx.count();
        }
        assert_eq!(rx.check_credit(), Err(RxViolation::Credit));
        rx.release(5);
        assert_eq!((rx.held(), rx.granted()), (0, 4), "only what was held comes back");
        assert!(rx.should_tell_credit());
        assert_eq!(rx.tell_credit(), 4);
        assert!(!rx.should_tell_credit());
    }

    #[test]
    fn chunks_that_will_never_come_give_their_credit_back() {
        let mut rx = ChannelRx::new(4);
        assert_eq!(rx.check_credit(), Ok(()));
        rx.count();
        rx.forgo(2);
        assert_eq!((rx.held(), rx.granted()), (1, 6));
        rx.forgo(9);
        assert_eq!((rx.held(), rx.granted()), (1, 9), "no more than were granted");
    }
}
