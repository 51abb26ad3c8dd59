//! A link to the server, one to its replica, and what is under way on them.

use std::net::SocketAddr;

use slab::Slab;
use towpath_base::Prng;
use towpath_transport::{Device, Endpoint, Event, LinkId, Nanos, Region, Time};

use super::request::{Request, Task};
use crate::client::{ChunkClient, Done, OpId};
use crate::config::ClientConfig;
use crate::error::{ClientError, ErrorKind};
use crate::hedge::{
    HedgeServer, HedgeStats, Policy, Trouble, blames_server, may_be_elsewhere, was_lost,
};
use crate::leg::{Change, Leg, LegError};
use crate::output::Output;
use crate::qos::wire::JoinRequest;
use crate::request::StorageRequest;
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

/// What has happened on a seat.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum SeatEvent {
    /// A task's attempt has ended.
    Ended(Task, Result<Output, ErrorKind>),
    /// The link to the server takes requests; those that [waited](Seat::take_fenced) for that may
    /// go on.
    Ready,
    /// The link to the server could not be made, or not entered.
    Failed(Failure),
}

/// Why.
#[derive(Debug)]
pub(super) enum Failure {
    Link(LegError),
    Entry(ClientError),
}

/// One of the two servers: the link to it, and what it was asked for.
#[derive(Debug)]
struct Side {
    leg: Leg,
    /// Over the newest link that was up.
    client: Option<ChunkClient>,
    /// The requests under way, each with the place of what it is for. A request that is not here
    /// was given up, and its end is nobody's.
    asked: Vec<(OpId, usize)>,
    trouble: Trouble,
}

impl Side {
    fn new(addr: SocketAddr) -> Self {
        Self { leg: Leg::new(addr), client: None, asked: Vec::new(), trouble: Trouble::default() }
    }

    fn is_up(&self) -> bool {
        self.client.as_ref().is_some_and(|client| !client.rpc().is_down())
    }

    /// What a request that has ended is for.
    fn take(&mut self, op: OpId) -> Option<usize> {
        let at = self.asked.iter().position(|(asked, _)| *asked == op)?;
        Some(self.asked.swap_remove(at).1)
    }

    fn has_asked(&self, key: usize) -> bool {
        self.asked.iter().any(|(_, of)| *of == key)
    }

    /// Gives the request up that is for `key`, where there is one.
    fn give_up<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, key: usize) {
        let Some(at) = self.asked.iter().position(|(_, of)| *of == key) else { return };
        let (op, _) = self.asked.swap_remove(at);
        if let Some(client) = &mut self.client {
            client.cancel(endpoint, op);
        }
    }

    fn next_deadline(&self) -> Time {
        self.client.as_ref().map_or(Time::NEVER, ChunkClient::next_deadline)
    }
}

/// A task of which an attempt is under way.
#[derive(Debug)]
struct Running {
    task: Task,
    hedge: Option<Hedge>,
}

/// A read that the server was asked for while there was a replica.
#[derive(Clone, Copy, Debug)]
struct Hedge {
    began: Time,
    /// When to ask the replica; never when it was asked or will not be.
    at: Time,
    /// How the server has failed, if it has.
    failed: Option<ErrorKind>,
}

#[derive(Debug)]
pub(super) struct Seat {
    /// The server, and its replica where there is one.
    sides: Vec<Side>,
    session: ClientSession,
    config: ClientConfig,
    entry: Entry,
    running: Slab<Running>,
    policy: Policy,
    /// When the first of the reads is late.
    next_hedge: Time,
    stats: HedgeStats,
    /// Nothing is given up before: the server was silent.
    patient_until: Time,
    /// Wait until nothing of the link before is still to come; and whether they are then repeated.
    fenced: Vec<(Task, bool)>,
}

const FIRST: usize = HedgeServer::First as usize;
const SECOND: usize = HedgeServer::Second as usize;

impl Seat {
    pub(super) fn new(addr: SocketAddr, config: &ClientConfig, index: usize) -> Self {
        let replica = config.hedge.map(|(replica, _)| replica);
        Self {
            sides: [Some(addr), replica].into_iter().flatten().map(Side::new).collect(),
            session: config.session_of(index),
            policy: Policy::new(config.hedge.map(|(_, hedge)| hedge).unwrap_or_default()),
            config: config.clone(),
            entry: Entry::Out,
            running: Slab::new(),
            next_hedge: Time::NEVER,
            stats: HedgeStats::default(),
            patient_until: Time::ZERO,
            fenced: Vec::new(),
        }
    }

    /// Tasks that are under way.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether it has nothing of anybody's.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.fenced.is_empty()
    }

    /// The client of the server, over the newest link that was up.
    pub(super) fn client(&self) -> Option<&ChunkClient> {
        self.sides[FIRST].client.as_ref()
    }

    pub(super) fn hedge_stats(&self) -> HedgeStats {
        self.stats
    }

    /// Tells link and age of each request that has waited for `after`, and whether it is told for
    /// the first time.
    pub(super) fn note_slow(
        &mut self,
        now: Time,
        after: Nanos,
        tell: &mut dyn FnMut(LinkId, Nanos, bool),
    ) {
        for client in self.sides.iter_mut().filter_map(|side| side.client.as_mut()) {
            client.note_slow(now, after, &mut *tell);
        }
    }

    fn is_ready(&self) -> bool {
        self.entry == Entry::In && self.sides[FIRST].is_up()
    }

    pub(super) fn replica_is_up(&self) -> bool {
        self.sides.get(SECOND).is_some_and(Side::is_up)
    }

    /// Whether a task may be [started](Self::start): one that a replica can do as well, or not.
    pub(super) fn takes(&self, is_for_replica: bool) -> bool {
        self.is_ready() || is_for_replica && self.replica_is_up()
    }

    /// Avoids a server for a while.
    pub(super) fn avoid(&mut self, server: HedgeServer, now: Time) {
        if let Some(side) = self.sides.get_mut(server as usize) {
            side.trouble.note(now, self.policy.avoid_for());
        }
    }

    /// Forgets what happened to a server.
    pub(super) fn trust(&mut self, server: HedgeServer) {
        if let Some(side) = self.sides.get_mut(server as usize) {
            side.trouble = Trouble::default();
        }
    }

    pub(super) fn is_avoided(&self, server: HedgeServer, now: Time) -> bool {
        self.sides.get(server as usize).is_some_and(|side| side.trouble.is_on(now))
    }

    /// Whether of the two servers this one is avoided at `now`, and the other is not.
    fn is_avoided_alone(&self, server: HedgeServer, now: Time) -> bool {
        self.is_avoided(server, now) && !self.is_avoided(server.other(), now)
    }

    /// Connects what is not connected, when it is time.
    pub(super) fn begin<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        prng: &mut Prng,
    ) -> Option<SeatEvent> {
        // Nothing is read before the server itself was there once.
        if let [first, second] = &mut self.sides[..]
            && first.client.is_some()
            && let Some(change) = second.leg.begin(endpoint, prng)
        {
            self.on_change(endpoint, HedgeServer::Second, change);
        }
        let change = self.sides[FIRST].leg.begin(endpoint, prng);
        change.and_then(|change| self.on_change(endpoint, HedgeServer::First, change))
    }

    /// Goes on with a link to the server that its caller has made.
    pub(super) fn joined<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        link: LinkId,
        prng: &mut Prng,
    ) -> Option<SeatEvent> {
        let change = self.sides[FIRST].leg.joined(endpoint, Some(link), prng);
        change.and_then(|change| self.on_change(endpoint, HedgeServer::First, change))
    }

    /// Takes an event in; gives back what is not this seat's.
    pub(super) fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        prng: &mut Prng,
    ) -> (Option<Event>, Option<SeatEvent>) {
        let (mut rest, mut news) = (Some(event), None);
        for server in HedgeServer::BOTH.into_iter().take(self.sides.len()) {
            let Some(event) = rest.take() else { break };
            let (left, change) = self.sides[server as usize].leg.on_event(endpoint, event, prng);
            rest = left;
            if let Some(change) = change {
                news = self.on_change(endpoint, server, change).or(news);
            }
        }
        for side in &mut self.sides {
            let Some(client) = &mut side.client else { continue };
            let Some(event) = rest.take() else { break };
            if let Event::LinkDown { link, reason } = event
                && link == client.rpc().link()
                && was_lost(reason)
            {
                side.trouble.note(endpoint.now(), self.policy.avoid_for());
            }
            rest = client.on_event(endpoint, event);
        }
        (rest, news)
    }

    fn on_change<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        server: HedgeServer,
        change: Change,
    ) -> Option<SeatEvent> {
        if let Change::Failed(LegError::Connect(error)) = &change
            && blames_server(error)
        {
            self.avoid(server, endpoint.now());
        }
        if let Change::Up(link, channel) = change {
            let side = &mut self.sides[server as usize];
            debug_assert!(side.asked.is_empty(), "what the link before was asked for has ended");
            side.client = Some(self.config.chunk_client(link, channel));
        }
        match (server, change) {
            (HedgeServer::Second, _) => None,
            (HedgeServer::First, Change::Up(..)) => self.enter(endpoint),
            (HedgeServer::First, Change::Lost(reason)) => {
                let was_entering = matches!(self.entry, Entry::Session(_) | Entry::Tenant(_));
                self.entry = Entry::Out;
                let failure = Failure::Link(LegError::Down(reason));
                was_entering.then_some(SeatEvent::Failed(failure))
            }
            (HedgeServer::First, Change::Failed(error)) => {
                Some(SeatEvent::Failed(Failure::Link(error)))
            }
        }
    }

    fn enter<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Option<SeatEvent> {
        let client = self.sides[FIRST].client.as_mut()?;
        match client.start_request(endpoint, &self.session.enter()) {
            Ok(op) => {
                self.entry = Entry::Session(op);
                None
            }
            Err(error) => Some(self.refused(endpoint, error)),
        }
    }

    fn refused<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        error: ClientError,
    ) -> SeatEvent {
        self.entry = Entry::Out;
        self.sides[FIRST].leg.refuse(endpoint);
        SeatEvent::Failed(Failure::Entry(error))
    }

    /// Takes in what is the seat's own of what has ended, or nobody's.
    fn on_other<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        Done { op, result }: Done,
    ) -> Option<SeatEvent> {
        let is_session = match self.entry {
            Entry::Session(own) if own == op => true,
            Entry::Tenant(own) if own == op => false,
            _ => {
                // It may have been quicker than it could be given up.
                if let Ok(Output::Read(data)) = result {
                    data.release(endpoint);
                }
                return None;
            }
        };
        if let Err(error) = result {
            return Some(self.refused(endpoint, error));
        }
        let client = self.sides[FIRST].client.as_mut()?;
        if let Some(tenant) = self.config.tenant.clone().filter(|_| is_session) {
            let join = StorageRequest::Join(JoinRequest { tenant, runs_engine: false });
            return match client.start_request(endpoint, &join) {
                Ok(op) => {
                    self.entry = Entry::Tenant(op);
                    None
                }
                Err(error) => Some(self.refused(endpoint, error)),
            };
        }
        self.entry = Entry::In;
        Some(SeatEvent::Ready)
    }

    /// Starts a task; gives it back where there is no room for it.
    #[expect(clippy::result_large_err, reason = "the task comes back in it")]
    pub(super) fn start<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        mut task: Task,
    ) -> Result<(), (Task, ErrorKind)> {
        let now = endpoint.now();
        let is_read = task.request.is_for_replica();
        let is_out = !self.is_ready();
        let is_elsewhere = is_read
            && (is_out || self.is_avoided_alone(HedgeServer::First, now))
            && self.replica_is_up();
        let side = &mut self.sides[if is_elsewhere { SECOND } else { FIRST }];
        let Some(client) = &mut side.client else {
            let fate = towpath_rpc::Fate::DidNotHappen;
            return Err((task, ErrorKind::PeerGone { fate }));
        };
        let op = match task.request.start(client, endpoint) {
            Ok(op) => op,
            Err(error) => return Err((task, error.kind)),
        };
        task.tries += 1;
        let has_replica = self.sides.get(SECOND).is_some_and(|side| side.client.is_some());
        let hedge = (is_read && !is_elsewhere && has_replica).then(|| {
            self.policy.on_read();
            Hedge { began: now, at: now + self.policy.delay(), failed: None }
        });
        self.next_hedge = hedge.map_or(self.next_hedge, |hedge| self.next_hedge.min(hedge.at));
        self.stats.reads += u64::from(is_read);
        self.stats.failovers += u64::from(is_elsewhere && is_out);
        self.stats.avoided += u64::from(is_elsewhere && !is_out);
        let key = self.running.insert(Running { task, hedge });
        self.sides[if is_elsewhere { SECOND } else { FIRST }].asked.push((op, key));
        Ok(())
    }

    /// The next thing that has happened: a task that has ended, or what became of the link.
    pub(super) fn poll<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Option<SeatEvent> {
        for server in HedgeServer::BOTH.into_iter().take(self.sides.len()) {
            let at = server as usize;
            while let Some(done) = self.sides[at].client.as_mut().and_then(|c| c.poll(endpoint)) {
                let ended = match self.sides[at].take(done.op) {
                    Some(key) => {
                        let result = done.result.map_err(|error| error.kind);
                        self.on_ended(endpoint, (server, key), result)
                    }
                    None => self.on_other(endpoint, done),
                };
                if ended.is_some() {
                    return ended;
                }
            }
        }
        None
    }

    /// One of the two servers has answered, or could not.
    fn on_ended<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (server, key): (HedgeServer, usize),
        mut result: Result<Output, ErrorKind>,
    ) -> Option<SeatEvent> {
        if let Some(hedge) = self.running[key].hedge {
            match (server, &result) {
                (HedgeServer::First, Err(kind)) if may_be_elsewhere(kind) => {
                    if hedge.at != Time::NEVER && self.replica_is_up() {
                        let is_asked = self.ask_replica(endpoint, key);
                        self.stats.failovers += u64::from(is_asked);
                    }
                    if self.sides[SECOND].has_asked(key) {
                        let failed = Some(*kind);
                        self.running[key].hedge = Some(Hedge { at: Time::NEVER, failed, ..hedge });
                        return None;
                    }
                }
                (HedgeServer::Second, Err(_)) => match hedge.failed {
                    None => return None,
                    Some(kind) => result = Err(kind),
                },
                _ if hedge.failed.is_none() => {
                    self.policy.on_latency(endpoint.now().since(hedge.began));
                    self.stats.hedges_won += u64::from(server == HedgeServer::Second);
                    self.sides[server.other() as usize].give_up(endpoint, key);
                }
                _ => {}
            }
        }
        Some(SeatEvent::Ended(self.running.remove(key).task, result))
    }

    /// A read is late: the replica is asked for it, where it may be.
    fn hedge<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, key: usize) {
        let is_worse = self.is_avoided_alone(HedgeServer::Second, endpoint.now());
        if is_worse && self.sides[FIRST].is_up() {
            self.stats.hedges_avoided += 1;
            return;
        }
        let is_asked =
            self.replica_is_up() && self.policy.spend() && self.ask_replica(endpoint, key);
        self.stats.hedges += u64::from(is_asked);
        self.stats.hedges_denied += u64::from(!is_asked);
    }

    /// Asks the replica for a read, which has what is left of its time.
    fn ask_replica<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
    ) -> bool {
        let Running { task, hedge: Some(hedge) } = &self.running[key] else { return false };
        let Request::Read { chunk, offset, length, .. } = task.request else { return false };
        let deadline = hedge.began + self.config.timeout;
        let side = &mut self.sides[SECOND];
        let Some(client) = &mut side.client else { return false };
        let op = client.start_read_until(endpoint, chunk, offset, length, deadline).ok();
        side.asked.extend(op.map(|op| (op, key)));
        op.is_some()
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
        let late = self.fenced.iter().map(|(task, _)| task.late_at(out_since, false));
        late.min().unwrap_or(Time::NEVER)
    }

    /// Those whose time is over.
    pub(super) fn take_late(&mut self, now: Time, out_since: Option<Time>) -> Vec<Task> {
        let late = self.fenced.extract_if(.., |(task, _)| task.late_at(out_since, false) <= now);
        late.map(|(task, _)| task).collect()
    }

    /// Gives up what is out of time, and asks the replica for what is late. While nothing is heard
    /// of the server, time stands still: the link goes down if that lasts.
    pub(super) fn expire<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let Some(client) = self.client() else { return };
        let now = endpoint.now();
        let waits =
            |Task { patience, .. }: &Task| patience.span > Nanos::ZERO && !patience.is_limit;
        if client.next_deadline() <= now
            && self.running.iter().any(|(_, running)| waits(&running.task))
        {
            if endpoint.silence(client.rpc().link()) > Some(SILENT_AFTER) {
                self.patient_until = now + self.config.timeout;
            }
            if now < self.patient_until {
                return;
            }
        }
        for client in self.sides.iter_mut().filter_map(|side| side.client.as_mut()) {
            client.expire(endpoint);
        }
        if now < self.next_hedge {
            return;
        }
        self.next_hedge = Time::NEVER;
        for key in 0..self.running.capacity() {
            let Some(Running { hedge: Some(hedge), .. }) = self.running.get_mut(key) else {
                continue;
            };
            if hedge.at <= now {
                hedge.at = Time::NEVER;
                self.hedge(endpoint, key);
            } else {
                self.next_hedge = self.next_hedge.min(hedge.at);
            }
        }
    }

    /// When [`expire`](Self::expire) or [`begin`](Self::begin) has something to do.
    pub(super) fn next_due(&self) -> Time {
        let first = &self.sides[FIRST];
        if first.client.is_none() {
            return first.leg.next_due();
        }
        let deadlines = self.sides.iter().map(Side::next_deadline).fold(self.next_hedge, Time::min);
        let legs = self.sides.iter().map(|side| side.leg.next_due());
        legs.fold(deadlines.max(self.patient_until), Time::min)
    }

    /// The server that it is for.
    pub(super) fn addr(&self) -> SocketAddr {
        self.sides[FIRST].leg.addr()
    }

    /// The most bytes of one operation over its link.
    pub(super) fn io_bytes_max<D: Device<Memory = Region>>(&self, endpoint: &Endpoint<D>) -> usize {
        self.client().map_or(0, |client| client.io_bytes_max(endpoint))
    }
}
