//! What a running process tells of its links, over a local socket.
//!
//! A process that has a [`StatusSocket`] can be asked at any moment how its links and their paths
//! stand. The thread that owns the endpoint looks at a flag once a turn and hands a
//! [`ProcessStatus`] over when somebody asks; it does no input or output for that. A thread of the
//! socket's own writes the answer: one line of JSON, after which the connection is closed. Whoever
//! connects sends nothing. When the owner of the endpoint does not come by, the answer says so.
//!
//! ```
//! # use std::net::Ipv4Addr;
//! # use towpath_transport::{Endpoint, EndpointConfig, UdpConfig};
//! # let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! # let mut endpoint = Endpoint::udp(udp, EndpointConfig::new())?;
//! # let dir = std::env::temp_dir().join(format!("towpath-status-doc-{}", std::process::id()));
//! # let path = dir.as_path();
//! use towpath_status::{ProcessStatus, StatusSocket, ask};
//!
//! let mut socket = StatusSocket::bind(path)?;
//! let asking = std::thread::spawn({ let path = path.to_owned(); move || ask(&path) });
//! while !asking.is_finished() {
//!     endpoint.turn(|_, _| {});
//!     socket.answer_when_asked(|| ProcessStatus::of(&endpoint, "example"));
//! }
//! assert_eq!(asking.join().expect("no panic")?.program, "example");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what lives there |
//! |---|---|
//! | `report` | what is told of a process, its links and their paths |
//! | `worker` | what is told of a thread that owns an endpoint |
//! | `socket` | the side that is asked |
//! | `ask` | the side that asks |
//! | `limits` | bounds and their reasons |

#![forbid(unsafe_code)]

mod ask;
pub mod limits;
mod report;
mod socket;
mod worker;

pub use ask::{AskError, ask};
pub use report::{LinkStatus, PathStatus, ProcessStatus};
pub use socket::{SocketError, StatusDesk, StatusSocket};
pub use worker::WorkerStatus;

/// One answer on the wire.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// What was asked for.
    Status(Box<ProcessStatus>),
    /// The owner of the endpoint did not come by for so long.
    Silent { waited_ms: u64 },
}
