//! The health of a server's links as protobuf (docs/storage-protocol.md section 5).

use super::link::{Cause, HealthState, LinkHealth};
use super::times::PhaseTimesReply;
use towpath_transport::Class;

/// Asks how the links of a server are.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HealthRequest {
    /// It wants to know what the phases of requests took.
    #[prost(bool, tag = "1")]
    pub times: bool,
}

/// How the links of a server are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthReply {
    /// Its links, at most [`HEALTH_LINKS_MAX`](crate::limits::HEALTH_LINKS_MAX) of them, the worst
    /// first.
    #[prost(message, repeated, tag = "1")]
    pub links: Vec<LinkHealthReply>,
    /// All its links.
    #[prost(uint64, tag = "2")]
    pub link_count: u64,
    /// Requests without an answer after `slow_after_ms`, since it started.
    #[prost(uint64, tag = "3")]
    pub slow: u64,
    /// When a request counts as slow, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub slow_after_ms: u64,
    /// How long the oldest request under way has been there, in microseconds.
    #[prost(uint64, tag = "5")]
    pub oldest_us: u64,
    /// Requests that were given up by their clients, or ran out of time, before it had begun.
    #[prost(uint64, tag = "6")]
    pub given_up: u64,
    /// The buffers that its links share, and who holds most of them.
    #[prost(message, repeated, tag = "7")]
    pub pools: Vec<PoolReply>,
    /// Refusals and fates that were not sent, because their links take none in.
    #[prost(uint64, tag = "8")]
    pub notes_dropped: u64,
    /// The peer of the link for which most of them were not sent, of the links that are up; empty
    /// where there is none.
    #[prost(string, tag = "9")]
    pub most_dropped_peer: String,
    /// How many were not sent to that one.
    #[prost(uint64, tag = "10")]
    pub most_dropped: u64,
    /// What each phase of the requests of each kind took since the server started, where that is
    /// wanted, and there were any.
    #[prost(message, repeated, tag = "11")]
    pub times: Vec<PhaseTimesReply>,
}

/// Buffers that the links of a server share.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PoolReply {
    /// What they are for, and the bytes of each.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Those that are out.
    #[prost(uint64, tag = "2")]
    pub out: u64,
    /// All of them.
    #[prost(uint64, tag = "3")]
    pub max: u64,
    /// The peer of the link that holds most; empty where no link holds any, or it is gone.
    #[prost(string, tag = "4")]
    pub most_peer: String,
    /// What that link holds.
    #[prost(uint64, tag = "5")]
    pub most_held: u64,
}

/// How one link is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinkHealthReply {
    /// The address of the device at the other end.
    #[prost(string, tag = "1")]
    pub peer: String,
    /// 0 good, else why it is degraded: 1 delay, 2 loss, 3 timeouts, 4 slow I/O, 5 rerouted, 6
    /// fallback.
    #[prost(uint32, tag = "2")]
    pub state: u32,
    /// The smoothed round-trip time in nanoseconds; 0 when there is none.
    #[prost(uint64, tag = "3")]
    pub rtt_ns: u64,
    /// The shortest that it was.
    #[prost(uint64, tag = "4")]
    pub rtt_least_ns: u64,
    /// Of a million chunks sent lately, those that were lost.
    #[prost(uint32, tag = "5")]
    pub loss_ppm: u32,
    /// Chunks sent, retransmissions included.
    #[prost(uint64, tag = "6")]
    pub chunks_sent: u64,
    /// Chunks sent again.
    #[prost(uint64, tag = "7")]
    pub chunks_retransmitted: u64,
    /// Retransmission timeouts.
    #[prost(uint64, tag = "8")]
    pub timeouts: u64,
    /// Requests over it that were slow.
    #[prost(uint64, tag = "9")]
    pub slow: u64,
    /// Times that it went from good to degraded.
    #[prost(uint64, tag = "10")]
    pub degradations: u64,
    /// Messages given up.
    #[prost(uint64, tag = "11")]
    pub messages_abandoned: u64,
    /// Times that traffic, or the acks of it, left a path for another.
    #[prost(uint64, tag = "12")]
    pub reroutes: u64,
    /// Its paths on its carrier.
    #[prost(uint32, tag = "13")]
    pub paths: u32,
    /// Those of them that are good.
    #[prost(uint32, tag = "14")]
    pub paths_good: u32,
    /// What it rides on: 0 UC, 1 RC, 2 TCP.
    #[prost(uint32, tag = "15")]
    pub carrier: u32,
    /// Times that it went to a worse carrier.
    #[prost(uint64, tag = "16")]
    pub fallbacks: u64,
    /// What it is for: 0 Silver, 1 Gold, 2 Copper.
    #[prost(uint32, tag = "17")]
    pub class: u32,
    /// Messages that came in under another DSCP than the peer gave them.
    #[prost(uint64, tag = "18")]
    pub dscp_changed: u64,
}

impl LinkHealthReply {
    /// A link whose peer is at `peer`.
    #[must_use]
    pub fn new(peer: String, health: &LinkHealth) -> Self {
        let &LinkHealth { state, rtt, rtt_least, loss, slow, degradations, stats, .. } = health;
        let &LinkHealth { paths, paths_good, .. } = health;
        Self {
            peer,
            state: match state {
                HealthState::Good => 0,
                HealthState::Degraded(Cause::Delay) => 1,
                HealthState::Degraded(Cause::Loss) => 2,
                HealthState::Degraded(Cause::Timeouts) => 3,
                HealthState::Degraded(Cause::SlowIo) => 4,
                HealthState::Degraded(Cause::Rerouted) => 5,
                HealthState::Degraded(Cause::Fallback) => 6,
            },
            rtt_ns: rtt.map_or(0, |rtt| rtt.0),
            rtt_least_ns: rtt_least.map_or(0, |rtt| rtt.0),
            loss_ppm: (loss * 1e6) as u32,
            chunks_sent: stats.chunks_sent,
            chunks_retransmitted: stats.chunks_retransmitted,
            timeouts: stats.rtos,
            slow,
            degradations,
            messages_abandoned: stats.messages_abandoned,
            reroutes: stats.reroutes(),
            paths,
            paths_good,
            carrier: health.carrier as u32,
            fallbacks: stats.carrier_falls,
            class: match health.class {
                Class::Silver => 0,
                Class::Gold => 1,
                Class::Copper => 2,
            },
            dscp_changed: health.dscp_changed,
        }
    }

    /// The state in words; one that this side does not know is degraded.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        match self.state {
            0 => "good",
            1 => "delay",
            2 => "loss",
            3 => "timeouts",
            4 => "slow I/O",
            5 => "rerouted",
            6 => "fallback",
            _ => "degraded",
        }
    }

    /// The class in words.
    #[must_use]
    pub fn class_name(&self) -> &'static str {
        match self.class {
            0 => "silver",
            1 => "gold",
            2 => "copper",
            _ => "other",
        }
    }

    /// The carrier in words.
    #[must_use]
    pub fn carrier_name(&self) -> &'static str {
        match self.carrier {
            0 => "UC",
            1 => "RC",
            2 => "TCP",
            _ => "other",
        }
    }
}
