//! Tests of the core on a simulated medium.

mod check;
mod classes;
mod clear;
mod crash;
mod driver;
mod dump;
mod early;
mod faults;
mod files;
mod model;
mod recovery;
mod resident;
mod room;
mod scale;
mod steps;
mod terms;

use std::time::Duration;

use towpath_base::Prng;
use towpath_disk::DurableWrites;
use towpath_disk::sim::Medium;
use towpath_memory::{Buf, Pool};
use towpath_transport::Class;

use model::{Change, Fate, Model, fate, made, on_chain, only_if, refused};

use super::{Client, CoreConfig, StoreCore};
use crate::store::error::{OpenError, ReadError, Refused};
use crate::store::request::{Clear, Completion, NewChunk, Reply, Request, Terms};
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
    /// A change is made whatever chain version the chunk has.
    AnyChain,
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
    log_pages_max: 512,
    chunks_max: 40,
    store_id: 7,
    log_nonce: 0x1234_5678_9abc_def0,
    version_seed: 0x7654_3210_0fed_cba9,
    is_sparse: false,
};

pub(super) fn medium(seed: u64) -> Medium {
    Medium::new(seed, PAGES)
}

/// The same, so large that the log may grow.
pub(super) fn large_medium(seed: u64) -> Medium {
    with_durable_writes(Medium::new(seed, 50 * PAGES), seed)
}

/// The same, with durable writes of each kind, and with none.
pub(super) fn any_medium(seed: u64) -> Medium {
    with_durable_writes(medium(seed), seed)
}

fn with_durable_writes(medium: Medium, seed: u64) -> Medium {
    medium.set_durable_writes(match seed % 3 {
        0 => DurableWrites::None,
        1 => DurableWrites::Own,
        _ => DurableWrites::AndAllBefore,
    });
    medium
}

/// Brings all slices from the log to their pages.
pub(super) fn bring_home(core: &mut Core) {
    core.rest();
    settle(core);
    assert!(core.away.is_empty(), "nothing keeps them");
}

pub(super) fn open(medium: &Medium) -> Result<Core, OpenError> {
    open_as(medium, &CONFIG)
}

pub(super) fn open_as(medium: &Medium, config: &CoreConfig) -> Result<Core, OpenError> {
    let disk = medium.open(32).expect("nobody has it open and the power is on");
    let mut core = StoreCore::open(Box::new(disk), config)?;
    // What deletes and clears leave takes many turns, in which the tests do something else.
    core.map.has_small_steps = true;
    Ok(core)
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
    Request::Create { chunk, limit_bytes: None, kind: NewChunk::default(), stamp: 0 }
}

pub(super) fn write_request(chunk: ChunkId, offset: u64, bytes: &[u8]) -> Request<Vec<u8>, Buf> {
    let crcs = writer_crcs(chunk, offset, bytes);
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    let data = vec![head.to_vec(), tail.to_vec()];
    let terms = Terms::default();
    Request::Write { chunk, offset, data, crcs, staged: None, verified: false, terms }
}

/// Asks for a change; some of the slices of a write go ahead of it, if the dice say so.
fn submit(core: &mut Core, (class, token): (Class, u64), change: &Change, prng: &mut Prng) {
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
    let Reply::Change(made) = ask(core, create_request(chunk)) else { panic!("another answer") };
    made.expect("the chunk is new");
}

pub(super) fn delete(core: &mut Core, chunk: ChunkId) {
    let Reply::Change(done) = ask(core, Request::Delete { chunk, version: None }) else {
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
