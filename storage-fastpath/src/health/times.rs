//! What parts of operations take, as histograms, and the percentiles of them.

use crate::wire::Method;

/// The last bound is 2 to the power of this, in microseconds: 16.8 s.
const POWERS: usize = 24;

/// Buckets between one power of two and the next.
const STEPS: usize = 4;

/// Buckets of a histogram of times: four for each power of two of a microsecond, and one for what
/// is longer than 16.8 s.
pub const TIME_BUCKETS: usize = STEPS * (POWERS + 1) + 1;

/// The bucket of a time in nanoseconds.
#[must_use]
pub fn time_bucket(ns: u64) -> usize {
    // In quarters of a microsecond, of which the first four are a bucket each.
    let quarters = ns.div_ceil(250).saturating_sub(1);
    if quarters < STEPS as u64 {
        return quarters as usize;
    }
    let power = quarters.ilog2() as usize;
    let step = (quarters >> (power - 2)) as usize & (STEPS - 1);
    ((power - 1) * STEPS + step).min(TIME_BUCKETS - 1)
}

/// The longest time of a bucket in nanoseconds; of the last one, which has none, its shortest.
#[must_use]
pub fn time_bound(bucket: usize) -> u64 {
    let bucket = bucket.min(TIME_BUCKETS - 2);
    match bucket / STEPS {
        0 => 250 * (bucket as u64 + 1),
        row => (250 * (STEPS + bucket % STEPS + 1) as u64) << (row - 1),
    }
}

/// Times of which it is known in which bucket each lies, and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    buckets: [u64; TIME_BUCKETS],
    sum_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { buckets: [0; TIME_BUCKETS], sum_ns: 0 }
    }
}

impl Times {
    /// Of so many times in each bucket; what there are more than [`TIME_BUCKETS`] is left out.
    #[must_use]
    pub fn of(buckets: &[u64], sum_ns: u64) -> Self {
        let mut times = Self { sum_ns, ..Self::default() };
        times.buckets.iter_mut().zip(buckets).for_each(|(to, from)| *to = *from);
        times
    }

    /// Takes in a time.
    pub fn record(&mut self, ns: u64) {
        self.buckets[time_bucket(ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }

    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut times = self.clone();
        for (count, before) in times.buckets.iter_mut().zip(&before.buckets) {
            *count = count.saturating_sub(*before);
        }
        times.sum_ns = self.sum_ns.saturating_sub(before.sum_ns);
        times
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their mean in nanoseconds; 0 of none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }

    /// The time in nanoseconds that so many per cent of them do not pass, as well as the buckets
    /// tell: within a bucket times are taken to lie evenly. 0 of none.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> f64 {
        let count = self.count();
        let wanted = (count as f64 * percent / 100.0).clamp(0.0, count as f64);
        let mut below = 0.0;
        for (bucket, held) in self.buckets.iter().enumerate().filter(|(_, held)| **held > 0) {
            let held = *held as f64;
            if below + held >= wanted {
                let from = if bucket == 0 { 0 } else { time_bound(bucket - 1) } as f64;
                let to = time_bound(bucket) as f64;
                return from + (to - from) * (wanted - below) / held;
            }
            below += held;
        }
        0.0
    }
}

/// What an operation is, where its times are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OpKind {
    /// A read.
    Read = 0,
    /// A write, also one that is passed on to further servers.
    Write = 1,
    /// All others that the store is asked for.
    Other = 2,
}

impl OpKind {
    /// All of them, in the order of their numbers on the wire.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// Of a request with this number of a method.
    #[must_use]
    pub fn of_method(method: u16) -> Self {
        const READ: u16 = Method::Read as u16;
        const WRITE: u16 = Method::Write as u16;
        const FORWARD: u16 = Method::Forward as u16;
        match method {
            READ => Self::Read,
            WRITE | FORWARD => Self::Write,
            _ => Self::Other,
        }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// What a server does with a request, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// From the poll that brought its first piece until all of it is there and its turn comes.
    Receive = 0,
    /// It is parsed, and the data of a write compared with its checksums: all of it, or what is
    /// left to compare of data that came in parts.
    Check = 1,
    /// It waits for the store, and for the tokens of its tenant.
    Queue = 2,
    /// The store has it, less the flush.
    Disk = 3,
    /// The flush of its group; nothing for what changes nothing.
    Flush = 4,
    /// From the store's answer to its being sent.
    Answer = 5,
}

impl Phase {
    /// All of them, in the order of their numbers on the wire.
    pub const ALL: [Self; 6] =
        [Self::Receive, Self::Check, Self::Queue, Self::Disk, Self::Flush, Self::Answer];

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Check => "check",
            Self::Queue => "queue",
            Self::Disk => "disk",
            Self::Flush => "flush",
            Self::Answer => "answer",
        }
    }
}

/// What one phase of the requests of one kind took at a server.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PhaseTimesReply {
    /// [`OpKind`].
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// [`Phase`].
    #[prost(uint32, tag = "2")]
    pub phase: u32,
    /// How many took so long, bucket by bucket, at most [`TIME_BUCKETS`].
    #[prost(uint64, repeated, tag = "3")]
    pub buckets: Vec<u64>,
    /// What all took together, in nanoseconds.
    #[prost(uint64, tag = "4")]
    pub sum_ns: u64,
}

impl PhaseTimesReply {
    /// The same as times.
    #[must_use]
    pub fn times(&self) -> Times {
        Times::of(&self.buckets, self.sum_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_pass() {
        let seed = 43;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let drawn = (0..10_000).map(|_| prng.next_u64() >> prng.below(64));
        let edges = (0..TIME_BUCKETS - 1).flat_map(|bucket| {
            let bound = time_bound(bucket);
            [bound - 1, bound, bound + 1]
        });
        for ns in drawn.chain(edges).chain([0, 1, u64::MAX]) {
            let bucket = time_bucket(ns);
            assert!(bucket < TIME_BUCKETS);
            assert!(bucket == TIME_BUCKETS - 1 || ns <= time_bound(bucket), "{ns}: {bucket}");
            assert!(bucket == 0 || ns > time_bound(bucket - 1), "{ns}: {bucket}");
        }
    }

    #[test]
    fn every_fourth_bound_is_a_power_of_two_of_a_microsecond() {
        for power in 0..=POWERS {
            assert_eq!(time_bound(STEPS * power + STEPS - 1), 1000 << power);
        }
        assert_eq!(time_bound(TIME_BUCKETS - 1), 1000 << POWERS, "the shortest beyond");
    }

    #[test]
    fn percentiles_are_within_a_bucket_of_the_true_ones() {
        let mut times = Times::default();
        assert_eq!((times.percentile_ns(99.0), times.mean_ns(), times.count()), (0.0, 0.0, 0));
        (1..=10_000_u64).for_each(|us| times.record(us * 1000));
        assert_eq!((times.count(), times.mean_ns()), (10_000, 5_000_500.0));
        for percent in [50.0, 90.0, 99.0, 99.9, 100.0] {
            let (found, exact) = (times.percentile_ns(percent), percent * 100_000.0);
            assert!((found / exact - 1.0).abs() < 0.25, "{percent}: {found}");
        }
    }

    #[test]
    fn what_came_between_two_looks_is_their_difference() {
        let mut times = Times::default();
        times.record(5_000);
        let before = times.clone();
        times.record(70_000);
        let came = times.since(&before);
        let mut wanted = Times::default();
        wanted.record(70_000);
        assert_eq!(came, wanted);
        assert_eq!(before.since(&times).count(), 0, "a server that was started again has fewer");
    }

    #[test]
    fn what_a_reply_says_is_taken_as_far_as_it_means_something() {
        let reply = PhaseTimesReply { buckets: vec![1; 1000], sum_ns: 7, ..<_>::default() };
        assert_eq!(reply.times().count(), TIME_BUCKETS as u64);
        let reply = PhaseTimesReply { buckets: vec![u64::MAX; 3], ..<_>::default() };
        assert_eq!(reply.times().count(), u64::MAX, "however much it is");
    }

    #[test]
    fn kinds_and_phases_have_the_numbers_of_their_places() {
        assert!(OpKind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Phase::ALL.iter().enumerate().all(|(at, phase)| *phase as usize == at));
        assert_eq!(OpKind::of_method(Method::Forward as u16), OpKind::Write);
        assert_eq!(OpKind::of_method(Method::Stat as u16), OpKind::Other);
    }
}
