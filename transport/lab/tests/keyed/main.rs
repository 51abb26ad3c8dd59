//! Clients that write and read values by key, and know what must be there whatever befalls them.
//!
//! The same clients and the same server run in virtual time and on real sockets. What a link rides
//! on fails and comes back meanwhile.
//!
//! | file | contents |
//! |---|---|
//! | `model` | operations, the server's values, and what each answer must be |
//! | `client` | one client: asks, checks each answer, and its time |
//! | `server` | the server: each operation once, in order |
//! | `dice` | what befalls a client next |
//! | `soak` | clients work while things befall them; then all is looked at |
//! | `stream` | the stream of bytes of a link, in virtual time |
//! | `world` | one server and its clients on one switch, in virtual time |
//! | `tally` | what all of it came to |
//! | `rig` | one server and its clients on real sockets |
//! | `carriers` | the tests in virtual time |
//! | `fallback` | the tests on real sockets |

#![allow(unreachable_pub, reason = "the parts of one test")]

mod carriers;
mod client;
mod dice;
mod fallback;
mod model;
mod rig;
mod server;
mod soak;
mod stream;
mod tally;
mod world;
