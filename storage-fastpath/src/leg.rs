//! One connection, made again when it breaks.

use std::net::SocketAddr;

use towpath_base::Prng;
use towpath_transport::{
    ChannelError, ChannelId, Class, CloseReason, ConnectError, ConnectId, Device, DownReason,
    Endpoint, Event, LinkId, Nanos, Region, Time,
};

/// The first wait, which doubles with each attempt.
const WAIT_LEAST: Nanos = Nanos::from_millis(1);

/// The longest: what a server needs to start again is a few of these.
pub(crate) const WAIT_MOST: Nanos = Nanos::from_millis(500);

/// How long to wait after so many attempts in vain: half of it is chance, so that those who failed
/// together do not come back together.
pub(crate) fn wait(tries: u32, prng: &mut Prng) -> Nanos {
    let whole = WAIT_LEAST.saturating_mul(1 << tries.min(20)).min(WAIT_MOST);
    Nanos(whole.0 / 2 + prng.below(whole.0 / 2 + 1))
}

/// A link to one server with one channel, for whoever drives the endpoint: made when it is asked
/// for, and again when it breaks, after a wait that grows with each attempt in vain.
#[derive(Debug)]
pub struct Leg {
    addr: SocketAddr,
    /// The class of the link; none for that of the endpoint.
    class: Option<Class>,
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
pub enum Change {
    /// It is up.
    Up(LinkId, ChannelId),
    /// It was up, and is no more.
    Lost(DownReason),
    /// It could not be made.
    Failed(LegError),
}

/// Why a leg could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LegError {
    /// There is no link.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The channel cannot be asked for.
    #[error("no channel can be asked for")]
    Channel(#[from] ChannelError),
    /// The server did not open the channel.
    #[error("the server opened no channel ({0:?})")]
    Closed(CloseReason),
    /// The link went down before the channel was open.
    #[error("the link went down ({0:?})")]
    Down(DownReason),
}

impl Leg {
    /// To a server. Nothing is done before [`begin`](Self::begin).
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, class: None, state: State::Down(Time::ZERO), tries: 0 }
    }

    /// With a link of that class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// The server.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// When there is something to [begin](Self::begin).
    #[must_use]
    pub fn next_due(&self) -> Time {
        if let State::Down(at) = self.state { at } else { Time::NEVER }
    }

    /// Connects, when it is time.
    pub fn begin<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        prng: &mut Prng,
    ) -> Option<Change> {
        let State::Down(at) = self.state else { return None };
        if at > endpoint.now() {
            return None;
        }
        let connect = match self.class {
            None => endpoint.connect(self.addr),
            Some(class) => endpoint.connect_as(self.addr, class),
        };
        match connect {
            Ok(connect) => self.state = State::Connecting(connect),
            Err(error) => return Some(self.failed(endpoint.now(), prng, error.into())),
        }
        None
    }

    /// Goes on with a link that was made, or not, where HELLOs travel in another way than over TCP
    /// (see [`Endpoint::establish`]): in place of [`begin`](Self::begin), and when that is due.
    pub fn joined<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        link: Option<LinkId>,
        prng: &mut Prng,
    ) -> Option<Change> {
        let Some(link) = link else {
            return Some(self.failed(endpoint.now(), prng, LegError::Down(DownReason::Local)));
        };
        match endpoint.open_channel(link, false) {
            Ok(channel) => {
                self.state = State::Opening(link, channel);
                None
            }
            Err(error) => {
                endpoint.close(link);
                Some(self.failed(endpoint.now(), prng, error.into()))
            }
        }
    }

    /// Takes an event in that may be this leg's; gives it back where others want it too.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        prng: &mut Prng,
    ) -> (Option<Event>, Option<Change>) {
        let now = endpoint.now();
        let change = match (self.state, &event) {
            (State::Connecting(of), Event::Connected { connect, link, .. }) if of == *connect => {
                return (None, self.joined(endpoint, Some(*link), prng));
            }
            (State::Connecting(of), Event::ConnectFailed { connect, .. }) if of == *connect => {
                let Event::ConnectFailed { error, .. } = event else { return (None, None) };
                return (None, Some(self.failed(now, prng, error.into())));
            }
            (State::Opening(of, wanted), Event::ChannelOpened { link, channel, .. })
                if (of, wanted) == (*link, *channel) =>
            {
                self.state = State::Up(of, wanted, now);
                Change::Up(of, wanted)
            }
            (State::Opening(of, wanted), Event::ChannelClosed { link, channel, reason })
                if (of, wanted) == (*link, *channel) =>
            {
                endpoint.close(of);
                self.failed(now, prng, LegError::Closed(*reason))
            }
            (State::Opening(of, _), Event::LinkDown { link, reason }) if of == *link => {
                self.failed(now, prng, LegError::Down(*reason))
            }
            (State::Up(of, wanted, _), Event::ChannelClosed { link, channel, .. })
                if (of, wanted) == (*link, *channel) =>
            {
                // The end of the link follows.
                endpoint.close(of);
                return (Some(event), None);
            }
            (State::Up(of, _, since), Event::LinkDown { link, reason }) if of == *link => {
                let was_good = now.since(since) >= WAIT_MOST;
                self.tries = if was_good { 0 } else { self.tries.saturating_add(1) };
                self.state = State::Down(now + wait(self.tries, prng));
                Change::Lost(*reason)
            }
            _ => return (Some(event), None),
        };
        (Some(event), Some(change))
    }

    /// The server does not want this link: it is closed, and another one tried later. Its end is
    /// told by an event.
    pub fn refuse<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        if let State::Up(link, ..) = self.state {
            endpoint.close(link);
        }
    }

    fn failed(&mut self, now: Time, prng: &mut Prng, error: LegError) -> Change {
        self.tries = self.tries.saturating_add(1);
        self.state = State::Down(now + wait(self.tries, prng));
        Change::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_half_of_each_is_chance() {
        let seed = 4;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for tries in [0, 1, 5, 9, 10, 40, u32::MAX] {
            let whole = WAIT_LEAST.saturating_mul(1 << tries.min(20)).min(WAIT_MOST);
            let waits: Vec<_> = (0..50).map(|_| wait(tries, &mut prng)).collect();
            assert!(waits.iter().all(|wait| (whole.0 / 2..=whole.0).contains(&wait.0)));
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }
}
