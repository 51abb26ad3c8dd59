//! The table of settings: name, meaning, how it is read and shown.

use std::net::IpAddr;
use std::path::PathBuf;

use towpath_transport::{Mtu, PATHS_MAX, SHARES_MAX};

use super::config::{DriveDisk, PlaceBy, StatusPlace};
use super::key::Key;
use super::value::{self, ValueError};
use super::{log, peers};

/// A number with its bounds.
macro_rules! number {
    ($name:ident, $low:expr, $high:expr, $doc:expr) => {
        Key {
            name: stringify!($name),
            kind: "N",
            doc: $doc,
            quoted: false,
            set: |config, text| {
                config.$name = value::number(text, $low, $high)?;
                Ok(())
            },
            show: |config| config.$name.to_string(),
        }
    };
}

/// A size in bytes.
macro_rules! size {
    ($name:ident, $low:expr, $doc:expr) => {
        Key {
            name: stringify!($name),
            kind: "SIZE",
            doc: $doc,
            quoted: true,
            set: |config, text| {
                config.$name = value::size(text, $low)?;
                Ok(())
            },
            show: |config| value::show_size(config.$name),
        }
    };
}

/// A file that there may be.
macro_rules! path {
    ($name:ident, $doc:expr) => {
        Key {
            name: stringify!($name),
            kind: "PATH",
            doc: $doc,
            quoted: true,
            set: |config, text| {
                config.$name = match text {
                    "" => return Err(ValueError::Needs { needs: "a path, or \"none\"" }),
                    "none" => None,
                    path => Some(PathBuf::from(path)),
                };
                Ok(())
            },
            show: |config| {
                let path = config.$name.as_ref();
                path.map_or_else(|| "none".into(), |path| path.display().to_string())
            },
        }
    };
}

/// Every setting, in the order in which it is shown.
pub const KEYS: &[Key] = &[
    Key {
        name: "listen",
        kind: "HOST:PORT",
        doc: "TCP address on which clients set up their links; port 0 is any free one",
        quoted: true,
        set: |config, text| {
            config.listen = value::listen_address(text)?;
            Ok(())
        },
        show: |config| config.listen.to_string(),
    },
    Key {
        name: "device",
        kind: "DEV",
        doc: "RDMA device: roce (in userspace over UDP, needs nothing; with several NICs, \
              roce:10.0.0.1,10.1.0.1), or one that ibv_devices lists, as mlx5_0; verbs is the \
              first of them (in builds with --features verbs)",
        quoted: true,
        set: |config, text| {
            config.device.name =
                value::parsed(text, "roce, roce:IP,IP, verbs or a name like mlx5_0")?;
            Ok(())
        },
        show: |config| config.device.name.to_string(),
    },
    Key {
        name: "device_ib_port",
        kind: "N",
        doc: "port of an RDMA device, from 1",
        quoted: false,
        set: |config, text| {
            config.device.port = value::number(text, 1, u8::MAX)?;
            Ok(())
        },
        show: |config| config.device.port.to_string(),
    },
    Key {
        name: "device_gid_index",
        kind: "N",
        doc: "index of the address of an RDMA device, as show_gids lists them; \"auto\" is the \
              first IPv4 address of RoCEv2, or else IPv6",
        quoted: true,
        set: |config, text| {
            config.device.gid_index = match text {
                "auto" => None,
                _ => Some(value::parsed(text, "a whole number, or \"auto\"")?),
            };
            Ok(())
        },
        show: |config| {
            config.device.gid_index.map_or_else(|| "auto".into(), |index| index.to_string())
        },
    },
    Key {
        name: "device_foreign_peers",
        kind: "BOOL",
        doc: "true when clients of the userspace NIC have RDMA NICs; it then takes UDP port 4791, \
              and sends no runs of packets over IPv4, whose ICRC such a NIC would not find right",
        quoted: false,
        set: |config, text| {
            config.device.foreign_peers = value::parsed(text, "true or false, without quotes")?;
            Ok(())
        },
        show: |config| config.device.foreign_peers.to_string(),
    },
    Key {
        name: "device_icrc",
        kind: "WHEN",
        doc: "\"auto\": packets of the userspace NIC carry no ICRC over UC where the client says \
              auto, too; \"always\": they do, for captures and comparisons",
        quoted: true,
        set: |config, text| {
            config.device.icrc = value::parsed(text, "\"auto\" or \"always\"")?;
            Ok(())
        },
        show: |config| config.device.icrc.to_string(),
    },
    Key {
        name: "device_ip",
        kind: "IP",
        doc: "local address of the userspace NIC, or \"listen\" for that of `listen`; needed where \
              `listen` is 0.0.0.0 or [::], because the NIC has one address",
        quoted: true,
        set: |config, text| {
            config.device_ip = match text {
                "listen" => None,
                _ => Some(value::parsed::<IpAddr>(text, "an IP address, or \"listen\"")?),
            };
            Ok(())
        },
        show: |config| config.device_ip.map_or_else(|| "listen".into(), |ip| ip.to_string()),
    },
    number!(device_port, 0, u16::MAX, "UDP port of the userspace NIC; 0 is any free one"),
    Key {
        name: "workers",
        kind: "N",
        doc: "network threads: each has clients, buffers and a device of its own, on one port; \
              \"auto\" is one for each shard, where there are several; or one for each class; or a \
              single one for all classes where drive_disk is \"inline\" or no core is to spare for \
              more",
        quoted: true,
        set: |config, text| {
            config.workers = match text {
                "auto" => None,
                _ => Some(value::number(text, 1, SHARES_MAX as u32)?),
            };
            Ok(())
        },
        show: |config| config.workers.map_or_else(|| "auto".into(), |count| count.to_string()),
    },
    Key {
        name: "place_by",
        kind: "WORD",
        doc: "which worker a client goes to: \"class\", one of those for the class of its link, \
              \"links\", the one with the fewest clients, or \"auto\": by links where there are \
              shards, and otherwise by class",
        quoted: true,
        set: |config, text| {
            config.place_by = match text {
                "auto" => PlaceBy::Auto,
                "class" => PlaceBy::Class,
                "links" => PlaceBy::Links,
                _ => return Err(ValueError::Needs { needs: "\"auto\", \"class\" or \"links\"" }),
            };
            Ok(())
        },
        show: |config| match config.place_by {
            PlaceBy::Auto => "auto".into(),
            PlaceBy::Class => "class".into(),
            PlaceBy::Links => "links".into(),
        },
    },
    Key {
        name: "mtu_bytes",
        kind: "N",
        doc: "path MTU in bytes: 256, 512, 1024, 2048 or 4096, refused where the interface does \
              not carry it; \"auto\" is the largest that the interface and the way to a client \
              carry",
        quoted: true,
        set: |config, text| {
            let needs = "256, 512, 1024, 2048 or 4096, or \"auto\"";
            config.mtu_bytes = match text {
                "auto" => None,
                _ => {
                    let mtu = Mtu::from_bytes(value::parsed(text, needs)?);
                    Some(mtu.ok_or(ValueError::Needs { needs })?)
                }
            };
            Ok(())
        },
        show: |config| config.mtu_bytes.map_or_else(|| "auto".into(), |mtu| mtu.to_string()),
    },
    Key {
        name: "data_dir",
        kind: "DIR",
        doc: "directory of the store; made if it is not there",
        quoted: true,
        set: |config, text| {
            if text.is_empty() {
                return Err(ValueError::Needs { needs: "a directory" });
            }
            config.data_dir = PathBuf::from(text);
            Ok(())
        },
        show: |config| config.data_dir.display().to_string(),
    },
    Key {
        name: "more_data_dirs",
        kind: "DIR:DIR",
        doc: "directories of further disks, with colons between them: each has a store of its \
              own, and chunks are spread over all; \"none\" is only that of `data_dir`",
        quoted: true,
        set: |config, text| {
            config.more_data_dirs = value::dirs(text)?;
            Ok(())
        },
        show: |config| value::show_dirs(&config.more_data_dirs),
    },
    number!(
        shards,
        1,
        64,
        "stores of each disk, each with a network thread of its own (`workers`), for machines with \
         cores for them; those that were made are served also where fewer are asked for; a block \
         device has one"
    ),
    Key {
        name: "require_all_disks",
        kind: "BOOL",
        doc: "true when the server is not to start unless all of its disks can be opened; \
              otherwise it serves those that can, and one is enough",
        quoted: false,
        set: |config, text| {
            config.require_all_disks = value::parsed(text, "true or false, without quotes")?;
            Ok(())
        },
        show: |config| config.require_all_disks.to_string(),
    },
    Key {
        name: "capacity_bytes",
        kind: "SIZE",
        doc: "most bytes of data kept on each disk, like \"500GiB\", fixed when its store is made; \
              \"unlimited\" is as many as its file system has",
        quoted: true,
        set: |config, text| {
            config.capacity_bytes = match text {
                "unlimited" => u64::MAX,
                _ => value::size(text, 4096)?,
            };
            Ok(())
        },
        show: |config| match config.capacity_bytes {
            u64::MAX => "unlimited".into(),
            bytes => value::show_size(bytes),
        },
    },
    Key {
        name: "resident_bytes",
        kind: "SIZE",
        doc: "most bytes of resident chunks kept in memory, which clients read by themselves; 0: \
              none, and no chunk can be made resident",
        quoted: true,
        set: |config, text| {
            config.resident_bytes = value::resident_size(text)?;
            Ok(())
        },
        show: |config| value::show_size(config.resident_bytes),
    },
    Key {
        name: "preallocate",
        kind: "BOOL",
        doc: "true when a new store takes the room of capacity_bytes at once; otherwise its disk \
              file grows with what is written, and shrinks with what is deleted",
        quoted: false,
        set: |config, text| {
            config.preallocate = value::parsed(text, "true or false, without quotes")?;
            Ok(())
        },
        show: |config| config.preallocate.to_string(),
    },
    size!(
        log_bytes,
        512 << 10,
        "size of each of the two copies of the write-ahead log of a new store in bytes, as it \
         begins"
    ),
    size!(
        log_bytes_max,
        512 << 10,
        "size that each copy of the log grows to under load, at most a thirty-second part of the \
         disk; a preallocated store keeps `log_bytes`; fixed when the store is made"
    ),
    number!(
        chunks_max,
        1,
        u64::MAX,
        "most chunks of each disk; each takes about 200 bytes of memory"
    ),
    Key {
        name: "drive_disk",
        kind: "WORD",
        doc: "which thread drives a store: \"thread\", one for each, \"inline\", the network \
              threads, each as many of them, or \"auto\": the network threads where there is one \
              disk, and several shards, or one worker and no core to spare for another thread",
        quoted: true,
        set: |config, text| {
            config.drive_disk = match text {
                "auto" => DriveDisk::Auto,
                "thread" => DriveDisk::Thread,
                "inline" => DriveDisk::Inline,
                _ => return Err(ValueError::Needs { needs: "\"auto\", \"thread\" or \"inline\"" }),
            };
            Ok(())
        },
        show: |config| match config.drive_disk {
            DriveDisk::Auto => "auto".into(),
            DriveDisk::Thread => "thread".into(),
            DriveDisk::Inline => "inline".into(),
        },
    },
    number!(store_queue_max, 1, 65_536, "requests of each worker that may wait for a disk"),
    number!(
        link_requests_max,
        1,
        1024,
        "requests of one client that may be under way before more are refused as busy"
    ),
    number!(
        links_max,
        0,
        16_384,
        "most clients of each worker at a time; 0 is 4,096 on the userspace NIC and 32 on an RDMA \
         NIC, whose queues have memory for the most from the start"
    ),
    number!(
        paths_max,
        1,
        PATHS_MAX as u32,
        "most paths of a client, each a queue pair with a source port of its own, of which it may \
         ask for fewer; the completion queues are made for that many"
    ),
    Key {
        name: "fallback",
        kind: "WORD",
        doc: "what links fall back to while no packet gets through over UDP: \"rc,tcp\", \"tcp\" \
              or \"none\"; a link falls back to what the device, the server and the client have",
        quoted: true,
        set: |config, text| {
            config.fallback = value::parsed(text, "\"rc,tcp\", \"tcp\" or \"none\"")?;
            Ok(())
        },
        show: |config| config.fallback.to_string(),
    },
    Key {
        name: "carrier",
        kind: "RULES",
        doc: "what carries links to peers in ranges of addresses (uc, rc or tcp), as in \
              \"10.1.0.0/16=rc\", several with commas, of which the longest prefix counts, or, in \
              a config file, [{ peers = \"10.1.0.0/16\", use = \"rc\" }]; \"auto\" is UC for all \
              where the device has it",
        quoted: true,
        set: |config, text| {
            config.carrier = value::carrier_rules(text)?;
            Ok(())
        },
        show: |config| value::show_carrier_rules(&config.carrier),
    },
    number!(
        quota_chunks,
        2,
        32_767,
        "pieces of up to 60 KiB that a client may have under way on one channel"
    ),
    number!(
        credit_chunks_max,
        2,
        1 << 20,
        "pieces of up to 60 KiB that one client may have under way: this much memory at most"
    ),
    number!(read_buffers_large, 1, 65_536, "buffers of 1 MiB of each worker for reads"),
    number!(read_buffers_small, 1, 65_536, "buffers of 64 KiB of each worker for reads"),
    number!(
        busy_poll_us,
        0,
        1_000_000,
        "microseconds of polling without work before a network thread blocks"
    ),
    number!(
        idle_wait_us,
        100,
        1_000_000,
        "longest time that a network thread blocks while something is under way, in microseconds"
    ),
    number!(
        unfinished_keep_s,
        0,
        31_536_000,
        "seconds that a chunk is kept whose put was interrupted and which nobody writes to; 0: for \
         good"
    ),
    number!(
        slow_after_ms,
        1,
        3_600_000,
        "milliseconds without an answer after which a request is logged and counted as slow"
    ),
    number!(
        stop_wait_ms,
        0,
        3_600_000,
        "longest time that a clean stop waits for what is under way, in milliseconds"
    ),
    number!(
        qos_iops,
        0,
        u32::MAX,
        "operations of 4 KiB that the server does in a second, all clients together; with it, \
         tenants get what they have reserved (docs/qos.md). 0: no reservations"
    ),
    number!(
        interference_mean_us,
        0,
        60_000_000,
        "mean latency of reads of gold and silver, in microseconds, above which copper may write \
         less (docs/qos.md section 7). 0: it does not matter"
    ),
    number!(
        interference_p99_us,
        0,
        60_000_000,
        "the same of their 99th percentile; both 0: no interference control"
    ),
    number!(
        interference_window_ms,
        1,
        60_000,
        "milliseconds for which latencies are gathered before interference control decides"
    ),
    number!(
        interference_least_percent,
        1,
        100,
        "what a class keeps of the most that it has written, in percent, however slow reads are"
    ),
    number!(qos_iops_one, 0, u32::MAX, "the same of one client by itself; 0 is as many"),
    number!(qos_read_weight, 1, 1_000, "tokens for each 4 KiB that is read"),
    number!(
        qos_write_weight,
        1,
        1_000,
        "tokens for each 4 KiB that is written: what a write takes of the server beside a read"
    ),
    path!(
        key_file,
        "file of keys that capabilities are made with (docs/capabilities.md): a number and 64 \
         hexadecimal digits on each line, as `towpath cap key` prints; read again when it \
         changes; \"none\": whoever reaches the server may do everything"
    ),
    peers::KEY,
    Key {
        name: "time_handlers",
        kind: "BOOL",
        doc: "true to count what the handlers of writes take (towpath_handler_seconds_total)",
        quoted: false,
        set: |config, text| {
            config.time_handlers = value::parsed(text, "true or false, without quotes")?;
            Ok(())
        },
        show: |config| config.time_handlers.to_string(),
    },
    path!(
        tenants_file,
        "file of tenants: tables like [tenant.web] with reserve = \"80K\", limit and weight; \
         read again when it changes; \"none\" is no tenants"
    ),
    Key {
        name: "scrub_bytes_per_s",
        kind: "SIZE",
        doc: "bytes a second that the background scrub reads, which checks every slice once a day \
              at most; 0: none",
        quoted: true,
        set: |config, text| {
            config.scrub_bytes_per_s = match text {
                "0" => 0,
                _ => value::size(text, 4096)?,
            };
            Ok(())
        },
        show: |config| value::show_size(config.scrub_bytes_per_s),
    },
    Key {
        name: "metrics",
        kind: "HOST:PORT",
        doc: "TCP address on which /metrics is told to Prometheus over HTTP, like \
              \"127.0.0.1:9400\"; whoever reaches it may read it; \"none\" is nowhere",
        quoted: true,
        set: |config, text| {
            config.metrics = match text {
                "none" => None,
                _ => Some(value::listen_address(text)?),
            };
            Ok(())
        },
        show: |config| config.metrics.map_or_else(|| "none".into(), |at| at.to_string()),
    },
    Key {
        name: "status_socket",
        kind: "PATH",
        doc: "local socket that tells how links and paths stand (`towpath paths`); \"data_dir\" is \
              status.sock in that directory, \"none\" is nowhere",
        quoted: true,
        set: |config, text| {
            config.status_socket = match text {
                "" => return Err(ValueError::Needs { needs: "a path, \"data_dir\" or \"none\"" }),
                "data_dir" => StatusPlace::DataDir,
                "none" => StatusPlace::Nowhere,
                path => StatusPlace::At(PathBuf::from(path)),
            };
            Ok(())
        },
        show: |config| match &config.status_socket {
            StatusPlace::DataDir => "data_dir".into(),
            StatusPlace::Nowhere => "none".into(),
            StatusPlace::At(path) => path.display().to_string(),
        },
    },
    Key {
        name: "log",
        kind: "FILTER",
        doc: "what is logged to stderr: error, warn, info, debug or trace, for all or by part \
              (\"warn,towpath_chunkserver=debug\")",
        quoted: true,
        set: |config, text| {
            config.log = String::from(text);
            Ok(())
        },
        show: |config| config.log.clone(),
    },
    log::FORMAT_KEY,
];
