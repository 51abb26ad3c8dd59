//! What becomes of servers while a command goes on.

use std::fmt;
use std::net::SocketAddr;

use towpath_transport::Ride;

/// What whoever waits for a command wants to know before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// There is no link to a server, or it owes an answer for long: the command waits for it.
    Away {
        /// The server.
        server: SocketAddr,
    },
    /// It is there again.
    Back {
        /// The server.
        server: SocketAddr,
    },
    /// A file is stored without one of its parts.
    Lost {
        /// The part.
        part: usize,
        /// Its server.
        server: SocketAddr,
        /// What is wrong with it.
        why: String,
    },
    /// The link to a server rides on another carrier, as where UDP is blocked. It goes on.
    Rode {
        /// The server.
        server: SocketAddr,
        /// From what to what, and why.
        ride: Ride,
    },
    /// Servers do not pass data on to each other: the client sends each part itself.
    Direct {
        /// What is in the way.
        why: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away { server } => write!(f, "{server} does not answer: waiting for it"),
            Self::Back { server } => write!(f, "{server} is back"),
            Self::Lost { part, server, why } => {
                write!(f, "going on without part {part} on {server}: {why}")
            }
            Self::Rode { server, ride } => write!(f, "the link to {server} {ride}"),
            Self::Direct { why } => {
                write!(f, "servers do not pass the data on, so it is sent from here: {why}")
            }
        }
    }
}
