//! A store of values by key over a channel, and what its clients know to be there.

use towpath_base::Prng;

/// Keys of each client.
pub const KEYS: u64 = 64;

const HEADER_BYTES: usize = 32;
const WRITE: u64 = 1;
const READ: u64 = 2;

/// What a client asks for: operations are numbered from 0, and a value follows from its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub number: u64,
    pub key: u64,
    /// Of a write: its value.
    pub value: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub seed: u64,
    pub len: usize,
}

impl Value {
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        Prng::new(self.seed).fill(&mut bytes);
        bytes
    }
}

fn header(words: [u64; 4]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * index..][..8].try_into().expect("eight bytes"))
}

impl Request {
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
#[derive(Default)]
pub struct Shelf {
    values: std::collections::BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Shelf {
    /// Obeys a request and answers. A request that comes twice, or not in its turn, is a failure.
    pub fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let (kind, number, key) = (word(request, 0), word(request, 1), word(request, 2));
        assert_eq!(number, self.next, "each operation once, in order");
        self.next += 1;
        let mut reply = header([kind, number, key, 0]);
        match kind {
            WRITE => drop(self.values.insert(key, request[HEADER_BYTES..].to_vec())),
            READ => reply.extend(self.values.get(&key).map_or(&[][..], |bytes| bytes)),
            other => panic!("no operation has the code {other}"),
        }
        reply
    }
}

/// What a client has asked, and what must be there.
pub struct Asker {
    prng: Prng,
    next: u64,
    /// What was written last under each key, before which operations are answered in order.
    written: Vec<Option<Value>>,
    /// What each read under way must find.
    pending: std::collections::VecDeque<(Request, Option<Value>)>,
    pub answered: u64,
}

impl Asker {
    pub fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            next: 0,
            written: vec![None; KEYS as usize],
            pending: std::collections::VecDeque::new(),
            answered: 0,
        }
    }

    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    pub fn asked(&self) -> u64 {
        self.next
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
    pub fn ask(&mut self, bytes_max: u64) -> Request {
        let key = self.prng.below(KEYS);
        let value = self.prng.chance(0.5).then(|| Value {
            seed: self.prng.next_u64(),
            len: self.prng.between(1, bytes_max) as usize,
        });
        self.push(key, value)
    }

    /// Reads a key, to see at the end that all is there.
    pub fn read(&mut self, key: u64) -> Request {
        self.push(key, None)
    }

    /// Takes in an answer: replies come in the order of requests, each once.
    pub fn take_in(&mut self, reply: &[u8]) {
        let (request, expected) = self.pending.pop_front().expect("an answer to a question");
        assert_eq!(word(reply, 1), request.number, "each answer once, in order");
        if request.value.is_none() {
            let expected = expected.map_or(Vec::new(), Value::bytes);
            assert!(reply[HEADER_BYTES..] == expected[..], "what was acknowledged is there");
        }
        self.answered += 1;
    }
}
