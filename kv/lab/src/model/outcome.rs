//! What came of a run.

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// From a request to its reply, in nanoseconds, sorted.
    pub latencies: Vec<u32>,
    /// From the begin of the first operation to the end of the last, in nanoseconds.
    pub took: u64,
    /// How often a thread gave its processor back to wait: at clients, at the server.
    pub voluntary: [u64; 2],
    /// How often a thread's time was over: at clients, at the server.
    pub involuntary: [u64; 2],
    /// Operations that the server's threads carried out.
    pub executed: u64,
    /// Operations that nobody but the client's card asked of the server's card.
    pub one_sided: u64,
    /// Requests that clients repeated.
    pub repeated: u64,
    /// Operations that the server carried out again.
    pub again: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// What the server's threads worked, in nanoseconds of a processor at full speed.
    pub server_worked: u64,
    /// Packets whose queue pair the server's card had not at hand.
    pub misses: u64,
    /// Over every operation's end.
    pub hash: u64,
}

impl Outcome {
    /// Operations a second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.latencies.len() as f64 * 1e9 / self.took.max(1) as f64
    }

    /// The latency that a share of operations has at most, in microseconds.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1) as f64;
        let place = (share.clamp(0.0, 1.0) * last).round() as usize;
        self.latencies.get(place).map_or(f64::NAN, |&ns| f64::from(ns) / 1e3)
    }

    /// In microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        let sum: f64 = self.latencies.iter().map(|&ns| f64::from(ns)).sum();
        sum / self.latencies.len().max(1) as f64 / 1e3
    }

    /// In microseconds.
    #[must_use]
    pub fn deviation_us(&self) -> f64 {
        let mean = self.mean_us();
        let square = |&ns: &u32| (f64::from(ns) / 1e3 - mean).powi(2);
        let sum: f64 = self.latencies.iter().map(square).sum();
        (sum / self.latencies.len().max(1) as f64).sqrt()
    }

    /// Switches of a side: 0 the clients', 1 the server's.
    #[must_use]
    pub fn switches(&self, side: usize) -> u64 {
        self.voluntary[side] + self.involuntary[side]
    }
}
