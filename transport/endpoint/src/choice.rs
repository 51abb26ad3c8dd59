//! Which device an endpoint is on, by the names that tools take.

use crate::icrc::Icrc;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use towpath_device_roce::udp::{NICS_MAX, UdpConfig};
use towpath_device_verbs::Target;

/// How the userspace NIC is called.
const ROCE: &str = "roce";

/// The same, where addresses follow.
const ROCE_AT: &str = "roce:";

/// How the devices of libibverbs are called; a colon and one of their names may follow.
const VERBS: &str = "verbs";

/// A device as it is named on a command line or in a file of settings: `roce`, `verbs` for the
/// first device of libibverbs, `verbs:NAME` for the one of that name, or just its name. The
/// userspace one may have several NICs, whose local addresses follow: `roce:10.0.0.1,10.1.0.1`, or
/// `roce:10.0.0.1,roce:10.1.0.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// RoCEv2 in userspace over UDP sockets: on these local addresses, or on one that is told
    /// otherwise.
    Roce(Vec<IpAddr>),
    /// A device of libibverbs: the first, or that of the name.
    Verbs(Option<String>),
}

impl Default for DeviceName {
    fn default() -> Self {
        Self::Roce(Vec::new())
    }
}

/// A name that no device can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// Nothing has such a name.
    #[error(
        "`{0}` is no device: use {ROCE} (in userspace), {VERBS} (the first RDMA device), or a name \
         that `ibv_devices` lists, such as mlx5_0"
    )]
    Unknown(String),
    /// What follows `roce:` is no list of local addresses.
    #[error(
        "`{0}` names no NICs: write their local addresses as in {ROCE}:10.0.0.1,10.1.0.1, from 1 \
         to {NICS_MAX} different ones, all IPv4 or all IPv6"
    )]
    Nics(String),
    /// Several devices of libibverbs.
    #[error(
        "`{0}` names several devices, and links use one RDMA device: name one of them, or use \
         {ROCE} with the local addresses of several NICs, as in {ROCE}:10.0.0.1,10.1.0.1"
    )]
    Several(String),
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        if text == ROCE {
            return Ok(Self::default());
        }
        if let Some(addrs) = text.strip_prefix(ROCE_AT) {
            return nics(addrs).map(Self::Roce).ok_or_else(|| DeviceNameError::Nics(text.into()));
        }
        if text.contains(',') {
            return Err(DeviceNameError::Several(text.to_owned()));
        }
        if text == VERBS {
            return Ok(Self::Verbs(None));
        }
        let name = text.strip_prefix(VERBS).and_then(|rest| rest.strip_prefix(':'));
        let name = name.unwrap_or(text);
        // The kernel's own rule for the names of devices, near enough: what it names, we take.
        let sound = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || !name.chars().all(sound) {
            return Err(DeviceNameError::Unknown(text.to_owned()));
        }
        Ok(Self::Verbs(Some(name.to_owned())))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Roce(nics) if nics.is_empty() => f.write_str(ROCE),
            Self::Roce(nics) => {
                let addrs: Vec<_> = nics.iter().map(IpAddr::to_string).collect();
                write!(f, "{ROCE_AT}{}", addrs.join(","))
            }
            Self::Verbs(None) => f.write_str(VERBS),
            Self::Verbs(Some(name)) if name == ROCE || name == VERBS => write!(f, "{VERBS}:{name}"),
            Self::Verbs(Some(name)) => f.write_str(name),
        }
    }
}

/// The addresses of a list. Each may repeat the name of the device in front.
fn nics(list: &str) -> Option<Vec<IpAddr>> {
    let mut nics: Vec<IpAddr> = Vec::new();
    for addr in list.split(',') {
        let addr = addr.trim();
        let addr: IpAddr = addr.strip_prefix(ROCE_AT).unwrap_or(addr).parse().ok()?;
        let is_fit = |other: &IpAddr| *other != addr && other.is_ipv4() == addr.is_ipv4();
        if nics.len() == NICS_MAX || !nics.iter().all(is_fit) {
            return None;
        }
        nics.push(addr);
    }
    Some(nics)
}

impl DeviceName {
    /// Whether it is the userspace NIC.
    #[must_use]
    pub fn is_roce(&self) -> bool {
        matches!(self, Self::Roce(_))
    }

    /// The sockets of the userspace NIC: on the addresses of its name, or on `ip` if that names
    /// none.
    #[must_use]
    pub fn udp(&self, ip: IpAddr) -> UdpConfig {
        let first = UdpConfig::new(self.ip().unwrap_or(ip));
        self.nics().iter().skip(1).fold(first, |udp, &nic| udp.nic(nic))
    }

    /// The first local address that its name tells.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.nics().first().copied()
    }

    fn nics(&self) -> &[IpAddr] {
        match self {
            Self::Roce(nics) => nics,
            Self::Verbs(_) => &[],
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
        let (name, icrc) = (DeviceName::default(), Icrc::default());
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
        let nics = |nics: &[&str]| {
            DeviceName::Roce(nics.iter().map(|nic| nic.parse().expect("an address")).collect())
        };
        for (text, wanted, shown) in [
            ("roce", DeviceName::default(), "roce"),
            ("roce:10.0.0.1", nics(&["10.0.0.1"]), "roce:10.0.0.1"),
            ("roce:10.0.0.1,10.1.0.1", nics(&["10.0.0.1", "10.1.0.1"]), "roce:10.0.0.1,10.1.0.1"),
            ("roce:fd00::1, roce:fd01::1", nics(&["fd00::1", "fd01::1"]), "roce:fd00::1,fd01::1"),
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
        let five = "roce:10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5";
        for text in ["roce:", "roce:eth0", "roce:10.0.0.1,10.0.0.1", "roce:10.0.0.1,::1", five] {
            let error = text.parse::<DeviceName>().unwrap_err();
            assert!(error.to_string().contains("as in roce:10.0.0.1,10.1.0.1"), "{error}");
        }
        let error = "mlx5_0,mlx5_1".parse::<DeviceName>().unwrap_err();
        assert!(error.to_string().contains("name one of them"), "{error}");
    }

    #[test]
    fn only_the_devices_of_libibverbs_have_a_target() {
        assert_eq!(DeviceChoice::default().target(), None);
        let name = DeviceName::Verbs(Some("rxe0".to_owned()));
        let choice = DeviceChoice { name, port: 2, gid_index: Some(3), ..DeviceChoice::default() };
        assert_eq!(choice.target(), Some(Target::new().device("rxe0").port(2).gid_index(3)));
    }
}
