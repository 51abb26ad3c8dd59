//! A RoCEv2 NIC in userspace: an RDMA device that needs no RDMA hardware and no privileges.
//!
//! [`RoceDevice`] implements [`towpath_verbs::Device`] over any [`towpath_verbs::PacketLink`]. The
//! usual one is [`udp`], which sends the packets over UDP sockets; its settings are
//! [`udp::UdpConfig`]. The device has RC, UC and UD queue pairs, SEND and WRITE with and without
//! immediate data, READ and atomics on RC, and shared receive queues.
//!
//! Packets have the RoCEv2 format. On a link that is set up for
//! [foreign peers](udp::UdpConfig::foreign_peers), hardware NICs and the Linux rxe driver accept
//! each of them. By default, on IPv4, [`udp`] lets the kernel split one send into several packets.
//! The kernel then gives them other IP IDs than those that the ICRC was computed with, so only this
//! device accepts them. IPv6 has no such ID.
//!
//! | module or file | contents |
//! |---|---|
//! | [`wire`] | packets: headers, opcodes, ICRC |
//! | `device` | the verbs: create, post, poll, progress |
//! | `requester` | sending: splits messages into packets; batches; completions |
//! | `responder` | receiving: assembles messages from packets; the rules of UC and UD |
//! | `middle` | faster code for most packets between the first and the last of a message |
//! | `rc` | reliable connections: requester, responder, completer |
//! | `qp`, `cq`, `timers` | queue pairs, completion queues, timers |
//! | `send_queue`, `recv_queue` | posted work requests |
//! | [`EngineThread`] | an optional thread that drives a device, and the lock around it |
//! | [`Bundle`] | several NICs as the link of one device |
//! | [`udp`] | a packet link over UDP sockets |
//!
//! # What its UC does
//! It behaves as hardware does (the file `responder` lists the rules). There are no
//! acknowledgements. A FIRST or ONLY packet is accepted at any PSN. A message that lost a packet is
//! dropped silently, after part of it may have reached memory. A message that finds no receive work
//! request is dropped silently. [`RoceCounters`] counts every drop by its reason.
//!
//! # What its RC does
//! It uses Go-Back-N as NICs do, with the retries, timers and limits of
//! [`RcAttr`](towpath_verbs::RcAttr): messages are acknowledged and ordered, READs and atomics are
//! done exactly once. RC is the baseline of the studies, and links can use it as their carrier. RC
//! has timers: call [`progress`](towpath_verbs::Device::progress) when
//! [`next_timeout`](towpath_verbs::Device::next_timeout) is due. Every transmission reads the
//! memory of its work request again, so that memory belongs to the device until the completion.
//! `docs/rc-conformance.md` lists every rule with its source and its test.
//!
//! # What its UD does
//! A datagram is one packet. As in verbs, the datagram is written behind 40 bytes of routing
//! header; the receive work request must have room for them, and `byte_len` counts them. Over IPv4
//! the last 20 of these bytes are the IP header. `src_qp` and `src_addr` name the sender.
//!
//! # Errors that differ from other devices
//! A send whose memory was deregistered completes with `LocProtErr`, and its queue pair goes to ERR
//! (never to SQE), which flushes the other work requests. Posting to a queue pair in ERR is
//! refused. A completion queue that overflows fails permanently, together with its queue pairs.

#![deny(unsafe_code)]

mod addr;
mod bundle;
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
mod send_queue;
#[cfg(test)]
mod tests;
mod timers;
pub mod udp;
pub mod wire;

pub use bundle::Bundle;
pub use config::RoceConfig;
pub use counters::RoceCounters;
pub use device::RoceDevice;
pub use engine_thread::{EngineOptions, EngineThread, SharedDevice};
