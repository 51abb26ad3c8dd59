//! Tests of regions, buffers and keys.

mod sound;

use crate::{
    Berth, Buf, MemoryError, MrTable, NotTaken, PAGE_BYTES, Pool, Region, Room, SharedMemory,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use towpath_verbs::{Access, PdNum, RemoteAddr, SgList, Sge, Verb, VerbError};

const PD: PdNum = PdNum::DEFAULT;

fn pool(bytes: usize, buf_bytes: usize) -> Pool {
    Pool::new(Region::new(bytes).expect("memory for a test"), buf_bytes)
}

#[test]
fn a_pool_hands_out_each_buffer_once_and_takes_it_back_on_drop() {
    let pool = pool(4 * PAGE_BYTES, PAGE_BYTES);
    let mut out: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((out.len(), pool.free()), (4, 0));
    for (i, buf) in out.iter_mut().enumerate() {
        buf.set_len(PAGE_BYTES).unwrap();
        buf.fill(i as u8);
        assert_eq!(buf.as_ptr() as usize % PAGE_BYTES, 0);
    }
    for (i, buf) in out.iter().enumerate() {
        assert!(buf.iter().all(|&b| b == i as u8), "no two buffers overlap");
    }
    out.pop();
    assert_eq!(pool.free(), 1);
}

#[test]
fn a_lent_buffer_comes_back_whole_and_a_dropped_one_is_never_handed_out_again() {
    let pool = pool(2 * PAGE_BYTES, PAGE_BYTES);
    let mut buf = pool.take().unwrap();
    buf.extend(b"abc").unwrap();
    assert_eq!(&buf.lend().reclaim().unwrap()[..], b"abc");
    assert_eq!(pool.free(), 2);
    drop(pool.take().unwrap().lend());
    assert_eq!(pool.free(), 1);
}

#[test]
fn a_buffer_refuses_more_than_it_holds_and_keeps_what_it_had() {
    let pool = pool(PAGE_BYTES, PAGE_BYTES);
    let mut buf = pool.take().unwrap();
    buf.set_len(PAGE_BYTES - 1).unwrap();
    let error = MemoryError::TooLong { wanted: PAGE_BYTES + 1, capacity: PAGE_BYTES };
    assert_eq!(buf.extend(b"ab"), Err(error));
    assert_eq!(buf.len(), PAGE_BYTES - 1);
    assert_eq!(buf.extend(b"a"), Ok(()));
}

#[test]
fn a_buffer_whose_pages_went_back_reads_as_zeroes_and_its_neighbours_keep_theirs() {
    let pool = pool(3 * 2 * PAGE_BYTES, 2 * PAGE_BYTES);
    let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    for buf in &mut bufs {
        buf.set_len(2 * PAGE_BYTES).unwrap();
        buf.fill(7);
    }
    bufs[1].give_back_pages();
    assert!(bufs[1].is_empty());
    bufs[1].set_len(2 * PAGE_BYTES).unwrap();
    assert!(bufs[1].iter().all(|&byte| byte == 0));
    assert!([0, 2].iter().all(|&at| bufs[at].iter().all(|&byte| byte == 7)));
    bufs[1].fill(8);
    assert!(bufs[1].iter().all(|&byte| byte == 8), "it can be used again");
}

#[test]
fn keys_reach_their_region_to_the_last_byte_and_not_beyond() {
    let pool = pool(PAGE_BYTES, PAGE_BYTES);
    let mut table = MrTable::new(7);
    let keys = table.register(PD, pool.region(), Access::LOCAL).unwrap();
    let lent = pool.take().unwrap().lend();
    let sge = lent.sge(keys.lkey, 0, PAGE_BYTES);
    let hold = table.hold(PD, &sge, true).unwrap();
    let behind = |skip| hold.whole().part(PAGE_BYTES as u32 - skip, u32::MAX);
    assert_eq!(table.scatter(&behind(2), b"xy"), Ok(()));
    let bad = VerbError::BadMemory(Verb::PostRecv);
    assert_eq!(table.scatter(&behind(1), b"xy"), Err(bad));
    assert_eq!(&table.gather(&hold.whole()).unwrap()[PAGE_BYTES - 2..], b"xy");
    let past = Sge { length: PAGE_BYTES as u32 + 1, ..sge };
    assert!(table.hold(PD, &past, false).is_none());
    let wrapping = Sge { addr: u64::MAX, length: 2, lkey: keys.lkey };
    assert!(table.hold(PD, &wrapping, false).is_none());
    table.release(hold);
    assert!(lent.reclaim().is_ok());
}

#[test]
fn a_key_that_outlived_its_region_does_not_reach_the_next_one() {
    let (first, second) = (pool(PAGE_BYTES, PAGE_BYTES), pool(PAGE_BYTES, PAGE_BYTES));
    let mut table = MrTable::new(7);
    let old = table.register(PD, first.region(), Access::LOCAL).unwrap();
    table.deregister(old.lkey).unwrap();
    let new = table.register(PD, second.region(), Access::LOCAL).unwrap();
    assert_eq!(old.lkey & 0xffff, new.lkey & 0xffff, "the place is used again");
    assert_eq!(table.deregister(old.lkey), Err(VerbError::NoSuchObject(Verb::DeregMr)));
}

#[test]
fn a_peer_writes_only_where_remote_write_was_granted() {
    let open = SharedMemory::new(PAGE_BYTES).unwrap();
    let closed = Region::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new(7);
    let open_keys = table.register_shared(PD, &open, open.whole(), Access::REMOTE_WRITE).unwrap();
    let closed_keys = table.register(PD, &closed, Access::LOCAL).unwrap();
    let at = |addr, rkey, skip| RemoteAddr { addr: addr + skip, rkey };
    assert_eq!(table.remote_write(PD, at(open.addr(), open_keys.rkey, 4090), b"peer"), Ok(()));
    let mut read = [0; 4];
    open.read(4090, &mut read).unwrap();
    assert_eq!(&read, b"peer");
    assert!(table.remote_write(PD, at(open.addr(), open_keys.rkey, 4093), b"peer").is_err());
    assert!(table.remote_write(PD, at(closed.addr(), closed_keys.rkey, 0), b"peer").is_err());
}

#[test]
fn bytes_go_from_one_region_to_another_piece_by_piece_and_never_past_an_end() {
    let (mut from, mut to) = (MrTable::new(7), MrTable::new(7));
    let (source, target) = (pool(PAGE_BYTES, PAGE_BYTES), pool(PAGE_BYTES, PAGE_BYTES));
    let from_key = from.register(PD, source.region(), Access::LOCAL).unwrap().lkey;
    let to_key = to.register(PD, target.region(), Access::LOCAL).unwrap().lkey;
    let mut buf = source.take().unwrap();
    buf.extend(b"abcdef").unwrap();
    let (source, target) = (buf.lend(), target.take().unwrap().lend());
    let mut list = SgList::two(target.sge(to_key, 0, 4), target.sge(to_key, 10, 4));
    let _ = list.push(target.sge(to_key, 20, 0));
    let mut holds = to.hold_list(PD, &list).unwrap();
    let send = SgList::two(source.sge(from_key, 0, 5), source.sge(from_key, 5, 1));
    let mut room = Room::of_receive(&mut to, &holds);
    assert!(from.copy_to(PD, &send, &mut room) && !room.is_gone());
    assert!(from.covers(PD, &send));
    // What finds no room stays where it is.
    assert!(from.copy_to(PD, &send, &mut room));
    let foreign = source.sge(from_key ^ 1, 0, 6);
    assert!(!from.copy_to(PD, &[foreign], &mut room) && !from.covers(PD, &[foreign]));
    assert!(from.hold(PD, &foreign, true).is_none());
    to.release_each(&mut holds);
    let mut landed = target.reclaim().unwrap();
    landed.set_len(15).unwrap();
    assert_eq!(&landed[..], b"abcd\0\0\0\0\0\0efab\0");
    assert!(source.reclaim().is_ok());
    let remote = RemoteAddr { addr: landed.region().addr(), rkey: to_key };
    assert!(Room::of_write(&mut to, PD, remote, 1).is_none(), "not open to peers");
    assert!(Room::of_write(&mut to, PD, remote, 0).is_some(), "it reaches nothing");
}

#[test]
fn what_is_read_by_the_way_is_held_as_what_a_work_request_names() {
    let (mut from, pool) = (MrTable::new(7), pool(2 * PAGE_BYTES, PAGE_BYTES));
    let lkey = from.register(PD, pool.region(), Access::LOCAL).unwrap().lkey;
    let memory = SharedMemory::new(PAGE_BYTES).unwrap();
    let mut to = MrTable::new(8);
    let rkey = to.register_shared(PD, &memory, memory.whole(), Access::REMOTE_WRITE).unwrap().rkey;
    let remote = RemoteAddr { addr: memory.addr(), rkey };
    let mut copies = |pd, sge: Sge| {
        let mut room = Room::of_write(&mut to, PD, remote, 8).unwrap();
        from.copy_to(pd, &[sge], &mut room)
    };
    let mut berth = Berth::new(pool.take().unwrap());
    berth.buf_mut().unwrap().extend(b"a berth").unwrap();
    // From the thread that uses the region as a rule, and from another.
    for is_elsewhere in [false, true, false] {
        berth.lend();
        let sge = berth.sge(lkey, 7);
        let mut copies_there = |pd| match is_elsewhere {
            false => copies(pd, sge),
            true => thread::scope(|s| s.spawn(|| copies(pd, sge)).join()).unwrap(),
        };
        assert!(!copies_there(PdNum(9)), "of another domain");
        // Several entries of a work request may name parts of one buffer.
        assert!(copies_there(PD) && copies_there(PD));
        assert!(berth.reclaim());
        assert!(!copies(PD, sge), "it has its owner");
    }
    let mut landed = [0; 7];
    memory.read(0, &mut landed).unwrap();
    assert_eq!(&landed, b"a berth");
    let lent = pool.take().unwrap().lend();
    assert!([(); 3].iter().all(|()| copies(PD, lent.sge(lkey, 0, 8))), "until it is taken back");
    assert!(!copies(PD, Sge { length: 2 * PAGE_BYTES as u32, ..lent.sge(lkey, 0, 8) }));
    assert!(lent.reclaim().is_ok());
}

/// A device asks this for each send that it drops. Several entries may name one buffer.
#[test]
fn a_check_of_what_a_send_names_leaves_it_lent() {
    let (mut table, pool) = (MrTable::new(7), pool(PAGE_BYTES, PAGE_BYTES));
    let lkey = table.register(PD, pool.region(), Access::LOCAL).unwrap().lkey;
    let mut berth = Berth::new(pool.take().unwrap());
    berth.buf_mut().unwrap().extend(b"a berth").unwrap();
    assert!(berth.lend());
    let sge = berth.sge(lkey, 7);
    let covers = || table.covers(PD, &[sge, sge]);
    assert!(covers() && covers());
    assert!(thread::scope(|s| s.spawn(covers).join()).unwrap(), "from another thread");
    let hold = table.hold(PD, &sge, false).expect("it is still lent");
    assert!(covers(), "a work request of the same device holds it");
    table.release(hold);
    assert!(berth.reclaim());
    assert!(!table.covers(PD, &[sge]), "its owner has it");
}

#[test]
fn a_peer_reads_only_where_remote_read_was_granted() {
    let open = SharedMemory::new(PAGE_BYTES).unwrap();
    open.write(4090, b"served").unwrap();
    let closed = SharedMemory::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new(7);
    let readable = Access { remote_read: true, ..Access::default() };
    let open_keys = table.register_shared(PD, &open, open.whole(), readable).unwrap();
    let closed_keys =
        table.register_shared(PD, &closed, closed.whole(), Access::REMOTE_WRITE).unwrap();
    let at = |addr, rkey, skip| RemoteAddr { addr: addr + skip, rkey };
    let mut out = [0; 6];
    let whole = at(open.addr(), open_keys.rkey, 4090);
    assert!(table.allows_remote_read(PD, whole, 6) && !table.allows_remote_read(PD, whole, 7));
    assert_eq!(table.remote_read(PD, whole, &mut out), Ok(()));
    assert_eq!(&out, b"served");
    assert!(table.remote_read(PD, at(open.addr(), open_keys.rkey, 4091), &mut out).is_err());
    let other = at(closed.addr(), closed_keys.rkey, 0);
    assert!(
        !table.allows_remote_read(PD, other, 1) && table.remote_read(PD, other, &mut out).is_err()
    );
}

#[test]
fn an_atomic_needs_its_grant_its_alignment_and_eight_bytes() {
    let open = SharedMemory::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new(7);
    let granted = Access { remote_atomic: true, ..Access::default() };
    let rkey = table.register_shared(PD, &open, open.whole(), granted).unwrap().rkey;
    let plain = table.register_shared(PD, &open, open.whole(), Access::REMOTE_WRITE).unwrap().rkey;
    let at = |rkey, skip| RemoteAddr { addr: open.addr() + skip, rkey };
    assert_eq!(table.remote_atomic(PD, at(rkey, 4088), |was| was.wrapping_add(7)), Ok(0));
    assert_eq!(table.remote_atomic(PD, at(rkey, 4088), |was| was.wrapping_sub(8)), Ok(7));
    let mut read = [0; 8];
    open.read(4088, &mut read).unwrap();
    assert_eq!(u64::from_ne_bytes(read), u64::MAX);
    let misaligned = Err(VerbError::BadArgument(Verb::PostSend));
    assert_eq!(table.remote_atomic(PD, at(rkey, 4084), |was| was), misaligned);
    let bad = Err(VerbError::BadMemory(Verb::PostSend));
    assert_eq!(table.remote_atomic(PD, at(rkey, 4092), |was| was), bad);
    assert_eq!(table.remote_atomic(PD, at(plain, 4088), |was| was), bad);
}

#[test]
fn a_region_is_never_open_to_peers() {
    let pool = pool(PAGE_BYTES, PAGE_BYTES);
    let mut table = MrTable::new(7);
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ALL] {
        let refused = Err(VerbError::BadArgument(Verb::RegMr));
        assert_eq!(table.register(PD, pool.region(), access), refused);
    }
}

#[test]
fn no_queue_pair_reaches_memory_of_another_domain() {
    let memory = SharedMemory::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new(7);
    let [ours, theirs] = [(); 2].map(|()| table.alloc_pd().unwrap());
    let keys = table.register_shared(ours, &memory, 8..16, Access::REMOTE_ALL).unwrap();
    let remote = RemoteAddr { addr: memory.addr() + 8, rkey: keys.rkey };
    let local = Sge { addr: memory.addr() + 8, length: 8, lkey: keys.lkey };
    for pd in [PdNum::DEFAULT, theirs, ours] {
        let may = pd == ours;
        assert_eq!(table.remote_read(pd, remote, &mut [0; 8]).is_ok(), may);
        assert_eq!(table.remote_write(pd, remote, &[0; 8]).is_ok(), may);
        assert_eq!(table.remote_atomic(pd, remote, |was| was).is_ok(), may);
        assert_eq!(Room::of_write(&mut table, pd, remote, 8).is_some(), may);
        assert_eq!(table.hold(pd, &local, true).is_some(), may);
    }
    for (skip, len) in [(-1_i64, 1), (-1, 8), (0, 9), (1, 8), (8, 1)] {
        let remote = RemoteAddr { addr: remote.addr.wrapping_add_signed(skip), ..remote };
        assert!(!table.allows_remote_read(ours, remote, len), "{skip} {len}");
    }
    let in_use = Err(VerbError::BadArgument(Verb::DeallocPd));
    assert_eq!(table.dealloc_pd(ours), in_use);
    table.deregister(keys.rkey).unwrap();
    assert!(table.remote_read(ours, remote, &mut [0; 8]).is_err());
    assert_eq!(table.dealloc_pd(ours), Ok(()));
    let gone = Err(VerbError::NoSuchObject(Verb::DeallocPd));
    assert_eq!((table.dealloc_pd(ours), table.dealloc_pd(PdNum::DEFAULT)), (gone, gone));
    assert_eq!(table.alloc_pd(), Ok(ours), "its number is free again");
}

#[test]
fn a_registered_range_is_not_empty_and_within_its_memory() {
    let memory = SharedMemory::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new(7);
    let bad = Err(VerbError::BadArgument(Verb::RegMr));
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may name one")]
    for range in [0..0, 8..4, 0..PAGE_BYTES + 1, PAGE_BYTES..PAGE_BYTES + 1, 9..usize::MAX] {
        let got = table.register_shared(PD, &memory, range.clone(), Access::LOCAL);
        assert_eq!(got, bad, "{range:?}");
    }
    let nowhere = table.register_shared(PdNum(9), &memory, 0..1, Access::LOCAL);
    assert_eq!(nowhere, Err(VerbError::NoSuchObject(Verb::RegMr)));
}

/// Says when it is dropped.
struct Owner(Arc<AtomicBool>, #[expect(dead_code, reason = "the bytes")] Vec<u64>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn memory_of_the_callers_is_used_as_it_is_and_given_back_when_the_last_user_is_gone() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let mut bytes = vec![0_u64; 16];
    let start = std::ptr::NonNull::new(bytes.as_mut_ptr().cast::<u8>()).unwrap();
    let owner = || Box::new(Owner(Arc::default(), Vec::new()));
    for (skip, len) in [(1, 8), (0, 9), (4, 8)] {
        // SAFETY: refused, so that nothing is reached.
        let refused = unsafe { SharedMemory::from_raw_parts(start.add(skip), len, owner()) };
        assert!(matches!(refused, Err(MemoryError::Misaligned { align: 8 })), "{skip} {len}");
    }
    // SAFETY: the owner has the bytes, and nobody else reaches them.
    let memory = unsafe {
        SharedMemory::from_raw_parts(start, 128, Box::new(Owner(Arc::clone(&is_gone), bytes)))
    };
    let memory = memory.unwrap();
    let mut table = MrTable::new(7);
    let key = table.register_shared(PD, &memory, memory.whole(), Access::LOCAL).unwrap().lkey;
    memory.write(3, b"abc").unwrap();
    let at = Sge { addr: memory.addr() + 3, length: 3, lkey: key };
    let mut out = [0; 3];
    let hold = table.hold(PD, &at, false).unwrap();
    table.gather_into(&hold.whole(), &mut out).unwrap();
    assert_eq!(&out, b"abc");
    assert!(table.gather(&hold.whole()).is_err(), "there is no slice of it");
    drop(memory);
    assert!(!is_gone.load(Ordering::Relaxed), "it is registered");
    table.deregister(key).unwrap();
    assert!(is_gone.load(Ordering::Relaxed));
}

#[test]
fn a_word_is_aligned_and_inside() {
    let memory = SharedMemory::new(PAGE_BYTES).unwrap();
    memory.word(8).unwrap().store(5, Ordering::Relaxed);
    let mut bytes = [0; 8];
    memory.read(8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 5);
    assert_eq!(memory.word(4).unwrap_err(), MemoryError::Misaligned { align: 8 });
    for offset in [PAGE_BYTES, PAGE_BYTES - 4, usize::MAX - 7] {
        assert!(matches!(memory.word(offset), Err(MemoryError::TooLong { .. })), "{offset}");
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
#[cfg_attr(miri, ignore = "whether two wakers wake the same is a guess, which Miri has fail")]
fn who_wants_a_buffer_is_woken_once_when_one_comes_back() {
    let pool = Pool::with_count(4096, 2).expect("memory for a test");
    let woken = Arc::new(Woken::default());
    let waker = std::task::Waker::from(Arc::clone(&woken));
    let count = || woken.0.load(Ordering::SeqCst);
    let (first, second) = (pool.take(), pool.take());
    assert!(!pool.want(&waker) && !pool.want(&waker), "all are out");
    drop(first);
    assert_eq!(count(), 1);
    drop(second);
    assert_eq!(count(), 1, "it was told");
    assert!(pool.want(&waker), "two are there");
    pool.unwant(&waker);
    drop(pool.take());
    assert_eq!(count(), 1, "it does not want one any more");
}

#[test]
fn no_buffer_that_comes_back_is_missed_by_who_waits_for_it() {
    let pool = Pool::with_count(4096, 1).expect("memory for a test");
    struct Sleeper(thread::Thread);
    impl std::task::Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let rounds = if cfg!(miri) { 50 } else { 2_000 };
    let take_many = || {
        let waker = std::task::Waker::from(Arc::new(Sleeper(thread::current())));
        for _ in 0..rounds {
            loop {
                if let Some(buf) = pool.take() {
                    drop(buf);
                    break;
                }
                // Were one missed, this would sleep for ever.
                if !pool.want(&waker) {
                    thread::park();
                }
            }
        }
        pool.unwant(&waker);
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(take_many);
        }
    });
    assert_eq!(pool.free(), 1);
}

/// Two links of one server, each with grants of its own; the peer of one knows every key and
/// address that there are, and tries a million that it was not granted.
#[test]
fn who_names_what_was_granted_to_others_reaches_nothing_in_a_million_attempts() {
    let attempts = if cfg!(miri) { 1_000 } else { 1_000_000 };
    let mut prng = towpath_base::Prng::new(11);
    let mut table = MrTable::new(11);
    let memory = SharedMemory::new(16 * PAGE_BYTES).unwrap();
    let [ours, theirs] = [(); 2].map(|()| table.alloc_pd().unwrap());
    let range = |page: usize| page * PAGE_BYTES + 64..page * PAGE_BYTES + 128;
    let mut grant = |pd, page| {
        let keys = table.register_shared(pd, &memory, range(page), Access::REMOTE_ALL).unwrap();
        RemoteAddr { addr: memory.addr() + range(page).start as u64, rkey: keys.rkey }
    };
    let of_others: Vec<_> = (0..8).map(|page| grant(ours, page)).collect();
    let own: Vec<_> = (8..12).map(|page| grant(theirs, page)).collect();
    let revoked: Vec<_> = (12..16).map(|page| grant(theirs, page)).collect();
    revoked.iter().for_each(|old| table.deregister(old.rkey).unwrap());
    let pick = |prng: &mut towpath_base::Prng, list: &[RemoteAddr]| {
        list[prng.below(list.len() as u64) as usize]
    };
    for attempt in 0..attempts {
        let (own, old) = (pick(&mut prng, &own), pick(&mut prng, &revoked));
        let (other, key) = (pick(&mut prng, &of_others), prng.next_u32());
        let (at, len) = match attempt % 5 {
            0 => (other, 1 + prng.below(64) as usize),
            1 => (RemoteAddr { rkey: key, ..other }, 8),
            2 => (old, 8),
            // Own keys, off by one to some more at either end.
            3 => (RemoteAddr { addr: own.addr + 57 + prng.below(8), ..own }, 8),
            _ => (RemoteAddr { addr: own.addr - 1 - prng.below(64), ..own }, 8),
        };
        let reached = table.remote_read(theirs, at, &mut [0; 64][..len]).is_ok()
            || table.remote_write(theirs, at, &[1; 64][..len]).is_ok()
            || table.remote_atomic(theirs, at, |was| was + 1).is_ok();
        assert!(!reached, "attempt {attempt}: {at:?}, {len} bytes");
    }
    let mut all = vec![9; 16 * PAGE_BYTES];
    memory.read(0, &mut all).unwrap();
    assert!(all.iter().all(|&byte| byte == 0), "nothing was changed");
    assert!(table.remote_read(theirs, own[0], &mut [0; 64]).is_ok(), "what is granted is reached");
}

#[test]
fn an_account_holds_its_share_until_buffers_are_back_whoever_has_them() {
    let pool = Pool::with_accounts(4096, 9, 2).expect("memory for a test");
    let mut greedy: Vec<Buf> = std::iter::from_fn(|| pool.take_for(0).ok()).collect();
    assert_eq!((greedy.len(), pool.held_by(0)), (3, 3));
    assert_eq!(pool.take_for(0).err(), Some(NotTaken::OverShare));
    assert_eq!(pool.most_held(), Some((0, 3)));
    let other = pool.take_for(1).expect("it holds none");
    // What is sent, and frozen on the way, counts until the last part of it is dropped.
    let frozen = greedy.pop().expect("there are three").freeze();
    let twin = frozen.clone();
    drop(frozen);
    assert_eq!(pool.held_by(0), 3);
    drop(twin);
    assert_eq!((pool.held_by(0), pool.held_by(1)), (2, 1));
    drop((greedy, other));
    assert_eq!((pool.most_held(), pool.free()), (None, 9));
    // A buffer that was somebody's is nobody's when it is taken again.
    let all: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((all.len(), pool.most_held()), (9, None));
    assert_eq!(pool.take_for(1).err(), Some(NotTaken::AllOut));
}
