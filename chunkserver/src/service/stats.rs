//! What a server counts.

use towpath_fastpath::cap::Denied;
use towpath_rpc::ServerStats as RpcStats;
use towpath_transport::LinkStats;

use super::handlers::HandlerTimes;
use super::stops::StopReason;

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
    /// Changes of links that a newer link of their session has replaced, refused.
    pub fenced: u64,
    /// Requests whose body breaks the rules, or whose method there is not.
    pub malformed: u64,
    /// Requests that no capability allowed, by reason
    /// ([`Denied`]).
    pub denied: [u64; Denied::ALL.len()],
    /// Requests that stopped half-way, by reason ([`StopReason`]).
    pub stopped: [u64; StopReason::ALL.len()],
    /// The most requests that waited for room in the store's queue or for a buffer.
    pub waiting_max: u64,
    /// Writes with a slice that did not have its checksum when it arrived.
    pub wire_corrupt: u64,
    /// Bytes of writes acknowledged.
    pub write_bytes: u64,
    /// Bytes that the store took of writes before all of their data was here.
    pub staged_bytes: u64,
    /// Bytes of reads answered.
    pub read_bytes: u64,
    /// Writes that those behind have made, to whom this server passed them on.
    pub passed_on: u64,
    /// Bytes of their data, once for each server that they were passed on to.
    pub passed_on_bytes: u64,
    /// What handlers took, where that is counted.
    pub handlers: HandlerTimes,
    /// What the rpc layer counted.
    pub rpc: RpcStats,
    /// What the transport counted, over all links.
    pub links: LinkStats,
}

impl std::ops::AddAssign for ServerStats {
    /// Counters of several servers, as those of the workers of one, together.
    fn add_assign(&mut self, other: Self) {
        // Taken apart by name, so that a new counter cannot be forgotten.
        let Self {
            links_accepted,
            links_refused,
            links_down,
            done,
            failed,
            expired,
            cancelled,
            fenced,
            malformed,
            denied,
            stopped,
            waiting_max,
            wire_corrupt,
            write_bytes,
            staged_bytes,
            read_bytes,
            passed_on,
            passed_on_bytes,
            handlers,
            rpc,
            links,
        } = other;
        self.links_accepted += links_accepted;
        self.links_refused += links_refused;
        self.links_down += links_down;
        self.done += done;
        self.failed += failed;
        self.expired += expired;
        self.cancelled += cancelled;
        self.fenced += fenced;
        self.malformed += malformed;
        self.denied.iter_mut().zip(denied).for_each(|(sum, more)| *sum += more);
        self.stopped.iter_mut().zip(stopped).for_each(|(sum, more)| *sum += more);
        self.waiting_max = self.waiting_max.max(waiting_max);
        self.wire_corrupt += wire_corrupt;
        self.write_bytes += write_bytes;
        self.staged_bytes += staged_bytes;
        self.read_bytes += read_bytes;
        self.passed_on += passed_on;
        self.passed_on_bytes += passed_on_bytes;
        self.handlers += handlers;
        self.rpc += rpc;
        self.links += links;
    }
}
