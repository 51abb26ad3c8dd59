//! Sending: which link has its turn, and how chunks become work requests.
//!
//! | file | what it does |
//! |---|---|
//! | `order` | the order in which links of several classes send |
//! | `acks` | posts acks, and takes back what was posted |
//! | `send` | hands the chunks of a link to the device |
//! | `body` | puts the body of a chunk together |
//! | `filler` | bytes that make a probe as long as a packet |

mod acks;
mod body;
mod filler;
mod order;
mod send;

pub(crate) use acks::{send_acks, take_back_sends};
pub(crate) use body::write_body;
pub(crate) use order::Order;
pub(crate) use send::{Room, Sent};

use crate::conn::Batch;
use crate::error::EndpointError;
use crate::limits::TURN_BYTES;
use filler::Filler;
use towpath_memory::Region;
use towpath_proto::ClassOrder;
use towpath_verbs::{Device, Mtu};

/// State that the sends of all links share.
pub(crate) struct Tx {
    pub(crate) order: Order,
    /// Empty batches. The one that was posted last is filled first, because its memory is in the
    /// cache; so few batches serve many paths.
    batches: Vec<Batch>,
    filler: Filler,
    /// Bytes that a link may have posted ahead of the wire.
    ahead_bytes: u64,
}

impl Tx {
    /// For links of at most so many paths, on a device with packets of this size.
    pub(crate) fn on<D: Device<Memory = Region>>(
        device: &mut D,
        mtu: Mtu,
        (order, ahead_bytes): (ClassOrder, u64),
        paths_max: usize,
    ) -> Result<Self, EndpointError> {
        Ok(Self {
            order: Order::new(order, ahead_bytes),
            // One for each path of a link, as links are flushed one after another.
            batches: (0..paths_max).map(|_| Batch::new()).collect(),
            filler: Filler::on(device, mtu)?,
            ahead_bytes,
        })
    }

    /// What a link may hand over, when no link of another class waits.
    pub(crate) fn room(&self) -> Room {
        Room { ahead_bytes: self.ahead_bytes, turn_bytes: u64::MAX }
    }

    /// What a link may hand over in its turn among others.
    pub(crate) fn room_of_turn(&self) -> Room {
        Room { ahead_bytes: self.ahead_bytes, turn_bytes: TURN_BYTES }
    }
}
