//! The blocking client: it owns an endpoint and drives it while a call waits.

mod changes;

use crate::client::{ChunkClient, Done, OpId};
use crate::config::ClientConfig;
use crate::control::{ChunkInfo, InfoReply, ListReply, ScrubReply};
use crate::digest::{Digest, Sketches};
use crate::error::{ClientError, ErrorKind, OpenError};
use crate::health::{HealthMonitor, HealthReply};
use crate::hedge::{HedgeServer, HedgeStats, HedgedClient};
use crate::limits::LIST_MAX;
use crate::output::{Output, ReadData};
use crate::qos::wire::{JoinReply, QosReply};
use crate::resident::ResidentStats;
use crate::slice::ChunkId;
use crate::wire::Method;
use std::net::SocketAddr;
use towpath_transport::{
    ChannelId, Device, Endpoint, Event, LinkId, LinkStats, Nanos, Region, RoceUdp, Time,
};

/// The longest that a wait blocks before it looks at deadlines again.
pub(crate) const BLOCK_MAX: Nanos = Nanos::from_millis(1);

/// How long a goodbye may take.
const GOODBYE_WAIT: Nanos = Nanos::from_secs(1);

/// A connection to a chunk server; each call blocks until the server has answered.
///
/// [`connect`](Self::connect) makes one. Create a chunk, then write it and read it; the crate's
/// page has an example. A program that does other work while it waits uses
/// [`ChunkClient`].
pub struct BlockingClient<D: Device<Memory = Region> = RoceUdp> {
    pub(crate) endpoint: Endpoint<D>,
    pub(crate) client: HedgedClient,
    pub(crate) config: ClientConfig,
    idle_since: Option<Time>,
    monitor: HealthMonitor,
}

impl BlockingClient<RoceUdp> {
    /// Connects to the chunk server that listens on `addr`, over the default device.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn connect(addr: SocketAddr, config: ClientConfig) -> Result<Self, OpenError> {
        let endpoint = Endpoint::udp(config.udp_config(addr)?, config.endpoint_config())?;
        Self::over(endpoint, addr, config)
    }
}

impl<D: Device<Memory = Region>> BlockingClient<D> {
    /// Connects over an endpoint of the caller's own, which has room for a second link where reads
    /// are hedged.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn over(
        mut endpoint: Endpoint<D>,
        addr: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, OpenError> {
        let primary = join(&mut endpoint, addr, &config)?;
        let client = match config.hedge {
            Some((replica, hedge)) => {
                let replica = join(&mut endpoint, replica, &config)?;
                HedgedClient::new(primary, replica, hedge)
            }
            None => HedgedClient::alone(primary),
        };
        let monitor = HealthMonitor::new(config.health);
        let mut opened = Self { endpoint, client, config, idle_since: None, monitor };
        if let Some(session) = opened.config.session.clone() {
            let primary = opened.client.primary_mut();
            let op = primary.start_session(&mut opened.endpoint, &session)?;
            opened.wait(op)?;
        }
        Ok(opened)
    }

    /// The state of a chunk.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stat(&mut self, chunk: ChunkId) -> Result<ChunkInfo, ClientError> {
        let op = self.client.primary_mut().start_stat(&mut self.endpoint, chunk)?;
        match self.wait(op)? {
            Output::Stat(info) => Ok(info),
            _ => Err(wrong(Method::Stat)),
        }
    }

    /// One page of the listing, after the chunk `after`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn list_page(&mut self, after: Option<ChunkId>) -> Result<ListReply, ClientError> {
        let op =
            self.client.primary_mut().start_list(&mut self.endpoint, after, LIST_MAX as u32)?;
        match self.wait(op)? {
            Output::List(list) => Ok(list),
            _ => Err(wrong(Method::List)),
        }
    }

    /// All chunks, in the order of their names.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn list(&mut self) -> Result<Vec<ChunkInfo>, ClientError> {
        let mut all: Vec<ChunkInfo> = Vec::new();
        loop {
            let after: Option<ChunkId> = all.last().map(|info| info.chunk.into());
            let page = self.list_page(after)?;
            // A server whose pages do not advance would keep us here for ever.
            let sorted = page.chunks.iter().all(|info| Some(info.chunk.into()) > after);
            if !sorted {
                return Err(wrong(Method::List));
            }
            let last = !page.more || page.chunks.is_empty();
            all.extend(page.chunks);
            if last {
                return Ok(all);
            }
        }
    }

    /// The checksums of the slices of a range that begins with one, of at most
    /// [`IO_BYTES_MAX`](crate::limits::IO_BYTES_MAX) bytes, as far as the chunk has them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn digest(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<Digest, ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_digest(&mut self.endpoint, chunk, offset, length)?;
        match self.wait(op)? {
            Output::Digest(digest) => Ok(digest),
            _ => Err(wrong(Method::Digest)),
        }
    }

    /// The sketch of each slice of a range that begins with one, of at most
    /// [`SKETCHED_BYTES_MAX`](crate::limits::SKETCHED_BYTES_MAX) bytes, drawn by a seed.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn sketch(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
        seed: u64,
    ) -> Result<Sketches, ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_sketch(&mut self.endpoint, chunk, (offset, length), seed)?;
        match self.wait(op)? {
            Output::Sketches(sketches) => Ok(sketches),
            _ => Err(wrong(Method::Sketch)),
        }
    }

    /// Has up to `budget_slices` more slices checked, or as many as the server likes when that is
    /// 0.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn scrub_step(&mut self, budget_slices: u64) -> Result<ScrubReply, ClientError> {
        let op = self.client.primary_mut().start_scrub(&mut self.endpoint, budget_slices)?;
        match self.wait(op)? {
            Output::Scrub(report) => Ok(report),
            _ => Err(wrong(Method::Scrub)),
        }
    }

    /// Says that the requests of this client are those of a tenant, and use its tokens.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn join(&mut self, tenant: &str) -> Result<JoinReply, ClientError> {
        let op = self.client.primary_mut().start_join(&mut self.endpoint, tenant, false)?;
        match self.wait(op)? {
            Output::Joined(reply) => Ok(reply),
            _ => Err(wrong(Method::Join)),
        }
    }

    /// How the server keeps reservations.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn qos(&mut self) -> Result<QosReply, ClientError> {
        let op = self.client.primary_mut().start_qos(&mut self.endpoint)?;
        match self.wait(op)? {
            Output::Qos(reply) => Ok(reply),
            _ => Err(wrong(Method::Qos)),
        }
    }

    /// What the server is and how it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn info(&mut self) -> Result<InfoReply, ClientError> {
        let op = self.client.primary_mut().start_info(&mut self.endpoint)?;
        match self.wait(op)? {
            Output::Info(info) => Ok(info),
            _ => Err(wrong(Method::Info)),
        }
    }

    /// Reads at most one operation's bytes from `offset` on, of one version of the chunk;
    /// [`read`](Self::read) takes more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read_once(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<ReadData, ClientError> {
        let op = self.client.start_read(&mut self.endpoint, chunk, offset, length)?;
        match self.wait(op)? {
            Output::Read(data) => Ok(data),
            _ => Err(wrong(Method::Read)),
        }
    }

    /// Reads at most one operation's bytes from `offset` on, by READs of the server's memory where
    /// the chunk is resident; see [`ChunkClient::start_resident_read`]. Such a read is not hedged.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read_resident(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<ReadData, ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_resident_read(&mut self.endpoint, chunk, offset, length)?;
        match self.wait(op)? {
            Output::Read(data) => Ok(data),
            _ => Err(wrong(Method::Read)),
        }
    }

    /// What became of reads of resident chunks.
    #[must_use]
    pub fn resident_stats(&self) -> ResidentStats {
        self.client.primary().resident_stats()
    }

    /// The counters of the link; none when it is down.
    #[must_use]
    pub fn link_stats(&self) -> Option<LinkStats> {
        self.endpoint.stats(self.client.primary().rpc().link())
    }

    /// The endpoint, for its counters and its device's.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<D> {
        &self.endpoint
    }

    /// The parts, for callers that drive operations themselves.
    pub fn parts(&mut self) -> (&mut Endpoint<D>, &mut ChunkClient) {
        (&mut self.endpoint, self.client.primary_mut())
    }

    /// How the server's links are, as it sees them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn server_health(&mut self) -> Result<HealthReply, ClientError> {
        let op = self.client.primary_mut().start_health(&mut self.endpoint)?;
        match self.wait(op)? {
            Output::Health(health) => Ok(health),
            _ => Err(wrong(Method::Health)),
        }
    }

    /// How this client's links are, and what has become of them: looked at while calls wait.
    pub fn health(&mut self) -> &mut HealthMonitor {
        &mut self.monitor
    }

    /// What hedging did.
    #[must_use]
    pub fn hedge_stats(&self) -> HedgeStats {
        self.client.stats()
    }

    /// Avoids one of the two servers of hedged reads for a while, as when it is known to be slow.
    pub fn avoid(&mut self, server: HedgeServer) {
        self.client.avoid(server, self.endpoint.now());
    }

    /// Whether one of the two servers of hedged reads is avoided.
    #[must_use]
    pub fn is_avoided(&self, server: HedgeServer) -> bool {
        self.client.is_avoided(server, self.endpoint.now())
    }

    /// Trusts a server again that was avoided.
    pub fn trust(&mut self, server: HedgeServer) {
        self.client.trust(server);
    }

    /// Leaves in order, so that the server need not find out.
    pub fn close(mut self) {
        say_goodbye(&mut self.endpoint);
    }

    /// Runs turns until `op` has ended.
    fn wait(&mut self, op: OpId) -> Result<Output, ClientError> {
        loop {
            let Done { op: ended, result } = self.next_done();
            if ended == op {
                return result;
            }
        }
    }

    /// Runs turns until some operation has ended. There must be one: each ends by its deadline.
    pub(crate) fn next_done(&mut self) -> Done {
        self.endpoint.flush();
        loop {
            if let Some(done) = self.client.poll(&mut self.endpoint) {
                self.idle_since = None;
                return done;
            }
            debug_assert!(self.client.under_way() > 0, "waiting for nothing");
            self.turn();
        }
    }

    fn turn(&mut self) {
        let Self { endpoint, client, monitor, .. } = self;
        let mut busy = endpoint.poll() > 0;
        while let Some(event) = endpoint.next_event() {
            busy = true;
            monitor.on_event(&event);
            drop(client.on_event(endpoint, event));
        }
        // What has come while this host was away comes before the end of its time.
        client.expire(endpoint);
        endpoint.flush();
        let now = endpoint.now();
        monitor.look_when_due(now, endpoint, |now, after, tell| {
            client.note_slow(now, after, tell);
        });
        let idle_since = *self.idle_since.get_or_insert(now);
        if busy {
            self.idle_since = None;
        } else if now.since(idle_since) >= self.config.spin {
            let due = client.next_deadline().since(now);
            endpoint.wait(due.min(BLOCK_MAX));
        } else {
            std::hint::spin_loop();
        }
    }
}

impl<D: Device<Memory = Region>> std::fmt::Debug for BlockingClient<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingClient").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Leaves on all links in order, and waits for a moment until their peers know.
pub(crate) fn say_goodbye<D: Device<Memory = Region>>(endpoint: &mut Endpoint<D>) {
    let links: Vec<LinkId> = endpoint.links().collect();
    links.into_iter().for_each(|link| endpoint.close(link));
    let until = endpoint.now() + GOODBYE_WAIT;
    while endpoint.links().next().is_some() && endpoint.now() < until {
        if !endpoint.turn(|_, _| {}) {
            endpoint.wait(BLOCK_MAX);
        }
    }
}

/// A link and a channel to a server.
fn join<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    addr: SocketAddr,
    config: &ClientConfig,
) -> Result<ChunkClient, OpenError> {
    let connect = endpoint.connect(addr)?;
    let link = until(endpoint, |event| match event {
        Event::Connected { connect: of, link, .. } if of == connect => Some(Ok(link)),
        Event::ConnectFailed { connect: of, error } if of == connect => Some(Err(error)),
        _ => None,
    })?;
    let no_channel = || OpenError::NoChannel { addr };
    let wanted = endpoint.open_channel(link, false).map_err(|_| no_channel())?;
    let channel = until(endpoint, |event| opened(&event, link, wanted));
    let channel = channel.ok_or_else(no_channel)?;
    Ok(config.chunk_client(link, channel))
}

/// A reply of the right method with the wrong content cannot be built; this names it all the same.
fn wrong(method: Method) -> ClientError {
    ClientError { method, chunk: None, offset: None, kind: ErrorKind::WrongReply }
}

/// Whether `event` says that channel `wanted` is open, or that it never will be.
fn opened(event: &Event, link: LinkId, wanted: ChannelId) -> Option<Option<ChannelId>> {
    match event {
        Event::ChannelOpened { link: l, channel, .. } if (*l, *channel) == (link, wanted) => {
            Some(Some(wanted))
        }
        Event::ChannelClosed { link: l, channel, .. } if (*l, *channel) == (link, wanted) => {
            Some(None)
        }
        Event::LinkDown { link: l, .. } if *l == link => Some(None),
        _ => None,
    }
}

/// Runs turns until `pick` finds what it looks for. Both uses end: connecting has a timeout, and
/// a link whose peer is silent goes down.
fn until<D: Device<Memory = Region>, T>(
    endpoint: &mut Endpoint<D>,
    mut pick: impl FnMut(Event) -> Option<T>,
) -> T {
    let mut found = None;
    loop {
        let busy = endpoint.turn(|_, event| {
            if found.is_none() {
                found = pick(event);
            }
        });
        if let Some(found) = found {
            return found;
        }
        if !busy {
            endpoint.wait(BLOCK_MAX);
        }
    }
}
