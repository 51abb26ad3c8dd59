//! The default device: RoCEv2 in userspace over UDP sockets.

use crate::config::EndpointConfig;
use crate::endpoint::Endpoint;
use crate::error::EndpointError;
use crate::handle::EndpointHandle;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};

/// A RoCEv2 NIC in userspace, over UDP sockets.
pub type RoceUdp = RoceDevice<UdpLink>;

/// A [`RoceUdp`] whose queue pair numbers differ from life to life.
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had.
pub fn roce_udp(udp: UdpConfig, config: &EndpointConfig) -> Result<RoceUdp, EndpointError> {
    Ok(on_link(UdpLink::bind(udp)?, config))
}

/// Several [`RoceUdp`]s on one port, one for each of `count` workers.
/// What comes in finds its device by the queue pair that it is for.
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had.
pub fn roce_udp_group(
    udp: UdpConfig,
    config: &EndpointConfig,
    count: usize,
) -> Result<Vec<RoceUdp>, EndpointError> {
    let links = UdpLink::bind_group(udp, count)?;
    Ok(links.into_iter().map(|link| on_link(link, config)).collect())
}

fn on_link(link: UdpLink, config: &EndpointConfig) -> RoceUdp {
    let qps = (config.links_max * (config.qp_paths_max() + 1)) as u32;
    RoceDevice::new(link, RoceConfig::default().seed(config.seed).qp_max(qps.max(64)))
}

impl EndpointHandle {
    /// A worker with an endpoint on the default device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn_udp(udp: UdpConfig, config: EndpointConfig) -> Result<Self, EndpointError> {
        let of_device = config.clone();
        Self::spawn(move || roce_udp(udp, &of_device), config)
    }
}

impl Endpoint<RoceUdp> {
    /// An endpoint on the default device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn udp(udp: UdpConfig, config: EndpointConfig) -> Result<Self, EndpointError> {
        Self::new(roce_udp(udp, &config)?, config)
    }
}
