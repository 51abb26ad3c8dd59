//! What one client asks, one operation after the other, and what it makes of the answers.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use towpath_kv::When;
use towpath_kv::client::{Client, ClientError, ClientStats, Told, Transport};
use towpath_kv::wire::{Ask, Failure, WireError};
use towpath_kv::workload::{Client as Draws, Kind, Mix, Task as Drawn, key_name};

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

/// What a client has asked, and how many reads needed no request.
pub(super) type Asked = (ClientStats, u64);

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

/// One client's operations.
pub(super) struct Task {
    draws: Draws,
    load: Load,
    /// Its own, and the key of the number that it counts up.
    number: u64,
    /// Operations that it is to begin.
    left: u64,
    /// The one that is under way.
    now: Option<Operation>,
    done: u64,
    counted: Counted,
    /// What its number is, and by how much more it may be: what nobody answered may be done.
    sum: i64,
    in_doubt: i64,
    wrong: u64,
    name: String,
    value: Vec<u8>,
}

struct Operation {
    begin: Instant,
    step: Step,
}

/// What is asked now.
#[derive(Clone, Copy)]
enum Step {
    Count,
    Read(Drawn),
    Write(Drawn),
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
    /// The task of a client by its number, which has so many operations to do.
    pub(super) fn new(draws: Draws, load: Load, (number, share): (u64, u64)) -> Self {
        let (counted, name, value, now) = Default::default();
        let (done, sum, in_doubt, wrong, left) = (0, 0, 0, 0, share);
        Self { draws, load, number, left, now, done, counted, sum, in_doubt, wrong, name, value }
    }

    /// Begins the next operation; false where all are done.
    pub(super) fn begin(&mut self, begin: Instant) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let step = match self.load {
            Load::Count => {
                key_name(Mix::Study, self.number, &mut self.name);
                Step::Count
            }
            Load::Mix(mix) => {
                let drawn = self.draws.next_task();
                key_name(mix, drawn.key, &mut self.name);
                match drawn.kind {
                    Kind::Read | Kind::ReadModifyWrite => Step::Read(drawn),
                    Kind::Update | Kind::Insert => self.write(drawn),
                }
            }
        };
        self.now = Some(Operation { begin, step });
        true
    }

    fn write(&mut self, drawn: Drawn) -> Step {
        self.draws.value(&mut self.value);
        mark(&mut self.value, drawn.key);
        Step::Write(drawn)
    }

    /// What the operation that is under way asks now; none where none is.
    pub(super) fn ask(&self) -> Option<Ask<'_>> {
        let key = self.name.as_bytes();
        Some(match self.now.as_ref()?.step {
            Step::Count => Ask::Incr { key, by: 1 },
            Step::Read(_) => Ask::Get { key },
            Step::Write(_) => {
                Ask::Set { key, value: &self.value, when: When::Always, expire_ms: 0 }
            }
        })
    }

    /// Takes the answer to that; whether the operation has ended with it. What it took is put down
    /// where it ended well.
    pub(super) fn answered(
        &mut self,
        told: Result<Told, ClientError>,
        end: Instant,
        took: &mut Histogram<u64>,
    ) -> bool {
        let Some(Operation { begin, step }) = self.now.take() else { return true };
        match self.goes_on(step, told) {
            Ok(Some(step)) => {
                self.now = Some(Operation { begin, step });
                return false;
            }
            Ok(None) => {
                self.done += 1;
                // The bounds are those of the longest timeout.
                took.saturating_record((end - begin).as_nanos() as u64);
            }
            Err(ClientError::Refused(_)) => self.counted.refused += 1,
            Err(_) => {
                self.counted.unknown += 1;
                self.in_doubt += 1;
            }
        }
        true
    }

    /// What is asked next of the same operation.
    fn goes_on(
        &mut self,
        step: Step,
        told: Result<Told, ClientError>,
    ) -> Result<Option<Step>, ClientError> {
        match step {
            Step::Count => {
                let Told::Sum(sum) = told? else {
                    return Err(WireError::Unexpected("sum").into());
                };
                // With this one.
                self.sum += 1;
                self.wrong += self.off(sum);
                (self.sum, self.in_doubt) = (sum, 0);
            }
            Step::Read(drawn) => {
                let mark = match told {
                    Ok(Told::Value(value)) => value.first_chunk::<MARK_BYTES>().copied(),
                    Ok(_) | Err(ClientError::Refused(Failure::NoKey)) => None,
                    Err(error) => return Err(error),
                };
                self.counted.mixed_up += u64::from(mark != Some(drawn.key.to_le_bytes()));
                if drawn.kind == Kind::ReadModifyWrite {
                    return Ok(Some(self.write(drawn)));
                }
            }
            Step::Write(drawn) => {
                told?;
                if drawn.kind == Kind::Insert {
                    self.draws.inserted(drawn.key);
                }
            }
        }
        Ok(None)
    }

    /// The number of its client, and of the key that it counts up.
    pub(super) fn number(&self) -> u64 {
        self.number
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

    /// Operations that ended well.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// With what its client has asked.
    pub(super) fn counted(&self, (stats, read_alone): Asked) -> Counted {
        let ClientStats { repeated, stray, renewed, .. } = stats;
        Counted { repeated, stray, renewed, read_alone, ..self.counted }
    }
}
