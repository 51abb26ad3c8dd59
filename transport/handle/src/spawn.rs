//! On which devices handles run.

use crate::EndpointHandle;
use towpath_transport::{
    EndpointConfig, EndpointError, EngineOptions, UdpConfig, engine_udp, roce_udp,
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
}
