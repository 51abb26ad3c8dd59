//! A pair of RDMA devices within one process, connected by memory: a message costs one copy.
//!
//! [`MemDevice::pair`] makes two connected [`towpath_verbs::Device`]s, for one thread or two. Use
//! them to measure the cost of the software above a device, and in tests. `post_send` itself copies
//! the bytes from the sender's registered memory into the receive that the peer has posted; both
//! completions are there when it returns. As with hardware, data arrives even if the peer does not
//! poll, and `progress` has no packets to move.
//!
//! | file | contents |
//! |---|---|
//! | `device` | the verbs |
//! | `port` | the half of a device that its peer reaches |
//! | `landing` | the rules for writing a message into the peer's receive |
//! | `qp`, `recvs`, `cq` | queue pairs, receive queues, completion queues, events |
//! | `counters`, `limits` | numbers |
//!
//! # What it supports
//! UC and UD queue pairs, SEND and WRITE with and without immediate data, shared receive queues.
//! As on the wire, a message that finds no receive work request is lost silently, and counted in
//! [`MemCounters`]; nothing else is ever lost, reordered or repeated. RC, READ and atomics are
//! `Unsupported`, as its capabilities say. Its completions have no timestamps: a message spends no
//! time on a wire.
//!
//! # Threads
//! Posted receives and completions of receives pass through lock-free rings, one for each queue.
//! Each batch of sends takes one lock, on the peer's port; only creating and destroying objects of
//! the peer competes for it. This lock makes it safe to take buffers back: once `destroy_qp` or
//! `dereg_mr` has returned, or the device is dropped, no copy by the peer is under way or will
//! start.

#![forbid(unsafe_code)]

mod counters;
mod cq;
mod device;
mod landing;
pub mod limits;
mod port;
mod qp;
mod recvs;
#[cfg(test)]
mod tests;

pub use counters::MemCounters;
pub use device::MemDevice;
