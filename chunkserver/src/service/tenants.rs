//! Whose requests are whose, and the tokens that they need (docs/qos.md).

use towpath_fastpath::ErrorReply;
use towpath_fastpath::qos::wire::{JoinReply, JoinRequest, QosReply, WordGrants};
use towpath_fastpath::wire::Method;
use towpath_fastpath::wire::{Sender, Why, class_number, tenant_number};
use towpath_rpc::Responder;
use towpath_transport::{Device, GrantId, LinkId, Region, Time};

use super::answer::Answer;
use super::ask::Ask;
use super::server::{ChunkServer, Job};
use crate::metrics::ALL_TENANTS;
use crate::qos::{JoinError, Links, Mail, Member, Pass, Qos, Seat, TenantId};
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
    /// The number of the tenant that each link has joined as, by the index of the link; 0 of one
    /// that has not.
    numbers: Vec<u32>,
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

    /// Bytes that so many tokens pay for.
    pub(super) fn bytes(&self, tokens: u32) -> u64 {
        u64::from(tokens / u32::from(self.weight.max(1))) * u64::from(TOKEN_BYTES)
    }
}

impl Tenants {
    fn qos(&self) -> Option<&Qos> {
        self.links.as_ref().map(Links::qos)
    }

    /// The number of the tenant that a link has joined as; 0 of one that has not.
    pub(super) fn number(&self, link: LinkId) -> u32 {
        self.numbers.get(link.index()).copied().unwrap_or(0)
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

    /// What a request costs. Questions after the state of things cost nothing: who wants to know
    /// why nothing goes on must be answered.
    pub(super) fn price(&self, link: LinkId, ask: &Ask) -> Price {
        let Some(links) = &self.links else { return Price::default() };
        let Weights { read, write } = self.weights;
        let (bytes, weight) = match ask {
            Ask::Read(header) => (header.length, read),
            Ask::Sketch(_, range, _) => (range.length, read),
            Ask::Write(header, ..) => (header.length, write),
            Ask::Chain { .. }
            | Ask::Clear(_)
            | Ask::Create(..)
            | Ask::Delete(..)
            | Ask::Finish(..) => (0, write),
            Ask::Scrub(scrub) => {
                let cost = u32::try_from(scrub.step()).unwrap_or(u32::MAX);
                return Price { tenant: TenantId::SCRUB, cost, weight: 1 };
            }
            Ask::Digest(..)
            | Ask::Info
            | Ask::Join(_)
            | Ask::List(..)
            | Ask::Locate(..)
            | Ask::Revoke(..)
            | Ask::Session(..)
            | Ask::Stat(_) => return Price::default(),
        };
        Price { tenant: links.of(link), cost: tokens(bytes.into(), weight), weight }
    }

    /// What a write of so many bytes costs.
    fn price_of_write(&self, link: LinkId, byte_len: u32) -> Price {
        self.price_at(link, byte_len, self.weights.write)
    }

    /// What a read of so many bytes costs.
    pub(super) fn price_of_read(&self, link: LinkId, byte_len: u32) -> Price {
        self.price_at(link, byte_len, self.weights.read)
    }

    fn price_at(&self, link: LinkId, byte_len: u32, weight: u16) -> Price {
        let Some(links) = &self.links else { return Price::default() };
        Price { tenant: links.of(link), cost: tokens(byte_len.into(), weight), weight }
    }

    /// A request has come in.
    ///
    /// # Errors
    /// What its tenant may use in a period, where it costs more than that: it is never done.
    pub(super) fn arrived(&self, now: Time, price: Price) -> Result<(), u32> {
        match self.qos().filter(|_| price.cost > 0) {
            None => Ok(()),
            Some(qos) => qos.at(now, |node, now| node.arrived(now, price.tenant, price.cost)),
        }
    }

    /// Leave for a request; `Err` while its tenant has no tokens.
    pub(super) fn admit(&self, now: Time, price: Price) -> Result<Option<Pass>, ()> {
        match self.qos().filter(|_| price.cost > 0) {
            None => Ok(None),
            Some(qos) => {
                let pass = qos.at(now, |node, now| node.admit(now, price.tenant, price.cost));
                pass.map(Some).ok_or(())
            }
        }
    }

    /// Tokens that a tenant may still use in this period, where it has a limit.
    pub(super) fn room_below_limit(&self, now: Time, tenant: TenantId) -> Option<u64> {
        self.qos()?.at(now, |node, _| node.room_below_limit(tenant))
    }

    /// A request that has come in will not be done.
    pub(super) fn withdrawn(&self, now: Time, price: Price) {
        if let Some(qos) = self.qos().filter(|_| price.cost > 0) {
            qos.at(now, |node, now| node.withdrawn(now, price.tenant, price.cost));
        }
    }

    /// A change has left so many blocks to be freed, which its tenant pays now that they are known.
    pub(super) fn left_blocks(&self, now: Time, price: Price, blocks: u64) {
        self.owe(now, price.tenant, price.of_blocks(blocks));
    }

    /// So many bytes were added up for a link, which costs as much as to read them.
    pub(super) fn added(&self, now: Time, link: LinkId, byte_len: u32) {
        let Price { tenant, cost, .. } = self.price_of_read(link, byte_len);
        self.owe(now, tenant, cost.into());
    }

    /// Whether the tenant of a link has paid for what was done for it.
    pub(super) fn has_paid(&self, now: Time, link: LinkId) -> bool {
        let Some(links) = &self.links else { return true };
        let tenant = links.of(link);
        links.qos().at(now, |node, now| node.pays(now, tenant))
    }

    fn owe(&self, now: Time, tenant: TenantId, cost: u64) {
        if let Some(qos) = self.qos().filter(|_| cost > 0) {
            qos.at(now, |node, now| node.owe(now, tenant, cost));
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
        if let Some(qos) = self.qos() {
            qos.at(now, |node, _| node.note_full());
        }
    }

    /// Sorts tenants with waiting requests by who is served first.
    pub(super) fn order(&self, now: Time, waiting: &mut [TenantId]) {
        if let Some(qos) = self.qos().filter(|_| waiting.len() > 1) {
            qos.at(now, |node, now| node.order(now, waiting));
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
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Keeps reservations: this is the worker's handle on those of the server. Default: it keeps
    /// none.
    #[must_use]
    pub fn qos(mut self, qos: Option<Qos>) -> Self {
        let Some(qos) = qos else { return self };
        self.tenants.weights = qos.weights();
        self.tenants.links = Some(Links::new(qos, &self.endpoint));
        self
    }

    /// The reservations, if it keeps any.
    #[must_use]
    pub fn reservations(&self) -> Option<&Qos> {
        self.tenants.qos()
    }

    /// Begins periods and looks at words where that is this worker's part, and tells its clients.
    pub(super) fn look_after_tenants(&mut self) {
        let Some(links) = &mut self.tenants.links else { return };
        let now = self.endpoint.now();
        let mail = links.turn(&mut self.endpoint);
        for (seat, body) in std::mem::take(&mut self.tenants.unsent) {
            self.push(now, seat, body);
        }
        for mail in mail {
            match mail {
                Mail::Push(seat, body) => self.push(now, seat, body),
                Mail::CutOff(seat) => {
                    for grant in self.grants.take(seat.link) {
                        self.endpoint.revoke(seat.link, grant);
                    }
                }
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
            || !self.tenants.may_reach_memory(seat.link)
        {
            return;
        }
        match self.tenants.unsent.iter_mut().find(|(other, _)| *other == seat) {
            Some((_, waiting)) if body.len() >= waiting.len() => *waiting = body,
            Some(_) => {}
            None => self.tenants.unsent.push((seat, body)),
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
        let links = self.tenants.links.as_mut().ok_or(ErrorReply::NoReservations)?;
        let JoinRequest { tenant, runs_engine } = request;
        let of = (responder.link(), responder.channel());
        let joined = links.join(&mut self.endpoint, of, tenant, *runs_engine);
        let Member { share, tick, words } = joined.map_err(|error| match error {
            JoinError::NoSuchTenant => ErrorReply::NoSuchTenant,
            JoinError::Taken => ErrorReply::TenantTaken,
            JoinError::Barred(span) => ErrorReply::TenantBarred { wait_us: span.0.div_ceil(1000) },
            JoinError::NoWords(error) => {
                tracing::warn!(%error, "a client cannot reach its words");
                ErrorReply::Busy
            }
        })?;
        let (numbers, at) = (&mut self.tenants.numbers, of.0.index());
        numbers.resize(numbers.len().max(at + 1), 0);
        numbers[at] = tenant_number(tenant);
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
    pub(super) fn forget_tenant(&mut self, link: LinkId) {
        if let Some(number) = self.tenants.numbers.get_mut(link.index()) {
            *number = 0;
        }
        if let Some(links) = &mut self.tenants.links {
            links.forget(&self.endpoint, link);
        }
    }

    /// Whether a request was meant for the link that it came over: what an older life of a client
    /// left queued, or somebody mixed up, is refused before anything of it is done.
    pub(super) fn check_sender(&self, link: LinkId, sender: Sender) -> Result<(), ErrorReply> {
        if sender.epoch != self.entries.epoch(link) {
            return Err(ErrorReply::Fenced);
        }
        let tenant = self.tenants.number(link);
        let class = self.endpoint.class_of(link).map_or(0, |found| class_number(found.class));
        let agrees = |said: u32, is: u32| said == 0 || said == is;
        match agrees(sender.tenant, tenant) && agrees(sender.class.into(), class.into()) {
            true => Ok(()),
            false => Err(ErrorReply::BadRequest { why: Why::Sender }),
        }
    }

    /// How reservations are kept.
    pub(super) fn qos_reply(&self) -> QosReply {
        self.tenants.qos().map(Qos::report).unwrap_or_default()
    }

    /// Whether a write of so many bytes costs no more than its tenant may use in a period: asked
    /// before it goes on to others.
    pub(super) fn check_price(&self, link: LinkId, byte_len: u32) -> Result<(), Answer> {
        let (now, price) = (self.endpoint.now(), self.tenants.price_of_write(link, byte_len));
        self.tenants
            .arrived(now, price)
            .map_err(|limit| Answer::Error(ErrorReply::TenantLimit { max: price.bytes(limit) }))?;
        // It arrives once those behind have made it.
        self.tenants.withdrawn(now, price);
        Ok(())
    }

    /// A request that waited will not be done.
    pub(super) fn withdraw(&self, job: &Job) {
        self.tenants.withdrawn(self.endpoint.now(), job.price);
    }
}
