//! The server's monitor (section II E): dispatch, conversion, and the capacity of the next period.
//!
//! | file | what it does |
//! |---|---|
//! | `clients` | what is known of each client |
//! | `dispatch` | begins periods (step T1) |
//! | `check` | the check interval (steps S1 to S3): who is behind, and whether reports are wanted |
//! | `convert` | tokens that nobody will use become tokens of the pool (step T2) |
//! | `goals` | what a period is to bring each client, and its part of the server |
//! | `capacity` | Algorithm 1, and what replaces it (step T3) |
//!
//! The owner of the words calls [`begin`](Monitor::begin) once a period, [`tick`](Monitor::tick)
//! once a tick, and hands in the words as [`Words`].

mod capacity;
mod check;
mod clients;
mod convert;
mod dispatch;
mod goals;

pub use capacity::{Capacity, Waiting};
pub use clients::{ClientReport, Slot};
pub use dispatch::PeriodEnd;
pub use goals::WINDOW_ALL;

use crate::admission::{AdmissionError, Capacities, Share, admit};
use crate::limits::{BATCH_MAX, CLIENTS_MAX, PERIOD, TICK};
use crate::messages::Notice;
use crate::rules::Rules;
use crate::words::{Epoch, PoolWord};
use alloc::vec::Vec;
use clients::Client;
use towpath_base::{Nanos, Time};

/// The words that clients reach. Where a NIC's atomics are not those of the processor, these calls
/// go through the NIC; in memory that a software device serves they are atomics of the processor.
pub trait Words {
    /// The pool's word.
    fn pool(&mut self) -> u64;
    /// Puts `to` there if `from` still is; what was there if not.
    ///
    /// # Errors
    /// What is there.
    fn exchange_pool(&mut self, from: u64, to: u64) -> Result<(), u64>;
    /// Puts `to` there, whatever is.
    fn overwrite_pool(&mut self, to: u64);
    /// The word of a client.
    fn report(&mut self, slot: Slot) -> u64;
}

/// How a monitor works.
#[derive(Clone, Copy, Debug)]
pub struct MonitorConfig {
    /// The protocol.
    pub rules: Rules,
    /// The length of a period. Default [`PERIOD`].
    pub period: Nanos,
    /// The check interval. Default [`TICK`].
    pub tick: Nanos,
    /// Tokens that an engine takes at a time, at most. Default [`BATCH_MAX`].
    pub batch_max: u32,
    /// What the server was profiled to do in a period, and one client by itself.
    pub profiled: Capacities,
    /// The standard deviation of that, for Algorithm 1.
    pub deviation: u32,
    /// What is added to an estimate that was used up (the paper's eta).
    pub increment: u32,
}

impl MonitorConfig {
    /// Ours, for a server of such capacities.
    #[must_use]
    pub fn new(profiled: Capacities) -> Self {
        Self {
            rules: Rules::OURS,
            period: PERIOD,
            tick: TICK,
            batch_max: BATCH_MAX,
            profiled,
            deviation: profiled.all / 300,
            increment: profiled.all / 100,
        }
    }

    /// Another protocol.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }
}

/// What a tick found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Send this to all clients.
    pub notice: Option<Notice>,
    /// How many clients are behind.
    pub behind: usize,
    /// The pool's word was touched by nobody's rules, and was set right.
    pub was_spoilt: bool,
}

/// The monitor of one server.
#[derive(Debug)]
pub struct Monitor {
    config: MonitorConfig,
    clients: Vec<Option<Client>>,
    epoch: Epoch,
    began: Time,
    capacity: Capacity,
    /// What the pool had when the period began, or after the last exchange.
    pool_set: i64,
    /// Tokens that were taken from the pool in this period, up to the last look.
    pool_taken: u64,
    /// The same at each of the last looks, as a ring: what was taken since reports were written.
    taken_then: Vec<u64>,
    looks: usize,
    is_reporting: bool,
    is_careful: bool,
    careful_periods: u32,
    /// How many they were when somebody was behind last.
    careful_length: u32,
    was_behind: bool,
    /// Looks of the period in which enough clients waited for the server to use it up.
    saturated_looks: usize,
    /// And those of them in which these were more than one.
    contended_looks: usize,
    /// And those in which enough clients had enough to do, whatever they waited for.
    wanting_looks: usize,
    /// And those of them in which these were more than one.
    shared_looks: usize,
    /// The largest goal of all clients in this period.
    goal_max: u32,
    /// Engines have kept to an even use since the period began.
    began_careful: bool,
    /// The server itself had more to do than it could since the last look.
    is_full: bool,
    /// What those have done in this period that have left since.
    done_by_gone: u64,
    spoilt: u64,
    converted: u64,
}

impl Monitor {
    /// A monitor without clients, before its first period.
    #[must_use]
    pub fn new(config: MonitorConfig) -> Self {
        Self {
            capacity: Capacity::new(&config),
            config,
            clients: Vec::new(),
            epoch: Epoch(0),
            began: Time::ZERO,
            pool_set: 0,
            pool_taken: 0,
            taken_then: Vec::new(),
            looks: 0,
            is_reporting: false,
            is_careful: false,
            careful_periods: 0,
            careful_length: 0,
            was_behind: false,
            saturated_looks: 0,
            contended_looks: 0,
            wanting_looks: 0,
            shared_looks: 0,
            goal_max: 0,
            began_careful: false,
            is_full: false,
            done_by_gone: 0,
            spoilt: 0,
            converted: 0,
        }
    }

    /// Admits a client from the next period on.
    ///
    /// # Errors
    /// [`AdmissionError`].
    pub fn join(&mut self, share: Share) -> Result<Slot, AdmissionError> {
        let one = self.config.profiled.one;
        let capacities = Capacities { all: self.capacity.estimate(), one };
        admit(&share, self.reserved(), capacities)?;
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if place == CLIENTS_MAX {
            return Err(AdmissionError::Full { max: CLIENTS_MAX });
        }
        if place == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[place] = Some(Client::new(share));
        Ok(Slot(place as u16))
    }

    /// Changes what a client has, from the next period on.
    ///
    /// # Errors
    /// [`AdmissionError`]; then it keeps what it has.
    pub fn change(&mut self, slot: Slot, share: Share) -> Result<(), AdmissionError> {
        let Some(before) = self.client(slot).map(|client| client.share) else { return Ok(()) };
        // Who does not want more needs no room, even where less is left than is reserved, and where
        // its reservation alone is more than the estimate by now.
        let (others, all) = match share.reservation > before.reservation {
            true => (self.reserved() - u64::from(before.reservation), self.capacity.estimate()),
            false => (0, u32::MAX),
        };
        let one = self.config.profiled.one;
        admit(&share, others, Capacities { all, one })?;
        if let Some(client) = self.clients[slot.index()].as_mut() {
            client.share = share;
        }
        Ok(())
    }

    /// A client has left, or is dead: nothing is kept for it any more.
    pub fn leave(&mut self, slot: Slot) {
        if let Some(client) = self.clients.get_mut(slot.index()).and_then(Option::take) {
            self.done_by_gone += u64::from(client.last.done);
        }
    }

    /// All reservations together.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.live().map(|client| u64::from(client.share.reservation)).sum()
    }

    /// What the server was seen to do in a period. The tokens of a period may be some more, to find
    /// out whether it does more by now.
    #[must_use]
    pub fn estimate(&self) -> u32 {
        self.capacity.estimate()
    }

    /// Whether what is reserved is more than the server is thought to do.
    #[must_use]
    pub fn is_overcommitted(&self) -> bool {
        self.reserved() > u64::from(self.capacity.estimate())
    }

    /// Which period it is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How often the pool's word was what no engine that keeps to the rules makes of it.
    #[must_use]
    pub fn spoilt(&self) -> u64 {
        self.spoilt
    }

    /// Tokens that were put into the pool after a period had begun: those that their owners would
    /// not use, and in careful periods those of the pool that had been kept back.
    #[must_use]
    pub fn converted(&self) -> u64 {
        self.converted
    }

    /// The server has had more to do than it could since the last look, as it sees itself: I/Os
    /// that had tokens waited for it. It needs no client to say so.
    pub fn note_full(&mut self) {
        self.is_full = true;
    }

    /// Tokens that were taken from the pool in this period, up to now.
    #[must_use]
    pub fn taken(&self, words: &mut impl Words) -> u64 {
        let word = PoolWord::unpack(words.pool());
        if word.epoch != self.epoch {
            return self.pool_taken;
        }
        let lately = self.pool_set.max(0) - word.tokens.max(0);
        self.pool_taken + u64::try_from(lately).unwrap_or(0)
    }

    /// Whether engines keep to an even use in this period, since somebody was behind.
    #[must_use]
    pub fn is_careful(&self) -> bool {
        self.is_careful
    }

    /// How it works.
    #[must_use]
    pub fn config(&self) -> &MonitorConfig {
        &self.config
    }

    /// The tokens of this period: the estimate, or a little more while that is tried.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.capacity.tokens()
    }

    /// What is known of a client.
    #[must_use]
    pub fn report(&self, slot: Slot) -> Option<ClientReport> {
        self.client(slot).map(Client::report)
    }

    fn client(&self, slot: Slot) -> Option<&Client> {
        self.clients.get(slot.index())?.as_ref()
    }

    fn live(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().flatten()
    }

    fn passed(&self, now: Time) -> Nanos {
        let passed = now.since(self.began);
        passed.min(self.config.period)
    }

    /// How often a client reports: the more clients, the less often each, so that reports together
    /// stay as few as those of sixty-four.
    pub(crate) fn report_every(&self) -> Nanos {
        let clients = self.live().count() as u64;
        self.config.tick.saturating_mul(clients.div_ceil(64).max(1))
    }
}
