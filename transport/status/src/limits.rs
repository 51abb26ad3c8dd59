//! Limits of the status socket, each with its reason.

use std::time::Duration;

/// The name of the socket in the folder of a process that has one of its own. Short: the path of a
/// socket has 107 bytes.
pub const STATUS_NAME: &str = "status.sock";

/// Links that one answer names: they are gathered by the thread that moves the data, which has half
/// a millisecond for it when all of them have the most paths, and little queued.
pub const LINKS_MAX: usize = 256;

/// Threads of a process that own an endpoint each: a bit of a word says whether one was asked.
pub const OWNERS_MAX: usize = 64;

/// How long the owner of the endpoint may take to come by. One that waits for packets does so for
/// tens of milliseconds; a device, or a host with others to serve, may take seconds.
pub const OWNER_WAIT: Duration = Duration::from_secs(5);

/// How long the reader of an answer may take to read it: the next one waits meanwhile.
pub const READER_WAIT: Duration = Duration::from_secs(1);

/// Answers are at least this far apart: who asks in a loop must not be felt by the data path.
pub const ANSWER_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// How long to wait for an answer: some others may be before us.
pub const ASK_WAIT: Duration = Duration::from_secs(20);

/// Bytes of an answer that are read: [`LINKS_MAX`] links of 16 paths take less than half of it.
pub const ANSWER_BYTES_MAX: u64 = 4 << 20;
