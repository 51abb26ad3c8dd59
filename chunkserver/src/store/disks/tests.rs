//! Several disks under faults: what one loses, the others do not.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_disk::sim::Medium;
use towpath_disk::{Disk, Done, DurableWrites, Limits, Op, PageNumber};
use towpath_memory::Pool;

use super::*;
use crate::store::core::{CoreConfig, DiskState, DriverConfig, StoreCore};
use crate::store::slice::{SLICE_BYTES, writer_crcs};
use crate::store::{ChangeError, ChunkStat, NewChunk, ReadError, Terms};

type Hold = Disks<Vec<u8>>;

const CONFIG: CoreConfig = CoreConfig {
    log_pages: 128,
    log_pages_max: 0,
    chunks_max: 300,
    store_id: 7,
    log_nonce: 8,
    version_seed: 0,
    is_sparse: false,
};

const DRIVER: DriverConfig = DriverConfig { queue_max: 64, unfinished_keep: None };

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A disk of which the system does not speak any more once it is cut off.
struct Lost(Box<dyn Disk>, Arc<AtomicBool>);

impl Lost {
    fn check(&self) -> io::Result<()> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }
}

impl Disk for Lost {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), towpath_disk::Refused> {
        self.0.submit(tag, op)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        self.check().and_then(|()| self.0.poll(done))
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        self.check().and_then(|()| self.0.wait(timeout, done))
    }

    fn arm(&mut self) -> io::Result<bool> {
        self.0.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

/// The disks of one server, and what the test does to them.
struct Rig {
    media: Vec<Medium>,
    cut_off: Vec<Arc<AtomicBool>>,
    holds: Vec<Hold>,
    twice: Vec<Twice>,
    next_token: u64,
}

impl Rig {
    /// Disks of so many pages.
    fn new(seed: u64, pages: &[u64]) -> Self {
        println!("seed {seed}");
        let media = pages.iter().zip(seed..).map(|(pages, at)| {
            let medium = Medium::new(at, *pages);
            if seed.is_multiple_of(2) {
                medium.set_durable_writes(DurableWrites::None);
            }
            medium
        });
        Self::open(media.collect(), 1)
    }

    fn open(media: Vec<Medium>, askers: usize) -> Self {
        let opening = Opening::new((0..media.len()).map(|disk| format!("d{disk}")).collect());
        let (mut threads, mut had, mut cut_off) = (Vec::new(), Vec::new(), Vec::new());
        for (disk, medium) in media.iter().enumerate() {
            let is_lost = Arc::<AtomicBool>::default();
            cut_off.push(Arc::clone(&is_lost));
            let (medium, of_disk) = (medium.clone(), opening.clone());
            let open = move || {
                let lost = Lost(Box::new(medium.open(32)?), is_lost);
                let mut core =
                    StoreCore::open(Box::new(lost), &CONFIG).map_err(io::Error::other)?;
                let had = of_disk.adopt(disk, &mut core);
                Ok::<_, io::Error>((core, had))
            };
            match StoreThread::spawn(askers, DRIVER, open) {
                Ok((holds, chunks)) => {
                    threads.push(Ok(holds));
                    had.push(chunks);
                }
                Err(error) => {
                    threads.push(Err(error.to_string()));
                    had.push(Vec::new());
                }
            }
        }
        let twice = opening.fill(had);
        let holds = opening.finish(askers, threads);
        Self { media, cut_off, holds, twice, next_token: 0 }
    }

    fn hold(&mut self) -> &mut Hold {
        &mut self.holds[0]
    }

    fn ask(&mut self, request: Request<Vec<u8>, Buf>) -> Result<Reply<Vec<u8>, Buf>, Unsent> {
        self.next_token = (self.next_token + 1) % 8;
        let token = self.next_token;
        let hold = self.hold();
        hold.send(Class::Silver, token, request)?;
        hold.ring();
        let answer = hold.wait_next().expect("a disk answers");
        assert_eq!(answer.token, token);
        Ok(answer.reply)
    }

    fn create(&mut self, name: u128) -> Result<usize, Unsent> {
        let chunk = ChunkId(name);
        let request =
            Request::Create { chunk, limit_bytes: None, kind: NewChunk::default(), stamp: 0 };
        let Reply::Change(made) = self.ask(request)? else { panic!("another answer") };
        made.expect("it is made");
        Ok(self.holds[0].disk_of(chunk))
    }

    /// Makes chunks until each disk has one; gives one of each.
    fn one_on_each(&mut self) -> Vec<u128> {
        let mut found = vec![None; self.media.len()];
        for name in 1..50 {
            found[self.create(name).expect("a disk takes it")].get_or_insert(name);
            if let Some(all) = found.iter().copied().collect() {
                return all;
            }
        }
        panic!("some disk gets no chunk: {found:?}");
    }

    fn write(&mut self, name: u128, offset: u64, data: &[u8]) -> Result<(), ChangeError> {
        let chunk = ChunkId(name);
        let crcs = writer_crcs(chunk, offset, data);
        let request = Request::Write {
            chunk,
            offset,
            data: vec![data.to_vec()],
            crcs,
            staged: None,
            verified: false,
            terms: Terms::default(),
        };
        let reply = self.ask(request).expect("its disk is there");
        let Reply::Write { result, .. } = reply else { panic!("another answer") };
        result.map(|_| ())
    }

    fn read(&mut self, name: u128, byte_len: usize) -> Result<Vec<u8>, ReadError> {
        let pool = Pool::with_count(byte_len.next_multiple_of(SLICE_BYTES), 1).expect("memory");
        let buf = pool.take().expect("a fresh pool");
        let chunk = ChunkId(name);
        let request = Request::Read { chunk, offset: 0, byte_len, buf, crcs: Vec::new() };
        let reply = self.ask(request).expect("its disk is there");
        let Reply::Read { result, buf, .. } = reply else { panic!("another answer") };
        result.map(|_| buf.to_vec())
    }

    fn stat(&mut self, name: u128) -> Result<Option<ChunkStat>, Unsent> {
        let Reply::Stat(stat) = self.ask(Request::Stat { chunk: ChunkId(name) })? else {
            panic!("another answer")
        };
        Ok(stat)
    }

    fn list(&mut self, after: Option<u128>, count_max: usize) -> Vec<u128> {
        let request = Request::List { after: after.map(ChunkId), count_max };
        let Ok(Reply::List(page)) = self.ask(request) else { panic!("another answer") };
        page.iter().map(|stat| stat.chunk.0).collect()
    }

    fn states(&mut self) -> Vec<DiskState> {
        self.hold().status().iter().map(|disk| disk.state).collect()
    }

    fn close(self) -> (Vec<Medium>, Vec<Closed>) {
        let closed = self.holds.into_iter().map(|hold| hold.stop_within(LONG)).collect();
        (self.media, closed)
    }
}

#[test]
fn a_flush_that_fails_stops_the_changes_of_its_disk_only() {
    let mut rig = Rig::new(1, &[400, 400, 400]);
    let names = rig.one_on_each();
    for name in &names {
        rig.write(*name, 0, &[*name as u8; 9000]).expect("there is room");
    }
    rig.media[1].fail_flush(0);
    let failed = rig.write(names[1], 0, &[9; 100]).expect_err("the flush fails");
    assert!(matches!(failed, ChangeError::Refused(Refused::Undecided(_))), "{failed}");
    assert_eq!(rig.states(), [DiskState::Serving, DiskState::ReadOnly, DiskState::Serving]);
    let reason = rig.hold().status().remove(1).told.reason;
    assert!(reason.contains("the flush of the log failed"), "{reason}");
    assert_eq!(rig.read(names[1], 9000).expect("reads go on"), [names[1] as u8; 9000]);
    for name in [names[0], names[2]] {
        rig.write(name, 0, &[5; 100]).expect("nothing is wrong with its disk");
    }
    for name in 100..130 {
        assert_ne!(rig.create(name).expect("two disks take it"), 1);
    }
    let (_, closed) = rig.close();
    assert_eq!(closed[0].disk, "d1");
    assert!(matches!(closed[0].sealed, Some(Err(_))));
}

#[test]
fn a_disk_that_cannot_be_opened_takes_its_own_chunks_only() {
    let mut rig = Rig::new(2, &[400, 400]);
    let names = rig.one_on_each();
    let (media, _) = rig.close();
    // Somebody else has it open.
    let held = media[0].open(1).expect("it was closed");
    let mut rig = Rig::open(media, 1);
    assert_eq!(rig.states(), [DiskState::Failed, DiskState::Serving]);
    assert!(rig.stat(names[1]).expect("its disk is there").is_some());
    // It may be on the disk that is not there.
    assert!(matches!(rig.stat(names[0]), Err(Unsent::Down(0))));
    assert!(matches!(rig.stat(99), Err(Unsent::Down(0))));
    assert_eq!(rig.create(99).expect("the other disk takes it"), 1);
    assert!(rig.stat(99).expect("its disk is there").is_some());
    assert!(!rig.list(None, 100).contains(&names[0]));
    let Ok(Reply::Stats(stats)) = rig.ask(Request::Stats) else { panic!("another answer") };
    assert!(!stats.failed && stats.chunks > 0);
    let (media, closed) = rig.close();
    assert!(matches!(closed[0].sealed, Some(Ok(()))), "what was never open did not fail");
    drop(held);
    let mut rig = Rig::open(media, 1);
    assert!(rig.stat(names[0]).expect("it is back").is_some());
}

#[test]
fn a_disk_that_goes_while_it_runs_takes_its_own_chunks_and_what_it_had() {
    let mut rig = Rig::new(3, &[400, 400]);
    let names = rig.one_on_each();
    rig.cut_off[1].store(true, Ordering::SeqCst);
    let data = vec![vec![1; 4096]];
    let chunk = ChunkId(names[1]);
    let crcs = writer_crcs(chunk, 0, &data[0]);
    let hold = rig.hold();
    let terms = Terms::default();
    let request =
        Request::Write { chunk, offset: 0, data, crcs, staged: None, verified: true, terms };
    hold.send(Class::Copper, 5, request).expect("nobody knows yet");
    hold.send(Class::Gold, 6, Request::List { after: None, count_max: 10 })
        .expect("nobody knows yet");
    hold.ring();
    let mut ended = 0;
    while ended == 0 {
        ended = hold.look_for_ends();
        std::thread::yield_now();
    }
    assert_eq!((ended, hold.look_for_ends()), (0b10, 0), "it is told once");
    assert_eq!(hold.lose(ended), [5]);
    let listed = hold.wait_next().expect("the other disk lists");
    assert!(matches!(listed.reply, Reply::List(page) if page[0].chunk == ChunkId(names[0])));
    assert!(hold.are_running());
    assert!(matches!(rig.stat(names[1]), Err(Unsent::Down(1))));
    rig.write(names[0], 0, &[5; 100]).expect("nothing is wrong with its disk");
    for name in 100..120 {
        assert_eq!(rig.create(name).expect("the other disk takes it"), 0);
    }
    let reason = rig.hold().status().remove(1).told.reason;
    assert!(reason.contains("the system does not speak of the disk"), "{reason}");
    let (_, closed) = rig.close();
    assert_eq!(closed[0].disk, "d1");
}

#[test]
fn a_bad_sector_takes_the_slice_on_it_and_is_told_with_its_disk() {
    let mut rig = Rig::new(4, &[400, 400]);
    let names = rig.one_on_each();
    for name in &names {
        rig.write(*name, 0, &[*name as u8; SLICE_BYTES]).expect("there is room");
    }
    let other = 60;
    while rig.create(other).is_ok_and(|disk| disk != 1) {
        let chunk = ChunkId(other);
        drop(rig.ask(Request::Delete { chunk, version: None }));
    }
    rig.write(other, 0, &[6; SLICE_BYTES]).expect("there is room");
    // Behind superblock and log, one after the other, until it is the page of the slice.
    let failed = (257..400).find_map(|page| {
        rig.media[1].spoil(PageNumber(page));
        rig.read(names[1], SLICE_BYTES).err()
    });
    let failed = failed.expect("some page of it is bad").to_string();
    assert!(failed.contains("d1/disk"), "{failed}");
    assert_eq!(rig.read(other, SLICE_BYTES).expect("another page"), [6; SLICE_BYTES]);
    assert_eq!(rig.read(names[0], SLICE_BYTES).expect("another disk")[0], names[0] as u8);
    rig.write(names[1], 0, &[7; SLICE_BYTES]).expect("it goes to another page");
    assert_eq!(rig.read(names[1], SLICE_BYTES).expect("it is whole"), [7; SLICE_BYTES]);
    assert_eq!(rig.states(), [DiskState::Serving; 2]);
}

#[test]
fn new_chunks_go_to_disks_as_they_have_room_and_a_full_one_gets_none() {
    let mut rig = Rig::new(5, &[500, 1000]);
    let on_first = (1..=60).filter(|name| rig.create(*name).expect("there is room") == 0).count();
    // Of 500 pages some 240 hold data, of 1,000 some 730.
    assert!((10..=20).contains(&on_first), "{on_first} of 60");
    let fill = (1..=60).find(|name| rig.holds[0].disk_of(ChunkId(*name)) == 0).expect("one is");
    let full = (0..300).find_map(|at| rig.write(fill, at * 16384, &[1; 16384]).err());
    assert!(matches!(full, Some(ChangeError::Refused(Refused::NoSpace))), "{full:?}");
    for name in 100..130 {
        assert_eq!(rig.create(name).expect("the other disk takes it"), 1);
        rig.write(name, 0, &[2; 8192]).expect("it has room");
    }
    let chunk = ChunkId(fill);
    let deleted = rig.ask(Request::Delete { chunk, version: None }).expect("its disk is there");
    assert!(matches!(deleted, Reply::Change(Ok(_))));
    let again = (200..230).filter(|name| rig.create(*name).expect("there is room") == 0).count();
    assert!(again > 0, "it has room again");
}

#[test]
fn lists_counters_and_scrubs_are_of_all_disks() {
    let mut rig = Rig::new(6, &[400, 400, 400]);
    for name in 1..=40 {
        rig.create(name).expect("there is room");
        rig.write(name, 0, &[name as u8; 2 * SLICE_BYTES]).expect("there is room");
    }
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = rig.list(after, 7);
        let Some(last) = page.last() else { break };
        after = Some(*last);
        names.extend(page);
    }
    assert_eq!(names, (1..=40).collect::<Vec<_>>());
    let Ok(Reply::Stats(stats)) = rig.ask(Request::Stats) else { panic!("another answer") };
    assert_eq!((stats.chunks, stats.live_bytes), (40, 80 * SLICE_BYTES as u64));
    let mut slices = 0;
    for step in 1.. {
        let Ok(Reply::Scrub(report)) = rig.ask(Request::Scrub { budget_slices: 5, from: None })
        else {
            panic!("another answer")
        };
        slices += report.slices;
        if report.pass_done {
            break;
        }
        assert!(step < 100, "it comes to no end");
    }
    assert_eq!(slices, 80, "each slice of each disk, once");
}

#[test]
fn a_chunk_on_two_disks_is_told_and_neither_copy_is_served() {
    let mut rig = Rig::new(7, &[400, 400]);
    let names = rig.one_on_each();
    let (media, _) = rig.close();
    // The same chunk made on a disk while the other one was away.
    let away = media[0].open(1).expect("it was closed");
    let mut rig = Rig::open(media, 1);
    assert_eq!(rig.create(names[0]).expect("the other disk takes it"), 1);
    for _ in 0..60 {
        rig.write(names[0], 0, &[8; 4096]).expect("there is room");
    }
    let (media, _) = rig.close();
    drop(away);
    let mut rig = Rig::open(media, 1);
    assert_eq!(rig.twice.len(), 1);
    let Twice { chunk, first, second } = rig.twice[0];
    assert_eq!((chunk, first.0, second.0), (ChunkId(names[0]), 0, 1));
    assert!(matches!(rig.stat(names[0]), Err(Unsent::Down(1))), "which is newer nobody knows");
    assert!(matches!(rig.create(names[0]), Err(Unsent::Down(1))));
    assert!(rig.stat(names[1]).is_ok(), "others are served");
    let listed = rig.list(None, 100);
    assert_eq!(listed.iter().filter(|name| **name == names[0]).count(), 1);
    // One of them is taken away, the chunk deleted on the other one, and the first is back.
    let (media, _) = rig.close();
    let away = media[1].open(1).expect("it was closed");
    let mut rig = Rig::open(media, 1);
    let delete = Request::Delete { chunk, version: None };
    assert!(matches!(rig.ask(delete), Ok(Reply::Change(Ok(_)))));
    let (media, _) = rig.close();
    drop(away);
    let mut rig = Rig::open(media, 1);
    assert_eq!(rig.read(names[0], 4096).expect("it is the only one"), [8; 4096]);
}

#[test]
fn an_entry_to_a_session_waits_for_what_any_disk_has_of_older_links() {
    let media = (0..2).map(|seed| Medium::new(seed, 400)).collect();
    let rig = Rig::open(media, 2);
    let [first, second] = &rig.holds[..] else { panic!("two ask") };
    let old = first.fences().enter(1, 1).expect("a new session");
    old.begin().expect("it is the newest");
    let new = second.fences().enter(1, 2).expect("a newer link");
    assert!(old.begin().is_err() && !new.is_clear());
    old.end();
    assert!(new.is_clear());
}
