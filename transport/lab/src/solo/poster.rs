//! What keeps channels busy: an application's buffers, its posts and their outcomes.

use crate::failure::PostError;
use crate::limits::PATIENCE;
use towpath_handle::{ChannelHandle, CompletionQueue, SentMessage};
use towpath_transport::{Buf, Outcome, Payload, Rejected, SendOptions, SubmitError};

/// An application's own supply of buffers and its outcomes.
#[derive(Debug)]
pub struct Poster {
    done: CompletionQueue,
    spare: Vec<Buf>,
    message_bytes: usize,
    depth: usize,
    delivered: u64,
}

impl Poster {
    /// For messages of this length, so many under way.
    #[must_use]
    pub fn new(message_bytes: usize, depth: usize) -> Self {
        let done = CompletionQueue::new(depth);
        Self { done, spare: Vec::new(), message_bytes, depth, delivered: 0 }
    }

    fn buf(&mut self, channel: &ChannelHandle) -> Result<Buf, PostError> {
        if let Some(buf) = self.spare.pop() {
            return Ok(buf);
        }
        let none = PostError::NoBuffer(self.message_bytes);
        let Ok(mut buf) = channel.alloc(self.message_bytes) else { return Err(none) };
        // What the bytes are does not matter here: they were zero, or another message's.
        buf.set_len(self.message_bytes).map_err(|_| none)?;
        Ok(buf)
    }

    /// Posts one message; waits for an outcome while as many are under way as may be.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post(&mut self, channel: &ChannelHandle) -> Result<(), PostError> {
        while self.done.under_way() >= self.depth {
            self.wait()?;
        }
        let mut payload = Payload::from(self.buf(channel)?);
        loop {
            match channel.post(payload, SendOptions::new(), &self.done) {
                Ok(()) => return Ok(()),
                // Others fill the queue too, or the completions of this thread wait.
                Err(rejected) if is_for_now(rejected.error) => {
                    payload = rejected.payload;
                    self.wait()?;
                }
                Err(rejected) => return Err(PostError::Refused(rejected.error)),
            }
        }
    }

    /// Posts one message if there is room for it, and takes the outcomes that there are. Says
    /// whether it did.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn try_post(&mut self, channel: &ChannelHandle) -> Result<bool, PostError> {
        self.take_outcomes()?;
        if self.done.under_way() >= self.depth {
            return Ok(false);
        }
        let payload = Payload::from(self.buf(channel)?);
        match channel.post(payload, SendOptions::new(), &self.done) {
            Ok(()) => Ok(true),
            Err(rejected) if is_for_now(rejected.error) => {
                self.spare.extend(rejected.payload.into_bufs());
                Ok(false)
            }
            Err(rejected) => Err(PostError::Refused(rejected.error)),
        }
    }

    /// Takes the outcomes that there are.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn take_outcomes(&mut self) -> Result<(), PostError> {
        while let Some(outcome) = self.done.poll() {
            self.take(outcome)?;
        }
        Ok(())
    }

    /// Messages that it was told are delivered.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Messages without an outcome that was taken.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.done.under_way()
    }

    /// Waits for one outcome, in real time.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn wait(&mut self) -> Result<(), PostError> {
        let outcome = self.done.wait(PATIENCE).ok_or(PostError::Stuck)?;
        self.take(outcome)
    }

    fn take(&mut self, outcome: Result<SentMessage, Rejected>) -> Result<(), PostError> {
        let SentMessage { outcome, payload, .. } =
            outcome.map_err(|rejected| PostError::Refused(rejected.error))?;
        self.spare.extend(payload.into_bufs());
        match outcome {
            Outcome::Delivered => {
                self.delivered += 1;
                Ok(())
            }
            other => Err(PostError::Lost(other)),
        }
    }

    /// Takes outcomes until none is left to come.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn finish(&mut self) -> Result<(), PostError> {
        while self.done.under_way() > 0 {
            self.wait()?;
        }
        Ok(())
    }
}

/// Whether there is room when outcomes have been taken.
fn is_for_now(error: SubmitError) -> bool {
    matches!(error, SubmitError::QueueFull | SubmitError::CompletionsFull { .. })
}
