//! What the parts of a world are called.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            pub(super) fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A host: whatever sends and receives packets. Numbered from 0 in the order in which they
    /// were added, the two ends of each [`World::link`](super::World::link) too.
    HostId,
    /// A switch, numbered from 0 in the order in which they were added.
    SwitchId,
    /// One direction of a cable, with the queue in front of it.
    WireId,
}

/// A cable between two hosts, a host and a switch, or two switches; it is two wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The wire away from the end that was named first; of a host's cable, the one out of the
    /// host.
    #[must_use]
    pub fn forth(self) -> WireId {
        WireId(self.0 * 2)
    }

    /// The wire towards the end that was named first; of a host's cable, the one into the host.
    #[must_use]
    pub fn back(self) -> WireId {
        WireId(self.0 * 2 + 1)
    }
}

impl WireId {
    /// The cable that it is part of.
    #[must_use]
    pub fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }
}

/// What a wire leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Host(HostId),
    Switch(SwitchId),
}
