//! One promise each.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_disk::{
    Buffers, Disk, Done, OP_BUFFERS_MAX, OP_PAGES_MAX, Op, PAGE_BYTES, PageNumber, ReadPages,
    Refusal, WritePages,
};
use towpath_memory::{Buf, Pool};

use crate::rigs::{DEPTH, PAGE_COUNT, Rig};

/// Far longer than any operation takes; nothing depends on how long it is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn pool(pages: usize, count: usize) -> Pool {
    Pool::with_count(pages * PAGE_BYTES, count).expect("memory for a test")
}

/// A buffer of the pool, full of `fill`.
pub(crate) fn full(pool: &Pool, fill: u8) -> Buf {
    let mut buf = pool.take().expect("enough buffers for the test");
    buf.set_len(buf.capacity()).expect("its capacity");
    buf.fill(fill);
    buf
}

fn to_write(buf: Buf) -> WritePages {
    WritePages::new(buf).expect("whole pages")
}

fn to_read(buf: Buf) -> ReadPages {
    ReadPages::new(buf).expect("whole pages")
}

/// Takes all that is under way.
pub(crate) fn finish(disk: &mut dyn Disk) -> Vec<Done> {
    let mut done = Vec::new();
    while disk.in_flight() > 0 {
        disk.wait(LONG, &mut done).expect("the system speaks of it");
    }
    done
}

/// Carries out one operation, which succeeds.
pub(crate) fn one(disk: &mut dyn Disk, op: Op) -> Op {
    disk.submit(u64::MAX, op).expect("there is room");
    let done = finish(disk).pop().expect("it was under way");
    done.outcome.expect("it succeeds");
    done.op
}

/// The bytes of `count` pages.
pub(crate) fn read(disk: &mut dyn Disk, at: u64, count: usize) -> Vec<u8> {
    let pool = pool(count, 1);
    let op = one(disk, Op::read(PageNumber(at), to_read(full(&pool, 0xaa))));
    let Op::Read { into, .. } = op else { panic!("it was a read") };
    into[0].to_vec()
}

fn write(disk: &mut dyn Disk, at: u64, buf: Buf) {
    one(disk, Op::write(PageNumber(at), to_write(buf)));
}

pub(crate) fn memory_comes_back_once_with_its_tag(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(1, DEPTH));
    let mut given = BTreeMap::new();
    for tag in 0..DEPTH as u64 {
        let buf = full(&pool, tag as u8);
        given.insert(tag, (buf.as_ptr().addr(), tag % 2 == 0));
        let op = match tag % 2 {
            0 => Op::write(PageNumber(tag), to_write(buf)),
            _ => Op::read(PageNumber(tag), to_read(buf)),
        };
        disk.submit(tag, op).expect("there is room");
    }
    assert_eq!((disk.in_flight(), pool.free()), (DEPTH, 0));
    let done = finish(&mut *disk);
    assert_eq!((done.len(), disk.in_flight()), (DEPTH, 0));
    for done in done {
        done.outcome.expect("it succeeds");
        let at = match &done.op {
            Op::Write { from, .. } => (from[0].as_ptr().addr(), true),
            Op::Read { into, .. } => (into[0].as_ptr().addr(), false),
            other => panic!("{other:?} was not submitted"),
        };
        assert_eq!(given.remove(&done.tag), Some(at), "tag {}", done.tag);
    }
    assert_eq!(pool.free(), DEPTH);
}

pub(crate) fn a_full_queue_gives_the_operation_back(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(1, DEPTH + 1));
    assert_eq!(disk.depth(), DEPTH);
    for tag in 0..DEPTH as u64 {
        let op = Op::read(PageNumber(tag), to_read(full(&pool, 0)));
        disk.submit(tag, op).expect("there is room");
    }
    let buf = full(&pool, 9);
    let op = Op::write(PageNumber(0), to_write(buf));
    let refused = disk.submit(99, op).expect_err("there is none");
    assert_eq!(refused.why, Refusal::QueueFull);
    assert_eq!(finish(&mut *disk).len(), DEPTH, "nothing of it was begun");
    one(&mut *disk, refused.op);
    assert!(read(&mut *disk, 0, 1).iter().all(|byte| *byte == 9));
}

pub(crate) fn what_cannot_be_done_is_refused_with_its_memory(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(2, 1));
    assert_eq!(disk.page_count(), PAGE_COUNT);
    for at in [PAGE_COUNT - 1, PAGE_COUNT, u64::MAX / 4096, u64::MAX - 1, u64::MAX] {
        let reads = Op::read(PageNumber(at), to_read(full(&pool, 0)));
        let refused = disk.submit(1, reads).expect_err("it ends behind the disk");
        assert_eq!((refused.why, refused.op.page_count()), (Refusal::BeyondEnd, 2));
        drop(refused);
        let refused = disk
            .submit(1, Op::write(PageNumber(at), to_write(full(&pool, 0))))
            .expect_err("it ends behind the disk");
        assert_eq!(refused.why, Refusal::BeyondEnd);
    }
    let nothing = Op::write_all(PageNumber(0), Buffers::new());
    assert_eq!(disk.submit(1, nothing).expect_err("no page").why, Refusal::Empty);
    if disk.can_discard() {
        let far = Op::Discard { at: PageNumber(1), count: PAGE_COUNT };
        assert_eq!(disk.submit(1, far).expect_err("too far").why, Refusal::BeyondEnd);
    }
    assert_eq!((disk.in_flight(), pool.free()), (0, 1));
}

pub(crate) fn one_buffer_more_than_a_system_call_takes_at_ease_is_refused(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(1, OP_BUFFERS_MAX + 1));
    let from = (0..=OP_BUFFERS_MAX).map(|at| to_write(full(&pool, at as u8))).collect();
    let op = Op::write_all(PageNumber(3), from);
    let refused = disk.submit(1, op).expect_err("one too many");
    assert_eq!(refused.why, Refusal::TooLong);
    let Op::Write { at, mut from, .. } = refused.op else { panic!("it was a write") };
    from.pop();
    one(&mut *disk, Op::write_all(at, from));
    let bytes = read(&mut *disk, 3, OP_BUFFERS_MAX);
    for (at, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
        assert!(page.iter().all(|byte| *byte == at as u8), "page {at}");
    }
}

pub(crate) fn the_longest_operation_is_carried_out(rig: &dyn Rig) {
    let mut disk = rig.open().expect("it opens");
    let (long, page) = (pool(OP_PAGES_MAX as usize, 1), pool(1, 1));
    let mut buf = full(&long, 0);
    for (at, page) in buf.chunks_exact_mut(PAGE_BYTES).enumerate() {
        page.fill(at as u8);
    }
    let from = Buffers::from_iter([to_write(buf), to_write(full(&page, 1))]);
    let refused = disk.submit(1, Op::write_all(PageNumber(1), from)).expect_err("too long");
    assert_eq!(refused.why, Refusal::TooLong);
    let Op::Write { at, mut from, .. } = refused.op else { panic!("it was a write") };
    from.pop();
    one(&mut *disk, Op::write_all(at, from));
    let op = one(&mut *disk, Op::read(PageNumber(1), to_read(full(&long, 0xaa))));
    let Op::Read { into, .. } = op else { panic!("it was a read") };
    for (at, page) in into[0].chunks_exact(PAGE_BYTES).enumerate() {
        assert!(page.iter().all(|byte| *byte == at as u8), "page {at}");
    }
}

pub(crate) fn a_frozen_buffer_is_written_to_many_places_at_once(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(2, 1));
    let mut buf = full(&pool, 1);
    buf[PAGE_BYTES..].fill(2);
    let frozen = buf.freeze();
    for tag in 0..DEPTH as u64 {
        let half = (tag % 2) as u32;
        let pages = WritePages::part(frozen.clone(), half..half + 1).expect("it has two");
        disk.submit(tag, Op::write(PageNumber(tag), pages)).expect("there is room");
    }
    assert_eq!((frozen[0], frozen[PAGE_BYTES]), (1, 2), "we read it meanwhile");
    for done in finish(&mut *disk) {
        done.outcome.expect("it succeeds");
    }
    drop(frozen.thaw().expect("the disk is done with it"));
    let bytes = read(&mut *disk, 0, DEPTH);
    for (at, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
        assert!(page.iter().all(|byte| *byte == 1 + at as u8 % 2), "page {at}");
    }
}

pub(crate) fn a_part_of_a_buffer_is_read_into_and_the_rest_stays(rig: &dyn Rig) {
    let (mut disk, small, large) = (rig.open().expect("it opens"), pool(1, 1), pool(4, 1));
    write(&mut *disk, 7, full(&small, 5));
    let into = ReadPages::part(full(&large, 9), 2..3).expect("it has four");
    let Op::Read { mut into, .. } = one(&mut *disk, Op::read(PageNumber(7), into)) else {
        panic!("it was a read")
    };
    let buf = into.pop().expect("one buffer").into_buf();
    let seen: Vec<u8> = buf.chunks_exact(PAGE_BYTES).map(|page| page[PAGE_BYTES - 1]).collect();
    assert_eq!(seen, [9, 9, 5, 9]);
}

pub(crate) fn a_wait_ends_without_anything_under_way_and_with_something_done(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(1, 1));
    let mut done = Vec::new();
    assert_eq!(disk.wait(LONG, &mut done).expect("it speaks"), 0, "for nothing nobody waits");
    disk.submit(1, Op::read(PageNumber(0), to_read(full(&pool, 0)))).expect("there is room");
    assert_eq!(disk.wait(LONG, &mut done).expect("it speaks"), 1);
    assert_eq!(disk.poll(&mut done).expect("it speaks"), 0, "it comes once");
    disk.submit(2, Op::Flush).expect("there is room");
    let early = disk.wait(Duration::ZERO, &mut done).expect("it speaks");
    assert_eq!(early + disk.in_flight(), 1, "it is under way until it comes");
    done.extend(finish(&mut *disk));
    let tags: Vec<u64> = done.iter().map(|done| done.tag).collect();
    assert_eq!(tags, [1, 2]);
}

pub(crate) fn a_descriptor_tells_of_all_that_is_done_after_it_was_armed(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(1, DEPTH));
    if disk.descriptor().is_none() {
        return;
    }
    let mut done = Vec::new();
    for round in 0..200u64 {
        for tag in 0..1 + round % 5 {
            let op = match (round + tag) % 3 {
                0 => Op::Flush,
                1 => Op::write(PageNumber(tag), to_write(full(&pool, 1))),
                _ => Op::read(PageNumber(tag), to_read(full(&pool, 1))),
            };
            disk.submit(tag, op).expect("there is room");
        }
        while disk.in_flight() > 0 {
            if disk.arm().expect("it speaks") {
                assert!(disk.poll(&mut done).expect("it speaks") > 0, "it said so");
                continue;
            }
            let descriptor = disk.descriptor().expect("as before");
            let mut files = [PollFd::new(&descriptor, PollFlags::IN)];
            let limit = LONG.try_into().expect("a minute");
            assert_eq!(poll(&mut files, Some(&limit)), Ok(1), "round {round}: a wake-up is lost");
            disk.poll(&mut done).expect("it speaks");
        }
        done.clear();
        assert!(is_quiet_once_armed(&mut *disk), "it is told for ever of what was taken");
    }
}

/// Whether the descriptor of a disk with nothing under way is not readable any more after some
/// times: what was told of it may still be on its way the first ones.
fn is_quiet_once_armed(disk: &mut dyn Disk) -> bool {
    (0..10_000).any(|_| {
        std::thread::yield_now();
        assert!(!disk.arm().expect("it speaks"), "nothing is left");
        let descriptor = disk.descriptor().expect("as before");
        let mut files = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut files, Some(&Timespec::default())) == Ok(0)
    })
}

pub(crate) fn dropping_a_disk_carries_out_what_is_under_way(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(4, DEPTH));
    for tag in 0..DEPTH as u64 {
        let op = Op::write(PageNumber(4 * tag), to_write(full(&pool, 1 + tag as u8)));
        disk.submit(tag, op).expect("there is room");
    }
    drop(disk);
    assert_eq!(pool.free(), DEPTH, "all memory is back");
    let mut disk = rig.open().expect("it opens again");
    let bytes = read(&mut *disk, 0, 4 * DEPTH);
    for (at, page) in bytes.chunks_exact(4 * PAGE_BYTES).enumerate() {
        assert!(page.iter().all(|byte| *byte == 1 + at as u8), "write {at}");
    }
}

pub(crate) fn a_second_opening_is_refused_until_the_first_is_gone(rig: &dyn Rig) {
    let first = rig.open().expect("it opens");
    let error = rig.open().err().expect("the first has it");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(first);
    rig.open().expect("the first is gone");
}

pub(crate) fn discarded_pages_are_zeros_and_others_are_not(rig: &dyn Rig) {
    let (mut disk, pool) = (rig.open().expect("it opens"), pool(8, 1));
    write(&mut *disk, 8, full(&pool, 3));
    let op = Op::Discard { at: PageNumber(10), count: 3 };
    if !disk.can_discard() {
        let refused = disk.submit(1, op).expect_err("it says that it cannot");
        assert_eq!(refused.why, Refusal::CannotDiscard);
        return;
    }
    one(&mut *disk, op);
    let bytes = read(&mut *disk, 8, 8);
    let seen: Vec<u8> = bytes.chunks_exact(PAGE_BYTES).map(|page| page[7]).collect();
    assert_eq!(seen, [3, 3, 0, 0, 0, 3, 3, 3]);
    write(&mut *disk, 8, full(&pool, 4));
    assert!(read(&mut *disk, 8, 8).iter().all(|byte| *byte == 4), "they can be written again");
}

pub(crate) fn what_was_never_written_is_zeros(rig: &dyn Rig) {
    let mut disk = rig.open().expect("it opens");
    assert!(read(&mut *disk, 0, 64).iter().all(|byte| *byte == 0));
    assert!(read(&mut *disk, PAGE_COUNT - 64, 64).iter().all(|byte| *byte == 0));
}
