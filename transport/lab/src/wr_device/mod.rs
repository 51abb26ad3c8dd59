//! The work-request level: a device whose UC SEND is one train of the fabric.
//!
//! There are no packets here, so none are built, checksummed or cut: a message travels as one
//! event per hop, whatever its length. What an endpoint can observe is as on a device that cuts:
//! a message that lost any packet does not come, one without a receive work request is dropped,
//! messages of one path come in order, and completions carry the time of the wire. So the same
//! endpoints run on it, ten times as many messages a second.
//!
//! What differs: of a lost message nothing lands, where UC may leave its first packets in a
//! receive buffer that is then used again; and queue pairs are UC alone, with SEND alone.
//!
//! | file | what it does |
//! |---|---|
//! | `device` | the verbs |
//! | `engine` | whose turn it is to send, and where a message goes |
//! | `fabric` | the fabric as a wire for messages |
//! | `frame` | what travels in a train |
//! | `queues` | completion queues, receive queues, queue pairs by number |

mod device;
mod engine;
mod fabric;
mod frame;
mod queues;

#[cfg(test)]
mod tests;

pub use device::WrDevice;
pub use engine::WrCounters;

use std::net::SocketAddr;
use towpath_base::Time;
use towpath_sim::{RxTrain, TxTrain};
use towpath_verbs::LinkCaps;

/// A wire for messages: whole, or not at all.
pub trait TrainLink {
    /// What it can do; [`LinkCaps::packet_bytes_max`] decides the MTU.
    fn caps(&self) -> LinkCaps;

    /// Where peers send to.
    fn local_addr(&self) -> SocketAddr;

    /// The link's clock now.
    fn now(&self) -> Time;

    /// Takes a message; false when there is no room for it now, and it is to be offered again.
    /// What can never be carried counts as taken, and is lost.
    fn send_train(&mut self, train: &TxTrain<'_>) -> bool;

    /// Hands at most `budget` messages to `sink`, in order of arrival; returns how many.
    fn receive_trains(&mut self, budget: usize, sink: &mut dyn FnMut(RxTrain<'_>)) -> usize;
}
