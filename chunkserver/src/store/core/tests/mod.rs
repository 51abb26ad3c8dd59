//! Tests of the core on a simulated medium, and the model that they compare it with.

mod check;
mod classes;
mod clear;
mod crash;
mod driver;
mod dump;
mod early;
mod faults;
mod files;
mod resident;
mod room;
mod scale;
mod terms;

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_base::Prng;
use towpath_disk::sim::Medium;
use towpath_memory::{Buf, Pool};
use towpath_transport::Class;

use super::{Client, CoreConfig, StoreCore};
use crate::store::error::{OpenError, ReadError, Refused};
use crate::store::request::{Clear, Completion, Reply, Request, Terms};
use crate::store::results::ReadDone;
use crate::store::results::{ChunkStat, Ticket};
use crate::store::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc, writer_crcs};

/// Mistakes that the tests make on purpose, to see that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// A group is taken as durable without a flush.
    SkipFlush,
    /// A checkpoint does not flush its map.
    SkipMapFlush,
    /// Pages of overwritten slices are free before the commit.
    ReuseTooEarly,
    /// A change is made whatever version the chunk has.
    AnyVersion,
    /// What a truncate cuts off in the middle of a slice stays there.
    KeepTail,
    /// A change joins a group before one of its chunk that came first.
    Overtake,
    /// A group takes changes of lower classes whose data is not on the disk.
    JoinEarly,
}

pub(super) type Core = StoreCore<Vec<u8>>;

/// Pages of a disk that is small enough to fill, and whose log wraps within a test.
pub(super) const PAGES: u64 = 400;

pub(super) const CONFIG: CoreConfig = CoreConfig {
    log_pages: 128,
    chunks_max: 40,
    store_id: 7,
    log_nonce: 0x1234_5678_9abc_def0,
    version_seed: 0x7654_3210_0fed_cba9,
    is_sparse: false,
};

pub(super) fn medium(seed: u64) -> Medium {
    Medium::new(seed, PAGES)
}

pub(super) fn open(medium: &Medium) -> Result<Core, OpenError> {
    open_as(medium, &CONFIG)
}

pub(super) fn open_as(medium: &Medium, config: &CoreConfig) -> Result<Core, OpenError> {
    let disk = medium.open(32).expect("nobody has it open and the power is on");
    StoreCore::open(Box::new(disk), config)
}

/// Lets the store do all that it can.
pub(super) fn settle(core: &mut Core) {
    for _ in 0..10_000 {
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
        if core.is_idle() {
            return;
        }
    }
    panic!("the store comes to no end");
}

/// Asks, and waits for the answer.
pub(super) fn ask(core: &mut Core, request: Request<Vec<u8>, Buf>) -> Reply<Vec<u8>, Buf> {
    let token = u64::MAX;
    core.submit(Client { asker: 9, token }, request);
    for _ in 0..10_000 {
        let found = core.take_answers().find(|(_, answer)| answer.token == token);
        if let Some((_, Completion { reply, .. })) = found {
            return reply;
        }
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
    }
    panic!("no answer comes");
}

pub(super) fn buf(byte_len: usize) -> Buf {
    let pool = Pool::with_count(byte_len.next_multiple_of(SLICE_BYTES), 1).expect("memory");
    pool.take().expect("a fresh pool")
}

/// Reads, and checks that each checksum is the one that the data and its place have.
pub(super) fn read(
    core: &mut Core,
    chunk: ChunkId,
    offset: u64,
    byte_len: usize,
) -> Result<Vec<u8>, ReadError> {
    let buf = buf(byte_len);
    let request = Request::Read { chunk, offset, byte_len, buf, crcs: vec![1, 2, 3] };
    let Reply::Read { result, buf, crcs } = ask(core, request) else { panic!("another answer") };
    let ReadDone { chunk_bytes, .. } = result?;
    assert_eq!(buf.len(), byte_len);
    let span = Span::new(offset, byte_len as u64);
    assert_eq!(crcs.len() as u64, span.count());
    let mut rest = &buf[..];
    for (slice, crc) in (span.first()..).zip(crcs) {
        let (from, len) = span.part(slice);
        let (part, after) = rest.split_at(len);
        rest = after;
        let stored = len == SLICE_BYTES || (from == 0 && span.end() == chunk_bytes);
        let expected = match stored {
            true => slice_crc(chunk, slice, part),
            false => fragment_crc(chunk, slice, from as u32, part),
        };
        assert_eq!(crc, expected, "slice {slice} of chunk {chunk}");
    }
    Ok(buf.to_vec())
}

pub(super) fn create_request(chunk: ChunkId) -> Request<Vec<u8>, Buf> {
    Request::Create { chunk, limit_bytes: None, unfinished: false, resident: false, stamp: 0 }
}

pub(super) fn write_request(chunk: ChunkId, offset: u64, bytes: &[u8]) -> Request<Vec<u8>, Buf> {
    let crcs = writer_crcs(chunk, offset, bytes);
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    let data = vec![head.to_vec(), tail.to_vec()];
    let terms = Terms::default();
    Request::Write { chunk, offset, data, crcs, staged: None, verified: false, terms }
}

/// Asks for a change; some of the slices of a write go ahead of it, if the dice say so.
pub(super) fn submit(
    core: &mut Core,
    (class, token): (Class, u64),
    change: &Change,
    prng: &mut Prng,
) {
    let to = Client { asker: 0, token };
    let (Change::Write(chunk, offset, bytes), true) = (change, prng.chance(0.4)) else {
        return core.submit_as(class, to, change.request());
    };
    let (chunk, stage, span) = (*chunk, token, Span::new(*offset, bytes.len() as u64));
    let Request::Write { crcs, terms, .. } = change.request() else { return };
    let (mut data, mut rest, mut staged) = (Vec::new(), &bytes[..], None);
    for slice in span.first()..span.first() + span.count() {
        let (part, after) = rest.split_at(span.part(slice).1);
        rest = after;
        let is_early = span.covers(slice) && prng.chance(0.7) && {
            let data = vec![part.to_vec()];
            let to = Client { asker: 0, token: u64::MAX - 1 };
            let first_slice = slice;
            let request = Request::Stage { stage, owner: 0, chunk, first_slice, data };
            core.submit_as(class, to, request);
            match core.answers.pop() {
                Some((_, Completion { reply: Reply::Stage { is_staged, .. }, .. })) => is_staged,
                other => panic!("{other:?}"),
            }
        };
        match is_early {
            true => staged = Some(stage),
            false => data.push(part.to_vec()),
        }
        if prng.chance(0.1) {
            core.turn(None).expect("the simulated disk always speaks");
        }
    }
    if prng.chance(0.1) {
        // Its client is gone: it is as if it had never been.
        core.submit(Client { asker: 0, token: u64::MAX - 1 }, Request::Unstage { stage, disk: 0 });
        core.submit_as(class, to, change.request());
    } else {
        let offset = *offset;
        core.submit(
            to,
            Request::Write { chunk, offset, data, crcs, staged, verified: true, terms },
        );
    }
}

pub(super) fn create(core: &mut Core, chunk: ChunkId) {
    let Reply::Create(made) = ask(core, create_request(chunk)) else { panic!("another answer") };
    made.expect("the chunk is new");
}

pub(super) fn delete(core: &mut Core, chunk: ChunkId) {
    let Reply::Delete(done) = ask(core, Request::Delete { chunk, version: None }) else {
        panic!("another answer")
    };
    done.expect("deletes always go");
}

pub(super) fn write(core: &mut Core, chunk: ChunkId, offset: u64, bytes: &[u8]) -> Ticket {
    let reply = ask(core, write_request(chunk, offset, bytes));
    let Reply::Write { result, .. } = reply else { panic!("another answer") };
    result.expect("the write is sound")
}

pub(super) fn stats_of(core: &Core) -> Vec<ChunkStat> {
    core.list(None, usize::MAX)
}

/// Forces a checkpoint through.
pub(super) fn checkpoint(core: &mut Core) {
    let before = core.stats().checkpoints;
    core.request_checkpoint();
    for _ in 0..10_000 {
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
        if core.stats().checkpoints > before {
            return;
        }
    }
    panic!("no checkpoint comes to an end");
}

/// What the store should hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) chunks: BTreeMap<ChunkId, Vec<u8>>,
    /// Of the chunks whose last change is known.
    pub(super) versions: BTreeMap<ChunkId, u64>,
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.chunks == other.chunks
    }
}

/// One change, as tests make them up.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create(ChunkId),
    Write(ChunkId, u64, Vec<u8>),
    Clear(ChunkId, Clear),
    Delete(ChunkId),
    /// A change that is made where the chunk has this version.
    OnlyIf(u64, Box<Self>),
}

impl Change {
    /// A change of one of four chunks, which may or may not make sense just now.
    pub(super) fn random(prng: &mut Prng) -> Self {
        let chunk = ChunkId(u128::from(prng.below(4)) << 64 | 7);
        let (offset, len) = (prng.below(40 << 10), 1 + prng.below(20 << 10) as usize);
        let (offset, len) = match prng.chance(0.6) {
            true => (offset & !4095, len.next_multiple_of(SLICE_BYTES)),
            false => (offset, len),
        };
        let byte_len = len as u64;
        match prng.below(16) {
            0 | 1 => Self::Create(chunk),
            2 => Self::Delete(chunk),
            3 => Self::Clear(chunk, Clear::Trim { offset, byte_len }),
            4 => Self::Clear(chunk, Clear::Zero { offset, byte_len }),
            5 | 6 => Self::Clear(chunk, Clear::Truncate { byte_len: offset + prng.below(2) }),
            _ => {
                let mut bytes = vec![0; len];
                prng.fill(&mut bytes);
                Self::Write(chunk, offset, bytes)
            }
        }
    }

    pub(super) fn chunk(&self) -> ChunkId {
        match self {
            Self::Create(chunk)
            | Self::Write(chunk, ..)
            | Self::Clear(chunk, _)
            | Self::Delete(chunk) => *chunk,
            Self::OnlyIf(_, change) => change.chunk(),
        }
    }

    pub(super) fn request(&self) -> Request<Vec<u8>, Buf> {
        let none = Terms::default();
        match self {
            Self::Create(chunk) => create_request(*chunk),
            Self::Write(chunk, offset, bytes) => write_request(*chunk, *offset, bytes),
            &Self::Clear(chunk, clear) => Request::Clear { chunk, clear, terms: none },
            &Self::Delete(chunk) => Request::Delete { chunk, version: None },
            Self::OnlyIf(version, change) => only_if(*version, change.request()),
        }
    }

    /// What it makes of a chunk's content, where that has the version that it is meant for.
    pub(super) fn apply(&self, content: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let content = match self {
            Self::Create(_) => return Some(Vec::new()),
            Self::Delete(_) => return None,
            Self::OnlyIf(_, change) => return change.apply(content),
            Self::Write(..) | Self::Clear(..) => content?,
        };
        let longer = |end: u64| {
            let mut content = content.clone();
            content.resize(content.len().max(end as usize), 0);
            content
        };
        Some(match self {
            Self::Write(_, offset, bytes) => {
                let end = *offset + bytes.len() as u64;
                let mut content = longer(end);
                content[*offset as usize..end as usize].copy_from_slice(bytes);
                content
            }
            &Self::Clear(_, Clear::Zero { offset, byte_len }) => {
                let mut content = longer(offset + byte_len);
                content[offset as usize..(offset + byte_len) as usize].fill(0);
                content
            }
            &Self::Clear(_, Clear::Trim { offset, byte_len }) => {
                let (mut content, end) = (longer(0), (offset + byte_len) as usize);
                for (slice, bytes) in content.chunks_mut(SLICE_BYTES).enumerate() {
                    let from = slice * SLICE_BYTES;
                    if from >= offset as usize && from + bytes.len() <= end {
                        bytes.fill(0);
                    }
                }
                content
            }
            &Self::Clear(_, Clear::Truncate { byte_len }) => {
                let mut content = longer(0);
                content.resize(byte_len as usize, 0);
                content
            }
            _ => content,
        })
    }

    /// The version that it is meant for.
    pub(super) fn wants(&self) -> Option<u64> {
        match self {
            Self::OnlyIf(version, _) => Some(*version),
            _ => None,
        }
    }
}

/// A request that is done only where the chunk has a version.
pub(super) fn only_if(expected: u64, mut request: Request<Vec<u8>, Buf>) -> Request<Vec<u8>, Buf> {
    match &mut request {
        Request::Write { terms, .. }
        | Request::Clear { terms, .. }
        | Request::Finish { terms, .. } => terms.version = Some(expected),
        Request::Delete { version, .. } => *version = Some(expected),
        _ => {}
    }
    request
}

impl Model {
    /// A change that somebody makes up who knows the versions, and is sometimes wrong.
    pub(super) fn random(&self, prng: &mut Prng) -> Change {
        let change = Change::random(prng);
        let is_right = prng.chance(0.8);
        match self.versions.get(&change.chunk()) {
            Some(version) if !matches!(change, Change::Create(_)) && prng.chance(0.3) => {
                Change::OnlyIf(if is_right { *version } else { version - 1 }, Box::new(change))
            }
            _ => change,
        }
    }

    /// Takes in that a change was made, which gave the chunk that version.
    pub(super) fn apply(&mut self, change: &Change, version: u64) {
        let chunk = change.chunk();
        let content = change.apply(self.chunks.remove(&chunk));
        self.versions.remove(&chunk);
        if let Some(content) = content {
            self.chunks.insert(chunk, content);
            self.versions.insert(chunk, version);
        }
    }

    /// Takes in the answer to a change, if that is one which may come.
    pub(super) fn take(
        &mut self,
        change: &Change,
        reply: &Reply<Vec<u8>, Buf>,
    ) -> Result<Fate, String> {
        let version = self.versions.get(&change.chunk()).copied();
        let fate = fate(reply);
        match (change.wants(), made(reply), refused(reply)) {
            (Some(wanted), Some(_), _) if version != Some(wanted) => {
                return Err(format!("made for {wanted}, and there was {version:?}"));
            }
            (_, _, Some(Refused::OtherVersion { version: found })) if version != Some(found) => {
                return Err(format!("refused for {found}, and there is {version:?}"));
            }
            (wanted, _, Some(Refused::OtherVersion { version: found }))
                if wanted == Some(found) =>
            {
                return Err(format!("refused for {found}, which is the one that was wanted"));
            }
            (_, Some(made), _) if version.is_some_and(|before| before >= made) => {
                return Err(format!("version {made} after {version:?}"));
            }
            (_, Some(made), _) => self.apply(change, made),
            _ => {}
        }
        Ok(fate)
    }

    /// Everything in the store.
    pub(super) fn of(core: &mut Core) -> Result<Self, ReadError> {
        let (mut chunks, mut versions) = (BTreeMap::new(), BTreeMap::new());
        for stat in stats_of(core) {
            let content = match stat.byte_len {
                0 => Vec::new(),
                len => read(core, stat.chunk, 0, len as usize)?,
            };
            chunks.insert(stat.chunk, content);
            versions.insert(stat.chunk, stat.version);
        }
        Ok(Self { chunks, versions })
    }
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    NotDone,
    Unknown,
}

/// The version that a change has made.
pub(super) fn made(reply: &Reply<Vec<u8>, Buf>) -> Option<u64> {
    match reply {
        Reply::Create(Ok(ticket))
        | Reply::Delete(Ok(ticket))
        | Reply::Finish(Ok(ticket))
        | Reply::Clear(Ok(ticket))
        | Reply::Write { result: Ok(ticket), .. } => Some(ticket.0),
        _ => None,
    }
}

/// Why a change was refused that any change may be refused for.
pub(super) fn refused(reply: &Reply<Vec<u8>, Buf>) -> Option<Refused> {
    use crate::store::error::{CreateError, DeleteError, FinishError, WriteError};
    match reply {
        Reply::Create(Err(CreateError::Refused(refused)))
        | Reply::Delete(Err(DeleteError::Refused(refused)))
        | Reply::Finish(Err(FinishError::Refused(refused)))
        | Reply::Clear(Err(WriteError::Refused(refused)))
        | Reply::Write { result: Err(WriteError::Refused(refused)), .. } => Some(*refused),
        _ => None,
    }
}

pub(super) fn fate(reply: &Reply<Vec<u8>, Buf>) -> Fate {
    match (made(reply), refused(reply)) {
        (Some(_), _) => Fate::Done,
        (None, Some(Refused::Undecided(_))) => Fate::Unknown,
        _ => Fate::NotDone,
    }
}
