//! What safe calls must not be able to do: change bytes that somebody has as a slice, let a device
//! reach a buffer that is not lent to it, or take a buffer back that a device still has.
//!
//! Each test is one way in which that was possible before buffers had states. Ways that do not
//! compile any more are in the crate's documentation.

use super::{PD, pool};
use crate::{
    Berth, Buf, Frozen, Lender, MrTable, PAGE_BYTES, Pool, Region, Segment, Shared, SharedMemory,
};
use std::sync::Arc;
use towpath_verbs::{Access, Sge};

/// A device's table, a pool of two buffers that is registered there, and its key.
fn rig() -> (MrTable, Pool, u32) {
    let (mut table, pool) = (MrTable::new(7), pool(2 * PAGE_BYTES, PAGE_BYTES));
    let lkey = table.register(PD, pool.region(), Access::LOCAL).unwrap().lkey;
    (table, pool, lkey)
}

/// An entry that names the first bytes of a buffer: numbers, which anybody can put together.
fn forged(buf: &Buf, lkey: u32) -> Sge {
    Sge { addr: buf.as_ptr() as u64, length: 8, lkey }
}

#[test]
fn a_work_request_cannot_name_a_buffer_that_somebody_owns() {
    let (table, pool, lkey) = rig();
    let owned = pool.take().unwrap();
    for write in [false, true] {
        assert!(table.hold(PD, &forged(&owned, lkey), write).is_none());
    }
    let free = Sge { addr: pool.region().addr() + PAGE_BYTES as u64, length: 8, lkey };
    assert!(table.hold(PD, &free, true).is_none(), "a buffer in the pool is the pool's");
    assert!(!table.covers(PD, &[forged(&owned, lkey)]));
}

#[test]
fn a_work_request_cannot_name_more_than_one_buffer() {
    let (table, pool, lkey) = rig();
    let lent = [(); 2].map(|()| pool.take().unwrap().lend());
    let both = Sge { length: 2 * PAGE_BYTES as u32, ..lent[0].sge(lkey, 0, 8) };
    assert!(table.hold(PD, &both, false).is_none());
    assert!(lent.map(|lent| lent.reclaim().is_ok()).iter().all(|&is_back| is_back));
}

#[test]
fn a_lent_buffer_is_not_taken_back_before_the_device_gives_it_up() {
    let (mut table, pool, lkey) = rig();
    let lent = pool.take().unwrap().lend();
    let sge = lent.sge(lkey, 0, 8);
    let [reads, writes] = [false, true].map(|write| table.hold(PD, &sge, write).unwrap());
    let lent = lent.reclaim().expect_err("a device has it, twice");
    assert!(table.scatter(&reads.whole(), b"x").is_err(), "it was held for reading");
    table.release(reads);
    let lent = lent.reclaim().expect_err("a device writes it");
    assert_eq!(table.scatter(&writes.whole(), b"x"), Ok(()));
    table.release(writes);
    let buf = lent.reclaim().expect("it is given up");
    assert!(table.hold(PD, &sge, false).is_none(), "an entry outlives the lending");
    assert_eq!(pool.free(), 1);
    drop(buf);
    assert_eq!(pool.free(), 2);
}

#[test]
fn a_berth_stays_lent_while_the_device_has_its_buffer_and_then_for_nobody_else() {
    let (mut table, pool, lkey) = rig();
    let mut berth = Berth::new(pool.take().unwrap());
    berth.lend();
    let sge = berth.sge(lkey, 8);
    let hold = table.hold(PD, &sge, true).unwrap();
    assert!(!berth.reclaim() && berth.buf().is_none() && berth.take().is_none());
    table.release(hold);
    assert!(table.hold(PD, &sge, false).is_none(), "the round is over");
    assert!(berth.reclaim() && berth.take().is_some());
}

#[test]
fn what_is_dropped_while_a_device_has_it_is_never_handed_out_again() {
    let (table, pool, lkey) = rig();
    let lent = pool.take().unwrap().lend();
    let _hold = table.hold(PD, &lent.sge(lkey, 0, 8), true).unwrap();
    drop(lent);
    let mut berth = Berth::new(pool.take().unwrap());
    berth.lend();
    let _hold = table.hold(PD, &berth.sge(lkey, 8), true).unwrap();
    berth.reclaim();
    drop(berth);
    assert!(pool.take().is_none());
}

#[test]
fn no_device_writes_what_is_being_sent_and_nobody_gets_it_back_while_one_reads_it() {
    let (mut table, pool, lkey) = rig();
    let bufs = [(); 2].map(|()| Segment::from(filled(&pool)));
    let shared = Shared::new(bufs);
    let (_, sge) = shared.piece(1, 0, 2, lkey).unwrap();
    assert!(table.hold(PD, &sge, true).is_none(), "its owner still looks at it");
    let hold = table.hold(PD, &sge, false).unwrap();
    let shared = shared.reclaim().expect_err("a device reads the second");
    let (_, first) = shared.piece(0, 0, 2, lkey).unwrap();
    let again = table.hold(PD, &first, false).expect("the first is lent as before");
    [hold, again].into_iter().for_each(|hold| table.release(hold));
    let [mut first, _] = shared.reclaim().unwrap().map(|segment| segment.into_buf().unwrap());
    first[0] = b'x';
    assert_eq!(&first[..], b"xbc");
}

#[test]
fn a_frozen_buffer_is_not_changed_nor_handed_out_while_a_device_reads_it() {
    let (mut table, pool, lkey) = rig();
    let frozen = filled(&pool).freeze();
    let sge = Sge { addr: frozen.as_ptr() as u64, length: 3, lkey };
    assert!(table.hold(PD, &sge, true).is_none());
    let hold = table.hold(PD, &sge, false).unwrap();
    let frozen = frozen.thaw().expect_err("a device reads it");
    assert_eq!((&frozen[..], table.gather(&hold.whole())), (&b"abc"[..], Ok(&b"abc"[..])));
    table.release(hold);
    let frozen = frozen.thaw().expect("it is given up").freeze();
    let _hold = table.hold(PD, &sge, false).unwrap();
    drop(frozen);
    assert_eq!(pool.free(), 1, "it is not handed out while a device reads it");
}

/// Lends parts of one buffer.
struct OneBuffer(Buf);

impl Lender for OneBuffer {
    fn buf(&self) -> Option<&Buf> {
        Some(&self.0)
    }

    fn take_back(self: Arc<Self>, _: u32) {}
}

#[test]
fn a_receive_buffer_of_which_a_device_reads_a_part_stays_with_its_lender_for_good() {
    let (mut table, pool, lkey) = rig();
    let lender = Arc::new(OneBuffer(filled(&pool)));
    let sge = forged(&lender.0, lkey);
    assert!(table.hold(PD, &sge, false).is_none(), "no part is out");
    let part = Frozen::part_of(Arc::clone(&lender) as _, 0, 1, 0);
    assert!(table.hold(PD, &sge, true).is_none());
    let hold = table.hold(PD, &sge, false).unwrap();
    drop(part);
    table.release(hold);
    let back = Arc::into_inner(lender);
    assert!(back.is_none(), "whoever got it back could have written under the device's eyes");
}

#[test]
fn two_devices_do_not_reach_the_same_buffer_where_one_writes() {
    let (one, pool, lkey) = rig();
    let mut other = MrTable::new(8);
    let other_key = other.register(PD, pool.region(), Access::LOCAL).unwrap().lkey;
    let lent = pool.take().unwrap().lend();
    let _hold = one.hold(PD, &lent.sge(lkey, 0, 8), false).unwrap();
    assert!(other.hold(PD, &lent.sge(other_key, 8, 8), true).is_none());
    let frozen = filled(&pool).freeze();
    let sge = |lkey| Sge { addr: frozen.as_ptr() as u64, length: 3, lkey };
    let holds = (one.hold(PD, &sge(lkey), false), other.hold(PD, &sge(other_key), false));
    assert!(holds.0.is_some() && holds.1.is_some(), "both may read");
}

#[test]
fn a_table_reaches_nothing_by_the_hold_of_another() {
    let (one, pool, lkey) = rig();
    let mut same = MrTable::new(7);
    assert_eq!(same.register(PD, pool.region(), Access::LOCAL).unwrap().lkey, lkey);
    let lent = pool.take().unwrap().lend();
    let hold = one.hold(PD, &lent.sge(lkey, 0, 8), true).unwrap();
    assert!(same.gather(&hold.whole()).is_err());
    assert!(same.scatter(&hold.whole(), b"x").is_err());
    let theirs = one.hold_as(same.holder(), PD, &lent.sge(lkey, 0, 8), true);
    assert!(theirs.is_none(), "one of them has it");
}

#[test]
fn memory_that_is_deregistered_while_it_is_held_stays_until_it_is_given_up() {
    let (mut table, pool, lkey) = rig();
    let region = pool.region().clone();
    let lent = pool.take().unwrap().lend();
    let hold = table.hold(PD, &lent.sge(lkey, 0, 8), true).unwrap();
    table.deregister(lkey).unwrap();
    assert!(table.gather(&hold.whole()).is_err(), "its key is gone");
    assert!(table.hold(PD, &lent.sge(lkey, 0, 8), false).is_none());
    let lent = lent.reclaim().expect_err("the work request is still there");
    table.release(hold);
    assert!(lent.reclaim().is_ok());
    drop(pool);
    assert!(region.is_shared(), "kept until the next registration looks at it");
    let other = SharedMemory::new(PAGE_BYTES).unwrap();
    table.register_shared(PD, &other, other.whole(), Access::LOCAL).unwrap();
    assert!(!region.is_shared());
}

#[test]
fn buffers_are_not_made_of_memory_that_a_device_has() {
    let (mut table, region) = (MrTable::new(7), Region::new(PAGE_BYTES).unwrap());
    let keys = table.register(PD, &region, Access::LOCAL).unwrap();
    let sge = Sge { addr: region.addr(), length: 8, lkey: keys.lkey };
    let hold = table.hold(PD, &sge, true).expect("nobody owns any of it");
    let region = Buf::from_region(region).expect_err("it is registered");
    table.deregister(keys.lkey).unwrap();
    let region = Buf::from_region(region).expect_err("it is held");
    table.release(hold);
    table.deregister(keys.lkey).unwrap_err();
    let other = SharedMemory::new(PAGE_BYTES).unwrap();
    table.register_shared(PD, &other, other.whole(), Access::LOCAL).unwrap();
    assert!(Buf::from_region(region).is_ok());
}

fn filled(pool: &Pool) -> Buf {
    let mut buf = pool.take().expect("a pool of two");
    buf.extend(b"abc").expect("it fits");
    buf
}
