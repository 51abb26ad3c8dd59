//! Which channel of a link sends the next piece: disciplines behind one trait, one file each.
//!
//! A message is cut into pieces as it is sent, so a channel has the link for one piece at a time.
//! To add a discipline, implement [`Scheduler`] in a file of its own and name it in
//! [`Scheduling`].

mod round_robin;
mod weighted_fair;

#[cfg(test)]
mod tests;

use crate::class::Class;
use crate::event::ChannelId;
use alloc::boxed::Box;
use core::fmt::Debug;

use round_robin::RoundRobin;
pub(crate) use weighted_fair::WeightedFair;

/// The weight of a channel unless it is told otherwise; larger gets more.
pub const WEIGHT_DEFAULT: u16 = 16;

/// How the channels of a link share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// Each channel in turn sends a piece, short or long: the cheapest, and short messages wait
    /// for one piece of each other channel at most. Weights mean nothing.
    #[default]
    RoundRobin,
    /// Bytes are shared in the proportion of weights, whatever the lengths of messages
    /// (start-time fair queueing).
    WeightedFair,
}

impl Scheduling {
    pub(crate) fn scheduler(self) -> Box<dyn Scheduler> {
        match self {
            Self::RoundRobin => Box::<RoundRobin>::default(),
            Self::WeightedFair => Box::<WeightedFair>::default(),
        }
    }
}

/// What stands in line: a channel of a link, or a class of links.
pub(crate) trait Member: Copy + Ord + Debug + Send {
    /// A small dense index, for tables.
    fn place(self) -> usize;
}

impl Member for ChannelId {
    fn place(self) -> usize {
        Self::place(self)
    }
}

impl Member for Class {
    fn place(self) -> usize {
        self.index()
    }
}

/// The line of channels that may have something to send. A channel stands in it at most once.
pub(crate) trait Scheduler<M: Member = ChannelId>: Debug + Send {
    /// A channel that is not in line has something to send.
    fn enter(&mut self, channel: M, weight: u16);
    /// Whose turn it is. It stays so until one of the calls below, or until another enters.
    fn turn(&self) -> Option<M>;
    /// How many are in line.
    fn waiting(&self) -> usize;
    /// The channel whose turn it is has sent a piece that counts as `bytes`; if it has more it
    /// stays in line, at that weight.
    fn served(&mut self, bytes: u32, more: Option<u16>);
    /// The channel whose turn it is cannot send: it leaves without having been served.
    fn pass(&mut self);
    /// A channel is over; it may or may not be in line.
    fn remove(&mut self, channel: M);
    /// All leave.
    fn clear(&mut self);
}
