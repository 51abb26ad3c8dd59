//! Protobuf bodies of reservations (docs/storage-protocol.md section 9).

/// Says whose requests those of this link are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct JoinRequest {
    /// The tenant's name.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// The client runs the tenant's engine itself, to do one-sided I/O.
    #[prost(bool, tag = "2")]
    pub runs_engine: bool,
}

/// What the tenant has. Rates are in tokens a second.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct JoinReply {
    /// Reserved.
    #[prost(uint32, tag = "1")]
    pub reserve: u32,
    /// At most; none: no limit.
    #[prost(uint32, optional, tag = "2")]
    pub limit: Option<u32>,
    /// What it gets of the pool beside others.
    #[prost(uint32, tag = "3")]
    pub weight: u32,
    /// How often tokens are looked at, in nanoseconds.
    #[prost(uint64, tag = "4")]
    pub tick_ns: u64,
    /// Where the words are, for who runs the engine.
    #[prost(message, optional, tag = "5")]
    pub words: Option<WordGrants>,
}

/// The numbers of two grants of eight bytes each.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WordGrants {
    /// The pool's word, for atomics.
    #[prost(uint32, tag = "1")]
    pub pool: u32,
    /// The client's own, to be written.
    #[prost(uint32, tag = "2")]
    pub report: u32,
}

/// Asks how reservations are kept.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct QosRequest {}

/// How reservations are kept. Counts of tokens are of a period unless they say otherwise.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QosReply {
    /// The length of a period in nanoseconds; 0: this server has no reservations.
    #[prost(uint64, tag = "1")]
    pub period_ns: u64,
    /// How often tokens are looked at, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub tick_ns: u64,
    /// Periods since the server started.
    #[prost(uint64, tag = "3")]
    pub periods: u64,
    /// What the server was said to do.
    #[prost(uint32, tag = "4")]
    pub profiled: u32,
    /// What one client by itself was said to do.
    #[prost(uint32, tag = "5")]
    pub profiled_one: u32,
    /// What the server is thought to do now.
    #[prost(uint32, tag = "6")]
    pub estimate: u32,
    /// All reservations together.
    #[prost(uint64, tag = "7")]
    pub reserved: u64,
    /// Tokens in the pool now; negative: engines asked for more than there were. It says nothing
    /// before the first period (`periods` is 0).
    #[prost(sint64, tag = "8")]
    pub pool: i64,
    /// Tokens that were put into the pool within periods, since the server started.
    #[prost(uint64, tag = "9")]
    pub converted: u64,
    /// Engines keep to an even use, since somebody was behind.
    #[prost(bool, tag = "10")]
    pub is_careful: bool,
    /// More is reserved than the server is thought to do.
    #[prost(bool, tag = "11")]
    pub is_overcommitted: bool,
    /// How often the pool's word was set right.
    #[prost(uint64, tag = "12")]
    pub spoilt: u64,
    /// Tokens for each 4 KiB of a read, and of a write.
    #[prost(uint32, tag = "13")]
    pub read_weight: u32,
    /// See there.
    #[prost(uint32, tag = "14")]
    pub write_weight: u32,
    /// The last periods, the oldest first.
    #[prost(message, repeated, tag = "15")]
    pub last: Vec<PeriodReport>,
    /// The tenants, in no order.
    #[prost(message, repeated, tag = "16")]
    pub tenants: Vec<TenantReport>,
    /// Tenants whose settings could not be taken over, and why.
    #[prost(message, repeated, tag = "17")]
    pub refused: Vec<RefusedReport>,
    /// Why the file of tenants was not taken over when it last changed; empty when it was.
    #[prost(string, tag = "18")]
    pub file_error: String,
}

/// What a period came to.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PeriodReport {
    /// Tokens' worth of I/O that was completed.
    #[prost(uint64, tag = "1")]
    pub completed: u64,
    /// What the server was thought to do after it.
    #[prost(uint32, tag = "2")]
    pub estimate: u32,
    /// In some look somebody was behind.
    #[prost(bool, tag = "3")]
    pub was_behind: bool,
    /// Nearly all the time enough clients waited for the server to use it up.
    #[prost(bool, tag = "4")]
    pub was_saturated: bool,
}

/// One tenant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TenantReport {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Tokens a second that it has reserved.
    #[prost(uint32, tag = "2")]
    pub reserve: u32,
    /// Tokens a second that it has at most.
    #[prost(uint32, optional, tag = "3")]
    pub limit: Option<u32>,
    /// What it gets of the pool beside others.
    #[prost(uint32, tag = "4")]
    pub weight: u32,
    /// What it did in this period so far, as it tells.
    #[prost(uint32, tag = "5")]
    pub done: u32,
    /// What it did in the last period.
    #[prost(uint32, tag = "6")]
    pub done_before: u32,
    /// What it still has of its reservation.
    #[prost(uint32, tag = "7")]
    pub residual: u32,
    /// Tokens that it holds of the pool, and of I/Os under way.
    #[prost(uint32, tag = "8")]
    pub held: u32,
    /// Periods in which it had enough to do and did not get its reservation, in all.
    #[prost(uint64, tag = "9")]
    pub missed_periods: u64,
    /// Periods in a row in which it did not use its reservation.
    #[prost(uint32, tag = "10")]
    pub unused_periods: u32,
    /// A client runs its engine, and does one-sided I/O.
    #[prost(bool, tag = "11")]
    pub has_client: bool,
    /// It does not report, and nothing is kept for it in this period.
    #[prost(bool, tag = "12")]
    pub is_lost: bool,
    /// It has enough to do.
    #[prost(bool, tag = "13")]
    pub is_backlogged: bool,
    /// Tokens that ordinary requests used of its reservation, since the server started.
    #[prost(uint64, tag = "14")]
    pub used_reserved: u64,
    /// And of the pool.
    #[prost(uint64, tag = "15")]
    pub used_pooled: u64,
    /// And that one-sided I/O used.
    #[prost(uint64, tag = "16")]
    pub used_one_sided: u64,
    /// Requests that the store was given.
    #[prost(uint64, tag = "17")]
    pub requests: u64,
    /// Tokens' worth of I/O beyond what it had, in all.
    #[prost(uint64, tag = "18")]
    pub overrun: u64,
    /// Periods in which it wanted to do more than it had tokens for although it runs its engine.
    #[prost(uint64, tag = "19")]
    pub overrun_periods: u64,
    /// Periods in which it reported something else than it did.
    #[prost(uint64, tag = "20")]
    pub misreports: u64,
    /// How often its client was cut off.
    #[prost(uint64, tag = "21")]
    pub cut_off: u64,
    /// Periods in which its client did not report any more, and nothing was kept for it.
    #[prost(uint64, tag = "22")]
    pub lost_periods: u64,
}

/// A tenant whose settings could not be taken over.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RefusedReport {
    /// Its name.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Why, and what would be admitted.
    #[prost(string, tag = "2")]
    pub reason: String,
}
