//! One-sided operations over handles: what is granted, operations, and tickets of those.

use crate::commands::Command;
use crate::endpoint::Shared;
use crate::link::{LinkHandle, WaitError};
use crate::ops::{Asked, Operation};
use crate::queue::{Closed, RecvTimeoutError, bounded};
use crate::ticket::Answer;
use crate::unseen;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use towpath_memory::{Buf, SharedMemory};
use towpath_proto::{Grant, GrantId, OpOutcome, Rights};
use towpath_transport::{LaneError, OpOptions, Place};
use towpath_wake::{Awaited, Take, Taking, Waiters};

/// A change of what the peer lets this end reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChange {
    /// It lets this end reach memory of its own.
    Granted(Grant),
    /// It does so no longer. Operations that wait for it are denied.
    Revoked(GrantId),
}

/// How a one-sided operation ended.
#[derive(Debug)]
pub struct OpDone {
    /// The caller's token ([`OpOptions::token`]).
    pub token: u64,
    /// How it ended; or why it was not taken on, and nothing of it happened.
    pub outcome: Result<OpOutcome, LaneError>,
    /// What a word was, of an atomic; what was written, of
    /// [`write_word`](LinkHandle::write_word). Only if it was executed.
    pub word: Option<u64>,
    /// The buffer, of operations that have one; none if the worker has ended meanwhile and had it.
    pub buf: Option<Buf>,
}

/// One-sided operations; see [`Endpoint`](towpath_transport::Endpoint#one-sided-operations) for
/// what they are.
///
/// Each operation is asked for without waiting, and its [`OpTicket`] gives the outcome. A link has
/// at most 256 under way; one more ends at once with
/// [`OpError::Full`](towpath_transport::OpError::Full), as does one for which too many commands
/// wait (1,024). Wait for an outcome, then ask again.
impl LinkHandle {
    /// Lets the peer reach a range of shared memory; it learns of that by
    /// [`recv_grant`](Self::recv_grant). The peer reaches that range alone, by this link alone,
    /// until [`revoke`](Self::revoke), or until the link ends.
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn grant(
        &self,
        memory: &SharedMemory,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<GrantId, LaneError> {
        self.shared().wait_for(self.grant_async(memory, range, rights))
    }

    /// As [`grant`](Self::grant), as a future. If it is dropped meanwhile, the memory may stay
    /// granted until the link ends.
    ///
    /// # Errors
    /// [`LaneError`].
    pub async fn grant_async(
        &self,
        memory: &SharedMemory,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<GrantId, LaneError> {
        let (link, memory) = (self.id(), memory.clone());
        let ask = |reply| Command::Grant { link, memory, range, rights, reply };
        self.shared().ask(ask).await.unwrap_or(Err(LaneError::ShutDown))
    }

    /// Takes a grant back. When this returns, the peer does not reach the memory any more. False
    /// when there is no such grant.
    pub fn revoke(&self, grant: GrantId) -> bool {
        self.shared().wait_for(self.revoke_async(grant))
    }

    /// As [`revoke`](Self::revoke), as a future. Once polled it revokes even if it is dropped.
    pub async fn revoke_async(&self, grant: GrantId) -> bool {
        let link = self.id();
        let ask = |reply| Command::Revoke { link, grant, reply };
        self.shared().ask(ask).await.unwrap_or(false)
    }

    /// Waits for the next change of what the peer grants. A grant that is revoked before anybody
    /// took the news of it is not told, so that a peer cannot make this queue grow.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn recv_grant(&self, timeout: Duration) -> Result<GrantChange, WaitError> {
        let changes = self.changes();
        let found = match changes.take() {
            None if !timeout.is_zero() => {
                self.shared().bell.wait(Some(timeout), Taking::new(changes))
            }
            found => found,
        };
        let found = found.ok_or(RecvTimeoutError::Timeout);
        found
            .and_then(|change| change.map_err(|Closed| RecvTimeoutError::Disconnected))
            .map_err(|error| self.wait_error(error))
    }

    /// As [`recv_grant`](Self::recv_grant), for as long as it takes, as a future. One that is
    /// dropped has taken nothing.
    ///
    /// # Errors
    /// [`WaitError`], but for the time.
    pub async fn recv_grant_async(&self) -> Result<GrantChange, WaitError> {
        let change = self.shared().bell.attended(Taking::new(self.changes())).await;
        change.map_err(|Closed| self.wait_error(RecvTimeoutError::Disconnected))
    }

    /// Fetches `length` bytes of the peer's memory into a buffer, which comes back in
    /// [`OpDone::buf`]; only there, and only if the outcome is
    /// [`Executed`](OpOutcome::Executed), does it hold them.
    pub fn read(
        &self,
        grant: GrantId,
        offset: u32,
        length: u32,
        buf: Buf,
        options: OpOptions,
    ) -> OpTicket {
        self.operate((grant, offset), Operation::Read { length, buf }, options)
    }

    /// Writes the bytes of a buffer to the peer's memory; the buffer comes back in
    /// [`OpDone::buf`].
    pub fn write(&self, grant: GrantId, offset: u32, buf: Buf, options: OpOptions) -> OpTicket {
        self.operate((grant, offset), Operation::Write { buf }, options)
    }

    /// Writes a word of eight bytes, in the byte order of this host, at once.
    pub fn write_word(
        &self,
        grant: GrantId,
        offset: u32,
        value: u64,
        options: OpOptions,
    ) -> OpTicket {
        self.operate((grant, offset), Operation::WriteWord { value }, options)
    }

    /// Adds to a word, wrapping, and fetches what it was: [`OpDone::word`]. Never repeated: where
    /// the queue pair is lost meanwhile the outcome is [`Unknown`](OpOutcome::Unknown).
    pub fn fetch_add(&self, grant: GrantId, offset: u32, add: u64, options: OpOptions) -> OpTicket {
        self.operate((grant, offset), Operation::FetchAdd { add }, options)
    }

    /// Puts `swap` into a word if it equals `compare`, and fetches what it was. Never repeated, as
    /// [`fetch_add`](Self::fetch_add).
    pub fn cmp_swap(
        &self,
        grant: GrantId,
        offset: u32,
        (compare, swap): (u64, u64),
        options: OpOptions,
    ) -> OpTicket {
        self.operate((grant, offset), Operation::CmpSwap { compare, swap }, options)
    }

    fn operate(
        &self,
        (grant, offset): (GrantId, u32),
        operation: Operation,
        options: OpOptions,
    ) -> OpTicket {
        let (reply, answer) = bounded(1);
        let (token, shared) = (options.token, self.shared());
        let place = Place { link: self.id(), grant, offset };
        let options = options.counted_from(shared.now());
        let asked = Asked { place, operation, options, reply };
        if shared.takes_commands() {
            shared.command(Command::Operate(asked));
        } else {
            asked.refuse_for_now();
        }
        OpTicket { answer: Answer::new(answer), token, shared: Arc::clone(self.shared()) }
    }
}

/// A handle for one one-sided operation: waits for its outcome. Dropping it does not stop the
/// operation, whose buffer then returns to its pool. That an operation was refused, or denied by
/// the peer, its ticket alone says; of a ticket that was dropped, a refusal is logged, as of a
/// [`Ticket`](crate::Ticket).
///
/// As a future it is the outcome, once there is one; never, if [`wait`](Self::wait) returned it.
#[must_use = "an operation may be refused, which only its ticket tells: wait for the outcome"]
pub struct OpTicket {
    answer: Answer<OpDone>,
    token: u64,
    shared: Arc<Shared>,
}

impl OpTicket {
    /// Waits for the outcome, for at most `timeout`. `None` means that there is none yet. The
    /// outcome is returned once.
    pub fn wait(&self, timeout: Duration) -> Option<OpDone> {
        self.answer.wait(&self.shared.bell, timeout, || lost(self.token))
    }
}

impl Drop for OpTicket {
    fn drop(&mut self) {
        if let Some(done) = self.answer.take() {
            done.log_unseen();
        }
    }
}

impl OpDone {
    /// Nobody has the ticket any more.
    pub(super) fn log_unseen(&self) {
        match &self.outcome {
            Ok(_) | Err(LaneError::NoSuchLink | LaneError::ShutDown) => {}
            Err(error) => unseen::refused("a one-sided operation", error),
        }
    }
}

impl Future for OpTicket {
    type Output = OpDone;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<OpDone> {
        let (token, shared) = (self.token, Arc::clone(&self.shared));
        self.answer.poll(&shared.bell, cx, || lost(token))
    }
}

impl fmt::Debug for OpTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpTicket").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The worker has ended before it looked at the operation.
fn lost(token: u64) -> OpDone {
    OpDone { token, outcome: Err(LaneError::ShutDown), word: None, buf: None }
}

/// What the peer has granted and revoked, until it is taken. Bounded by the grants that a peer may
/// have at a time: a grant and its end cancel each other out here.
#[derive(Default)]
pub(crate) struct Changes {
    queue: Mutex<Queue>,
    waiters: Waiters,
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<GrantChange>,
    is_closed: bool,
}

impl Changes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has granted something.
    pub(super) fn granted(&self, grant: Grant) {
        self.queue().changes.push_back(GrantChange::Granted(grant));
        self.waiters.tell_one();
    }

    /// It has revoked it.
    pub(super) fn revoked(&self, id: GrantId) {
        let mut queue = self.queue();
        let news = |&change: &GrantChange| matches!(change, GrantChange::Granted(g) if g.id == id);
        match queue.changes.iter().position(news) {
            Some(place) => drop(queue.changes.remove(place)),
            None => queue.changes.push_back(GrantChange::Revoked(id)),
        }
        drop(queue);
        self.waiters.tell_one();
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.queue().is_closed = true;
        self.waiters.tell_all();
    }
}

impl Awaited for Changes {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn is_there(&self) -> bool {
        let queue = self.queue();
        queue.is_closed || !queue.changes.is_empty()
    }
}

impl Take for Changes {
    type Item = Result<GrantChange, Closed>;

    fn take(&self) -> Option<Self::Item> {
        let mut queue = self.queue();
        match queue.changes.pop_front() {
            Some(change) => Some(Ok(change)),
            None => queue.is_closed.then_some(Err(Closed)),
        }
    }
}
