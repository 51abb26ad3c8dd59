//! Clients write and read the same slices while their server is killed again and again: what they
//! saw of each slice could have happened one after the other.

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::register::{Deed, Op, check};
use common::{LONG, Process, config, inline, pattern};
use towpath_base::Prng;
use towpath_fastpath::{ChunkId, Client, ClientConfig, ErrorKind, NewChunk, SLICE_BYTES};
use towpath_rpc::Fate;

/// How often the server is killed, for long runs.
const KILLS_VARIABLE: &str = "TOWPATH_KILLS";
const KILLS: u64 = 8;

const CHUNK: ChunkId = ChunkId(0x11);
const CLIENTS: u64 = 5;
const SLICES: u64 = 6;

/// A slice that tells which value it is, all over.
fn slice_of(value: u64) -> Vec<u8> {
    let mut bytes = pattern(SLICE_BYTES, value);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn value_of(slice: &[u8]) -> u64 {
    let value = u64::from_le_bytes(slice[..8].try_into().expect("eight bytes"));
    assert!(slice == slice_of(value), "a slice is torn");
    value
}

fn connect(addr: SocketAddr) -> Client {
    Client::connect(addr, ClientConfig::new().timeout(LONG)).expect("a server that listens")
}

/// What the clients have in common.
struct Shared {
    began: Instant,
    done: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    /// Nanoseconds, above 0.
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }
}

/// One client's operations, each with its slice.
fn work(client: &Client, number: u64, seed: u64, shared: &Shared) -> Vec<(u64, Op)> {
    let (mut prng, mut ops, mut count) = (Prng::new(seed ^ number), Vec::new(), 0);
    while !shared.is_over.load(Relaxed) {
        let slice = prng.below(SLICES);
        let offset = slice * SLICE_BYTES as u64;
        let begin = shared.now();
        let op = if prng.chance(0.5) {
            count += 1;
            let value = number << 32 | count;
            let end = match client.write(CHUNK, offset, slice_of(value)).wait() {
                Ok(()) => Some(shared.now()),
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::PeerGone { fate: Fate::Unknown }, "{error}");
                    None
                }
            };
            Op { deed: Deed::Write, value, begin, end }
        } else {
            let read = client.read(CHUNK, offset, SLICE_BYTES).wait().expect("reads are repeated");
            Op { deed: Deed::Read, value: value_of(&read), begin, end: Some(shared.now()) }
        };
        ops.push((slice, op));
        shared.done.fetch_add(1, Relaxed);
    }
    ops
}

#[test]
fn what_clients_see_of_each_slice_of_a_server_that_is_killed_is_linearizable() {
    let kills = std::env::var(KILLS_VARIABLE).ok().and_then(|kills| kills.parse().ok());
    let (kills, seed) = (kills.unwrap_or(KILLS), 17);
    println!("seed {seed}, {kills} kills ({KILLS_VARIABLE})");
    let dir = tempfile::tempdir().expect("room for a directory");
    // Whichever thread drives the disk, in turns.
    let at = |listen, life| {
        let config =
            config(&dir.path().join("store")).with(|config| config.network.listen = listen);
        if life % 2 == 0 { config } else { inline(config) }
    };
    let mut server = Process::start(&at("127.0.0.1:0".parse().expect("an address"), 0));
    let addr = server.addr;
    let client = connect(addr);
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    for slice in 0..SLICES {
        let offset = slice * SLICE_BYTES as u64;
        client.write(CHUNK, offset, slice_of(0)).wait().expect("there is room");
    }
    let (began, done, is_over) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    let shared = Shared { began, done, is_over };
    let mut ops = std::thread::scope(|scope| {
        let start = |number| {
            let (client, shared) = (connect(addr), &shared);
            scope.spawn(move || work(&client, number, seed, shared))
        };
        let clients: Vec<_> = (1..=CLIENTS).map(start).collect();
        let mut prng = Prng::new(seed);
        for life in 1..=kills {
            let until = shared.done.load(Relaxed) + prng.between(1, 400);
            while shared.done.load(Relaxed) < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.child.kill().expect("it runs");
            server.child.wait().expect("it ends");
            server = Process::start(&at(addr, life));
        }
        let until = shared.done.load(Relaxed) + 200;
        while shared.done.load(Relaxed) < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.is_over.store(true, Relaxed);
        let join = |client: std::thread::ScopedJoinHandle<'_, _>| client.join().expect("it ends");
        clients.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    let unsure = ops.iter().filter(|(_, op)| op.end.is_none()).count();
    println!("{} operations, of {unsure} nobody knows", ops.len());
    for slice in 0..SLICES {
        let begin = shared.now();
        let read = client.read(CHUNK, slice * SLICE_BYTES as u64, SLICE_BYTES).wait();
        let value = value_of(&read.expect("it is there"));
        ops.push((slice, Op { deed: Deed::Read, value, begin, end: Some(shared.now()) }));
        let of_slice = ops.iter().filter(|(of, _)| *of == slice).map(|(_, op)| *op);
        let of_slice: Vec<Op> = of_slice.collect();
        check(0, &of_slice).unwrap_or_else(|wrong| panic!("slice {slice}: {wrong}"));
    }
}

/// Whether some order of the operations explains what was read: by trying all.
fn is_explained(value: u64, left: &mut Vec<Op>) -> bool {
    // Nothing that must have been done is left.
    if left.iter().all(|op| op.end.is_none()) {
        return true;
    }
    let first_end = left.iter().filter_map(|op| op.end).min().unwrap_or(u64::MAX);
    (0..left.len()).any(|at| {
        let op = left[at];
        let may_be_next = op.begin <= first_end && (op.deed == Deed::Write || op.value == value);
        may_be_next && {
            left.swap_remove(at);
            let is_explained = is_explained(op.value, left);
            left.push(op);
            let last = left.len() - 1;
            left.swap(at, last);
            is_explained
        }
    })
}

#[test]
fn the_check_of_histories_says_what_trying_all_orders_says() {
    let (mut sound, mut unsound) = (0, 0);
    for seed in 0..20_000 {
        let mut prng = Prng::new(seed);
        // Distinct times in a random order.
        let mut times: Vec<u64> = (1..=16).collect();
        for at in (1..times.len()).rev() {
            times.swap(at, prng.below(at as u64 + 1) as usize);
        }
        let writes = prng.between(1, 4);
        let mut ops = Vec::new();
        for value in 1..=writes + prng.below(4) {
            let pair = [times.pop(), times.pop()].map(|time| time.expect("there are enough"));
            let (begin, end) = (pair[0].min(pair[1]), Some(pair[0].max(pair[1])));
            ops.push(match value <= writes {
                true => {
                    let end = end.filter(|_| prng.chance(0.8));
                    Op { deed: Deed::Write, value, begin, end }
                }
                false => Op { deed: Deed::Read, value: prng.below(writes + 1), begin, end },
            });
        }
        let expected = is_explained(0, &mut ops.clone());
        let found = check(0, &ops);
        assert_eq!(found.is_ok(), expected, "seed {seed}: {found:?} of {ops:?}");
        *(if expected { &mut sound } else { &mut unsound }) += 1;
    }
    assert!(sound > 2_000 && unsound > 2_000, "{sound} and {unsound}");
}
