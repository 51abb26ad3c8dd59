//! Faults that begin in the middle of a run.

use std::thread;
use std::time::Duration;
use towpath_sim::{FaultControl, FaultPlan};

/// What is sent meets what `holed` says, from so many seconds on or at once.
pub(crate) fn swallow_after(seconds: Option<f64>, faults: FaultControl, holed: FaultPlan) {
    let Some(seconds) = seconds else { return faults.set_transmit(holed) };
    // Beside the loop that sends, which looks at no clock for it.
    thread::spawn(move || {
        thread::sleep(Duration::from_secs_f64(seconds));
        faults.set_transmit(holed);
    });
}
