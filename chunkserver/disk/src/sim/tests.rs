//! Power cuts and faults of the simulated medium.

use std::collections::BTreeSet;
use std::time::Duration;

use towpath_memory::Pool;

use super::*;
use crate::{
    DiskError, DurableWrites, PAGE_BYTES, PageNumber, ReadPages, Refusal, What, WritePages,
};

const PAGES: u64 = 64;

fn pool() -> Pool {
    Pool::with_count(2 * PAGE_BYTES, 64).expect("memory for a test")
}

/// Pages from `at` on, full of `fill`.
fn write(pool: &Pool, at: u64, pages: u32, fill: u8) -> Op {
    let mut buf = pool.take().expect("enough for the test");
    buf.set_len(2 * PAGE_BYTES).expect("its capacity");
    buf.fill(fill);
    Op::write(PageNumber(at), WritePages::part(buf, 0..pages).expect("it fits"))
}

fn finish(disk: &mut SimDisk) -> Vec<Done> {
    let mut done = Vec::new();
    while disk.in_flight() > 0 {
        disk.wait(Duration::from_secs(1), &mut done).expect("it always speaks");
    }
    done
}

fn one(disk: &mut SimDisk, op: Op) -> Result<Op, DiskError> {
    disk.submit(0, op).expect("there is room");
    let done = finish(disk).pop().expect("it was under way");
    done.outcome.map(|()| done.op)
}

/// The page, by its sectors: the byte that each is full of.
fn sectors(disk: &mut SimDisk, at: u64) -> Result<Vec<u8>, DiskError> {
    let buf = pool().take().expect("a fresh pool");
    let into = ReadPages::part(buf, 0..1).expect("it fits");
    let Op::Read { into, .. } = one(disk, Op::read(PageNumber(at), into))? else {
        panic!("it was a read")
    };
    let sector = |bytes: &[u8]| {
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a sector is never torn");
        bytes[0]
    };
    Ok(into[0].chunks_exact(SECTOR_BYTES).map(sector).collect())
}

fn open(medium: &Medium) -> SimDisk {
    medium.open(32).expect("nobody has it")
}

#[test]
fn only_a_flush_after_a_write_was_taken_makes_it_durable() {
    let (medium, pool) = (Medium::new(1, PAGES), pool());
    let mut disk = open(&medium);
    one(&mut disk, write(&pool, 1, 1, 1)).expect("it succeeds");
    one(&mut disk, Op::Flush).expect("it succeeds");
    one(&mut disk, write(&pool, 2, 1, 2)).expect("it succeeds");
    // Under way together: whichever ends first, the flush does not cover the write.
    disk.submit(3, write(&pool, 3, 1, 3)).expect("there is room");
    disk.submit(4, Op::Flush).expect("there is room");
    assert!(finish(&mut disk).iter().all(|done| done.outcome.is_ok()));
    let after_both = medium.fork(1);
    // Done by its time, but not taken.
    disk.submit(5, write(&pool, 4, 1, 4)).expect("there is room");
    medium.advance_to(medium.now() + towpath_base::Nanos::from_secs(1));
    disk.submit(6, Op::Flush).expect("there is room");
    assert!(finish(&mut disk).iter().all(|done| done.outcome.is_ok()));
    for (medium, fills) in [(after_both, [1, 2, 0, 0]), (medium, [1, 2, 3, 0])] {
        medium.power_on(Loss::Everything);
        let mut disk = open(&medium);
        let seen = [1, 2, 3, 4].map(|page| sectors(&mut disk, page).expect("it reads"));
        assert_eq!(seen, fills.map(|fill| [fill; 8]));
    }
}

#[test]
fn a_power_cut_leaves_any_subset_of_what_is_not_durable_torn_at_sectors() {
    let (medium, pool) = (Medium::new(2, PAGES), pool());
    let mut disk = open(&medium);
    one(&mut disk, write(&pool, 0, 2, 1)).expect("it succeeds");
    one(&mut disk, Op::Flush).expect("it succeeds");
    one(&mut disk, write(&pool, 0, 1, 2)).expect("it succeeds");
    one(&mut disk, write(&pool, 1, 1, 3)).expect("it succeeds");
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        println!("seed {seed}");
        let medium = medium.fork(seed);
        medium.power_on(Loss::Scattered);
        let mut disk = open(&medium);
        let pages = [0, 1].map(|page| sectors(&mut disk, page).expect("it reads"));
        let kind = |page: &Vec<u8>, new: u8| match page.iter().filter(|s| **s == new).count() {
            0 => "absent",
            8 => "there",
            _ => "torn",
        };
        assert!(pages[0].iter().all(|s| [1, 2].contains(s)), "{pages:?}");
        assert!(pages[1].iter().all(|s| [1, 3].contains(s)), "{pages:?}");
        seen.insert((kind(&pages[0], 2), kind(&pages[1], 3)));
    }
    assert_eq!(seen.len(), 9, "each of three with each of three: {seen:?}");
}

#[test]
fn a_suffix_that_is_lost_begins_at_any_sector_of_any_write() {
    let (medium, pool) = (Medium::new(3, PAGES), pool());
    let mut disk = open(&medium);
    for at in 0..8 {
        one(&mut disk, write(&pool, 2 * at, 2, 1)).expect("it succeeds");
    }
    let mut lengths = BTreeSet::new();
    for seed in 0..1_000 {
        println!("seed {seed}");
        let medium = medium.fork(seed);
        medium.power_on(Loss::Suffix);
        let mut disk = open(&medium);
        let read = |page| sectors(&mut disk, page).expect("it reads");
        let all: Vec<u8> = (0..16).flat_map(read).collect();
        let kept = all.iter().take_while(|sector| **sector == 1).count();
        assert!(all[kept..].iter().all(|sector| *sector == 0), "{all:?}");
        lengths.insert(kept);
    }
    assert!(lengths.len() > 100 && lengths.contains(&0) && lengths.contains(&128), "{lengths:?}");
}

/// A write, a flush, a second write over the first and a flush, with what was known to be durable.
fn history(medium: &Medium, pool: &Pool) -> u8 {
    let mut disk = open(medium);
    let mut durable = 0;
    for fill in 1..=2 {
        let outcome = one(&mut disk, write(pool, 5, 2, fill));
        if outcome.and_then(|_| one(&mut disk, Op::Flush)).is_err() {
            break;
        }
        durable = fill;
    }
    durable
}

#[test]
fn at_each_boundary_of_a_power_cut_what_was_durable_is_there_and_all_else_fails() {
    let pool = pool();
    let whole = Medium::new(4, PAGES);
    assert_eq!(history(&whole, &pool), 2);
    assert_eq!(whole.events(), 8, "four operations, each of which begins and is done");
    let mut durable_at = Vec::new();
    for event in 1..=9 {
        for (seed, loss) in
            [Loss::Nothing, Loss::Everything, Loss::Suffix, Loss::Scattered].into_iter().enumerate()
        {
            println!("event {event}, seed {seed}, {loss:?}");
            let medium = Medium::new(seed as u64, PAGES);
            medium.cut_power_at(event);
            let durable = history(&medium, &pool);
            assert_eq!(medium.is_off(), event <= 8);
            medium.power_on(loss);
            let page = sectors(&mut open(&medium), 5).expect("it reads");
            assert!(page.iter().all(|sector| *sector >= durable), "{page:?}, not {durable}");
            if loss == Loss::Everything {
                assert_eq!(page, [durable; 8]);
                durable_at.push(durable);
            }
            if loss == Loss::Nothing {
                assert_eq!(page, [1 + u8::from(event > 4); 8], "all that was begun");
            }
        }
    }
    assert_eq!(durable_at, [0, 0, 0, 0, 1, 1, 1, 1, 2]);
    assert_eq!(pool.free(), 64, "all memory is back");
}

#[test]
fn the_second_write_of_a_sector_is_never_replaced_by_the_first() {
    let (medium, pool) = (Medium::new(5, PAGES), pool());
    let mut disk = open(&medium);
    for fill in 1..=3 {
        one(&mut disk, write(&pool, 5, 1, fill)).expect("it succeeds");
    }
    let unflushed = medium.fork(0);
    one(&mut disk, Op::Flush).expect("it succeeds");
    for (medium, loss) in [(unflushed, Loss::Nothing), (medium, Loss::Everything)] {
        medium.power_on(loss);
        assert_eq!(sectors(&mut open(&medium), 5).expect("it reads"), [3; 8], "{loss:?}");
    }
}

#[test]
fn after_a_flush_that_failed_nothing_changes_and_a_new_opening_sees_what_may_be_lost() {
    let mut kept = BTreeSet::new();
    for seed in 0..40 {
        println!("seed {seed}");
        let (medium, pool) = (Medium::new(seed, PAGES), pool());
        let mut disk = open(&medium);
        medium.fail_flush(1);
        one(&mut disk, write(&pool, 1, 1, 1)).expect("it succeeds");
        one(&mut disk, Op::Flush).expect("the first succeeds");
        one(&mut disk, write(&pool, 1, 1, 2)).expect("it succeeds");
        disk.submit(7, Op::Flush).expect("there is room");
        disk.submit(8, Op::Flush).expect("there is room");
        let done = finish(&mut disk);
        assert!(done[0].outcome.is_err() && done[1].outcome.is_err(), "the other is no proof");
        for op in [Op::Flush, write(&pool, 1, 1, 3), Op::Discard { at: PageNumber(1), count: 1 }] {
            let refused = disk.submit(9, op).expect_err("the disk takes no changes");
            assert_eq!(refused.why, Refusal::FlushFailed);
        }
        assert_eq!(sectors(&mut disk, 1).expect("it is read on"), [2; 8]);
        drop(disk);
        let mut disk = open(&medium);
        one(&mut disk, Op::Flush).expect("it succeeds, and flushes nothing");
        assert_eq!(sectors(&mut disk, 1).expect("it reads"), [2; 8]);
        medium.power_on(Loss::Nothing);
        kept.extend(sectors(&mut open(&medium), 1).expect("it reads"));
    }
    assert_eq!(kept, [1, 2].into());
}

#[test]
fn operations_under_way_end_in_any_order() {
    let (medium, pool) = (Medium::new(6, PAGES), pool());
    let mut disk = open(&medium);
    for tag in 0..20 {
        disk.submit(tag, write(&pool, tag, 1, 1)).expect("there is room");
    }
    let tags: Vec<u64> = finish(&mut disk).iter().map(|done| done.tag).collect();
    assert!(!tags.is_sorted(), "{tags:?}");
    assert_eq!(tags.iter().copied().collect::<BTreeSet<_>>(), (0..20).collect());
}

#[test]
fn reads_and_writes_fail_as_often_as_told_and_spoiled_pages_until_they_are_written() {
    let (medium, pool) = (Medium::new(7, PAGES), pool());
    let mut disk = open(&medium);
    one(&mut disk, write(&pool, 4, 2, 1)).expect("it succeeds");
    medium.fail(What::Read, PageNumber(5), 2);
    assert_eq!(sectors(&mut disk, 4).expect("another page"), [1; 8]);
    for _ in 0..2 {
        let error = sectors(&mut disk, 5).expect_err("as told");
        assert_eq!((error.what, error.at, error.is_full()), (What::Read, PageNumber(5), false));
    }
    assert_eq!(sectors(&mut disk, 5).expect("twice is over"), [1; 8]);
    medium.fail(What::Write, PageNumber(5), 1);
    one(&mut disk, write(&pool, 4, 2, 2)).expect_err("as told");
    let page = sectors(&mut disk, 5).expect("it reads");
    assert!(page.iter().all(|sector| [1, 2].contains(sector)), "{page:?}");
    medium.spoil(PageNumber(5));
    medium.power_on(Loss::Nothing);
    let mut disk = open(&medium);
    sectors(&mut disk, 5).expect_err("a power cut heals nothing");
    one(&mut disk, write(&pool, 5, 1, 3)).expect("it succeeds");
    assert_eq!(sectors(&mut disk, 5).expect("it was written"), [3; 8]);
}

#[test]
fn mistreated_writes_are_reported_as_done() {
    let (medium, pool) = (Medium::new(8, PAGES), pool());
    let mut disk = open(&medium);
    medium.mistreat_write(10..12, 1, Mischief::Lost);
    one(&mut disk, write(&pool, 9, 1, 1)).expect("another page");
    one(&mut disk, write(&pool, 10, 1, 1)).expect("one passes");
    one(&mut disk, write(&pool, 10, 2, 2)).expect("nobody is told");
    assert_eq!(sectors(&mut disk, 10).expect("it reads"), [1; 8]);
    medium.mistreat_write(10..12, 0, Mischief::Misdirected(PAGES - 4));
    one(&mut disk, write(&pool, 11, 1, 3)).expect("nobody is told");
    let read = |disk: &mut SimDisk, page| sectors(disk, page).expect("it reads")[0];
    assert_eq!((read(&mut disk, 11), read(&mut disk, 7)), (0, 3), "past the end to the start");
    medium.mistreat_write(10..12, 0, Mischief::Torn);
    one(&mut disk, write(&pool, 10, 1, 4)).expect("nobody is told");
    let page = sectors(&mut disk, 10).expect("it reads");
    assert!(page.contains(&1) && page.iter().all(|sector| [1, 4].contains(sector)), "{page:?}");
    one(&mut disk, write(&pool, 10, 1, 5)).expect("it succeeds");
    assert_eq!(read(&mut disk, 10), 5, "once is over");
    medium.flip_bit(10 * PAGE_BYTES as u64 + 600);
    let into = ReadPages::part(pool.take().expect("enough"), 0..1).expect("it fits");
    let op = one(&mut disk, Op::read(PageNumber(10), into)).expect("it reads");
    let Op::Read { into, .. } = op else { panic!("it was a read") };
    assert_eq!(into[0].iter().position(|byte| *byte != 5), Some(600));
}

#[test]
fn a_sparse_file_without_room_takes_only_what_it_has_room_for_until_pages_are_discarded() {
    let (medium, pool) = (Medium::new(9, PAGES), pool());
    let mut disk = open(&medium);
    assert_eq!(disk.free_bytes().expect("it says so"), 0, "all room is the disk's own");
    medium.limit_room(3 * PAGE_BYTES as u64);
    one(&mut disk, write(&pool, 0, 2, 1)).expect("there is room");
    assert_eq!(disk.free_bytes().expect("it says so"), PAGE_BYTES as u64);
    let error = one(&mut disk, write(&pool, 2, 2, 1)).expect_err("there is room for one");
    assert!(error.is_full(), "{error}");
    one(&mut disk, write(&pool, 0, 2, 2)).expect("it has its room");
    one(&mut disk, Op::Discard { at: PageNumber(0), count: 1 }).expect("it succeeds");
    one(&mut disk, write(&pool, 3, 1, 1)).expect("there is room again");
    assert_eq!(disk.free_bytes().expect("it says so"), 0);
}

#[test]
fn a_process_that_ends_loses_nothing_that_was_done_and_some_of_what_was_under_way() {
    let (medium, pool) = (Medium::new(10, PAGES), pool());
    let mut disk = open(&medium);
    one(&mut disk, write(&pool, 0, 1, 1)).expect("it succeeds");
    for at in 1..21 {
        disk.submit(at, write(&pool, at, 1, 1)).expect("there is room");
    }
    medium.end_process();
    assert!(finish(&mut disk).iter().all(|done| done.outcome.is_err()), "it has ended");
    let mut next = open(&medium);
    drop(disk);
    let read = |page| sectors(&mut next, page).expect("it reads")[0];
    let seen: Vec<u8> = (0..21).map(read).collect();
    assert!(seen[0] == 1 && seen.contains(&0) && seen[1..].contains(&1), "{seen:?}");
    drop(next);
    medium.power_on(Loss::Everything);
    assert_eq!(sectors(&mut open(&medium), 0).expect("it reads"), [0; 8], "nobody flushed it");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let run = |seed| {
        let (medium, pool) = (Medium::new(seed, PAGES), pool());
        let mut disk = open(&medium);
        for tag in 0..20 {
            disk.submit(tag, write(&pool, tag, 1, 1)).expect("there is room");
        }
        let tags: Vec<u64> = finish(&mut disk).iter().map(|done| done.tag).collect();
        medium.power_on(Loss::Scattered);
        let mut disk = open(&medium);
        let read = |page| sectors(&mut disk, page).expect("it reads");
        (tags, (0..20).flat_map(read).collect::<Vec<_>>())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

#[test]
fn a_durable_write_outlives_the_power_and_says_nothing_of_others() {
    let (medium, pool) = (Medium::new(11, PAGES), pool());
    let mut disk = open(&medium);
    one(&mut disk, write(&pool, 1, 1, 1)).expect("it succeeds");
    one(&mut disk, write(&pool, 2, 1, 1)).expect("it succeeds");
    one(&mut disk, durably(write(&pool, 2, 1, 2))).expect("it succeeds");
    for loss in [Loss::Everything, Loss::Suffix, Loss::Scattered, Loss::Nothing] {
        let after = medium.fork(3);
        after.power_on(loss);
        let mut disk = open(&after);
        assert_eq!(sectors(&mut disk, 2).expect("it reads"), [2; 8], "{loss:?}");
        if loss == Loss::Everything {
            assert_eq!(sectors(&mut disk, 1).expect("it reads"), [0; 8]);
        }
    }
}

#[test]
fn a_durable_write_may_flush_all_that_was_done_before_it() {
    let (medium, pool) = (Medium::new(13, PAGES), pool());
    medium.set_durable_writes(DurableWrites::AndAllBefore);
    let mut disk = open(&medium);
    one(&mut disk, write(&pool, 1, 1, 1)).expect("it succeeds");
    disk.submit(1, write(&pool, 2, 1, 1)).expect("there is room");
    disk.submit(2, durably(write(&pool, 3, 1, 1))).expect("there is room");
    assert!(finish(&mut disk).iter().all(|done| done.outcome.is_ok()));
    medium.power_on(Loss::Everything);
    let mut disk = open(&medium);
    let seen = [1, 2, 3].map(|page| sectors(&mut disk, page).expect("it reads")[0]);
    assert_eq!(seen, [1, 0, 1], "the second was under way");
}

#[test]
fn what_fails_of_a_durable_write_is_told_apart() {
    let (medium, pool) = (Medium::new(12, PAGES), pool());
    let mut disk = open(&medium);
    medium.fail(What::Write, PageNumber(3), 1);
    let error = one(&mut disk, durably(write(&pool, 3, 1, 1))).expect_err("a bad sector");
    assert!(!error.is_final(), "{error}");
    one(&mut disk, durably(write(&pool, 4, 1, 1))).expect("other sectors are good");
    medium.fail_flush(0);
    let error = one(&mut disk, durably(write(&pool, 5, 1, 1))).expect_err("it does not last");
    assert!(error.is_final(), "{error}");
    let refused = disk.submit(1, write(&pool, 6, 1, 1)).expect_err("it takes no change");
    assert_eq!(refused.why, Refusal::FlushFailed);
}

fn durably(op: Op) -> Op {
    let Op::Write { at, from, .. } = op else { panic!("it is a write") };
    Op::write_durably(at, from)
}
