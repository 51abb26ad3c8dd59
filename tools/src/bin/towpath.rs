//! The `towpath` command; all of it is in the library's `cli`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_tools::cli::main(std::env::args_os())
}
