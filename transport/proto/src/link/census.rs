//! What a link holds now: for tests, and for finding leaks.

use super::Link;
use crate::channel::Channel;

/// What a link holds now. When everything sent has had its outcome, everything received was given
/// back and both ends are [idle](Link::is_idle), all but `channels` and the totals are zero, and
/// each total of one direction is the same at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCensus {
    /// Channels that have a place.
    pub channels: usize,
    /// Messages being sent.
    pub sends: usize,
    /// Messages being received.
    pub incoming: usize,
    /// Message ids of received messages that are kept, over all channels.
    pub incoming_ids: usize,
    /// Message ids assigned to messages without an outcome, or kept for one before them.
    pub sent_ids_open: u64,
    /// Control chunks that wait, or have no acknowledgement.
    pub control: usize,
    /// Frames that were found lost, and rests of pieces, that wait to be sent.
    pub lost: usize,
    /// Bytes that count as in flight.
    pub in_flight_bytes: u64,
    /// Events that were not taken.
    pub events: usize,
    /// Pieces received whose buffers were not given back: credit that the peer lacks.
    pub credit_held: u64,
    /// Pieces sent, over all channels, each of which took a credit.
    pub credit_used_total: u64,
    /// Pieces of the peer that came, or never will: the peer's `credit_used_total`.
    pub credit_taken_total: u64,
    /// Message ids assigned, over all channels.
    pub sent_ids_total: u64,
    /// Message ids of the peer that have ended, with none open before them: the peer's
    /// `sent_ids_total`.
    pub ended_ids_total: u64,
}

impl LinkCensus {
    fn add(&mut self, channel: &Channel) {
        let (tx, rx) = (&channel.tx, &channel.rx);
        self.channels += 1;
        self.incoming_ids += rx.open_ids();
        self.sent_ids_open += tx.open_ids();
        self.credit_held += rx.held();
        self.credit_used_total += tx.used();
        self.credit_taken_total += rx.accepted();
        self.sent_ids_total += tx.ids();
        self.ended_ids_total += rx.ended_ids();
    }
}

impl Link {
    /// What it holds now. Takes time in proportion to what is configured: not for the data path.
    #[must_use]
    pub fn census(&self) -> LinkCensus {
        let mut census = LinkCensus {
            sends: self.sends.len(),
            incoming: self.receives.len(),
            control: self.control.len(),
            lost: self.sends.lost.len(),
            in_flight_bytes: self.paths.iter().map(|path| path.tx.in_flight_bytes()).sum(),
            events: self.events.len(),
            ..LinkCensus::default()
        };
        self.channels.all.iter().flatten().for_each(|channel| census.add(channel));
        census
    }
}
