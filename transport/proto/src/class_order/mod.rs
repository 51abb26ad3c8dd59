//! Which class hands work to a device next, where one worker serves links of several.
//!
//! What a device has been given it sends in an order of its own, mostly each queue pair in turn. So
//! the order decides by what it holds back.

#[cfg(test)]
mod tests;

use crate::class::Class;
use crate::schedule::FairQueue;

/// Under [`ClassOrder::Strict`] a device with so much of more urgent classes is busy, and gets
/// nothing that is less urgent: what it has of both it would serve in turns. Less than that is gone
/// before the next turn of a loop (5 us at 100 Gb/s), and holding others up for it would waste the
/// wire.
const BUSY_BYTES: u64 = 64 << 10;

/// Between the links of several classes that one worker serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClassOrder {
    /// Whoever is more urgent goes first, and what is less urgent gets what is left: nothing, where
    /// nothing is. Copper may starve.
    #[default]
    Strict,
    /// Bytes are shared in the proportion of weights, Gold's first, among the classes that have
    /// something to send: none starves. A weight of 0 counts as 1.
    Shares([u16; Class::COUNT]),
}

/// What a device has of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtDevice {
    /// Bytes that were handed to it and have not left, by [`Class::index`].
    pub bytes: [u64; Class::COUNT],
    /// How much it is to have at a time: enough not to run dry.
    pub ahead_bytes: u64,
}

impl AtDevice {
    /// Bytes of the classes that are more urgent.
    fn above(&self, class: Class) -> u64 {
        self.bytes[..class.index()].iter().sum()
    }

    fn of_all(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// The classes that have links with something to send.
#[derive(Debug)]
pub struct ClassLine {
    order: ClassOrder,
    /// Who is in line, by [`Class::index`].
    waits: [bool; Class::COUNT],
    /// The same, in the order of [`ClassOrder::Shares`].
    line: FairQueue,
}

impl ClassLine {
    /// With nobody in line.
    #[must_use]
    pub fn new(order: ClassOrder) -> Self {
        Self { order, waits: [false; Class::COUNT], line: FairQueue::default() }
    }

    /// A class has something to send; it may be in line already.
    pub fn enter(&mut self, class: Class) {
        let was_waiting = core::mem::replace(&mut self.waits[class.index()], true);
        if let ClassOrder::Shares(weights) = self.order
            && !was_waiting
        {
            self.line.enter(class.index() as u32, weights[class.index()]);
        }
    }

    /// Whose turn it is; none while the device has enough, or nobody is in line.
    #[must_use]
    pub fn turn(&self, device: &AtDevice) -> Option<Class> {
        if let ClassOrder::Shares(_) = self.order {
            // In the long run a device sends what it is given, in whatever order: so shares of what
            // is handed over are shares of the wire, as long as all of it together is bounded.
            let first = self.line.turn().filter(|_| device.of_all() < device.ahead_bytes)?;
            return Class::ALL.get(first as usize).copied();
        }
        let first = Class::ALL.into_iter().find(|class| self.waits[class.index()])?;
        let above = device.above(first);
        // What is less urgent takes no room from what is more.
        let has_room = above + device.bytes[first.index()] < device.ahead_bytes;
        (has_room && above < BUSY_BYTES).then_some(first)
    }

    /// The class whose turn it is has handed over so many bytes; with `more` it stays in line.
    pub fn served(&mut self, class: Class, bytes: u64, more: bool) {
        if let ClassOrder::Shares(weights) = self.order {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.line.served(bytes, more.then_some(weights[class.index()]));
        }
        self.waits[class.index()] = more;
    }
}
