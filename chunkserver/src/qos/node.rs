//! The reservations of one server: its monitor, its tenants, and what they really do. No clock, no
//! I/O: times go in, messages come out.

use std::collections::VecDeque;

use towpath_qos::{
    Action, AdmissionError, Engine, Ledger, Look, Monitor, MonitorConfig, PeriodEnd, PeriodStart,
    Report, Share, Slot, Verdict, Weights, Words as _,
};
use towpath_transport::{MemoryError, Nanos, Time};

use super::config::{OTHERS, QosConfig, SCRUB, Shares};
use super::limits::{ENDS_KEPT, TENANTS_MAX, UNDER_WAY_MAX};
use super::tenant::{Runner, Seat, Tenant, TenantId};
use super::words::WordTable;

/// Something that a worker has to do for one of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mail {
    /// Tell it so.
    Push(Seat, Vec<u8>),
    /// Take back what it was granted: it did I/O without tokens.
    CutOff(Seat),
}

impl Mail {
    pub(super) fn worker(&self) -> usize {
        match self {
            Self::Push(seat, _) | Self::CutOff(seat) => seat.worker,
        }
    }
}

/// Leave for one request; [`Node::done`] takes it back.
#[derive(Debug)]
#[must_use = "the tenant's engine waits for its end"]
pub(crate) struct Pass {
    tenant: TenantId,
    ticket: Option<towpath_qos::Ticket>,
}

/// A tenant that was wanted and cannot have what it was to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub tenant: String,
    /// Why.
    pub error: AdmissionError,
}

/// The reservations of one server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) config: QosConfig,
    pub(super) monitor: Monitor,
    pub(super) table: WordTable,
    pub(super) ledger: Ledger,
    pub(super) tenants: Vec<Tenant>,
    /// Those of the file that could not be admitted as it says.
    pub(super) refused: Vec<Refused>,
    pub(super) next_period: Time,
    pub(super) next_tick: Time,
    /// Nobody has asked for anything in a whole period: the next request begins one.
    is_asleep: bool,
    was_used: bool,
    /// It was said in this period that somebody spoils the pool's word.
    told_spoilt: bool,
    /// Why the file of tenants was not taken over when it last changed.
    file_error: Option<String>,
    /// Where the pool's order stands.
    pool_clock: u64,
    pub(super) ends: VecDeque<PeriodEnd>,
    pub(super) periods: u64,
    mail: Vec<Mail>,
}

/// One token in the order of the pool, at weight 1.
const TAG_SCALE: u64 = 1 << 16;

impl Node {
    /// With the tenants of the settings. Those that cannot be admitted are told in
    /// [`refused`](Self::refused), and have what others leave.
    pub(crate) fn new(config: QosConfig) -> Result<Self, MemoryError> {
        let mut monitor = MonitorConfig::new(towpath_qos::Capacities {
            all: config.of_period(config.capacity.all),
            one: config.of_period(config.capacity.one),
        });
        (monitor.period, monitor.tick) = (config.period, config.tick);
        let mut node = Self {
            monitor: Monitor::new(monitor),
            // One more generation of tenants than there may be, while a file replaces all of them.
            table: WordTable::new(2 * TENANTS_MAX)?,
            ledger: Ledger::default(),
            tenants: Vec::new(),
            refused: Vec::new(),
            next_period: Time::NEVER,
            next_tick: Time::NEVER,
            is_asleep: true,
            was_used: false,
            told_spoilt: false,
            file_error: None,
            pool_clock: 0,
            ends: VecDeque::new(),
            periods: 0,
            mail: Vec::new(),
            config,
        };
        let tenants = std::mem::take(&mut node.config.tenants);
        node.set_tenants(&tenants);
        Ok(node)
    }

    /// What operations cost.
    pub(crate) fn weights(&self) -> Weights {
        self.config.weights
    }

    /// When [`turn`](Self::turn) has something to do.
    pub(crate) fn next_due(&self) -> Time {
        if self.is_asleep { Time::NEVER } else { self.next_period.min(self.next_tick) }
    }

    /// What workers have to do.
    pub(crate) fn take_mail(&mut self) -> impl Iterator<Item = Mail> {
        self.mail.drain(..)
    }

    /// Begins a period, or looks at the words, when it is time.
    pub(crate) fn turn(&mut self, now: Time) {
        if self.is_asleep {
            return;
        }
        if now >= self.next_period {
            let is_idle = !self.was_used && self.tenants.iter().all(|t| t.seat().is_none());
            if is_idle {
                self.is_asleep = true;
                return;
            }
            // A server that was away does not catch up with the periods that it missed.
            let is_late = now.since(self.next_period) >= self.config.tick;
            self.begin(if is_late { now } else { self.next_period }, now);
        } else if now >= self.next_tick {
            self.tick(now);
        }
    }

    /// Somebody wants something: a period begins if none is under way.
    pub(super) fn wake(&mut self, now: Time) {
        self.was_used = true;
        if self.is_asleep {
            self.is_asleep = false;
            self.begin(now, now);
        }
    }

    /// Step T1: tokens are made and pushed.
    fn begin(&mut self, at: Time, now: Time) {
        self.hold_to_account();
        let end = self.monitor.begin(at, &mut self.table);
        self.periods += 1;
        if self.ends.len() == ENDS_KEPT {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
        (self.was_used, self.told_spoilt) = (false, false);
        self.begin_ledger();
        for index in 0..self.tenants.len() {
            let Some(start) = self.monitor.start_for(self.tenants[index].slot, now) else {
                continue;
            };
            self.start(index, now, &start);
        }
        self.next_period = at + self.config.period;
        self.set_next_tick(at, now);
    }

    fn set_next_tick(&mut self, from: Time, now: Time) {
        let next = (from + self.config.tick).max(now + Nanos(1));
        // The last look of a period is where the next begins.
        self.next_tick = if next < self.next_period { next } else { Time::NEVER };
    }

    fn start(&mut self, index: usize, now: Time, start: &PeriodStart) {
        let tenant = &mut self.tenants[index];
        if tenant.is_removed {
            return;
        }
        match &mut tenant.runner {
            Runner::Server(engine) => engine.start(now, start),
            Runner::Client(seat) => self.mail.push(Mail::Push(*seat, start.emit().to_vec())),
        }
        tenant.was_whole_period = true;
    }

    /// What clients say that they did, beside what the server has seen.
    fn hold_to_account(&mut self) {
        let slack = u64::from(slack_of_reports(self.monitor.config().profiled.one));
        for tenant in &self.tenants {
            let is_held = tenant.seat().is_some() && tenant.was_whole_period && tenant.is_seen;
            if let Some(report) = self.monitor.report(tenant.slot).filter(|_| is_held) {
                self.ledger.compare(tenant.slot, report.last.done.into(), slack);
            }
        }
    }

    fn begin_ledger(&mut self) {
        let slots = self.tenants.iter().map(|tenant| tenant.slot.index() + 1).max().unwrap_or(0);
        let mut may_use = vec![u64::MAX; slots];
        for tenant in self.tenants.iter().filter(|tenant| !tenant.is_removed) {
            // Where the device does not say what it serves, nothing can be held against anybody.
            if tenant.seat().is_some() && tenant.is_seen {
                let reserved = self.config.share_of_period(tenant.share).reservation;
                may_use[tenant.slot.index()] = u64::from(reserved) + self.slack_of(tenant.slot);
            }
        }
        let epoch = self.monitor.epoch();
        self.ledger.begin(epoch, slots, |slot| may_use.get(slot.index()).copied().unwrap_or(0));
        for index in 0..self.tenants.len() {
            self.tenants[index].taken_seen = 0;
            self.cap(index);
        }
    }

    /// A client's limit holds at the server as well.
    pub(super) fn cap(&mut self, index: usize) {
        let tenant = &self.tenants[index];
        let limit = self.config.share_of_period(tenant.share).limit;
        if let Some(limit) =
            limit.filter(|_| tenant.seat().is_some() && tenant.is_seen && !tenant.is_removed)
        {
            let slot = tenant.slot;
            self.ledger.cap(slot, u64::from(limit) + self.slack_of(slot));
        }
    }

    /// What a client may do in a period beyond the tokens of that period: what was under way when
    /// it began, and a batch that was taken early.
    pub(super) fn slack_of(&self, slot: Slot) -> u64 {
        let batch = self.monitor.start_for(slot, Time::ZERO).map_or(0, |start| start.batch);
        UNDER_WAY_MAX + u64::from(batch)
    }

    /// Steps S1 to S3 and T2.
    fn tick(&mut self, now: Time) {
        for tenant in self.tenants.iter_mut().filter(|tenant| !tenant.is_removed) {
            let slot = tenant.slot;
            if let Some(engine) = tenant.engine_mut() {
                drive(engine, &self.table, slot, now);
            }
        }
        let Look { notice, was_spoilt, .. } = self.look(now);
        if was_spoilt && !std::mem::replace(&mut self.told_spoilt, true) {
            tracing::warn!("the word of the token pool was no word of ours, and was set right");
        }
        if let Some(notice) = notice {
            for tenant in self.tenants.iter_mut().filter(|tenant| !tenant.is_removed) {
                match &mut tenant.runner {
                    Runner::Server(engine) => engine.notice(now, &notice),
                    Runner::Client(seat) => {
                        self.mail.push(Mail::Push(*seat, notice.emit().to_vec()));
                    }
                }
            }
        }
        self.set_next_tick(now, now);
    }

    /// The monitor's look, at what clients say as far as it agrees with what the server has seen.
    fn look(&mut self, now: Time) -> Look {
        let Self { monitor, table, ledger, tenants, .. } = self;
        let (epoch, shift) = (monitor.epoch(), monitor.unit_shift());
        let slack = slack_of_reports(monitor.config().profiled.one);
        for tenant in tenants.iter().filter(|tenant| tenant.seat().is_some() && tenant.is_seen) {
            let told = Report::unpack(table.report(tenant.slot), epoch, shift);
            let entry = ledger.entry(tenant.slot).filter(|_| tenant.was_whole_period);
            if let (Some(told), Some(entry)) = (told, entry) {
                let seen = u32::try_from(entry.charged).unwrap_or(u32::MAX);
                let least = seen.saturating_sub(slack);
                let done = told.done.clamp(least, seen.saturating_add(slack));
                if done != told.done {
                    // It is written again by its client; what matters is what is read now.
                    table.write_report(tenant.slot, Report { done, ..told }.pack(epoch, shift));
                }
            }
        }
        monitor.tick(now, table)
    }

    /// A request has come in that costs so much.
    pub(crate) fn arrived(&mut self, now: Time, tenant: TenantId, cost: u32) {
        self.wake(now);
        if let Some(engine) = self.tenant_mut(tenant).engine_mut() {
            engine.arrived(now, 1, cost);
        }
    }

    /// A request that had [come in](Self::arrived) will not be done.
    pub(crate) fn withdrawn(&mut self, now: Time, tenant: TenantId, cost: u32) {
        if let Some(engine) = self.tenant_mut(tenant).engine_mut() {
            engine.withdrawn(now, 1, cost);
        }
    }

    /// Tokens that a tenant may use in a period at most: no request that costs more is ever done.
    pub(crate) fn limit(&self, id: TenantId) -> u32 {
        let limit = self.config.share_of_period(self.tenants[self.resolve(id)].share).limit;
        limit.unwrap_or(u32::MAX).min(self.monitor.estimate())
    }

    /// Sorts tenants with waiting requests: reserved work first, by what is left of it for the rest
    /// of the period; then those that need tokens of the pool, by weight.
    pub(crate) fn order(&mut self, now: Time, waiting: &mut [TenantId]) {
        let key = |id: &TenantId| {
            let tenant = &self.tenants[self.resolve(*id)];
            let left = match &tenant.runner {
                Runner::Server(engine) => match engine.usable(now) {
                    0 => 0,
                    _ => engine.tokens().0.into(),
                },
                Runner::Client(_) => self.reserved_left(tenant),
            };
            match left {
                0 => (1, tenant.pool_tag.max(self.pool_clock), id.0),
                left => (0, u64::MAX - left, id.0),
            }
        };
        waiting.sort_by_cached_key(key);
    }

    fn reserved_left(&self, tenant: &Tenant) -> u64 {
        let charged = self.ledger.entry(tenant.slot).map_or(0, |entry| entry.charged);
        let reserved = self.config.share_of_period(tenant.share).reservation;
        u64::from(reserved).saturating_sub(charged)
    }

    /// Requests that may have tokens wait for the store.
    pub(crate) fn note_full(&mut self) {
        self.monitor.note_full();
    }

    /// Leave for a request that had [come in](Self::arrived); none while its tenant has no tokens.
    pub(crate) fn admit(&mut self, now: Time, id: TenantId, cost: u32) -> Option<Pass> {
        // Who waits since an earlier period is somebody who wants something.
        self.wake(now);
        let index = self.resolve(id);
        let (ticket, reserved) = match self.tenants[index].runner {
            Runner::Server(_) => self.admit_by_engine(now, index, cost)?,
            Runner::Client(_) => (None, self.admit_by_ledger(index, cost)?),
        };
        let tenant = &mut self.tenants[index];
        let pooled = cost - reserved.min(cost);
        tenant.stats.used_reserved += u64::from(cost - pooled);
        tenant.stats.used_pooled += u64::from(pooled);
        tenant.stats.requests += 1;
        if pooled > 0 {
            let tag = tenant.pool_tag.max(self.pool_clock);
            self.pool_clock = tag;
            let weight = u64::from(tenant.share.weight.max(1));
            tenant.pool_tag = tag.saturating_add(u64::from(pooled) * TAG_SCALE / weight);
        }
        Some(Pass { tenant: TenantId(index as u16), ticket })
    }

    /// With the tokens of its reservation that it took.
    fn admit_by_engine(
        &mut self,
        now: Time,
        index: usize,
        cost: u32,
    ) -> Option<(Option<towpath_qos::Ticket>, u32)> {
        let Self { tenants, table, ledger, .. } = self;
        let tenant = &mut tenants[index];
        let slot = tenant.slot;
        let engine = tenant.engine_mut()?;
        let spent = |engine: &Engine| engine.tokens().0 + engine.yielded();
        let before = spent(engine);
        let ticket = match engine.admit(now, cost) {
            Ok(ticket) => ticket,
            Err(_) => {
                // The pool is at hand: nobody has to wait for what it has.
                drive(engine, table, slot, now);
                engine.admit(now, cost).ok()?
            }
        };
        let reserved = before.saturating_sub(spent(engine));
        // The engine is the server's own, and takes no more than there is.
        let _ = ledger.charge(slot, cost);
        Some((Some(ticket), reserved))
    }

    fn admit_by_ledger(&mut self, index: usize, cost: u32) -> Option<u32> {
        let tenant = &self.tenants[index];
        let left = self.reserved_left(tenant);
        match self.ledger.charge_if_within(tenant.slot, cost) {
            Verdict::Within => Some(u32::try_from(left).unwrap_or(u32::MAX).min(cost)),
            Verdict::Overrun { .. } => None,
        }
    }

    /// A request has come to its end.
    pub(crate) fn done(&mut self, now: Time, pass: Pass) {
        let Pass { tenant, ticket } = pass;
        let engine = self.tenants.get_mut(tenant.index()).and_then(Tenant::engine_mut);
        if let Some((engine, ticket)) = engine.zip(ticket) {
            engine.done(now, ticket);
        }
    }

    /// The tenant of that name.
    pub(crate) fn find(&self, name: &str) -> Option<TenantId> {
        let is_it = |tenant: &Tenant| tenant.name == name && !tenant.is_removed;
        self.tenants.iter().position(is_it).map(TenantId::of_index)
    }

    /// Where the tenant of a link is; that of all others when it is in the file no more.
    pub(super) fn resolve(&self, id: TenantId) -> usize {
        match self.tenants.get(id.index()) {
            Some(tenant) if !tenant.is_removed => id.index(),
            _ => TenantId::OTHERS.index(),
        }
    }

    fn tenant_mut(&mut self, id: TenantId) -> &mut Tenant {
        let index = self.resolve(id);
        &mut self.tenants[index]
    }

    pub(super) fn tell(&mut self, mail: Mail) {
        self.mail.push(mail);
    }

    /// The file of tenants has changed, and cannot be used.
    pub(crate) fn set_file_error(&mut self, error: String) {
        self.file_error = Some(error);
    }

    /// Why the file of tenants was not taken over when it last changed.
    pub(crate) fn file_error(&self) -> Option<&str> {
        self.file_error.as_deref()
    }

    /// Those of the file that could not be admitted as it says.
    pub(crate) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Changes who has what: from the next period on. What is refused leaves that tenant as it was.
    pub(crate) fn set_tenants(&mut self, tenants: &Shares) {
        let mut wanted = tenants.clone();
        for always in [OTHERS, SCRUB] {
            wanted.entry(always.into()).or_insert(Share::reserved(0));
        }
        self.refused.clear();
        self.file_error = None;
        let mut order: Vec<(&String, &Share)> = wanted.iter().collect();
        // The two that are always there have the first places.
        order.sort_by_key(|(name, _)| (name.as_str() != OTHERS, name.as_str() != SCRUB));
        for index in 0..self.tenants.len() {
            if !wanted.contains_key(&self.tenants[index].name) {
                self.remove(index);
            }
        }
        // Who gives up comes before who wants more.
        let (less, more): (Vec<_>, Vec<_>) = order.into_iter().partition(|(name, share)| {
            let is_it = |tenant: &&Tenant| tenant.name == **name && !tenant.is_removed;
            let found = self.tenants.iter().find(is_it);
            found.is_some_and(|tenant| share.reservation <= tenant.share.reservation)
        });
        for (name, share) in less.into_iter().chain(more) {
            self.set_tenant(name, *share);
        }
    }

    fn remove(&mut self, index: usize) {
        let tick = self.config.tick;
        let tenant = &mut self.tenants[index];
        if tenant.is_removed {
            return;
        }
        self.monitor.leave(tenant.slot);
        tenant.is_removed = true;
        self.mail.extend(tenant.seat().map(Mail::CutOff));
        tenant.take_over(tick);
    }

    fn set_tenant(&mut self, name: &str, share: Share) {
        let wanted = self.config.share_of_period(share);
        let found = self.tenants.iter().position(|tenant| tenant.name == name);
        let result = match found {
            Some(index) if !self.tenants[index].is_removed => {
                self.monitor.change(self.tenants[index].slot, wanted).map(|()| index)
            }
            _ => self.monitor.join(wanted).map(|slot| {
                // What the slot's last owner said is not this one's.
                self.table.write_report(slot, 0);
                self.ledger.clear(slot);
                self.ledger.limit(slot, u64::MAX);
                let tenant = Tenant::new(name.into(), share, slot, self.config.tick);
                match found {
                    Some(index) => {
                        let Tenant { stats, links, .. } = self.tenants[index];
                        self.tenants[index] = Tenant { stats, links, ..tenant };
                        index
                    }
                    None => {
                        self.tenants.push(tenant);
                        self.tenants.len() - 1
                    }
                }
            }),
        };
        match result {
            Ok(index) => self.tenants[index].share = share,
            Err(error) => {
                tracing::warn!(tenant = name, %error, "a reservation is refused");
                self.refused.push(Refused { tenant: name.into(), error });
                let is_known = found.is_some_and(|index| !self.tenants[index].is_removed);
                if !is_known && share.reservation > 0 {
                    // It is known, and has what others leave.
                    self.set_tenant(name, Share { reservation: 0, limit: None, ..share });
                }
            }
        }
    }
}

/// How much what a client tells may differ from what the server has seen: reports are a tick old,
/// and I/Os under way are counted by one of them only.
fn slack_of_reports(one: u32) -> u32 {
    one / 100 + 2 * UNDER_WAY_MAX as u32
}

/// Does what a server's own engine wants done: the words are at hand.
fn drive(engine: &mut Engine, table: &WordTable, slot: Slot, now: Time) {
    while let Some(action) = engine.poll(now) {
        match action {
            Action::Fetch { operand } => {
                let was = table.fetch_add(operand);
                engine.fetched(now, was);
            }
            Action::Report { word } => table.write_report(slot, word),
        }
    }
}
