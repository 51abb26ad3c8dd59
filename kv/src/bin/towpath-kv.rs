//! The key-value store as a program; all of it is in the library's `daemon`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_kv::daemon::main(std::env::args_os())
}
