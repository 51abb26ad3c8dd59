//! One connection, made again when it breaks.

use std::net::SocketAddr;

use towpath_base::Prng;
use towpath_transport::{
    ChannelId, ConnectError, ConnectId, Device, Endpoint, Event, LinkId, Region, Time,
};

use super::repeat::{WAIT_MOST, wait};

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Leg {
    addr: SocketAddr,
    state: State,
    /// Attempts in vain since it was up for a while.
    tries: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// To be made at that time.
    Down(Time),
    Connecting(ConnectId),
    Opening(LinkId, ChannelId),
    /// Since that time.
    Up(LinkId, ChannelId, Time),
}

/// What became of a leg.
#[derive(Debug)]
pub(super) enum Change {
    /// It is up.
    Up(LinkId, ChannelId),
    /// It was up, and is no more.
    Lost,
    /// It could not be made.
    Failed(Option<ConnectError>),
}

impl Leg {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self { addr, state: State::Down(Time::ZERO), tries: 0 }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// When there is something to [begin](Self::begin).
    pub(super) fn next_due(&self) -> Time {
        if let State::Down(at) = self.state { at } else { Time::NEVER }
    }

    /// Connects, when it is time.
    pub(super) fn begin<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        prng: &mut Prng,
    ) -> Option<Change> {
        if self.next_due() > endpoint.now() {
            return None;
        }
        match endpoint.connect(self.addr) {
            Ok(connect) => self.state = State::Connecting(connect),
            Err(error) => return Some(self.failed(endpoint.now(), prng, Some(error))),
        }
        None
    }

    /// Takes an event in that may be this leg's; gives it back where others want it too.
    pub(super) fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        prng: &mut Prng,
    ) -> (Option<Event>, Option<Change>) {
        let now = endpoint.now();
        let change = match (self.state, &event) {
            (State::Connecting(of), Event::Connected { connect, link, .. }) if of == *connect => {
                match endpoint.open_channel(*link, false) {
                    Ok(channel) => {
                        self.state = State::Opening(*link, channel);
                        return (None, None);
                    }
                    Err(_) => endpoint.close(*link),
                }
                self.failed(now, prng, None)
            }
            (State::Connecting(of), Event::ConnectFailed { connect, .. }) if of == *connect => {
                let Event::ConnectFailed { error, .. } = event else { return (None, None) };
                return (None, Some(self.failed(now, prng, Some(error))));
            }
            (State::Opening(of, wanted), Event::ChannelOpened { link, channel, .. })
                if (of, wanted) == (*link, *channel) =>
            {
                self.state = State::Up(of, wanted, now);
                Change::Up(of, wanted)
            }
            (State::Opening(of, wanted), Event::ChannelClosed { link, channel, .. })
                if (of, wanted) == (*link, *channel) =>
            {
                endpoint.close(of);
                self.failed(now, prng, None)
            }
            (State::Opening(of, _), Event::LinkDown { link, .. }) if of == *link => {
                self.failed(now, prng, None)
            }
            (State::Up(of, wanted, _), Event::ChannelClosed { link, channel, .. })
                if (of, wanted) == (*link, *channel) =>
            {
                // The end of the link follows.
                endpoint.close(of);
                return (Some(event), None);
            }
            (State::Up(of, _, since), Event::LinkDown { link, .. }) if of == *link => {
                let was_good = now.since(since) >= WAIT_MOST;
                self.tries = if was_good { 0 } else { self.tries.saturating_add(1) };
                self.state = State::Down(now + wait(self.tries, prng));
                Change::Lost
            }
            _ => return (Some(event), None),
        };
        (Some(event), Some(change))
    }

    /// The server does not want this link: it is closed, and another one tried later. Its end is
    /// told by an event.
    pub(super) fn refuse<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        if let State::Up(link, ..) = self.state {
            endpoint.close(link);
        }
    }

    fn failed(&mut self, now: Time, prng: &mut Prng, error: Option<ConnectError>) -> Change {
        self.tries = self.tries.saturating_add(1);
        self.state = State::Down(now + wait(self.tries, prng));
        Change::Failed(error)
    }
}
