//! One client: its operations, one after the other, and how long each took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
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
    /// Its own, and the key of the number that it counts up.
    number: u64,
    /// Operations that it is to do.
    share: u64,
    took: Histogram<u64>,
    counted: Counted,
    /// What its number is, and by how much more it may be: what nobody answered may be done.
    sum: i64,
    in_doubt: i64,
    wrong: u64,
    /// Of connecting, before it began.
    before: ClientStats,
    ran: Option<(Instant, Instant)>,
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
        (number, share): (u64, u64),
        took: Histogram<u64>,
    ) -> Self {
        let (counted, name, value, before, ran) = Default::default();
        let (sum, in_doubt, wrong) = (0, 0, 0);
        Self {
            client,
            draws,
            load,
            number,
            share,
            took,
            counted,
            sum,
            in_doubt,
            wrong,
            before,
            ran,
            name,
            value,
        }
    }

    /// Does its share, but not for longer than `most`.
    pub(super) fn run(&mut self, most: Duration) {
        self.before = self.client.stats().0;
        let first = Instant::now();
        let mut begin = first;
        for _ in 0..self.share {
            if begin - first >= most {
                break;
            }
            let done = self.one();
            let end = Instant::now();
            match done {
                // The bounds are those of the longest timeout.
                Ok(()) => self.took.saturating_record((end - begin).as_nanos() as u64),
                Err(ClientError::Refused(_)) => self.counted.refused += 1,
                Err(_) => {
                    self.counted.unknown += 1;
                    self.in_doubt += 1;
                }
            }
            begin = end;
        }
        self.ran = Some((first, begin));
    }

    /// When it began, and when it ended.
    pub(super) fn ran(&self) -> Option<(Instant, Instant)> {
        self.ran
    }

    /// How far a sum of its number is from what it should be.
    pub(super) fn off(&self, sum: i64) -> u64 {
        let most = self.sum + self.in_doubt;
        self.sum.saturating_sub(sum).max(sum.saturating_sub(most)).max(0).unsigned_abs()
    }

    /// Operations that were done twice or never, by what each was answered.
    pub(super) fn wrong(&self) -> u64 {
        self.wrong
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
        let repeated = stats.repeated - self.before.repeated;
        let stray = stats.stray - self.before.stray;
        let renewed = stats.renewed - self.before.renewed;
        Counted { repeated, stray, renewed, read_alone, ..self.counted }
    }

    fn one(&mut self) -> Result<(), ClientError> {
        if self.load == Load::Count {
            key_name(Mix::Study, self.number, &mut self.name);
            let sum = self.client.incr(self.name.as_bytes())?;
            // With this one.
            self.sum += 1;
            self.wrong += self.off(sum);
            (self.sum, self.in_doubt) = (sum, 0);
            return Ok(());
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
