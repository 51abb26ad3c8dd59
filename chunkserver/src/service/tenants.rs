//! Whose requests are whose, and the tokens that they need (docs/qos.md).

use towpath_fastpath::ErrorReply;
use towpath_fastpath::qos::wire::{JoinReply, JoinRequest, QosReply, WordGrants};
use towpath_fastpath::wire::Method;
use towpath_rpc::Responder;
use towpath_transport::{
    Device, Endpoint, GrantId, LaneError, LinkId, Region, Rights, Served, SharedMemory, Time,
};

use super::answer::Answer;
use super::ask::Ask;
use super::limits::{AGAIN_SHARE, SLOT_BYTES_MAX};
use super::server::{ChunkServer, Job};
use crate::qos::{JoinError, Joined, Mail, Pass, Qos, Seat, TenantId, Work};
use towpath_qos::{Weights, tokens};

/// The tenants of one worker's links.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    pub(super) qos: Option<Qos>,
    weights: Weights,
    /// By the index of the link.
    of_links: Vec<TenantId>,
    /// Clients that run an engine.
    clients: Vec<Client>,
    /// When what these did is looked at.
    look_at: Option<Time>,
}

#[derive(Debug)]
struct Client {
    tenant: TenantId,
    seat: Seat,
    grants: [GrantId; 2],
}

/// What a request costs, and whose it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Price {
    pub(super) tenant: TenantId,
    pub(super) cost: u32,
}

impl Tenants {
    fn of(&self, link: LinkId) -> TenantId {
        self.of_links.get(link.index()).copied().unwrap_or_default()
    }

    /// What a request costs. Questions after the state of things cost nothing: who wants to know
    /// why nothing goes on must be answered.
    pub(super) fn price(&self, link: LinkId, ask: &Ask) -> Price {
        if self.qos.is_none() {
            return Price::default();
        }
        let Weights { read, write } = self.weights;
        let slices = |bytes: u32, weight| tokens(bytes.into(), weight);
        let cost = match ask {
            Ask::Read(header) => slices(header.length, read),
            Ask::Write(header, ..) => slices(header.length, write),
            Ask::Create(..) | Ask::Delete(_) | Ask::Finish(..) => slices(0, write),
            Ask::Scrub(scrub) => {
                let cost = u32::try_from(scrub.step()).unwrap_or(u32::MAX);
                return Price { tenant: TenantId::SCRUB, cost };
            }
            Ask::Info
            | Ask::Join(_)
            | Ask::List(..)
            | Ask::Locate(..)
            | Ask::Session(..)
            | Ask::Stat(_) => 0,
        };
        Price { tenant: self.of(link), cost }
    }

    /// What the tenant may use in a period, where a request costs more than that.
    pub(super) fn limit_below(&self, now: Time, price: Price) -> Option<u32> {
        let qos = self.qos.as_ref().filter(|_| price.cost > 0)?;
        let limit = qos.at(now, |node, _| node.limit(price.tenant));
        limit.filter(|&limit| price.cost > limit)
    }

    pub(super) fn arrived(&self, now: Time, price: Price) {
        if let Some(qos) = self.qos.as_ref().filter(|_| price.cost > 0) {
            qos.at(now, |node, now| node.arrived(now, price.tenant, price.cost));
        }
    }

    /// Leave for a request; `Err` while its tenant has no tokens.
    pub(super) fn admit(&self, now: Time, price: Price) -> Result<Option<Pass>, ()> {
        match self.qos.as_ref().filter(|_| price.cost > 0) {
            None => Ok(None),
            Some(qos) => {
                let pass = qos.at(now, |node, now| node.admit(now, price.tenant, price.cost));
                pass.map(Some).ok_or(())
            }
        }
    }

    /// A request that has come in will not be done.
    pub(super) fn withdrawn(&self, now: Time, price: Price) {
        if let Some(qos) = self.qos.as_ref().filter(|_| price.cost > 0) {
            qos.at(now, |node, now| node.withdrawn(now, price.tenant, price.cost));
        }
    }

    pub(super) fn done(&self, now: Time, pass: Option<Pass>) {
        if let Some((qos, pass)) = self.qos.as_ref().zip(pass) {
            qos.at(now, |node, now| node.done(now, pass));
        }
    }

    /// Sorts tenants with waiting requests by who is served first.
    pub(super) fn order(&self, now: Time, waiting: &mut [TenantId]) {
        if let Some(qos) = self.qos.as_ref().filter(|_| waiting.len() > 1) {
            qos.at(now, |node, now| node.order(now, waiting));
        }
    }

    /// Whether a link may do one-sided I/O: where reservations are kept, only one whose client runs
    /// an engine, since nobody else keeps to tokens there.
    pub(super) fn may_reach_memory(&self, link: LinkId) -> bool {
        self.qos.is_none() || self.clients.iter().any(|client| client.seat.link == link)
    }

    /// When there is something to do; `waits` says that requests wait for tokens.
    pub(super) fn next_due(&self, now: Time, waits: bool) -> Time {
        let Some(qos) = &self.qos else { return Time::NEVER };
        let tokens = if waits { now + qos.tick() } else { Time::NEVER };
        qos.next_due().min(tokens).min(self.look_at.unwrap_or(Time::NEVER))
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Keeps reservations: this is the worker's handle on those of the server. Default: it keeps
    /// none.
    #[must_use]
    pub fn qos(mut self, qos: Option<Qos>) -> Self {
        let Some(mut qos) = qos else { return self };
        qos.attach(self.endpoint.now(), self.endpoint.waker());
        self.tenants.weights = qos.at(self.endpoint.now(), |node, _| node.weights());
        self.tenants.qos = Some(qos);
        self
    }

    /// The reservations, if it keeps any.
    #[must_use]
    pub fn reservations(&self) -> Option<&Qos> {
        self.tenants.qos.as_ref()
    }

    /// Begins periods and looks at words where that is this worker's part, and tells its clients.
    pub(super) fn look_after_tenants(&mut self) {
        let Tenants { qos: Some(qos), clients, look_at, .. } = &mut self.tenants else { return };
        let now = self.endpoint.now();
        if look_at.is_some_and(|at| now >= at) {
            for Client { tenant, seat, .. } in clients {
                if let Some(served) = self.endpoint.served(seat.link) {
                    qos.at(now, |node, _| node.served(*tenant, *seat, work(&served)));
                }
            }
            *look_at = Some(now + qos.tick());
        }
        qos.turn(now);
        let mail = qos.take_mail();
        for mail in mail {
            self.deliver(now, mail);
        }
    }

    fn deliver(&mut self, now: Time, mail: Mail) {
        match mail {
            Mail::Push(Seat { link, channel, .. }, body) => {
                let method = Method::Join as u16;
                let deadline = now + towpath_qos::limits::PERIOD;
                // It counts those that are lost; the next period tells what they did not.
                let _ = self.rpc.push(&mut self.endpoint, (link, channel), method, &body, deadline);
            }
            Mail::CutOff(seat) => self.cut_off(seat),
        }
    }

    /// Takes back what a client was granted.
    fn cut_off(&mut self, seat: Seat) {
        let clients = &mut self.tenants.clients;
        if let Some(place) = clients.iter().position(|client| client.seat == seat) {
            for grant in clients.swap_remove(place).grants {
                self.endpoint.revoke(seat.link, grant);
            }
            if let Some(grant) = self.grants.take(seat.link) {
                self.endpoint.revoke(seat.link, grant);
            }
        }
        if self.tenants.clients.is_empty() {
            self.tenants.look_at = None;
        }
    }

    /// A link says whose it is.
    pub(super) fn join(&mut self, responder: Responder, deadline: Time, request: &JoinRequest) {
        let answer = match self.try_join(&responder, request) {
            Ok(reply) => Answer::Joined(reply),
            Err(error) => Answer::Error(error),
        };
        self.answer(responder, deadline, answer);
    }

    fn try_join(
        &mut self,
        responder: &Responder,
        request: &JoinRequest,
    ) -> Result<JoinReply, ErrorReply> {
        let Some(qos) = &self.tenants.qos else { return Err(ErrorReply::NoReservations) };
        let now = self.endpoint.now();
        let (link, channel) = (responder.link(), responder.channel());
        let seat = Seat { worker: qos.worker(), link, channel };
        let JoinRequest { tenant, runs_engine } = request;
        let before = self.tenants.of(link);
        let is_member = before != TenantId::default();
        let joined =
            qos.at(now, |node, now| match is_member && node.find(tenant) != Some(before) {
                // A link is one tenant's.
                true => Err(JoinError::Taken),
                false => node.join(now, tenant, (seat, is_member), *runs_engine),
            });
        let Joined { tenant, share, tick, words } = joined.map_err(|error| match error {
            JoinError::NoSuchTenant => ErrorReply::NoSuchTenant,
            JoinError::Taken => ErrorReply::TenantTaken,
            JoinError::Barred(span) => ErrorReply::TenantBarred { wait_us: span.0.div_ceil(1000) },
        })?;
        let memory = qos.memory().clone();
        let words = match words {
            Some(ranges) => Some(self.grant_words(&memory, tenant, seat, ranges)?),
            None => None,
        };
        let of_links = &mut self.tenants.of_links;
        if of_links.len() <= link.index() {
            of_links.resize_with(link.index() + 1, TenantId::default);
        }
        of_links[link.index()] = tenant;
        Ok(JoinReply {
            reserve: share.reservation,
            limit: share.limit,
            weight: share.weight.into(),
            tick_ns: tick.0,
            words,
        })
    }

    fn grant_words(
        &mut self,
        memory: &SharedMemory,
        tenant: TenantId,
        seat: Seat,
        (pool, report): (std::ops::Range<usize>, std::ops::Range<usize>),
    ) -> Result<WordGrants, ErrorReply> {
        let known = self.tenants.clients.iter().find(|client| client.seat == seat);
        let grants = match known {
            Some(client) => client.grants,
            None => {
                let grants = grant_both(&mut self.endpoint, seat.link, memory, (pool, report));
                let grants = grants.map_err(|error| {
                    tracing::warn!(%error, "a client cannot reach its words");
                    if let Some(qos) = &self.tenants.qos {
                        let now = self.endpoint.now();
                        qos.at(now, |node, _| node.leave(tenant, seat));
                    }
                    ErrorReply::Busy
                })?;
                self.tenants.clients.push(Client { tenant, seat, grants });
                self.tenants.look_at.get_or_insert(self.endpoint.now());
                grants
            }
        };
        let [pool, report] = grants.map(|GrantId(number)| number);
        Ok(WordGrants { pool, report })
    }

    /// A link is gone, and with it what it was granted.
    pub(super) fn forget_tenant(&mut self, link: LinkId) {
        let Some(qos) = &self.tenants.qos else { return };
        let now = self.endpoint.now();
        let member = self.tenants.of_links.get_mut(link.index()).map(std::mem::take);
        if let Some(tenant) = member.filter(|&tenant| tenant != TenantId::default()) {
            qos.at(now, |node, _| node.forget(tenant));
        }
        self.tenants.clients.retain(|client| {
            let is_gone = client.seat.link == link;
            if is_gone {
                qos.at(now, |node, _| node.leave(client.tenant, client.seat));
            }
            !is_gone
        });
        if self.tenants.clients.is_empty() {
            self.tenants.look_at = None;
        }
    }

    /// How reservations are kept.
    pub(super) fn qos_reply(&self) -> QosReply {
        match &self.tenants.qos {
            Some(qos) => qos.at(self.endpoint.now(), |node, _| node.report()),
            None => QosReply::default(),
        }
    }

    /// A request that waited will not be done.
    pub(super) fn withdraw(&self, job: &Job) {
        self.tenants.withdrawn(self.endpoint.now(), job.price);
    }
}

/// What was served, in tokens. A READ of one slice with its checksum is a token. What was asked for
/// again, since packets were lost, is the network's, but not more than so much: RC cannot tell it
/// from a READ of something else with an old number.
fn work(served: &Served) -> Work {
    let reads = served.reads - served.reads_again.min(served.reads / AGAIN_SHARE);
    let bytes = served.read_bytes - served.read_again_bytes.min(served.read_bytes / AGAIN_SHARE);
    let tokens = reads.max(bytes / SLOT_BYTES_MAX);
    Work { tokens, additions: served.atomics, words: served.writes }
}

fn grant_both<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    link: LinkId,
    memory: &SharedMemory,
    (pool, report): (std::ops::Range<usize>, std::ops::Range<usize>),
) -> Result<[GrantId; 2], LaneError> {
    let atomic = Rights { read: true, write: false, atomic: true };
    let write = Rights { read: false, write: true, atomic: false };
    let pool = endpoint.grant(link, memory, pool, atomic)?;
    match endpoint.grant(link, memory, report, write) {
        Ok(report) => Ok([pool, report]),
        Err(error) => {
            endpoint.revoke(link, pool);
            Err(error)
        }
    }
}
