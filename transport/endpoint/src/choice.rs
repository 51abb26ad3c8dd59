//! Which device an endpoint is on, by the names that tools take.

use crate::icrc::Icrc;
use std::fmt;
use std::str::FromStr;
use towpath_device_verbs::Target;

/// How the userspace NIC is called.
const ROCE: &str = "roce";

/// How the devices of libibverbs are called; a colon and one of their names may follow.
const VERBS: &str = "verbs";

/// A device as it is named on a command line or in a file of settings: `roce`, `verbs` for the
/// first device of libibverbs, `verbs:NAME` for the one of that name, or just its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// RoCEv2 in userspace over UDP sockets.
    #[default]
    Roce,
    /// A device of libibverbs: the first, or that of the name.
    Verbs(Option<String>),
}

/// A name that no device can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no device: use {ROCE} (in userspace), {VERBS} (the first RDMA device), or a name \
     that `ibv_devices` lists, such as mlx5_0"
)]
pub struct DeviceNameError(String);

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        if text == ROCE {
            return Ok(Self::Roce);
        }
        if text == VERBS {
            return Ok(Self::Verbs(None));
        }
        let name = text.strip_prefix(VERBS).and_then(|rest| rest.strip_prefix(':'));
        let name = name.unwrap_or(text);
        // The kernel's own rule for the names of devices, near enough: what it names, we take.
        let sound = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || !name.chars().all(sound) {
            return Err(DeviceNameError(text.to_owned()));
        }
        Ok(Self::Verbs(Some(name.to_owned())))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Roce => f.write_str(ROCE),
            Self::Verbs(None) => f.write_str(VERBS),
            Self::Verbs(Some(name)) if name == ROCE || name == VERBS => write!(f, "{VERBS}:{name}"),
            Self::Verbs(Some(name)) => f.write_str(name),
        }
    }
}

/// A device, its port and its address.
///
/// The two kinds of devices are two types, so whoever is generic over devices asks
/// [`target`](Self::target) once: `None` is [`roce_udp`](crate::roce_udp), anything else goes to
/// [`VerbsDevice::open`](crate::VerbsDevice::open), which says how to get the feature in a build
/// that lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Which device.
    pub name: DeviceName,
    /// Its port, from 1. The userspace NIC has one, and does not look.
    pub port: u8,
    /// The index of its address in the port's table; `None` for the first that suits. The
    /// userspace NIC is told its address otherwise, and does not look.
    pub gid_index: Option<u32>,
    /// There are RDMA NICs, or the kernel's driver, among the peers of the userspace NIC. It then
    /// takes UDP port 4791, and sends over IPv4 without the kernel's segmentation.
    pub foreign_peers: bool,
    /// When packets of the userspace NIC carry an ICRC, for
    /// [`EndpointConfig::icrc`](crate::EndpointConfig::icrc).
    pub icrc: Icrc,
}

impl Default for DeviceChoice {
    fn default() -> Self {
        let (name, icrc) = (DeviceName::Roce, Icrc::default());
        Self { name, port: 1, gid_index: None, foreign_peers: false, icrc }
    }
}

impl DeviceChoice {
    /// What to open with libibverbs; `None` for the userspace NIC.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let DeviceName::Verbs(name) = &self.name else { return None };
        let target = name.iter().fold(Target::new(), |target, name| target.device(name));
        let target = target.port(self.port);
        Some(self.gid_index.iter().fold(target, |target, &index| target.gid_index(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_devices_and_come_back_as_they_were_meant() {
        let verbs = |name: &str| DeviceName::Verbs(Some(name.to_owned()));
        for (text, wanted, shown) in [
            ("roce", DeviceName::Roce, "roce"),
            ("verbs", DeviceName::Verbs(None), "verbs"),
            ("rxe0", verbs("rxe0"), "rxe0"),
            ("verbs:mlx5_0", verbs("mlx5_0"), "mlx5_0"),
            ("verbs:roce", verbs("roce"), "verbs:roce"),
        ] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!(name, wanted);
            assert_eq!(name.to_string(), shown);
            assert_eq!(shown.parse(), Ok(name));
        }
        for text in ["", "verbs:", "a b", "../mem", "rxe0:1"] {
            let error = text.parse::<DeviceName>().unwrap_err();
            assert!(error.to_string().contains("ibv_devices"), "{error}");
        }
    }

    #[test]
    fn only_the_devices_of_libibverbs_have_a_target() {
        assert_eq!(DeviceChoice::default().target(), None);
        let name = DeviceName::Verbs(Some("rxe0".to_owned()));
        let choice = DeviceChoice { name, port: 2, gid_index: Some(3), ..DeviceChoice::default() };
        assert_eq!(choice.target(), Some(Target::new().device("rxe0").port(2).gid_index(3)));
    }
}
