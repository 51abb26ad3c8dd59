//! A client with a link to each server.

use super::server::{Nic, join};
use towpath_base::{Nanos, Time};
use towpath_fastpath::{ChunkClient, ClientError, OpId};
use towpath_transport::{ChannelId, Endpoint, Event, LinkId};

/// How long a request may take.
const TIMEOUT: Nanos = Nanos::from_secs(1);

enum Conn {
    Opening(LinkId, ChannelId),
    Up(LinkId, Box<ChunkClient>),
}

pub(super) struct Client {
    endpoint: Endpoint<Nic>,
    conns: Vec<Conn>,
    /// Requests that have not ended.
    under_way: usize,
    /// What went wrong.
    pub(super) troubles: Vec<String>,
}

impl Client {
    pub(super) fn new(endpoint: Endpoint<Nic>) -> Self {
        Self { endpoint, conns: Vec::new(), under_way: 0, troubles: Vec::new() }
    }

    /// Links it to one server more.
    pub(super) fn connect(&mut self, server: &mut Endpoint<Nic>) {
        let link = join(&mut self.endpoint, server);
        let channel = link.map(|link| (link, self.endpoint.open_channel(link, false)));
        match channel {
            Some((link, Ok(channel))) => self.conns.push(Conn::Opening(link, channel)),
            _ => self.troubles.push("a server could not be reached".to_owned()),
        }
        self.endpoint.flush();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.conns.iter().all(|conn| matches!(conn, Conn::Up(..)))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Asks a server for something.
    pub(super) fn ask(
        &mut self,
        server: usize,
        ask: impl FnOnce(&mut ChunkClient, &mut Endpoint<Nic>) -> Result<OpId, ClientError>,
    ) {
        let Some(Conn::Up(_, chunks)) = self.conns.get_mut(server) else {
            return self.troubles.push("a request before its link is up".to_owned());
        };
        match ask(chunks, &mut self.endpoint) {
            Ok(_) => self.under_way += 1,
            Err(error) => self.troubles.push(error.to_string()),
        }
        self.endpoint.flush();
    }

    /// Takes in what has come. False where nothing happened.
    pub(super) fn turn(&mut self) -> bool {
        let mut is_busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            is_busy = true;
            self.on_event(event);
        }
        for conn in &mut self.conns {
            let Conn::Up(_, chunks) = conn else { continue };
            chunks.expire(&mut self.endpoint);
            while let Some(done) = chunks.poll(&mut self.endpoint) {
                is_busy = true;
                self.under_way = self.under_way.saturating_sub(1);
                if let Err(error) = done.result {
                    self.troubles.push(error.to_string());
                }
            }
        }
        self.endpoint.flush();
        is_busy
    }

    fn on_event(&mut self, event: Event) {
        let link = event.link();
        let is_its = |conn: &Conn| match conn {
            Conn::Up(of, _) | Conn::Opening(of, _) => Some(*of) == link,
        };
        let Some(conn) = self.conns.iter_mut().find(|conn| is_its(conn)) else { return };
        if matches!(event, Event::LinkDown { .. }) {
            self.troubles.push("a link is down".to_owned());
        }
        match conn {
            Conn::Up(_, chunks) => {
                chunks.on_event(&mut self.endpoint, event);
            }
            Conn::Opening(link, channel) if matches!(event, Event::ChannelOpened { .. }) => {
                let mut chunks = ChunkClient::new(*link, *channel).timeout(TIMEOUT);
                chunks.set_longest_request(8 << 20);
                *conn = Conn::Up(*link, Box::new(chunks));
            }
            Conn::Opening(..) => {}
        }
    }

    pub(super) fn next_time(&self) -> Time {
        let due = |conn: &Conn| match conn {
            Conn::Opening(..) => Time::NEVER,
            Conn::Up(_, chunks) => chunks.next_deadline(),
        };
        let conns = self.conns.iter().map(due).min().unwrap_or(Time::NEVER);
        conns.min(self.endpoint.next_timeout())
    }
}
