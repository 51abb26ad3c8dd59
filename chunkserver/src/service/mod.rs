//! The service: [`ChunkServer`] takes requests from the network, passes them to the store, and
//! sends the answers.
//!
//! | file | contents |
//! |---|---|
//! | `server` | [`ChunkServer`]: the loop, sending answers, the clean stop |
//! | `intake` | a request that has come in, until it waits for the store |
//! | `start` | hands waiting requests to the store |
//! | `drive` | the store that the network thread drives itself |
//! | `complete` | turns results of the store into answers to clients |
//! | `ask`, `answer` | a request and an answer under way |
//! | `onward` | writes that go on to other servers |
//! | `open` | what is done with a request while its data arrives |
//! | `scheduler` | which request goes to the store next: by tenant, class, link and deadline |
//! | `waiting` | queues of links, served in turn |
//! | `control` | interference control: slow reads of higher classes bind the writes of lower ones |
//! | `under_way` | how many bytes of each class the store has |
//! | `tenants` | whose requests are whose, and the tokens that they need |
//! | `gate` | which requests are let in |
//! | `clients` | what each client has here: its session, unfinished chunks, what it was granted |
//! | `watch` | what a server sees of itself: health, counters, lines for the log |
//! | `handlers` | how long the handlers of requests with data take |
//! | `health` | the state of links, for logs and for clients that ask |
//! | `trace` | what becomes of a request, phase by phase |
//! | `figures` | what is told of a worker to who collects metrics |
//! | `scrub` | a scrub over several steps |
//! | `scrubbing` | how far the background scrub is |
//! | `stops` | requests that stopped half-way: told, counted, logged |
//! | `pace` | lines of the log that anyone can cause |
//! | `errors` | error replies for errors of the store |
//! | `sketch` | four bytes of each slice that was read |
//! | `spare` | lists that are kept for reuse |
//! | `config`, `limits`, `stats` | settings, bounds, counters |

mod answer;
mod ask;
mod clients;
mod complete;
mod config;
mod control;
mod drive;
mod errors;
mod figures;
mod gate;
mod handlers;
mod health;
mod intake;
mod limits;
mod onward;
mod open;
mod pace;
mod scheduler;
mod scrub;
mod scrubbing;
mod server;
mod sketch;
mod spare;
mod start;
mod stats;
mod stops;
mod tenants;
mod trace;
mod under_way;
mod waiting;
mod watch;

pub use config::ServiceConfig;
pub(crate) use config::cores_to_spare;
pub use control::InterferenceControl;
pub(crate) use figures::WorkerFigures;
pub use handlers::{Handler, HandlerTimes};
pub use onward::{AllowedPeers, AllowedPeersError};
pub(crate) use scrubbing::{ScrubBoard, ScrubProgress};
pub use server::ChunkServer;
pub use stats::ServerStats;
pub use stops::{StopReason, Stopped, StoppedKind};
