//! Requests of many clients over one link: a channel for each, and one thread that drives all.

use super::{Transport, TransportError, Waiting};
use crate::channel::SEND_TIMEOUT;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use towpath_transport::{
    ChannelHandle, EndpointHandle, Incoming, LinkHandle, RecvError, SendOptions,
};

/// A link to a server that clients share. It is made anew where it is down and one of them asks.
///
/// The thread of the endpoint drives it whether they ask or not: a client may rest as long as it
/// likes.
#[derive(Debug)]
pub struct SharedLink {
    endpoint: EndpointHandle,
    addr: SocketAddr,
    link: Mutex<Option<LinkHandle>>,
}

/// One client's channel.
#[derive(Debug)]
pub struct SharedTransport {
    link: Arc<SharedLink>,
    waiting: Waiting,
    channel: Option<ChannelHandle>,
}

fn connect_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransportError {
    TransportError::Connect(error.into())
}

fn gone(error: &dyn Display) -> TransportError {
    TransportError::Gone(error.to_string())
}

impl SharedLink {
    /// For clients of the server at `addr`, from an endpoint that the caller has made as
    /// [`client_config`](crate::client_config) says, with buffers for so many clients.
    #[must_use]
    pub fn new(endpoint: EndpointHandle, addr: SocketAddr) -> Arc<Self> {
        Arc::new(Self { endpoint, addr, link: Mutex::new(None) })
    }

    /// The link, made where there is none.
    fn up(&self) -> Result<LinkHandle, TransportError> {
        // Nothing that is done under the lock leaves it half done.
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(up) = link.as_ref().filter(|link| link.down().is_none()) {
            return Ok(up.clone());
        }
        let up = self.endpoint.connect(self.addr).map_err(connect_error)?;
        Ok(link.insert(up).clone())
    }
}

impl SharedTransport {
    /// Opens a channel.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn open(link: &Arc<SharedLink>, waiting: Waiting) -> Result<Self, TransportError> {
        let mut made = Self { link: Arc::clone(link), waiting, channel: None };
        made.renew(SEND_TIMEOUT.into())?;
        Ok(made)
    }

    fn channel(&self) -> Result<&ChannelHandle, TransportError> {
        self.channel.as_ref().ok_or_else(|| gone(&"there is no channel"))
    }

    /// What comes next, if anything does within the time.
    fn next(&self, timeout: Duration) -> Result<Option<Incoming>, TransportError> {
        let channel = self.channel()?;
        let until = Instant::now() + timeout;
        let pause = if self.waiting == Waiting::Polling { Duration::ZERO } else { timeout };
        loop {
            match channel.recv(pause) {
                Ok(incoming) => return Ok(Some(incoming)),
                Err(RecvError::Timeout) if Instant::now() < until => {}
                Err(RecvError::Timeout) => return Ok(None),
                Err(error) => return Err(gone(&error)),
            }
        }
    }
}

impl Transport for SharedTransport {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        let channel = self.channel()?;
        let patience = SEND_TIMEOUT.into();
        let buf = channel.copy_timeout(request, patience).map_err(|error| gone(&error))?;
        let options = SendOptions::new().timeout(SEND_TIMEOUT.into());
        // Whether it came its reply says, and nothing else.
        let sent = channel.send_timeout(buf, options, patience);
        sent.map(drop).map_err(|rejected| gone(&rejected.error))
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let Some(incoming) = self.next(timeout)? else { return Ok(false) };
        let Incoming::Message(message) = incoming else {
            return Err(gone(&"a reply came that is longer than any"));
        };
        match message.as_slice() {
            Some(bytes) => take(bytes),
            None => take(&message.to_vec()),
        }
        Ok(true)
    }

    /// The endpoint's own limit of time for a connection holds.
    fn renew(&mut self, _: Duration) -> Result<(), TransportError> {
        self.channel = None;
        let opened = self.link.up()?.open_channel(false);
        self.channel = Some(opened.map_err(connect_error)?);
        Ok(())
    }
}
