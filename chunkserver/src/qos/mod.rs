//! Reservations on a chunk server (docs/qos.md).
//!
//! | file | contents |
//! |---|---|
//! | `words` | the words of the token protocol in memory that clients reach |

mod words;

pub use words::WordTable;
