//! The front that clients of others speak: RESP2, and RESP3 where they ask for it by HELLO 3.
//!
//! | file | contents |
//! |---|---|
//! | `parse` | bytes into the words of a command |
//! | `inline` | the same for a line that a person typed |
//! | `command` | words into a command |
//! | `options` | what follows its first words |
//! | `answer` | what a connection is answered: commands one by one, or as a transaction |
//! | `values` | what is done for commands about values |
//! | `transaction` | commands that wait for EXEC, keys that are watched |
//! | `reply` | replies as bytes, in either form |
//! | `info` | what HELLO, INFO, COMMAND and CONFIG GET tell |

mod answer;
mod command;
mod info;
mod inline;
mod options;
mod parse;
mod reply;
mod transaction;
mod values;

pub use answer::{RespDialogue, TOO_MANY_CONNECTIONS};
pub use command::{Command, CommandError};
pub use options::{ClientAsk, ExpireIf, Expiry, Hello};
pub use parse::{Parsed, ProtocolError, Words, parse};
