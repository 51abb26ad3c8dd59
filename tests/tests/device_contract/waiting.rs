//! Blocking until something completes, on devices that can.

use crate::rig::Rig;
use towpath_base::Nanos;
use towpath_memory::Region;
use towpath_verbs::{Device, SendOp};

/// Who is not woken waits for ever: whoever runs the tests stops that.
fn woken<D: Device<Memory = Region> + Send>(rig: Rig<D>) {
    let mut rig = rig;
    let (a_qp, b_qp) = rig.uc();
    rig.b.recv(b_qp, 1, 0, 64);
    assert!(!rig.b.device.wait(Nanos::from_millis(1)), "nothing has come");
    let (a, b) = (&mut rig.a, &mut rig.b);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // So that the other one is most likely asleep.
            std::thread::sleep(std::time::Duration::from_millis(50));
            a.send(a_qp, 1, SendOp::Send, 64);
        });
        while !b.device.wait(Nanos::from_secs(1_000_000)) {}
        assert!(b.completions().iter().map(|wc| wc.wr_id).eq([1]));
    });
}

/// A wake ends the wait that is under way, and one that came before ends the next one.
fn rung<D: Device<Memory = Region> + Send>(rig: Rig<D>) {
    let mut device = rig.b.device;
    let waker = device.waker().expect("a device that blocks can be woken");
    waker.wake_by_ref();
    assert!(device.wait(Nanos::from_secs(1_000_000)), "rung before");
    assert!(!device.wait(Nanos::from_millis(1)), "once for each ring");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            waker.wake();
        });
        assert!(device.wait(Nanos::from_secs(1_000_000)), "rung meanwhile");
    });
}

mod mem {
    #[test]
    fn who_waits_is_woken_by_a_completion() {
        super::woken(crate::rig::mem());
    }

    #[test]
    fn who_waits_is_woken_by_a_ring() {
        super::rung(crate::rig::mem());
    }
}

#[cfg(feature = "verbs")]
mod verbs {
    #[test]
    #[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
    fn who_waits_is_woken_by_a_completion() {
        super::woken(crate::rig::verbs());
    }

    #[test]
    #[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
    fn who_waits_is_woken_by_a_ring() {
        super::rung(crate::rig::verbs());
    }
}
