//! Congestion control alone: senders of `towpath-cc` on small models of wires and hosts.
//!
//! | module | contents |
//! |---|---|
//! | `bottleneck` | how flows share the bandwidth of one port |
//! | `crowded` | windows between hosts whose processors are busy with other programs |
//! | `shared_wire` | slow wires with short queues, TCP beside, random loss, noisy hosts |

mod bottleneck;
mod crowded;
mod shared_wire;
