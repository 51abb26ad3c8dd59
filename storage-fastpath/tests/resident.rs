//! Reads of resident chunks by READs: whole, torn, moved, changed and absent slots, and servers
//! that say anything.

mod common;

use common::{Direct, Resident, Server, pattern};
use std::sync::atomic::Ordering;
use towpath_base::Prng;
use towpath_fastpath::control::SlotRun;
use towpath_fastpath::limits::READ_TRIES_MAX;
use towpath_fastpath::resident::{MARK_AT, SLOT_BYTES, TRAILER_BYTES, Trailer};
use towpath_fastpath::slice::slice_crc;
use towpath_fastpath::{ChunkId, ErrorKind, Output, ReadData, ResidentStats, SLICE_BYTES};
use towpath_rpc::Fate;
use towpath_transport::{Nanos, SharedMemory};

const CHUNK: ChunkId = ChunkId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
const SLICES: usize = 40;
/// The last slice is short.
const BYTES: usize = (SLICES - 1) * SLICE_BYTES + 777;

fn run(first_slice: u64, slot: u32, count: u32) -> SlotRun {
    SlotRun { first_slice, slot, count }
}

/// A server whose chunk also lies in memory that the test rewrites.
struct Rig {
    server: Server,
    client: Direct,
    memory: SharedMemory,
    bytes: Vec<u8>,
    runs: Vec<SlotRun>,
}

impl Rig {
    fn start() -> Self {
        let server = Server::start();
        let mut client = Direct::connect(server.addr);
        client.create(CHUNK).expect("a new chunk");
        let bytes = pattern(BYTES, 1);
        client.write(CHUNK, 0, &bytes).expect("a write");
        let memory = SharedMemory::new(2 * SLICES * SLOT_BYTES).expect("memory");
        // Not in the order of the slices, and with a run of one.
        let runs = vec![run(0, 30, 7), run(7, 3, 1), run(8, 40, 32)];
        let rig = Self { server, client, memory, bytes, runs };
        for slice in 0..SLICES as u64 {
            rig.put(slice, 1, &rig.content(slice));
        }
        rig.tell(rig.runs.clone());
        rig
    }

    /// What the server answers to locates.
    fn tell(&self, runs: Vec<SlotRun>) {
        self.tell_all(Resident {
            memory: self.memory.clone(),
            byte_len: BYTES as u64,
            runs,
            more: false,
            page: usize::MAX,
            grant_off: 0,
        });
    }

    fn tell_all(&self, resident: Resident) {
        *self.server.mischief.resident.lock().expect("the server is well") = Some(resident);
    }

    fn slot(&self, slice: u64) -> usize {
        let holds = |run: &&SlotRun| {
            (run.first_slice..run.first_slice + u64::from(run.count)).contains(&slice)
        };
        let run = self.runs.iter().find(holds).expect("a slice of the chunk");
        (u64::from(run.slot) + slice - run.first_slice) as usize * SLOT_BYTES
    }

    fn content(&self, slice: u64) -> [u8; SLICE_BYTES] {
        let mut content = [0; SLICE_BYTES];
        let from = slice as usize * SLICE_BYTES;
        let part = &self.bytes[from..BYTES.min(from + SLICE_BYTES)];
        content[..part.len()].copy_from_slice(part);
        content
    }

    fn put(&self, slice: u64, version: u64, content: &[u8]) {
        let slice_crc = slice_crc(CHUNK, slice, content);
        self.put_as(
            slice,
            content,
            Trailer { chunk: CHUNK, slice, slice_crc, version, is_absent: false },
        );
    }

    fn put_as(&self, slice: u64, content: &[u8], trailer: Trailer) {
        let slot = self.slot(slice);
        self.memory.write(slot, content).expect("within");
        self.memory.write(slot + SLICE_BYTES, &trailer.emit()).expect("within");
    }

    fn stats(&self) -> ResidentStats {
        self.client.client.resident_stats()
    }

    fn read(&mut self, offset: usize, length: usize) -> ReadData {
        self.client.read_resident(CHUNK, offset as u64, length).expect("it is readable")
    }

    /// A read gives what it must, and says how it came by it.
    fn check(&mut self, offset: usize, length: usize, is_resident: bool) {
        let data = self.read(offset, length);
        assert!(data.to_vec() == self.bytes[offset..offset + length], "{length} at {offset}");
        assert_eq!(data.is_resident(), is_resident, "{length} at {offset}");
        let mut copy = vec![0; length];
        data.copy_to(&mut copy);
        assert!(copy == self.bytes[offset..offset + length]);
    }
}

#[test]
fn any_range_is_read_by_reads_and_the_server_is_asked_once() {
    let seed = 31;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut rig = Rig::start();
    for round in 0..400 {
        let offset = prng.below(BYTES as u64) as usize;
        let top = if round % 4 == 0 { BYTES } else { 3 * SLICE_BYTES };
        let length = prng.between(1, top.min(BYTES - offset) as u64) as usize;
        rig.check(offset, length, true);
    }
    rig.check(0, BYTES, true);
    let stats = rig.stats();
    assert_eq!((stats.reads, stats.by_read, stats.locates), (401, 401, 1));
    assert_eq!((stats.fallen_back, stats.torn, stats.moved, stats.changed), (0, 0, 0, 0));
    let whole = rig.client.read(CHUNK, 0, BYTES).expect("readable");
    assert!(!whole.is_resident() && whole.to_vec() == rig.bytes, "who asks is answered as ever");
}

#[test]
fn a_slot_that_is_half_rewritten_is_never_taken_and_the_server_is_asked_instead() {
    let mut rig = Rig::start();
    let slot = rig.slot(7);
    let new = pattern(SLICE_BYTES, 2);
    let at = 7 * SLICE_BYTES;
    rig.check(at, SLICE_BYTES, true);
    // As the server rewrites it, stopped at each step.
    rig.memory.write(slot + MARK_AT, &Trailer::rewritten_mark(2)).expect("within");
    rig.check(at, SLICE_BYTES, false);
    rig.memory.write(slot, &new[..SLICE_BYTES / 2]).expect("within");
    rig.check(at, SLICE_BYTES, false);
    let stats = rig.stats();
    assert_eq!((stats.torn, stats.fallen_back), (2 * u64::from(READ_TRIES_MAX), 2));
    // Without the mark: half of each version under the old trailer, then under the new one.
    rig.memory.write(slot + MARK_AT, &1u64.to_le_bytes()).expect("within");
    rig.check(at, SLICE_BYTES, false);
    let slice_crc = slice_crc(CHUNK, 7, &new);
    let trailer = Trailer { chunk: CHUNK, slice: 7, slice_crc, version: 2, is_absent: false };
    rig.memory.write(slot + SLICE_BYTES, &trailer.emit()).expect("within");
    rig.check(at, SLICE_BYTES, false);
    // A trailer of two versions.
    let (old, new_one) = (Trailer { version: 1, ..trailer }.emit(), trailer.emit());
    let mixed = [&old[..TRAILER_BYTES - 8], &new_one[TRAILER_BYTES - 8..]].concat();
    rig.memory.write(slot + SLICE_BYTES, &mixed).expect("within");
    rig.check(at, SLICE_BYTES, false);
    // Whole again, with what the server has not: it is what was read.
    rig.put(7, 2, &new);
    let data = rig.read(at, SLICE_BYTES);
    assert!(data.is_resident() && data.to_vec() == new);
    assert_eq!((data.header().chunk_version, data.header().chunk_bytes), (2, BYTES as u64));
    assert_eq!(rig.stats().locates, 1, "none of this says that it has moved");
}

#[test]
fn one_bad_slot_among_many_has_the_server_read_all_of_them() {
    let mut rig = Rig::start();
    let slot = rig.slot(20);
    rig.memory.write(slot + MARK_AT, &Trailer::rewritten_mark(2)).expect("within");
    rig.check(100, BYTES - 100, false);
    rig.check(0, 20 * SLICE_BYTES, true);
    rig.check(21 * SLICE_BYTES, SLICE_BYTES, true);
    assert_eq!(rig.stats().fallen_back, 1);
}

#[test]
fn bytes_that_stay_wrong_under_one_version_were_changed() {
    let mut rig = Rig::start();
    let slot = rig.slot(9);
    rig.memory.write(slot + 5, &[!rig.bytes[9 * SLICE_BYTES + 5]]).expect("within");
    rig.check(9 * SLICE_BYTES, 10, false);
    let stats = rig.stats();
    assert_eq!((stats.torn, stats.changed, stats.fallen_back), (1, 1, 1));
}

#[test]
fn a_slice_that_only_the_server_has_is_asked_for_there() {
    let mut rig = Rig::start();
    let trailer = Trailer { chunk: CHUNK, slice: 3, slice_crc: 0, version: 2, is_absent: true };
    rig.put_as(3, &[0; SLICE_BYTES], trailer);
    rig.check(0, 5 * SLICE_BYTES, false);
    let stats = rig.stats();
    assert_eq!((stats.torn, stats.moved, stats.changed, stats.fallen_back), (0, 0, 0, 1));
}

#[test]
fn a_chunk_that_has_moved_is_located_again_and_another_chunks_bytes_are_never_given() {
    let mut rig = Rig::start();
    rig.check(0, BYTES, true);
    // Its slots are another's, and its slices elsewhere.
    let other = ChunkId(9);
    for slice in 0..SLICES as u64 {
        let bytes = [0xee; SLICE_BYTES];
        let slice_crc = slice_crc(other, slice, &bytes);
        let trailer = Trailer { chunk: other, slice, slice_crc, version: 5, is_absent: false };
        rig.put_as(slice, &bytes, trailer);
    }
    // The server does not know it yet.
    rig.check(0, 100, false);
    let stats = rig.stats();
    assert_eq!((stats.moved, stats.locates, stats.fallen_back), (2, 2, 1));
    // One place each: what was told last is what counts.
    rig.runs = (0..SLICES as u64).map(|slice| run(slice, 79 - slice as u32, 1)).collect();
    for slice in 0..SLICES as u64 {
        rig.put(slice, 6, &rig.content(slice));
    }
    rig.tell(rig.runs.clone());
    rig.check(0, BYTES, true);
    rig.check(5000, 20_000, true);
    // Free slots.
    let whole = vec![0; rig.memory.byte_len()];
    rig.memory.write(0, &whole).expect("within");
    *rig.server.mischief.resident.lock().expect("the server is well") = None;
    // It is not asked again at once, unless this machine was away for longer than a second.
    let asks = |rig: &mut Rig| {
        let before = rig.stats().locates;
        rig.check(0, 100, false);
        rig.stats().locates > before
    };
    assert!(asks(&mut rig), "its slots are free");
    assert!((0..100).any(|_| !asks(&mut rig)));
}

#[test]
fn a_chunk_in_many_runs_is_located_page_by_page_each_once() {
    let mut rig = Rig::start();
    rig.runs = (0..SLICES as u64).map(|slice| run(slice, 2 * slice as u32, 1)).collect();
    rig.memory.write(0, &vec![0; rig.memory.byte_len()]).expect("within");
    for slice in 0..SLICES as u64 {
        rig.put(slice, 1, &rig.content(slice));
    }
    rig.tell_all(Resident {
        memory: rig.memory.clone(),
        byte_len: BYTES as u64,
        runs: rig.runs.clone(),
        more: false,
        page: 8,
        grant_off: 0,
    });
    // The first question tells of the first page, the second of the one that is wanted.
    rig.check(30 * SLICE_BYTES, 100, true);
    assert_eq!(rig.stats().locates, 2);
    // From slices 8, 16, 24 and 38 on: 30 to 37 are known.
    rig.check(0, BYTES, true);
    let asked = rig.stats().locates;
    assert_eq!(asked, 6);
    rig.check(0, BYTES, true);
    rig.check(7 * SLICE_BYTES, 3 * SLICE_BYTES, true);
    let stats = rig.stats();
    assert_eq!((stats.locates, stats.fallen_back), (asked, 0));
}

#[test]
fn a_chunk_that_grows_is_read_by_the_server_once_and_by_reads_again() {
    let mut rig = Rig::start();
    rig.check(0, 10, true);
    let more = pattern(5000, 3);
    rig.client.write(CHUNK, BYTES as u64, &more).expect("a write");
    rig.bytes.extend_from_slice(&more);
    let grown = rig.bytes.len();
    rig.check(BYTES - 10, 100, false);
    // In memory there is one slice more.
    let slices = grown.div_ceil(SLICE_BYTES) as u64;
    rig.runs.push(run(SLICES as u64, 0, (slices - SLICES as u64) as u32));
    for slice in SLICES as u64 - 1..slices {
        let mut content = [0; SLICE_BYTES];
        let from = slice as usize * SLICE_BYTES;
        let part = &rig.bytes[from..grown.min(from + SLICE_BYTES)];
        content[..part.len()].copy_from_slice(part);
        rig.put(slice, 2, &content);
    }
    rig.tell_all(Resident {
        memory: rig.memory.clone(),
        byte_len: grown as u64,
        runs: rig.runs.clone(),
        more: false,
        page: usize::MAX,
        grant_off: 0,
    });
    rig.check(0, grown, true);
    assert_eq!(rig.stats().locates, 2);
}

#[test]
fn a_read_that_is_given_up_ends_at_once_and_what_it_was_reading_is_nobodys() {
    let mut rig = Rig::start();
    rig.check(0, 10, true);
    rig.server.stall(true);
    let (endpoint, chunks) = (&mut rig.client.endpoint, &mut rig.client.client);
    let mut ops = Vec::new();
    for _ in 0..20 {
        let op = chunks.start_resident_read(endpoint, CHUNK, 0, BYTES).expect("room");
        chunks.cancel(endpoint, op);
        let done = chunks.poll(endpoint).expect("it has ended");
        assert_eq!(done.op, op);
        let kind = done.result.expect_err("it was given up").kind;
        assert_eq!(kind, ErrorKind::Cancelled { fate: Fate::DidNotHappen });
        ops.push(chunks.start_resident_read(endpoint, CHUNK, 0, 10).expect("room"));
    }
    assert_eq!(chunks.under_way(), 20);
    rig.server.stall(false);
    let (endpoint, chunks) = (&mut rig.client.endpoint, &mut rig.client.client);
    let mut ended = 0;
    while ended < 20 {
        let busy = endpoint.turn(|endpoint, event| drop(chunks.on_event(endpoint, event)));
        chunks.expire(endpoint);
        while let Some(done) = chunks.poll(endpoint) {
            assert!(ops.contains(&done.op));
            let Ok(Output::Read(data)) = done.result else { panic!("a read was due") };
            assert!(data.is_resident() && data.to_vec() == rig.bytes[..10]);
            ended += 1;
        }
        if !busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
    assert_eq!(chunks.under_way(), 0);
    rig.check(0, BYTES, true);
}

#[test]
fn a_server_that_is_gone_is_told_as_such_and_one_that_stands_still_by_the_deadline() {
    let mut rig = Rig::start();
    rig.check(0, 10, true);
    let short = Nanos::from_millis(300);
    let mut client = Direct::with(rig.server.addr, |client| client.timeout(short));
    drop(client.read_resident(CHUNK, 0, 10).expect("readable"));
    rig.server.stall(true);
    let late = client.read_resident(CHUNK, 0, 10).expect_err("nobody answers").kind;
    assert!(matches!(late, ErrorKind::TimedOut { .. }), "{late:?}");
    rig.server.stall(false);
    rig.server.mischief.vanish.store(true, Ordering::Relaxed);
    let gone = loop {
        match rig.client.read_resident(CHUNK, 0, 10) {
            Ok(data) => assert!(data.to_vec() == rig.bytes[..10]),
            Err(error) => break error.kind,
        }
    };
    let is_gone = matches!(gone, ErrorKind::PeerGone { .. } | ErrorKind::Call(_));
    assert!(is_gone, "{gone:?}");
}

#[test]
fn whatever_a_server_says_of_places_a_read_gives_the_right_bytes_or_an_error() {
    let seed = 77;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let rig = Rig::start();
    let Rig { server, memory, bytes, .. } = &rig;
    for round in 0..40 {
        // A quarter of it is spent where a grant is named that nobody makes.
        let mut client = Direct::with(server.addr, |client| client.timeout(Nanos::from_secs(4)));
        let word = |prng: &mut Prng| match prng.below(4) {
            0 => prng.below(SLICES as u64 + 2) as u32,
            1 => u32::MAX - prng.below(3) as u32,
            _ => prng.below(200) as u32,
        };
        let mut runs = rig.runs.clone();
        for run in &mut runs {
            if prng.chance(0.5) {
                run.first_slice = word(&mut prng).into();
            }
            if prng.chance(0.3) {
                run.slot = word(&mut prng);
            }
            if prng.chance(0.3) {
                run.count = word(&mut prng);
            }
        }
        rig.tell_all(Resident {
            memory: memory.clone(),
            byte_len: if prng.chance(0.5) { BYTES as u64 } else { prng.next_u64() },
            runs,
            more: prng.chance(0.3),
            page: usize::MAX,
            grant_off: if prng.chance(0.2) { word(&mut prng) } else { 0 },
        });
        for _ in 0..4 {
            let offset = prng.below(BYTES as u64) as usize;
            let length = prng.between(1, (BYTES - offset) as u64) as usize;
            let data = client.read_resident(CHUNK, offset as u64, length);
            let data = data.expect("the server reads it where nothing else does");
            assert!(data.to_vec() == bytes[offset..offset + length], "round {round}");
        }
        client.close();
    }
}
