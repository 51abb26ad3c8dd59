//! How a link is, what there is to see of it, and what is told of it.

use std::fmt;
use towpath_transport::{
    Carrier, CarrierReason, Class, Device, Endpoint, LinkId, LinkStats, Nanos, PathId, PathSignal,
    PathState, Region,
};

/// How a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// As it should be.
    Good,
    /// It carries traffic, but worse than it should: use another where there is one.
    Degraded(Cause),
}

/// Why a link is degraded: the gravest of what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Round trips take many times what the shortest took.
    Delay,
    /// Too many chunks are lost.
    Loss,
    /// Traffic left one of its paths for another: it goes on, with one way less.
    Rerouted,
    /// Acknowledgements stayed out until timeouts ran out, and something was lost.
    Timeouts,
    /// It rides on a worse carrier than it once did: the better one does not get through.
    Fallback,
    /// I/Os over it were not answered in time.
    SlowIo,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::Rerouted => "rerouted",
            Self::Timeouts => "timeouts",
            Self::Fallback => "fallback",
            Self::SlowIo => "slow I/O",
        })
    }
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::Degraded(cause) => cause.fmt(f),
        }
    }
}

/// Something that a storage system may want to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthEvent {
    /// A link is worse than it was.
    Degraded {
        /// Which.
        link: LinkId,
        /// Why.
        cause: Cause,
    },
    /// A link is good again.
    Recovered {
        /// Which.
        link: LinkId,
    },
    /// A path of a link has moved from one state to another. The link goes on over the others.
    PathChanged {
        /// Its link.
        link: LinkId,
        /// Which.
        path: PathId,
        /// What it is thought of now.
        to: PathState,
        /// What happened.
        signal: PathSignal,
    },
    /// A link rides on another carrier from now on.
    CarrierChanged {
        /// Which.
        link: LinkId,
        /// What it rode on.
        from: Carrier,
        /// What it rides on now.
        to: Carrier,
        /// Why.
        why: CarrierReason,
    },
    /// An I/O has no answer yet, and should.
    SlowIo {
        /// The link that it goes over.
        link: LinkId,
        /// For how long it has waited.
        age: Nanos,
    },
}

/// How one link is, in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkHealth {
    /// Which.
    pub link: LinkId,
    /// How it is.
    pub state: HealthState,
    /// The smoothed round-trip time, once there is one.
    pub rtt: Option<Nanos>,
    /// The shortest that `rtt` was.
    pub rtt_least: Option<Nanos>,
    /// The share of the chunks sent, again or for the first time, that were lost: of the last 50 or
    /// more. Those that a timeout took for lost and that were late are none of them.
    pub loss: f64,
    /// I/Os that were not answered in time, since the link came up.
    pub slow: u64,
    /// Times that it went from good to degraded.
    pub degradations: u64,
    /// What it rides on.
    pub carrier: Carrier,
    /// The best that it rode on.
    pub carrier_best: Carrier,
    /// Its paths on that carrier, but for those that are held back.
    pub paths: u32,
    /// Those of them that are good.
    pub paths_good: u32,
    /// What it is for.
    pub class: Class,
    /// Messages that came in under another DSCP than the peer gave them: something on the way
    /// rewrites it. No cause to call it degraded, but its class is lost on that way.
    pub dscp_changed: u64,
    /// The counters of the link.
    pub stats: LinkStats,
}

/// What there is to see of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkView {
    /// Which.
    pub link: LinkId,
    /// Its counters.
    pub stats: LinkStats,
    /// Its smoothed round-trip time, once there is one.
    pub rtt: Option<Nanos>,
    /// What it rides on.
    pub carrier: Carrier,
    /// Its paths on that carrier, but for those that are held back.
    pub paths: u32,
    /// Those of them that are good.
    pub paths_good: u32,
    /// What it is for.
    pub class: Class,
    /// Messages that came in under another DSCP than the peer gave them.
    pub dscp_changed: u64,
}

impl LinkView {
    /// A link of an endpoint; none when it is gone.
    #[must_use]
    pub fn of<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, link: LinkId) -> Option<Self> {
        let stats = endpoint.stats(link)?;
        let carrier = endpoint.carrier_of(link)?;
        let (mut paths, mut paths_good) = (0, 0);
        for path in endpoint.paths(link).filter(|path| path.facts.carrier == carrier) {
            paths += u32::from(path.facts.state != PathState::Spare);
            paths_good += u32::from(path.facts.state == PathState::Good);
        }
        let (rtt, report) = (endpoint.rtt(link), endpoint.class_of(link)?);
        let (class, dscp_changed) = (report.class, report.dscp_changed);
        Some(Self { link, stats, rtt, carrier, paths, paths_good, class, dscp_changed })
    }
}
