//! Which class hands work to a device next, where one worker serves links of several: policies
//! behind one trait, one file each.
//!
//! What a device has been given it sends in an order of its own, mostly each queue pair in turn. So
//! a policy decides by what it holds back. To add one, implement [`ClassScheduler`] in a file of
//! its own and name it in [`ClassOrder`].

mod shares;
mod strict;

#[cfg(test)]
mod tests;

use crate::class::Class;
use alloc::boxed::Box;
use core::fmt::Debug;

use shares::Shares;
use strict::Strict;

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

impl ClassOrder {
    /// What carries it out.
    #[must_use]
    pub fn scheduler(self) -> Box<dyn ClassScheduler> {
        match self {
            Self::Strict => Box::<Strict>::default(),
            Self::Shares(weights) => Box::new(Shares::new(weights)),
        }
    }
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
    /// Bytes of the classes that are at least as urgent.
    fn down_to(&self, class: Class) -> u64 {
        self.bytes[..=class.index()].iter().sum()
    }

    /// Bytes of the classes that are more urgent.
    fn above(&self, class: Class) -> u64 {
        self.bytes[..class.index()].iter().sum()
    }

    fn of_all(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// The line of classes that have links with something to send. A class stands in it at most once.
pub trait ClassScheduler: Debug + Send {
    /// A class has something to send; it may be in line already.
    fn enter(&mut self, class: Class);
    /// Whose turn it is; none while the device has enough, or nobody is in line.
    fn turn(&self, device: &AtDevice) -> Option<Class>;
    /// The class whose turn it is has handed over so many bytes; with `more` it stays in line.
    fn served(&mut self, class: Class, bytes: u64, more: bool);
}
