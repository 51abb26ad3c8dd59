//! Links between hosts whose networks carry packets of different lengths, without any setting.
//!
//! The hosts are network namespaces, which not everybody may make: see `towpath_tests::wires`.

mod talk;

use talk::{Party, ask, ask_on, chain};
use towpath_device_roce::udp::{UdpConfig, UdpError, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_tests::namespace::within;
use towpath_tests::wires::{End, Host, skipped, wire};
use towpath_transport::Mtu;
use towpath_verbs::Device;

/// Two hosts with a wire between them, and the MTU of each end.
fn pair(near_mtu: u32, far_mtu: u32) -> Option<(Host, Host)> {
    let made = || {
        let (near, far) = (Host::new()?, Host::new()?);
        let ends = (["10.75.0.1/24", "fd75::1/64"], ["10.75.0.2/24", "fd75::2/64"]);
        let end = |host, addrs, mtu| End { host, name: "wire0", addrs, mtu };
        wire(&end(&near, &ends.0, near_mtu), &end(&far, &ends.1, far_mtu))?;
        Ok((near, far))
    };
    skipped(made())
}

#[test]
fn long_messages_get_through_ordinary_ethernet_without_any_setting() {
    let Some((near, far)) = pair(1500, 1500) else { return };
    for (client, server) in [("10.75.0.1", "10.75.0.2"), ("fd75::1", "fd75::2")] {
        let (client, server) = (Party::new(&near, client), Party::new(&far, server));
        assert_eq!(ask(&client, &server), Ok((Mtu::Mtu1024, Mtu::Mtu1024)));
    }
}

#[test]
fn jumbo_frames_carry_the_largest_mtu_and_the_smaller_end_decides() {
    let Some((near, far)) = pair(9000, 9000) else { return };
    let parties = || (Party::new(&near, "10.75.0.1"), Party::new(&far, "10.75.0.2"));
    let (client, server) = parties();
    assert_eq!(ask(&client, &server), Ok((Mtu::Mtu4096, Mtu::Mtu4096)));
    let (client, server) = parties();
    let mixed = ask(&client, &server.mtu(Mtu::Mtu512));
    assert_eq!(mixed, Ok((Mtu::Mtu512, Mtu::Mtu512)));
    let (client, server) = parties();
    let mixed = ask(&client.mtu(Mtu::Mtu2048), &server);
    assert_eq!(mixed, Ok((Mtu::Mtu2048, Mtu::Mtu2048)));
}

#[test]
fn hosts_whose_interfaces_differ_use_what_both_carry() {
    for mtus in [(9000, 1500), (1500, 9000)] {
        let Some((near, far)) = pair(mtus.0, mtus.1) else { return };
        let (client, server) = (Party::new(&near, "10.75.0.1"), Party::new(&far, "10.75.0.2"));
        assert_eq!(ask(&client, &server), Ok((Mtu::Mtu1024, Mtu::Mtu1024)), "{mtus:?}");
    }
}

#[test]
fn the_headers_of_ip_count_so_that_each_mtu_begins_where_its_packets_fit() {
    let Some((host, _far)) = pair(9000, 9000) else { return };
    // IPv6 first, for it goes away below 1,280 bytes.
    for (ip, of_ip, least) in [("fd75::1", 40, Mtu::Mtu2048), ("10.75.0.1", 20, Mtu::Mtu256)] {
        for mtu in Mtu::ALL.into_iter().rev().filter(|&mtu| mtu >= least) {
            // With UDP's 8, and what RoCE puts around a payload at most.
            let fits = mtu.bytes() + of_ip + 8 + 39;
            let smaller = Mtu::at_most(mtu.bytes() - 1).ok_or(fits - 1);
            for (bytes, found) in [(fits, Ok(mtu)), (fits - 1, smaller)] {
                host.ip(&format!("link set wire0 mtu {bytes}")).expect("another MTU");
                let most = within(&host.file(), || port_mtu(ip)).expect("entered");
                assert_eq!(most, found, "{ip}, {bytes} bytes");
            }
        }
    }
}

/// The largest MTU of the device on an address; or what its interface carries, where that is too
/// little for any.
fn port_mtu(ip: &str) -> Result<Mtu, u32> {
    match UdpLink::bind(UdpConfig::new(ip.parse().expect("an address"))) {
        Ok(link) => Ok(RoceDevice::new(link, RoceConfig::default()).caps().mtu_max),
        Err(UdpError::InterfaceMtu { bytes, .. }) => Err(bytes),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_mtu_that_the_interface_does_not_carry_is_refused_at_the_start_by_its_name() {
    let Some((near, _far)) = pair(1500, 1500) else { return };
    let party = Party::new(&near, "10.75.0.1").mtu(Mtu::Mtu2048);
    let made = within(&near.file(), || party.endpoint().map(|_| ())).expect("entered");
    let error = made.expect_err("2,048 bytes do not fit");
    for part in ["wire0", "1500", "2048", "1024", "--mtu"] {
        assert!(error.contains(part), "no {part} in: {error}");
    }
    // Expect: an interface that carries no RDMA packet at all is named, too.
    near.ip("link set wire0 mtu 300").expect("a smaller one");
    let link = within(&near.file(), || UdpLink::bind(UdpConfig::new(party.ip))).expect("entered");
    let error = chain(&link.expect_err("256 bytes do not fit"));
    assert!(error.contains("wire0") && error.contains("300"), "{error}");
}

#[test]
fn what_the_route_carries_is_kept_to_and_one_who_asks_for_more_is_told() {
    let Some((near, far)) = pair(9000, 9000) else { return };
    near.ip("route add 10.75.0.2/32 dev wire0 mtu 1400").expect("a route");
    let parties = || (Party::new(&near, "10.75.0.1"), Party::new(&far, "10.75.0.2"));
    let (client, server) = parties();
    assert_eq!(ask(&client, &server), Ok((Mtu::Mtu1024, Mtu::Mtu1024)));
    let (client, server) = parties();
    // Expect: who answers keeps to its route, whatever both were set to.
    let answered = ask(&server.mtu(Mtu::Mtu4096), &client.mtu(Mtu::Mtu4096));
    assert_eq!(answered, Ok((Mtu::Mtu1024, Mtu::Mtu1024)));
    let (client, server) = parties();
    let error = ask(&client.mtu(Mtu::Mtu4096), &server).expect_err("not over that route");
    for part in ["10.75.0.2", "wire0", "1400", "4096", "1024", "--mtu"] {
        assert!(error.contains(part), "no {part} in: {error}");
    }
}

/// A router between two hosts with jumbo frames, which carries less to the second one. The first
/// hears what the router says of that, or not.
fn routed(says_so: bool) -> Option<[Host; 3]> {
    let made = || {
        let hosts = [Host::new()?, Host::new()?, Host::new()?];
        let [near, router, far] = &hosts;
        let end = |host, name, addrs, mtu| End { host, name, addrs, mtu };
        wire(
            &end(near, "wire0", &["10.75.1.1/24"], 9000),
            &end(router, "near0", &["10.75.1.9/24"], 9000),
        )?;
        wire(
            &end(far, "wire0", &["10.75.2.1/24"], 9000),
            &end(router, "far0", &["10.75.2.9/24"], 1500),
        )?;
        // A host believes no router about a route whose MTU is locked: as if it heard nothing.
        let lock = if says_so { "" } else { "mtu lock 9000" };
        near.ip(&format!("route add default via 10.75.1.9 {lock}"))?;
        far.ip("route add default via 10.75.2.9")?;
        let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        let forwards = within(&router.file(), forward).map_err(|error| error.to_string())?;
        forwards.map_err(|error| format!("no forwarding: {error}"))?;
        Ok(hosts)
    };
    skipped(made())
}

#[test]
fn a_router_that_carries_less_is_found_out_whether_it_says_so_or_not() {
    use Mtu::{Mtu1024, Mtu4096};
    for says_so in [true, false] {
        let Some([near, _router, far]) = routed(says_so) else { return };
        let (client, server) = (Party::new(&near, "10.75.1.1"), Party::new(&far, "10.75.2.1"));
        let talk = ask_on(&client, &server, || (), Some(Mtu1024)).expect("it goes on");
        assert_eq!((talk.near, talk.far), (Mtu4096, Mtu4096), "says so: {says_so}");
        assert_eq!(talk.told, [(Mtu4096, Mtu1024)], "says so: {says_so}");
    }
}

#[test]
fn interfaces_that_shrink_under_a_running_link_are_followed() {
    let sides = [(1280, 1280), (1280, 9000), (9000, 1280)];
    for ((near_mtu, far_mtu), ips) in sides.into_iter().zip([
        ("10.75.0.1", "10.75.0.2"),
        ("fd75::1", "fd75::2"),
        ("10.75.0.1", "10.75.0.2"),
    ]) {
        let Some((near, far)) = pair(9000, 9000) else { return };
        let shrink = || {
            near.ip(&format!("link set wire0 mtu {near_mtu}")).expect("another MTU");
            far.ip(&format!("link set wire0 mtu {far_mtu}")).expect("another MTU");
        };
        let (client, server) = (Party::new(&near, ips.0), Party::new(&far, ips.1));
        // A virtual Ethernet takes in runs of packets that are longer than its MTU, so the client
        // finds out about its own interface alone.
        let wanted = (near_mtu == 1280).then_some(Mtu::Mtu1024);
        let talk = ask_on(&client, &server, shrink, wanted).expect("it goes on");
        assert_eq!((talk.near, talk.far), (Mtu::Mtu4096, Mtu::Mtu4096));
    }
}

#[test]
fn a_path_that_shrinks_in_its_middle_is_followed() {
    for says_so in [true, false] {
        let Some([near, router, far]) = routed(says_so) else { return };
        for (host, name) in [(&router, "far0"), (&far, "wire0")] {
            host.ip(&format!("link set {name} mtu 9000")).expect("another MTU");
        }
        let shrink = || router.ip("link set far0 mtu 1280").map(drop).expect("another MTU");
        let (client, server) = (Party::new(&near, "10.75.1.1"), Party::new(&far, "10.75.2.1"));
        let talk = ask_on(&client, &server, shrink, Some(Mtu::Mtu1024)).expect("it goes on");
        assert_eq!((talk.near, talk.far), (Mtu::Mtu4096, Mtu::Mtu4096), "says so: {says_so}");
    }
}

#[test]
fn what_the_host_is_told_of_the_way_later_shortens_no_packets_that_get_through() {
    let Some((near, far)) = pair(9000, 9000) else { return };
    // As after a message of a router, or of one who says that he is one.
    let told = || near.ip("route add 10.75.0.2/32 dev wire0 mtu 1400").map(drop).expect("a route");
    let (client, server) = (Party::new(&near, "10.75.0.1"), Party::new(&far, "10.75.0.2"));
    let talk = ask_on(&client, &server, told, None);
    assert_eq!(talk.map(|talk| (talk.near, talk.told)), Ok((Mtu::Mtu4096, vec![])));
}
