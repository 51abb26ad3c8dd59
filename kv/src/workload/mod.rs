//! What clients ask for: YCSB's core workloads A, B, C, D and F, and that of the study that
//! asked first. Pure: who draws gives the seed.
//!
//! | file | contents |
//! |---|---|
//! | `zipf` | numbers by Zipf's law, as YCSB draws them |
//! | `sequence` | the keys that there are while clients insert more |
//!
//! ```
//! use towpath_kv::workload::{Mix, Workload};
//!
//! let workload = Workload::new(Mix::B, 1_000, 7);
//! let mut client = workload.client(0);
//! let task = client.next_task();
//! assert!(task.key < 1_000);
//! ```

mod sequence;
mod zipf;

pub use sequence::Sequence;
pub use zipf::{Scrambled, THETA, Zipf, scramble};

use std::fmt::Write;
use std::sync::Arc;
use towpath_base::Prng;

/// Which operations, of which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mix {
    /// YCSB's A: half reads, half updates.
    A,
    /// YCSB's B: 95 % reads, 5 % updates.
    B,
    /// YCSB's C: reads alone.
    C,
    /// YCSB's D: 95 % reads, mostly of what was inserted last, and 5 % inserts.
    D,
    /// YCSB's F: half reads, and half reads that an update of the same key follows.
    F,
    /// The study's: 30 GETs for each SET, of all keys alike. (Its program draws 6 SETs of 100; its
    /// text says 30:1, after B. Atikoglu et al., SIGMETRICS 2012.)
    Study,
}

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a value.
    Read,
    /// Puts another value.
    Update,
    /// Puts a value of a key that is not there.
    Insert,
    /// Reads a value, and puts another.
    ReadModifyWrite,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is done.
    pub kind: Kind,
    /// With which key, from 0 on.
    pub key: u64,
}

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All alike.
    Uniform,
    /// By Zipf's law, the popular ones apart from each other.
    Zipf,
    /// By Zipf's law, the newest most often.
    Latest,
}

impl Mix {
    /// All.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::F, Self::Study];

    /// Its name: `a` to `f`, and `study`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::F => "f",
            Self::Study => "study",
        }
    }

    /// That of a name.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mix| mix.word() == word)
    }

    /// What is done beside reads, and how large its share is.
    #[must_use]
    pub const fn changes(self) -> (Kind, f64) {
        match self {
            Self::A => (Kind::Update, 0.5),
            Self::B => (Kind::Update, 0.05),
            Self::C => (Kind::Update, 0.0),
            Self::D => (Kind::Insert, 0.05),
            Self::F => (Kind::ReadModifyWrite, 0.5),
            Self::Study => (Kind::Update, 1.0 / 31.0),
        }
    }

    /// How keys are chosen.
    #[must_use]
    pub const fn choice(self) -> Choice {
        match self {
            Self::A | Self::B | Self::C | Self::F => Choice::Zipf,
            Self::D => Choice::Latest,
            Self::Study => Choice::Uniform,
        }
    }

    /// Bytes of a key at least; its digits have zeros in front. YCSB pads nothing, and its longest
    /// key has 23 bytes; the study's have 64.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        if matches!(self, Self::Study) { 64 } else { 0 }
    }

    /// Bytes of a value. YCSB's records are ten fields of 100 bytes, of which reads take all, and
    /// updates put all here (YCSB: one); the study's values have 256.
    #[must_use]
    pub const fn value_bytes(self) -> usize {
        if matches!(self, Self::Study) { 256 } else { 1_000 }
    }
}

/// A mix, and the keys that there are. Clients draw from it.
#[derive(Debug)]
pub struct Workload {
    mix: Mix,
    keys: Arc<Sequence>,
    chooser: Chooser,
    seed: u64,
}

#[derive(Clone, Debug)]
enum Chooser {
    Uniform,
    Zipf(Scrambled),
    Latest(Zipf),
}

impl Workload {
    /// With `records` keys that are there before, at least one.
    #[must_use]
    pub fn new(mix: Mix, records: u64, seed: u64) -> Self {
        let records = records.max(1);
        let chooser = match mix.choice() {
            Choice::Uniform => Chooser::Uniform,
            Choice::Zipf => Chooser::Zipf(Scrambled::new(records)),
            Choice::Latest => Chooser::Latest(Zipf::new(records, THETA)),
        };
        Self { mix, keys: Arc::new(Sequence::new(records)), chooser, seed }
    }

    /// A client's draws. Those of one number are always the same, but for the keys that others have
    /// inserted meanwhile.
    #[must_use]
    pub fn client(&self, number: u64) -> Client {
        let prng = Prng::new(self.seed ^ scramble(number));
        let (keys, chooser) = (Arc::clone(&self.keys), self.chooser.clone());
        Client { mix: self.mix, keys, chooser, prng }
    }
}

/// The draws of one client.
#[derive(Debug)]
pub struct Client {
    mix: Mix,
    keys: Arc<Sequence>,
    chooser: Chooser,
    prng: Prng,
}

impl Client {
    /// What it does next. Of an insert [`Client::inserted`] is told when it is done.
    pub fn next_task(&mut self) -> Task {
        let (change, share) = self.mix.changes();
        let kind = if self.prng.chance(share) { change } else { Kind::Read };
        let key = if kind == Kind::Insert { self.keys.take() } else { self.choose() };
        Task { kind, key }
    }

    /// The key of an insert is there now, and others may read it.
    pub fn inserted(&self, key: u64) {
        self.keys.inserted(key);
    }

    /// Random bytes of a value.
    pub fn value(&mut self, value: &mut Vec<u8>) {
        value.resize(self.mix.value_bytes(), 0);
        self.prng.fill(value);
    }

    fn choose(&mut self) -> u64 {
        match &mut self.chooser {
            Chooser::Uniform => self.prng.below(self.keys.there()),
            Chooser::Zipf(keys) => keys.draw(&mut self.prng),
            Chooser::Latest(ages) => {
                let there = self.keys.there();
                ages.grow(there);
                there - 1 - ages.draw(&mut self.prng)
            }
        }
    }
}

/// Writes the name of a key, as YCSB makes it: `user` and its scrambled number.
pub fn key_name(mix: Mix, key: u64, name: &mut String) {
    let digits = mix.key_bytes().saturating_sub("user".len());
    name.clear();
    // Writing into a string does not fail.
    let _ = write!(name, "user{:0digits$}", scramble(key));
}

#[cfg(test)]
mod tests;
