//! Whose requests are whose, and the tokens that they need (docs/qos.md).

use towpath_fastpath::ErrorReply;
use towpath_fastpath::qos::wire::{JoinReply, JoinRequest, QosReply, WordGrants};
use towpath_fastpath::wire::Method;
use towpath_fastpath::wire::{Sender, Why, class_number, tenant_number};
use towpath_rpc::{Responder, RpcServer};
use towpath_transport::{ChannelId, Device, Endpoint, GrantId, LinkId, Region, Time};

use super::answer::Answer;
use super::scheduler::Kind;
use super::server::ChunkServer;
use crate::metrics::ALL_TENANTS;
use crate::qos::{JoinError, Links, Mail, Member, Node, Pass, Qos, Seat, TenantId};
use towpath_qos::{TOKEN_BYTES, Weights, tokens};

/// The tenants of one worker's links, and what their requests need.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    links: Option<Links>,
    weights: Weights,
    /// Of requests that have come to their end and were not told of yet.
    ended: Vec<Pass>,
    /// The newest of what each is to be told and there was no buffer for.
    unsent: Vec<(Seat, Vec<u8>)>,
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
    /// Tokens for the blocks that a change has left to be freed, beyond the first one: that is as
    /// much work as the change itself.
    fn of_blocks(&self, blocks: u64) -> u64 {
        blocks.saturating_sub(1).saturating_mul(self.weight.into())
    }

    /// What is answered where a tenant may not use more than `limit` tokens in a period.
    pub(super) fn past_limit(&self, limit: u32) -> Answer {
        let max = u64::from(limit / u32::from(self.weight.max(1))) * u64::from(TOKEN_BYTES);
        Answer::Error(ErrorReply::TenantLimit { max })
    }
}

impl Tenants {
    fn qos(&self) -> Option<&Qos> {
        self.links.as_ref().map(Links::qos)
    }

    /// Does something to the reservations, where there are any.
    fn at<T>(&self, now: Time, act: impl FnOnce(&mut Node, Time) -> T) -> Option<T> {
        Some(self.qos()?.at(now, act))
    }

    /// The same for a request that costs something.
    fn pay<T>(
        &self,
        now: Time,
        Price { tenant, cost, .. }: Price,
        act: impl FnOnce(&mut Node, Time, TenantId, u32) -> T,
    ) -> Option<T> {
        if cost == 0 {
            return None;
        }
        self.at(now, |node, now| act(node, now, tenant, cost))
    }

    /// The tenant of a link.
    pub(super) fn of(&self, link: LinkId) -> TenantId {
        self.links.as_ref().map(|links| links.of(link)).unwrap_or_default()
    }

    /// The name of a tenant, for people; where none is kept apart it is that of all.
    pub(super) fn name(&self, tenant: TenantId) -> String {
        let names = self.qos().map(Qos::names).unwrap_or_default();
        names.into_iter().nth(tenant.index()).unwrap_or_else(|| ALL_TENANTS.into())
    }

    /// What it costs to do something with so many bytes for a link. Questions after the state of
    /// things cost nothing: who wants to know why nothing goes on must be answered.
    pub(super) fn price(&self, link: LinkId, (kind, bytes): (Kind, u64)) -> Price {
        let Some(links) = &self.links else { return Price::default() };
        let Weights { read, write } = self.weights;
        let weight = match kind {
            Kind::Look => return Price::default(),
            Kind::Scrub => {
                let cost = u32::try_from(bytes / u64::from(TOKEN_BYTES)).unwrap_or(u32::MAX);
                return Price { tenant: TenantId::SCRUB, cost, weight: 1 };
            }
            Kind::Read | Kind::Sketch => read,
            Kind::Write | Kind::Change => write,
        };
        Price { tenant: links.of(link), cost: tokens(bytes, weight), weight }
    }

    /// A request has come in.
    ///
    /// # Errors
    /// What its tenant may use in a period, where it costs more than that: it is never done.
    pub(super) fn arrived(&self, now: Time, price: Price) -> Result<(), u32> {
        self.pay(now, price, Node::arrived).unwrap_or(Ok(()))
    }

    /// Leave for a request; `Err` while its tenant has no tokens.
    pub(super) fn admit(&self, now: Time, price: Price) -> Result<Option<Pass>, ()> {
        self.pay(now, price, Node::admit).map(|pass| pass.ok_or(())).transpose()
    }

    /// Tokens that a tenant may still use in this period, where it has a limit.
    pub(super) fn room_below_limit(&self, now: Time, tenant: TenantId) -> Option<u64> {
        self.at(now, |node, _| node.room_below_limit(tenant))?
    }

    /// A request that has come in will not be done.
    pub(super) fn withdrawn(&self, now: Time, price: Price) {
        self.pay(now, price, Node::withdrawn);
    }

    /// A change has left so many blocks to be freed, which its tenant pays now that they are known.
    pub(super) fn left_blocks(&self, now: Time, price: Price, blocks: u64) {
        self.owe(now, price.tenant, price.of_blocks(blocks));
    }

    /// So many bytes were added up for a link, which costs as much as to read them.
    pub(super) fn added(&self, now: Time, link: LinkId, bytes: u64) {
        let Price { tenant, cost, .. } = self.price(link, (Kind::Read, bytes));
        self.owe(now, tenant, cost.into());
    }

    /// Whether the tenant of a link has paid for what was done for it.
    pub(super) fn has_paid(&self, now: Time, link: LinkId) -> bool {
        let tenant = self.of(link);
        self.at(now, |node, now| node.pays(now, tenant)).unwrap_or(true)
    }

    fn owe(&self, now: Time, tenant: TenantId, cost: u64) {
        if cost > 0 {
            self.at(now, |node, now| node.owe(now, tenant, cost));
        }
    }

    /// A request has come to its end: [`settle`](Self::settle) tells so, of several at once.
    pub(super) fn done(&mut self, pass: Option<Pass>) {
        self.ended.extend(pass);
    }

    /// Tells of what has come to its end.
    pub(super) fn settle(&mut self, now: Time) {
        let Self { links: Some(links), ended, .. } = self else { return };
        if !ended.is_empty() {
            links.qos().at(now, |node, now| ended.drain(..).for_each(|pass| node.done(now, pass)));
        }
    }

    /// The store has no room for requests that wait.
    pub(super) fn note_full(&self, now: Time) {
        self.at(now, |node, _| node.note_full());
    }

    /// Sorts tenants with waiting requests by who is served first.
    pub(super) fn order(&self, now: Time, waiting: &mut [TenantId]) {
        if waiting.len() > 1 {
            self.at(now, |node, now| node.order(now, waiting));
        }
    }

    /// Whether a link may do one-sided I/O: where reservations are kept, only one whose client runs
    /// an engine, since nobody else keeps to tokens there.
    pub(super) fn may_reach_memory(&self, link: LinkId) -> bool {
        self.links.as_ref().is_none_or(|links| links.runs_engine(link))
    }

    /// When there is something to do; `waits` says that requests wait for tokens.
    pub(super) fn next_due(&self, now: Time, waits: bool) -> Time {
        let Some(links) = &self.links else { return Time::NEVER };
        let tokens = if waits { now + links.qos().tick() } else { Time::NEVER };
        links.next_due().min(tokens)
    }

    /// Keeps reservations by this handle on those of the server.
    fn keep<D: Device<Memory = Region>>(&mut self, qos: Qos, endpoint: &Endpoint<D>) {
        self.weights = qos.weights();
        self.links = Some(Links::new(qos, endpoint));
    }

    /// Begins periods and looks at words where that is this worker's part, and tells its clients.
    /// Gives those that were cut off: what they were granted is to be taken back.
    pub(super) fn turn<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        rpc: &mut RpcServer,
    ) -> Vec<LinkId> {
        let Some(links) = &mut self.links else { return Vec::new() };
        let (mail, mut cut_off) = (links.turn(endpoint), Vec::new());
        for (seat, body) in std::mem::take(&mut self.unsent) {
            self.push(endpoint, rpc, seat, body);
        }
        for mail in mail {
            match mail {
                Mail::Push(seat, body) => self.push(endpoint, rpc, seat, body),
                Mail::CutOff(seat) => cut_off.push(seat.link),
            }
        }
        cut_off
    }

    /// Tells a client something; what cannot be sent now is sent later, unless something newer
    /// comes before. A start outlives notices, which say nothing without it.
    fn push<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        rpc: &mut RpcServer,
        seat: Seat,
        body: Vec<u8>,
    ) {
        let deadline = endpoint.now() + towpath_qos::limits::PERIOD;
        let (to, method) = ((seat.link, seat.channel), Method::Join as u16);
        if rpc.push(endpoint, to, method, &body, deadline).is_ok()
            || !self.may_reach_memory(seat.link)
        {
            return;
        }
        match self.unsent.iter_mut().find(|(other, _)| *other == seat) {
            Some((_, waiting)) if body.len() >= waiting.len() => *waiting = body,
            Some(_) => {}
            None => self.unsent.push((seat, body)),
        }
    }

    fn join<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (link, channel): (LinkId, ChannelId),
        JoinRequest { tenant, runs_engine }: &JoinRequest,
    ) -> Result<JoinReply, ErrorReply> {
        let links = self.links.as_mut().ok_or(ErrorReply::NoReservations)?;
        let joined = links.join(endpoint, (link, channel), tenant, *runs_engine);
        let Member { share, tick, words } = joined.map_err(|error| match error {
            JoinError::NoSuchTenant => ErrorReply::NoSuchTenant,
            JoinError::Taken => ErrorReply::TenantTaken,
            JoinError::Barred(span) => ErrorReply::TenantBarred { wait_us: span.0.div_ceil(1000) },
            JoinError::NoWords(error) => {
                tracing::warn!(%error, "a client cannot reach its words");
                ErrorReply::Busy
            }
        })?;
        let words = words.map(|grants| {
            let [pool, report] = grants.map(|GrantId(number)| number);
            WordGrants { pool, report }
        });
        Ok(JoinReply {
            reserve: share.reservation,
            limit: share.limit,
            weight: share.weight.into(),
            tick_ns: tick.0,
            words,
        })
    }

    /// A link is gone, and with it what it was granted.
    pub(super) fn forget<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &Endpoint<D>,
        link: LinkId,
    ) {
        self.links.iter_mut().for_each(|links| links.forget(endpoint, link));
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Keeps reservations: this is the worker's handle on those of the server. Default: it keeps
    /// none.
    #[must_use]
    pub fn qos(mut self, qos: Option<Qos>) -> Self {
        qos.into_iter().for_each(|qos| self.sched.tenants_mut().keep(qos, &self.endpoint));
        self
    }

    /// The reservations, if it keeps any.
    #[must_use]
    pub fn reservations(&self) -> Option<&Qos> {
        self.sched.tenants().qos()
    }

    /// A link says whose it is.
    pub(super) fn join(&mut self, responder: Responder, deadline: Time, request: &JoinRequest) {
        let of = (responder.link(), responder.channel());
        let joined = self.sched.tenants_mut().join(&mut self.endpoint, of, request);
        if joined.is_ok() {
            self.clients.join(of.0, tenant_number(&request.tenant));
        }
        self.answer(responder, deadline, joined.map_or_else(Answer::Error, Answer::Joined));
    }

    /// Whether a request was meant for the link that it came over: what an older life of a client
    /// left queued, or somebody mixed up, is refused before anything of it is done.
    pub(super) fn check_sender(&self, link: LinkId, sender: Sender) -> Result<(), ErrorReply> {
        if sender.epoch != self.clients.epoch(link) {
            return Err(ErrorReply::Fenced);
        }
        let tenant = self.clients.tenant(link);
        let class = self.endpoint.class_of(link).map_or(0, |found| class_number(found.class));
        let agrees = |said: u32, is: u32| said == 0 || said == is;
        match agrees(sender.tenant, tenant) && agrees(sender.class.into(), class.into()) {
            true => Ok(()),
            false => Err(ErrorReply::BadRequest { why: Why::Sender }),
        }
    }

    /// How reservations are kept.
    pub(super) fn qos_reply(&self) -> QosReply {
        self.reservations().map(Qos::report).unwrap_or_default()
    }

    /// Whether a write of so many bytes costs no more than its tenant may use in a period: asked
    /// before it goes on to others.
    pub(super) fn check_price(&self, link: LinkId, byte_len: u32) -> Result<(), Answer> {
        let (now, tenants) = (self.endpoint.now(), self.sched.tenants());
        let price = tenants.price(link, (Kind::Write, byte_len.into()));
        tenants.arrived(now, price).map_err(|limit| price.past_limit(limit))?;
        // It arrives once those behind have made it.
        tenants.withdrawn(now, price);
        Ok(())
    }
}
