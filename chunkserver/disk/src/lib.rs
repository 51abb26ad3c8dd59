//! One disk of a store: what it can be asked, what comes back, and what is durable when.
//!
//! A store drives a [`Disk`] from one thread. It [submits](Disk::submit) operations, each with a
//! tag of its choice, and takes what is [done](Done) from [`poll`](Disk::poll) or
//! [`wait`](Disk::wait). Nothing waits in `submit`: where the queue is full, the operation comes
//! back.
//!
//! # Durability
//!
//! - A write is done when a read that is submitted later sees it. It is not durable then.
//! - A write is durable when a flush is done that was submitted **after the write was taken as
//!   done**. A flush says nothing of writes that were still under way when it was submitted, and
//!   nothing of those that were done but not yet taken.
//! - A [durable write](Op::write_durably), of a disk that [takes them](DurableWrites),
//!   is durable when it is done. It says nothing of other writes, unless the disk says so.
//! - Until then a power cut leaves any part of it: all, nothing, or any of its sectors of 512
//!   bytes, whatever it leaves of other writes, be they older or newer. Of two writes to one
//!   sector, of which the second was submitted after the first was taken as done, the first never
//!   replaces the second.
//! - A write that failed leaves any part of it, at once.
//! - **A flush that fails is final.** Nothing is known then of any write that no earlier flush made
//!   durable, and no later flush can tell, since the system forgets what it could not write. The
//!   disk takes no more changes then, until it is opened anew; it is read on.
//! - So is a durable write whose bytes the disk took and did not make last:
//!   [`DiskError::is_final`] tells.
//! - So is the flush of a file that was removed since: nothing of it outlives the process.
//!
//! # Order
//!
//! Operations under way are carried out, and done, in any order. Writes and reads of the same page
//! that are under way at the same time give any mixture. Who wants an order submits the second
//! operation after the first is done.
//!
//! # Memory
//!
//! Operations take memory of an endpoint, in whole pages that begin at pages: [`ReadPages`] are a
//! buffer, [`WritePages`] also a frozen one, which others may be reading or sending. The disk owns
//! them until the operation is done, and then they come back, whatever the outcome. So a device
//! never writes to memory that someone else has. Dropping a disk waits for what is under way.
//!
//! # The disks
//!
//! - [`open()`] gives one on a file or a block device: by io_uring, past the page cache, and where
//!   the kernel or the file system refuses that, by threads; on a file system in memory by whoever
//!   asks. [`Options`] say how, and the [`Report`] what came of it, and why.
//! - [`sim`]: in memory and in virtual time, deterministic by its seed, with power cuts and faults.

#![deny(unsafe_code)]

mod at_once;
mod cache;
mod disk;
mod file;
mod gate;
mod op;
mod open;
mod pages;
pub mod sim;
mod threads;
mod transfer;
mod uring;

pub use cache::Cache;
pub use disk::{Disk, DiskError, Done, DurableWrites, Limits, Refusal, Refused};
pub use op::{Buffers, OP_BUFFERS_MAX, OP_PAGES_MAX, Op, PageNumber, What};
pub use open::{
    Backend, DEPTH_MAX, NewFile, NoUring, OpenError, Options, Report, THREADS_MAX, open,
};
pub use pages::{ReadPages, WritePages};
pub use towpath_memory::PAGE_BYTES;
