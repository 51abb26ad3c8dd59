//! What the faults did, readable while the link runs.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the faults of one direction did, in packets; each only grows.
        ///
        /// Every packet taken, and every copy made of one, is in the end either passed on or
        /// dropped, so `taken + duplicated` is the sum of `passed`, `dropped_random`,
        /// `dropped_burst`, `dropped_long`, `dropped_overflow`, `black_holed` and what is
        /// [held](Self::held). The others say what befell packets on the way, and several may
        /// befall one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct FaultCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl FaultCounters {
            /// The sums of two directions or links.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }

        /// The same counters, added to by link threads and read by others.
        #[derive(Debug, Default)]
        pub(super) struct SharedCounters {
            $($name: AtomicU64,)*
        }

        impl SharedCounters {
            /// Adds what one batch did; counters that it left alone cost a comparison.
            pub(super) fn add(&self, batch: &FaultCounters) {
                $(if batch.$name != 0 {
                    self.$name.fetch_add(batch.$name, Ordering::Relaxed);
                })*
            }

            pub(super) fn read(&self) -> FaultCounters {
                FaultCounters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Packets offered and taken.
    taken,
    /// Packets handed on, released and copied ones too.
    passed,
    /// Packets lost independently.
    dropped_random,
    /// Packets lost in a burst.
    dropped_burst,
    /// Packets lost for their length.
    dropped_long,
    /// Packets lost because too much was held back already: the limits of this crate, and no
    /// fault that was asked for.
    dropped_overflow,
    /// Packets lost to a black hole.
    black_holed,
    /// Copies made.
    duplicated,
    /// Packets held until others had overtaken them.
    reordered,
    /// Packets changed.
    corrupted,
    /// Packets held by the delay or its jitter.
    delayed,
    /// Packets held for a long time.
    late,
}

impl FaultCounters {
    /// Packets lost for any reason.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.dropped_random
            + self.dropped_burst
            + self.dropped_long
            + self.dropped_overflow
            + self.black_holed
    }

    /// Packets held back now. Of a reading while the link runs it is near, not exact.
    #[must_use]
    pub fn held(&self) -> u64 {
        (self.taken + self.duplicated).saturating_sub(self.passed + self.lost())
    }
}
