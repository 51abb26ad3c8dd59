//! The reservations of a server, as its workers share them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use towpath_fastpath::qos::wire::QosReply;
use towpath_qos::Weights;
use towpath_transport::{MemoryError, Nanos, SharedMemory, Time};

use super::change::Refused;
use super::config::{QosConfig, Shares};
use super::limits::MAIL_MAX;
use super::node::{Mail, Node};

/// One worker's handle on the reservations of its server. The first worker begins periods and looks
/// at the words when it is time; what concerns clients of others is put where these look.
#[derive(Debug)]
pub struct Qos {
    shared: Arc<Shared>,
    worker: usize,
    /// From the clock of this worker's endpoint to that of the first worker's.
    ahead: i128,
}

#[derive(Debug)]
struct Shared {
    node: Mutex<Node>,
    memory: SharedMemory,
    tick: Nanos,
    weights: Weights,
    /// When the first worker has something to do, on its clock.
    due: AtomicU64,
    /// The first worker's clock when it began, beside the system's.
    began: OnceLock<(Instant, Time)>,
    boxes: Vec<MailBox>,
}

#[derive(Debug, Default)]
struct MailBox {
    mail: Mutex<Vec<Mail>>,
    waker: OnceLock<Waker>,
}

impl Qos {
    /// A handle for each of so many workers.
    ///
    /// # Errors
    /// [`MemoryError`]: there is no memory for the words.
    pub fn for_workers(config: QosConfig, workers: usize) -> Result<Vec<Self>, MemoryError> {
        let QosConfig { tick, weights, .. } = config;
        let node = Node::new(config)?;
        let shared = Arc::new(Shared {
            memory: node.table.memory().clone(),
            node: Mutex::new(node),
            tick,
            weights,
            due: AtomicU64::new(Time::NEVER.0),
            began: OnceLock::new(),
            boxes: (0..workers.max(1)).map(|_| MailBox::default()).collect(),
        });
        let of = |worker| Self { shared: Arc::clone(&shared), worker, ahead: 0 };
        Ok((0..workers.max(1)).map(of).collect())
    }

    /// Changes who has what, from the next period on.
    pub fn set_tenants(&self, tenants: &Shares) {
        self.with(|node| node.set_tenants(tenants));
    }

    /// Tenants that could not be admitted as the settings say.
    #[must_use]
    pub fn refused(&self) -> Vec<Refused> {
        self.with(|node| node.refused().to_vec())
    }

    /// Which worker has this handle.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// The memory of the words.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.shared.memory
    }

    pub(crate) fn tick(&self) -> Nanos {
        self.shared.tick
    }

    /// What operations cost.
    pub(crate) fn weights(&self) -> Weights {
        self.shared.weights
    }

    /// The names of all tenants that there were, each at the place of its number.
    #[must_use]
    pub(crate) fn names(&self) -> Vec<String> {
        self.with(|node| node.tenants.iter().map(|tenant| tenant.name.clone()).collect())
    }

    /// How reservations are kept.
    #[must_use]
    pub fn report(&self) -> QosReply {
        self.with(Node::report)
    }

    /// The worker begins at `now` on the clock of its endpoint; `waker` ends its sleep.
    pub(crate) fn attach(&mut self, now: Time, waker: Option<Waker>) {
        let (instant, began) = *self.shared.began.get_or_init(|| (Instant::now(), now));
        if self.worker > 0 {
            let passed = instant.elapsed().as_nanos() as i128;
            self.ahead = i128::from(began.0) + passed - i128::from(now.0);
        }
        if let Some(waker) = waker {
            // It is attached once.
            let _ = self.shared.boxes[self.worker].waker.set(waker);
        }
    }

    fn to_node(&self, now: Time) -> Time {
        Time(u64::try_from(i128::from(now.0) + self.ahead).unwrap_or(0))
    }

    /// When this worker has something to do, on the clock of its endpoint: the first one in time,
    /// the others when that is away.
    pub(crate) fn next_due(&self) -> Time {
        match self.shared.due.load(Relaxed) {
            due if due == Time::NEVER.0 => Time::NEVER,
            due if self.worker == 0 => Time(due),
            due => {
                let late = i128::from(due) + 2 * i128::from(self.shared.tick.0) - self.ahead;
                Time(u64::try_from(late).unwrap_or(0))
            }
        }
    }

    /// The file of tenants has changed, and cannot be used.
    pub(crate) fn set_file_error(&self, error: String) {
        self.with(|node| node.set_file_error(error));
    }

    /// Begins a period or looks at the words, when it is time and this worker is the one to do it.
    pub(crate) fn turn(&self, now: Time) {
        if now >= self.next_due() {
            self.at(now, Node::turn);
        }
    }

    /// Does something at `now`, on the clock of this worker's endpoint.
    pub(crate) fn at<T>(&self, now: Time, act: impl FnOnce(&mut Node, Time) -> T) -> T {
        let now = self.to_node(now);
        self.with(|node| act(node, now))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Node) -> T) -> T {
        let mut node = lock(&self.shared.node);
        let result = act(&mut node);
        let due = node.next_due().0;
        let was_due = self.shared.due.swap(due, Relaxed);
        let mut told = vec![];
        for mail in node.take_mail() {
            let worker = mail.worker();
            if let Some(to) = self.shared.boxes.get(worker) {
                let mut waiting = lock(&to.mail);
                if waiting.len() >= MAIL_MAX {
                    // It has not looked for long: what it was to tell holds no more.
                    waiting.retain(|mail| matches!(mail, Mail::CutOff(_)));
                }
                waiting.push(mail);
                told.push(worker);
            }
        }
        drop(node);
        if due < was_due {
            told.push(0);
        }
        told.sort_unstable();
        told.dedup();
        for worker in told.into_iter().filter(|&worker| worker != self.worker) {
            if let Some(waker) = self.shared.boxes[worker].waker.get() {
                waker.wake_by_ref();
            }
        }
        result
    }

    /// What this worker has to do for its clients.
    pub(crate) fn take_mail(&self) -> Vec<Mail> {
        std::mem::take(&mut lock(&self.shared.boxes[self.worker].mail))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever has panicked has left numbers behind, which the next period replaces.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
