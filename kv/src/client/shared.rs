//! Requests of many clients over one link: a channel for each, and one thread that drives all.

use super::calls::RENEW_TIME;
use super::{Sign, Transport, TransportError, Waiting, Watched};
use crate::channel::SEND_TIMEOUT;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use towpath_handle::{ChannelHandle, EndpointHandle, Incoming, LinkHandle, RecvError};
use towpath_transport::SendOptions;

/// A link to a server that clients share. It is made anew where it is down and one of them asks.
///
/// The thread of the endpoint drives it whether they ask or not: a client may rest as long as it
/// likes.
#[derive(Debug)]
pub struct SharedLink {
    endpoint: EndpointHandle,
    addr: SocketAddr,
    link: Mutex<Made>,
}

/// What came of making the link.
#[derive(Debug)]
enum Made {
    Link(LinkHandle),
    /// It failed at that time, and why.
    Failed(Instant, String),
    /// None was made yet.
    Nothing,
}

/// One client's channel.
pub struct SharedTransport {
    link: Arc<SharedLink>,
    waiting: Waiting,
    channel: Option<ChannelHandle>,
    /// What comes next on the channel, where a sign is raised then.
    coming: Option<Pin<Box<dyn Future<Output = Came> + Send>>>,
    came: Option<Came>,
}

type Came = Result<Incoming, RecvError>;

impl fmt::Debug for SharedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, waiting, channel, .. } = self;
        let mut shown = f.debug_struct("SharedTransport");
        shown.field("link", link).field("waiting", waiting).field("channel", channel);
        shown.finish_non_exhaustive()
    }
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
        Arc::new(Self { endpoint, addr, link: Mutex::new(Made::Nothing) })
    }

    /// The link, made where there is none, but not where that has just failed: each client would
    /// wait for a server that is not there.
    fn up(&self) -> Result<LinkHandle, TransportError> {
        // Nothing that is done under the lock leaves it half done.
        let mut made = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Made::Link(link) if link.down().is_none() => return Ok(link.clone()),
            Made::Failed(at, why) if at.elapsed() < RENEW_TIME => {
                return Err(connect_error(why.as_str()));
            }
            _ => {}
        }
        let connected = self.endpoint.connect(self.addr);
        *made = match &connected {
            Ok(link) => Made::Link(link.clone()),
            Err(error) => Made::Failed(Instant::now(), error.to_string()),
        };
        connected.map_err(connect_error)
    }
}

impl SharedTransport {
    /// Opens a channel.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn open(link: &Arc<SharedLink>, waiting: Waiting) -> Result<Self, TransportError> {
        let (link, channel, coming, came) = (Arc::clone(link), None, None, None);
        let mut made = Self { link, waiting, channel, coming, came };
        made.renew(SEND_TIMEOUT.into())?;
        Ok(made)
    }

    fn channel(&self) -> Result<&ChannelHandle, TransportError> {
        self.channel.as_ref().ok_or_else(|| gone(&"there is no channel"))
    }

    /// What comes next, if anything does within the time.
    fn next(&mut self, timeout: Duration) -> Result<Option<Incoming>, TransportError> {
        if let Some(came) = self.came.take() {
            return came.map(Some).map_err(|error| gone(&error));
        }
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

    /// The endpoint's own limit of time for a connection holds, for one of the link's clients: the
    /// others are told for a while that it failed.
    fn renew(&mut self, _: Duration) -> Result<(), TransportError> {
        (self.channel, self.coming, self.came) = (None, None, None);
        let opened = self.link.up()?.open_channel(false);
        self.channel = Some(opened.map_err(connect_error)?);
        Ok(())
    }
}

impl Watched for SharedTransport {
    fn watch(&mut self, sign: &Sign) -> Result<bool, TransportError> {
        if self.came.is_none() {
            let channel = self.channel()?.clone();
            let coming = self
                .coming
                .get_or_insert_with(|| Box::pin(async move { channel.recv_async().await }));
            if let Poll::Ready(came) = coming.as_mut().poll(&mut Context::from_waker(sign.waker()))
            {
                (self.coming, self.came) = (None, Some(came));
            }
        }
        Ok(self.came.is_some())
    }
}
