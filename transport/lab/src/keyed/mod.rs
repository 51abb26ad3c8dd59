//! Clients that write and read values by key, and know what must be there whatever befalls them.
//!
//! The same clients and the same server run on any device: in virtual time ([`KeyedWorld`]) and,
//! driven by a test, on real sockets. What a link rides on fails and comes back meanwhile, as
//! [`Dice`] say.
//!
//! | file | contents |
//! |---|---|
//! | `model` | operations, the server's values, and what each answer must be |
//! | `client` | one client: asks, checks each answer, and its time |
//! | `server` | the server: each operation once, in order |
//! | `hole` | a packet link that swallows packets by the transport service they belong to |
//! | `dice` | what befalls a client next |
//! | `soak` | clients work while things befall them; then all is looked at |
//! | `stream` | the stream of bytes of a link, in virtual time |
//! | `world` | one server and its clients on one switch, in virtual time |
//! | `tally` | what all of it came to |

mod client;
mod dice;
mod hole;
mod model;
mod server;
mod soak;
mod stream;
mod tally;
mod world;

pub use client::Client;
pub use dice::{Befallen, Dice, Weather};
pub use hole::{Hole, HoleControl, Services, Swallows};
pub use model::{Asker, Broken, KEYS, Request, Shelf, VALUE_BYTES_MAX, Value};
pub use server::Server;
pub use soak::{Rig, SoakPlan};
pub use stream::{StreamClock, VirtualStream, stream};
pub use tally::{Rides, Tally};
pub use world::{KeyedConfig, KeyedDevice, KeyedWorld};
