//! SEND: taking messages from the application, and giving them up again.

use super::{Link, LinkState};
use crate::channel::{CancelError, SendError, SendRequest, SendState, SupplyError};
use crate::event::{Outcome, SendKey};
use towpath_base::Time;

impl Link {
    /// Takes a message. Its bytes stay with the device until [`Event::Sent`](crate::Event::Sent)
    /// reports the key that is returned here.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was taken.
    #[inline]
    pub fn send(&mut self, request: &SendRequest<'_>) -> Result<SendKey, SendError> {
        if self.end.state != LinkState::Up {
            return Err(SendError::Down);
        }
        self.sends.take_in(&mut self.channels, request, false)
    }

    /// Takes a message of which the bytes of the last segment are still to come: [`supply`] gives
    /// them, in any order. The others are there. Its channel must not be ordered.
    ///
    /// A message whose bytes do not come is given up like any other: at its deadline, or by
    /// [`cancel`](Self::cancel). Meanwhile such messages of a channel hold half of its credit at
    /// most (docs/protocol.md section 6).
    ///
    /// [`supply`]: Self::supply
    ///
    /// # Errors
    /// See [`SendError`]; nothing was taken. One segment is [`SendError::BadLayout`]: the first
    /// bytes of a message are there when it is sent.
    pub fn send_growing(&mut self, request: &SendRequest<'_>) -> Result<SendKey, SendError> {
        if request.segments.len() < 2 {
            return Err(SendError::BadLayout);
        }
        if self.end.state != LinkState::Up {
            return Err(SendError::Down);
        }
        self.sends.take_in(&mut self.channels, request, true)
    }

    /// Takes `length` bytes of the segment that was to come later, which begin at `offset` in that
    /// and lie together: no frame carries bytes of two calls. They stay with the device until
    /// [`Event::PieceSent`] or [`Event::Sent`] tells of them.
    ///
    /// [`Event::PieceSent`]: crate::Event::PieceSent
    /// [`Event::Sent`]: crate::Event::Sent
    ///
    /// # Errors
    /// See [`SupplyError`]; nothing was taken.
    pub fn supply(&mut self, send: SendKey, offset: u32, length: u32) -> Result<(), SupplyError> {
        self.sends.supply(&mut self.channels, send, (offset, length))
    }

    /// Gives a message up; its outcome comes with [`Event::Sent`](crate::Event::Sent)
    /// (docs/protocol.md section 7).
    ///
    /// # Errors
    /// [`CancelError::Ended`] when it has its outcome already.
    pub fn cancel(&mut self, send: SendKey) -> Result<(), CancelError> {
        match self.sends.state(send) {
            Some(SendState::Queued) => self.end_send(send, Outcome::Abandoned),
            Some(SendState::Sending) => {
                let abandon = self.sends.abandon(&mut self.channels, send);
                abandon.into_iter().for_each(|abandon| self.control.push(abandon));
            }
            Some(SendState::Abandoning) => {}
            Some(SendState::Ended(_)) | None => return Err(CancelError::Ended),
        }
        Ok(())
    }

    /// Gives up every message whose deadline has passed.
    pub(super) fn expire_sends(&mut self, now: Time) {
        for send in self.sends.expired(now) {
            // It may have ended through another one's end; then there is nothing to give up.
            let _ = self.cancel(send);
        }
    }

    /// Gives a message its outcome; it is reported when the device holds none of its buffers.
    #[inline]
    pub(super) fn end_send(&mut self, send: SendKey, outcome: Outcome) {
        let Self { sends, channels, events, stats, .. } = self;
        if let Some(closing) = sends.end(channels, (send, outcome), (events, stats)) {
            self.close_when_done(closing);
        }
    }
}
