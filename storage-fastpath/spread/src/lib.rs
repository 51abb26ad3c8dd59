//! Files over several chunk servers: as copies, or erasure-coded. They are read while some servers
//! are gone, and brought back to whole.
//!
//! A [`Layout`] says where a file is: by which [`Policy`], on which servers, in which chunks, at
//! which version of each. Whoever stores a file keeps its layout, in a small file or in a service
//! of their own; without it nobody knows which chunks belong together. [`Servers`] has a client for
//! each server, made when it is first needed.
//!
//! ```no_run
//! use towpath_fastpath::ClientConfig;
//! use towpath_spread::{PutOptions, Servers};
//!
//! let servers = Servers::new(ClientConfig::new());
//! let nine: Vec<_> = (0..9).map(|n| ([10, 0, 0, n + 1], 7400).into()).collect();
//! let options = PutOptions::new("rs:6+3".parse()?);
//! let layout = servers.put(&nine, &options, &mut &b"what is written"[..], |_| {})?;
//! let mut read = Vec::new();
//! // Any three of the nine may be gone.
//! servers.get(&layout, &mut read, |_| {})?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The formats and what is promised are in `docs/layouts.md`.
//!
//! | module | what is there |
//! |---|---|
//! | `policy` | how a file is spread |
//! | `auto` | what copies cost, measured, and their policy by that |
//! | `layout` | where a file is, as a type and as text |
//! | `stripes` | how a file is cut |
//! | `servers` | a client for each server |
//! | `coder` | units of a stripe, made of others |
//! | `notice` | what becomes of servers while a command goes on |
//! | `race` | answers of several servers, in the order in which they come |
//! | `put` | files stored |
//! | `writer` | their chunks while they are written, also when servers are lost |
//! | `get` | files read, whole or without some servers |
//! | `wait` | servers that are waited for meanwhile |
//! | `state` | what has become of each part of a file |
//! | `survey` | parts compared without moving them |
//! | `scrub` | parts held against each other |
//! | `repair` | parts made anew |
//! | `ring` | parts that servers make anew among themselves |
//! | `mend` | parts brought up to date where they are |
//! | `update` | bytes changed where they are |
//! | `error` | what can go wrong, and what to do next |

#![forbid(unsafe_code)]

mod auto;
mod coder;
mod error;
mod get;
mod layout;
mod mend;
mod notice;
mod policy;
mod put;
mod race;
mod repair;
mod ring;
mod scrub;
mod servers;
mod state;
mod stripes;
mod survey;
mod update;
mod wait;
mod writer;

pub use error::{PartError, SpreadError};
pub use get::Got;
pub use layout::{Layout, LayoutError, Node};
pub use notice::Notice;
pub use policy::{Acked, Policy, PolicyError};
pub use put::PutOptions;
pub use repair::{RepairOptions, Repaired};
pub use scrub::Scrubbed;
pub use servers::Servers;
pub use state::NodeState;
pub use towpath_ec::ShardSet;
pub use towpath_fastpath::choice::{Choice, Costs};
pub use update::{ChangeError, Changed, RECORD_MAGIC};
