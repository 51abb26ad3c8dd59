//! The end that reads: it gives back what comes at once, and counts.

use crate::failure::Cause;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{ChannelId, Side, wire::Hello};
use towpath_transport::{Chunk, Endpoint, EndpointConfig, EndpointStats, Event, Message};
use towpath_verbs::Device;

/// An endpoint that reads.
pub(super) struct Reader<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    taken: Taken,
}

/// What came.
#[derive(Default)]
struct Taken {
    bytes: u64,
    stalled: Option<ChannelId>,
    /// Of the channel that is stalled: as much as its credit is.
    messages: Vec<Message>,
    chunks: Vec<Chunk>,
}

impl<D: Device<Memory = Region>> Reader<D> {
    pub(super) fn new(device: D, config: EndpointConfig) -> Result<Self, Cause> {
        Ok(Self { endpoint: Endpoint::new(device, config)?, taken: Taken::default() })
    }

    /// Joins its half of a link with the peer's; returns its own HELLO.
    pub(super) fn join(&mut self, peer: &Hello) -> Result<Hello, Cause> {
        let (hello, half) = self.endpoint.offer()?;
        self.endpoint.establish(half, peer, Side::Server)?;
        Ok(hello)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.taken.bytes
    }

    pub(super) fn stall(&mut self, channel: Option<ChannelId>) {
        let Self { endpoint, taken } = self;
        taken.stalled = channel;
        taken.messages.drain(..).for_each(|message| endpoint.release(message));
        taken.chunks.drain(..).for_each(|chunk| endpoint.release_chunk(chunk));
    }

    pub(super) fn stats(&self) -> EndpointStats {
        self.endpoint.endpoint_stats()
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.endpoint.next_timeout()
    }

    pub(super) fn turn(&mut self) -> bool {
        let Self { endpoint, taken } = self;
        endpoint.turn(|endpoint, event| match event {
            Event::Message(message) => {
                taken.bytes += message.len() as u64;
                if taken.stalled == Some(message.channel()) {
                    taken.messages.push(message);
                } else {
                    endpoint.release(message);
                }
            }
            Event::StreamChunk { channel, chunk, .. } => {
                taken.bytes += chunk.len() as u64;
                if taken.stalled == Some(channel) {
                    taken.chunks.push(chunk);
                } else {
                    endpoint.release_chunk(chunk);
                }
            }
            _ => {}
        })
    }
}
