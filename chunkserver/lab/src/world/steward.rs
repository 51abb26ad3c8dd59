//! The server's part of the token protocol: words, monitor, and messages to clients.

use super::books::Books;
use super::host::Nic;
use super::plan::Plan;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_chunkserver::qos::WordTable;
use towpath_qos::{Capacities, Ledger, Monitor, MonitorConfig, Rules, Share, Slot, Verdict};
use towpath_transport::{
    ChannelId, Endpoint, EndpointError, GrantId, LaneError, LinkId, Rights, SendOptions,
    SharedMemory,
};

/// A client with tokens.
struct Seat {
    client: usize,
    slot: Slot,
    channel: ChannelId,
    /// None while it is cut off.
    records: Option<GrantId>,
    /// READs and atomics that the device had answered at the last look.
    reads: u64,
    atomics: u64,
    /// Tokens of an addition in this period.
    batch: u32,
}

pub(super) struct Steward {
    monitor: Monitor,
    words: WordTable,
    /// What clients really did, as the device counts it.
    ledger: Ledger,
    /// I/Os by which a client may differ from its reports and tokens: those under way at both ends
    /// of a period, and those of the ticks since a report.
    slack: u64,
    seats: BTreeMap<usize, (LinkId, Seat)>,
    period: Nanos,
    tick: Nanos,
    /// The beginnings of the next period, and of the next tick.
    next_period: Time,
    next_tick: Time,
    has_begun: bool,
}

impl Steward {
    pub(super) fn new(plan: &Plan, rules: Rules) -> Result<Self, EndpointError> {
        let of_period = |ios: u64| (ios as f64 * plan.period.as_secs_f64()) as u32;
        let all = (f64::from(of_period(plan.rates.all)) * plan.estimate) as u32;
        let profiled = Capacities { all, one: of_period(plan.rates.one) };
        let mut config = MonitorConfig::new(profiled).rules(rules);
        (config.period, config.tick) = (plan.period, plan.tick);
        // The paper's in a period of a second.
        let batch = u64::from(config.batch_max) * plan.period.0 / 1_000_000_000;
        config.batch_max = u32::try_from(batch.max(1)).unwrap_or(u32::MAX);
        Ok(Self {
            monitor: Monitor::new(config),
            ledger: Ledger::default(),
            slack: 2 * u64::from(plan.depth) + plan.rates.one * 3 * plan.tick.0 / 1_000_000_000,
            words: WordTable::new(plan.clients.len())?,
            seats: BTreeMap::new(),
            period: plan.period,
            tick: plan.tick,
            next_period: Time::NEVER,
            next_tick: Time::NEVER,
            has_begun: false,
        })
    }

    /// A client has a link and a channel: it gets its words.
    pub(super) fn admit(
        &mut self,
        endpoint: &mut Endpoint<Nic>,
        (link, channel): (LinkId, ChannelId),
        (share, records): (Share, GrantId),
    ) -> Result<(), String> {
        let slot = self.monitor.join(share).map_err(|error| error.to_string())?;
        let atomic = Rights { read: false, write: false, atomic: true };
        let write = Rights { read: false, write: true, atomic: false };
        let report = self.words.report_range(slot).ok_or("no word for a client")?;
        let memory = self.words.memory();
        let mut grant = |range, rights| -> Result<(), LaneError> {
            endpoint.grant(link, memory, range, rights).map(drop)
        };
        grant(self.words.pool_range(), atomic).map_err(|error| error.to_string())?;
        grant(report, write).map_err(|error| error.to_string())?;
        let (client, records) = (self.seats.len(), Some(records));
        let seat = Seat { client, slot, channel, records, reads: 0, atomics: 0, batch: 0 };
        self.seats.insert(link.index(), (link, seat));
        Ok(())
    }

    /// A link is down: nothing is kept for its client any more.
    pub(super) fn dismiss(&mut self, link: LinkId) {
        if let Some((_, seat)) = self.seats.remove(&link.index()) {
            self.monitor.leave(seat.slot);
        }
    }

    /// Does what is due.
    pub(super) fn turn(
        &mut self,
        (endpoint, records): (&mut Endpoint<Nic>, &SharedMemory),
        now: Time,
        books: &mut Books,
    ) {
        if now < books.start {
            return;
        }
        if !self.has_begun {
            (self.has_begun, self.next_period) = (true, books.start);
        }
        if self.next_period <= now {
            self.charge(endpoint, books);
            self.begin(endpoint, now, books);
            self.open_accounts(endpoint, records, books);
        } else if self.next_tick <= now {
            self.next_tick += self.tick;
            self.charge(endpoint, books);
            let look = self.monitor.tick(now, &mut self.words);
            if let Some(notice) = look.notice {
                self.tell(endpoint, books, |_, _| Some(notice.emit()));
            }
        }
    }

    fn begin(&mut self, endpoint: &mut Endpoint<Nic>, now: Time, books: &mut Books) {
        let is_first = self.next_period == books.start;
        let end = self.monitor.begin(now, &mut self.words);
        if !is_first {
            books.ends.push(end);
        }
        // Where nobody was asked to report there is nothing to compare.
        if end.completed > 0 {
            for (_, seat) in self.seats.values() {
                let told = self.monitor.report(seat.slot).map_or(0, |report| report.done_before);
                let is_right = self.ledger.compare(seat.slot, told.into(), self.slack);
                books.accounts[seat.client].misreports += u64::from(!is_right);
            }
        }
        self.next_tick = self.next_period + self.tick;
        self.next_period += self.period;
        self.tell(endpoint, books, |monitor, slot| Some(monitor.start_for(slot, now)?.emit()));
    }

    /// Charges clients for the READs that the device has answered since the last look. Who has done
    /// more than it can have tokens for is cut off until the next period.
    fn charge(&mut self, endpoint: &mut Endpoint<Nic>, books: &mut Books) {
        for (link, seat) in self.seats.values_mut() {
            let Some(served) = endpoint.served(*link) else { continue };
            let additions = served.atomics - seat.atomics;
            let reads = u32::try_from(served.reads - seat.reads).unwrap_or(u32::MAX);
            (seat.reads, seat.atomics) = (served.reads, served.atomics);
            self.ledger.allow(seat.slot, additions * u64::from(seat.batch));
            let account = &mut books.accounts[seat.client];
            if let Verdict::Overrun { by } = self.ledger.charge(seat.slot, reads)
                && self.has_begun
            {
                account.overrun += by;
                if let Some(grant) = seat.records.take() {
                    endpoint.revoke(*link, grant);
                }
            }
            let report = self.monitor.report(seat.slot);
            account.lost += u64::from(report.is_some_and(|report| report.is_lost));
        }
    }

    /// A period has begun: what clients may do in it, and who was cut off is not any more.
    fn open_accounts(
        &mut self,
        endpoint: &mut Endpoint<Nic>,
        records: &SharedMemory,
        books: &mut Books,
    ) {
        let Self { monitor, ledger, seats, slack, .. } = self;
        let may_use = |slot| {
            let report = monitor.report(slot);
            report.map_or(0, |report| u64::from(report.share.reservation) + *slack)
        };
        ledger.begin(monitor.epoch(), seats.len(), may_use);
        for (link, seat) in seats.values_mut() {
            seat.batch = monitor.start_for(seat.slot, Time::ZERO).map_or(0, |start| start.batch);
            if seat.records.is_some() {
                continue;
            }
            let rights = Rights { read: true, write: false, atomic: false };
            match endpoint.grant(*link, records, records.whole(), rights) {
                Ok(grant) => seat.records = Some(grant),
                Err(error) => books.note(|| format!("a client's records: {error}")),
            }
        }
    }

    fn tell<const N: usize>(
        &self,
        endpoint: &mut Endpoint<Nic>,
        books: &mut Books,
        message: impl Fn(&Monitor, Slot) -> Option<[u8; N]>,
    ) {
        for (link, seat) in self.seats.values() {
            let Some(bytes) = message(&self.monitor, seat.slot) else { continue };
            let Ok(buf) = endpoint.copy(&bytes) else {
                books.note(|| "the server has no buffer for a message".to_owned());
                return;
            };
            if endpoint.send(*link, seat.channel, buf, SendOptions::new()).is_err() {
                books.note(|| "a message to a client was not taken".to_owned());
            }
        }
    }

    pub(super) fn next_time(&self, books: &Books) -> Time {
        if self.has_begun { self.next_period.min(self.next_tick) } else { books.start }
    }
}
