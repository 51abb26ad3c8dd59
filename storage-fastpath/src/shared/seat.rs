//! A link to the server, one to its replica, and what is under way on them.

use std::collections::HashMap;

use towpath_base::Prng;
use towpath_transport::{
    ChannelId, ConnectError, Device, Endpoint, Event, LinkId, Nanos, Region, Time,
};

use super::request::Task;
use crate::client::{ChunkClient, Done, OpId};
use crate::config::ClientConfig;
use crate::error::{ClientError, ErrorKind};
use crate::hedge::{HedgeConfig, HedgeServer, HedgedClient, blames_server};
use crate::leg::{Change, Leg};
use crate::session::ClientSession;

/// A server of which nothing was heard for so long while an answer was due may be out of reach:
/// many round trips, and more than a busy host needs to get round.
const SILENT_AFTER: Nanos = Nanos::from_secs(1);

/// What a new link does before it takes requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    /// There is no link.
    Out,
    /// It enters the session of this seat.
    Session(OpId),
    /// It says whose its requests are.
    Tenant(OpId),
    /// It takes requests.
    In,
}

/// What became of the link to the server.
#[derive(Debug)]
pub(super) enum News {
    /// It takes requests; those that [waited](Seat::take_fenced) for that may go on.
    Ready,
    /// It could not be made, or not entered.
    Failed(Failure),
}

/// Why.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(ConnectError),
    NoChannel,
    Entry(ClientError),
}

#[derive(Debug)]
pub(super) struct Seat {
    primary: Leg,
    replica: Option<(Leg, HedgeConfig)>,
    client: Option<HedgedClient>,
    session: ClientSession,
    config: ClientConfig,
    entry: Entry,
    running: HashMap<OpId, Task>,
    /// Nothing is given up before: the server was silent.
    patient_until: Time,
    /// Wait until nothing of the link before is still to come; and whether they are then repeated.
    fenced: Vec<(Task, bool)>,
}

impl Seat {
    pub(super) fn new(addr: std::net::SocketAddr, config: &ClientConfig, index: usize) -> Self {
        // One link of a session is in use at a time, so each seat has its own.
        let session = config.session.clone().filter(|_| index == 0).unwrap_or_default();
        Self {
            primary: Leg::new(addr),
            replica: config.hedge.map(|(addr, hedge)| (Leg::new(addr), hedge)),
            client: None,
            session,
            config: config.clone(),
            entry: Entry::Out,
            running: HashMap::new(),
            patient_until: Time::ZERO,
            fenced: Vec::new(),
        }
    }

    /// Requests under way.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether it has nothing of anybody's.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.fenced.is_empty()
    }

    /// Whether a request may be [started](Self::start): one that a replica can do as well, or not.
    pub(super) fn takes(&self, is_for_replica: bool) -> bool {
        let is_up = |client: &ChunkClient| !client.rpc().is_down();
        let Some(client) = &self.client else { return false };
        let by_primary = self.entry == Entry::In && is_up(client.primary());
        by_primary || is_for_replica && client.replica().is_some_and(is_up)
    }

    /// Connects what is not connected, when it is time.
    pub(super) fn begin<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        prng: &mut Prng,
    ) -> Option<News> {
        // Nothing is read before the server itself was there once.
        if let (Some((leg, _)), Some(_)) = (&mut self.replica, &self.client) {
            let change = leg.begin(endpoint, prng);
            self.note_failed(endpoint, HedgeServer::Second, change.as_ref());
        }
        let change = self.primary.begin(endpoint, prng);
        change.and_then(|change| self.on_change(endpoint, change))
    }

    /// Takes an event in; gives back what is not this seat's.
    pub(super) fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        prng: &mut Prng,
    ) -> (Option<Event>, Option<News>) {
        let (event, change) = self.primary.on_event(endpoint, event, prng);
        let news = change.and_then(|change| self.on_change(endpoint, change));
        let Some(event) = event else { return (None, news) };
        let rest = match self.replica.is_some() {
            true => self.on_replica_event(endpoint, event, prng),
            false => Some(event),
        };
        let rest = match (&mut self.client, rest) {
            (Some(client), Some(event)) => client.on_event(endpoint, event),
            (_, rest) => rest,
        };
        (rest, news)
    }

    fn on_replica_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        prng: &mut Prng,
    ) -> Option<Event> {
        let Some((leg, hedge)) = &mut self.replica else { return Some(event) };
        let (hedge, (rest, change)) = (*hedge, leg.on_event(endpoint, event, prng));
        self.note_failed(endpoint, HedgeServer::Second, change.as_ref());
        if let (Some(Change::Up(link, channel)), Some(client)) = (change, &mut self.client) {
            client.set_replica(self.config.chunk_client(link, channel), hedge);
        }
        rest
    }

    fn on_change<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        change: Change,
    ) -> Option<News> {
        self.note_failed(endpoint, HedgeServer::First, Some(&change));
        match change {
            Change::Up(link, channel) => self.enter(endpoint, link, channel),
            Change::Lost => {
                let was_entering = matches!(self.entry, Entry::Session(_) | Entry::Tenant(_));
                self.set_entry(Entry::Out);
                was_entering.then_some(News::Failed(Failure::NoChannel))
            }
            Change::Failed(error) => {
                let failure = error.map_or(Failure::NoChannel, Failure::Connect);
                Some(News::Failed(failure))
            }
        }
    }

    /// A server that could not be connected to is avoided for a while.
    fn note_failed<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &Endpoint<D>,
        server: HedgeServer,
        change: Option<&Change>,
    ) {
        if let (Some(client), Some(Change::Failed(Some(error)))) = (&mut self.client, change)
            && blames_server(error)
        {
            client.avoid(server, endpoint.now());
        }
    }

    fn enter<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        link: LinkId,
        channel: ChannelId,
    ) -> Option<News> {
        let made = self.config.chunk_client(link, channel);
        let client = match self.client.take() {
            Some(mut client) => {
                client.replace_primary(made);
                client
            }
            None => HedgedClient::alone(made),
        };
        let client = self.client.insert(client);
        client.set_primary_ready(false);
        let client = client.primary_mut();
        match client.start_session(endpoint, &self.session) {
            Ok(op) => {
                self.entry = Entry::Session(op);
                None
            }
            Err(error) => Some(self.refused(endpoint, error)),
        }
    }

    fn set_entry(&mut self, entry: Entry) {
        self.entry = entry;
        if let Some(client) = &mut self.client {
            client.set_primary_ready(entry == Entry::In);
        }
    }

    fn refused<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        error: ClientError,
    ) -> News {
        self.set_entry(Entry::Out);
        self.primary.refuse(endpoint);
        News::Failed(Failure::Entry(error))
    }

    /// Takes in what is the seat's own of what has ended.
    fn on_entry<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        done: Done,
    ) -> Option<News> {
        let is_session = match self.entry {
            Entry::Session(op) if op == done.op => true,
            Entry::Tenant(op) if op == done.op => false,
            _ => return None,
        };
        if let Err(error) = done.result {
            return Some(self.refused(endpoint, error));
        }
        let client = self.client.as_mut()?.primary_mut();
        if let Some(tenant) = self.config.tenant.as_deref().filter(|_| is_session) {
            return match client.start_join(endpoint, tenant, false) {
                Ok(op) => {
                    self.entry = Entry::Tenant(op);
                    None
                }
                Err(error) => Some(self.refused(endpoint, error)),
            };
        }
        self.set_entry(Entry::In);
        Some(News::Ready)
    }

    /// Starts a request; gives it back where there is no room for it.
    #[expect(clippy::result_large_err, reason = "the task comes back in it")]
    pub(super) fn start<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        mut task: Task,
    ) -> Result<(), (Task, ErrorKind)> {
        let kind = ErrorKind::PeerGone { fate: towpath_rpc::Fate::DidNotHappen };
        let Some(client) = &mut self.client else { return Err((task, kind)) };
        match task.request.start(client, endpoint) {
            Ok(op) => {
                task.tries += 1;
                self.running.insert(op, task);
                Ok(())
            }
            Err(error) => Err((task, error.kind)),
        }
    }

    /// The next request that has ended, or what became of the link.
    pub(super) fn poll<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Option<Ended> {
        loop {
            let done = self.client.as_mut()?.poll(endpoint)?;
            if let Some(task) = self.running.remove(&done.op) {
                return Some(Ended::Task(task, done.result.map_err(|error| error.kind)));
            }
            if let Some(news) = self.on_entry(endpoint, done) {
                return Some(Ended::News(news));
            }
        }
    }

    /// Keeps a task until nothing of the link before is still to come.
    pub(super) fn fence(&mut self, task: Task, again: bool) {
        self.fenced.push((task, again));
    }

    /// Those that waited for the link, and whether they are repeated.
    pub(super) fn take_fenced(&mut self) -> Vec<(Task, bool)> {
        std::mem::take(&mut self.fenced)
    }

    /// The same, while they wait.
    pub(super) fn fenced_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.fenced.iter_mut().map(|(task, _)| task)
    }

    /// When the time of the first of them is over, where links are out since then.
    pub(super) fn next_late(&self, out_since: Option<Time>) -> Time {
        let late = self.fenced.iter().map(|(task, _)| task.late_at(out_since));
        late.min().unwrap_or(Time::NEVER)
    }

    /// Those whose time is over.
    pub(super) fn take_late(&mut self, now: Time, out_since: Option<Time>) -> Vec<Task> {
        let late = self.fenced.extract_if(.., |(task, _)| task.late_at(out_since) <= now);
        late.map(|(task, _)| task).collect()
    }

    /// Gives up what is out of time. While nothing is heard of the server, time stands still: the
    /// link goes down if that lasts.
    pub(super) fn expire<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let Some(client) = &mut self.client else { return };
        if client.next_deadline() <= endpoint.now()
            && self.running.values().any(|task| task.patience > Nanos::ZERO)
        {
            let link = client.primary().rpc().link();
            if endpoint.silence(link) > Some(SILENT_AFTER) {
                self.patient_until = endpoint.now() + self.config.timeout;
            }
            if endpoint.now() < self.patient_until {
                return;
            }
        }
        client.expire(endpoint);
    }

    /// When [`expire`](Self::expire) or [`begin`](Self::begin) has something to do.
    pub(super) fn next_due(&self) -> Time {
        let Some(client) = &self.client else { return self.primary.next_due() };
        let client = client.next_deadline().max(self.patient_until);
        let replica = self.replica.as_ref().map_or(Time::NEVER, |(leg, _)| leg.next_due());
        client.min(replica).min(self.primary.next_due())
    }

    /// The server that it is for.
    pub(super) fn addr(&self) -> std::net::SocketAddr {
        self.primary.addr()
    }

    /// The most bytes of one operation over its link.
    pub(super) fn io_bytes_max<D: Device<Memory = Region>>(&self, endpoint: &Endpoint<D>) -> usize {
        self.client.as_ref().map_or(0, |client| client.primary().io_bytes_max(endpoint))
    }
}

/// Something that has ended.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Ended {
    Task(Task, Result<crate::output::Output, ErrorKind>),
    News(News),
}
