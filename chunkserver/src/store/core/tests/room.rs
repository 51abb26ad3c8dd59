//! Full stores: what is refused, what always goes, and what comes back.

use super::*;
use crate::store::core::Room;
use crate::store::error::ChangeError;
use towpath_disk::{Disk, Op, PageNumber, WritePages};

/// Fills the store with chunks of eight slices until it is full; gives how many there are.
fn fill(core: &mut Core, byte: u8) -> u128 {
    for chunk in 1.. {
        match ask(core, create_request(ChunkId(chunk))) {
            Reply::Change(Ok(_)) => {}
            Reply::Change(Err(_)) => return chunk - 1,
            _ => panic!("another answer"),
        }
        let reply = ask(core, write_request(ChunkId(chunk), 0, &[byte; 8 * 4096]));
        let Reply::Write { result, .. } = reply else { panic!("another answer") };
        if let Err(error) = result {
            assert!(matches!(error, ChangeError::Refused(Refused::NoSpace)), "{error}");
            return chunk;
        }
    }
    0
}

fn fill_and_empty(medium: &Medium, config: &CoreConfig, times: u8) {
    let mut core = open_as(medium, config).expect("a new store");
    let mut most = None;
    for time in 0..times {
        let count = fill(&mut core, time);
        assert!(count > 4 && count >= most.unwrap_or(0), "time {time}: {count}, {most:?}");
        most = Some(count.max(most.unwrap_or(0)));
        for chunk in (1..count).map(ChunkId) {
            assert_eq!(read(&mut core, chunk, 4096, 4096).expect("it is there"), [time; 4096]);
        }
        if time % 7 == 3 {
            drop(core);
            core = open_as(medium, config).expect("it was left whole");
            assert_eq!(core.damage(), []);
        }
        for chunk in (1..=count).map(ChunkId) {
            delete(&mut core, chunk);
        }
        settle(&mut core);
        assert_eq!((core.stats().live_bytes, core.stats().chunks), (0, 0));
        assert_eq!(core.stats().retired_bytes, 0);
    }
    assert!(core.stats().checkpoints > 0, "the log went round");
}

#[test]
fn a_store_that_fills_and_empties_fifty_times_takes_as_much_each_time() {
    fill_and_empty(&medium(1), &CONFIG, 50);
}

#[test]
fn a_sparse_store_on_a_full_file_system_takes_deletes_and_gives_their_room_back() {
    let medium = medium(2);
    let config = CoreConfig { is_sparse: true, ..CONFIG };
    let metadata = open_as(&medium, &config).expect("a new store").layout.metadata_pages();
    // As a file has its room for them from the beginning.
    let mut disk = medium.open(1).expect("nobody has it open");
    for page in (0..metadata).map(PageNumber) {
        let mut zeros = buf(4096);
        zeros.set_len(4096).expect("it fits");
        let from = WritePages::new(zeros).expect("it is a page");
        disk.submit(0, Op::write(page, from)).expect("it has nothing else to do");
        disk.wait(Duration::from_secs(1), &mut Vec::new()).expect("it speaks");
    }
    drop(disk);
    medium.limit_room((metadata + 60) * 4096);
    fill_and_empty(&medium, &config, 50);
}

#[test]
fn a_file_system_that_others_fill_refuses_writes_and_not_deletes() {
    let medium = medium(3);
    let config = CoreConfig { is_sparse: true, ..CONFIG };
    let mut core = open_as(&medium, &config).expect("a new store");
    medium.limit_room(u64::MAX);
    core.measure_room();
    create(&mut core, ChunkId(1));
    write(&mut core, ChunkId(1), 0, &[1; 8 * 4096]);
    // What is written finds no room, though the store thought that there was some.
    medium.limit_room(0);
    let reply = ask(&mut core, write_request(ChunkId(1), 0, &[2; 8 * 4096]));
    let Reply::Write { result, .. } = reply else { panic!("another answer") };
    assert!(matches!(result, Err(ChangeError::Refused(Refused::NoSpace))));
    assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("it is as it was"), [1; 4096]);
    assert_eq!(core.stats().free_bytes, 0);
    delete(&mut core, ChunkId(1));
    settle(&mut core);
    assert_eq!(core.failure(), None);
    medium.limit_room(u64::MAX);
    create(&mut core, ChunkId(1));
    write(&mut core, ChunkId(1), 0, &[3; 4096]);
}

#[test]
fn a_reader_keeps_its_pages_while_writers_use_all_others() {
    let medium = medium(4);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    write(&mut core, ChunkId(1), 0, &[1; 16 * 4096]);
    let read_of = |byte_len| Request::Read {
        chunk: ChunkId(1),
        offset: 0,
        byte_len,
        buf: buf(byte_len),
        crcs: Vec::new(),
    };
    for round in 2..40 {
        core.submit(Client { asker: 0, token: 1 }, read_of(16 * 4096));
        write(&mut core, ChunkId(1), 0, &[round; 16 * 4096]);
        settle(&mut core);
        let read = core.take_answers().find(|(_, answer)| answer.token == 1);
        let Some((_, Completion { reply: Reply::Read { result, buf, .. }, .. })) = read else {
            // It was answered while the write was waited for.
            continue;
        };
        result.expect("its pages are its own");
        assert_eq!(buf[..], [round - 1; 16 * 4096]);
    }
}

#[test]
fn small_writes_in_a_row_to_one_slice_are_all_there() {
    let medium = medium(6);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    for at in 0..200u64 {
        let request = write_request(ChunkId(1), at * 40, &[at as u8; 40]);
        core.submit(Client { asker: 0, token: at }, request);
    }
    settle(&mut core);
    assert!(core.take_answers().all(|(_, answer)| fate(&answer.reply) == Fate::Done));
    for at in 0..200u64 {
        assert_eq!(read(&mut core, ChunkId(1), at * 40, 40).expect("sound"), [at as u8; 40]);
    }
}

#[test]
fn many_changes_share_a_flush_and_reads_go_on_meanwhile() {
    let medium = medium(7);
    medium.set_durable_writes(DurableWrites::None);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    let before = core.stats().commits;
    for at in 0..64u64 {
        let request = write_request(ChunkId(1), at * 4096, &[at as u8; 4096]);
        core.submit(Client { asker: 0, token: at }, request);
    }
    settle(&mut core);
    assert_eq!(core.take_answers().count(), 64);
    // The data of the first ones goes beside their records, that of the others before theirs.
    assert_eq!(core.stats().commits - before, 2);
}

#[test]
fn a_store_that_fills_says_so_before_and_when_it_is_full_and_when_it_has_room_again() {
    let mut core = open(&medium(8)).expect("a new store");
    assert_eq!(core.room(), Room::Enough);
    let mut seen = vec![core.room()];
    let mut see = |core: &Core| {
        if seen.last() != Some(&core.room()) {
            seen.push(core.room());
        }
    };
    create(&mut core, ChunkId(1));
    for at in 0.. {
        let reply = ask(&mut core, write_request(ChunkId(1), at * 4096, &[1; 4096]));
        see(&core);
        if fate(&reply) == Fate::NotDone {
            break;
        }
    }
    create(&mut core, ChunkId(2));
    see(&core);
    delete(&mut core, ChunkId(1));
    settle(&mut core);
    write(&mut core, ChunkId(2), 0, &[1; 4096]);
    see(&core);
    assert_eq!(seen, [Room::Enough, Room::NearlyNone, Room::None, Room::Enough]);
}

#[test]
fn a_checkpoint_writes_only_what_has_changed() {
    let medium = medium(9);
    let mut core = open(&medium).expect("a new store");
    for chunk in 1..=30 {
        create(&mut core, ChunkId(chunk));
    }
    checkpoint(&mut core);
    let pages =
        |core: &Core| core.checkpoints.entries().iter().map(|entry| entry.generation).collect();
    let before: Vec<u64> = pages(&core);
    assert!(before.len() >= 4);
    write(&mut core, ChunkId(30), 0, &[1; 4096]);
    checkpoint(&mut core);
    let after: Vec<u64> = pages(&core);
    let newest = after.iter().max().copied().unwrap_or(0);
    let changed: Vec<_> = after.iter().filter(|generation| **generation == newest).collect();
    assert_eq!((changed.len(), after.len()), (1, before.len()));
    assert!(before.iter().all(|generation| *generation < newest));
}

#[test]
fn a_map_that_finds_no_room_to_grow_refuses_creates_and_nothing_else() {
    let (medium, blocks) = (Medium::new(1, 40_000), 256 * 7);
    let config = CoreConfig { is_sparse: true, chunks_max: 10_000, ..CONFIG };
    let mut core = open_as(&medium, &config).expect("a new store");
    medium.limit_room(u64::MAX);
    core.measure_room();
    settle(&mut core);
    // From now on no page gets room that has none.
    medium.limit_room(0);
    core.measure_room();
    let is_made = |core: &mut Core, chunk: u128| {
        fate(&ask(core, create_request(ChunkId(chunk)))) == Fate::Done
    };
    let made = (0..3_000).take_while(|chunk| is_made(&mut core, *chunk)).count();
    assert_eq!(made, blocks, "each has a block, and its page its room");
    assert_eq!(core.failure(), None);
    delete(&mut core, ChunkId(5));
    assert!(is_made(&mut core, 5), "a block is free again");
    assert!(!is_made(&mut core, 9_000));
    checkpoint(&mut core);
    delete(&mut core, ChunkId(6));
    settle(&mut core);
    drop(core);
    let mut core = open_as(&medium, &config).expect("it was left whole");
    assert!(is_made(&mut core, 6));
    assert!(!is_made(&mut core, 9_000));
    medium.limit_room(u64::MAX);
    core.measure_room();
    assert!((9_000..9_300).all(|chunk| is_made(&mut core, chunk)), "the map grows again");
    checkpoint(&mut core);
    assert_eq!(core.failure(), None);
    drop(core);
    let core = open_as(&medium, &config).expect("it was left whole");
    assert_eq!((core.damage(), core.stats().chunks), (&[][..], blocks as u64 + 300));
}

#[test]
fn a_file_system_that_others_fill_is_noticed_though_nothing_is_written() {
    let medium = medium(9);
    let mut core = open_as(&medium, &CoreConfig { is_sparse: true, ..CONFIG }).expect("a new one");
    for (room, expected) in [(u64::MAX, Room::Enough), (0, Room::None), (u64::MAX, Room::Enough)] {
        medium.limit_room(room);
        core.notice_room();
        assert_eq!(core.room(), expected);
    }
}
