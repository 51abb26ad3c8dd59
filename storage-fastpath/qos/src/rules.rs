//! Which protocol is followed: the published one, the basic one, and ours, mend by mend.
//!
//! The published protocol (Haechi, sections II D and E) is kept so that ours is measured against
//! it. Each field is one difference; a test takes one away and shows what goes wrong then.

/// How tokens that their owners will not use become tokens of the pool (step T2 of the monitor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// They do not: Basic Haechi.
    None,
    /// The pool's word is overwritten: what engines take between the reading and the writing is
    /// given twice.
    Overwrite,
    /// The word is exchanged only if it is what was read, and otherwise looked at again.
    Exchange,
}

/// When an engine gives reservation tokens up (its token management).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// When it holds more than it would had it used them evenly. That punishes a client that the
    /// server does not serve fast enough.
    Consumption,
    /// When less was asked for than an even use would need (Definition 1). A client that has as
    /// much under way as it may counts as one that asks for all that it could get.
    Demand,
}

/// How the capacity of the next period is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimation {
    /// Algorithm 1.
    Published,
    /// Only periods in which enough clients were backlogged all the time tell anything.
    Sampled,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How unused reservation tokens are converted.
    pub conversion: Conversion,
    /// Words of other periods are not believed.
    pub checks_epoch: bool,
    /// An engine that found the pool empty waits for the next tick before it asks again.
    pub backs_off: bool,
    /// An addition that found fewer tokens than it asked for takes only those that were there.
    pub takes_what_is_there: bool,
    /// Tokens of the pool that clients hold count as given out, and so does all that was done.
    pub counts_held: bool,
    /// Batches become smaller when clients are many.
    pub adapts_batch: bool,
    /// When reservation tokens are given up.
    pub decay: Decay,
    /// While a client is behind its reservation others keep to theirs, and the pool waits.
    pub reserved_first: bool,
    /// Engines have no more under way than their part of the server while they have their part.
    pub keeps_windows: bool,
    /// Who does not report for three ticks loses what is reserved for the rest of the period.
    pub leases: bool,
    /// How capacity is estimated.
    pub estimation: Estimation,
}

impl Rules {
    /// The protocol as published, where the text leaves a choice in its favour: an addition takes
    /// only tokens that are there.
    pub const PUBLISHED: Self = Self {
        conversion: Conversion::Overwrite,
        checks_epoch: false,
        backs_off: false,
        takes_what_is_there: true,
        counts_held: false,
        adapts_batch: false,
        decay: Decay::Consumption,
        reserved_first: false,
        keeps_windows: false,
        leases: false,
        estimation: Estimation::Published,
    };

    /// The published one without conversion, as its authors compare with.
    pub const BASIC: Self = Self { conversion: Conversion::None, ..Self::PUBLISHED };

    /// Ours.
    pub const OURS: Self = Self {
        conversion: Conversion::Exchange,
        checks_epoch: true,
        backs_off: true,
        takes_what_is_there: true,
        counts_held: true,
        adapts_batch: true,
        decay: Decay::Demand,
        reserved_first: true,
        keeps_windows: true,
        leases: true,
        estimation: Estimation::Sampled,
    };
}
