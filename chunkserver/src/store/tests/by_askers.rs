//! Those who ask do the store's work themselves while it never sleeps: answers, order and contents
//! are the same whoever does it, and it goes back to the thread as soon as it has to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, yield_now};
use std::time::Duration;

use super::*;
use crate::store::limits::{WAKEFUL_BATCHES, WORK_HERE_BYTES_MAX};
use crate::store::{Completion, Reply, Request, StoreWorker, WorkerConfig};

const CHUNK: ChunkId = ChunkId(1);

const ASKERS: u64 = 3;
/// Pages that each asker writes over and over.
const PAGES: u64 = 8;
/// Writes of each.
const WRITES: u64 = 5_000;

/// Long enough that the system puts the thread to sleep for it.
const NAP: Duration = Duration::from_micros(100);

fn by_askers<W>(askers: usize, store: Store<SimMedia>) -> Vec<StoreWorker<W, Vec<u8>>>
where
    W: AsRef<[u8]> + Send + 'static,
{
    let config = WorkerConfig::new(64).by_askers(true);
    StoreWorker::spawn_for(askers, store, config).expect("a thread starts")
}

fn roomy(media: &SimMedia) -> Store<SimMedia> {
    let config = StoreConfig::default().segment_bytes(4 << 20).log_bytes(256 << 10);
    let mut store = Store::open(media.clone(), config).expect("the store opens");
    create(&mut store, CHUNK);
    store
}

fn write_of<W>(offset: u64, bytes: Vec<u8>, data: impl Fn(Vec<u8>) -> W) -> Request<W, Vec<u8>> {
    let crcs = writer_crcs(CHUNK, offset, &bytes);
    Request::Write { chunk: CHUNK, offset, data: vec![data(bytes)], crcs, verified: false }
}

/// Asks for one write and sees to it that it is done; whether that was done here.
fn write_through<W>(
    worker: &StoreWorker<W, Vec<u8>>,
    request: Request<W, Vec<u8>>,
) -> (bool, Reply<W, Vec<u8>>)
where
    W: AsRef<[u8]> + Send + 'static,
{
    assert!(worker.try_send(7, request).is_ok(), "there is room");
    let here = worker.work();
    let answers = worker.completions();
    let Completion { token, reply } =
        if here { answers.try_recv().expect("at once") } else { answers.recv().expect("in time") };
    assert_eq!(token, 7);
    (here, reply)
}

/// Writes until one is done here.
fn win_trust(worker: &StoreWorker<Vec<u8>>) -> u32 {
    for count in 0..100_000 {
        if write_through(worker, write_of(0, vec![1; 4096], |bytes| bytes)).0 {
            return count;
        }
    }
    panic!("a medium that never sleeps is worked by those who ask");
}

#[test]
fn a_medium_that_never_sleeps_is_worked_by_who_asks_and_one_that_does_by_the_thread() {
    let media = SimMedia::new(1);
    let worker = by_askers(1, roomy(&media)).remove(0);
    assert!(win_trust(&worker) >= WAKEFUL_BATCHES, "not before it is known");
    media.flush_takes(NAP);
    let mut here = 0;
    for count in 0..200u8 {
        here += u32::from(write_through(&worker, write_of(0, vec![count; 4096], |b| b)).0);
    }
    assert!(here <= 1, "the first one found it out: {here}");
    media.flush_takes(Duration::ZERO);
    assert!(win_trust(&worker) + 1 >= WAKEFUL_BATCHES);
    assert!(!worker.work(), "nothing is asked");
    worker.stop().expect("the store closes");
}

#[test]
fn what_is_long_is_left_to_the_thread_and_what_comes_behind_it_keeps_its_order() {
    let media = SimMedia::new(1);
    let worker = by_askers(1, roomy(&media)).remove(0);
    for round in 0..20u8 {
        win_trust(&worker);
        let long = vec![round; WORK_HERE_BYTES_MAX as usize + 4096];
        let short = vec![100 + round; 4096];
        for (token, bytes) in [(0, long), (1, short)] {
            assert!(worker.try_send(token, write_of(0, bytes, |bytes| bytes)).is_ok());
            // The short one may be done here when the thread is through with the long one.
            assert!(!worker.work() || token == 1, "the thread has it");
        }
        for expected in 0..2 {
            let Completion { token, reply } = worker.completions().recv().expect("an answer");
            assert_eq!(token, expected);
            assert!(matches!(reply, Reply::Write { result: Ok(_), .. }), "{reply:?}");
        }
        let read = Request::Read {
            chunk: CHUNK,
            offset: 0,
            byte_len: 8192,
            buf: vec![0; 8192],
            crcs: Vec::new(),
        };
        let (_, reply) = write_through(&worker, read);
        let Reply::Read { result: Ok(_), buf, .. } = reply else { panic!("a read") };
        let expected = [vec![100 + round; 4096], vec![round; 4096]].concat();
        assert_eq!(buf, expected, "the later write is the last one");
    }
    worker.stop().expect("the store closes");
}

#[test]
fn what_the_store_has_in_memory_says_nothing_of_the_medium() {
    let media = SimMedia::new(1);
    let worker = by_askers::<Vec<u8>>(1, roomy(&media)).remove(0);
    for _ in 0..10 * WAKEFUL_BATCHES {
        let (here, _) = write_through(&worker, Request::Stat { chunk: CHUNK });
        assert!(!here, "no commit has shown that it does not sleep");
    }
    win_trust(&worker);
    worker.stop().expect("the store closes");
}

/// Where it happens depends on whether the thread is through with what it had, so there are
/// several rounds.
#[test]
fn a_flush_that_fails_here_is_told_as_one_that_fails_there() {
    let mut here_in_all = 0;
    for seed in 0..20 {
        let media = SimMedia::new(seed);
        let worker = by_askers(1, roomy(&media)).remove(0);
        win_trust(&worker);
        media.fail_flush(1);
        let (here, reply) = write_through(&worker, write_of(0, vec![2; 4096], |bytes| bytes));
        here_in_all += u32::from(here);
        let Reply::Write { result, data, .. } = reply else { panic!("a write") };
        assert_eq!(data[0].len(), 4096);
        assert!(matches!(result, Err(WriteError::Refused(Refused::Undecided(_)))), "{result:?}");
        assert!(worker.stop().is_err(), "the last to ask is told");
    }
    assert!(here_in_all > 0, "the thread did it all");
}

/// Each asker writes pages of its own, many at a time, over and over, while the medium falls asleep
/// and wakes up: the work goes to and fro between them and the thread.
#[test]
fn whoever_does_the_work_everything_is_answered_once_in_order_and_stays() {
    let mut here_in_all = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let media = SimMedia::new(seed);
        let workers = by_askers::<Vec<u8>>(ASKERS as usize, roomy(&media));
        let here: u64 = scope(|scope| {
            let media = &media;
            let ask = |(asker, worker)| scope.spawn(move || ask_much(seed, media, asker, worker));
            let threads: Vec<_> = (0..ASKERS).zip(&workers).map(ask).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        println!("{here} batches by those who asked");
        workers[0].send(7, Request::Stats).expect("it runs");
        let Reply::Stats(stats) = workers[0].completions().recv().expect("an answer").reply else {
            panic!("the counters")
        };
        assert!(stats.checkpoints > 0 && stats.log_bytes < 200 << 10, "{stats:?}");
        here_in_all += here;
        for worker in workers {
            assert_eq!(worker.answers_waiting(), 0, "nobody got another's answer");
            worker.stop().expect("the last one closes the store");
        }
        let mut store = Store::open(media.clone(), StoreConfig::default()).expect("it opens");
        for page in 0..ASKERS * PAGES {
            let last = WRITES - PAGES + page % PAGES;
            let expected = content(page / PAGES, last);
            assert_eq!(read(&mut store, CHUNK, page * 4096, 4096).expect("acknowledged"), expected);
        }
    }
    assert!(here_in_all > 0, "the thread did it all");
}

fn content(asker: u64, number: u64) -> Vec<u8> {
    (asker << 32 | number).to_le_bytes().repeat(512)
}

/// How often the work was done here.
fn ask_much(seed: u64, media: &SimMedia, asker: u64, worker: &StoreWorker<Vec<u8>>) -> u64 {
    let mut prng = Prng::new(seed << 8 | asker);
    let (mut sent, mut answered, mut here) = (0, 0, 0);
    while answered < WRITES {
        if asker == 0 && prng.chance(0.01) {
            media.flush_takes(if prng.chance(0.1) { NAP } else { Duration::ZERO });
        }
        let burst = prng.below(20);
        for _ in 0..burst.min(WRITES - sent) {
            let place = (asker * PAGES + sent % PAGES) * 4096;
            if worker.try_send(sent, write_of(place, content(asker, sent), |b| b)).is_err() {
                break;
            }
            sent += 1;
        }
        here += u64::from(worker.work());
        while let Ok(Completion { token, reply }) = worker.completions().try_recv() {
            assert_eq!(token, answered, "in the order in which they were asked");
            assert!(matches!(reply, Reply::Write { result: Ok(_), .. }), "{reply:?}");
            answered += 1;
        }
        if sent > answered && prng.chance(0.5) {
            yield_now();
        }
    }
    here
}

/// Data that ends the thread that looks at it for the second time: the first time is when it is
/// asked for.
struct Deadly(AtomicBool, bool, Vec<u8>);

impl AsRef<[u8]> for Deadly {
    fn as_ref(&self) -> &[u8] {
        let is_again = self.0.swap(true, Ordering::Relaxed);
        assert!(!(self.1 && is_again), "the end of this thread, as the test wants it");
        &self.2
    }
}

#[test]
fn a_panic_at_work_ends_the_store_for_all_who_ask() {
    let mut here_in_all = 0;
    for seed in 0..20 {
        let media = SimMedia::new(seed);
        let mut workers = by_askers::<Deadly>(2, roomy(&media));
        let (second, first) = (workers.pop().expect("two"), workers.pop().expect("two"));
        let write = |is_deadly| {
            let data = |bytes| Deadly(AtomicBool::new(false), is_deadly, bytes);
            write_of(0, vec![1; 4096], data)
        };
        while !write_through(&first, write(false)).0 {}
        assert!(first.try_send(1, write(true)).is_ok());
        let ended = scope(|scope| scope.spawn(|| first.work()).join());
        here_in_all += u32::from(ended.is_err());
        // The thread finds it out when it is asked, if it was not its own end.
        let _ = second.try_send(1, Request::Stat { chunk: CHUNK });
        second.work();
        assert!(second.completions().iter().count() <= 1, "and then nobody answers");
        while second.is_running() {
            yield_now();
        }
        assert!(second.send(2, Request::Stat { chunk: CHUNK }).is_err());
    }
    assert!(here_in_all > 0, "it was the thread that panicked, each time");
}
