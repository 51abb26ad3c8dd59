//! The steps of a demo, shown as they are done.

use std::io::{self, Write as _};

/// Shows steps on stdout, unless the result is for programs.
#[derive(Debug)]
pub(crate) struct Steps {
    quiet: bool,
    number: u32,
}

impl Steps {
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, number: 0 }
    }

    /// A line of its own.
    pub(super) fn say(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// A step begins.
    pub(super) fn begin(&mut self, what: &str) {
        self.number += 1;
        self.write(&format!("  {}  {what:48} ", self.number));
    }

    /// The step is done.
    pub(super) fn done(&self, result: &str) {
        self.write(&format!("{result}\n"));
    }

    fn write(&self, text: &str) {
        if !self.quiet {
            let mut out = io::stdout().lock();
            // The report at the end says if nobody takes it.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }
}
