//! `tow_devinfo`: what devices there are, and what Towpath will do on each, in the manner of
//! `ibv_devinfo`.
//!
//! | file | what |
//! |---|---|
//! | `found` | the devices: the userspace NIC, the wire within a process, those of libibverbs |
//! | `host` | the addresses of this host |
//! | `report` | what is printed, as data; the fields of the JSON |
//! | `text` | the same for people |
//!
//! What will be done is not decided here: [`towpath_transport::Plan`] is what endpoints go by.

mod found;
mod host;
mod report;
mod text;

use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use towpath_status::say;

/// Shows the devices that Towpath can use, and what it will do on each: by capabilities, never by
/// names. Exit status: 0 when every device was asked, 1 when not, 2 for a wrong command line.
#[derive(Debug, Parser)]
#[command(name = "tow_devinfo", version)]
struct Args {
    /// Only this device: roce, mem, or one of libibverbs [default: all]
    #[arg(short, long = "ib-dev", value_name = "DEV")]
    device: Option<String>,
    /// Only the names
    #[arg(short, long)]
    list: bool,
    /// All limits and all addresses
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// The whole program: see `--help` for its exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Help goes to stdout and is no error; whether it could be printed changes nothing.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let report = match found::all(args.device.as_deref()) {
        Ok(report) => report,
        Err(unknown) => {
            say(format_args!("tow_devinfo: {unknown}"));
            return ExitCode::FAILURE;
        }
    };
    match print(&args, &report) {
        // A reader that went away, like `head`, is not worth a word.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(format_args!("tow_devinfo: cannot write: {error}"));
            ExitCode::FAILURE
        }
        _ if report.has_failed() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn print(args: &Args, report: &report::Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else if args.list {
        for device in &report.devices {
            writeln!(out, "{}", device.name)?;
        }
    } else {
        out.write_all(text::of(report, args.verbose).as_bytes())?;
    }
    out.flush()
}
