//! How a service is set up.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use towpath_fastpath::HealthConfig;
use towpath_transport::Nanos;

use super::limits::BUSY_CORES;

/// Settings of a [`ChunkServer`](super::ChunkServer).
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    pub(super) link_requests_max: usize,
    pub(super) busy_poll: Nanos,
    pub(super) idle_wait: Nanos,
    pub(super) health: HealthConfig,
    pub(super) time_handlers: bool,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            link_requests_max: 256,
            busy_poll: Nanos::from_micros(50),
            idle_wait: Nanos::from_millis(20),
            health: HealthConfig::new(),
            time_handlers: false,
        }
    }
}

impl ServiceConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests of one link that are under way before more are refused as busy. Default 256.
    #[must_use]
    pub fn link_requests_max(mut self, requests: usize) -> Self {
        self.link_requests_max = requests.max(1);
        self
    }

    /// How long to poll without work before blocking; less costs latency, more costs a core.
    /// Default 50 us.
    #[must_use]
    pub fn busy_poll(mut self, span: Nanos) -> Self {
        self.busy_poll = span;
        self
    }

    /// How long to block at most while something is under way. Default 20 ms.
    #[must_use]
    pub fn idle_wait(mut self, span: Nanos) -> Self {
        self.idle_wait = span;
        self
    }

    /// Whether to look at the clock before and after each handler of a request with data: tens of
    /// nanoseconds each. Default false.
    #[must_use]
    pub fn time_handlers(mut self, time: bool) -> Self {
        self.time_handlers = time;
        self
    }

    /// When a link is no longer good, and a request slow. Default: those of [`HealthConfig`].
    #[must_use]
    pub fn health(mut self, config: HealthConfig) -> Self {
        self.health = config;
        self
    }
}

/// Whether there are cores beyond those that a client, the network and the store keep busy. The
/// answer stays the same for the life of the process, because the number of workers and the thread
/// of the disk both follow from it.
pub(crate) fn cores_to_spare() -> bool {
    static TO_SPARE: OnceLock<bool> = OnceLock::new();
    *TO_SPARE.get_or_init(|| available_parallelism().is_ok_and(|cores| cores.get() > BUSY_CORES))
}
