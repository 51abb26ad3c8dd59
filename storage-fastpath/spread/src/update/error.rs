//! What can go wrong with a change in place, and what to do next.

use std::net::SocketAddr;

use super::change::Failed;
use super::heads::Stop;
use crate::error::{PartError, SpreadError};
use crate::layout::Layout;

/// Why bytes of a file were not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// They would lie beyond the end of the file.
    #[error("the file has {bytes} bytes, and a change does not make it longer")]
    Beyond {
        /// Bytes of the file.
        bytes: u64,
    },
    /// Others were first each time, or somebody changes parts without making that known. Nothing
    /// was changed.
    #[error("others change the file at the same time; last met at {server}: {source}: try again")]
    Conflict {
        /// A server at which that was seen.
        server: SocketAddr,
        /// How.
        source: Box<PartError>,
    },
    /// The file was repaired since the layout was made, or a repair was not kept. Nothing was
    /// changed.
    #[error("the file was repaired since: get the newest layout, or repair the file once more")]
    Repaired,
    /// A server that is needed is not there, or refuses. Nothing was changed.
    #[error("{server} is needed: {source}: repair the file first")]
    Missing {
        /// The server.
        server: SocketAddr,
        /// Why.
        source: Box<PartError>,
    },
    /// Nobody knows whether the change was made or will be, but it is so wholly or not at all.
    #[error("whether the change is made is not known: {source}")]
    Unsure {
        /// Why.
        source: Box<Self>,
    },
}

impl ChangeError {
    fn of(stop: Stop, layout: &Layout) -> Self {
        let server = |part: usize| layout.nodes[part].server;
        match stop {
            Stop::Met(part, error) => {
                Self::Conflict { server: server(part), source: Box::new(error) }
            }
            Stop::Part(part, error) => {
                Self::Missing { server: server(part), source: Box::new(error) }
            }
            Stop::Closed => Self::Repaired,
        }
    }
}

/// The error of a change, after which so many bytes before it are changed.
pub(super) fn failed(failed: Failed, done: u64, layout: &Layout) -> SpreadError {
    let source = match failed {
        Failed::Code(error) => return error,
        Failed::Not(stop) => ChangeError::of(stop, layout),
        Failed::Unsure(stop) => {
            ChangeError::Unsure { source: Box::new(ChangeError::of(stop, layout)) }
        }
    };
    SpreadError::Change { done, source }
}

/// The error of whoever does not change anything.
pub(super) fn unsettled(stop: Stop, layout: &Layout) -> SpreadError {
    SpreadError::Change { done: 0, source: ChangeError::of(stop, layout) }
}
