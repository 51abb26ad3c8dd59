//! What a medium does wrong: bad sectors, failed flushes, lost, torn and misdirected writes.

use super::*;
use crate::store::error::{ChangeError, CommitStep, FlushFailed, ReadOnly, Refused};
use towpath_disk::sim::{Loss, Mischief};
use towpath_disk::{PageNumber, What};

/// A store with some chunks, two checkpoints and a log behind them; and what it holds.
pub(super) fn workload(seed: u64) -> (Medium, Model) {
    let (mut prng, medium) = (Prng::new(seed), any_medium(seed));
    let mut core = open(&medium).expect("a new store");
    let mut model = Model::default();
    // Whatever becomes of the others, this one has slices.
    let chunk = ChunkId(88);
    for change in [Change::Create(chunk), Change::Write(chunk, 0, vec![8; 3 * SLICE_BYTES])] {
        let reply = ask(&mut core, change.request());
        model.take(&change, &reply).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    for step in 0..60 {
        let change = model.random(&mut prng);
        let reply = ask(&mut core, change.request());
        model.take(&change, &reply).unwrap_or_else(|wrong| panic!("{wrong}"));
        if step == 20 || step == 40 {
            checkpoint(&mut core);
        }
    }
    core.seal();
    settle(&mut core);
    drop(core);
    (medium, model)
}

/// Whether nothing wrong is served: each chunk has its content or an error. True where nothing
/// is missing.
pub(super) fn serves_right(core: &mut Core, model: &Model) -> Result<bool, String> {
    let mut is_whole = true;
    for (chunk, content) in &model.chunks {
        match core.stat(*chunk) {
            Some(stat) if stat.suspect => is_whole = false,
            Some(stat) if Some(&stat.chain) != model.chains.get(chunk) => {
                return Err(format!("chunk {chunk} has chain version {}", stat.chain));
            }
            Some(stat) if stat.byte_len == content.len() as u64 => {
                for (at, expected) in content.chunks(SLICE_BYTES).enumerate() {
                    match read(core, *chunk, (at * SLICE_BYTES) as u64, expected.len()) {
                        Ok(found) if found == expected => {}
                        Ok(_) => return Err(format!("slice {at} of {chunk} is wrong")),
                        Err(_) => is_whole = false,
                    }
                }
            }
            stat => return Err(format!("chunk {chunk} is {stat:?}, not {} bytes", content.len())),
        }
    }
    let strange = stats_of(core)
        .into_iter()
        .find(|stat| !stat.suspect && !model.chunks.contains_key(&stat.chunk));
    strange.map_or(Ok(is_whole), |stat| Err(format!("{stat:?} was deleted")))
}

#[test]
fn what_was_written_is_read_after_a_restart_and_after_checkpoints() {
    for seed in 0..20 {
        println!("seed {seed}");
        let (mut prng, medium) = (Prng::new(seed), any_medium(seed));
        let mut core = open(&medium).expect("a new store");
        let mut model = Model::default();
        for step in 0..120 {
            let change = model.random(&mut prng);
            let reply = ask(&mut core, change.request());
            model.take(&change, &reply).unwrap_or_else(|wrong| panic!("{wrong}"));
            if step % 17 == 3 {
                checkpoint(&mut core);
            }
            if step % 29 == 11 {
                drop(core);
                core = open(&medium).expect("it was left whole");
                assert_eq!(core.damage(), []);
            }
        }
        assert_eq!(Model::of(&mut core).expect("all is sound"), model);
    }
}

#[test]
fn one_bad_place_in_log_map_directory_or_superblock_loses_nothing() {
    for seed in 0..3 {
        let (medium, model) = workload(seed);
        let metadata = open(&medium).expect("it is whole").layout.metadata_pages();
        for page in (0..metadata).chain([PAGES - 1]) {
            for is_spoiled in [true, false] {
                println!("seed {seed}, page {page}, {is_spoiled}");
                let medium = medium.fork(seed);
                match is_spoiled {
                    true => medium.spoil(PageNumber(page)),
                    false => medium.flip_bit(page * SLICE_BYTES as u64 + 70 + page % 50),
                }
                let mut core = open(&medium).expect("one place is never all");
                assert!(!core.is_damaged(), "{:?}", core.damage());
                assert_eq!(serves_right(&mut core, &model), Ok(true));
                let (chunk, chain) = model.chains.first_key_value().expect("some");
                let write = on_chain(*chain, write_request(*chunk, 0, &[3; 9]));
                assert!(made(&ask(&mut core, write)).is_some());
            }
        }
    }
}

#[test]
fn a_new_store_has_two_superblocks_already() {
    for page in [0, PAGES - 1] {
        let medium = medium(page);
        let mut core = open(&medium).expect("a new store");
        create(&mut core, ChunkId(1));
        drop(core);
        medium.spoil(PageNumber(page));
        let core = open(&medium).expect("the other one is whole");
        assert!(core.stat(ChunkId(1)).is_some() && !core.is_damaged());
    }
}

#[test]
fn the_same_bad_place_in_both_copies_of_the_log_is_said_and_nothing_wrong_is_served() {
    let mut was_said = 0;
    for seed in 0..4 {
        let (medium, model) = workload(seed);
        let layout = open(&medium).expect("it is whole").layout;
        for page in 0..40 {
            println!("seed {seed}, page {page}");
            let medium = medium.fork(seed);
            (0..2).for_each(|copy| medium.spoil(layout.log_slot(copy, page % layout.log_pages)));
            let mut core = open(&medium).expect("it opens whatever is lost");
            match serves_right(&mut core, &model) {
                Ok(true) => {}
                Ok(false) => {
                    assert!(!core.damage().is_empty(), "what is lost is said");
                    was_said += 1;
                }
                Err(wrong) => panic!("{wrong}: {:?}", core.damage()),
            }
        }
    }
    assert!(was_said > 10, "only {was_said} of these pages had records");
}

#[test]
fn a_bad_map_in_both_generations_is_said_and_nothing_wrong_is_served() {
    for seed in 0..6 {
        println!("seed {seed}");
        let (medium, model) = workload(seed);
        let layout = open(&medium).expect("it is whole").layout;
        (0..2).for_each(|place| medium.spoil(layout.map_page(0, place)));
        let mut core = open(&medium).expect("it opens whatever is lost");
        assert!(core.is_damaged() && !core.damage().is_empty());
        // A chunk that was made since is known whole.
        assert_eq!(serves_right(&mut core, &model), Ok(false));
        let refused = ask(&mut core, create_request(ChunkId(1)));
        assert_eq!(fate(&refused), Fate::NotDone);
    }
}

/// A workload of which one write somewhere is mistreated; what is served is right or an error, then
/// and after a restart.
fn mistreat_one_write(seed: u64) -> Result<(), String> {
    let mut prng = Prng::new(seed);
    let mischief = match seed % 3 {
        0 => Mischief::Lost,
        1 => Mischief::Torn,
        _ => Mischief::Misdirected(1 + prng.below(PAGES - 1)),
    };
    println!("seed {seed}, {mischief:?}");
    let medium = medium(seed);
    let mut core = open(&medium).expect("a new store");
    medium.mistreat_write(0..PAGES, prng.below(160), mischief);
    let mut model = Model::default();
    for step in 0..40 {
        let change = model.random(&mut prng);
        let reply = ask(&mut core, change.request());
        model.take(&change, &reply)?;
        if step % 13 == 7 {
            checkpoint(&mut core);
        }
    }
    core.seal();
    settle(&mut core);
    serves_right(&mut core, &model).map_err(|wrong| format!("before a restart: {wrong}"))?;
    drop(core);
    match open(&medium) {
        Ok(mut core) => serves_right(&mut core, &model).map(drop),
        // A simulated write that goes past the end goes on at the start, where the other superblock
        // is: it can take both, as that of no disk can.
        Err(OpenError::Checkpoint { .. }) if matches!(mischief, Mischief::Misdirected(_)) => Ok(()),
        Err(error) => Err(format!("it does not open: {error}")),
    }
}

#[test]
fn writes_that_are_lost_torn_or_misdirected_are_never_served() {
    for seed in 0..160 {
        mistreat_one_write(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
#[ignore = "minutes: the same over many more seeds"]
fn stress_writes_that_are_lost_torn_or_misdirected_are_never_served() {
    for seed in 1_000..41_000 {
        mistreat_one_write(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn a_damaged_slice_is_named_and_counted_and_never_served_and_its_neighbours_are() {
    let medium = medium(1);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(5));
    for slice in 0..4u8 {
        write(&mut core, ChunkId(5), u64::from(slice) * 4096, &[slice + 1; 4096]);
    }
    bring_home(&mut core);
    let page = core.map.chunks[&ChunkId(5)].slice(2).page;
    let at = core.layout.data_page(page);
    medium.flip_bit(at.byte_offset() + 99);
    let error = read(&mut core, ChunkId(5), 0, 4 * 4096).expect_err("one is bad");
    let ReadError::Corrupt(corrupt) = error else { panic!("{error}") };
    assert_eq!((corrupt.slice, corrupt.offset), (2, at.byte_offset()));
    assert_eq!(core.stats().slices_corrupt, 1);
    for slice in [0u8, 1, 3] {
        let found = read(&mut core, ChunkId(5), u64::from(slice) * 4096, 4096).expect("sound");
        assert_eq!(found, [slice + 1; 4096]);
    }
    let Reply::Write { result, .. } = ask(&mut core, write_request(ChunkId(5), 8200, b"x")) else {
        panic!("another answer")
    };
    assert!(matches!(result, Err(ChangeError::OldSlice(_))), "it cannot be merged");
    write(&mut core, ChunkId(5), 8192, &[9; 4096]);
    assert_eq!(read(&mut core, ChunkId(5), 8192, 4096).expect("it is new"), [9; 4096]);
}

#[test]
fn a_read_error_is_tried_once_more() {
    let medium = medium(2);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(5));
    write(&mut core, ChunkId(5), 0, &[1; 4096]);
    bring_home(&mut core);
    let at = core.layout.data_page(core.map.chunks[&ChunkId(5)].slice(0).page);
    medium.fail(What::Read, at, 1);
    assert_eq!(read(&mut core, ChunkId(5), 0, 4096).expect("once is not twice"), [1; 4096]);
    assert_eq!(core.stats().reads_retried, 1);
    medium.fail(What::Read, at, 2);
    assert!(matches!(read(&mut core, ChunkId(5), 0, 4096), Err(ReadError::Media(_))));
}

#[test]
fn a_failed_flush_is_final_for_changes_and_reads_go_on() {
    let medium = medium(3);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(5));
    write(&mut core, ChunkId(5), 0, &[1; 4096]);
    medium.fail_flush(0);
    core.submit(Client { asker: 0, token: 1 }, write_request(ChunkId(5), 0, &[2; 4096]));
    core.turn(None).expect("it speaks");
    core.submit(Client { asker: 0, token: 2 }, create_request(ChunkId(6)));
    settle(&mut core);
    let fates: Vec<_> = core.take_answers().map(|(_, c)| (c.token, fate(&c.reply))).collect();
    assert_eq!(fates, [(1, Fate::Unknown), (2, Fate::NotDone)], "the second never began");
    assert_eq!(core.failure().map(|failed| failed.step), Some(CommitStep::LogFlush));
    assert_eq!(core.stats().read_only.map(ReadOnly::name), Some("flush"));
    assert_eq!(read(&mut core, ChunkId(5), 0, 4096).expect("it is there"), [1; 4096]);
    let FlushFailed { step, .. } = core.failure().expect("it has failed");
    assert_eq!(step, CommitStep::LogFlush);
}

#[test]
fn a_write_whose_data_does_not_reach_the_disk_is_refused_and_the_group_goes_on_without_it() {
    for seed in 0..30 {
        println!("seed {seed}");
        let medium = medium(seed);
        medium.set_durable_writes(DurableWrites::None);
        let mut core = open(&medium).expect("a new store");
        create(&mut core, ChunkId(5));
        create(&mut core, ChunkId(6));
        let first = core.layout.data_page(1);
        medium.fail(What::Write, PageNumber(first.0 + 1), 1);
        let to = |token| Client { asker: 0, token };
        core.submit(to(1), write_request(ChunkId(5), 0, &[1; 4096]));
        core.submit(to(2), write_request(ChunkId(5), 4096, &[2; 4096]));
        core.submit(to(3), write_request(ChunkId(6), 0, &[3; 4096]));
        core.submit(
            to(4),
            Request::Finish { chunk: ChunkId(5), byte_len: 8192, terms: Terms::default() },
        );
        if seed % 2 == 0 {
            core.turn(None).expect("it speaks");
        }
        core.submit(to(5), write_request(ChunkId(6), 4096, &[4; 4096]));
        settle(&mut core);
        for (_, Completion { token, reply, .. }) in core.take_answers() {
            match (token, reply) {
                (2, Reply::Write { result, .. }) => {
                    assert!(matches!(result, Err(ChangeError::Media(_))));
                }
                (4, Reply::Change(result)) => {
                    assert!(matches!(result, Err(ChangeError::WrongLength { byte_len: 4096 })));
                }
                (token, reply) => assert_eq!(fate(&reply), Fate::Done, "{token}"),
            }
        }
        medium.power_on(Loss::Everything);
        drop(core);
        let mut core = open(&medium).expect("it is whole");
        assert_eq!(core.damage(), []);
        assert_eq!(core.stat(ChunkId(5)).map(|stat| stat.byte_len), Some(4096));
        assert_eq!(read(&mut core, ChunkId(6), 4096, 4096).expect("it is there"), [4; 4096]);
    }
}

#[test]
fn data_changed_on_the_wire_is_refused_and_changes_nothing() {
    let medium = medium(4);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(5));
    for (offset, len) in [(0, 4096), (10, 100), (4000, 9000)] {
        let mut request = write_request(ChunkId(5), offset, &vec![1; len]);
        let Request::Write { data, .. } = &mut request else { panic!("it is one") };
        data[1][0] ^= 1;
        let Reply::Write { result, .. } = ask(&mut core, request) else { panic!("another") };
        assert!(matches!(result, Err(ChangeError::WireCorrupt { .. })), "{offset}, {len}");
    }
    assert_eq!(core.stat(ChunkId(5)).map(|stat| stat.byte_len), Some(0));
    assert_eq!(core.stats().wire_corrupt, 3);
}

#[test]
fn only_the_store_itself_is_opened_and_nothing_else_is_written_over() {
    let medium = medium(5);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    drop(core);
    (0..2).for_each(|n| medium.spoil(PageNumber(n * (PAGES - 1))));
    assert!(matches!(open(&medium).map(drop), Err(OpenError::Checkpoint { .. })));
    let small = Medium::new(1, 200);
    assert!(matches!(open(&small).map(drop), Err(OpenError::TooSmall { pages: 200 })));
}

/// A store on a disk of which one page cannot be written any more.
fn with_bad_page(seed: u64, page: impl Fn(&Core) -> PageNumber) -> (Medium, Core) {
    let medium = medium(seed);
    if seed == 40 {
        medium.set_durable_writes(DurableWrites::None);
    }
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    settle(&mut core);
    medium.fail(What::Write, page(&core), u32::MAX);
    (medium, core)
}

#[test]
fn a_page_whose_write_failed_is_not_used_again() {
    for is_staged in [false, true] {
        let (_, mut core) = with_bad_page(40, |core| core.layout.data_page(20));
        let mut failed = 0;
        for at in 0..1000 {
            let request = write_request(ChunkId(1), at % 30 * 4096, &[at as u8; 4096]);
            let Request::Write { chunk, offset, data, crcs, terms, .. } = request else { return };
            let (stage, verified) = (at, true);
            let (mut staged, mut rest) = (None, data);
            if is_staged {
                let (owner, first_slice) = (0, offset / 4096);
                let data = vec![rest.concat()];
                let stage = Request::Stage { stage, owner, chunk, first_slice, data };
                let reply = ask(&mut core, stage);
                assert!(matches!(reply, Reply::Stage { is_staged: true, .. }), "{reply:?}");
                (staged, rest) = (Some(at), Vec::new());
            }
            let data = rest;
            let write = Request::Write { chunk, offset, data, crcs, staged, verified, terms };
            let Reply::Write { result, .. } = ask(&mut core, write) else { panic!("another") };
            match result {
                Ok(_) => {}
                Err(ChangeError::Media(_)) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((failed, core.failure()), (1, None), "is_staged: {is_staged}");
    }
}

#[test]
fn one_page_of_the_log_that_cannot_be_written_stops_nothing() {
    for copy in 0..2 {
        let (medium, mut core) = with_bad_page(41, |core| core.layout.log_slot(copy, 50));
        for at in 0..300u64 {
            write(&mut core, ChunkId(1), at % 8 * 4096, &[at as u8; 4096]);
        }
        assert!(core.commits.log.end.page > 2 * core.layout.log_pages, "the log went round");
        while !(51..54).contains(&(core.commits.log.end.page % core.layout.log_pages)) {
            write(&mut core, ChunkId(1), 0, &[7; 4096]);
        }
        assert_eq!(core.failure(), None);
        // What a restart needs is in the other copy.
        let end = core.commits.log.end;
        medium.end_process();
        drop(core);
        let mut core =
            open(&medium).unwrap_or_else(|error| panic!("copy {copy}, end {end:?}: {error}"));
        assert!(!core.is_damaged(), "copy {copy}");
        assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("sound"), [7; 4096]);
        write(&mut core, ChunkId(1), 0, &[8; 4096]);
    }
}

#[test]
fn a_page_that_neither_copy_of_the_log_takes_stops_all_changes() {
    let (medium, mut core) = with_bad_page(42, |core| core.layout.log_slot(0, 50));
    medium.fail(What::Write, core.layout.log_slot(1, 50), u32::MAX);
    let is_refused = |core: &mut Core| {
        let reply = ask(core, write_request(ChunkId(1), 0, &[1; 4096]));
        matches!(reply, Reply::Write { result: Err(ChangeError::Refused(_)), .. })
    };
    assert!((0..200).any(|_| is_refused(&mut core)));
    let failed = core.failure().expect("it has stopped");
    assert_eq!(failed.step, CommitStep::LogAppend);
}

#[test]
fn a_slice_that_does_not_get_home_is_read_from_memory_and_after_a_restart_from_the_log() {
    let medium = medium(44);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    write(&mut core, ChunkId(1), 0, &[5; 4096]);
    let at = core.layout.data_page(core.map.chunks[&ChunkId(1)].slice(0).page);
    medium.fail(What::Write, at, u32::MAX);
    core.rest();
    settle(&mut core);
    let failed = core.failure().expect("it takes no change any more");
    assert_eq!(failed.step, CommitStep::Home);
    assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("it is in memory"), [5; 4096]);
    drop(core);
    let mut core = open(&medium).expect("the log has it");
    assert_eq!((core.damage(), core.failure()), (&[][..], None));
    assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("it is away again"), [5; 4096]);
}

#[test]
fn a_slice_that_finds_no_room_at_home_stays_away_until_there_is_some() {
    let medium = medium(45);
    let mut core = open_as(&medium, &CoreConfig { is_sparse: true, ..CONFIG }).expect("a new one");
    medium.limit_room(u64::MAX);
    core.measure_room();
    create(&mut core, ChunkId(1));
    write(&mut core, ChunkId(1), 0, &[5; 4096]);
    medium.limit_room(0);
    core.rest();
    settle(&mut core);
    assert_eq!((core.failure(), core.away.is_empty()), (None, false));
    assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("it is in memory"), [5; 4096]);
    let reply = ask(&mut core, write_request(ChunkId(1), 4096, &[6; 4096]));
    let Reply::Write { result, .. } = reply else { panic!("another answer") };
    assert!(matches!(result, Err(ChangeError::Refused(Refused::NoSpace))), "{result:?}");
    medium.limit_room(u64::MAX);
    core.notice_room();
    bring_home(&mut core);
    write(&mut core, ChunkId(1), 4096, &[6; 4096]);
    assert_eq!(read(&mut core, ChunkId(1), 0, 4096).expect("it is at home"), [5; 4096]);
}
