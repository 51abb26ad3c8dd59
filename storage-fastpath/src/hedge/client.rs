//! Two clients as one: reads go to the first, and late ones to the second as well.

use super::policy::{HedgeConfig, Policy};
use super::trouble::{Trouble, was_lost};
use crate::client::{ChunkClient, Done, OpId};
use crate::error::{ClientError, ErrorKind};
use crate::output::Output;
use crate::slice::ChunkId;
use crate::wire::ErrorReply;
use std::collections::VecDeque;
use towpath_transport::{Device, Endpoint, Event, LinkId, Nanos, Region, Time};

/// Operations at the second replica are numbered from here on, those at the first from 0: so one
/// number tells both apart.
const REPLICA_IDS: u64 = 1 << 63;

/// What hedging did; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgeStats {
    /// Reads.
    pub reads: u64,
    /// Reads that the second replica was asked for as well, because the first was late.
    pub hedges: u64,
    /// Of those, answered by the second first.
    pub hedges_won: u64,
    /// Reads that were late and not hedged: the budget was spent, or the second had no room.
    pub hedges_denied: u64,
    /// Reads that the first replica could not serve, for which the second was asked instead.
    pub failovers: u64,
    /// Reads for which the second was asked at once, because the first is avoided.
    pub avoided: u64,
    /// Late reads that the second was not asked for because it is avoided.
    pub hedges_avoided: u64,
}

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeServer {
    /// That of the primary.
    First,
    /// That of the replica.
    Second,
}

/// A read that may be hedged.
#[derive(Debug)]
struct Read {
    /// The operation at the first replica, by which the caller knows it.
    op: OpId,
    chunk: ChunkId,
    offset: u64,
    length: usize,
    began: Time,
    deadline: Time,
    /// When to ask the second replica; never when it was asked or will not be.
    hedge_at: Time,
    /// The operation at the second replica, while it is under way.
    hedge: Option<OpId>,
    /// The first replica has failed, with this.
    failed: Option<ClientError>,
}

/// A client of one chunk server that asks a second for reads which the first is late with.
///
/// A server to which a link was lost, or no link could be made, is avoided for a while: it is not
/// asked to read while the other server is not avoided and its link is up. While both are avoided
/// the first is asked as ever.
///
/// It is driven as a [`ChunkClient`] is, with both links on one endpoint. Reads are started here;
/// everything else at the [`primary`](Self::primary), whose operations end here too.
#[derive(Debug)]
pub struct HedgedClient {
    primary: ChunkClient,
    /// Reads may go there: its link has been entered.
    primary_is_ready: bool,
    replica: Option<ChunkClient>,
    /// Of the first and the second server.
    troubles: [Trouble; 2],
    policy: Policy,
    /// Bounded by the requests that the primary has under way.
    reads: Vec<Read>,
    next_hedge: Time,
    /// Operations given up because the other replica was quicker; their ends are nobody's.
    losers: Vec<OpId>,
    done: VecDeque<Done>,
    stats: HedgeStats,
}

impl HedgedClient {
    /// A client that hedges at `replica`, which has started nothing yet.
    #[must_use]
    pub fn new(primary: ChunkClient, replica: ChunkClient, config: HedgeConfig) -> Self {
        Self { replica: Some(replica.ids_from(REPLICA_IDS)), ..Self::with(primary, config) }
    }

    /// A client without a second replica, which never hedges.
    #[must_use]
    pub fn alone(primary: ChunkClient) -> Self {
        Self::with(primary, HedgeConfig::new())
    }

    fn with(primary: ChunkClient, config: HedgeConfig) -> Self {
        Self {
            primary,
            primary_is_ready: true,
            replica: None,
            troubles: [Trouble::default(); 2],
            policy: Policy::new(config),
            reads: Vec::new(),
            next_hedge: Time::NEVER,
            losers: Vec::new(),
            done: VecDeque::new(),
            stats: HedgeStats::default(),
        }
    }

    /// Goes on over a new link to the first server. All operations over the old one have ended.
    pub fn replace_primary(&mut self, primary: ChunkClient) {
        debug_assert!(self.primary.under_way() == 0, "their numbers would be nobody's");
        self.primary = primary.ids_from(self.primary.next_id());
    }

    /// Whether the first server may be asked to read; else it counts as one whose link is down.
    pub(crate) fn set_primary_ready(&mut self, is_ready: bool) {
        self.primary_is_ready = is_ready;
    }

    /// Hedges at a server from now on, over a new link to it.
    pub(crate) fn set_replica(&mut self, replica: ChunkClient, config: HedgeConfig) {
        let first = match &self.replica {
            Some(old) => old.next_id(),
            None => {
                self.policy = Policy::new(config);
                REPLICA_IDS
            }
        };
        self.replica = Some(replica.ids_from(first));
    }

    /// The client of the first server.
    #[must_use]
    pub fn primary(&self) -> &ChunkClient {
        &self.primary
    }

    /// The client of the first server, to start operations that are not hedged.
    pub fn primary_mut(&mut self) -> &mut ChunkClient {
        &mut self.primary
    }

    /// The client of the first server alone; operations at the second are left to their end.
    #[must_use]
    pub fn into_primary(self) -> ChunkClient {
        self.primary
    }

    /// The client of the second server, to start operations that are not hedged.
    pub fn replica_mut(&mut self) -> Option<&mut ChunkClient> {
        self.replica.as_mut()
    }

    /// The client of the second server, where there is one.
    #[must_use]
    pub fn replica(&self) -> Option<&ChunkClient> {
        self.replica.as_ref()
    }

    /// Avoids a server for a while, as when its requests are too slow.
    pub fn avoid(&mut self, server: HedgeServer, now: Time) {
        self.troubles[server as usize].note(now, self.policy.avoid_for());
    }

    /// Trusts a server again: what happened before is forgotten.
    pub fn trust(&mut self, server: HedgeServer) {
        self.troubles[server as usize] = Trouble::default();
    }

    /// Whether a server is avoided at `now`.
    #[must_use]
    pub fn is_avoided(&self, server: HedgeServer, now: Time) -> bool {
        self.troubles[server as usize].is_on(now)
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> HedgeStats {
        self.stats
    }

    /// Operations that have not ended, hedges included.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let replica = self.replica.as_ref().map_or(0, ChunkClient::under_way);
        self.primary.under_way() + replica + self.done.len()
    }

    /// Reads `length` bytes from `offset` on; ends with the operation that is returned.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_read<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<OpId, ClientError> {
        let is_down = !self.primary_is_ready || self.primary.rpc().is_down();
        if (is_down || self.is_avoided_alone(HedgeServer::First, endpoint.now()))
            && let Some(replica) = self.replica.as_mut().filter(|other| !other.rpc().is_down())
        {
            let op = replica.start_read(endpoint, chunk, offset, length)?;
            self.stats.reads += 1;
            self.stats.failovers += u64::from(is_down);
            self.stats.avoided += u64::from(!is_down);
            return Ok(op);
        }
        let op = self.primary.start_read(endpoint, chunk, offset, length)?;
        self.stats.reads += 1;
        if self.replica.is_some() {
            self.policy.on_read();
            let began = endpoint.now();
            let deadline = began + self.primary.op_timeout();
            let hedge_at = began + self.policy.delay();
            self.next_hedge = self.next_hedge.min(hedge_at);
            let (hedge, failed) = (None, None);
            self.reads.push(Read {
                op,
                chunk,
                offset,
                length,
                began,
                deadline,
                hedge_at,
                hedge,
                failed,
            });
        }
        Ok(op)
    }

    /// Gives an operation up, at both replicas.
    pub fn cancel<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, op: OpId) {
        let read = self.reads.iter_mut().find(|read| read.op == op);
        let hedge = read.and_then(|read| {
            read.hedge_at = Time::NEVER;
            read.hedge
        });
        if let Some(replica) = &mut self.replica {
            replica.cancel(endpoint, hedge.unwrap_or(op));
        }
        self.primary.cancel(endpoint, op);
    }

    /// Takes an event in; gives back what is not this client's.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        if let Event::LinkDown { link, reason } = event
            && was_lost(reason)
        {
            let is_of = |client: &ChunkClient| client.rpc().link() == link;
            if is_of(&self.primary) {
                self.avoid(HedgeServer::First, endpoint.now());
            } else if self.replica.as_ref().is_some_and(is_of) {
                self.avoid(HedgeServer::Second, endpoint.now());
            }
        }
        let event = self.primary.on_event(endpoint, event)?;
        match &mut self.replica {
            Some(replica) => replica.on_event(endpoint, event),
            None => Some(event),
        }
    }

    /// Gives up what is out of time, and asks the second replica for what is late.
    pub fn expire<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        self.primary.expire(endpoint);
        let Some(replica) = &mut self.replica else { return };
        replica.expire(endpoint);
        let now = endpoint.now();
        if now < self.next_hedge {
            return;
        }
        self.next_hedge = Time::NEVER;
        for place in 0..self.reads.len() {
            if self.reads[place].hedge_at <= now {
                self.reads[place].hedge_at = Time::NEVER;
                self.hedge(endpoint, place);
            }
            self.next_hedge = self.next_hedge.min(self.reads[place].hedge_at);
        }
    }

    /// A read is late: the second replica is asked for it, where it may be.
    fn hedge<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, place: usize) {
        let is_worse = self.is_avoided_alone(HedgeServer::Second, endpoint.now());
        if is_worse && !self.primary.rpc().is_down() {
            self.stats.hedges_avoided += 1;
            return;
        }
        let asked = self.replica_is_up() && self.policy.spend();
        let asked = asked && self.ask_replica(endpoint, place);
        self.stats.hedges += u64::from(asked);
        self.stats.hedges_denied += u64::from(!asked);
    }

    /// Whether of the two servers this one is avoided at `now`, and the other is not.
    fn is_avoided_alone(&self, server: HedgeServer, now: Time) -> bool {
        let other = match server {
            HedgeServer::First => HedgeServer::Second,
            HedgeServer::Second => HedgeServer::First,
        };
        self.is_avoided(server, now) && !self.is_avoided(other, now)
    }

    fn replica_is_up(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| !replica.rpc().is_down())
    }

    /// Sends a read to the second replica, with what is left of its time.
    fn ask_replica<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        place: usize,
    ) -> bool {
        let read = &mut self.reads[place];
        let Some(replica) = &mut self.replica else { return false };
        let &mut Read { chunk, offset, length, deadline, .. } = read;
        read.hedge = replica.start_read_until(endpoint, chunk, offset, length, deadline).ok();
        read.hedge.is_some()
    }

    /// When [`expire`](Self::expire) next has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        let replica = self.replica.as_ref().map_or(Time::NEVER, ChunkClient::next_deadline);
        self.primary.next_deadline().min(replica).min(self.next_hedge)
    }

    /// Tells link and age of each operation that has waited for `after`, and whether it is told for
    /// the first time.
    pub fn note_slow(
        &mut self,
        now: Time,
        after: Nanos,
        mut tell: impl FnMut(LinkId, Nanos, bool),
    ) {
        self.primary.note_slow(now, after, &mut tell);
        if let Some(replica) = &mut self.replica {
            replica.note_slow(now, after, &mut tell);
        }
    }

    /// The next operation that has ended.
    pub fn poll<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> Option<Done> {
        while let Some(done) = self.primary.poll(endpoint) {
            self.on_primary(endpoint, done);
        }
        while let Some(done) = self.replica.as_mut().and_then(|replica| replica.poll(endpoint)) {
            self.on_replica(endpoint, done);
        }
        self.done.pop_front()
    }

    fn on_primary<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, done: Done) {
        let Some(place) = self.reads.iter().position(|read| read.op == done.op) else {
            return self.on_other(endpoint, done);
        };
        match done.result {
            Err(error) if may_be_elsewhere(&error.kind) => {
                self.on_primary_failed(endpoint, place, error);
            }
            result => {
                let read = self.reads.swap_remove(place);
                self.policy.on_latency(endpoint.now().since(read.began));
                if let (Some(hedge), Some(replica)) = (read.hedge, &mut self.replica) {
                    replica.cancel(endpoint, hedge);
                    self.losers.push(hedge);
                }
                self.done.push_back(Done { op: done.op, result });
            }
        }
    }

    /// What ends and is not hedged: an operation of another kind, or one that lost.
    fn on_other<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, done: Done) {
        let Some(place) = self.losers.iter().position(|&loser| loser == done.op) else {
            self.done.push_back(done);
            return;
        };
        self.losers.swap_remove(place);
        // It may have been quicker than it could be given up.
        if let Ok(Output::Read(data)) = done.result {
            data.release(endpoint);
        }
    }

    /// The first replica cannot serve a read; the second may.
    fn on_primary_failed<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        place: usize,
        error: ClientError,
    ) {
        let read = &mut self.reads[place];
        let may_ask = read.hedge_at != Time::NEVER;
        (read.hedge_at, read.failed) = (Time::NEVER, Some(error));
        if read.hedge.is_none() && may_ask && self.replica_is_up() {
            let asked = self.ask_replica(endpoint, place);
            self.stats.failovers += u64::from(asked);
        }
        if self.reads[place].hedge.is_none() {
            let read = self.reads.swap_remove(place);
            self.done.push_back(Done { op: read.op, result: Err(error) });
        }
    }

    fn on_replica<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, done: Done) {
        let Some(place) = self.reads.iter().position(|read| read.hedge == Some(done.op)) else {
            return self.on_other(endpoint, done);
        };
        let read = &mut self.reads[place];
        match (done.result, read.failed) {
            (Ok(output), failed) => {
                let read = self.reads.swap_remove(place);
                if failed.is_none() {
                    self.stats.hedges_won += 1;
                    self.policy.on_latency(endpoint.now().since(read.began));
                    self.primary.cancel(endpoint, read.op);
                    self.losers.push(read.op);
                }
                self.done.push_back(Done { op: read.op, result: Ok(output) });
            }
            (Err(_), None) => read.hedge = None,
            (Err(_), Some(error)) => {
                let read = self.reads.swap_remove(place);
                self.done.push_back(Done { op: read.op, result: Err(error) });
            }
        }
    }
}

/// Whether another server that holds the same bytes may serve what one could not. What a busy
/// server turns away it does not pass on: that would spread its load.
fn may_be_elsewhere(kind: &ErrorKind) -> bool {
    let of_medium =
        |reply: &ErrorReply| matches!(reply, ErrorReply::SliceCorrupt { .. } | ErrorReply::Media);
    match kind {
        ErrorKind::Refused(reply) => of_medium(reply),
        ErrorKind::PeerGone { .. }
        | ErrorKind::ReplyCorrupt { .. }
        | ErrorKind::BadReply(_)
        | ErrorKind::WrongReply => true,
        _ => false,
    }
}
