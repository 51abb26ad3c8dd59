//! Answers of several servers, in the order in which they come.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use towpath_fastpath::{ClientError, Pending};

/// Operations that are under way, each with a key.
pub(crate) struct Race<K, T> {
    runs: Vec<Run<K, T>>,
    next: u64,
    tell: Sender<u64>,
    told: Receiver<u64>,
}

struct Run<K, T> {
    number: u64,
    key: K,
    pending: Pending<T>,
    waker: Waker,
}

/// Tells the number of an operation that has ended.
struct Bell {
    number: u64,
    tell: Sender<u64>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Nobody hears it where the race is over.
        let _ = self.tell.send(self.number);
    }
}

impl<K, T> Race<K, T> {
    pub(crate) fn new() -> Self {
        let (tell, told) = channel();
        Self { runs: Vec::new(), next: 0, tell, told }
    }

    /// One more.
    pub(crate) fn add(&mut self, key: K, pending: Pending<T>) {
        let number = self.next;
        self.next += 1;
        let waker = Waker::from(Arc::new(Bell { number, tell: self.tell.clone() }));
        // Looked at once, so that it knows whom to tell.
        let _ = self.tell.send(number);
        self.runs.push(Run { number, key, pending, waker });
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Those that are under way.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.runs.iter().map(|run| &run.key)
    }

    /// Forgets those whose keys are not `kept`: they are not asked for again where a link breaks.
    pub(crate) fn retain(&mut self, mut kept: impl FnMut(&K) -> bool) {
        let gone = self.runs.extract_if(.., |run| !kept(&run.key));
        gone.for_each(|run| run.pending.abandon());
    }

    /// The next one that has ended; none when there is none, or none by `until`.
    pub(crate) fn next(&mut self, until: Option<Instant>) -> Option<(K, Result<T, ClientError>)> {
        while !self.runs.is_empty() {
            let number = match until {
                None => self.told.recv().ok()?,
                Some(until) => {
                    match self.told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                        Ok(number) => number,
                        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                            return None;
                        }
                    }
                }
            };
            let Some(at) = self.runs.iter().position(|run| run.number == number) else { continue };
            let Run { pending, waker, .. } = &mut self.runs[at];
            let polled = Pin::new(pending).poll(&mut Context::from_waker(waker));
            if let Poll::Ready(result) = polled {
                return Some((self.runs.swap_remove(at).key, result));
            }
        }
        None
    }
}
