//! Who gives way when more strangers come than there are places for.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// What strangers are told apart by: a host has one IPv4 address, and an IPv6 network of /64 to
/// itself.
fn origin(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !0 << 64).into(),
        ip => ip,
    }
}

/// Of strangers who are given oldest first: the oldest of the origin that has most of them.
///
/// So an origin that takes all places pushes out its own as soon as anybody else comes, and who has
/// as many as others do goes last. Where all have one origin the oldest goes: an honest peer is
/// done soon, and one that only holds its place is not.
pub(crate) fn first_to_go<T>(strangers: impl Iterator<Item = (IpAddr, T)>) -> Option<T> {
    let mut crowds = BTreeMap::<IpAddr, (usize, usize, T)>::new();
    for (age, (ip, stranger)) in strangers.enumerate() {
        crowds.entry(origin(ip)).or_insert((0, age, stranger)).0 += 1;
    }
    let largest = crowds.into_values().max_by_key(|&(count, age, _)| (count, usize::MAX - age));
    largest.map(|(_, _, oldest)| oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use towpath_base::Prng;

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    fn first(hosts: &[u8]) -> Option<usize> {
        let ips = hosts.iter().map(|&number| host(number));
        first_to_go(ips.zip(0..))
    }

    #[test]
    fn the_oldest_of_the_address_that_has_most_goes_first() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[1, 1, 1]), Some(0));
        assert_eq!(first(&[2, 1, 1]), Some(1));
        assert_eq!(first(&[1, 2, 2, 1]), Some(0), "of two with as many the older one");
    }

    #[test]
    fn a_network_counts_as_one_address_and_a_mapped_address_as_what_it_maps() {
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        let all = [v6("10.0.0.9"), v6("fd00::1"), v6("fd00::2"), v6("fd00:0:0:1::1")];
        assert_eq!(first_to_go(all.into_iter().zip(0..)), Some(1));
        let all = [v6("fd00::1"), v6("::ffff:10.0.0.9"), v6("10.0.0.9")];
        assert_eq!(first_to_go(all.into_iter().zip(0..)), Some(1));
    }

    #[test]
    fn one_who_floods_never_pushes_out_a_guest_from_elsewhere() {
        let seed = 5;
        let mut prng = Prng::new(seed);
        let mut present = Vec::new();
        // Three guests are slow, and one address sends thousands.
        let mut guests = vec![1u8, 2, 3];
        for round in 0..5_000 {
            if present.len() == 64 {
                let place = first(&present).expect("there are some");
                let gone = present.remove(place);
                assert_eq!(gone, 9, "seed {seed}, round {round}");
            }
            let is_guest = !guests.is_empty() && prng.below(100) == 0;
            present.push(if is_guest { guests.remove(0) } else { 9 });
        }
        assert!(guests.is_empty(), "seed {seed}");
    }
}
