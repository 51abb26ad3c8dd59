//! `tow_devinfo`: what devices there are, and what Towpath will do on each, in the manner of
//! `ibv_devinfo`.
//!
//! | file | what |
//! |---|---|
//! | `check` | what works between this device and another host's |
//! | `found` | the devices: the userspace NIC, the wire within a process, those of libibverbs |
//! | `host` | the addresses of this host |
//! | `report` | what is printed, as data; the fields of the JSON |
//! | `text` | the same for people |
//!
//! What will be done is not decided here: [`towpath_transport::Plan`] is what endpoints go by.

mod check;
mod found;
mod host;
mod report;
mod text;

use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use towpath_status::say;
use towpath_transport::{DeviceChoice, DeviceName, Icrc};

/// Shows the devices that Towpath can use, and what it will do on each: by capabilities, never by
/// names. Exit status: 0 when every device was asked, 1 when not, 2 for a wrong command line.
#[derive(Debug, Parser)]
#[command(name = "tow_devinfo", version)]
struct Args {
    /// Only this device: roce, mem, or one of libibverbs [default: all]. With --check and --serve
    /// as of the other tools: roce, roce:ADDRESS,ADDRESS, verbs, or one of libibverbs [default:
    /// roce]
    #[arg(short, long = "ib-dev", value_name = "DEV")]
    device: Option<String>,
    /// Try what works between this device and that of PEER, where `tow_devinfo --serve` runs, and
    /// print the table of it; HOST or HOST:PORT [default port: 18516]. Exit status: 0 when a link
    /// over the device worked
    #[arg(long, value_name = "PEER", conflicts_with_all = ["list", "verbose", "serve"])]
    check: Option<String>,
    /// Be the peer of --check at this address of this host, until the process is ended
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["list", "verbose", "json"])]
    serve: Option<String>,
    /// With --check and --serve: the port of the RDMA device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..))]
    ib_port: u8,
    /// With --check and --serve: the index of the RDMA device's address, as -v lists them [default:
    /// the first IPv4 address of RoCEv2, or else IPv6]
    #[arg(short = 'x', long, value_name = "INDEX")]
    gid_index: Option<u32>,
    /// With --check and --serve on roce: the peer has an RDMA NIC or the kernel's rxe
    #[arg(long)]
    foreign_peers: bool,
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
    if let Some(ended) = with_a_peer(&args) {
        return ended;
    }
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

/// What needs two hosts; none where neither was asked for.
fn with_a_peer(args: &Args) -> Option<ExitCode> {
    let (check, serve) = (args.check.as_deref(), args.serve.as_deref());
    if check.is_none() && serve.is_none() {
        return None;
    }
    let name = args.device.as_deref().map_or(Ok(DeviceName::default()), str::parse);
    let name = match name {
        Ok(name) => name,
        Err(error) => {
            say(format_args!("tow_devinfo: {error}"));
            return Some(ExitCode::from(2));
        }
    };
    let choice = DeviceChoice {
        name,
        port: args.ib_port,
        gid_index: args.gid_index,
        foreign_peers: args.foreign_peers,
        icrc: Icrc::default(),
    };
    let works = match check {
        Some(peer) => check::check(&choice, peer, args.json).unwrap_or_else(|error| {
            say(format_args!("tow_devinfo: cannot write: {error}"));
            false
        }),
        None => check::serve(&choice, serve.unwrap_or_default()),
    };
    Some(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
