//! An in-process wire that costs one copy.
//!
//! [`MemDevice::pair`] makes two [`towpath_verbs::Device`]s joined to each other, for one thread or
//! two: what our software costs above a device can be measured where the device costs next to
//! nothing. Who posts a send also carries it out: within `post_send` the bytes are copied from the
//! sender's registered memory into the receive that the peer has posted, and both completions are
//! there when it returns. So, as with hardware, a peer that does not look is written to all the
//! same, and `progress` has no packets to move.
//!
//! | room | what is in it |
//! |---|---|
//! | `device` | the verbs |
//! | `port` | the half of a device that its peer reaches |
//! | `landing` | the rules by which a message lands there |
//! | `qp`, `recvs`, `cq` | queue pairs, receive queues, completion queues, events |
//! | `counters`, `limits` | numbers |
//!
//! # What it has
//! UC and UD queue pairs, SEND and WRITE with and without immediate data, shared receive queues.
//! As on the wire, a message that finds no receive work request is lost silently, and counted in
//! [`MemCounters`]; nothing else is ever lost, reordered or repeated. RC, READ and atomics are
//! `Unsupported`, as its capabilities say. Its completions have no timestamps: there is no wire on
//! which a message would be at another time than in the hands of its ends.
//!
//! # Threads
//! Posted receives and completions of receives pass through rings without locks, one for each
//! queue. A lock is taken for each batch of sends, on the peer's port: nobody competes for it but
//! the peer's own making and destroying of objects. That is what makes it safe to take buffers
//! back: once `destroy_qp` or `dereg_mr` has returned, or the device is dropped, no copy of the
//! peer is under way or will start.

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
