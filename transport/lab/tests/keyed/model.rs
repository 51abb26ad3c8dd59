//! Operations on values by key, the values themselves, and what each answer must be.

use std::collections::{BTreeMap, VecDeque};
use towpath_base::{Nanos, Prng};
use towpath_proto::Outcome;

/// Keys of each client.
pub const KEYS: u64 = 64;

/// Bytes of a value at most: a few chunks on some paths, one on others.
pub const VALUE_BYTES_MAX: u64 = 12_000;

const WORDS: usize = 4;
const HEADER_BYTES: usize = 8 * WORDS;
const WRITE: u64 = 1;
const READ: u64 = 2;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A request was lost, came twice, or not in its turn.
    #[error("operation {got} of a client came where {due} was due")]
    Request {
        /// Which was due.
        due: u64,
        /// Which came.
        got: u64,
    },
    /// A request that no client makes.
    #[error("a request of {bytes} bytes is none")]
    Malformed {
        /// How long it is.
        bytes: usize,
    },
    /// An answer was lost, came twice, or not in its turn.
    #[error("an answer to operation {got:?} came where that to {due:?} was due")]
    Answer {
        /// Which was due, if any was.
        due: Option<u64>,
        /// Which came.
        got: Option<u64>,
    },
    /// What was acknowledged is not there.
    #[error("operation {number} did not read what was written last under key {key}")]
    Value {
        /// Which read.
        number: u64,
        /// Of which key.
        key: u64,
    },
    /// An operation was under way for longer than it may be.
    #[error("operation {number} took {took}, and may take {deadline}")]
    Late {
        /// Which.
        number: u64,
        /// How long, so far.
        took: Nanos,
        /// How long at the most.
        deadline: Nanos,
    },
    /// A message was given up.
    #[error("a message ended as {0:?}")]
    Outcome(Outcome),
    /// No buffer was free, or the endpoint took no message.
    #[error("a message could not be sent")]
    Refused,
    /// A link did not find back to the best carrier.
    #[error("a link is not on the best carrier {after} after the last fault")]
    NotBack {
        /// How long it had.
        after: Nanos,
    },
    /// A host does not come to rest at one instant of virtual time.
    #[error("a host does not come to rest")]
    Restless,
    /// A link or a channel ended, or the endpoint told of something that is none of this.
    #[error("the endpoint told of {0}")]
    Event(String),
    /// A receive buffer is neither free nor posted when nothing is under way.
    #[error("{left} receive buffers did not come home")]
    Buffers {
        /// How many.
        left: usize,
    },
    /// A link or an endpoint counted what must not be.
    #[error("counted what must not be: {0}")]
    Counted(String),
}

/// What a client asks for: operations are numbered from 0, and a value follows from its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its place among the operations of its client.
    pub number: u64,
    /// Which value.
    pub key: u64,
    /// Of a write: its value.
    pub value: Option<Value>,
}

/// A value, by what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where its bytes come from.
    pub seed: u64,
    /// How many there are.
    pub len: usize,
}

impl Value {
    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        Prng::new(self.seed).fill(&mut bytes);
        bytes
    }
}

fn header(words: [u64; WORDS]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of a header, and what is behind it.
fn split(bytes: &[u8]) -> Option<([u64; WORDS], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let (words, _) = header.as_chunks::<8>();
    Some((std::array::from_fn(|index| u64::from_le_bytes(words[index])), rest))
}

impl Request {
    /// As a message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        match self.value {
            None => header([READ, self.number, self.key, 0]),
            Some(value) => {
                let mut bytes = header([WRITE, self.number, self.key, value.seed]);
                bytes.extend(value.bytes());
                bytes
            }
        }
    }
}

/// What the server keeps for one client.
#[derive(Debug, Default)]
pub struct Shelf {
    values: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Shelf {
    /// Obeys a request, and answers.
    ///
    /// # Errors
    /// [`Broken`]: it came twice, or not in its turn, or is none.
    pub fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, Broken> {
        let malformed = Broken::Malformed { bytes: request.len() };
        let ([kind, number, key, _], value) = split(request).ok_or(malformed.clone())?;
        if number != self.next {
            return Err(Broken::Request { due: self.next, got: number });
        }
        self.next += 1;
        let mut reply = header([kind, number, key, 0]);
        match kind {
            WRITE => drop(self.values.insert(key, value.to_vec())),
            READ => reply.extend(self.values.get(&key).map_or(&[][..], |bytes| bytes)),
            _ => return Err(malformed),
        }
        Ok(reply)
    }
}

/// What a client has asked, and what must be there.
#[derive(Debug)]
pub struct Asker {
    prng: Prng,
    next: u64,
    /// What was written last under each key, before which operations are answered in order.
    written: Vec<Option<Value>>,
    /// What each read under way must find.
    pending: VecDeque<(Request, Option<Value>)>,
    answered: u64,
}

impl Asker {
    /// One whose operations come from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            next: 0,
            written: vec![None; KEYS as usize],
            pending: VecDeque::new(),
            answered: 0,
        }
    }

    /// Operations without an answer.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// The oldest of them.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.pending.front().map(|(request, _)| request.number)
    }

    /// Operations asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.next
    }

    /// Operations answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered
    }

    fn push(&mut self, key: u64, value: Option<Value>) -> Request {
        let request = Request { number: self.next, key, value };
        self.next += 1;
        self.pending.push_back((request, self.written[key as usize]));
        if value.is_some() {
            self.written[key as usize] = value;
        }
        request
    }

    /// The next operation: a write or a read.
    pub fn ask(&mut self) -> Request {
        let key = self.prng.below(KEYS);
        let value = self.prng.chance(0.5).then(|| Value {
            seed: self.prng.next_u64(),
            len: self.prng.between(1, VALUE_BYTES_MAX) as usize,
        });
        self.push(key, value)
    }

    /// Reads a key below [`KEYS`], to see at the end that all is there.
    pub fn read(&mut self, key: u64) -> Request {
        self.push(key, None)
    }

    /// Takes in an answer: they come in the order of requests, each once.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn take_in(&mut self, reply: &[u8]) -> Result<(), Broken> {
        let found = split(reply);
        let got = found.map(|(words, _)| words[1]);
        let due = self.oldest();
        let (Some((request, expected)), Some((_, value))) =
            (self.pending.pop_front().filter(|_| due == got), found)
        else {
            return Err(Broken::Answer { due, got });
        };
        let expected = expected.filter(|_| request.value.is_none());
        if value != expected.map_or(Vec::new(), Value::bytes) {
            return Err(Broken::Value { number: request.number, key: request.key });
        }
        self.answered += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_twice_or_is_left_out_is_seen_and_so_is_a_lost_write() {
        let (mut asker, mut shelf) = (Asker::new(1), Shelf::default());
        let mut lossy = Shelf::default();
        for _ in 0..200 {
            let request = asker.ask();
            let reply = shelf.answer(&request.emit()).expect("in its turn");
            let again = Broken::Request { due: request.number + 1, got: request.number };
            assert_eq!(shelf.answer(&request.emit()), Err(again));
            asker.take_in(&reply).expect("what was written is there");
            let (asked, none) = (Some(request.number), None);
            assert_eq!(asker.take_in(&reply), Err(Broken::Answer { due: none, got: asked }));
        }
        let written = asker.written.iter().position(Option::is_some).expect("half are writes");
        lossy.next = asker.asked();
        let request = asker.read(written as u64);
        let reply = lossy.answer(&request.emit()).expect("in its turn");
        let broken = Broken::Value { number: request.number, key: written as u64 };
        assert_eq!(asker.take_in(&reply), Err(broken));
    }
}
