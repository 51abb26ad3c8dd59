//! What is printed, as data. Fields of the JSON are added, never renamed (docs/tools.md).

use serde::Serialize;
use towpath_transport::{Carrier, Clock, EndpointConfig, EndpointError, Plan, SourcePorts};
use towpath_verbs::{DeviceCaps, QueueLimits};

/// All devices.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) devices: Vec<Device>,
    /// Why devices of libibverbs are not among them, where that is so.
    pub(super) libibverbs: Option<String>,
}

impl Report {
    /// Whether a device that is there could not be asked.
    pub(super) fn has_failed(&self) -> bool {
        self.devices.iter().any(|device| device.error.is_some())
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// RoCEv2 in userspace, over UDP sockets.
    Userspace,
    /// A wire within a process.
    Memory,
    /// A NIC, or the kernel's software for one, through libibverbs.
    Libibverbs,
}

/// One device.
#[derive(Debug, Serialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Why nothing more is known of it.
    pub(super) error: Option<String>,
    pub(super) identity: Option<Identity>,
    pub(super) limits: Option<Limits>,
    pub(super) ports: Vec<Port>,
}

impl Device {
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        let name = name.to_owned();
        Self { name, kind, error: None, identity: None, limits: None, ports: Vec::new() }
    }
}

/// Who made a device.
#[derive(Debug, Serialize)]
pub(super) struct Identity {
    pub(super) fw_ver: String,
    pub(super) node_guid: String,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) clock_khz: Option<u64>,
    pub(super) clock_mask: Option<u64>,
}

/// The words of `ibv_query_device`.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    pub(super) max_qp: u32,
    pub(super) max_qp_wr: u32,
    pub(super) max_sge: u32,
    pub(super) max_cq: u32,
    pub(super) max_cqe: u32,
    pub(super) max_mr: u32,
    pub(super) max_mr_size: u64,
    pub(super) max_pd: u32,
    pub(super) max_ah: u32,
    pub(super) max_srq: u32,
    pub(super) max_srq_wr: u32,
    pub(super) max_qp_rd_atom: u32,
}

/// One port.
#[derive(Debug, Serialize)]
pub(super) struct Port {
    pub(super) port: u8,
    /// `ACTIVE` or `DOWN`.
    pub(super) state: &'static str,
    pub(super) link_layer: &'static str,
    /// Bytes.
    pub(super) max_mtu: u32,
    pub(super) active_mtu: u32,
    pub(super) addresses: Vec<Address>,
    /// None where the port cannot be used.
    pub(super) capabilities: Option<Capabilities>,
    /// What is known of when packets leave, where the kernel sends.
    pub(super) send_times: Option<SendTimes>,
    /// What an endpoint with the default settings will do there.
    pub(super) towpath: Option<Doing>,
    /// Why there is none.
    pub(super) refusal: Option<String>,
}

impl Port {
    /// What is to be said of the device at this port.
    pub(super) fn judge(&mut self, caps: &DeviceCaps, limits: QueueLimits) {
        self.capabilities = Some(Capabilities::of(caps, limits));
        match Plan::new(caps, limits, &EndpointConfig::new()) {
            Ok(plan) => self.towpath = Some(Doing::of(&plan, caps)),
            Err(error) => self.refusal = Some(refusal(&error)),
        }
    }
}

fn refusal(error: &EndpointError) -> String {
    format!("an endpoint with the default settings cannot be had: {error}")
}

/// One address.
#[derive(Debug, Serialize)]
pub(super) struct Address {
    /// Its index in the port's table.
    pub(super) index: u32,
    pub(super) ip: String,
    /// `RoCE v2`, or what Towpath does not speak.
    pub(super) kind: &'static str,
    /// The interface that has it, where known.
    pub(super) interface: Option<String>,
    /// The largest path MTU that the interface carries, where known.
    pub(super) path_mtu_max: Option<u32>,
}

/// What is known of when packets leave, from a few that were sent to this host.
#[derive(Debug, Serialize)]
pub(super) struct SendTimes {
    /// `kernel`, or `card`; none where the time of the call is all there is.
    pub(super) stamped_by: Option<&'static str>,
    /// How long before the end of its call a packet leaves; below zero, after it.
    pub(super) before_end_ns: i64,
    /// How far from that it is, in the median.
    pub(super) spread_ns: u64,
    /// How far off the clock of stamps may be.
    pub(super) clock_error_ns: u64,
}

/// What the device offers.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability")]
pub(super) struct Capabilities {
    pub(super) rc: bool,
    pub(super) uc: bool,
    pub(super) ud: bool,
    pub(super) read: bool,
    pub(super) atomics: bool,
    pub(super) srq: bool,
    pub(super) uc_srq_survives_loss: bool,
    pub(super) timestamps: bool,
    pub(super) mtu_max: u32,
    pub(super) message_bytes_max: u32,
    pub(super) send_sge_max: u32,
    pub(super) qp_max: u32,
    pub(super) wr_max: u32,
    pub(super) cqe_max: u32,
    pub(super) source_ports: u16,
    pub(super) source_port_live: bool,
    pub(super) rx_buffer_bytes: Option<u64>,
}

impl Capabilities {
    fn of(caps: &DeviceCaps, limits: QueueLimits) -> Self {
        let verbs = caps.verbs;
        Self {
            rc: verbs.rc,
            uc: verbs.uc,
            ud: verbs.ud,
            read: verbs.read,
            atomics: verbs.atomics,
            srq: verbs.srq,
            uc_srq_survives_loss: verbs.uc_srq_survives_loss,
            timestamps: caps.timestamps,
            mtu_max: caps.mtu_max.bytes(),
            message_bytes_max: caps.message_bytes_max,
            send_sge_max: caps.send_sge_max,
            qp_max: caps.qp_max,
            wr_max: limits.wr_max,
            cqe_max: limits.cqe_max,
            source_ports: caps.source_ports,
            source_port_live: caps.source_port_live,
            rx_buffer_bytes: caps.rx_buffer_bytes,
        }
    }
}

/// What Towpath will do, each with its reason.
#[derive(Debug, Serialize)]
pub(super) struct Doing {
    /// `UC` or `RC`.
    pub(super) carrier: &'static str,
    pub(super) carrier_why: &'static str,
    pub(super) links_max: usize,
    pub(super) path_mtu: u32,
    pub(super) chunk_bytes_min: u32,
    pub(super) chunk_bytes_max: u32,
    /// `device` or `software`.
    pub(super) clock: &'static str,
    pub(super) clock_why: &'static str,
    pub(super) delay_noise_ns: u64,
    pub(super) payload_crc: bool,
    pub(super) omits_icrc: bool,
    /// `shared` or `per path`.
    pub(super) receive_queues: &'static str,
    pub(super) receive_queues_why: &'static str,
    /// `one`, `per queue pair` or `live`.
    pub(super) source_port: &'static str,
    pub(super) source_ports: u16,
    /// None: the device does not bound it.
    pub(super) window_bytes: Option<u64>,
    /// `spin, then event`.
    pub(super) waiting: &'static str,
    pub(super) spin_ns: u64,
}

impl Doing {
    fn of(plan: &Plan, caps: &DeviceCaps) -> Self {
        let (carrier, carrier_why) = match plan.carrier {
            Carrier::Uc => ("UC", "reliable in software"),
            Carrier::Rc => ("RC", "the device has no UC"),
            Carrier::Tcp => ("TCP", "the set-up connection"),
        };
        let (clock, clock_why) = match plan.clock {
            Clock::Device => ("device", "its completions carry the time"),
            _ => ("software", "its completions carry no time"),
        };
        let (receive_queues, receive_queues_why) = match plan.shared_receiving {
            true => ("shared", "one queue for all links survives loss here"),
            false if !caps.verbs.srq => ("per path", "the device has no shared ones"),
            false => ("per path", "a shared one may not survive loss on UC here"),
        };
        let (source_port, source_ports) = match plan.source_ports {
            SourcePorts::Live(count) => ("live", count),
            SourcePorts::PerQueuePair(count) => ("per queue pair", count),
            _ => ("one", 1),
        };
        Self {
            carrier,
            carrier_why,
            links_max: plan.links_max,
            path_mtu: plan.mtu.bytes(),
            chunk_bytes_min: plan.chunk_bytes_min,
            chunk_bytes_max: plan.chunk_bytes_max,
            clock,
            clock_why,
            delay_noise_ns: plan.delay_noise.0,
            payload_crc: plan.payload_crc,
            omits_icrc: plan.omits_icrc,
            receive_queues,
            receive_queues_why,
            source_port,
            source_ports,
            window_bytes: plan.window_bytes,
            waiting: "spin, then event",
            spin_ns: plan.spin.0,
        }
    }
}
