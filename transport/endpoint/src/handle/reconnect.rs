//! A channel to a peer that is made anew when it breaks.

use super::{ChannelHandle, EndpointHandle, LinkHandle, Ticket};
use crate::error::{ChannelError, ConnectError};
use crate::payload::{Payload, Rejected, SendOptions, SubmitError};
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use towpath_base::Prng;
use towpath_proto::Outcome;

/// The first pause after a connect that failed, and the longest: each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What became of a message that was sent with [`Reconnect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The peer's transport has it. Its application may not have read it before a link broke.
    Delivered,
    /// The link broke first: the peer may have it or not. Send it again if doing it twice does no
    /// harm.
    Unknown,
    /// The peer's application has not seen it and never will: the link broke, or its deadline came,
    /// before it was sent. It can be sent again without harm.
    NotSent,
}

/// A message that was sent with [`Reconnect`], and what became of it.
#[derive(Debug)]
pub struct Settled {
    /// The caller's token ([`SendOptions::token`]).
    pub token: u64,
    /// What became of it.
    pub fate: Fate,
    /// Its buffers, to be used or sent again.
    pub payload: Payload,
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconnectError {
    /// The peer could not be reached in time; the last attempt failed so.
    #[error("no link in time: {0}")]
    Connect(#[source] ConnectError),
    /// A link was there, but no channel could be opened on it in time.
    #[error("no channel to {addr} in time ({last}); try again later")]
    Channel {
        /// Where to.
        addr: SocketAddr,
        /// Why the last attempt failed.
        #[source]
        last: ChannelError,
    },
}

/// A channel to a peer that is made anew, on a link of its own, when it or its link breaks, and an
/// account of each message.
///
/// It sends nothing twice by itself, since it cannot know what the peer's application makes of
/// that: [`settled`](Self::settled) tells what became of each message, in the order in which they
/// were sent, and gives its buffers back. Messages on a new channel come behind all that arrived on
/// the one before. One thread uses it; it has none of its own.
///
/// ```no_run
/// # use std::time::Duration;
/// # use towpath_transport::{EndpointHandle, Fate, Reconnect, SendOptions};
/// # use std::{error::Error, net::SocketAddr};
/// # fn run(endpoint: EndpointHandle, addr: SocketAddr) -> Result<(), Box<dyn Error>> {
/// let soon = Duration::from_secs(10);
/// let mut peer = Reconnect::new(endpoint, addr, true, 64);
/// let hello = peer.channel(soon)?.copy_timeout(b"hello", soon)?;
/// peer.send(hello, SendOptions::new().token(1), soon)?;
/// while let Some(message) = peer.settled(soon) {
///     if message.fate != Fate::Delivered {
///         // Where a message may arrive twice.
///         peer.send(message.payload, SendOptions::new().token(message.token), soon)?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reconnect {
    endpoint: EndpointHandle,
    addr: SocketAddr,
    ordered: bool,
    depth: usize,
    current: Option<(LinkHandle, ChannelHandle)>,
    channels_made: u64,
    under_way: VecDeque<(u64, Ticket)>,
    pause: Duration,
    prng: Prng,
}

impl Reconnect {
    /// For channels from `endpoint` to the peer that listens at `addr`. At most `depth` messages
    /// may be sent whose fate was not taken. It connects when it is first used.
    #[must_use]
    pub fn new(endpoint: EndpointHandle, addr: SocketAddr, ordered: bool, depth: usize) -> Self {
        // Many clients of a server that starts again should not all come at the same time.
        let prng = Prng::new(RandomState::new().hash_one(addr));
        let (current, under_way) = (None, VecDeque::new());
        let pause = PAUSES.0;
        Self { endpoint, addr, ordered, depth, current, channels_made: 0, under_way, pause, prng }
    }

    /// The channel, to receive on and for its buffers. Makes another one where there is none or the
    /// one before has ended, trying again for about `patience`, with pauses between 10 ms and 1 s;
    /// one attempt may take [`EndpointConfig::connect_timeout`](crate::EndpointConfig) longer.
    ///
    /// # Errors
    /// [`ReconnectError`]: why the last attempt failed.
    pub fn channel(&mut self, patience: Duration) -> Result<ChannelHandle, ReconnectError> {
        let end = Instant::now().checked_add(patience);
        loop {
            if let Some((_, channel)) = &self.current
                && channel.end().is_none()
            {
                return Ok(channel.clone());
            }
            self.leave();
            let last = match self.dial() {
                Ok(made) => {
                    self.channels_made += 1;
                    self.pause = PAUSES.0;
                    self.current = Some(made);
                    continue;
                }
                Err(error) => error,
            };
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || last.is_final() {
                return Err(last);
            }
            let half = (self.pause / 2).as_nanos() as u64;
            let pause = self.pause / 2 + Duration::from_nanos(self.prng.below(half + 1));
            thread::sleep(pause.min(left));
            self.pause = (self.pause * 2).min(PAUSES.1);
        }
    }

    /// Closes the link, in order: what was sent on it still has its outcome.
    fn leave(&mut self) {
        if let Some((link, _)) = self.current.take() {
            link.close();
        }
    }

    fn dial(&self) -> Result<(LinkHandle, ChannelHandle), ReconnectError> {
        let addr = self.addr;
        let link = self.endpoint.connect(addr).map_err(ReconnectError::Connect)?;
        match link.open_channel(self.ordered) {
            Ok(channel) => Ok((link, channel)),
            Err(last) => {
                link.close();
                Err(ReconnectError::Channel { addr, last })
            }
        }
    }

    /// Sends a message on the channel, or on another one where that has ended, waiting for at most
    /// `patience` for room in its queue.
    ///
    /// # Errors
    /// [`Rejected`] with the message, of which nothing was sent: [`SubmitError::NotOpen`] or
    /// [`SubmitError::NoSuchLink`] when there is no channel ([`channel`](Self::channel) says why),
    /// [`SubmitError::CompletionsFull`] when `depth` fates wait to be taken, or as for
    /// [`ChannelHandle::send_timeout`].
    pub fn send(
        &mut self,
        payload: impl Into<Payload>,
        options: SendOptions,
        patience: Duration,
    ) -> Result<(), Rejected> {
        let mut payload = payload.into();
        if self.under_way.len() >= self.depth {
            let error = SubmitError::CompletionsFull { depth: self.depth };
            return Err(Rejected { payload, error });
        }
        let end = Instant::now().checked_add(patience);
        loop {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let Ok(channel) = self.channel(left) else {
                return Err(Rejected { payload, error: SubmitError::NoSuchLink });
            };
            let token = options.token;
            match channel.send_timeout(payload, options, left) {
                Ok(ticket) => {
                    self.under_way.push_back((token, ticket));
                    return Ok(());
                }
                // It has ended since it was looked at.
                Err(Rejected { payload: back, error: SubmitError::NotOpen(_) })
                    if !left.is_zero() =>
                {
                    payload = back;
                    self.leave();
                }
                Err(rejected) => return Err(rejected),
            }
        }
    }

    /// What became of the oldest message whose fate was not taken, waiting for at most `timeout`.
    /// `None` when it has none yet, or when there is no such message.
    pub fn settled(&mut self, timeout: Duration) -> Option<Settled> {
        let (token, ticket) = self.under_way.front()?;
        let (token, answer) = (*token, ticket.wait(timeout));
        let settled = match answer {
            Ok(sent) => {
                let sent = sent?;
                let fate = match sent.outcome {
                    Outcome::Delivered => Fate::Delivered,
                    Outcome::Abandoned => Fate::NotSent,
                    _ => Fate::Unknown,
                };
                Settled { token, fate, payload: sent.payload }
            }
            Err(Rejected { payload, .. }) => Settled { token, fate: Fate::NotSent, payload },
        };
        self.under_way.pop_front();
        Some(settled)
    }

    /// Messages whose fate was not taken.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// How many channels were made; more than one says that some have broken.
    #[must_use]
    pub fn channels_made(&self) -> u64 {
        self.channels_made
    }
}

impl ReconnectError {
    /// Whether trying again is in vain.
    fn is_final(&self) -> bool {
        let (connect, channel) = match self {
            Self::Connect(last) => (Some(last), None),
            Self::Channel { last, .. } => (None, Some(last)),
        };
        matches!(connect, Some(ConnectError::ShutDown | ConnectError::App { .. }))
            || matches!(channel, Some(ChannelError::ShutDown))
    }
}

/// Closes its link.
impl Drop for Reconnect {
    fn drop(&mut self) {
        self.leave();
    }
}

impl std::fmt::Debug for Reconnect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconnect").field("addr", &self.addr).finish_non_exhaustive()
    }
}
