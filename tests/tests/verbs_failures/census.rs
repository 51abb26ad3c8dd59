//! What the kernel holds for us: objects of devices, open files, pinned memory.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// How often is looked before a leak is one, 10 ms apart: what a killed process held goes while
/// others already know of its end.
const LOOKS_MAX: u32 = 6_000;

/// What is held now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Census {
    /// By device and kind, as `rxe0 qp`: of all processes.
    pub(crate) objects: BTreeMap<String, u64>,
    /// Files that this process has open.
    pub(crate) files: usize,
    /// KiB that devices have pinned for this process.
    pub(crate) pinned_kib: u64,
}

impl Census {
    pub(crate) fn take() -> Self {
        let show = Command::new("rdma").args(["resource", "show"]).output();
        let objects = objects(&String::from_utf8_lossy(&show.expect("rdma is there").stdout));
        assert!(!objects.is_empty(), "`rdma resource show` tells of no device");
        let files = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
        Self { objects, files, pinned_kib: pinned_kib(&status) }
    }

    /// Objects of one kind on one device.
    pub(crate) fn of(&self, device: &str, kind: &str) -> u64 {
        let key = format!("{device} {kind}");
        *self.objects.get(&key).unwrap_or_else(|| panic!("no {key} in {:?}", self.objects))
    }

    /// Fails unless, soon, exactly this is held again.
    pub(crate) fn comes_back(&self) {
        let mut now = Self::take();
        for _ in 0..LOOKS_MAX {
            if now == *self {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
            now = Self::take();
        }
        assert_eq!(now, *self, "left: what is held; right: what was before");
    }
}

/// Lines like `0: rxe0: pd 1 cq 0 qp 1`.
fn objects(text: &str) -> BTreeMap<String, u64> {
    let mut objects = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(1);
        let Some(device) = words.next() else { continue };
        let device = device.trim_end_matches(':');
        while let (Some(kind), Some(count)) = (words.next(), words.next()) {
            objects.insert(format!("{device} {kind}"), count.parse().expect("a count"));
        }
    }
    objects
}

fn pinned_kib(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let word = line.and_then(|line| line.split_whitespace().next()).expect("VmPin");
    word.parse().expect("KiB")
}
