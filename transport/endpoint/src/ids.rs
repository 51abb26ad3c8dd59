//! What callers name links, messages, streams, connections and operations by.

use towpath_proto::{IncomingKey, OpKey, SendKey};

/// A link of an endpoint. Never reused for another one while anyone could still name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId {
    pub(crate) index: u16,
    pub(crate) life: u32,
}

impl LinkId {
    /// Of no link in particular, for tests of what keeps such numbers.
    #[doc(hidden)]
    #[must_use]
    pub fn first() -> Self {
        Self { index: 0, life: 0 }
    }

    /// A small dense index, for tables of the application's own; unique among the links that are
    /// up.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

/// A message being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendId {
    pub(crate) link: LinkId,
    pub(crate) key: SendKey,
}

impl SendId {
    /// Its link.
    #[must_use]
    pub fn link(self) -> LinkId {
        self.link
    }
}

/// A streamed message being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub(crate) IncomingKey);

/// An outgoing connection that is being set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectId(pub(crate) u64);

/// A one-sided operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(crate) link: LinkId,
    pub(crate) key: OpKey,
}

impl OpId {
    /// Its link.
    #[must_use]
    pub fn link(self) -> LinkId {
        self.link
    }
}
