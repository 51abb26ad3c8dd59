//! A RoCEv2 NIC in userspace.
//!
//! [`RoceDevice`] is a [`towpath_verbs::Device`] over any [`towpath_verbs::PacketLink`]: UC and UD
//! queue pairs, SEND and WRITE with and without immediate data, shared receive queues, wire-exact
//! so that hardware NICs and the Linux rxe driver are peers.
//!
//! | room | what is in it |
//! |---|---|
//! | [`wire`] | packets: headers, opcodes, ICRC |
//! | `device` | the verbs: create, post, poll, progress |
//! | `requester` | sending: messages into packets, batches, completions |
//! | `responder` | receiving: packets into messages, the rules of UC and UD |
//! | `qp`, `cq`, `recv_queue` | the objects |
//! | [`udp`] | a packet link over UDP sockets |
//!
//! # What its UC does
//! As hardware (the rules are with the responder): no acknowledgement; a FIRST or ONLY packet is
//! accepted at any PSN; a message that lost a packet is dropped silently after part of it may have
//! reached memory; no receive work request means silent drop. Every drop is counted by its reason
//! in [`RoceCounters`].

#![deny(unsafe_code)]

mod config;
mod counters;
mod cq;
mod device;
mod engine;
pub mod limits;
mod qp;
mod recv_queue;
mod requester;
mod responder;
#[cfg(test)]
mod tests;
pub mod udp;
pub mod wire;

pub use config::RoceConfig;
pub use counters::RoceCounters;
pub use device::RoceDevice;
