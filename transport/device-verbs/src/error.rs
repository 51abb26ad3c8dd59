//! Why a device could not be opened.

use towpath_verbs::VerbError;

/// What stands between us and a device, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This program was built without the feature.
    #[error(
        "built without real RDMA devices: build with `--features verbs`, which needs the \
         development files of libibverbs and librdmacm, and libclang"
    )]
    NotBuilt,
    /// The list of devices could not be had.
    #[error("cannot list the RDMA devices (errno {errno}); is the module ib_uverbs loaded?")]
    List {
        /// The system's reason.
        errno: i32,
    },
    /// There is no device of that name.
    #[error("there is no RDMA device `{name}`; there are: {}", names(known))]
    NoSuchDevice {
        /// What was asked for; empty for any.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The device is there but does not open.
    #[error("cannot open RDMA device {name} (errno {errno}); may we use /dev/infiniband?")]
    Refused {
        /// The device.
        name: String,
        /// The system's reason.
        errno: i32,
    },
    /// The device does not answer about itself or its port.
    #[error("RDMA device {name}, port {port}: the query failed (errno {errno})")]
    Query {
        /// The device.
        name: String,
        /// The port.
        port: u8,
        /// The system's reason.
        errno: i32,
    },
    /// The port does not carry packets.
    #[error("RDMA device {name}, port {port}: it is down; bring its network interface up")]
    PortDown {
        /// The device.
        name: String,
        /// The port.
        port: u8,
    },
    /// The port is not Ethernet.
    #[error("RDMA device {name}, port {port}: not Ethernet; only RoCEv2 is spoken here")]
    NotEthernet {
        /// The device.
        name: String,
        /// The port.
        port: u8,
    },
    /// No address of the port suits RoCEv2.
    #[error(
        "RDMA device {name}, port {port}: no RoCEv2 address{}; give its network interface an \
         IP address, or name another index",
        at(*gid_index)
    )]
    NoAddress {
        /// The device.
        name: String,
        /// The port.
        port: u8,
        /// What was asked for.
        gid_index: Option<u32>,
    },
    /// Something that every device needs could not be made.
    #[error("RDMA device {name}: what every device needs could not be made")]
    Setup {
        /// The device.
        name: String,
        /// Why.
        #[source]
        source: VerbError,
    },
}

fn names(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

fn at(gid_index: Option<u32>) -> String {
    gid_index.map_or(String::new(), |index| format!(" at index {index}"))
}
