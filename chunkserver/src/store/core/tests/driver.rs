//! The thread of a store: its answers, its end, and what it does when nothing is to be done.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Instant;

use towpath_disk::{Disk, Done, Limits, Refused as NotTaken};
use towpath_wake::Bell;

use super::*;
use crate::store::core::{DriverConfig, StoreDriver, StoreThread};
use crate::store::error::{ChangeError, FlushFailed};

const DRIVER: DriverConfig = DriverConfig { queue_max: 64, unfinished_keep: None };

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn spawn(medium: &Medium, askers: usize, config: DriverConfig) -> Vec<StoreThread<Vec<u8>>> {
    let medium = medium.clone();
    let open = move || {
        let core = open(&medium).map_err(io::Error::other)?;
        Ok::<_, io::Error>((core, ()))
    };
    StoreThread::spawn(askers, config, open).expect("it opens").0
}

/// The driver, where no thread of the store's own has it.
type Driver = Option<StoreDriver<Vec<u8>>>;

/// The same with a thread of the store's own, or with the test as the one that drives it.
fn open_either(
    is_inline: bool,
    medium: &Medium,
    askers: usize,
    config: DriverConfig,
) -> (Vec<StoreThread<Vec<u8>>>, Driver) {
    println!("inline: {is_inline}");
    if !is_inline {
        return (spawn(medium, askers, config), None);
    }
    let open = || open(medium).map(|core| (core, ())).map_err(io::Error::other);
    let (driver, stores, ()) = StoreDriver::open_here(askers, config, open).expect("it opens");
    (stores, Some(driver))
}

fn answer(driver: &mut Driver, store: &StoreThread<Vec<u8>>) -> Completion<Vec<u8>, Buf> {
    store.ring();
    let began = Instant::now();
    while let Some(driver) = driver.as_mut().filter(|_| store.answers_waiting() == 0) {
        driver.turn().expect("the disk is there");
        if driver.begin_wait().expect("the disk is there").is_some() {
            driver.end_wait();
        }
        assert!(began.elapsed() < LONG, "no answer");
    }
    store.completions().recv_timeout(LONG).expect("the thread answers")
}

/// Closes the store when nobody else has a hold on it.
fn stop(driver: Driver, last: StoreThread<Vec<u8>>) -> Option<Result<(), FlushFailed>> {
    let closed = last.stop_within(LONG);
    let Some(driver) = driver else { return closed };
    assert_eq!(closed, Some(Ok(())), "it is the driver's to close");
    driver.stop_by(Instant::now() + LONG)
}

fn send(store: &StoreThread<Vec<u8>>, token: u64, request: Request<Vec<u8>, Buf>) {
    assert!(store.try_send(token, request).is_ok(), "there is room");
}

#[test]
fn several_who_ask_get_their_own_answers_and_the_last_one_closes_the_store() {
    for is_inline in [false, true] {
        several_ask(is_inline);
    }
}

fn several_ask(is_inline: bool) {
    let medium = medium(1);
    let (mut stores, mut driver) = open_either(is_inline, &medium, 3, DRIVER);
    for (asker, store) in stores.iter().enumerate() {
        let chunk = ChunkId(asker as u128);
        send(store, 10 * asker as u64, create_request(chunk));
        send(store, 10 * asker as u64 + 1, write_request(chunk, 0, &[asker as u8; 5000]));
    }
    for (asker, store) in stores.iter().enumerate() {
        let mut tokens = [answer(&mut driver, store), answer(&mut driver, store)].map(|answer| {
            assert_eq!(fate(&answer.reply), Fate::Done);
            answer.token
        });
        tokens.sort_unstable();
        assert_eq!(tokens, [10 * asker as u64, 10 * asker as u64 + 1]);
    }
    let last = stores.pop().expect("there are three");
    for store in stores {
        assert_eq!(store.stop_within(LONG), Some(Ok(())));
    }
    assert!(last.is_running());
    send(&last, 7, Request::Stats);
    let told = answer(&mut driver, &last).reply;
    assert!(matches!(told, Reply::Stats(stats) if stats.chunks == 3));
    assert_eq!(stop(driver, last), Some(Ok(())));
    let mut core = open(&medium).expect("it was closed");
    assert_eq!(read(&mut core, ChunkId(2), 0, 5000).expect("it is there"), [2; 5000]);
    assert_eq!((core.stats().torn_tail_bytes, core.wants_seal()), (0, false), "it was sealed");
}

#[test]
fn what_cannot_be_opened_is_said_to_whoever_starts_the_thread() {
    let open = || Err::<(Core, ()), _>(io::Error::from(io::ErrorKind::NotFound));
    let error = StoreThread::spawn(1, DRIVER, open).map(drop).expect_err("there is nothing");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_failed_flush_reaches_the_change_and_whoever_stops_the_store() {
    for is_inline in [false, true] {
        let medium = medium(2);
        let (mut stores, mut driver) = open_either(is_inline, &medium, 1, DRIVER);
        let store = stores.pop().expect("one");
        send(&store, 1, create_request(ChunkId(1)));
        assert_eq!(fate(&answer(&mut driver, &store).reply), Fate::Done);
        medium.fail_flush(0);
        send(&store, 2, write_request(ChunkId(1), 0, &[1; 100]));
        let reply = answer(&mut driver, &store).reply;
        let Reply::Write { result, data, .. } = reply else { panic!("another answer") };
        assert!(matches!(result, Err(ChangeError::Refused(Refused::Undecided(_)))));
        assert_eq!(data.concat(), [1; 100], "the buffers come back");
        assert!(matches!(stop(driver, store), Some(Err(_))));
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn who_waits_elsewhere_is_woken_by_answers() {
    let store = spawn(&medium(3), 1, DRIVER).pop().expect("one");
    let count = Arc::<Count>::default();
    store.wake(Some(Waker::from(Arc::clone(&count))));
    send(&store, 1, create_request(ChunkId(1)));
    drop(answer(&mut None, &store));
    let began = Instant::now();
    // The answer is there a moment before the bell.
    while count.0.load(Ordering::SeqCst) == 0 && began.elapsed() < LONG {
        std::thread::yield_now();
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}

#[test]
fn an_unfinished_chunk_that_nobody_goes_on_with_is_removed() {
    let config = DriverConfig { unfinished_keep: Some(Duration::ZERO), ..DRIVER };
    for is_inline in [false, true] {
        let (mut stores, driver) = open_either(is_inline, &medium(4), 1, config);
        unfinished_is_removed(stores.pop().expect("one"), driver);
    }
}

fn unfinished_is_removed(store: StoreThread<Vec<u8>>, mut driver: Driver) {
    let chunk = ChunkId(1);
    let kind = NewChunk { unfinished: true, ..NewChunk::default() };
    send(&store, 1, Request::Create { chunk, limit_bytes: None, kind, stamp: 0 });
    assert_eq!(fate(&answer(&mut driver, &store).reply), Fate::Done);
    let began = Instant::now();
    loop {
        send(&store, 2, Request::Stat { chunk });
        match answer(&mut driver, &store).reply {
            Reply::Stat(None) => break,
            _ => assert!(began.elapsed() < LONG, "it stays"),
        }
    }
    assert_eq!(stop(driver, store), Some(Ok(())));
}

#[test]
fn changes_that_are_held_keep_no_reads_waiting() {
    let config = DriverConfig { queue_max: 2048, ..DRIVER };
    let open = || open(&medium(7)).map(|core| (core, ())).map_err(io::Error::other);
    let (driver, mut stores, ()) = StoreDriver::open_here(1, config, open).expect("it opens");
    let (store, chunk) = (stores.pop().expect("one"), ChunkId(1));
    let mut driver = Some(driver);
    send(&store, 1, create_request(chunk));
    let Reply::Change(Ok(Ticket(version))) = answer(&mut driver, &store).reply else {
        panic!("it is new")
    };
    // Each waits for what is under way, and the disk does nothing meanwhile.
    send(&store, 2, write_request(chunk, 0, &[1; 4096]));
    for token in 3..2000 {
        send(&store, token, only_if(version, write_request(chunk, 0, &[2; 4096])));
    }
    let only = driver.as_mut().expect("it is here");
    for _ in 0..50 {
        only.turn().expect("the disk is there");
    }
    assert!(store.has_queued(), "more wait than are held");
    send(&store, 2000, Request::Stat { chunk });
    only.turn().expect("the disk is there");
    let told = store.completions().try_recv().expect("it waits for nobody");
    assert_eq!(told.token, 2000);
    // The one that was not meant for a version is made, and then one of the others is too late.
    let fates: Vec<_> = (2..2000).map(|_| fate(&answer(&mut driver, &store).reply)).collect();
    assert_eq!(fates.iter().filter(|fate| **fate == Fate::Done).count(), 1);
}

#[test]
fn a_chunk_whose_finish_waits_for_its_flush_is_not_removed_as_unfinished() {
    let config = DriverConfig { unfinished_keep: Some(Duration::ZERO), ..DRIVER };
    let open = || open(&medium(6)).map(|core| (core, ())).map_err(io::Error::other);
    let (mut driver, mut stores, ()) = StoreDriver::open_here(1, config, open).expect("it opens");
    let (store, chunk) = (stores.pop().expect("one"), ChunkId(1));
    let kind = NewChunk { unfinished: true, ..NewChunk::default() };
    // Nothing is swept before the wait ends that this does not wait for.
    let wait = |driver: &mut StoreDriver<Vec<u8>>| loop {
        driver.turn().expect("the disk is there");
        driver.turn_core(Some(Duration::from_millis(10))).expect("the disk is there");
        driver.turn().expect("the disk is there");
        if let Ok(answer) = store.completions().try_recv() {
            return answer.reply;
        }
    };
    send(&store, 1, Request::Create { chunk, limit_bytes: None, kind, stamp: 0 });
    assert_eq!(fate(&wait(&mut driver)), Fate::Done);
    send(&store, 2, Request::Finish { chunk, byte_len: 0, terms: Terms::default() });
    driver.turn().expect("the disk is there");
    // The finish is staged and not flushed: the chunk still looks deserted.
    driver.end_wait();
    assert_eq!(fate(&wait(&mut driver)), Fate::Done);
    driver.end_wait();
    // A delete that was staged behind the finish would be done by then.
    while !driver.left().1 {
        driver.turn_core(Some(Duration::from_millis(10))).expect("the disk is there");
    }
    send(&store, 3, Request::Stat { chunk });
    let Reply::Stat(Some(stat)) = wait(&mut driver) else { panic!("a finished chunk is gone") };
    assert!(!stat.unfinished);
}

/// A disk with a file to wait for: what is under way ends when it is polled. It counts the waits
/// for it while it has nothing to do.
struct Watched {
    disk: Box<dyn Disk>,
    files: (UnixStream, UnixStream),
    idle_waits: Arc<AtomicUsize>,
}

impl Disk for Watched {
    fn limits(&self) -> Limits {
        self.disk.limits()
    }

    fn submit(&mut self, tag: u64, op: towpath_disk::Op) -> Result<(), NotTaken> {
        self.disk.submit(tag, op)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        self.disk.wait(Duration::from_secs(1), done)
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        self.disk.wait(timeout, done)
    }

    fn arm(&mut self) -> io::Result<bool> {
        let is_idle = self.limits().in_flight == 0;
        self.idle_waits.fetch_add(usize::from(is_idle), Ordering::SeqCst);
        Ok(!is_idle)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.1.as_fd())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

#[test]
fn a_thread_that_nobody_asks_any_more_waits_for_nothing_but_what_is_under_way() {
    let idle_waits = Arc::<AtomicUsize>::default();
    let disk = Box::new(medium(5).open(32).expect("nobody has it"));
    let files = UnixStream::pair().expect("two sockets");
    let disk = Watched { disk, files, idle_waits: Arc::clone(&idle_waits) };
    let mut core = StoreCore::open(Box::new(disk), &CONFIG).expect("it opens");
    core.submit(Client { asker: 0, token: 0 }, create_request(ChunkId(1)));
    let bell = Bell::new().expect("a file");
    let driver = StoreDriver::<Vec<u8>>::new(core, Vec::new(), bell, DRIVER, Default::default());
    assert_eq!(driver.run(), Ok(()));
    assert_eq!(idle_waits.load(Ordering::SeqCst), 0, "each would be seconds");
}
