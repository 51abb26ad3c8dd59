//! GIDs and IP addresses: RoCEv2 writes one as the other.

use crate::limits::GRH_BYTES;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The UDP port that RoCEv2 goes to.
pub(crate) const UDP_PORT: u16 = 4791;

/// The address that a GID stands for; none for an empty entry of the table.
pub(crate) fn to_ip(gid: [u8; 16]) -> Option<IpAddr> {
    let v6 = Ipv6Addr::from(gid);
    if v6.is_unspecified() {
        return None;
    }
    Some(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
}

/// The GID of an address.
pub(crate) fn of_ip(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Which of two addresses suits better: IPv4 first, then IPv6 that is routed.
pub(crate) fn rank(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    }
}

/// Who sent a datagram: the header in front of it is an IPv6 header, or twenty bytes of nothing
/// and an IPv4 header.
pub(crate) fn sender(grh: &[u8; GRH_BYTES]) -> Option<IpAddr> {
    if grh[0] >> 4 == 6 {
        return to_ip(*grh[8..].first_chunk()?);
    }
    let ipv4 = &grh[20..];
    (ipv4[0] == 0x45).then(|| Ipv4Addr::new(ipv4[12], ipv4[13], ipv4[14], ipv4[15]).into())
}

/// The UDP port that is meant by the source port of this index.
pub(crate) fn udp_source_port(index: u16) -> u16 {
    0xc000 | index
}

/// The flow label that makes the driver send from [that port](udp_source_port): it folds the
/// upper six bits of the label into the lower fourteen, and takes 0 as "choose one".
pub(crate) fn flow_label(index: u16) -> u32 {
    match u32::from(index) & 0x3fff {
        0 => 1 << 14 | 1,
        index => index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_its_gid_are_one() {
        for ip in ["10.0.0.1", "fd00::7", "fe80::1"].map(|ip| ip.parse().unwrap()) {
            assert_eq!(to_ip(of_ip(ip)), Some(ip));
        }
        assert_eq!(to_ip([0; 16]), None);
    }

    #[test]
    fn every_source_port_has_a_flow_label_that_is_not_zero() {
        for index in 0..1 << 14 {
            let label = flow_label(index);
            assert!(label > 0 && label < 1 << 20);
            assert_eq!((label & 0x3fff) ^ (label >> 14), u32::from(index));
        }
    }

    #[test]
    fn the_sender_stands_in_the_header() {
        let mut v4 = [0; GRH_BYTES];
        v4[20] = 0x45;
        v4[32..36].copy_from_slice(&[10, 0, 0, 9]);
        assert_eq!(sender(&v4), Some(IpAddr::from([10, 0, 0, 9])));
        let mut v6 = [0; GRH_BYTES];
        v6[0] = 0x60;
        v6[8..24].copy_from_slice(&of_ip("fd00::7".parse().unwrap()));
        assert_eq!(sender(&v6), Some("fd00::7".parse().unwrap()));
        assert_eq!(sender(&[0; GRH_BYTES]), None);
    }
}
