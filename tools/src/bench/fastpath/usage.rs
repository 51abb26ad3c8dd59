//! What a process does to memory: cache misses where the machine counts them, and passes.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};
use towpath_base::passes::{Counts, Pass};

/// Last-level cache misses of this process and of all threads that it starts from now on, if the
/// machine counts them: as a rule a virtual one does not.
pub(super) struct Misses(Option<Counter>);

impl Misses {
    /// Counts from now on; those of the kernel on our behalf too, where that is allowed.
    pub(super) fn count() -> Self {
        let build = |with_kernel: bool| {
            let mut builder = Builder::new(Hardware::CACHE_MISSES);
            builder.inherit(true).exclude_hv(true).exclude_kernel(!with_kernel);
            let mut counter = builder.build()?;
            counter.enable().map(|()| counter)
        };
        Self(build(true).or_else(|_| build(false)).ok())
    }

    /// How many so far.
    pub(super) fn read(&mut self) -> Option<u64> {
        self.0.as_mut().and_then(|counter| counter.read().ok())
    }
}

/// What a process did to memory in its life.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Bytes that passes went over, in the order of [`Pass::ALL`].
    pub(super) passes: [u64; Pass::ALL.len()],
    /// Misses of the last cache.
    pub(super) misses: Option<u64>,
}

impl Memory {
    /// Of this process until now.
    pub(super) fn until_now(misses: &mut Misses) -> Self {
        let counts = Counts::now();
        Self { passes: Pass::ALL.map(|pass| counts.of(pass)), misses: misses.read() }
    }

    /// Bytes of one kind.
    pub(super) fn of(&self, pass: Pass) -> u64 {
        self.passes[pass as usize]
    }
}
