//! The chunk server as a program; all of it is in the library's `daemon`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use towpath_chunkserver::daemon::{self, DaemonError};
use towpath_status::say;

fn main() -> ExitCode {
    match daemon::main(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match &error {
                // It is also how help is printed, with colours where a terminal has them.
                DaemonError::Flags(flags) => drop(flags.print()),
                error => say(format_args!("towpath-chunkserver: {}", error.chain())),
            }
            ExitCode::from(error.exit_code())
        }
    }
}
