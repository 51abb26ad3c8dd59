//! Which device, port and address is meant.

/// A device by name, one of its ports, and one of the addresses (GIDs) of that port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) device: Option<String>,
    pub(crate) port: u8,
    pub(crate) gid_index: Option<u32>,
}

impl Default for Target {
    fn default() -> Self {
        Self { device: None, port: 1, gid_index: None }
    }
}

impl Target {
    /// The first device, its port 1, and the first address that suits RoCEv2: IPv4 where there is
    /// one, else IPv6.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The device of this name (`-d` of perftest).
    #[must_use]
    pub fn device(mut self, name: &str) -> Self {
        self.device = Some(name.to_owned());
        self
    }

    /// This port, from 1 (`-i` of perftest). Default 1.
    #[must_use]
    pub fn port(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// The address at this index of the port's table (`-x` of perftest).
    #[must_use]
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid_index = Some(index);
        self
    }
}
