//! Tests of regions, buffers and keys.

use crate::{Buf, MemoryError, MrTable, PAGE_BYTES, Pool, Region};
use towpath_verbs::{Access, RemoteAddr, Verb, VerbError};

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
    assert_eq!(&buf.lend().reclaim()[..], b"abc");
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
    let mut table = MrTable::new();
    let keys = table.register(pool.region(), Access::LOCAL).unwrap();
    let lent = pool.take().unwrap().lend();
    let sge = lent.sge(keys.lkey, 0, PAGE_BYTES);
    assert_eq!(table.scatter(&sge, PAGE_BYTES - 2, b"xy"), Ok(()));
    let bad = VerbError::BadMemory(Verb::PostRecv);
    assert_eq!(table.scatter(&sge, PAGE_BYTES - 1, b"xy"), Err(bad));
    assert_eq!(&table.gather(&sge).unwrap()[PAGE_BYTES - 2..], b"xy");
    let past = towpath_verbs::Sge { length: PAGE_BYTES as u32 + 1, ..sge };
    assert!(table.allows(&sge, true) && !table.allows(&past, false));
    let wrapping = towpath_verbs::Sge { addr: u64::MAX, length: 2, lkey: keys.lkey };
    assert!(!table.allows(&wrapping, false));
    let _ = lent.reclaim();
}

#[test]
fn a_key_that_outlived_its_region_does_not_reach_the_next_one() {
    let (first, second) = (pool(PAGE_BYTES, PAGE_BYTES), pool(PAGE_BYTES, PAGE_BYTES));
    let mut table = MrTable::new();
    let old = table.register(first.region(), Access::LOCAL).unwrap();
    table.deregister(old.lkey).unwrap();
    let new = table.register(second.region(), Access::LOCAL).unwrap();
    assert_eq!(old.lkey >> 8, new.lkey >> 8, "the place is used again");
    assert_eq!(table.deregister(old.lkey), Err(VerbError::NoSuchObject(Verb::DeregMr)));
}

#[test]
fn a_peer_writes_only_where_remote_write_was_granted() {
    let open = Region::new(PAGE_BYTES).unwrap().into_window().unwrap();
    let closed = Region::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new();
    let open_keys = table.register(open.region(), Access::REMOTE_WRITE).unwrap();
    let closed_keys = table.register(&closed, Access::LOCAL).unwrap();
    let at = |region: &Region, rkey, skip| RemoteAddr { addr: region.addr() + skip, rkey };
    assert_eq!(table.remote_write(at(open.region(), open_keys.rkey, 4090), b"peer"), Ok(()));
    let mut read = [0; 4];
    open.read(4090, &mut read).unwrap();
    assert_eq!(&read, b"peer");
    assert!(table.remote_write(at(open.region(), open_keys.rkey, 4093), b"peer").is_err());
    assert!(table.remote_write(at(&closed, closed_keys.rkey, 0), b"peer").is_err());
}

#[test]
fn bytes_go_from_one_region_to_another_piece_by_piece_and_never_past_an_end() {
    let (mut from, mut to) = (MrTable::new(), MrTable::new());
    let (source, target) = (pool(PAGE_BYTES, PAGE_BYTES), pool(PAGE_BYTES, PAGE_BYTES));
    let from_key = from.register(source.region(), Access::LOCAL).unwrap().lkey;
    let to_key = to.register(target.region(), Access::LOCAL).unwrap().lkey;
    let mut buf = source.take().unwrap();
    buf.extend(b"abcdef").unwrap();
    let (source, target) = (buf.lend(), target.take().unwrap().lend());
    let mut bytes = from.source(&source.sge(from_key, 0, 6)).unwrap();
    let mut first = to.target(&target.sge(to_key, 0, 4)).unwrap();
    assert_eq!((first.fill(&mut bytes), bytes.byte_len(), first.byte_len()), (4, 2, 0));
    assert_eq!(first.fill(&mut bytes), 0, "no room");
    let mut rest = to.target(&target.sge(to_key, 10, 4)).unwrap();
    assert_eq!((rest.fill(&mut bytes), bytes.byte_len(), rest.byte_len()), (2, 0, 2));
    let mut landed = target.reclaim();
    landed.set_len(14).unwrap();
    assert_eq!(&landed[..], b"abcd\0\0\0\0\0\0ef\0\0");
    let foreign = source.sge(from_key ^ 1, 0, 6);
    assert!(from.source(&foreign).is_none() && from.target(&foreign).is_none());
    let remote = RemoteAddr { addr: landed.region().addr(), rkey: to_key };
    assert!(to.remote_target(remote, 1).is_none(), "not open to peers");
}

#[test]
fn a_peer_reads_only_where_remote_read_was_granted() {
    let mut open = Region::new(PAGE_BYTES).unwrap().into_window().unwrap();
    open.write(4090, b"served").unwrap();
    let closed = Region::new(PAGE_BYTES).unwrap();
    let mut table = MrTable::new();
    let readable = Access { remote_read: true, ..Access::default() };
    let open_keys = table.register(open.region(), readable).unwrap();
    let closed_keys = table.register(&closed, Access::REMOTE_WRITE).unwrap();
    let at = |region: &Region, rkey, skip| RemoteAddr { addr: region.addr() + skip, rkey };
    let mut out = [0; 6];
    let whole = at(open.region(), open_keys.rkey, 4090);
    assert!(table.allows_remote_read(whole, 6) && !table.allows_remote_read(whole, 7));
    assert_eq!(table.remote_read(whole, &mut out), Ok(()));
    assert_eq!(&out, b"served");
    assert!(table.remote_read(at(open.region(), open_keys.rkey, 4091), &mut out).is_err());
    let other = at(&closed, closed_keys.rkey, 0);
    assert!(!table.allows_remote_read(other, 1) && table.remote_read(other, &mut out).is_err());
}

#[test]
fn an_atomic_needs_its_grant_its_alignment_and_eight_bytes() {
    let open = Region::new(PAGE_BYTES).unwrap().into_window().unwrap();
    let mut table = MrTable::new();
    let granted = Access { remote_atomic: true, ..Access::default() };
    let rkey = table.register(open.region(), granted).unwrap().rkey;
    let plain = table.register(open.region(), Access::REMOTE_WRITE).unwrap().rkey;
    let at = |rkey, skip| RemoteAddr { addr: open.region().addr() + skip, rkey };
    assert_eq!(table.remote_atomic(at(rkey, 4088), |was| was.wrapping_add(7)), Ok(0));
    assert_eq!(table.remote_atomic(at(rkey, 4088), |was| was.wrapping_sub(8)), Ok(7));
    let mut read = [0; 8];
    open.read(4088, &mut read).unwrap();
    assert_eq!(u64::from_ne_bytes(read), u64::MAX);
    let misaligned = Err(VerbError::BadArgument(Verb::PostSend));
    assert_eq!(table.remote_atomic(at(rkey, 4084), |was| was), misaligned);
    let bad = Err(VerbError::BadMemory(Verb::PostSend));
    assert_eq!(table.remote_atomic(at(rkey, 4092), |was| was), bad);
    assert_eq!(table.remote_atomic(at(plain, 4088), |was| was), bad);
}
