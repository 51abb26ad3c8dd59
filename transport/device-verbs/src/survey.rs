//! What a driver says of a device: more than capabilities, for people.

use crate::error::OpenError;
use crate::target::Target;
use std::net::IpAddr;
use towpath_verbs::{DeviceCaps, Mtu, QueueLimits};

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// What the driver calls it (`hca_id` of ibv_devinfo).
    pub name: String,
    /// The version of its firmware; empty where it has none.
    pub firmware: String,
    /// Its number among all devices of the world.
    pub node_guid: u64,
    /// Its maker.
    pub vendor_id: u32,
    /// Its make.
    pub vendor_part_id: u32,
    /// The version of its hardware.
    pub hw_ver: u32,
    /// How much of everything it has.
    pub limits: Limits,
    /// The clock that its completions can carry, if any.
    pub clock: Option<DeviceClock>,
    /// Its ports, from 1.
    pub ports: Vec<Port>,
}

/// How much a device has of what is made on it (`ibv_device_attr`, in its words).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the words are those of ibv_query_device")]
pub struct Limits {
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mr_size: u64,
    pub max_pd: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_qp_rd_atom: u32,
}

/// A device's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClock {
    /// The bits of its count that count.
    pub mask: u64,
    /// Counts in a millisecond.
    pub khz: u64,
}

/// One port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// It carries packets.
    pub active: bool,
    /// It is Ethernet; else RoCE is not to be had.
    pub ethernet: bool,
    /// The largest packets that it could carry.
    pub max_mtu: Mtu,
    /// And those that its network interface lets it.
    pub active_mtu: Mtu,
    /// Bytes of the longest message.
    pub max_msg_sz: u32,
    /// Its addresses.
    pub gids: Vec<Gid>,
    /// What the device can do for us at this port, or why it cannot be used there.
    pub usable: Result<(DeviceCaps, QueueLimits), OpenError>,
}

/// An entry of a port's table of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gid {
    /// Its index.
    pub index: u32,
    /// The IP address that it stands for.
    pub ip: IpAddr,
    /// Packets from it are RoCEv2 (rather than version 1).
    pub is_roce_v2: bool,
}

/// What the driver says of a device and its ports. A port that is down does not fail this: it is
/// told of.
///
/// # Errors
/// [`OpenError::NotBuilt`] without the feature `verbs`; [`OpenError::NoSuchDevice`],
/// [`OpenError::Refused`], [`OpenError::Query`].
pub fn survey(name: &str) -> Result<Survey, OpenError> {
    #[cfg(feature = "verbs")]
    return found::survey(&Target::new().device(name));
    #[cfg(not(feature = "verbs"))]
    {
        let _ = Target::new().device(name);
        Err(OpenError::NotBuilt)
    }
}

#[cfg(feature = "verbs")]
mod found {
    use super::{DeviceClock, Gid, OpenError, Port, Survey, Target};
    use crate::{VerbsDevice, caps, gid, sys};
    use towpath_verbs::Device;

    pub(super) fn survey(target: &Target) -> Result<Survey, OpenError> {
        let context = sys::Context::open(target.device.as_deref())?;
        let failed = |errno| caps::query(&context, target.port, errno);
        let info = context.device_info().map_err(failed)?;
        let clock = sys::clock(&context).map(|raw| DeviceClock { mask: raw.mask, khz: raw.khz });
        let ports = (1..=info.ports).map(|number| port(&context, number, target));
        Ok(Survey {
            name: context.name().to_owned(),
            firmware: info.firmware.clone(),
            node_guid: info.node_guid,
            vendor_id: info.vendor_id,
            vendor_part_id: info.vendor_part_id,
            hw_ver: info.hw_ver,
            limits: info.limits,
            clock,
            ports: ports.collect::<Result<_, _>>()?,
        })
    }

    fn port(context: &sys::Context, number: u8, target: &Target) -> Result<Port, OpenError> {
        let failed = |errno| caps::query(context, number, errno);
        let info = context.port_info(number).map_err(failed)?;
        let gids = (0..info.gid_entries).filter_map(|index| {
            let ip = gid::to_ip(context.gid(number, index)?)?;
            let is_roce_v2 = context.gid_type(number, index) == sys::GidType::RoceV2;
            Some(Gid { index, ip, is_roce_v2 })
        });
        let opened = VerbsDevice::open(&target.clone().port(number));
        Ok(Port {
            number,
            active: info.active,
            ethernet: info.ethernet,
            max_mtu: caps::mtu(info.max_mtu),
            active_mtu: caps::mtu(info.active_mtu),
            max_msg_sz: info.max_msg_sz,
            gids: gids.collect(),
            usable: opened.map(|device| (*device.caps(), device.queue_limits())),
        })
    }
}
