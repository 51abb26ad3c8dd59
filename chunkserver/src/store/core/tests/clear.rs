//! Trim, zero and truncate: what reads as zeros, what is free again, and that a full store takes
//! them.

use super::*;
use crate::resident::Arena;
use crate::store::error::ChangeError;
use towpath_disk::What;

const CHUNK: ChunkId = ChunkId(5);

fn clear_request(clear: Clear) -> Request<Vec<u8>, Buf> {
    Request::Clear { chunk: CHUNK, clear, terms: Terms::default() }
}

fn clear(core: &mut Core, clear: Clear) -> Result<Ticket, ChangeError> {
    match ask(core, clear_request(clear)) {
        Reply::Change(result) => result,
        _ => panic!("another answer"),
    }
}

fn truncate(core: &mut Core, byte_len: u64) {
    clear(core, Clear::Truncate { byte_len }).expect("it always goes");
}

/// Fills all that writes can have with slices of one chunk; gives how many there are.
fn fill(core: &mut Core, byte: u8) -> u64 {
    for slice in 0.. {
        let reply = ask(core, write_request(CHUNK, slice * 4096, &[byte; 4096]));
        let Reply::Write { result, .. } = reply else { panic!("another answer") };
        match result {
            Ok(_) => {}
            Err(ChangeError::Refused(Refused::NoSpace)) => return slice,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn what_is_cleared_reads_as_zeros_and_its_pages_are_free_again() {
    let medium = medium(1);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    write(&mut core, CHUNK, 0, &[1; 10 * 4096]);
    let live = |core: &Core| core.stats().live_bytes / 4096;
    clear(&mut core, Clear::Trim { offset: 4096, byte_len: 8192 + 4095 }).expect("it goes");
    let mut expected = vec![1; 10 * 4096];
    expected[4096..3 * 4096].fill(0);
    assert_eq!(read(&mut core, CHUNK, 0, 10 * 4096).expect("sound"), expected);
    assert_eq!(live(&core), 8);
    clear(&mut core, Clear::Zero { offset: 4 * 4096 + 7, byte_len: 2 * 4096 }).expect("it goes");
    expected[4 * 4096 + 7..6 * 4096 + 7].fill(0);
    assert_eq!(read(&mut core, CHUNK, 0, 10 * 4096).expect("sound"), expected);
    assert_eq!(live(&core), 7);
    truncate(&mut core, 8 * 4096 + 9);
    truncate(&mut core, 20 * 4096);
    expected.truncate(8 * 4096 + 9);
    expected.resize(20 * 4096, 0);
    assert_eq!(read(&mut core, CHUNK, 0, 20 * 4096).expect("sound"), expected);
    assert_eq!(live(&core), 6);
    truncate(&mut core, 0);
    assert_eq!((live(&core), core.stats().retired_bytes), (0, 0));
    assert_eq!(core.stat(CHUNK).map(|stat| stat.byte_len), Some(0));
}

#[test]
fn a_full_store_takes_every_clear_and_what_it_gives_back_can_be_written() {
    let (medium, mut core, count) = full_store(2);
    for slice in 0..count - 1 {
        // Each has an edge in two slices, and takes none away whole.
        let zero = Clear::Zero { offset: slice * 4096 + 4000, byte_len: 200 };
        clear(&mut core, zero).expect("it always goes");
    }
    for slice in (0..count / 2).rev() {
        truncate(&mut core, (count / 2 + slice) * 4096 + 50);
    }
    clear(&mut core, Clear::Trim { offset: 0, byte_len: 10 * 4096 }).expect("it always goes");
    assert!(core.failure().is_none());
    assert_eq!(read(&mut core, CHUNK, 10 * 4096 + 104, 3000).expect("sound"), [1; 3000]);
    write(&mut core, CHUNK, 0, &[2; 10 * 4096]);
    truncate(&mut core, 0);
    assert_eq!(fill(&mut core, 3), count, "all of it came back");
    drop(core);
    let core = open(&medium).expect("it was left whole");
    assert_eq!(core.damage(), []);
}

fn full_store(seed: u64) -> (Medium, Core, u64) {
    let medium = medium(seed);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    let count = fill(&mut core, 1);
    assert!(count > 20, "{count}");
    (medium, core, count)
}

#[test]
fn many_clears_of_a_full_store_that_are_under_way_together_are_all_made() {
    let (_, mut core, count) = full_store(3);
    for token in 0..count - 1 {
        let zero = Clear::Zero { offset: token * 4096 + 4000, byte_len: 200 };
        core.submit(Client { asker: 0, token }, clear_request(zero));
    }
    settle(&mut core);
    let answers: Vec<_> = core.take_answers().map(|(_, answer)| made(&answer.reply)).collect();
    assert_eq!(answers.len() as u64, count - 1);
    assert!(answers.iter().all(Option::is_some));
}

#[test]
fn blocks_of_the_map_that_hold_nothing_any_more_are_free_again() {
    let medium = medium(4);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    let free = core.map.blocks_free();
    for round in 0..50u64 {
        for at in 0..20 {
            write(&mut core, CHUNK, (at * 64 + round % 64) * 4096, &[1; 10]);
        }
        assert_eq!(core.map.blocks_free(), free - 19);
        match round % 2 {
            0 => truncate(&mut core, 0),
            _ => drop(clear(&mut core, Clear::Trim { offset: 0, byte_len: 20 << 18 })),
        }
        settle(&mut core);
        assert_eq!(core.map.blocks_free(), free);
        if round % 10 == 3 {
            checkpoint(&mut core);
            drop(core);
            core = open(&medium).expect("it was left whole");
            assert_eq!(core.map.blocks_free(), free);
        }
    }
}

#[test]
fn what_a_truncate_cut_off_does_not_come_back_where_the_one_before_it_failed() {
    for seed in 0..10 {
        println!("seed {seed}");
        let medium = medium(seed);
        let mut core = open(&medium).expect("a new store");
        create(&mut core, CHUNK);
        write(&mut core, CHUNK, 0, &[1; 3 * 4096]);
        bring_home(&mut core);
        let to = |token| Client { asker: 0, token };
        let cut = |byte_len| clear_request(Clear::Truncate { byte_len });
        // The slice that the first one cuts cannot be read.
        let at = core.layout.data_page(core.map.chunks[&CHUNK].slice(0).page);
        medium.fail(What::Read, at, 2);
        core.submit(to(1), cut(100));
        core.submit(to(2), cut(2 * 4096 - 1000));
        core.submit(to(3), cut(3 * 4096));
        settle(&mut core);
        let fates: Vec<_> = core.take_answers().map(|(_, c)| (c.token, fate(&c.reply))).collect();
        assert_eq!(fates, [(1, Fate::NotDone), (2, Fate::Done), (3, Fate::Done)]);
        let mut expected = vec![1; 3 * 4096];
        expected[2 * 4096 - 1000..].fill(0);
        assert_eq!(read(&mut core, CHUNK, 0, 3 * 4096).expect("sound"), expected);
    }
}

#[test]
fn a_resident_chunk_is_in_memory_as_a_clear_leaves_it_and_gives_its_slots_back() {
    let medium = medium(6);
    let mut core = open(&medium).expect("a new store");
    let arena = Arena::new(10 * 4096).expect("memory");
    core.keep_in(Box::new(arena)).expect("the disk speaks");
    let kind = NewChunk { resident: true, ..NewChunk::default() };
    let create = Request::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 };
    assert!(made(&ask(&mut core, create)).is_some());
    let slots = |core: &Core| core.stats().resident_bytes / 4096;
    write(&mut core, CHUNK, 0, &[1; 8 * 4096]);
    truncate(&mut core, 2 * 4096 + 1);
    assert_eq!(slots(&core), 3);
    truncate(&mut core, 10 * 4096);
    assert_eq!(slots(&core), 10);
    let over = clear(&mut core, Clear::Truncate { byte_len: 10 * 4096 + 1 });
    let full = ChangeError::Refused(Refused::ResidentFull { left_bytes: 0 });
    assert_eq!(over.map_err(|e| e.to_string()), Err(full.to_string()));
    let over = clear(&mut core, Clear::Zero { offset: 0, byte_len: 11 * 4096 });
    assert_eq!(over.map_err(|e| e.to_string()), Err(full.to_string()));
    truncate(&mut core, 0);
    assert_eq!(slots(&core), 0);
}

#[test]
fn what_reaches_past_the_limit_or_is_of_no_chunk_is_refused() {
    let medium = medium(7);
    let mut core = open(&medium).expect("a new store");
    let none = clear(&mut core, Clear::Truncate { byte_len: 0 });
    assert!(matches!(none, Err(ChangeError::NoSuchChunk(CHUNK))));
    create(&mut core, CHUNK);
    let max = crate::store::limits::CHUNK_BYTES_MAX;
    for over in [
        Clear::Truncate { byte_len: max + 1 },
        Clear::Trim { offset: max, byte_len: 1 },
        Clear::Zero { offset: u64::MAX, byte_len: 2 },
    ] {
        let refused = clear(&mut core, over);
        assert!(
            matches!(refused, Err(ChangeError::LimitExceeded { limit_bytes }) if limit_bytes == max)
        );
    }
    truncate(&mut core, max);
    assert_eq!(read(&mut core, CHUNK, max - 9, 9).expect("zeros"), [0; 9]);
}
