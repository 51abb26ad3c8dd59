//! What a device or this process may have no more of: refused by name, and there again once
//! something was given back. The kernel's controller of RDMA resources makes devices small.

use crate::census::Census;
use crate::talker::config;
use crate::{open, pair};
use std::fmt::Debug;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use towpath_device_verbs::{OpenError, Target, VerbsDevice};
use towpath_memory::Region;
use towpath_transport::{Endpoint, EndpointError};
use towpath_verbs::{Access, CqNum, Device, PdNum, QpInit, QpType, Verb, VerbError};

/// More than any limit here allows.
const TRIES_MAX: usize = 100;

/// This process in a control group whose share of a device is small.
struct Share {
    device: String,
    folder: PathBuf,
}

const GROUPS: &str = "/sys/fs/cgroup";

fn move_to(folder: &str) {
    let procs = PathBuf::from(folder).join("cgroup.procs");
    std::fs::write(procs, std::process::id().to_string()).expect("a control group takes us");
}

impl Share {
    /// `limits` as the kernel writes them: `hca_handle=2 hca_object=20`.
    fn of(device: &str, limits: &str) -> Self {
        let folder = PathBuf::from(GROUPS).join("towpath-share");
        std::fs::create_dir(&folder).expect("cgroup2 is mounted, and we are root");
        let share = Self { device: device.to_owned(), folder };
        share.limit(limits);
        move_to(&share.folder.to_string_lossy());
        share
    }

    fn limit(&self, limits: &str) {
        let limits = format!("{} {limits}", self.device);
        std::fs::write(self.folder.join("rdma.max"), limits).expect("its rdma controller is on");
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        move_to(GROUPS);
        // With limits left behind, Linux 6.1 falls over its own list when the device goes.
        self.limit("hca_handle=max hca_object=max");
        // It stays where something still counts against it, which the next test would say.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Makes things until it is refused; returns them with the refusal.
fn until_refused<T: Debug, E: Debug>(mut make: impl FnMut() -> Result<T, E>) -> (Vec<T>, E) {
    let mut made = Vec::new();
    while made.len() < TRIES_MAX {
        match make() {
            Ok(one) => made.push(one),
            Err(error) => return (made, error),
        }
    }
    panic!("{TRIES_MAX} were made and none refused");
}

fn region() -> Region {
    Region::new(4096).expect("memory")
}

#[test]
#[ignore = "needs an RDMA device and its control group: cargo xtask vm-test"]
fn a_device_without_more_of_anything_says_of_what_and_goes_on() {
    let [name, _] = pair();
    let before = Census::take();
    let share = Share::of(&name, "hca_handle=1 hca_object=20");
    let mut device = open(&name);
    let cq = device.create_cq(8).expect("the first");
    let init = QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL).depth(4, 4);

    let (qps, error) = until_refused(|| device.create_qp(&init));
    assert_eq!(error, VerbError::OutOfResources(Verb::CreateQp));
    assert!(qps.len() > 4, "{} queue pairs", qps.len());
    // All are gone: nothing else is to be had either.
    let error = device.reg_mr(PdNum::DEFAULT, &region(), Access::LOCAL).unwrap_err();
    assert_eq!(error, VerbError::OutOfResources(Verb::RegMr));
    assert_eq!(device.create_cq(8), Err(VerbError::OutOfResources(Verb::CreateCq)));
    assert_eq!(device.create_srq(8), Err(VerbError::OutOfResources(Verb::CreateSrq)));
    // And what was given back is.
    device.destroy_qp(qps[0]).expect("it is there");
    let keys = device.reg_mr(PdNum::DEFAULT, &region(), Access::LOCAL).expect("room for one");
    device.create_qp(&init).expect_err("there was room for one");
    device.dereg_mr(keys.lkey).expect("it is there");
    for qp in &qps[1..] {
        device.destroy_qp(*qp).expect("it is there");
    }

    let (regions, error) =
        until_refused(|| device.reg_mr(PdNum::DEFAULT, &region(), Access::LOCAL));
    assert_eq!(error, VerbError::OutOfResources(Verb::RegMr));
    assert_eq!(regions.len(), qps.len(), "each takes the place of one");
    for keys in regions {
        device.dereg_mr(keys.lkey).expect("it is there");
    }
    let (queues, error) = until_refused(|| device.create_cq(8));
    assert_eq!(error, VerbError::OutOfResources(Verb::CreateCq));
    assert_eq!(queues.last(), Some(&CqNum(qps.len() as u32)));
    drop(device);
    drop(share);
    before.comes_back();
}

#[test]
#[ignore = "needs an RDMA device and its control group: cargo xtask vm-test"]
fn a_device_that_has_no_room_for_us_does_not_open() {
    let [name, _] = pair();
    let before = Census::take();
    let refused = |limits: &str| {
        let _share = Share::of(&name, limits);
        VerbsDevice::open(&Target::new().device(&name)).err().expect("it has no room")
    };
    let error = refused("hca_handle=0");
    assert!(matches!(&error, OpenError::Refused { name: of, .. } if *of == name), "{error}");
    for objects in 0..3 {
        let error = refused(&format!("hca_object={objects}"));
        let OpenError::Setup { source, .. } = &error else { panic!("{objects}: {error}") };
        assert!(matches!(source, VerbError::OutOfResources(_)), "{objects}: {error}");
    }
    before.comes_back();
}

#[test]
#[ignore = "needs an RDMA device and its control group: cargo xtask vm-test"]
fn an_endpoint_on_a_device_that_is_too_small_is_none() {
    let [name, _] = pair();
    let before = Census::take();
    let share = Share::of(&name, "hca_object=4");
    let error = Endpoint::new(open(&name), config()).err().expect("it is too small");
    println!("{error}");
    let expected = matches!(error, EndpointError::Verb(VerbError::OutOfResources(_)));
    assert!(expected, "{error:?}");
    drop(share);
    before.comes_back();
}

/// What a process may lock that is no administrator's, in KiB.
const LOCKED_KIB_MAX: u64 = 4096;

/// Of this program, as nobody, with little memory to lock.
fn poor(test: &str) {
    let before = Census::take();
    let program = std::env::current_exe().expect("it runs");
    let child = Command::new("sh")
        .args(["-c", &format!("ulimit -l {LOCKED_KIB_MAX} && exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["--ignored", "--exact", "--nocapture", test])
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    println!("{}", said.replace("test ", "by nobody: "));
    before.comes_back();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn memory_that_may_not_be_locked_is_refused_by_name() {
    poor("exhausted::half_registers");
    poor("exhausted::half_endpoint");
}

/// Not a test of its own: see above.
#[test]
#[ignore = "the other half of the tests here"]
fn half_registers() {
    const BYTES: usize = 512 << 10;
    let [name, _] = pair();
    let mut device = open(&name);
    let mut register = || {
        let memory = Region::new(BYTES).expect("memory");
        device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL)
    };
    let (made, error) = until_refused(&mut register);
    println!("{} of {} KiB: {error}", made.len(), BYTES >> 10);
    assert_eq!(error, VerbError::OutOfResources(Verb::RegMr));
    assert!(error.to_string().contains("ulimit -l"), "it says what to do: {error}");
    let fit = LOCKED_KIB_MAX as usize * 1024 / BYTES;
    assert!(made.len() <= fit && made.len() > fit / 2, "{} of {fit}", made.len());
    for keys in &made {
        device.dereg_mr(keys.lkey).expect("it is there");
    }
    let mut register = || {
        let memory = Region::new(BYTES).expect("memory");
        device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL)
    };
    assert_eq!(until_refused(&mut register).0.len(), made.len(), "as many as before");
}

/// Not a test of its own: see above.
#[test]
#[ignore = "the other half of the tests here"]
fn half_endpoint() {
    let [name, _] = pair();
    let error = Endpoint::new(open(&name), config()).err().expect("its buffers are more");
    let expected = VerbError::OutOfResources(Verb::RegMr);
    assert!(matches!(error, EndpointError::Verb(error) if error == expected), "{error:?}");
}
