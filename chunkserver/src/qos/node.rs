//! The reservations of one server: its monitor, its tenants, and what they really do. No clock, no
//! I/O: times go in, messages come out.

use std::collections::VecDeque;

use towpath_qos::limits::BATCH_MAX;
use towpath_qos::{
    Action, Engine, Ledger, Look, Monitor, MonitorConfig, PeriodEnd, PeriodStart, Slot, WINDOW_ALL,
};
use towpath_transport::{MemoryError, Nanos, Time};

use super::change::Refused;
use super::config::QosConfig;
use super::limits::{ENDS_KEPT, TENANTS_MAX};
use super::tenant::{Runner, Seat, Tenant};
use super::words::WordTable;

/// Something that a worker has to do for one of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mail {
    /// Tell it so: a message of the monitor's.
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
    pub(super) file_error: Option<String>,
    /// Where the pool's order stands.
    pub(super) pool_clock: u64,
    pub(super) ends: VecDeque<PeriodEnd>,
    pub(super) periods: u64,
    pub(super) mail: Vec<Mail>,
}

impl Node {
    /// With the tenants of the settings. Those that cannot be admitted are told in
    /// [`refused`](Self::refused), and have what others leave.
    pub(crate) fn new(config: QosConfig) -> Result<Self, MemoryError> {
        let mut monitor = MonitorConfig::new(towpath_qos::Capacities {
            all: config.of_period(config.capacity.all),
            one: config.of_period(config.capacity.one),
        });
        (monitor.period, monitor.tick, monitor.rules) = (config.period, config.tick, config.rules);
        // It is that of a period of a second.
        monitor.batch_max = config.of_period(BATCH_MAX).max(1);
        let mut node = Self {
            monitor: Monitor::new(monitor),
            // One more generation of tenants than there may be, while a file replaces all of them.
            table: WordTable::new(2 * TENANTS_MAX.max(config.tenants.len()))?,
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
                self.forgive();
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
        let end = self.monitor.begin(at, &mut self.table);
        self.hold_to_account(&end);
        self.periods += 1;
        if self.ends.len() == ENDS_KEPT {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
        (self.was_used, self.told_spoilt) = (false, false);
        for index in 0..self.tenants.len() {
            let Some(start) = self.monitor.start_for(self.tenants[index].slot, now) else {
                continue;
            };
            self.start(index, now, &start);
        }
        self.begin_ledger();
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
            // The server itself divides among these: `order`.
            Runner::Server(engine) => {
                engine.start(now, &PeriodStart { window: WINDOW_ALL, ..*start });
            }
            Runner::Client(seat) => self.mail.push(Mail::Push(*seat, start.emit().to_vec())),
        }
        (tenant.was_whole_period, tenant.was_lost) = (true, false);
        tenant.batch = start.batch;
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

    pub(super) fn tell(&mut self, mail: Mail) {
        self.mail.push(mail);
    }
}

/// Does what a server's own engine wants done: the words are at hand.
pub(super) fn drive(engine: &mut Engine, table: &WordTable, slot: Slot, now: Time) {
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
