//! The settings of the daemon and their defaults.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use towpath_status::limits::STATUS_NAME;
use towpath_transport::{CarrierRule, Class, DeviceChoice, Fallback, Mtu};

use crate::service::{AllowedPeers, cores_to_spare};
use crate::store::limits::{
    CHUNKS_MAX_DEFAULT, LOG_BYTES_DEFAULT, LOG_BYTES_MAX_DEFAULT, UNFINISHED_KEEP_DEFAULT,
};

/// Most clients of each worker on the userspace NIC unless set: an idle one costs 100 KB of memory.
const LINKS_MAX_USERSPACE: u32 = 4096;

/// Most clients of each worker on an RDMA NIC unless set: each takes some 2,700 entries of a
/// completion queue that is made for the most.
const LINKS_MAX_RDMA: u32 = 32;

/// Buffers of 1 MiB of each worker unless set: so many that 32 links of its class that ask for data
/// and take none in leave some for others (docs/limits.md, section 6). They take no memory before
/// they are used.
const READ_BUFFERS_LARGE: u32 = 64;

/// Settings of a chunk server. Start from `DaemonConfig::default()`, set `data_dir` and `listen`,
/// and pass it to [`run`](super::run()).
///
/// Each setting but `format` is also a key of the config file, and each is a flag of
/// `towpath-chunkserver`. The defaults fit one small machine and its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// TCP address on which clients set up their links; port 0 is any free one.
    pub listen: SocketAddr,
    /// The RDMA device to serve on.
    pub device: DeviceChoice,
    /// Local address of the userspace NIC; the address of `listen` when none.
    pub device_ip: Option<IpAddr>,
    /// UDP port of the userspace NIC; 0 is any free one.
    pub device_port: u16,
    /// Network threads, each with clients, buffers and a queue of its own; as many as fit the
    /// machine when none ([`effective_workers`](Self::effective_workers)).
    pub workers: Option<u32>,
    /// Which worker a client goes to.
    pub place_by: PlaceBy,
    /// Path MTU to ask for; the largest that the interface and the way to a client carry when
    /// none.
    pub mtu_bytes: Option<Mtu>,
    /// Directory of the store; made if it is not there.
    pub data_dir: PathBuf,
    /// Directories of further disks, each with a store of its own; made if they are not there.
    pub more_data_dirs: Vec<PathBuf>,
    /// Stores of each disk, each with a network thread that drives it; those that were made stay.
    pub shards: u32,
    /// The server does not start unless all of its disks can be opened; otherwise one is enough.
    pub require_all_disks: bool,
    /// Most bytes of slices kept on each disk, fixed when its store is made; `u64::MAX` is as many
    /// as the file system holds.
    pub capacity_bytes: u64,
    /// Most bytes of slices of resident chunks that are kept in memory, all disks together; 0:
    /// none, and no chunk can be made resident.
    pub resident_bytes: u64,
    /// The disk file of a new store takes the room of `capacity_bytes` at once; otherwise that of
    /// what is written.
    pub preallocate: bool,
    /// Size of each of the two copies of the write-ahead log of a new store in bytes, as it begins.
    pub log_bytes: u64,
    /// Size that each of them grows to under load.
    pub log_bytes_max: u64,
    /// Most chunks of each disk.
    pub chunks_max: u64,
    /// Which thread drives a disk.
    pub drive_disk: DriveDisk,
    /// Requests of each worker that may wait for the store.
    pub store_queue_max: u32,
    /// Requests of one link that may be under way before more are refused as busy.
    pub link_requests_max: u32,
    /// Most clients of each worker at a time; 0: 4,096 on the userspace NIC, and 32 on an RDMA NIC,
    /// whose queues have memory for the most from the start.
    pub links_max: u32,
    /// Most paths of one client's link; it has as many of them as the client asks for.
    pub paths_max: u32,
    /// What links fall back to where the client asks for it.
    pub fallback: Fallback,
    /// What carries links to clients and servers, by their addresses.
    pub carrier: Vec<CarrierRule>,
    /// Pieces of messages that a client may have under way on one channel.
    pub quota_chunks: u32,
    /// Pieces that all channels of one client together may have under way.
    pub credit_chunks_max: u32,
    /// Buffers of 1 MiB of each worker for the data of reads.
    pub read_buffers_large: u32,
    /// Buffers of 64 KiB of each worker for the data of reads.
    pub read_buffers_small: u32,
    /// Microseconds of polling without work before a network thread blocks.
    pub busy_poll_us: u64,
    /// Longest time that a network thread blocks while something is under way, in microseconds.
    pub idle_wait_us: u64,
    /// Seconds that an unfinished chunk is kept which nobody writes to; 0: for good.
    pub unfinished_keep_s: u32,
    /// Milliseconds without an answer after which a request is logged and counted as slow.
    pub slow_after_ms: u64,
    /// Longest time that a clean stop waits for what is under way, in milliseconds.
    pub stop_wait_ms: u64,
    /// Operations of 4 KiB that the server does in a second, all clients together; 0: it keeps no
    /// reservations.
    pub qos_iops: u32,
    /// The same of one client by itself; 0: as many.
    pub qos_iops_one: u32,
    /// Tokens for each 4 KiB of a read.
    pub qos_read_weight: u16,
    /// Tokens for each 4 KiB of a write.
    pub qos_write_weight: u16,
    /// Mean latency of reads of Gold and Silver, in microseconds, above which Copper may write
    /// less; 0: it does not matter.
    pub interference_mean_us: u32,
    /// The same of their 99th percentile; both 0: there is no interference control.
    pub interference_p99_us: u32,
    /// Milliseconds for which latencies are gathered before interference control decides.
    pub interference_window_ms: u32,
    /// What a class keeps of the most that it has written, in percent.
    pub interference_least_percent: u32,
    /// The file of keys that capabilities are made with; read again when it changes. None: whoever
    /// reaches the server may do everything.
    pub key_file: Option<PathBuf>,
    /// The servers that anything is passed on to.
    pub peers: AllowedPeers,
    /// Count what each handler of a request with data takes.
    pub time_handlers: bool,
    /// The file of tenants; read again when it changes.
    pub tenants_file: Option<PathBuf>,
    /// Bytes a second that the background scrub reads; 0: none.
    pub scrub_bytes_per_s: u64,
    /// Where its figures are told to Prometheus; none for nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where it can be asked how its links and paths stand.
    pub status_socket: StatusPlace,
    /// A store is also made where a disk holds something else, which is destroyed, and where a
    /// folder has lost its store. A flag alone, and no key of the config file: it is for one start.
    pub format: bool,
    /// What is logged to stderr, as a filter: `info`, or `warn,towpath_chunkserver=debug`.
    pub log: String,
    /// How the log is written.
    pub log_format: LogFormat,
}

/// How the log is written to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// One JSON object on a line.
    Json,
}

/// Which worker of a server a client goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaceBy {
    /// As `Class`; with several shards, which all classes need, as `Links`.
    #[default]
    Auto,
    /// One of those that serve the class of its link, with the fewest clients.
    Class,
    /// The one with the fewest clients, whatever their class.
    Links,
}

/// Which thread drives a disk and its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriveDisk {
    /// The network threads where there is one disk, and several shards, or one worker and no core
    /// to spare beyond those of a client, the network and a store; otherwise one for each store.
    #[default]
    Auto,
    /// One for each store.
    Thread,
    /// The network threads, each as many of the stores.
    Inline,
}

/// Where the status socket of a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusPlace {
    /// In the data directory, named [`STATUS_NAME`]; where the
    /// system has none there, the server goes on without.
    #[default]
    DataDir,
    /// Nowhere.
    Nowhere,
    /// Here; without it the server does not start.
    At(PathBuf),
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)),
            device: DeviceChoice::default(),
            device_ip: None,
            device_port: 0,
            workers: None,
            place_by: PlaceBy::Auto,
            mtu_bytes: None,
            data_dir: PathBuf::from("towpath-data"),
            more_data_dirs: Vec::new(),
            shards: 1,
            require_all_disks: false,
            capacity_bytes: u64::MAX,
            resident_bytes: 0,
            preallocate: false,
            log_bytes: LOG_BYTES_DEFAULT,
            log_bytes_max: LOG_BYTES_MAX_DEFAULT,
            chunks_max: CHUNKS_MAX_DEFAULT,
            drive_disk: DriveDisk::Auto,
            store_queue_max: 256,
            link_requests_max: 256,
            links_max: 0,
            paths_max: 4,
            fallback: Fallback::default(),
            carrier: Vec::new(),
            quota_chunks: 128,
            credit_chunks_max: 512,
            read_buffers_large: READ_BUFFERS_LARGE,
            read_buffers_small: 256,
            busy_poll_us: 50,
            idle_wait_us: 20_000,
            unfinished_keep_s: UNFINISHED_KEEP_DEFAULT.as_secs() as u32,
            slow_after_ms: 1_000,
            stop_wait_ms: 5_000,
            qos_iops: 0,
            qos_iops_one: 0,
            qos_read_weight: 1,
            qos_write_weight: 1,
            interference_mean_us: 0,
            interference_p99_us: 0,
            interference_window_ms: 100,
            interference_least_percent: 5,
            key_file: None,
            peers: AllowedPeers::default(),
            time_handlers: false,
            tenants_file: None,
            scrub_bytes_per_s: 4 << 20,
            metrics: None,
            status_socket: StatusPlace::DataDir,
            format: false,
            log: String::from("info"),
            log_format: LogFormat::Text,
        }
    }
}

impl DaemonConfig {
    /// The address of the device: its own, or the one that clients set up their links on.
    #[must_use]
    pub fn effective_device_ip(&self) -> IpAddr {
        self.device.name.ip().or(self.device_ip).unwrap_or_else(|| self.listen.ip())
    }

    /// Most clients of each worker: what is set, or what fits the device.
    #[must_use]
    pub fn effective_links_max(&self) -> u32 {
        match self.links_max {
            0 if self.device.target().is_none() => LINKS_MAX_USERSPACE,
            0 => LINKS_MAX_RDMA,
            links => links,
        }
    }

    /// Network threads: what is set; or one for each shard, where there are several; or one for
    /// each class. A single thread has all classes where it is to drive the disk, and where no core
    /// is to spare for more: further threads would only take cores from it and from the client.
    #[must_use]
    pub fn effective_workers(&self) -> u32 {
        match self.workers {
            Some(workers) => workers,
            None if self.shards > 1 => self.shards,
            None if self.drive_disk == DriveDisk::Inline || !cores_to_spare() => 1,
            None => Class::COUNT as u32,
        }
    }

    /// Whether network threads drive the stores.
    pub(super) fn drives_inline(&self) -> bool {
        match self.drive_disk {
            DriveDisk::Thread => false,
            DriveDisk::Inline => true,
            // A disk that hangs would keep a thread from the other disks, and from the network.
            DriveDisk::Auto if !self.more_data_dirs.is_empty() => false,
            DriveDisk::Auto => {
                self.shards > 1 || (self.effective_workers() == 1 && !cores_to_spare())
            }
        }
    }

    /// The directories of all disks, in the order of their numbers.
    pub fn data_dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.data_dir).chain(&self.more_data_dirs)
    }

    /// The path of the status socket, if there is to be one.
    #[must_use]
    pub fn status_path(&self) -> Option<PathBuf> {
        match &self.status_socket {
            StatusPlace::DataDir => Some(self.data_dir.join(STATUS_NAME)),
            StatusPlace::Nowhere => None,
            StatusPlace::At(path) => Some(path.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_serves_all_classes_where_more_would_take_its_cores() {
        let of = |workers, drive_disk| DaemonConfig { workers, drive_disk, ..Default::default() };
        let fits = if cores_to_spare() { 3 } else { 1 };
        for drive_disk in [DriveDisk::Auto, DriveDisk::Thread] {
            assert_eq!(of(None, drive_disk).effective_workers(), fits);
        }
        assert_eq!(of(None, DriveDisk::Auto).drives_inline(), !cores_to_spare());
        let inline = of(None, DriveDisk::Inline);
        assert!(inline.effective_workers() == 1 && inline.drives_inline());
        let asked = of(Some(2), DriveDisk::Auto);
        assert!(asked.effective_workers() == 2 && !asked.drives_inline());
        let sharded = DaemonConfig { shards: 4, ..of(None, DriveDisk::Auto) };
        assert!(sharded.effective_workers() == 4 && sharded.drives_inline());
    }

    #[test]
    fn a_number_of_workers_is_read_with_quotes_and_without() {
        let mut config = DaemonConfig::default();
        let texts = [("workers = 5", Some(5)), ("workers = \"2\"", Some(2))];
        for (text, workers) in texts.into_iter().chain([("workers = \"auto\"", None)]) {
            config.read_text(text).expect("a number, or the word");
            assert_eq!(config.workers, workers, "{text}");
        }
    }
}
