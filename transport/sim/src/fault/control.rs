//! The handle that changes the faults of a running link and reads what they did.

use super::counters::{FaultCounters, SharedCounters};
use super::plan::FaultPlan;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steers one or more fault links, from any thread; clones steer the same ones.
///
/// A change takes effect with the next batch of each link. Packets that are held back stay held.
#[derive(Clone, Debug)]
pub struct FaultControl {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Counts the changes, so that a link looks into the mutex only after one.
    version: AtomicU64,
    plans: Mutex<Plans>,
    transmit: SharedCounters,
    receive: SharedCounters,
}

#[derive(Clone, Debug)]
pub(super) struct Plans {
    pub(super) transmit: FaultPlan,
    pub(super) receive: FaultPlan,
}

impl FaultControl {
    /// Faults as `transmit` says for what is sent, and none for what is received.
    #[must_use]
    pub fn new(transmit: FaultPlan) -> Self {
        let plans = Plans { transmit, receive: FaultPlan::none() };
        Self {
            shared: Arc::new(Shared {
                version: AtomicU64::new(0),
                plans: Mutex::new(plans),
                transmit: SharedCounters::default(),
                receive: SharedCounters::default(),
            }),
        }
    }

    /// Changes what may happen to packets that are sent.
    pub fn set_transmit(&self, plan: FaultPlan) {
        self.change(|plans| plans.transmit = plan);
    }

    /// Changes what may happen to packets that are received.
    pub fn set_receive(&self, plan: FaultPlan) {
        self.change(|plans| plans.receive = plan);
    }

    /// The plan for packets that are sent.
    #[must_use]
    pub fn transmit_plan(&self) -> FaultPlan {
        self.lock().transmit.clone()
    }

    /// What befell packets that were sent.
    #[must_use]
    pub fn transmit_counters(&self) -> FaultCounters {
        self.shared.transmit.read()
    }

    /// What befell packets that were received.
    #[must_use]
    pub fn receive_counters(&self) -> FaultCounters {
        self.shared.receive.read()
    }

    /// Both directions together.
    #[must_use]
    pub fn counters(&self) -> FaultCounters {
        self.transmit_counters().plus(self.receive_counters())
    }

    pub(super) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    pub(super) fn plans(&self) -> Plans {
        self.lock().clone()
    }

    pub(super) fn add_transmit(&self, batch: &FaultCounters) {
        self.shared.transmit.add(batch);
    }

    pub(super) fn add_receive(&self, batch: &FaultCounters) {
        self.shared.receive.add(batch);
    }

    fn change(&self, apply: impl FnOnce(&mut Plans)) {
        let mut plans = self.lock();
        apply(&mut plans);
        // Under the lock, so that a link that sees the new version also sees the new plans.
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// A thread that panicked under the lock left a whole plan behind: each change is one move.
    fn lock(&self) -> MutexGuard<'_, Plans> {
        self.shared.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
