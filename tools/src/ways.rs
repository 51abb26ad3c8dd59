//! The flags that say on which ways links go: paths, carriers, and what they fall back to.

use crate::device::DEVICE;
use clap::Args;
use towpath_fastpath::ClientConfig;
use towpath_transport::{CarrierRule, EndpointConfig, Fallback, PATHS_MAX};

/// Paths, carriers, and what links fall back to.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WayArgs {
    /// Paths of the link, 1 to 16, at most as many as the server allows (4 unless configured). Each
    /// is a queue pair with its own source port [default: 4, or as many as the server allows]
    #[arg(long, value_name = "N", help_heading = DEVICE,
          value_parser = clap::value_parser!(u8).range(1..=PATHS_MAX as i64))]
    pub(crate) paths: Option<u8>,
    /// What the link falls back to while no packet gets through over UDP: rc,tcp, tcp or none
    /// [default: all that the device and the server have]
    #[arg(long, value_name = "CARRIERS", help_heading = DEVICE)]
    pub(crate) fallback: Option<Fallback>,
    /// What carries links to servers in a range of addresses (uc, rc or tcp), as in
    /// 10.1.0.0/16=rc; several with commas, of which the longest prefix counts [default: uc where
    /// the device has it]
    #[arg(long, value_name = "PREFIX=CARRIER", help_heading = DEVICE, value_delimiter = ',')]
    pub(crate) carrier: Vec<CarrierRule>,
}

impl WayArgs {
    /// The endpoint with what they ask for.
    pub(crate) fn endpoint(&self, config: EndpointConfig) -> EndpointConfig {
        let paths = self.paths.map(usize::from).into_iter();
        let config = paths.fold(config, EndpointConfig::paths);
        let config = self.fallback.into_iter().fold(config, EndpointConfig::fallback);
        config.carrier_rules(&self.carrier)
    }

    /// The client with what they ask for.
    pub(crate) fn client(&self, config: ClientConfig) -> ClientConfig {
        let paths = self.paths.map(usize::from).into_iter();
        let config = paths.fold(config, ClientConfig::paths);
        let config = self.fallback.into_iter().fold(config, ClientConfig::fallback);
        config.carrier_rules(&self.carrier)
    }
}
