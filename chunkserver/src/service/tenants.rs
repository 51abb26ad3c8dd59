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
use super::limits::{AGAIN_MIN, AGAIN_SHARE, SLOT_BYTES_MAX};
use super::server::{ChunkServer, Job};
use crate::qos::{Comer, JoinError, Joined, Mail, Pass, Qos, Seat, TenantId, Work};
use towpath_qos::{TOKEN_BYTES, Weights, tokens};

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
    /// Of requests that have come to their end and were not told of yet.
    ended: Vec<Pass>,
    /// The newest of what each is to be told and there was no buffer for.
    unsent: Vec<(Seat, Vec<u8>)>,
}

#[derive(Debug)]
struct Client {
    tenant: TenantId,
    seat: Seat,
    grants: [GrantId; 2],
    /// What it was served when that was last looked at; none where the device cannot say.
    seen: Option<Served>,
}

impl Client {
    /// What it did since the last look.
    fn look(&mut self, now: Option<Served>) -> Option<Work> {
        let before = std::mem::replace(&mut self.seen, now)?;
        Some(work(&before, &now?))
    }
}

/// What a request costs, and whose it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Price {
    pub(super) tenant: TenantId,
    pub(super) cost: u32,
    /// Tokens for each 4 KiB.
    weight: u16,
}

impl Price {
    /// Bytes that so many tokens pay for.
    pub(super) fn bytes(&self, tokens: u32) -> u64 {
        u64::from(tokens / u32::from(self.weight.max(1))) * u64::from(TOKEN_BYTES)
    }
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
        let (bytes, weight) = match ask {
            Ask::Read(header) => (header.length, read),
            Ask::Write(header, ..) => (header.length, write),
            Ask::Create(..) | Ask::Delete(_) | Ask::Finish(..) => (0, write),
            Ask::Scrub(scrub) => {
                let cost = u32::try_from(scrub.step()).unwrap_or(u32::MAX);
                return Price { tenant: TenantId::SCRUB, cost, weight: 1 };
            }
            Ask::Info
            | Ask::Join(_)
            | Ask::List(..)
            | Ask::Locate(..)
            | Ask::Session(..)
            | Ask::Stat(_) => return Price::default(),
        };
        Price { tenant: self.of(link), cost: tokens(bytes.into(), weight), weight }
    }

    /// A request has come in.
    ///
    /// # Errors
    /// What its tenant may use in a period, where it costs more than that: it is never done.
    pub(super) fn arrived(&self, now: Time, price: Price) -> Result<(), u32> {
        match self.qos.as_ref().filter(|_| price.cost > 0) {
            None => Ok(()),
            Some(qos) => qos.at(now, |node, now| node.arrived(now, price.tenant, price.cost)),
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

    /// A request has come to its end: [`settle`](Self::settle) tells so, of several at once.
    pub(super) fn done(&mut self, pass: Option<Pass>) {
        self.ended.extend(pass);
    }

    /// Tells of what has come to its end.
    pub(super) fn settle(&mut self, now: Time) {
        if let Some(qos) = self.qos.as_ref().filter(|_| !self.ended.is_empty()) {
            let ended = &mut self.ended;
            qos.at(now, |node, now| ended.drain(..).for_each(|pass| node.done(now, pass)));
        }
    }

    /// The store has no room for requests that wait.
    pub(super) fn note_full(&self, now: Time) {
        if let Some(qos) = &self.qos {
            qos.at(now, |node, _| node.note_full());
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
            for client in clients {
                let Some(work) = client.look(self.endpoint.served(client.seat.link)) else {
                    continue;
                };
                qos.at(now, |node, now| node.served(now, client.tenant, client.seat, work));
            }
            *look_at = Some(now + qos.tick());
        }
        qos.turn(now);
        let mail = qos.take_mail();
        for (seat, body) in std::mem::take(&mut self.tenants.unsent) {
            self.push(now, seat, body);
        }
        for mail in mail {
            match mail {
                Mail::Push(seat, body) => self.push(now, seat, body),
                Mail::CutOff(seat) => self.cut_off(seat),
            }
        }
    }

    /// Tells a client something; what cannot be sent now is sent later, unless something newer
    /// comes before. A start outlives notices, which say nothing without it.
    fn push(&mut self, now: Time, seat: Seat, body: Vec<u8>) {
        let method = Method::Join as u16;
        let deadline = now + towpath_qos::limits::PERIOD;
        let to = (seat.link, seat.channel);
        if self.rpc.push(&mut self.endpoint, to, method, &body, deadline).is_ok()
            || !self.tenants.clients.iter().any(|client| client.seat == seat)
        {
            return;
        }
        match self.tenants.unsent.iter_mut().find(|(other, _)| *other == seat) {
            Some((_, waiting)) if body.len() >= waiting.len() => *waiting = body,
            Some(_) => {}
            None => self.tenants.unsent.push((seat, body)),
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
        let seen = self.endpoint.served(link);
        let before = self.tenants.of(link);
        let is_member = before != TenantId::default();
        let joined =
            qos.at(now, |node, now| match is_member && node.find(tenant) != Some(before) {
                // A link is one tenant's.
                true => Err(JoinError::Taken),
                false => {
                    let (is_seen, runs_engine) = (seen.is_some(), *runs_engine);
                    node.join(now, tenant, Comer { seat, is_member, is_seen, runs_engine })
                }
            });
        let Joined { tenant, share, tick, words } = joined.map_err(|error| match error {
            JoinError::NoSuchTenant => ErrorReply::NoSuchTenant,
            JoinError::Taken => ErrorReply::TenantTaken,
            JoinError::Barred(span) => ErrorReply::TenantBarred { wait_us: span.0.div_ceil(1000) },
        })?;
        let memory = qos.memory().clone();
        let words = match words {
            Some(ranges) => match self.grant_words(&memory, (tenant, seat, seen), ranges) {
                Ok(words) => Some(words),
                Err(error) => {
                    // It is as if it had not come; the server's engine has tokens again in the next
                    // period.
                    let qos = self.tenants.qos.as_ref();
                    qos.inspect(|qos| {
                        qos.at(now, |node, _| {
                            node.leave(tenant, seat);
                            if !is_member {
                                node.forget(tenant);
                            }
                        });
                    });
                    return Err(error);
                }
            },
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
        (tenant, seat, seen): (TenantId, Seat, Option<Served>),
        (pool, report): (std::ops::Range<usize>, std::ops::Range<usize>),
    ) -> Result<WordGrants, ErrorReply> {
        let known = self.tenants.clients.iter().find(|client| client.seat == seat);
        let grants = match known {
            Some(client) => client.grants,
            None => {
                let grants = grant_both(&mut self.endpoint, seat.link, memory, (pool, report));
                let grants = grants.map_err(|error| {
                    tracing::warn!(%error, "a client cannot reach its words");
                    ErrorReply::Busy
                })?;
                self.tenants.clients.push(Client { tenant, seat, grants, seen });
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
        let served = self.endpoint.served(link);
        self.tenants.clients.retain_mut(|client| {
            let is_gone = client.seat.link == link;
            if is_gone {
                let work = client.look(served);
                qos.at(now, |node, now| {
                    if let Some(work) = work {
                        node.served(now, client.tenant, client.seat, work);
                    }
                    node.leave(client.tenant, client.seat);
                });
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

/// What was served since an earlier look, in tokens. A READ of one slice with its checksum is a
/// token. What was asked for again, since packets were lost, is the network's, but not more than so
/// much: RC cannot tell it from a READ of something else with an old number.
fn work(before: &Served, now: &Served) -> Work {
    let since = |of: fn(&Served) -> u64| of(now).saturating_sub(of(before));
    let (reads, bytes) = (since(|served| served.reads), since(|served| served.read_bytes));
    let again = since(|served| served.reads_again).min(reads / AGAIN_SHARE + AGAIN_MIN);
    let bytes_again = since(|served| served.read_again_bytes);
    let bytes_again = bytes_again.min(bytes / AGAIN_SHARE + AGAIN_MIN * SLOT_BYTES_MAX);
    let tokens =
        reads.saturating_sub(again).max(bytes.saturating_sub(bytes_again) / SLOT_BYTES_MAX);
    Work { tokens, additions: since(|served| served.atomics), words: since(|served| served.writes) }
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
