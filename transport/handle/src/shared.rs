//! State shared by all handles of an endpoint: commands to its worker, and waits.

use crate::clock::Clock;
use crate::egress::{Egress, Outgoing};
use crate::engine::{self, Engine};
use crate::inbox::{Command, Inbox};
use crate::queue::{Closed, Receiver, Sender, queue};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use towpath_memory::Buf;
use towpath_proto::DownReason;
use towpath_transport::for_handles::SendPools;
use towpath_transport::{AllocError, SubmitError};
use towpath_wake::{Take, Taking};

/// State shared by all handles of an endpoint. The worker ends with the last handle.
pub(crate) struct Shared {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) pools: SendPools,
    pub(crate) clock: Arc<Clock>,
    /// Where the handles drive the endpoint.
    pub(crate) engine: OnceLock<Arc<Engine>>,
}

impl Shared {
    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.get()
    }

    fn wait<F: Future>(&self, patience: Option<Duration>, future: F) -> Option<F::Output> {
        engine::wait(self.engine(), patience, future)
    }

    /// Waits for a future, for as long as it takes.
    pub(crate) fn wait_for<F: Future>(&self, future: F) -> F::Output {
        let output = self.wait(None, future);
        output.unwrap_or_else(|| unreachable!("it ends with the future alone"))
    }

    /// The oldest item of a queue, waiting for it for at most `patience`. None if none came.
    pub(crate) fn receive<T>(
        &self,
        from: &Receiver<T>,
        patience: Duration,
    ) -> Option<Result<T, Closed>> {
        match from.take() {
            None if !patience.is_zero() => self.wait(Some(patience), Taking::new(from)),
            found => found,
        }
    }

    /// As [`receive`](Self::receive), for a task and without a limit.
    pub(crate) async fn receive_async<T>(&self, from: &Receiver<T>) -> Result<T, Closed> {
        self.attended(Taking::new(from)).await
    }

    /// Waits for a future in an executor, which drives nothing itself.
    pub(crate) async fn attended<F: Future>(&self, future: F) -> F::Output {
        engine::attended(self.engine(), future).await
    }

    /// Sends a command to the worker, and returns its answer; none if the worker gives none.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = queue();
        self.inbox.command(command(reply));
        self.receive_async(&answer).await.ok()
    }

    pub(crate) fn alloc_timeout(&self, len: usize, patience: Duration) -> Result<Buf, AllocError> {
        let found = self.pools.take(len);
        if !matches!(found, Err(AllocError::AllOut { .. })) || patience.is_zero() {
            return found;
        }
        self.wait(Some(patience), self.pools.taking(len)).unwrap_or(found)
    }

    pub(crate) fn copy_timeout(&self, bytes: &[u8], patience: Duration) -> Result<Buf, AllocError> {
        let mut buf = self.alloc_timeout(bytes.len(), patience)?;
        let copied = buf.extend(bytes);
        debug_assert!(copied.is_ok(), "a fresh buffer has room for what was asked for");
        Ok(buf)
    }

    /// Posts a message. Waits for room for at most `patience`, without a limit if that is none.
    pub(crate) fn post(
        &self,
        egress: &Arc<Egress>,
        message: Outgoing,
        patience: Option<Duration>,
    ) -> Result<(), (Outgoing, SubmitError)> {
        let posted = self.inbox.post(egress, message);
        let Err((message, SubmitError::QueueFull)) = posted else { return posted };
        let mut message = Some(message);
        let error = match patience {
            Some(Duration::ZERO) => None,
            _ => self.wait(patience, self.post_async(egress, &mut message)).and_then(Result::err),
        };
        let error = error.unwrap_or(SubmitError::QueueFull);
        message.map_or(Ok(()), |message| Err((message, error)))
    }

    /// Posts a message once there is room, and leaves it in `message` until then. The wait counts
    /// against the timeout of the message.
    pub(crate) async fn post_async(
        &self,
        egress: &Arc<Egress>,
        message: &mut Option<Outgoing>,
    ) -> Result<(), SubmitError> {
        while let Some(post) = message.take() {
            let Err((post, error)) = self.inbox.post(egress, post) else { break };
            let post = message.insert(post);
            if error != SubmitError::QueueFull {
                return Err(error);
            }
            let began = Instant::now();
            self.attended(Taking::new(&**egress)).await;
            post.options.timeout = post.options.timeout.map(|span| span - began.elapsed().into());
        }
        Ok(())
    }

    /// Why nothing more comes from an endpoint that has ended.
    pub(crate) fn end(&self) -> WaitError {
        if self.inbox.has_panicked() { WaitError::Panicked } else { WaitError::ShutDown }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.inbox.command(Command::Shutdown);
    }
}

/// Why a wait ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Nothing came in time; it may yet come.
    #[error("nothing came in time; wait again, or longer")]
    Timeout,
    /// The link is down: nothing will come over it any more.
    #[error("the link is down: {}; connect again", .0)]
    Down(DownReason),
    /// The endpoint has shut down: nothing will come any more.
    #[error("the endpoint has shut down; spawn another one")]
    ShutDown,
    /// The worker of the endpoint panicked: see standard error, or the log, for the reason.
    #[error("the endpoint's worker thread panicked; spawn another endpoint")]
    Panicked,
}
