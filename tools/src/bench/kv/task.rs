//! One client: its operations, one after the other, and how long each took.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use towpath_base::Prng;
use towpath_kv::client::{
    Client, ClientConfig, ClientError, ClientStats, OneSided, Reads, Transport,
};
use towpath_kv::workload::{Client as Draws, Kind, Mix, key_name};

use super::connect::Connected;
use super::way::Load;

/// Bytes at the beginning of a value that say which key it is of.
const MARK_BYTES: usize = 8;

/// What is counted beside time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Operations that the server refused.
    pub(super) refused: u64,
    /// Operations without a reply: nobody knows whether they were done.
    pub(super) unknown: u64,
    /// Values that were not those of their key, or were not there.
    pub(super) mixed_up: u64,
    /// Requests that were sent again.
    pub(super) repeated: u64,
    /// Replies to what had been answered.
    pub(super) stray: u64,
    /// Connections that were made anew.
    pub(super) renewed: u64,
    /// Reads that needed no request.
    pub(super) read_alone: u64,
}

impl Counted {
    pub(super) fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.mixed_up += other.mixed_up;
        self.repeated += other.repeated;
        self.stray += other.stray;
        self.renewed += other.renewed;
        self.read_alone += other.read_alone;
    }
}

/// What a client asks through.
pub(super) enum Asker {
    Plain(Client<Box<dyn Transport>>),
    OneSided(OneSided<Box<dyn Reads>>),
}

impl Asker {
    pub(super) fn new(connected: Connected, config: ClientConfig) -> Self {
        match connected {
            Connected::Asks(transport) => Self::Plain(Client::new(transport, config)),
            Connected::Reads(transport) => Self::OneSided(OneSided::new(transport, config)),
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        match self {
            Self::Plain(client) => client.get(key),
            Self::OneSided(client) => client.get(key),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        match self {
            Self::Plain(client) => client.set(key, value),
            Self::OneSided(client) => client.client().set(key, value),
        }
    }

    fn incr(&mut self, key: &[u8]) -> Result<i64, ClientError> {
        match self {
            Self::Plain(client) => client.incr(key, 1),
            Self::OneSided(client) => client.client().incr(key, 1),
        }
    }

    /// What was asked, and how often nothing had to be.
    fn stats(&mut self) -> (ClientStats, u64) {
        match self {
            Self::Plain(client) => (client.stats(), 0),
            Self::OneSided(client) => (client.client().stats(), client.stats().found),
        }
    }
}

/// One client.
pub(super) struct Task {
    client: Asker,
    draws: Draws,
    load: Load,
    prng: Prng,
    records: u64,
    /// Operations that it is to do.
    share: u64,
    took: Histogram<u64>,
    counted: Counted,
    name: String,
    value: Vec<u8>,
}

/// Puts all records.
pub(super) fn fill(
    client: &mut Client<impl Transport>,
    load: Load,
    records: u64,
) -> Result<(), ClientError> {
    let (mut name, mix) = (String::new(), load.mix());
    let mut value = vec![0x5a; mix.value_bytes()];
    for key in 0..records {
        key_name(mix, key, &mut name);
        match load {
            Load::Count => client.set(name.as_bytes(), b"0")?,
            Load::Mix(_) => {
                mark(&mut value, key);
                client.set(name.as_bytes(), &value)?;
            }
        }
    }
    Ok(())
}

fn mark(value: &mut [u8], key: u64) {
    value[..MARK_BYTES].copy_from_slice(&key.to_le_bytes());
}

impl Load {
    /// Which keys and values there are.
    pub(super) const fn mix(self) -> Mix {
        match self {
            Self::Mix(mix) => mix,
            Self::Count => Mix::Study,
        }
    }
}

impl Task {
    pub(super) fn new(
        client: Asker,
        draws: Draws,
        load: Load,
        (share, records, seed): (u64, u64, u64),
        took: Histogram<u64>,
    ) -> Self {
        let (counted, name, value) = Default::default();
        let prng = Prng::new(seed);
        Self { client, draws, load, prng, records, share, took, counted, name, value }
    }

    /// Does its share, unless the time is over before.
    pub(super) fn run(&mut self, until: Instant) {
        let mut begin = Instant::now();
        for _ in 0..self.share {
            if begin >= until {
                break;
            }
            let done = self.one();
            let end = Instant::now();
            match done {
                // The bounds are those of the longest timeout.
                Ok(()) => self.took.saturating_record((end - begin).as_nanos() as u64),
                Err(ClientError::Refused(_)) => self.counted.refused += 1,
                Err(_) => self.counted.unknown += 1,
            }
            begin = end;
        }
    }

    pub(super) fn took(&self) -> &Histogram<u64> {
        &self.took
    }

    /// Operations that ended well.
    pub(super) fn done(&self) -> u64 {
        self.took.len()
    }

    pub(super) fn counted(&mut self) -> Counted {
        let (stats, read_alone) = self.client.stats();
        let (repeated, stray, renewed) = (stats.repeated, stats.stray, stats.renewed);
        Counted { repeated, stray, renewed, read_alone, ..self.counted }
    }

    fn one(&mut self) -> Result<(), ClientError> {
        if self.load == Load::Count {
            key_name(Mix::Study, self.prng.below(self.records), &mut self.name);
            return self.client.incr(self.name.as_bytes()).map(drop);
        }
        let task = self.draws.next_task();
        key_name(self.load.mix(), task.key, &mut self.name);
        if matches!(task.kind, Kind::Read | Kind::ReadModifyWrite) {
            let read = self.client.get(self.name.as_bytes())?;
            let mark = read.as_deref().and_then(|value| value.first_chunk::<MARK_BYTES>());
            self.counted.mixed_up += u64::from(mark != Some(&task.key.to_le_bytes()));
        }
        if task.kind != Kind::Read {
            self.draws.value(&mut self.value);
            mark(&mut self.value, task.key);
            self.client.set(self.name.as_bytes(), &self.value)?;
        }
        if task.kind == Kind::Insert {
            self.draws.inserted(task.key);
        }
        Ok(())
    }
}
