//! The settings of the daemon: groups of fields, each a key of the config file and a flag.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, Command, FromArgMatches as _, ValueEnum};
use serde::Serialize;
use towpath_transport::{
    CarrierRule, DeviceChoice, DeviceName, Fallback, Icrc, Mtu, PATHS_MAX, SHARES_MAX,
};

use super::value::{
    capacity, dirs, listen_address, mtu, number, or, parsed, path, path_or_none, rules,
    show_capacity, show_dirs, show_rules, show_size, shown, shown_choice, size, size_or_0,
    status_place, yes_or_no,
};
use crate::resident::SLOTS_MAX;
use crate::service::AllowedPeers;
use crate::store::SLICE_BYTES;
use crate::store::limits::{CHUNKS_MAX_DEFAULT, UNFINISHED_KEEP_DEFAULT};

/// Buffers of 1 MiB of each worker unless set: so many that 32 links of its class that ask for data
/// and take none in leave some for others (docs/limits.md, section 6). They take no memory before
/// they are used.
const READ_BUFFERS_LARGE: u32 = 64;

/// An `Option` whose flag has a word for "none". By its own name clap would take it for a flag
/// without a default.
type Choice<T> = Option<T>;

/// A `Vec` that is one value of a flag. By its own name clap would take it for several.
type List<T> = Vec<T>;

/// Settings of a chunk server. Start from `DaemonConfig::default()`, set `store.data_dir` and
/// `network.listen`, and pass it to [`run`](super::run()).
///
/// Each field of a group is also a key of the config file and a flag of `towpath-chunkserver`, all
/// of one name, but for `store.format`. Its comment is what `--help` and the file say of it. The
/// defaults fit one small machine and its clients.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct DaemonConfig {
    /// Clients, the threads that serve them, and what each may use.
    #[command(flatten)]
    #[serde(flatten)]
    pub network: NetworkConfig,
    /// The RDMA device to serve on.
    #[command(flatten)]
    #[serde(flatten)]
    pub device: DeviceConfig,
    /// Disks and their stores.
    #[command(flatten)]
    #[serde(flatten)]
    pub store: StoreConfig,
    /// How requests are served, and whose.
    #[command(flatten)]
    #[serde(flatten)]
    pub service: RequestConfig,
    /// Who gets how much of the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub qos: ShareConfig,
    /// Who the server proves to be, whom it trusts, and what of links is hidden.
    #[command(flatten)]
    #[serde(flatten)]
    pub secure: SecureConfig,
    /// What the server tells of itself.
    #[command(flatten)]
    #[serde(flatten)]
    pub telemetry: TelemetryConfig,
}

/// Clients, the threads that serve them, and what each may use.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct NetworkConfig {
    /// TCP address on which clients set up their links; port 0 is any free one.
    #[arg(long, value_name = "HOST:PORT", value_parser = listen_address)]
    #[arg(default_value = "127.0.0.1:7400")]
    pub listen: SocketAddr,
    /// Network threads: each has clients, buffers and a device of its own, on one port; "auto" is
    /// one for each shard, where there are several; or one for each class; or a single one for all
    /// classes where drive_disk is "inline" or no core is to spare for more.
    #[arg(long, value_name = "N", default_value = "auto")]
    #[arg(value_parser = or("auto", number(1, SHARES_MAX as u32)))]
    pub workers: Choice<u32>,
    /// Which worker a client goes to: "class", one of those for the class of its link, "links", the
    /// one with the fewest clients, or "auto": by links where there are shards, otherwise by class.
    #[arg(long, value_name = "WORD", default_value = "auto", hide_possible_values = true)]
    pub place_by: PlaceBy,
    /// Which thread drives a store: "thread", one of its own; "inline", a network thread, which has
    /// its share of all stores; or "auto", inline where there is one disk with several shards, or
    /// one worker and no core to spare for another thread.
    #[arg(long, value_name = "WORD", default_value = "auto", hide_possible_values = true)]
    pub drive_disk: DriveDisk,
    /// Most clients of each worker at a time; 0 is 4,096 on the userspace NIC and 32 on an RDMA
    /// NIC, whose queues have memory for the most from the start.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0u32, 16_384))]
    pub links_max: u32,
    /// Most paths of a client, each a queue pair with a source port of its own, of which it may ask
    /// for fewer; the completion queues are made for that many.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = number(1, PATHS_MAX as u32))]
    pub paths_max: u32,
    /// What links fall back to while no packet gets through over UDP: "rc,tcp", "tcp" or "none"; a
    /// link falls back to what the device, the server and the client have.
    #[arg(long, value_name = "WORD", default_value_t)]
    #[arg(value_parser = parsed::<Fallback>("\"rc,tcp\", \"tcp\" or \"none\""))]
    #[serde(serialize_with = "shown")]
    pub fallback: Fallback,
    /// What carries links to peers in ranges of addresses (uc, rc or tcp), as in "10.1.0.0/16=rc",
    /// several with commas, of which the longest prefix counts, or, in a config file,
    /// `[{ peers = "10.1.0.0/16", use = "rc" }]`; "auto" is UC for all where the device has it.
    #[arg(long, value_name = "RULES", default_value = "auto", value_parser = rules)]
    #[serde(serialize_with = "show_rules")]
    pub carrier: List<CarrierRule>,
    /// Pieces of up to 60 KiB that a client may have under way on one channel.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = number(2u32, 32_767))]
    pub quota_chunks: u32,
    /// Pieces of up to 60 KiB that one client may have under way: this much memory at most.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = number(2u32, 1 << 20))]
    pub credit_chunks_max: u32,
    /// Buffers of 1 MiB of each worker for reads.
    #[arg(long, value_name = "N", default_value_t = READ_BUFFERS_LARGE)]
    #[arg(value_parser = number(1u32, 65_536))]
    pub read_buffers_large: u32,
    /// Buffers of 64 KiB of each worker for reads.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number(1u32, 65_536))]
    pub read_buffers_small: u32,
}

/// The RDMA device to serve on.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct DeviceConfig {
    /// RDMA device: roce (in userspace over UDP, needs nothing; with several NICs,
    /// roce:10.0.0.1,10.1.0.1), or one that ibv_devices lists, as mlx5_0; verbs is the first of
    /// them (in builds with --features verbs).
    #[arg(long, value_name = "DEV", default_value = "roce")]
    #[arg(value_parser = parsed::<DeviceName>("roce, roce:IP,IP, verbs or a name like mlx5_0"))]
    #[serde(serialize_with = "shown")]
    pub device: DeviceName,
    /// Port of an RDMA device, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1, u8::MAX))]
    pub device_ib_port: u8,
    /// Index of the address of an RDMA device, as show_gids lists them; "auto" is the first IPv4
    /// address of RoCEv2, or else IPv6.
    #[arg(long, value_name = "N", default_value = "auto")]
    #[arg(value_parser = or("auto", parsed::<u32>("a whole number, or \"auto\"")))]
    pub device_gid_index: Choice<u32>,
    /// True when clients of the userspace NIC have RDMA NICs; it then takes UDP port 4791, and
    /// sends no runs of packets over IPv4, whose ICRC such a NIC would not find right.
    #[arg(long, value_name = "BOOL", default_value_t = false)]
    #[arg(action = ArgAction::Set, value_parser = yes_or_no)]
    pub device_foreign_peers: bool,
    /// "auto": packets of the userspace NIC carry no ICRC over UC where the client says auto, too;
    /// "always": they do, for captures and comparisons.
    #[arg(long, value_name = "WHEN", default_value_t)]
    #[arg(value_parser = parsed::<Icrc>("\"auto\" or \"always\""))]
    #[serde(serialize_with = "shown")]
    pub device_icrc: Icrc,
    /// Local address of the userspace NIC, or "listen" for that of `listen`; needed where `listen`
    /// is 0.0.0.0 or `[::]`, because the NIC has one address.
    #[arg(long, value_name = "IP", default_value = "listen")]
    #[arg(value_parser = or("listen", parsed::<IpAddr>("an IP address, or \"listen\"")))]
    pub device_ip: Choice<IpAddr>,
    /// UDP port of the userspace NIC; 0 is any free one.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0, u16::MAX))]
    pub device_port: u16,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, refused where the interface does not carry
    /// it; "auto" is the largest that the interface and the way to a client carry.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = mtu)]
    #[serde(serialize_with = "shown_choice")]
    pub mtu_bytes: Choice<Mtu>,
}

/// Disks and their stores.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct StoreConfig {
    /// Directory of the store; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "towpath-data", value_parser = path)]
    pub data_dir: PathBuf,
    /// Directories of further disks, with colons between them: each has a store of its own, and
    /// chunks are spread over all; "none" is only that of `data_dir`.
    #[arg(long, value_name = "DIR:DIR", default_value = "none", value_parser = dirs)]
    #[serde(serialize_with = "show_dirs")]
    pub more_data_dirs: List<PathBuf>,
    /// Stores of each disk, each with a network thread of its own (`workers`), for machines with
    /// cores for them; those that were made are served also where fewer are asked for; a block
    /// device has one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u32, 64))]
    pub shards: u32,
    /// True when the server is not to start unless all of its disks can be opened; otherwise it
    /// serves those that can, and one is enough.
    #[arg(long, value_name = "BOOL", default_value_t = false)]
    #[arg(action = ArgAction::Set, value_parser = yes_or_no)]
    pub require_all_disks: bool,
    /// Most bytes of data kept on each disk, like "500GiB", fixed when its store is made;
    /// "unlimited" (`u64::MAX`) is as many as its file system has.
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = capacity)]
    #[serde(serialize_with = "show_capacity")]
    pub capacity_bytes: u64,
    /// Most bytes of resident chunks kept in memory, all disks together, which clients read by
    /// themselves; 0: none, and no chunk can be made resident.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    #[arg(value_parser = size_or_0(u64::from(SLOTS_MAX) * SLICE_BYTES as u64))]
    #[serde(serialize_with = "show_size")]
    pub resident_bytes: u64,
    /// True when a new store takes the room of capacity_bytes at once; otherwise its disk file
    /// grows with what is written, and shrinks with what is deleted.
    #[arg(long, value_name = "BOOL", default_value_t = false)]
    #[arg(action = ArgAction::Set, value_parser = yes_or_no)]
    pub preallocate: bool,
    /// Size of each of the two copies of the write-ahead log of a new store in bytes, as it begins.
    #[arg(long, value_name = "SIZE", default_value = "28MiB", value_parser = size(512 << 10))]
    #[serde(serialize_with = "show_size")]
    pub log_bytes: u64,
    /// Size that each copy of the log grows to under load, at most a thirty-second part of the
    /// disk; a preallocated store keeps `log_bytes`; fixed when the store is made.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size(512 << 10))]
    #[serde(serialize_with = "show_size")]
    pub log_bytes_max: u64,
    /// Most chunks of each disk; each takes about 200 bytes of memory.
    #[arg(long, value_name = "N", default_value_t = CHUNKS_MAX_DEFAULT)]
    #[arg(value_parser = number(1, u64::MAX))]
    pub chunks_max: u64,
    /// Requests of each worker that may wait for a disk.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number(1u32, 65_536))]
    pub store_queue_max: u32,
    /// Seconds that a chunk is kept whose put was interrupted and which nobody writes to; 0: for
    /// good.
    #[arg(long, value_name = "N", default_value_t = UNFINISHED_KEEP_DEFAULT.as_secs() as u32)]
    #[arg(value_parser = number(0u32, 31_536_000))]
    pub unfinished_keep_s: u32,
    /// A store is also made where a disk holds something else, which is destroyed, and where a
    /// folder has lost its store. A flag alone, and no key of the config file: it is for one start.
    #[arg(skip)]
    #[serde(skip)]
    pub format: bool,
}

/// How requests are served, and whose.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct RequestConfig {
    /// Requests of one client that may be under way before more are refused as busy.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number(1u32, 1024))]
    pub link_requests_max: u32,
    /// Microseconds of polling without work before a network thread blocks.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number(0u64, 1_000_000))]
    pub busy_poll_us: u64,
    /// Longest time that a network thread blocks while something is under way, in microseconds.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = number(100u64, 1_000_000))]
    pub idle_wait_us: u64,
    /// Milliseconds without an answer after which a request is logged and counted as slow.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = number(1u64, 3_600_000))]
    pub slow_after_ms: u64,
    /// Longest time that a clean stop waits for what is under way, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = number(0u64, 3_600_000))]
    pub stop_wait_ms: u64,
    /// File of keys that capabilities are made with (docs/capabilities.md): a number and 64
    /// hexadecimal digits on each line, as `towpath cap key` prints; read again when it changes;
    /// "none": whoever reaches the server may do everything.
    #[arg(long, value_name = "PATH", default_value = "none", value_parser = path_or_none)]
    pub key_file: Choice<PathBuf>,
    /// Servers that writes, and parts that are made anew, are passed on to, with commas between: IP
    /// or IP:PORT; needed for `put --policy ring:K`, `tree:K` and `rs:K+M,triec`; "none" is nobody,
    /// "any" is whatever address a client names.
    #[arg(long, value_name = "ADDRESSES", default_value_t, value_parser = parsed::<AllowedPeers>(
        "any, none, or up to 256 addresses with commas between"
    ))]
    #[serde(serialize_with = "shown")]
    pub peers: AllowedPeers,
    /// Bytes a second that the background scrub reads, which checks every slice once a day at most;
    /// 0: none.
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size_or_0(u64::MAX))]
    #[serde(serialize_with = "show_size")]
    pub scrub_bytes_per_s: u64,
}

/// Who the server proves to be, whom it trusts, and what of links is hidden.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct SecureConfig {
    /// File of the key of this host, as `towpath keygen` makes it (docs/secure-links.md): with it
    /// links are encrypted, and clients, and servers in `peers`, need keys that are trusted;
    /// "none": links are open, and everybody on the network may read and forge them.
    #[arg(long, value_name = "PATH", default_value = "none", value_parser = path_or_none)]
    pub host_key: Choice<PathBuf>,
    /// File of the hosts that are trusted, a key and a name on each line; read again when it
    /// changes, and who is not in it any more has no link a second later; "beside" is
    /// authorized_peers in the folder of `host_key`.
    #[arg(long, value_name = "PATH", default_value = "beside")]
    #[arg(value_parser = or("beside", path))]
    pub authorized_peers: Choice<PathBuf>,
    /// What is done with what links carry: "encrypt", "authenticate" (signed and readable), or
    /// "auto", encrypt where there is a `host_key`; clients in another mode are refused.
    #[arg(long, value_name = "WORD", default_value = "auto")]
    #[arg(value_parser = or("auto", parsed::<SecureMode>(
        "\"encrypt\" or \"authenticate\", or \"auto\""
    )))]
    #[serde(serialize_with = "shown_choice")]
    pub secure_mode: Choice<SecureMode>,
}

/// What is done with what sealed links carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureMode {
    /// It is hidden and signed.
    Encrypt,
    /// It is signed, and everybody may read it.
    Authenticate,
}

impl fmt::Display for SecureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encrypt => "encrypt",
            Self::Authenticate => "authenticate",
        })
    }
}

/// A text that is no [`SecureMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSecureMode;

impl FromStr for SecureMode {
    type Err = UnknownSecureMode;

    fn from_str(text: &str) -> Result<Self, UnknownSecureMode> {
        let modes = [Self::Encrypt, Self::Authenticate];
        modes.into_iter().find(|mode| mode.to_string() == text).ok_or(UnknownSecureMode)
    }
}

/// Who gets how much of the server.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct ShareConfig {
    /// Operations of 4 KiB that the server does in a second, all clients together; with it, tenants
    /// get what they have reserved (docs/qos.md). 0: no reservations.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0, u32::MAX))]
    pub qos_iops: u32,
    /// The same of one client by itself; 0 is as many.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0, u32::MAX))]
    pub qos_iops_one: u32,
    /// Tokens for each 4 KiB that is read.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u16, 1_000))]
    pub qos_read_weight: u16,
    /// Tokens for each 4 KiB that is written: what a write takes of the server beside a read.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u16, 1_000))]
    pub qos_write_weight: u16,
    /// File of tenants: tables like `[tenant.web]` with reserve = "80K", limit and weight; read
    /// again when it changes; "none" is no tenants.
    #[arg(long, value_name = "PATH", default_value = "none", value_parser = path_or_none)]
    pub tenants_file: Choice<PathBuf>,
    /// Mean latency of reads of gold and silver, in microseconds, above which copper may write less
    /// (docs/qos.md section 7). 0: it does not matter.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0u32, 60_000_000))]
    pub interference_mean_us: u32,
    /// The same of their 99th percentile; both 0: no interference control.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0u32, 60_000_000))]
    pub interference_p99_us: u32,
    /// Milliseconds for which latencies are gathered before interference control decides.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number(1u32, 60_000))]
    pub interference_window_ms: u32,
    /// What a class keeps of the most that it has written, in percent, however slow reads are.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number(1u32, 100))]
    pub interference_least_percent: u32,
}

/// What the server tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize)]
pub struct TelemetryConfig {
    /// TCP address on which /metrics is told to Prometheus over HTTP, like "127.0.0.1:9400";
    /// whoever reaches it may read it; "none" is nowhere.
    #[arg(long, value_name = "HOST:PORT", default_value = "none")]
    #[arg(value_parser = or("none", listen_address))]
    pub metrics: Choice<SocketAddr>,
    /// Certificates in PEM with which /metrics is told over TLS 1.3 alone: the server's own first,
    /// then those between it and its authority; "none" is without TLS.
    #[arg(long, value_name = "FILE", default_value = "none", value_parser = path_or_none)]
    pub metrics_tls_cert: Choice<PathBuf>,
    /// The private key of the first of them, in PEM, without a passphrase.
    #[arg(long, value_name = "FILE", default_value = "none", value_parser = path_or_none)]
    pub metrics_tls_key: Choice<PathBuf>,
    /// True to count what the handlers of writes take (towpath_handler_seconds_total).
    #[arg(long, value_name = "BOOL", default_value_t = false)]
    #[arg(action = ArgAction::Set, value_parser = yes_or_no)]
    pub time_handlers: bool,
    /// Local socket that tells how links and paths stand (`towpath paths`); "data_dir" is
    /// status.sock in that directory, "none" is nowhere.
    #[arg(long, value_name = "PATH", default_value_t, value_parser = status_place)]
    #[serde(serialize_with = "shown")]
    pub status_socket: StatusPlace,
    /// What is logged to stderr: error, warn, info, debug or trace, for all or by part
    /// ("warn,towpath_chunkserver=debug").
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How the log is written to stderr: "text", a line for people, or "json", one JSON object on a
    /// line.
    #[arg(long, value_name = "WORD", default_value = "text", hide_possible_values = true)]
    pub log_format: LogFormat,
}

/// How the log is written to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// One JSON object on a line.
    Json,
}

/// Which worker of a server a client goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceBy {
    /// As `Class`; with several shards, which all classes need, as `Links`.
    Auto,
    /// One of those that serve the class of its link, with the fewest clients.
    Class,
    /// The one with the fewest clients, whatever their class.
    Links,
}

/// Which thread drives a disk and its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveDisk {
    /// As `Inline` where there is one disk with several shards, or one worker and no core to spare
    /// beyond those of a client, the network and a store; otherwise as `Thread`.
    Auto,
    /// One of the store's own.
    Thread,
    /// A network thread, which has its share of all stores.
    Inline,
}

/// Where the status socket of a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusPlace {
    /// In the data directory, named `status.sock`; where the
    /// system has none there, the server goes on without.
    #[default]
    DataDir,
    /// Nowhere.
    Nowhere,
    /// Here; without it the server does not start.
    At(PathBuf),
}

impl fmt::Display for StatusPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataDir => f.write_str("data_dir"),
            Self::Nowhere => f.write_str("none"),
            Self::At(path) => path.display().fmt(f),
        }
    }
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self::from_args([]).expect("each default is a value that its flag takes")
    }
}

impl DeviceConfig {
    /// The device, its port and its address.
    #[must_use]
    pub fn choice(&self) -> DeviceChoice {
        DeviceChoice {
            name: self.device.clone(),
            port: self.device_ib_port,
            gid_index: self.device_gid_index,
            foreign_peers: self.device_foreign_peers,
            icrc: self.device_icrc,
        }
    }
}

impl DaemonConfig {
    /// The flags of all settings, and nothing else.
    pub(super) fn flags() -> Command {
        let command = Command::new("settings").no_binary_name(true).disable_help_flag(true);
        Self::augment_args(command)
    }

    /// The settings that flags give, and the defaults of the others.
    pub(super) fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::flags().try_get_matches_from(args)?)
    }

    /// These settings with some changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl StoreConfig {
    /// The directories of all disks, in the order of their numbers.
    pub fn data_dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.data_dir).chain(&self.more_data_dirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::limits::{LOG_BYTES_DEFAULT, LOG_BYTES_MAX_DEFAULT};

    #[test]
    fn the_defaults_are_those_of_the_store_and_of_the_device() {
        let DaemonConfig { store, device, .. } = DaemonConfig::default();
        assert_eq!(store.log_bytes, LOG_BYTES_DEFAULT);
        assert_eq!(store.log_bytes_max, LOG_BYTES_MAX_DEFAULT);
        assert_eq!(device.choice(), DeviceChoice::default());
    }
}
