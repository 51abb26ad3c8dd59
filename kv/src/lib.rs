//! A key-value store in memory: what it keeps, what is asked of it, and how that looks on a wire.
//!
//! The question behind it is which transport a service should choose. Therefore the store is to be
//! no limit: a [`Table`] whose readers take no lock. Beside it stands the table of the study that
//! asked the question first, [`Buckets`], as a baseline. Both are a [`Store`].
//!
//! ```
//! use towpath_base::Time;
//! use towpath_kv::{Evict, Put, Store, Table};
//!
//! let store = Table::new(64 << 20, Evict::Never);
//! store.set(b"name", b"value", Put::ALWAYS, Time::ZERO)?;
//! let mut found = Vec::new();
//! assert!(store.get(b"name", Time::ZERO, &mut |value| found.extend_from_slice(value)));
//! assert_eq!(found, b"value");
//! # Ok::<(), towpath_kv::Refused>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `store` | the [`Store`] and what it may refuse |
//! | `store/table` | the table that serves, `store/ring` the order in which it evicts |
//! | `store/buckets` | the table of the study: 1,024 lists, a mutex each |
//! | `store/gate` | several operations as one |
//! | `store/room` | how many bytes are in use, and how many may be |
//! | `wire` | requests and replies as bytes |
//! | `published` | keys and values in memory that clients read by themselves |
//! | `execute` | what is done for a request |
//! | `once` | that a repeated request is carried out once |
//! | `serve` | connections over TCP, served by few threads |
//! | `raw` | queue pairs without Towpath: RC, UC and UD by SEND and RECV |
//! | `client` | calls that block, over any of these |
//! | `channel` | how the endpoints of both sides are set up |
//! | `resp` | the front that others' clients speak |
//! | `daemon` | the program `towpath-kv` |
//! | `workload` | what clients ask for: YCSB, and the study's mix |
//! | `limits` | bounds and their reasons |

#![forbid(unsafe_code)]

mod channel;
pub mod client;
pub mod daemon;
mod execute;
pub mod limits;
mod once;
pub mod published;
pub mod raw;
pub mod resp;
pub mod serve;
mod store;
pub mod wire;
pub mod workload;

pub use channel::{
    SHARED_VALUE_BYTES_MAX, client_config, server_config, shared_config, shared_pools,
};
pub use execute::{Caller, OPTION_STORE_BYTES, Service};
pub use once::Sessions;
pub use store::{
    Buckets, Bytes, Evict, Figures, Gate, Held, IncrError, Pass, Put, Refused, Step, Store, Table,
    When,
};
