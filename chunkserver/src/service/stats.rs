//! What a server counts.

use towpath_rpc::ServerStats as RpcStats;
use towpath_transport::LinkStats;

/// Counters of a server since it started; none ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Links that clients set up.
    pub links_accepted: u64,
    /// Set-ups that were turned away.
    pub links_refused: u64,
    /// Links that ended.
    pub links_down: u64,
    /// Requests answered with success.
    pub done: u64,
    /// Requests answered with an error of their own.
    pub failed: u64,
    /// Requests whose deadline passed, or whose client left, before the store saw them.
    pub expired: u64,
    /// Requests that their client gave up before the store saw them.
    pub cancelled: u64,
    /// Requests whose body breaks the rules, or whose method there is not.
    pub malformed: u64,
    /// The most requests that waited for room in the store's queue or for a buffer.
    pub waiting_max: u64,
    /// Writes with a slice that did not have its checksum when it arrived.
    pub wire_corrupt: u64,
    /// Bytes of writes acknowledged.
    pub write_bytes: u64,
    /// Bytes of reads answered.
    pub read_bytes: u64,
    /// What the rpc layer counted.
    pub rpc: RpcStats,
    /// What the transport counted, over all links.
    pub links: LinkStats,
}
