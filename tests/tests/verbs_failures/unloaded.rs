//! The device goes away under a running endpoint. Whoever runs these joins the devices anew after.

use crate::census::Census;
use crate::talker::Talker;
use crate::{open, pair};
use std::process::{Child, Command};
use std::time::Duration;
use towpath_device_verbs::{OpenError, Target, VerbsDevice, device_names};

/// How often is looked whether it is over, 10 ms apart.
const LOOKS_MAX: u32 = 6_000;

/// Two ends in the middle of a transfer.
fn talking() -> [Talker; 2] {
    let [near, far] = pair();
    let (mut left, mut right) = (Talker::new(open(&near)), Talker::new(open(&far)));
    right.dial(left.listen());
    left.run_beside(&mut right, "messages come", |left, right| {
        left.received >= 20 && right.received >= 20
    });
    [left, right]
}

fn start(words: &str) -> Child {
    let mut words = words.split(' ');
    let program = words.next().expect("a program");
    Command::new(program).args(words).spawn().expect("it is there")
}

/// Waits for a program that must not wait for ever.
fn ends(what: &str, mut child: Child) {
    for _ in 0..LOOKS_MAX {
        if let Some(status) = child.try_wait().expect("it is ours") {
            assert!(status.success(), "{what}: {status}");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    panic!("{what} hangs");
}

fn interface_of(device: &str) -> String {
    let file = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    std::fs::read_to_string(file).expect("it has an interface").trim().to_owned()
}

#[test]
#[ignore = "takes devices away: cargo xtask vm-test"]
fn a_deleted_link_is_gone_when_its_endpoint_is() {
    let [near, _] = pair();
    let interface = interface_of(&near);
    let before = Census::take();
    let [mut left, mut right] = talking();
    // The kernel takes the device off its lists, and waits for those who have it open.
    let mut deleting = start(&format!("rdma link delete {near}"));
    std::thread::sleep(Duration::from_millis(500));
    println!("deleted at once: {:?}", deleting.try_wait());
    let refused = VerbsDevice::open(&Target::new().device(&near)).err();
    println!("{refused:?}");
    assert!(matches!(refused, Some(OpenError::NoSuchDevice { .. })));
    // Whatever the device still does, the endpoint goes on taking turns and can be dropped.
    for _ in 0..200 {
        left.turn();
        right.turn();
    }
    println!("{:?}\n{:?}", left.counts, right.counts);
    drop(left);
    ends("deletion", deleting);
    right.run_until("the link is down", |counts| counts.down.is_some());
    drop(right);
    assert!(!device_names().expect("a list").contains(&near));
    ends("addition", start(&format!("rdma link add {near} type rxe netdev {interface}")));
    before.comes_back();
}

#[test]
#[ignore = "takes devices away: cargo xtask vm-test"]
fn an_interface_that_is_taken_out_takes_the_links_down() {
    let [near, far] = pair();
    let interface = interface_of(&near);
    let [mut left, mut right] = talking();
    // Both ends of the cable go with it, when nobody has the devices open any more.
    let removing = start(&format!("ip link delete {interface}"));
    // The kernel's word that the port is down may be lost: it asks the port first, which is gone.
    for talker in [&mut left, &mut right] {
        talker.run_until("the link is down", |counts| counts.down.is_some());
        let counts = &talker.counts;
        println!("{counts:?}");
        assert_eq!(counts.sent, counts.delivered + counts.failed, "each has its outcome");
    }
    drop((left, right));
    ends("removal", removing);
    for _ in 0..LOOKS_MAX {
        let names = device_names().expect("a list");
        if !names.contains(&near) && !names.contains(&far) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the devices are still there: {:?}", device_names());
}
