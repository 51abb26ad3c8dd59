//! Standard error for messages and logs: a write that fails is dropped.
//!
//! A full disk under the log, or a log reader that has died, is no reason to stop serving.
//! `eprintln!` panics there, and so do log libraries, which report a failed write by it.

use std::fmt;
use std::io::{self, Write};

/// Standard error as a writer that never fails: what cannot be written is lost.
///
/// Give it to a logger: `tracing_subscriber::fmt().with_writer(|| Stderr)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // There is nowhere left to report it to.
        let _ = io::stderr().lock().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes one line to standard error, in one piece where the system takes it as one.
pub fn say(line: fmt::Arguments<'_>) {
    // This writer does not fail.
    let _ = Stderr.write_all(format!("{line}\n").as_bytes());
}
