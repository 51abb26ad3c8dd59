//! Errors of the daemon, with their exit codes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use thiserror::Error;
use towpath_qos::AdmissionError;
use towpath_secure::front::FrontError;
use towpath_status::SocketError;
use towpath_transport::{EndpointError, ListenError, MemoryError, SecureError};

use super::file::ConfigFileError;
use super::store::SizesError;
use crate::guard::GuardError;
use crate::qos::TenantsError;
use crate::store::core::CoreRepairError;
use crate::store::{FlushFailed, OpenError};

/// Why the daemon could not start, or did not stop cleanly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The command line is invalid, or asks for help.
    #[error(transparent)]
    Flags(#[from] clap::Error),
    /// The config file cannot be used.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// Nobody can be told metrics there.
    #[error("metrics cannot be told on {address}: {source}; set another address, or \"none\"")]
    Metrics {
        /// The setting.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The certificate or the key for metrics does not serve.
    #[error(
        "metrics cannot be told over TLS: {0}; set another `metrics_tls_cert` or `metrics_tls_key`"
    )]
    MetricsTls(#[from] FrontError),
    /// A certificate without a key, or a key without a certificate.
    #[error(
        "`metrics_tls_cert` and `metrics_tls_key` go together: set both, or none of them for \
         metrics without TLS"
    )]
    HalfTls,
    /// A part of the log filter is not a level.
    #[error(
        "`log` (--log) has `{part}`, which is not a level: use off, error, warn, info, debug or \
         trace, or PART=LEVEL as in towpath_chunkserver=debug"
    )]
    LogLevel {
        /// The invalid part.
        part: String,
    },
    /// A size setting of the store is invalid.
    #[error(transparent)]
    Sizes(#[from] SizesError),
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
    #[error("`{setting}` is {ip}, which is not an address of this host (`ip address` lists them)")]
    NotOurs {
        /// The setting.
        setting: &'static str,
        /// Its address.
        ip: IpAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The data directory is not a directory.
    #[error("{} is not a directory: set `data_dir` (--data-dir) to one", .0.display())]
    NotADirectory(PathBuf),
    /// The data directory cannot be made or entered.
    #[error("cannot use {} as the data directory{}", path.display(), hint(source))]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Two disks are one.
    #[error("{} is the directory of two disks: name each once", .0.display())]
    SameDisk(PathBuf),
    /// More stores than a server can have.
    #[error("{0} stores, which all shards of all disks are together: a server has at most 64")]
    TooManyShards(usize),
    /// A device has one store.
    #[error(
        "{} is a block device, which has one shard: give each shard a partition of it, and name \
         their folders in more_data_dirs", .0.join("disk").display()
    )]
    ShardsOfDevice(PathBuf),
    /// A disk cannot be opened, and all are needed, or none can.
    #[error("disk {number} ({}) cannot be opened: {why}", path.display())]
    DiskDown {
        /// Its number.
        number: usize,
        /// Its directory.
        path: PathBuf,
        /// Why.
        why: String,
        /// The exit code of that.
        code: u8,
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
    /// The folder has files of a format that was never released.
    #[error(
        "{dir} has files (map.*, log.*, data.*) of a store format that was in no release and is \
         not read any more: set `data_dir` (--data-dir) to another folder, or remove these files; \
         to keep their chunks, run the build that wrote them, `towpath get` each chunk from it, \
         and `towpath put` it into a new store",
        dir = .0.display()
    )]
    OldStore(PathBuf),
    /// The folder had a store that is not there any more.
    #[error(
        "{dir} had a store, and now {dir}/disk is {found}: mount its file system or device, or put \
         the file back from a copy; to begin with an empty store, start the server once with \
         `--format`",
        dir = path.display()
    )]
    StoreGone {
        /// The folder.
        path: PathBuf,
        /// What there is instead.
        found: &'static str,
    },
    /// The disk file is a link to nothing.
    #[error(
        "{dir}/disk is a link to a file or device that is not there: connect the device, or make \
         the link anew",
        dir = .0.display()
    )]
    DiskLink(PathBuf),
    /// The disk file of the store cannot be opened, or made.
    #[error("cannot open the disk of the store")]
    Disk(#[source] towpath_disk::OpenError),
    /// The system does not speak of the disk any more.
    #[error("cannot read the disk of the store")]
    StoreDisk(#[source] io::Error),
    /// The store is damaged, or data was lost; the printed report says what.
    #[error("the store in {} is damaged: the report says what", .0.display())]
    StoreDamaged(PathBuf),
    /// Some of several stores are damaged, or cannot be read; what is printed says which.
    #[error("{bad} of {count} stores are not as they should be: what is printed says which")]
    Stores {
        /// How many.
        bad: usize,
        /// How many there are.
        count: usize,
        /// The exit code of the worst of them.
        code: u8,
    },
    /// The store was not repaired.
    #[error("cannot repair the store in {}", path.display())]
    NotRepaired {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: CoreRepairError,
    },
    /// The memory for resident chunks cannot be had.
    #[error("cannot get the memory that `resident_bytes` (--resident-bytes) asks for: lower it")]
    Resident(#[source] MemoryError),
    /// Requests cannot be checked.
    #[error("the server cannot say who may do what: {0}")]
    Guard(#[from] GuardError),
    /// The keys of the host cannot be used.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// Peers are named, or a mode, and no key.
    #[error(
        "`authorized_peers` and `secure_mode` need `host_key` (--host-key): make a key with \
         `towpath keygen`; without one links are open"
    )]
    NoHostKey,
    /// The file of tenants cannot be used.
    #[error(transparent)]
    Tenants(#[from] TenantsError),
    /// There is a file of tenants, and it is not known what the server can do.
    #[error(
        "`tenants_file` needs `qos_iops` (--qos-iops): how many operations of 4 KiB the server \
         does in a second"
    )]
    TenantsWithoutIops,
    /// A reservation of the file cannot be kept.
    #[error("tenant {tenant} cannot have what the file of tenants says: {error}")]
    NotAdmitted {
        /// The tenant.
        tenant: String,
        /// Why.
        #[source]
        error: AdmissionError,
    },
    /// There is no memory.
    #[error("there is no memory for the words of reservations")]
    Memory(#[source] MemoryError),
    /// The server cannot listen on its address.
    #[error("cannot listen for clients")]
    Listen(#[from] ListenError),
    /// The network device or its memory is not available.
    #[error("cannot set up the network device")]
    Endpoint(#[from] EndpointError),
    /// The caller's function made no device.
    #[error("there is no device to serve on; make one for each worker")]
    NoDevice,
    /// No thread for the store, or a worker.
    #[error("cannot start a thread for the store or a worker; raise the limit of processes")]
    Thread(#[source] io::Error),
    /// The status socket cannot be made.
    #[error("cannot make the `status_socket` (--status-socket)")]
    Status(#[from] SocketError),
    /// The signals cannot be caught.
    #[error("cannot catch SIGTERM, SIGINT and SIGHUP")]
    Signals(#[source] io::Error),
    /// The ready line, or what a command prints, could not be written.
    #[error("cannot write to stdout; start the program with a stdout that takes what it prints")]
    Ready(#[source] io::Error),
    /// The store's thread panicked; changes that were not acknowledged may have been done or not.
    #[error("the store in {} failed: read the log, then restart", .0.display())]
    StoreEnded(PathBuf),
    /// The store's thread did not end in time.
    #[error(
        "the store in {} did not stop within `stop_wait_ms`: a flush of its disk hangs or is slow; \
         acknowledged changes are safe",
        .0.display()
    )]
    StoreHangs(PathBuf),
    /// The store refuses changes since a flush failed.
    #[error("the store in {} became read-only", path.display())]
    Failed {
        /// The directory.
        path: PathBuf,
        /// What failed.
        #[source]
        source: FlushFailed,
    },
}

/// What to look at where a directory cannot be used.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ": check its permissions",
        io::ErrorKind::AlreadyExists => ": a store, or a link to nothing, is there already",
        _ => "",
    }
}

impl DaemonError {
    /// The exit code of the program; `--help` lists them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(error) if !error.use_stderr() => 0,
            Self::Flags(_)
            | Self::ConfigFile(_)
            | Self::LogLevel { .. }
            | Self::MetricsTls(_)
            | Self::HalfTls
            | Self::Sizes(_)
            | Self::SameDisk(_)
            | Self::TooManyShards(_)
            | Self::ShardsOfDevice(_)
            | Self::DeviceIp { .. }
            | Self::Guard(_)
            | Self::Secure(_)
            | Self::NoHostKey
            | Self::Tenants(_)
            | Self::TenantsWithoutIops
            | Self::NotAdmitted { .. }
            | Self::Endpoint(EndpointError::Mtu { .. }) => 2,
            Self::Listen(_) | Self::NotOurs { .. } | Self::Metrics { .. } => 3,
            Self::Endpoint(EndpointError::Udp(_)) => 3,
            Self::StoreDamaged(_) => 1,
            Self::NotRepaired { .. }
            | Self::NotADirectory(_)
            | Self::OldStore(_)
            | Self::StoreGone { .. }
            | Self::DiskLink(_)
            | Self::Disk(_)
            | Self::StoreDisk(_)
            | Self::DataDir { .. }
            | Self::Store { .. } => 4,
            Self::DiskDown { code, .. } | Self::Stores { code, .. } => *code,
            Self::Failed { .. } | Self::StoreEnded(_) | Self::StoreHangs(_) => 5,
            Self::Endpoint(_)
            | Self::Memory(_)
            | Self::NoDevice
            | Self::Resident(_)
            | Self::Ready(_)
            | Self::Signals(_)
            | Self::Status(_)
            | Self::Thread(_) => 6,
        }
    }

    /// Whether all of it is in the report that a command printed before.
    pub(super) fn is_in_report(&self) -> bool {
        matches!(self, Self::StoreDamaged(_))
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
