//! How a run fails, and what is told of it.

use crate::limits::PATIENCE;
use crate::oracle::Violation;
use core::fmt;
use towpath_base::Time;
use towpath_device_roce::RoceCounters;
use towpath_proto::LinkStats;
use towpath_sim::FaultCounters;
use towpath_sim::world::TraceEvent;
use towpath_transport::{
    BufferCensus, ChannelError, EndpointError, LinkError, Outcome, SubmitError,
};
use towpath_verbs::VerbError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Promises were broken.
    #[error("{}", list(.0))]
    Broken(Vec<Violation>),
    /// Nothing is under way and no timer is set, but something is waited for.
    #[error("nothing more will happen, waiting until {0}")]
    Dead(&'static str),
    /// Too many steps or too much time were spent.
    #[error("no end, waiting until {0}")]
    Endless(&'static str),
    /// One host is busy for ever at one instant.
    #[error("host {0} does not come to rest")]
    Restless(usize),
    /// An endpoint could not be made.
    #[error("no endpoint: {0} ({0:?})")]
    Endpoint(#[from] EndpointError),
    /// A link could not be made.
    #[error("no link: {0} ({0:?})")]
    Link(#[from] LinkError),
    /// A device refused a verb.
    #[error("{0}")]
    Verb(#[from] VerbError),
    /// A channel could not be opened.
    #[error("no channel: {0}")]
    Channel(#[from] ChannelError),
    /// An application could not go on.
    #[error("{0}")]
    Post(#[from] PostError),
}

/// Why a poster cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// No outcome came for long.
    #[error("no acknowledgement for {} s; the machine may be overloaded", PATIENCE.as_secs())]
    Stuck,
    /// The pools are too small.
    #[error("no buffer of {0} bytes is free")]
    NoBuffer(usize),
    /// The channel took nothing more.
    #[error("the channel refused a message")]
    Refused(#[source] SubmitError),
    /// The link gave no channel.
    #[error("no channel could be opened")]
    Open(#[source] ChannelError),
    /// A message was not delivered.
    #[error("a message ended as {0:?}")]
    Lost(Outcome),
}

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// When, in virtual time.
    pub at: Time,
    /// What it looked like then.
    pub scene: Box<Scene>,
}

/// What a run looked like when it failed.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The last packets on the wires.
    pub trace: Vec<TraceEvent>,
    /// What would have been wrong if the life had ended in order then.
    pub unsettled: Vec<Violation>,
    /// Where each host stood.
    pub hosts: Vec<HostState>,
}

/// Where a host stood when its run failed.
#[derive(Clone, Debug)]
pub struct HostState {
    /// Messages of its script that were not sent yet.
    pub unsent: usize,
    /// Messages without an outcome.
    pub in_doubt: usize,
    /// The counters of its link.
    pub link: Option<LinkStats>,
    /// What its device moved and dropped.
    pub device: RoceCounters,
    /// What the faults of its end did.
    pub faults: FaultCounters,
    /// Its buffers.
    pub buffers: BufferCensus,
}

impl Failure {
    /// The promises that were broken, if it is that.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match &self.cause {
            Cause::Broken(violations) => violations,
            _ => &[],
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at {} ns: {}", self.at.0, self.cause)?;
        if !matches!(self.cause, Cause::Broken(_)) && !self.scene.unsettled.is_empty() {
            writeln!(f, "  unsettled: {}", list(&self.scene.unsettled))?;
        }
        for (number, host) in self.scene.hosts.iter().enumerate() {
            writeln!(f, "  host {number}: {host:?}")?;
        }
        self.scene.trace.iter().try_for_each(|event| writeln!(f, "  {event}"))
    }
}

impl core::error::Error for Failure {}

fn list(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
