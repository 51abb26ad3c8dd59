//! Commands on two sides of a bad network: frames of any protocol are lost, delayed and damaged.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_tools::lossy::main(std::env::args_os())
}
