//! Models of what wakes whom, run by loom in every order that the memory model allows:
//! `cargo xtask loom`.

use crate::bell::Rung;
use crate::{Listed, Rest};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

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
