//! Models of what threads share here, run by loom in every order that the memory model allows:
//! `cargo xtask loom`.

use crate::free::FreeSlots;
use crate::slots::{Lending, Slots};
use crate::wanted::Wanted;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::task::{Wake, Waker};

/// Switches between threads that a model tries at most, beside those where a thread waits: more
/// take minutes, and what goes wrong mostly does so with one or two.
const PREEMPTIONS_MAX: usize = 3;

/// Steps of one run of a model at most: some wait for each other.
const BRANCHES_MAX: usize = 10_000;

fn model(run: impl Fn() + Send + Sync + 'static) {
    model_with(PREEMPTIONS_MAX, run);
}

fn model_with(preemptions_max: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.max_branches = BRANCHES_MAX;
    builder.check(run);
}

/// Bytes of a slot; loom finds two that reach them at once, or that do not see each other's.
struct Bytes(UnsafeCell<u32>);

// SAFETY: loom itself looks that nobody writes while others reach it.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn write(&self) {
        // SAFETY: loom stops the model where somebody else reaches it.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn a_slot_is_out_once_and_comes_with_what_was_written_to_it() {
    model(|| {
        let free = Arc::new((FreeSlots::full(2), [Bytes::new(), Bytes::new()]));
        let take_and_free = |shared: &(FreeSlots, [Bytes; 2]), count: usize| {
            let taken: Vec<u32> = (0..count).filter_map(|_| shared.0.pop()).collect();
            for slot in taken {
                shared.1[slot as usize].write();
                // What was taken first goes back first, so that the stack is another one then.
                shared.0.push(slot);
            }
        };
        let other = Arc::clone(&free);
        let thread = thread::spawn(move || take_and_free(&other, 2));
        take_and_free(&free, 1);
        take_and_free(&free, 1);
        thread.join().expect("no panic");
        let all: Vec<u32> = std::iter::from_fn(|| free.0.pop()).collect();
        assert_eq!((all.len(), free.0.len()), (2, 0), "none is lost: {all:?}");
        all.iter().for_each(|&slot| free.1[slot as usize].write());
    });
}

/// A device that holds a slot twice, one after the other, while the owner wants it back.
fn a_slot_that_is_lent(lending: Lending) {
    model(move || {
        let slot = Arc::new((Slots::carved(64, 1), Bytes::new()));
        assert!(slot.0.at(0).lend(lending));
        let device = Arc::clone(&slot);
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                if device.0.at(0).hold(1, true) {
                    device.1.write();
                    device.0.at(0).release();
                }
            }
        });
        if slot.0.at(0).take_back() {
            slot.1.write();
            assert!(slot.0.at(0).lend(lending), "it is its owner's");
        }
        thread.join().expect("no panic");
        assert!(slot.0.at(0).take_back(), "nobody holds it");
        slot.1.write();
    });
}

#[test]
fn no_device_reaches_a_slot_that_its_owner_has_back() {
    a_slot_that_is_lent(Lending::Once);
    a_slot_that_is_lent(Lending::Many);
}

/// A device that copies a slot without a hold that is counted, while the owner wants it back.
#[test]
fn no_device_copies_a_slot_that_its_owner_has_back() {
    for slots in [|| Slots::carved(64, 1), || Slots::carved(64, 1).shared()] {
        model(move || {
            let slot = Arc::new((slots(), Bytes::new()));
            assert!(slot.0.at(0).lend(Lending::Once));
            let device = Arc::clone(&slot);
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    device.0.at(0).read_by(1, || {
                        device.1.read();
                    });
                }
            });
            if slot.0.at(0).take_back() {
                slot.1.write();
                assert!(slot.0.at(0).lend(Lending::Once), "it is its owner's");
            }
            thread.join().expect("no panic");
            assert!(slot.0.at(0).take_back(), "nobody holds it");
            slot.1.write();
        });
    }
}

#[test]
fn of_two_devices_one_writes() {
    model(|| {
        let slot = Arc::new((Slots::carved(64, 1), Bytes::new()));
        assert!(slot.0.at(0).lend(Lending::Many));
        let write = |holder: u32, shared: &(Slots, Bytes)| {
            if shared.0.at(0).hold(holder, true) {
                shared.1.write();
                shared.0.at(0).release();
            }
        };
        let other = Arc::clone(&slot);
        let thread = thread::spawn(move || write(1, &other));
        write(2, &slot);
        thread.join().expect("no panic");
        assert!(slot.0.at(0).take_back());
        slot.1.write();
    });
}

#[test]
fn what_was_shared_is_changed_only_when_the_last_reader_is_done() {
    three_who_share(PREEMPTIONS_MAX, || Slots::carved(64, 1).shared());
    // Three threads of which each may move the home: more switches take hours.
    three_who_share(1, || Slots::carved(64, 1));
}

fn three_who_share(preemptions_max: usize, slots: fn() -> Slots) {
    model_with(preemptions_max, move || {
        let slot = Arc::new((slots(), Bytes::new()));
        assert!(slot.0.at(0).begin_part() && slot.0.at(0).begin_part());
        let [device, reader] = [(); 2].map(|()| Arc::clone(&slot));
        let device = thread::spawn(move || {
            if device.0.at(0).hold(1, false) {
                device.1.read();
                device.0.at(0).release();
            }
        });
        let reader = thread::spawn(move || {
            reader.1.read();
            reader.0.at(0).end_part();
        });
        slot.0.at(0).end_part();
        if slot.0.at(0).take_back() {
            slot.1.write();
        }
        [device, reader].map(|thread| thread.join().expect("no panic"));
    });
}

/// Wakes a thread of a model.
struct Sleeper(thread::Thread);

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn who_waits_for_a_slot_is_woken() {
    model(|| {
        let pool = Arc::new((FreeSlots::full(1), Wanted::default()));
        let slot = pool.0.pop().expect("a fresh pool");
        let giver = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            giver.0.push(slot);
            giver.1.tell();
        });
        let waker = Waker::from(std::sync::Arc::new(Sleeper(thread::current())));
        // Were the wake missed, this would sleep for ever, which loom finds.
        while pool.0.pop().is_none() {
            pool.1.add(&waker);
            if pool.0.is_empty() {
                thread::park();
            }
        }
        pool.1.remove(&waker);
        thread.join().expect("no panic");
    });
}
