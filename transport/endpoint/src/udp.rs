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
    let link = UdpLink::bind(udp)?;
    let qps = (config.links_max * (config.qp_paths() + 1)) as u32;
    Ok(RoceDevice::new(link, RoceConfig::default().seed(config.seed).qp_max(qps.max(64))))
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
