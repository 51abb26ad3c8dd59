//! What carries the chunks of a path.

use crate::named;

named! {
    /// What carries the chunks of a path. All take the same headers, numbers, acks and suppression
    /// of duplicates; only how loss is found differs (docs/protocol.md section 5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Carrier {
        /// Unreliable connected queue pairs: the way of choice.
        #[default]
        Uc = 0 => "UC",
        /// Reliable connected queue pairs: by policy, where a device has no UC, and where UC does
        /// not get through.
        Rc = 1 => "RC",
        /// The set-up connection: the last resort.
        Tcp = 2 => "TCP",
    }
}

impl Carrier {
    /// From the best to the last resort.
    pub const ALL: [Self; 3] = [Self::Uc, Self::Rc, Self::Tcp];

    /// Whether it loses nothing and keeps the order as long as it works. A gap in what was
    /// acknowledged then shows what the receiver refused, and silence shows only that it is slow:
    /// what is under way counts as lost when the carrier has failed, and not before.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc)
    }

    /// The best of those that carry the paths of a link: what it rides on while all is well.
    pub(crate) fn best(carriers: &[Self]) -> Self {
        carriers.iter().copied().min().unwrap_or_default()
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&carrier| carrier as u8 == code)
    }
}

named! {
    /// Why a link rides on another carrier.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum CarrierReason {
        /// Nothing was acknowledged on the carrier before.
        Silent => "no packet was acknowledged",
        /// The carrier before lost too many packets for too long.
        Lossy => "too many packets were lost",
        /// The queue pairs of the carrier before are in error.
        Failed => "the queue pairs failed",
        /// The peer went there.
        Peer => "the peer went there",
        /// A better carrier answers again.
        Recovered => "it answers again",
    }
}
