//! What can be wrong.

use super::flow::FlowId;
use towpath_proto::{DownReason, LinkCensus, LinkStats};
use towpath_transport::{BufferCensus, EndpointStats};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A reader got bytes that nobody sent in this flow.
    #[error("{flow}: a message of {len} bytes came that was never sent there{}", origin(from))]
    Foreign {
        /// Where it came.
        flow: FlowId,
        /// How long it was.
        len: u32,
        /// The message of another flow that it is, if it is one: else its bytes are damaged.
        from: Option<(FlowId, u64)>,
    },
    /// A reader got a message more often than it was sent.
    #[error("{flow}: message {number} came twice")]
    Duplicate {
        /// Its flow.
        flow: FlowId,
        /// Its number.
        number: u64,
    },
    /// On an ordered channel a message came after one that was sent later.
    #[error("{flow}: message {number} came after message {after} on an ordered channel")]
    OutOfOrder {
        /// Its flow.
        flow: FlowId,
        /// Its number.
        number: u64,
        /// The one that it should have come before.
        after: u64,
    },
    /// A message that was abandoned came whole.
    #[error("{flow}: message {number} was abandoned, and came")]
    AbandonedCame {
        /// Its flow.
        flow: FlowId,
        /// Its number.
        number: u64,
    },
    /// A message that was delivered did not come.
    #[error("{flow}: message {number} was delivered, and never came")]
    DeliveredMissing {
        /// Its flow.
        flow: FlowId,
        /// Its number.
        number: u64,
    },
    /// A message has no outcome.
    #[error("{flow}: message {number} never had an outcome")]
    NoOutcome {
        /// Its flow.
        flow: FlowId,
        /// Its number.
        number: u64,
    },
    /// A message had an outcome more than once, or was never sent.
    #[error("{flow}: message {number} had two outcomes")]
    OutcomeTwice {
        /// Its flow.
        flow: FlowId,
        /// Its number.
        number: u64,
    },
    /// A chunk was dropped for want of a receive buffer, with credit on.
    #[error("host {host}: {packets} packets found no receive buffer")]
    NoReceiveBuffer {
        /// Whose buffer.
        host: usize,
        /// How many packets.
        packets: u64,
    },
    /// Bytes changed that belonged to the application.
    #[error("host {host}: {bytes} bytes changed in a buffer that the application held")]
    Changed {
        /// Whose buffer.
        host: usize,
        /// How many of its bytes.
        bytes: u64,
    },
    /// Buffers did not come back.
    #[error("host {host}: buffers did not come home: {census:?}")]
    BuffersLeft {
        /// Whose.
        host: usize,
        /// Where they are.
        census: BufferCensus,
    },
    /// A link holds something where everything has ended and was given back.
    #[error("host {host}: the link holds {census:?}, and should {clean:?}")]
    StateLeft {
        /// Whose.
        host: usize,
        /// What it holds.
        census: Box<LinkCensus>,
        /// What a link at rest holds.
        clean: Box<LinkCensus>,
    },
    /// Something is queued or held in a link where everything has ended.
    #[error("host {host}: the link is not idle when everything has ended: {stats:?}")]
    NotIdle {
        /// Whose.
        host: usize,
        /// Its counters.
        stats: Box<LinkStats>,
    },
    /// A correct peer was found to break the protocol.
    #[error("host {host}: the peer is said to have broken a rule: {stats:?}")]
    Rules {
        /// Who says so.
        host: usize,
        /// Its counters.
        stats: Box<LinkStats>,
    },
    /// The endpoint counted something that must not happen.
    #[error("host {host}: the endpoint is out of order: {stats:?}")]
    EndpointStats {
        /// Whose.
        host: usize,
        /// Its counters.
        stats: EndpointStats,
    },
    /// A link went down that nobody ended.
    #[error("host {host}: the link went down by itself: {reason:?}")]
    WentDown {
        /// Where.
        host: usize,
        /// Why, as it says.
        reason: DownReason,
    },
    /// A channel was closed that nobody closed.
    #[error("host {host}: channel {channel} closed by itself")]
    ChannelClosed {
        /// Where.
        host: usize,
        /// Which.
        channel: u32,
    },
}

fn origin(from: &Option<(FlowId, u64)>) -> String {
    match from {
        Some((flow, number)) => format!("; it is message {number} of {flow}"),
        None => "; it is none that was sent anywhere".to_owned(),
    }
}
