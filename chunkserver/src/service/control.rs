//! Interference control (docs/qos.md section 7), as the workers of a server share it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use towpath_fastpath::control::InterferenceInfo;
use towpath_qos::{Interference, InterferenceConfig};
use towpath_transport::{Class, Device, Nanos, Region, Time};

use super::server::ChunkServer;

/// One worker's handle on the interference control of its server.
#[derive(Clone, Debug)]
pub struct InterferenceControl {
    shared: Arc<Shared>,
    /// From the clock of this worker's endpoint to that of the one that began first.
    ahead: i128,
    /// Reads that ended since the last turn: class, and how long it took.
    reads: Vec<(Class, Nanos)>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Interference>,
    config: InterferenceConfig,
    /// The clock of the worker that began first, beside the system's.
    began: OnceLock<(Instant, Time)>,
}

impl InterferenceControl {
    /// A control for the workers of a server: each has a clone.
    #[must_use]
    pub fn new(config: InterferenceConfig) -> Self {
        let state = Mutex::new(Interference::new(config, Time::ZERO));
        let shared = Arc::new(Shared { state, config, began: OnceLock::new() });
        Self { shared, ahead: 0, reads: Vec::new() }
    }

    /// The worker begins at `now` on the clock of its endpoint.
    pub(super) fn attach(&mut self, now: Time) {
        let mut is_first = false;
        let (instant, began) = *self.shared.began.get_or_init(|| {
            is_first = true;
            (Instant::now(), now)
        });
        if is_first {
            self.with(|state, config| *state = Interference::new(config, now));
        } else {
            let passed = instant.elapsed().as_nanos() as i128;
            self.ahead = i128::from(began.0) + passed - i128::from(now.0);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Interference, InterferenceConfig) -> T) -> T {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut state, self.shared.config)
    }

    /// A read has ended.
    pub(super) fn read(&mut self, class: Class, took: Nanos) {
        self.reads.push((class, took));
    }

    /// Whether a class may begin a write.
    pub(super) fn may_write(&self, class: Class) -> bool {
        class == Class::Gold || self.with(|state, _| state.may_write(class.index()))
    }

    /// A class writes so many bytes.
    pub(super) fn wrote(&self, class: Class, bytes: u64) {
        self.with(|state, _| state.wrote(class.index(), bytes));
    }

    /// Tells of the reads that have ended, and gives tokens for the time until `now`.
    pub(super) fn turn(&mut self, now: Time) {
        let now = Time(u64::try_from(i128::from(now.0) + self.ahead).unwrap_or(0));
        let mut reads = std::mem::take(&mut self.reads);
        self.with(|state, _| {
            for (class, took) in reads.drain(..) {
                state.read(class.index(), took);
            }
            state.turn(now);
        });
        self.reads = reads;
    }

    /// Tokens that each class took.
    pub(super) fn taken(&self) -> [u64; Class::COUNT] {
        self.with(|state, _| state.counts().taken)
    }

    /// What it does, for whoever asks.
    pub(super) fn report(&self) -> InterferenceInfo {
        self.with(|state, config| {
            let (counts, [seen_mean, seen_p99]) = (state.counts(), state.seen());
            InterferenceInfo {
                mean_us: config.mean.0 / 1000,
                p99_us: config.p99.0 / 1000,
                windows: counts.windows,
                slow_windows: counts.slow_windows,
                cuts: counts.cuts,
                gives: counts.gives,
                waits: counts.waits,
                silver_rate: state.rate(Class::Silver.index()),
                copper_rate: state.rate(Class::Copper.index()),
                seen_mean_ns: seen_mean.0,
                seen_p99_ns: seen_p99.0,
            }
        })
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Controls interference: this is the worker's handle. Default: it does not.
    #[must_use]
    pub fn interference(mut self, mut control: Option<InterferenceControl>) -> Self {
        control.iter_mut().for_each(|control| control.attach(self.endpoint.now()));
        self.sched.set_control(control);
        self
    }
}
