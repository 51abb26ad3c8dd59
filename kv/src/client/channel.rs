//! Requests over a Towpath channel, whose messages come once, whatever the network loses.

use super::{Granted, Reads, Transport, TransportError, Waiting};
use crate::channel::{SEND_TIMEOUT, client_config};
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use towpath_transport::{
    Buf, CarrierChoice, ChannelId, ConnectId, Device, Endpoint, Event, Grant, LinkId, Message,
    Nanos, OpOptions, OpOutcome, Place, Region, Rides, RoceUdp, SendOptions, UdpConfig,
};

/// The longest sleep: what ends a wait otherwise is a packet or a timer of the link.
const WAIT_MAX: Nanos = Nanos::from_millis(100);

/// A channel to a server, on an endpoint of its own that the calling thread drives.
///
/// The peer of a link that nobody drives takes it for dead after some seconds: a client that rests
/// for longer connects again by itself.
pub struct ChannelTransport<D: Device<Memory = Region> = RoceUdp> {
    endpoint: Endpoint<D>,
    addr: SocketAddr,
    waiting: Waiting,
    state: State,
    received: VecDeque<Message>,
    grant: Option<(Granted, Grant)>,
    grants: u64,
    reads: u64,
    /// The READ that is waited for, or what it brought; none where it failed.
    reading: Option<Reading>,
}

/// A READ, by its token.
enum Reading {
    UnderWay(u64),
    Ended(Option<Buf>),
}

#[derive(Debug)]
enum State {
    Connecting(ConnectId),
    Opening(LinkId),
    Up(LinkId, ChannelId),
    Down(String),
    Failed(String),
}

impl State {
    fn is_of(&self, link: LinkId) -> bool {
        matches!(self, Self::Opening(of) | Self::Up(of, _) if *of == link)
    }
}

impl<D: Device<Memory = Region>> fmt::Debug for ChannelTransport<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, waiting, state, .. } = self;
        let mut shown = f.debug_struct("ChannelTransport");
        shown.field("addr", addr).field("waiting", waiting).field("state", state);
        shown.finish_non_exhaustive()
    }
}

impl ChannelTransport {
    /// Connects from the address `from` of this host, on UC, RC or TCP.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn connect(
        from: IpAddr,
        addr: SocketAddr,
        carrier: CarrierChoice,
        waiting: Waiting,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let config = client_config().carrier(carrier);
        let endpoint = Endpoint::udp(UdpConfig::new(from), config).map_err(connect_error)?;
        Self::on(endpoint, addr, waiting, timeout)
    }
}

impl<D: Device<Memory = Region>> ChannelTransport<D> {
    /// Connects from an endpoint that the caller has made, as [`client_config`] says.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn on(
        endpoint: Endpoint<D>,
        addr: SocketAddr,
        waiting: Waiting,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let state = State::Down(String::from("not connected yet"));
        let received = VecDeque::new();
        let (grant, reading) = (None, None);
        let mut made =
            Self { endpoint, addr, waiting, state, received, grant, grants: 0, reads: 0, reading };
        made.open(timeout)?;
        Ok(made)
    }

    /// Which carriers its links went to, when and why, as the program that asks may show it.
    #[must_use]
    pub fn rides(&self) -> &Rides {
        self.endpoint.rides()
    }

    fn open(&mut self, timeout: Duration) -> Result<(), TransportError> {
        let until = Instant::now() + timeout;
        let old = std::mem::take(&mut self.received);
        old.into_iter().for_each(|message| self.endpoint.release(message));
        self.state = State::Connecting(self.endpoint.connect(self.addr).map_err(connect_error)?);
        loop {
            self.turn(until);
            match &self.state {
                State::Up(..) => return Ok(()),
                State::Down(reason) => return Err(connect_error(reason.clone())),
                State::Failed(reason) => return Err(connect_error(reason.clone())),
                State::Connecting(_) | State::Opening(_) if Instant::now() >= until => {
                    // If it still comes up, it is closed then.
                    self.leave();
                    return Err(connect_error("no answer in time"));
                }
                State::Connecting(_) | State::Opening(_) => {}
            }
        }
    }

    /// Ends the link that there is.
    fn leave(&mut self) {
        if let State::Up(link, _) | State::Opening(link) = self.state {
            self.endpoint.close(link);
        }
        self.grant = None;
        self.state = State::Down(String::from("left"));
    }

    /// Takes in what has come, and waits for more where nothing had.
    fn turn(&mut self, until: Instant) {
        let is_busy = self.take_in();
        self.rest(is_busy, until);
    }

    /// Takes in what has come; whether anything had.
    fn take_in(&mut self) -> bool {
        let Self { endpoint, state, received, grant: granted, grants, reading, .. } = self;
        // What is of a link that was left is still told of, and is not of the next one.
        let mut on_event = |endpoint: &mut Endpoint<D>, event| match event {
            Event::Connected { connect, link, .. } => {
                if !matches!(state, State::Connecting(ours) if *ours == connect) {
                    return endpoint.close(link);
                }
                *state = match endpoint.open_channel(link, false) {
                    Ok(_) => State::Opening(link),
                    Err(error) => State::Down(error.to_string()),
                };
            }
            Event::ConnectFailed { connect, error } => {
                if matches!(state, State::Connecting(ours) if *ours == connect) {
                    *state = State::Failed(error.to_string());
                }
            }
            Event::ChannelOpened { link, channel, .. } if state.is_of(link) => {
                *state = State::Up(link, channel);
            }
            Event::Message(message) if state.is_of(message.link()) => received.push_back(message),
            Event::Message(message) => endpoint.release(message),
            Event::Granted { link, grant } if state.is_of(link) => {
                *grants += 1;
                let bytes = grant.byte_len.into();
                *granted = Some((Granted { id: *grants, bytes }, grant));
            }
            Event::Revoked { link, .. } if state.is_of(link) => *granted = None,
            Event::OpDone { token, outcome, buf, .. } => {
                if matches!(reading, Some(Reading::UnderWay(ours)) if *ours == token) {
                    let is_read = outcome == OpOutcome::Executed;
                    *reading = Some(Reading::Ended(buf.filter(|_| is_read)));
                }
            }
            Event::ChannelClosed { link, reason, .. } if state.is_of(link) => {
                *state = State::Down(format!("{reason:?}"));
            }
            Event::LinkDown { link, reason, .. } if state.is_of(link) => {
                *state = State::Down(format!("{reason:?}"));
            }
            _ => {}
        };
        let mut is_busy = endpoint.poll() > 0;
        while endpoint.take_event(&mut on_event) {
            is_busy = true;
        }
        is_busy
    }

    /// Sends what is to be sent, and waits where that may be.
    fn rest(&mut self, is_busy: bool, until: Instant) {
        self.endpoint.flush();
        if !is_busy && self.waiting == Waiting::Blocking {
            let left = Nanos::from(until.saturating_duration_since(Instant::now()));
            self.endpoint.wait(left.min(WAIT_MAX));
        }
    }

    fn place(&self) -> Result<(LinkId, ChannelId), TransportError> {
        match &self.state {
            State::Up(link, channel) => Ok((*link, *channel)),
            State::Down(reason) => Err(TransportError::Gone(reason.clone())),
            other => Err(TransportError::Gone(format!("{other:?}"))),
        }
    }
}

fn connect_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransportError {
    TransportError::Connect(error.into())
}

impl<D: Device<Memory = Region> + Send> Transport for ChannelTransport<D> {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        let gone = |error: &dyn fmt::Display| TransportError::Gone(error.to_string());
        let (link, channel) = self.place()?;
        let buf = self.endpoint.copy(request).map_err(|error| gone(&error))?;
        let options = SendOptions::new().timeout(SEND_TIMEOUT.into());
        let sent = self.endpoint.send(link, channel, buf, options);
        sent.map_err(|rejected| gone(&rejected.error))?;
        self.endpoint.flush();
        Ok(())
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(message) = self.received.pop_front() {
                match message.as_slice() {
                    Some(bytes) => take(bytes),
                    None => take(&message.to_vec()),
                }
                self.endpoint.release(message);
                return Ok(true);
            }
            self.place()?;
            if Instant::now() >= until {
                return Ok(false);
            }
            let is_busy = self.take_in();
            // Where a reply has come its ack is left to ride on the next request.
            if self.received.is_empty() {
                self.rest(is_busy, until);
            }
        }
    }

    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.leave();
        self.open(timeout)
    }
}

impl<D: Device<Memory = Region> + Send> Reads for ChannelTransport<D> {
    fn granted(&mut self) -> Option<Granted> {
        self.place().ok()?;
        self.grant.map(|(granted, _)| granted)
    }

    fn read(
        &mut self,
        offset: u64,
        out: &mut [u8],
        timeout: Duration,
    ) -> Result<bool, TransportError> {
        let (link, _) = self.place()?;
        let gone = |error: &dyn fmt::Display| TransportError::Gone(error.to_string());
        let (Some((_, grant)), Ok(offset)) = (self.grant, u32::try_from(offset)) else {
            return Ok(false);
        };
        let length = u32::try_from(out.len()).map_err(|error| gone(&error))?;
        let buf = self.endpoint.alloc(out.len()).map_err(|error| gone(&error))?;
        self.reads += 1;
        let options = OpOptions::new().token(self.reads).timeout(timeout);
        let place = Place { link, grant: grant.id, offset };
        self.endpoint
            .read(place, length, buf, options)
            .map_err(|rejected| gone(&rejected.error))?;
        self.reading = Some(Reading::UnderWay(self.reads));
        self.endpoint.flush();
        let until = Instant::now() + timeout;
        loop {
            if let Some(Reading::Ended(buf)) = &self.reading {
                let is_read = buf.as_ref().filter(|buf| buf.len() >= out.len());
                is_read.inspect(|buf| out.copy_from_slice(&buf[..out.len()]));
                let is_read = is_read.is_some();
                self.reading = None;
                return Ok(is_read);
            }
            self.place()?;
            if Instant::now() >= until {
                self.reading = None;
                return Ok(false);
            }
            self.turn(until);
        }
    }
}
