//! What a running process reports: the state of its links over a local socket, messages on stderr.
//!
//! A process that has a [`StatusSocket`] can be asked at any time about its links and their paths,
//! with [`ask`](ask()) or with `towpath paths`. The thread that owns the endpoint checks a flag
//! once in each turn and passes a [`ProcessStatus`] to the socket when somebody has asked; it does
//! no input or output for this. Another thread writes the answer, one line of JSON, and closes the
//! connection. A program that connects sends nothing. If the owner of the endpoint does not react
//! in time, the answer says so.
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
//! | file | contents |
//! |---|---|
//! | `report` | the report on a process, its links and their paths |
//! | `worker` | the report on a thread that owns an endpoint |
//! | `socket` | the socket of the process that reports |
//! | `ask` | the function that asks such a process |
//! | `stderr` | standard error for messages and logs, whose failure stops nothing |
//! | `limits` | bounds and their reasons |

#![forbid(unsafe_code)]

mod ask;
pub mod limits;
mod report;
mod socket;
mod stderr;
mod worker;

pub use ask::{AskError, ask};
pub use report::{LinkStatus, PathStatus, ProcessStatus, ServedStatus};
pub use socket::{SocketError, StatusDesk, StatusSocket};
pub use stderr::{Stderr, say};
pub use worker::{PoolStatus, WorkerStatus};

/// One answer on the wire.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The status of the process.
    Status(Box<ProcessStatus>),
    /// The owner of the endpoint did not react for this time.
    Silent { waited_ms: u64 },
}
