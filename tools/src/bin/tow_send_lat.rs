//! Latency of SENDs, or of messages sent reliably, with the flags and columns of perftest.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use towpath_tools::perftest::{self, Tool};

fn main() -> ExitCode {
    perftest::main(Tool::SendLat)
}
