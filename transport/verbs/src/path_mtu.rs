//! How long a packet may be on its way to a peer.

use crate::caps::Mtu;
use core::fmt;

/// Bytes of the longest name of an interface: `IFNAMSIZ` without the zero behind it.
const NAME_BYTES_MAX: usize = 15;

/// The name of a network interface, such as `eth0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceName {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl InterfaceName {
    /// `None` when `name` is longer than the name of an interface can be (15 bytes).
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, len: name.len() as u8 })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// The longest IP packet that is carried whole: what is called the MTU of an interface or a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpMtu {
    /// Its bytes, IP header included: 1,500 on Ethernet where nobody has set another.
    pub bytes: u32,
    /// The interface of the local address; `None` where the system does not name it.
    pub interface: Option<InterfaceName>,
}

/// The largest RDMA MTU whose packets are carried whole, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The MTU.
    pub mtu: Mtu,
    /// The limit that it follows from; `None` where the device's own limit is all that is known.
    pub ip: Option<IpMtu>,
}

impl fmt::Display for PathMtu {
    /// As the object of a sentence: `IP packets of 1500 bytes at most from eth0, which is an RDMA
    /// MTU of 1024 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ip) = self.ip else { return write!(f, "an RDMA MTU of {} bytes", self.mtu) };
        write!(f, "IP packets of {} bytes at most", ip.bytes)?;
        if let Some(interface) = ip.interface {
            write!(f, " from interface {interface}")?;
        }
        write!(f, ", which is an RDMA MTU of {} bytes", self.mtu)
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_name_comes_back_as_it_went_and_one_that_is_too_long_is_none() {
        let name = |text| InterfaceName::new(text).map(|name| name.to_string());
        assert_eq!(name("eth0").as_deref(), Some("eth0"));
        assert_eq!(name("abcdefghijklmno").as_deref(), Some("abcdefghijklmno"));
        assert_eq!(name("abcdefghijklmnop"), None);
    }

    #[test]
    fn a_limit_is_told_with_its_interface_where_that_is_known() {
        let interface = InterfaceName::new("eth0");
        let of = |ip| PathMtu { mtu: Mtu::Mtu1024, ip }.to_string();
        let told = "IP packets of 1500 bytes at most from interface eth0, which is an RDMA MTU of \
                    1024 bytes";
        assert_eq!(of(Some(IpMtu { bytes: 1500, interface })), told);
        assert_eq!(of(None), "an RDMA MTU of 1024 bytes");
    }
}
