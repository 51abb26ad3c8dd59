//! Reliable links over two joined RDMA devices, in the virtual machine: what the cable does is
//! told by the name of a test, and done by whoever runs it.

mod exchange;

use exchange::exchange;
use towpath_device_verbs::{Target, VerbsDevice};

/// Runs an exchange on the devices that `TOWPATH_VERBS_PAIR` names, as `rxe0,rxe1`; returns how
/// many chunks were sent again.
fn over_verbs(seed: u64) -> u64 {
    let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("TOWPATH_VERBS_PAIR names two devices");
    let (near, far) = pair.split_once(',').expect("two names with a comma between them");
    let open = |name| VerbsDevice::open(&Target::new().device(name)).expect("it opens");
    let hosts = exchange(seed, [open(near), open(far)]);
    for host in &hosts {
        println!("{}: {:?}", host.device().name(), host.stats());
    }
    hosts.iter().map(|host| host.stats().chunks_retransmitted).sum()
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn messages_over_a_clean_cable_come_once_and_intact() {
    over_verbs(1);
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn messages_over_a_bad_cable_come_once_and_intact() {
    assert!(over_verbs(2) > 0, "the cable is good");
}
