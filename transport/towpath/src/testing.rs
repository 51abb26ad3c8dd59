//! Bad networks for your own tests.
//!
//! [`faulty_udp`] is the default device behind a link that loses, repeats, reorders, corrupts and
//! delays packets as a [`FaultPlan`] says. The plan can be changed while the test runs, and the
//! choices come from one seed.

pub use towpath_device_roce::udp::UdpLink;
pub use towpath_device_roce::{RoceConfig, RoceDevice};
pub use towpath_sim::{Burst, FaultControl, FaultCounters, FaultLink, FaultPlan};

use towpath_transport::{EndpointError, UdpConfig};

/// The default device, with the faults that `control` says to what it sends. For
/// [`EndpointHandle::spawn`](crate::EndpointHandle::spawn) and
/// [`Endpoint::new`](crate::Endpoint::new).
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had.
pub fn faulty_udp(
    udp: UdpConfig,
    seed: u64,
    control: &FaultControl,
) -> Result<RoceDevice<FaultLink<UdpLink>>, EndpointError> {
    let link = FaultLink::new(UdpLink::bind(udp)?, seed, control.clone());
    Ok(RoceDevice::new(link, RoceConfig::default().seed(seed)))
}
