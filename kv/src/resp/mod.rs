//! The front that clients of others speak: RESP2, as `redis-cli` and `redis-benchmark` do.
//!
//! | file | contents |
//! |---|---|
//! | `parse` | bytes into the words of a command |
//! | `inline` | the same for a line that a person typed |
//! | `command` | words into a command |
//! | `answer` | what is done for a command, and the reply as bytes |
//! | `info` | what INFO, COMMAND and CONFIG GET tell |

mod answer;
mod command;
mod info;
mod inline;
mod parse;

pub use answer::{RespDialogue, TOO_MANY_CONNECTIONS};
pub use command::{Command, CommandError};
pub use parse::{Parsed, ProtocolError, Words, parse};
