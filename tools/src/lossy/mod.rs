//! `towpath-lossy`: commands on two sides of a bad network.
//!
//! | file | contents |
//! |---|---|
//! | `args`, `plans`, `values` | the flags, those of the fault plan, and how values are written |
//! | `run` | one run: wire, commands, end, report |
//! | `bridge` | two threads that carry frames; what befalls them is `towpath_sim`'s |
//! | `side` | a network namespace with its interface, and a thread in it |
//! | `joined` | interfaces that there are already |
//! | `tap`, `netlink` | what is asked of the kernel |
//! | `privilege` | root's rights, or a user namespace |
//! | `children` | commands, and how all that they left is ended |
//! | `report` | the table and the JSON |
//! | `error` | what can go wrong, and what to do next |

mod args;
mod bridge;
mod children;
mod error;
mod joined;
mod netlink;
mod plans;
mod privilege;
mod report;
mod run;
mod side;
mod tap;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use towpath_status::say;

use args::LossyArgs;

/// The exit code for wrong flags.
const EXIT_USAGE: u8 = 2;

/// Runs the command line `args`, whose first is the program's name, and says how it went.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|flag| flag == children::EXEC_FLAG) {
        return children::exec(args.into_iter().skip(2));
    }
    let args = match LossyArgs::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // It is also how help is printed, with colours where a terminal has them.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    match run::run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(format_args!("towpath-lossy: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
