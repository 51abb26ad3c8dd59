//! Finds the devices and asks them.

use super::host;
use super::report::{Address, Device, Identity, Kind, Limits, Port, Report, SendTimes};
use std::net::Ipv4Addr;
use towpath_device_mem::MemDevice;
use towpath_device_verbs::{OpenError, Survey};
use towpath_transport::{EndpointConfig, UdpConfig, roce_udp};
use towpath_verbs::Device as _;

/// The userspace NIC, as the tools call it.
const ROCE: &str = "roce";

/// The wire within a process.
const MEM: &str = "mem";

/// A device was asked for that is not there.
#[derive(Debug, thiserror::Error)]
#[error("there is no device `{name}`; there are: {known}{}", hint(libibverbs.as_ref()))]
pub(super) struct Unknown {
    name: String,
    known: String,
    libibverbs: Option<String>,
}

fn hint(libibverbs: Option<&String>) -> String {
    libibverbs.map_or(String::new(), |why| format!(" ({why})"))
}

/// Asks the device of that name, or all.
pub(super) fn all(only: Option<&str>) -> Result<Report, Unknown> {
    let listed = towpath_device_verbs::device_names();
    let libibverbs = listed.as_ref().err().map(OpenError::to_string);
    let mut names = vec![ROCE.to_owned(), MEM.to_owned()];
    names.extend(listed.unwrap_or_default());
    if let Some(name) = only.filter(|only| names.iter().all(|name| name != only)) {
        let (name, known) = (name.to_owned(), names.join(", "));
        return Err(Unknown { name, known, libibverbs });
    }
    let wanted = names.iter().filter(|name| only.is_none_or(|only| only == *name));
    Ok(Report { devices: wanted.map(|name| ask(name)).collect(), libibverbs })
}

fn ask(name: &str) -> Device {
    match name {
        ROCE => roce(),
        MEM => mem(),
        name => match towpath_device_verbs::survey(name) {
            Ok(survey) => surveyed(&survey),
            Err(error) => failed(name, Kind::Libibverbs, &error),
        },
    }
}

fn failed(name: &str, kind: Kind, error: &dyn std::error::Error) -> Device {
    Device { error: Some(chain(error)), ..Device::new(name, kind) }
}

/// An error and what is below it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text = format!("{text}: {error}");
        below = error.source();
    }
    text
}

/// A port of software is always up.
fn software_port(mtu_max: u32) -> Port {
    Port {
        port: 1,
        state: "ACTIVE",
        link_layer: "Ethernet",
        max_mtu: mtu_max,
        active_mtu: mtu_max,
        addresses: Vec::new(),
        capabilities: None,
        send_times: None,
        towpath: None,
        refusal: None,
    }
}

/// Asked on the loopback address: its capabilities are the same on every other.
fn roce() -> Device {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let mut opened = match roce_udp(udp, &EndpointConfig::new()) {
        Ok(opened) => opened,
        Err(error) => return failed(ROCE, Kind::Userspace, &error),
    };
    let mut port = software_port(opened.caps().mtu_max.bytes());
    port.addresses = (0..)
        .zip(host::addresses())
        .map(|(index, address)| Address {
            index,
            ip: address.ip.to_string(),
            kind: "RoCE v2",
            path_mtu_max: address.path_mtu_max(),
            interface: address.interface,
        })
        .collect();
    port.judge(opened.caps(), opened.queue_limits());
    let times = opened.link_mut().first_mut().measure_send_times();
    port.send_times = Some(SendTimes {
        stamped_by: match (times.stamped, times.by_card) {
            (true, true) => Some("card"),
            (true, false) => Some("kernel"),
            (false, _) => None,
        },
        before_end_ns: times.before_end_ns,
        spread_ns: times.spread.0,
        clock_error_ns: times.clock_error.0,
    });
    Device { ports: vec![port], ..Device::new(ROCE, Kind::Userspace) }
}

fn mem() -> Device {
    let (device, _other) = MemDevice::pair();
    let mut port = software_port(device.caps().mtu_max.bytes());
    port.link_layer = "none";
    port.judge(device.caps(), device.queue_limits());
    Device { ports: vec![port], ..Device::new(MEM, Kind::Memory) }
}

fn surveyed(survey: &Survey) -> Device {
    let limits = &survey.limits;
    let guid = survey.node_guid.to_be_bytes();
    let guid: Vec<_> = guid.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
    Device {
        identity: Some(Identity {
            fw_ver: survey.firmware.clone(),
            node_guid: guid.join(":"),
            vendor_id: survey.vendor_id,
            vendor_part_id: survey.vendor_part_id,
            hw_ver: survey.hw_ver,
            clock_khz: survey.clock.map(|clock| clock.khz),
            clock_mask: survey.clock.map(|clock| clock.mask),
        }),
        limits: Some(Limits {
            max_qp: limits.max_qp,
            max_qp_wr: limits.max_qp_wr,
            max_sge: limits.max_sge,
            max_cq: limits.max_cq,
            max_cqe: limits.max_cqe,
            max_mr: limits.max_mr,
            max_mr_size: limits.max_mr_size,
            max_pd: limits.max_pd,
            max_ah: limits.max_ah,
            max_srq: limits.max_srq,
            max_srq_wr: limits.max_srq_wr,
            max_qp_rd_atom: limits.max_qp_rd_atom,
        }),
        ports: survey.ports.iter().map(surveyed_port).collect(),
        ..Device::new(&survey.name, Kind::Libibverbs)
    }
}

fn surveyed_port(found: &towpath_device_verbs::Port) -> Port {
    let addresses = found.gids.iter().map(|gid| Address {
        index: gid.index,
        ip: gid.ip.to_string(),
        kind: if gid.is_roce_v2 { "RoCE v2" } else { "IB/RoCE v1" },
        interface: None,
        path_mtu_max: None,
    });
    let mut port = Port {
        port: found.number,
        state: if found.active { "ACTIVE" } else { "DOWN" },
        link_layer: if found.ethernet { "Ethernet" } else { "not Ethernet" },
        max_mtu: found.max_mtu.bytes(),
        active_mtu: found.active_mtu.bytes(),
        addresses: addresses.collect(),
        capabilities: None,
        send_times: None,
        towpath: None,
        refusal: None,
    };
    match &found.usable {
        Ok((caps, limits)) => port.judge(caps, *limits),
        Err(error) => port.refusal = Some(chain(error)),
    }
    port
}
