//! The whole server: settings, start and clean stop. Call [`run`](run()) with a [`DaemonConfig`].
//!
//! | file | contents |
//! |---|---|
//! | `config`, `value` | the settings in groups, and how values are read and shown |
//! | `effective` | what the settings come to on this machine |
//! | `file`, `args` | the config file and the command line |
//! | `run` | [`run`](run()): from settings to a serving server and back |
//! | `crew` | the workers of a server, and their threads |
//! | `store`, `disks` | the disk file of a store, and who drives it; all of them |
//! | `shards` | where the stores of a server are |
//! | `descriptors` | the limit of file descriptors |
//! | `log` | what is logged, and in which format |
//! | `beside` | who asks the store beside the workers: the listener for metrics, and the scrub |
//! | `scrub` | the background scrub |
//! | `notify` | what the service manager is told |
//! | `stopped` | what the commands for stopped stores share |
//! | `check` | the command that checks a store for damage, and repairs it |
//! | `dump` | the command that shows what a store holds |
//! | `tenants` | reservations, and the file of tenants |
//! | `stop` | [`StopFlag`] and signals |
//! | `error` | errors, with their exit codes |
//!
//! [`run`](run()) is a library function, so that a program can be a chunk server among other
//! things, on a device of its own making.

mod args;
mod beside;
mod check;
mod config;
mod crew;
mod descriptors;
mod disks;
mod dump;
mod effective;
mod error;
mod file;
mod log;
mod notify;
mod peers;
mod run;
mod scrub;
mod secure;
mod shards;
mod stop;
mod stopped;
mod store;
mod tenants;
mod value;

use std::ffi::OsString;
use std::io::{self, Write as _};

use args::{Program, StoppedStore};
pub use config::{
    DaemonConfig, DeviceConfig, DriveDisk, LogFormat, NetworkConfig, PlaceBy, RequestConfig,
    SecureConfig, SecureMode, ShareConfig, StatusPlace, StoreConfig, TelemetryConfig,
};
pub use error::DaemonError;
pub use file::{ConfigFault, ConfigFileError, ConfigTextError};
pub use log::log_to_stderr;
pub use run::{
    Ready, Served, check, devices, endpoint_config, print_ready, run, udp_config, udp_devices,
};
pub use stop::{StopFlag, stop_signals};
pub use store::{SizesError, open_store};
pub use value::{SizeError, parse_size};

/// The whole program: reads the command line, does what it asks for.
///
/// # Errors
/// [`DaemonError`]; its exit code is for the caller to use.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Result<(), DaemonError> {
    let program = Program::read(args)?;
    let config = &program.settings;
    match program.command {
        Some(StoppedStore::Check(check)) => return check.run(),
        Some(StoppedStore::Dump(dump)) => return dump.run(),
        None if program.check => {
            check(config)?;
            return print("configuration is valid\n");
        }
        None if program.print_config => {
            return print(&config.to_file_text().map_err(DaemonError::Ready)?);
        }
        None => {}
    }
    log_to_stderr(&config.telemetry.log, config.telemetry.log_format)?;
    let stop = StopFlag::new();
    stop.on_signals().map_err(DaemonError::Signals)?;
    run(config, &stop, devices, |ready| {
        notify::tell(&format!("READY=1\nSTATUS=serving on {}", ready.listening));
        print_ready(ready, program.json)
    })
    .map(drop)
}

/// Prints what a command is asked for.
fn print(text: &str) -> Result<(), DaemonError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(DaemonError::Ready)
}
