//! The server's part of the token protocol: words, monitor, and messages to clients.

use super::books::Books;
use super::host::Nic;
use super::plan::Plan;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_chunkserver::qos::WordTable;
use towpath_qos::{Capacities, Monitor, MonitorConfig, Rules, Share, Slot};
use towpath_transport::{
    ChannelId, Endpoint, EndpointError, LaneError, LinkId, Rights, SendOptions,
};

/// A client with tokens.
struct Seat {
    slot: Slot,
    channel: ChannelId,
}

pub(super) struct Steward {
    monitor: Monitor,
    words: WordTable,
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
        share: Share,
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
        self.seats.insert(link.index(), (link, Seat { slot, channel }));
        Ok(())
    }

    /// A link is down: nothing is kept for its client any more.
    pub(super) fn dismiss(&mut self, link: LinkId) {
        if let Some((_, seat)) = self.seats.remove(&link.index()) {
            self.monitor.leave(seat.slot);
        }
    }

    /// Does what is due.
    pub(super) fn turn(&mut self, endpoint: &mut Endpoint<Nic>, now: Time, books: &mut Books) {
        if now < books.start {
            return;
        }
        if !self.has_begun {
            (self.has_begun, self.next_period) = (true, books.start);
        }
        if self.next_period <= now {
            self.begin(endpoint, now, books);
        } else if self.next_tick <= now {
            self.next_tick += self.tick;
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
        self.next_tick = self.next_period + self.tick;
        self.next_period += self.period;
        self.tell(endpoint, books, |monitor, slot| Some(monitor.start_for(slot, now)?.emit()));
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
