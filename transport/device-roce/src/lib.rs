//! A RoCEv2 NIC in userspace.
//!
//! [`RoceDevice`] is a [`towpath_verbs::Device`] over any [`towpath_verbs::PacketLink`]: RC, UC and
//! UD queue pairs, SEND and WRITE with and without immediate data, READ and atomics on RC, shared
//! receive queues. Packets are those of RoCEv2. On a link that is set up for
//! [foreign peers](udp::UdpConfig::foreign_peers) each is as hardware NICs and the Linux rxe driver
//! want it. By default, on IPv4, [`udp`] lets the kernel cut packets from runs, which gives them IP
//! IDs that their ICRC does not have; only this device takes those. IPv6 has no such ID.
//!
//! | room | what is in it |
//! |---|---|
//! | [`wire`] | packets: headers, opcodes, ICRC |
//! | `device` | the verbs: create, post, poll, progress |
//! | `requester` | sending: messages into packets, batches, completions |
//! | `responder` | receiving: packets into messages, the rules of UC and UD |
//! | `middle` | shorter ways out and in for most packets between a message's first and last |
//! | `rc` | reliable connections: requester, responder, completer |
//! | `qp`, `cq`, `recv_queue`, `timers` | the objects |
//! | [`EngineThread`] | an optional thread that drives a device, and the lock around it |
//! | [`udp`] | a packet link over UDP sockets |
//!
//! # What its UC does
//! As hardware (the rules are with the responder): no acknowledgement; a FIRST or ONLY packet is
//! accepted at any PSN; a message that lost a packet is dropped silently after part of it may have
//! reached memory; no receive work request means silent drop. Every drop is counted by its reason
//! in [`RoceCounters`].
//!
//! # What its RC does
//! Go-Back-N as NICs do it, with the retries, timers and limits of
//! [`RcAttr`](towpath_verbs::RcAttr): acknowledged, ordered, READs and atomics exactly once. It
//! is the honest baseline of the studies, and a carrier of its own. It has timers: call
//! [`progress`](towpath_verbs::Device::progress) when
//! [`next_timeout`](towpath_verbs::Device::next_timeout) is due. The memory that a work request
//! names is read again for every transmission, so it stays lent until the completion. Every rule
//! with its source and its test is listed in `docs/rc-conformance.md`.
//!
//! # What its UD does
//! As verbs have it, a datagram lands behind 40 bytes of routing header, which the receive work
//! request must have room for and `byte_len` counts; over IPv4 the last 20 of them are the IP
//! header. A datagram is one packet. Its sender stands in `src_qp` and `src_addr`.
//!
//! # Errors of its own
//! A send whose memory was deregistered completes with `LocProtErr` and its queue pair goes to ERR
//! (never to SQE), which flushes the rest. Posting to a queue pair in ERR is refused. A completion
//! queue that overflows fails for good, and its queue pairs with it.

#![deny(unsafe_code)]

mod addr;
mod config;
mod counters;
mod cq;
mod device;
mod engine;
mod engine_thread;
pub mod limits;
mod middle;
mod qp;
mod rc;
mod recv_queue;
mod requester;
mod responder;
#[cfg(test)]
mod tests;
mod timers;
pub mod udp;
pub mod wire;

pub use config::RoceConfig;
pub use counters::RoceCounters;
pub use device::RoceDevice;
pub use engine_thread::{EngineThread, SharedDevice};
