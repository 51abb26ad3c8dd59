//! Threads and futures that wait at one queue.

use super::*;
use crate::park;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use towpath_base::Prng;
use towpath_wake::Taking;

/// Long enough for a loaded machine; nothing here waits for it to pass.
const LONG: Duration = Duration::from_secs(60);
const SEED: u64 = 0x9ec0_0027;

#[derive(Default)]
struct Told(AtomicUsize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits on this thread, as handles without an engine do.
fn wait<T>(receiver: &Receiver<T>, patience: Duration) -> Option<Result<T, Closed>> {
    wait_for(Taking::new(receiver), patience)
}

fn wait_for<T>(waiting: Taking<&Receiver<T>>, patience: Duration) -> Option<Result<T, Closed>> {
    let end = Some(Instant::now() + patience);
    park::wait(end, pin!(waiting), |sleeper, _| sleeper.park(end))
}

fn poll<T>(waiting: &mut Taking<&Receiver<T>>, told: &Arc<Told>) -> Option<Result<T, Closed>> {
    let waker = Waker::from(Arc::clone(told));
    match Pin::new(waiting).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(taken) => Some(taken),
        Poll::Pending => None,
    }
}

#[test]
fn a_future_has_one_place_in_the_line_until_it_is_ready_or_dropped() {
    let (sender, receiver) = queue();
    let told: Vec<Arc<Told>> = (0..100).map(|_| Arc::default()).collect();
    let mut waiting: Vec<_> = (0..100).map(|_| Taking::new(&receiver)).collect();
    for _ in 0..3 {
        for (waiting, told) in waiting.iter_mut().zip(&told) {
            assert_eq!(poll(waiting, told), None);
        }
        assert_eq!(receiver.waiters().count(), 100);
    }
    // The waker of the last poll counts.
    let other = Arc::new(Told::default());
    assert_eq!(poll(&mut waiting[0], &other), None);
    sender.send(7).expect("somebody receives");
    assert_eq!((told[0].0.load(Ordering::SeqCst), other.0.load(Ordering::SeqCst)), (0, 1));
    assert_eq!(poll(&mut waiting[50], &told[50]), Some(Ok(7)), "whoever looks first");
    assert_eq!(receiver.waiters().count(), 98);
    drop(sender);
    assert_eq!(receiver.waiters().count(), 0, "the end is told to all");
    assert!(told.iter().skip(1).filter(|told| told.0.load(Ordering::SeqCst) == 1).count() == 98);
    assert!(waiting.iter_mut().zip(&told).all(|(w, told)| poll(w, told) == Some(Err(Closed))));
}

#[test]
fn no_wake_up_is_lost_among_threads_and_futures_that_come_and_go() {
    println!("seed {SEED:#x}");
    const ITEMS: usize = 60_000;
    let (sender, receiver) = queue();
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (taken, receiver) = (&taken, &receiver);
        for thread in 0..4 {
            scope.spawn(move || {
                let mut prng = Prng::new(SEED ^ thread);
                loop {
                    // A future that is dropped right away, on top of one that stays.
                    let staying = Taking::new(receiver);
                    if prng.below(2) == 0 {
                        let told = Arc::default();
                        match poll(&mut Taking::new(receiver), &told) {
                            Some(Ok(())) => _ = taken.fetch_add(1, Ordering::SeqCst),
                            Some(Err(Closed)) => return,
                            None => {}
                        }
                    }
                    let got = match prng.below(3) {
                        0 => wait(receiver, Duration::from_micros(prng.below(50))),
                        1 => Some(wait(receiver, LONG).expect("nobody woke it")),
                        _ => Some(wait_for(staying, LONG).expect("nobody woke it")),
                    };
                    match got {
                        Some(Ok(())) => _ = taken.fetch_add(1, Ordering::SeqCst),
                        None => {}
                        Some(Err(Closed)) => return,
                    }
                }
            });
        }
        let mut prng = Prng::new(SEED);
        for item in 0..ITEMS {
            sender.send(()).expect("somebody receives");
            // Now and then all of them have to sleep, and somebody to be woken by one item.
            if prng.below(64) == 0 {
                while taken.load(Ordering::SeqCst) <= item {
                    std::thread::yield_now();
                }
            }
        }
        drop(sender);
    });
    assert_eq!(taken.load(Ordering::SeqCst), ITEMS);
}

/// Comes between the first look and the second.
#[derive(Default)]
struct Late {
    waiters: Waiters,
    looks: AtomicUsize,
}

impl Awaited for Late {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn is_there(&self) -> bool {
        false
    }
}

impl Take for Late {
    type Item = usize;

    fn take(&self) -> Option<usize> {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        (looks > 0).then_some(looks)
    }
}

#[test]
fn who_joins_the_line_looks_once_more_and_leaves_it() {
    let late = Late::default();
    let mut waiting = Taking::new(&late);
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(Pin::new(&mut waiting).poll(&mut cx), Poll::Ready(1));
    assert_eq!(late.waiters.count(), 0);
}

#[test]
fn an_item_that_comes_while_its_only_receiver_joins_the_line_wakes_it() {
    const ITEMS: usize = 100_000;
    let (sender, receiver) = queue();
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for item in 0..ITEMS {
                sender.send(item).expect("somebody receives");
                // A core is not always there for the other one.
                for spin in 0.. {
                    if taken.load(Ordering::SeqCst) > item {
                        break;
                    }
                    if spin % 1_000 == 999 {
                        std::thread::yield_now();
                    }
                }
            }
        });
        for item in 0..ITEMS {
            let end = Some(Instant::now() + LONG);
            let got = park::wait(end, pin!(Taking::new(&receiver)), |sleeper, _| {
                // Most items come at once, and to sleep for each would take minutes.
                if !(0..1_000).any(|_| sleeper.is_woken()) {
                    sleeper.park(end);
                }
            });
            // Let go of the sender before anybody fails.
            taken.store(if got.is_some() { item + 1 } else { ITEMS }, Ordering::SeqCst);
            assert_eq!(got, Some(Ok(item)), "nobody woke it");
        }
    });
}
