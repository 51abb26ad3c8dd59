//! Classes in one store: what a lower one does keeps a higher one from nothing.

use towpath_transport::{Class, Nanos};

use super::*;
use Class::{Copper, Gold, Silver};

/// Bytes of one write of Copper's.
const LONG: usize = 2 << 20;

const GOLD_CHUNK: ChunkId = ChunkId(1);

fn copper_chunk(number: u64) -> ChunkId {
    ChunkId(100 + u128::from(number))
}

/// A store of 160 MB, with chunks for Gold and Copper.
fn rig(seed: u64, bug: Option<Bug>) -> (Medium, Core) {
    println!("seed {seed}");
    let medium = Medium::new(seed, 40_000);
    let mut core = open_as(&medium, &CoreConfig { log_pages: 1024, ..CONFIG }).expect("a new one");
    core.bug = bug;
    for chunk in (0..16).map(copper_chunk).chain([GOLD_CHUNK]) {
        create(&mut core, chunk);
    }
    (medium, core)
}

/// Asks as a class, and turns until the answer is there; gives the time that it took on the disk.
fn timed(medium: &Medium, core: &mut Core, class: Class, request: Request<Vec<u8>, Buf>) -> Nanos {
    let (began, token) = (medium.now(), u64::MAX);
    core.submit_as(class, Client { asker: 1, token }, request);
    for _ in 0..100_000 {
        if core.take_answers().any(|(_, answer)| answer.token == token) {
            return medium.now().since(began);
        }
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
    }
    panic!("no answer comes");
}

/// How long a change of Gold's takes while Copper writes 32 MiB.
fn gold_beside_copper(seed: u64, bug: Option<Bug>) -> Nanos {
    let (medium, mut core) = rig(seed, bug);
    for number in 0..16 {
        let request = write_request(copper_chunk(number), 0, &vec![3; LONG]);
        core.submit_as(Copper, Client { asker: 0, token: number }, request);
    }
    for _ in 0..3 {
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
    }
    timed(&medium, &mut core, Gold, write_request(GOLD_CHUNK, 0, &[1; 4096]))
}

#[test]
fn a_commit_of_gold_waits_for_none_of_coppers_bytes() {
    // The slowest group that may be under way, then its own: data, records, and a flush.
    let bound = Nanos::from_micros(2 * (150 + 150 + 400));
    for seed in 0..5 {
        let took = gold_beside_copper(seed, None);
        assert!(took <= bound, "seed {seed}: {took:?}");
    }
    let noticed = (0..5).any(|seed| gold_beside_copper(seed, Some(Bug::JoinEarly)) > bound);
    assert!(noticed, "groups that wait for Copper's data would not be noticed");
}

#[test]
fn a_read_of_silver_waits_for_little_of_coppers_bytes() {
    for seed in 0..5 {
        let (medium, mut core) = rig(seed, None);
        write(&mut core, GOLD_CHUNK, 0, &[1; 4096]);
        for number in 0..16 {
            let request = write_request(copper_chunk(number), 0, &vec![3; LONG]);
            core.submit_as(Copper, Client { asker: 0, token: number }, request);
        }
        core.turn(None).expect("the simulated disk always speaks");
        let read = |buf| Request::Read {
            chunk: GOLD_CHUNK,
            offset: 0,
            byte_len: 4096,
            buf,
            crcs: Vec::new(),
        };
        // It does not wait behind them for a place at the disk.
        let took = timed(&medium, &mut core, Silver, read(buf(4096)));
        assert!(took <= Nanos::from_micros(200), "seed {seed}: {took:?}");
    }
}

#[test]
fn a_class_that_has_no_room_to_gather_leaves_the_others_theirs() {
    let (medium, mut core) = rig(7, None);
    let mut token = 0;
    while core.has_room(Copper, 1) {
        let request = write_request(copper_chunk(token % 16), 0, &vec![3; LONG]);
        core.submit_as(Copper, Client { asker: 0, token }, request);
        token += 1;
    }
    assert!(core.has_room(Gold, 1) && core.has_room(Silver, 1));
    let took = timed(&medium, &mut core, Gold, write_request(GOLD_CHUNK, 0, &[1; 4096]));
    assert!(took <= Nanos::from_micros(1400), "{took:?}");
    settle_long(&mut core);
    assert_eq!(core.stats().writes, token + 1);
}

#[test]
fn copper_is_done_beside_a_gold_that_never_stops() {
    let (_, mut core) = rig(8, None);
    let request = write_request(copper_chunk(0), 0, &vec![3; LONG / 2]);
    core.submit_as(Copper, Client { asker: 0, token: 0 }, request);
    let mut gold = 0;
    while !core.take_answers().any(|(asker, _)| asker == 0) {
        while core.has_room(Gold, 1) {
            gold += 1;
            let request = write_request(GOLD_CHUNK, 0, &[1; 4096]);
            core.submit_as(Gold, Client { asker: 1, token: gold }, request);
        }
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
        // Sixteen times the bytes, and what waits.
        assert!(gold < 16 * 256 + 4096, "Copper waits for good");
    }
}

fn settle_long(core: &mut Core) {
    for _ in 0..100_000 {
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
        if core.is_idle() {
            return;
        }
    }
    panic!("the store comes to no end");
}

#[test]
fn changes_of_one_chunk_keep_their_order_whatever_their_classes() {
    for seed in 0..50 {
        println!("seed {seed}");
        let medium = medium(seed);
        let mut core = open(&medium).expect("a new store");
        create(&mut core, GOLD_CHUNK);
        let mut prng = Prng::new(seed);
        let mut expected = vec![0; 3 * SLICE_BYTES];
        for token in 0..30 {
            let class = Class::ALL[prng.below(3) as usize];
            let (from, len) = (prng.below(8192) as usize, 1 + prng.below(4096) as usize);
            expected[from..from + len].fill(token as u8);
            let request = write_request(GOLD_CHUNK, from as u64, &vec![token as u8; len]);
            core.submit_as(class, Client { asker: 0, token }, request);
            if prng.chance(0.3) {
                core.turn(None).expect("the simulated disk always speaks");
            }
        }
        settle(&mut core);
        let len = stats_of(&core)[0].byte_len as usize;
        let found = read(&mut core, GOLD_CHUNK, 0, len).expect("it is whole");
        assert!(found == expected[..len], "seed {seed}");
    }
}
