//! The processors of this machine, each of which may stand still for a while.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What nobody is less urgent than.
const LAST: i32 = 19;
/// How often a visitor lets others go first.
const BOWS: u32 = 8;

/// Runs on each processor that we may run on, behind whoever waits there. A guest whose host is
/// busy has some that stand still while others go on: what waits on one of those has had its turn
/// after a visit.
///
/// # Panics
/// The system does not let us choose.
pub fn visit_all() {
    let ours = sched_getaffinity(None).expect("it is asked about ourselves");
    std::thread::scope(|scope| {
        for processor in (0..CpuSet::MAX_CPU).filter(|&processor| ours.is_set(processor)) {
            scope.spawn(move || {
                setpriority_process(None, LAST).expect("less is always allowed");
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only).expect("it is one of ours");
                (0..BOWS).for_each(|_| std::thread::yield_now());
            });
        }
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_visit_ends_and_leaves_us_free() {
        let before = rustix::thread::sched_getaffinity(None).expect("ours");
        super::visit_all();
        assert_eq!(rustix::thread::sched_getaffinity(None).expect("ours"), before);
    }
}
