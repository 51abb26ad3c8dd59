//! A client of all servers of a history, in virtual time.

use towpath_base::{Nanos, Prng, Time};
use towpath_fastpath::{ChunkClient, ErrorKind, OpId, Output};
use towpath_transport::{ChannelId, Endpoint, Event, LinkId};

use super::server::Nic;

/// When a link that could not be made is tried again.
pub(super) const RETRY: Nanos = Nanos::from_millis(5);

/// A link to one server.
enum Conn {
    /// To be made at that time.
    Down(Time),
    Opening(LinkId, ChannelId),
    Up(LinkId, Box<ChunkClient>),
}

/// An operation of a client.
pub(super) type Key = (usize, OpId);

/// One that has ended, and the bytes of a read.
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) result: Result<Vec<u8>, ErrorKind>,
}

pub(super) struct Client {
    pub(super) endpoint: Endpoint<Nic>,
    conns: Vec<Conn>,
    timeout: Nanos,
    grace: Nanos,
}

impl Client {
    pub(super) fn new(
        endpoint: Endpoint<Nic>,
        servers: usize,
        (timeout, grace): (Nanos, Nanos),
    ) -> Self {
        let conns = (0..servers).map(|_| Conn::Down(Time::ZERO)).collect();
        Self { endpoint, conns, timeout, grace }
    }

    /// The servers that links are to be made to now.
    pub(super) fn wanted(&self, now: Time) -> Vec<usize> {
        let is_due = |conn: &Conn| matches!(conn, Conn::Down(at) if *at <= now);
        (0..self.conns.len()).filter(|server| is_due(&self.conns[*server])).collect()
    }

    /// A link was made to one of them, or is to be tried again then.
    pub(super) fn join(&mut self, server: usize, link: Result<LinkId, Time>) {
        self.conns[server] = match link {
            Ok(link) => match self.endpoint.open_channel(link, false) {
                Ok(channel) => Conn::Opening(link, channel),
                Err(_) => Conn::Down(self.endpoint.now() + RETRY),
            },
            Err(at) => Conn::Down(at),
        };
    }

    /// What sends requests to a server, while its link is up.
    pub(super) fn to(&mut self, server: usize) -> Option<(&mut Endpoint<Nic>, &mut ChunkClient)> {
        match &mut self.conns[server] {
            Conn::Up(_, chunks) => Some((&mut self.endpoint, chunks)),
            _ => None,
        }
    }

    pub(super) fn under_way(&self) -> usize {
        let of = |conn: &Conn| if let Conn::Up(_, chunks) = conn { chunks.under_way() } else { 0 };
        self.conns.iter().map(of).sum()
    }

    /// Takes in what has come; gives what has ended. False where nothing happened.
    pub(super) fn turn(&mut self, prng: &mut Prng, ended: &mut Vec<Ended>) -> bool {
        let mut is_busy = self.endpoint.poll() > 0;
        let mut lost = Vec::new();
        while let Some(event) = self.endpoint.next_event() {
            is_busy = true;
            self.on_event(event, &mut lost);
        }
        for server in 0..self.conns.len() {
            let Conn::Up(_, chunks) = &mut self.conns[server] else { continue };
            chunks.expire(&mut self.endpoint);
            while let Some(done) = chunks.poll(&mut self.endpoint) {
                is_busy = true;
                let result = done.result.map_err(|error| error.kind).map(|output| match output {
                    Output::Read(data) => data.to_vec(),
                    _ => Vec::new(),
                });
                ended.push(Ended { key: (server, done.op), result });
            }
        }
        let now = self.endpoint.now();
        for server in lost {
            self.conns[server] = Conn::Down(now + Nanos::from_micros(prng.between(100, 20_000)));
        }
        self.endpoint.flush();
        is_busy
    }

    fn on_event(&mut self, event: Event, lost: &mut Vec<usize>) {
        let link = event.link();
        let is_its = |conn: &Conn| match conn {
            Conn::Up(of, _) | Conn::Opening(of, _) => Some(*of) == link,
            Conn::Down(_) => false,
        };
        let Some(server) = self.conns.iter().position(is_its) else { return };
        let is_down = matches!(event, Event::LinkDown { .. });
        if let (Event::ChannelClosed { .. }, Some(link)) = (&event, link) {
            // Its end follows.
            self.endpoint.close(link);
        }
        match &mut self.conns[server] {
            Conn::Up(_, chunks) => {
                chunks.on_event(&mut self.endpoint, event);
            }
            Conn::Opening(link, channel) if matches!(event, Event::ChannelOpened { .. }) => {
                let chunks = ChunkClient::new(*link, *channel).timeout(self.timeout);
                let mut chunks = chunks.outcome_grace(self.grace);
                chunks.set_longest_request(2 << 20);
                self.conns[server] = Conn::Up(*link, Box::new(chunks));
            }
            _ => {}
        }
        if is_down {
            lost.push(server);
        }
    }

    pub(super) fn next_due(&self) -> Time {
        let due = |conn: &Conn| match conn {
            Conn::Down(at) => *at,
            Conn::Opening(..) => Time::NEVER,
            Conn::Up(_, chunks) => chunks.next_deadline(),
        };
        let conns = self.conns.iter().map(due).min().unwrap_or(Time::NEVER);
        conns.min(self.endpoint.next_timeout())
    }
}
