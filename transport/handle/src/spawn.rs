//! On which devices handles run.

use crate::EndpointHandle;
use towpath_transport::{
    DeviceChoice, EndpointConfig, EndpointError, EngineOptions, Icrc, UdpConfig, VerbsDevice,
    engine_udp, roce_udp,
};

impl EndpointHandle {
    /// An endpoint on the default device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn_udp(udp: UdpConfig, config: EndpointConfig) -> Result<Self, EndpointError> {
        let of_device = config.clone();
        Self::spawn(move || roce_udp(udp, &of_device), config)
    }

    /// The same with a thread of the device beside, as
    /// [`Endpoint::udp_with_engine`](towpath_transport::Endpoint::udp_with_engine) has it.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn_udp_with_engine(
        udp: UdpConfig,
        config: EndpointConfig,
        engine: EngineOptions,
    ) -> Result<Self, EndpointError> {
        let of_device = config.clone();
        Self::spawn(move || engine_udp(udp, &of_device, engine), config)
    }

    /// An endpoint on the device of that choice; `udp` is for the userspace NIC.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn_on(
        choice: &DeviceChoice,
        udp: UdpConfig,
        config: EndpointConfig,
    ) -> Result<Self, EndpointError> {
        let config = match choice.icrc {
            Icrc::Always => config.icrc(Icrc::Always),
            Icrc::Auto => config,
        };
        let of_device = config.clone();
        match choice.target() {
            None => {
                let udp = udp.foreign_peers(choice.foreign_peers);
                Self::spawn(move || roce_udp(udp, &of_device), config)
            }
            Some(target) => Self::spawn(move || Ok(VerbsDevice::open(&target)?), config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_transport::DeviceName;

    #[cfg(not(feature = "verbs"))]
    #[test]
    fn without_the_feature_a_worker_says_how_to_get_it() {
        let choice = DeviceChoice { name: DeviceName::Verbs(None), ..DeviceChoice::default() };
        let udp = UdpConfig::new(std::net::Ipv4Addr::LOCALHOST.into());
        let error = EndpointHandle::spawn_on(&choice, udp, EndpointConfig::new()).err();
        let error = error.expect("there is no such device");
        assert!(error.to_string().contains("--features verbs"), "{error}");
    }
}
