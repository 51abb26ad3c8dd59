//! One-sided operations over handles: grants, operations, and tickets of those.

use crate::inbox::Command;
use crate::limits::COMMANDS_MAX;
use crate::link::LinkHandle;
use crate::ops::{Asked, GrantChange, OpDone, Operation};
use crate::queue::{Closed, queue};
use crate::shared::WaitError;
use crate::ticket::Answer;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use towpath_memory::{Buf, SharedMemory};
use towpath_proto::{GrantId, OpError, Rights};
use towpath_transport::{LaneError, OpOptions, Place};

/// One-sided operations; see [`Endpoint`](towpath_transport::Endpoint#one-sided-operations) for
/// what they are.
///
/// Each operation is asked for without waiting, and its [`OpTicket`] gives the outcome. A link has
/// at most 256 under way; one more ends at once with [`OpError::Full`], as does one for which too
/// many commands wait (1,024). Wait for an outcome, then ask again.
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
        self.shared.wait_for(self.grant_async(memory, range, rights))
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
        let (link, memory) = (self.link.id, memory.clone());
        let ask = |reply| Command::Grant { link, memory, range, rights, reply };
        self.shared.ask(ask).await.unwrap_or(Err(LaneError::ShutDown))
    }

    /// Takes a grant back. When this returns, the peer does not reach the memory any more. False
    /// when there is no such grant.
    pub fn revoke(&self, grant: GrantId) -> bool {
        self.shared.wait_for(self.revoke_async(grant))
    }

    /// As [`revoke`](Self::revoke), as a future. Once polled it revokes even if it is dropped.
    pub async fn revoke_async(&self, grant: GrantId) -> bool {
        let link = self.link.id;
        let ask = |reply| Command::Revoke { link, grant, reply };
        self.shared.ask(ask).await.unwrap_or(false)
    }

    /// Waits for the next change of what the peer grants. A grant that is revoked before anybody
    /// took the news of it is not told, so that a peer cannot make this queue grow.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn recv_grant(&self, timeout: Duration) -> Result<GrantChange, WaitError> {
        let change = self.shared.receive(&self.link.changes, timeout).ok_or(WaitError::Timeout)?;
        change.map_err(|Closed| self.end())
    }

    /// As [`recv_grant`](Self::recv_grant), for as long as it takes, as a future. One that is
    /// dropped has taken nothing.
    ///
    /// # Errors
    /// [`WaitError`], but for the time.
    pub async fn recv_grant_async(&self) -> Result<GrantChange, WaitError> {
        let change = self.shared.receive_async(&self.link.changes).await;
        change.map_err(|Closed| self.end())
    }

    /// Fetches `length` bytes of the peer's memory into a buffer, which comes back in
    /// [`OpDone::buf`]; only there, and only if the outcome is
    /// [`Executed`](towpath_transport::OpOutcome::Executed), does it hold them.
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
    /// the queue pair is lost meanwhile the outcome is
    /// [`Unknown`](towpath_transport::OpOutcome::Unknown).
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
        let ((reply, answer), shared) = (queue(), &self.shared);
        let token = options.token;
        let place = Place { link: self.link.id, grant, offset };
        let options = options.counted_from(shared.clock.now());
        let asked = Asked { place, operation, options, reply };
        if shared.inbox.takes_commands() {
            shared.inbox.command(Command::Operate(asked));
        } else {
            asked.refuse(OpError::Full { max: COMMANDS_MAX }.into());
        }
        // The worker has ended before it looked at the operation.
        let lost = |token| OpDone::refused(token, LaneError::ShutDown, None);
        OpTicket { answer: Answer::new(answer, shared, token, lost) }
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
}

impl OpTicket {
    /// Waits for the outcome, for at most `timeout`. `None` means that there is none yet. The
    /// outcome is returned once.
    pub fn wait(&self, timeout: Duration) -> Option<OpDone> {
        self.answer.wait(timeout)
    }
}

impl Drop for OpTicket {
    fn drop(&mut self) {
        if let Some(done) = self.answer.queue().take_if(|_| true) {
            done.log_unseen();
        }
    }
}

impl Future for OpTicket {
    type Output = OpDone;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<OpDone> {
        self.answer.poll(cx)
    }
}

impl fmt::Debug for OpTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpTicket").field("token", &self.answer.token).finish_non_exhaustive()
    }
}
