//! `towpath demo`: a file there and back over a network that loses packets.
//!
//! | file | what it does |
//! |---|---|
//! | `journey` | put, get, latency, sample: the same over sockets and in virtual time |
//! | `real` | over sockets, with the chunk server as a second process |
//! | `virtual_time` | in one process on a virtual wire |
//! | `yardstick` | the same bytes over kernel TCP |
//! | `server` | the second process |
//! | `report`, `steps` | what is shown |
//! | `error` | why it did not get to its end |

mod error;
mod journey;
mod real;
mod report;
mod server;
mod steps;
mod virtual_time;
mod yardstick;

use std::path::Path;

use super::args::{DemoArgs, DemoServerArgs};
use super::error::{CliError, check_faults, loses};
use super::interrupt::Interrupt;
use super::source::Source;
use super::{print_json, print_text};

pub(crate) use error::DemoError;
pub(crate) use real::endpoint_config;
pub(crate) use server::{AnyDevice, open_device};
use steps::Steps;

/// Bytes of input unless asked for.
const SIZE_DEFAULT: u64 = 256 << 20;

/// In virtual time every packet is handled by one thread, so less is sent.
const VIRTUAL_SIZE_DEFAULT: u64 = 16 << 20;

/// Runs the demo and prints what it found.
pub(crate) fn run(args: &DemoArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    check_faults(&args.device, [("--loss", loses(args.loss))])?;
    let source = source(args)?;
    let steps = Steps::new(args.json);
    let ran = if args.virtual_time {
        virtual_time::run(args, &source, steps, interrupt)
    } else {
        real::run(args, &source, steps, interrupt)
    };
    // Ctrl-C reaches the second process as well: what it says about that is not the news.
    let (report, changed_at) = ran.map_err(|error| match interrupt.check() {
        Ok(()) => error,
        Err(interrupted) => interrupted.into(),
    })?;
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&report.table())?;
        print_text(&report.verdict())?;
    }
    changed_at.map_or(Ok(()), |offset| Err(CliError::Changed { offset }))
}

fn source(args: &DemoArgs) -> Result<Source, DemoError> {
    if let Some(path) = &args.input {
        let failed = |source| DemoError::Input { path: Some(path.clone()), source };
        return Source::open(path).map_err(failed);
    }
    let default = if args.virtual_time { VIRTUAL_SIZE_DEFAULT } else { SIZE_DEFAULT };
    Ok(Source::generated(args.seed, args.size.unwrap_or(default)))
}

/// The demo's second process.
pub(crate) fn serve(args: &DemoServerArgs) -> Result<(), DemoError> {
    Ok(server::serve(args)?)
}

/// The second process of the yardstick.
pub(crate) fn serve_yardstick(ipv6: bool, store: Option<&Path>) -> Result<(), DemoError> {
    yardstick::serve(ipv6, store).map_err(DemoError::Yardstick)
}
