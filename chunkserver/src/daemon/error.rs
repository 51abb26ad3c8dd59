//! Why the daemon ends, and with which exit code.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use thiserror::Error;
use towpath_status::SocketError;
use towpath_transport::{EndpointError, ListenError};

use super::file::ConfigFileError;
use super::value::ValueError;
use crate::store::{ConfigError, FlushFailed, OpenError, RepairError};

/// Why the daemon could not start, or did not end well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The command line is not understood, or asks for help.
    #[error(transparent)]
    Flags(#[from] clap::Error),
    /// A flag has a value that it does not take.
    #[error("--{flag} {error}")]
    Flag {
        /// The flag without its dashes.
        flag: &'static str,
        /// What it takes.
        #[source]
        error: ValueError,
    },
    /// The config file cannot be used.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// The log filter is none.
    #[error("`log` is no filter: use error, warn, info, debug or trace, or part=level pairs")]
    LogFilter(#[source] tracing_subscriber::filter::ParseError),
    /// A part of the log filter is no level.
    #[error(
        "`log` (--log) has `{part}`, which is no level: use off, error, warn, info, debug or \
         trace, or PART=LEVEL as in towpath_chunkserver=debug"
    )]
    LogLevel {
        /// What stands there.
        part: String,
    },
    /// The sizes of the store cannot be.
    #[error(transparent)]
    Sizes(#[from] ConfigError),
    /// The device has no address.
    #[error(
        "the userspace NIC needs one address of this host, not {ip}: set `device_ip` \
         (--device-ip) to the one that clients reach{}",
        likely.map(|ip| format!(", probably {ip}")).unwrap_or_default()
    )]
    DeviceIp {
        /// What was set.
        ip: IpAddr,
        /// The address that packets to other networks leave from.
        likely: Option<IpAddr>,
    },
    /// An address of the settings is not one of this host.
    #[error("`{setting}` is {ip}, which is no address of this host (`ip address` lists them)")]
    NotOurs {
        /// The setting.
        setting: &'static str,
        /// Its address.
        ip: IpAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The data directory is something else.
    #[error("{} is not a directory: set `data_dir` (--data-dir) to one", .0.display())]
    NotADirectory(PathBuf),
    /// The data directory cannot be made or entered.
    #[error("cannot use {} as data directory: check its permissions", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The store in the data directory cannot be opened.
    #[error("cannot open the store in {}", path.display())]
    Store {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The store is damaged, or something of it was lost; what was printed says what.
    #[error("the store in {} is not whole", .0.display())]
    StoreDamaged(PathBuf),
    /// The store was not repaired.
    #[error("cannot repair the store in {}", path.display())]
    NotRepaired {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: RepairError,
    },
    /// The listening address cannot be had.
    #[error("cannot listen for clients")]
    Listen(#[from] ListenError),
    /// The device or its memory cannot be had.
    #[error("cannot set up the network device")]
    Endpoint(#[from] EndpointError),
    /// Whoever makes the devices made none.
    #[error("there is no device to serve on; make one for each worker")]
    NoDevice,
    /// No thread for the store, or a worker.
    #[error("cannot start a thread for the store or a worker; raise the limit of processes")]
    Thread(#[source] io::Error),
    /// The status socket cannot be had.
    #[error("cannot answer at the `status_socket` (--status-socket)")]
    Status(#[from] SocketError),
    /// The signals cannot be caught.
    #[error("cannot catch SIGTERM, SIGINT and SIGHUP")]
    Signals(#[source] io::Error),
    /// The ready line could not be written.
    #[error("cannot write to stdout that the server is ready; give it an open stdout")]
    Ready(#[source] io::Error),
    /// The store's thread ended by a fault; what was not acknowledged may have been done or not.
    #[error("the store in {} ended by a fault: see what was logged, then restart", .0.display())]
    StoreEnded(PathBuf),
    /// The store's thread did not end in time.
    #[error(
        "the store in {} did not end within `stop_wait_ms`: a flush of its medium hangs, or takes \
         longer; what was acknowledged is safe",
        .0.display()
    )]
    StoreHangs(PathBuf),
    /// The store refuses changes since a flush failed.
    #[error("the store in {} has lost its trust in the medium", path.display())]
    Failed {
        /// The directory.
        path: PathBuf,
        /// What failed.
        #[source]
        source: FlushFailed,
    },
}

impl DaemonError {
    /// The exit code of the program; `--help` lists them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(error) if !error.use_stderr() => 0,
            Self::Flags(_)
            | Self::Flag { .. }
            | Self::ConfigFile(_)
            | Self::LogFilter(_)
            | Self::LogLevel { .. }
            | Self::Sizes(_)
            | Self::DeviceIp { .. }
            | Self::Endpoint(EndpointError::Mtu { .. }) => 2,
            Self::Listen(_) | Self::NotOurs { .. } => 3,
            Self::Endpoint(EndpointError::Udp(_)) => 3,
            Self::StoreDamaged(_) => 1,
            Self::NotRepaired { .. }
            | Self::NotADirectory(_)
            | Self::DataDir { .. }
            | Self::Store { .. } => 4,
            Self::Failed { .. } | Self::StoreEnded(_) | Self::StoreHangs(_) => 5,
            Self::Endpoint(_)
            | Self::NoDevice
            | Self::Ready(_)
            | Self::Signals(_)
            | Self::Status(_)
            | Self::Thread(_) => 6,
        }
    }

    /// The error and what is below it, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut below = std::error::Error::source(self);
        while let Some(error) = below {
            let part = error.to_string();
            // Transparent and embedded sources have said their part already.
            if !text.contains(&part) {
                text.push_str(": ");
                text.push_str(&part);
            }
            below = error.source();
        }
        text
    }
}
