//! Models of what wakes whom, run by loom in every order that the memory model allows:
//! `cargo xtask loom`.

use crate::bell::Rung;
use crate::{Awaited, Lead, Listed, Rest, Serving, Taking, Waiters};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

/// Switches between threads that a model tries at most, beside those where a thread waits: more
/// take minutes, and what goes wrong mostly does so with one or two.
const PREEMPTIONS_MAX: usize = 2;

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(run);
}

#[test]
fn who_sleeps_is_woken_for_what_came_after_the_last_look() {
    model(|| {
        let shared = Arc::new((Rest::default(), AtomicU32::new(0)));
        let sleeper = thread::current();
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let (shared, sleeper) = (Arc::clone(&shared), sleeper.clone());
                thread::spawn(move || {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    if shared.0.is_to_be_woken() {
                        sleeper.unpark();
                    }
                })
            })
            .collect();
        while shared.1.load(Ordering::Relaxed) < 2 {
            shared.0.begin();
            // Were a wake missed, this would sleep for ever, which loom finds.
            if shared.1.load(Ordering::Relaxed) < 2 {
                thread::park();
            }
            shared.0.end();
        }
        posters.into_iter().for_each(|poster| poster.join().expect("no panic"));
    });
}

/// What the socket of a bell does: it counts bytes, and lets its reader wait for one.
#[derive(Default)]
struct Socket {
    bytes: Mutex<u32>,
    readable: Condvar,
}

impl Socket {
    fn write(&self) {
        *self.bytes.lock().expect("no panic") += 1;
        self.readable.notify_one();
    }

    fn wait(&self) {
        let mut bytes = self.bytes.lock().expect("no panic");
        while *bytes == 0 {
            bytes = self.readable.wait(bytes).expect("no panic");
        }
    }

    fn read_all(&self) {
        let bytes = std::mem::take(&mut *self.bytes.lock().expect("no panic"));
        assert!(bytes <= 3, "no ring writes more than a byte");
    }
}

#[test]
fn no_ring_of_a_bell_is_lost_and_what_was_done_before_it_is_seen() {
    model(|| {
        let shared = Arc::new((Rung::default(), Socket::default(), AtomicU32::new(0)));
        // The second ring of one may meet a clear that has to do with the first.
        let ringers = [1, 2].map(|rings| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..rings {
                    shared.2.fetch_add(1, Ordering::Relaxed);
                    shared.0.ring(|| shared.1.write());
                }
            })
        });
        while shared.2.load(Ordering::Relaxed) < 3 {
            shared.1.wait();
            shared.0.clear(|| shared.1.read_all());
        }
        ringers.into_iter().for_each(|ringer| ringer.join().expect("no panic"));
    });
}

#[test]
fn work_that_is_put_where_somebody_just_leaves_is_seen_or_listed_again() {
    model(|| {
        let shared = Arc::new((Listed::default(), AtomicBool::new(false), AtomicU32::new(0)));
        // It stands in the list, and its work is done.
        assert!(shared.0.mark());
        let poster = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            poster.1.store(true, Ordering::Relaxed);
            if poster.0.mark() {
                poster.2.fetch_add(1, Ordering::Relaxed);
            }
        });
        shared.0.unmark();
        let has_seen = shared.1.load(Ordering::Relaxed);
        thread.join().expect("no panic");
        let is_listed = shared.2.load(Ordering::Relaxed) == 1;
        assert!(has_seen || is_listed, "the work is forgotten");
        assert_eq!(shared.0.is_marked(), is_listed);
    });
}

#[test]
fn work_that_is_left_with_somebody_who_serves_is_done() {
    model(|| {
        let shared = Arc::new((Serving::new(0), AtomicU32::new(0)));
        let leave = |shared: &(Serving<u32>, AtomicU32)| {
            shared.1.fetch_add(1, Ordering::Relaxed);
            let has_work = || shared.1.load(Ordering::Relaxed) > 0;
            shared.0.serve(has_work, |done| *done += shared.1.swap(0, Ordering::Relaxed));
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || leave(&other));
        leave(&shared);
        thread.join().expect("no panic");
        assert_eq!(shared.0.enter(|done| *done), 2, "what was left is forgotten");
    });
}

/// A thread of a model, which sleeps until it is woken.
struct Sleeper(thread::Thread);

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Leads until `is_done`, or follows whoever leads. Everybody who leads makes one step.
fn lead_or_follow(lead: &Lead, steps: &AtomicU32, wakers: &[Waiters; 2], own: usize) {
    let waker = Waker::from(std::sync::Arc::new(Sleeper(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let (mut taking, mut place) = (Taking::new(lead), None);
    let is_done = || steps.load(Ordering::SeqCst) > own as u32;
    loop {
        wakers[own].join(&mut place, &waker);
        if is_done() {
            break;
        }
        match Pin::new(&mut taking).poll(&mut cx) {
            Poll::Pending => thread::park(),
            Poll::Ready(leader) => {
                while !is_done() && lead.is_of(leader) {
                    let step = steps.fetch_add(1, Ordering::SeqCst) as usize;
                    wakers[step.min(1)].tell_one();
                    if !is_done() {
                        lead.has_nothing();
                    }
                }
                lead.pass(leader);
            }
        }
    }
    let _ = wakers[own].leave(&mut place);
}

#[test]
fn of_two_who_wait_one_leads_until_the_other_can() {
    model(|| {
        let shared = Arc::new((
            Lead::default(),
            AtomicU32::new(0),
            [Waiters::default(), Waiters::default()],
        ));
        let other = Arc::clone(&shared);
        // Its step comes second: whoever leads before that goes, and is to be followed.
        let thread = thread::spawn(move || lead_or_follow(&other.0, &other.1, &other.2, 1));
        // Were the lead lost, one would sleep for ever, which loom finds.
        lead_or_follow(&shared.0, &shared.1, &shared.2, 0);
        thread.join().expect("no panic");
        assert!(shared.0.is_there(), "nobody leads any more");
    });
}
