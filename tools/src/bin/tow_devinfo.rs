//! What devices there are, and what Towpath will do on each.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_tools::devinfo::main(std::env::args_os())
}
