//! What a UDP link counts beside the counters of every link.

/// Counters of a [`UdpLink`](super::UdpLink); each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// System calls that send.
    pub send_calls: u64,
    /// Messages in those calls that the kernel took; a run of packets is one.
    pub messages_sent: u64,
    /// Packets that went out in runs of two and more.
    pub segments_sent: u64,
    /// Runs that the kernel refused for being runs, so that their packets went out one by one.
    pub segmentation_refused: u64,
    /// Calls that found the wire full.
    pub would_block: u64,
    /// Sends that the kernel refused because a packet was too long for its interface, or that told
    /// of a router which had found an earlier one too long for the way.
    pub too_long: u64,
    /// System calls that receive.
    pub receive_calls: u64,
    /// Datagrams received; a coalesced run is one.
    pub messages_received: u64,
    /// Packets that came in one piece with others.
    pub segments_received: u64,
    /// Datagrams that were cut short by the kernel, and so dropped here.
    pub truncated: u64,
    /// Receive calls that failed for another reason than an empty socket.
    pub receive_errors: u64,
    /// Packets that came in here and were another link's of the group, and were handed to it.
    pub handed_over: u64,
    /// Packets of the same kind that were lost: the other link had no room for more, or they were
    /// longer than any packet of RoCE is.
    pub handed_over_lost: u64,
    /// Packets that other links of the group handed to this one.
    pub taken_over: u64,
    /// Transmit stamps of the kernel that came and were believed.
    pub stamps_taken: u64,
    /// Of those, stamps of packets that waited for the interface after the call.
    pub stamps_queued: u64,
    /// Stamps that were asked for and did not come: the time of the call counted.
    pub stamps_missing: u64,
    /// What came in their place and was none, or could not be true.
    pub stamps_bad: u64,
}
