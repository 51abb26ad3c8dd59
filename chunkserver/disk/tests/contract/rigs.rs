//! The kinds of disks that the contract is tested on.

use std::io;

use towpath_disk::Disk;
use towpath_disk::sim::Medium;

/// Pages of each disk.
pub(crate) const PAGE_COUNT: u64 = 4500;

/// Operations that may be under way.
pub(crate) const DEPTH: usize = 24;

/// Makes disks of one kind, all of the same bytes: zeros at first.
pub(crate) trait Rig {
    fn open(&self) -> io::Result<Box<dyn Disk>>;
}

/// A simulated one.
pub(crate) struct SimRig(Medium);

impl SimRig {
    pub(crate) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(Medium::new(seed, PAGE_COUNT))
    }
}

impl Rig for SimRig {
    fn open(&self) -> io::Result<Box<dyn Disk>> {
        Ok(Box::new(self.0.open(DEPTH)?))
    }
}
