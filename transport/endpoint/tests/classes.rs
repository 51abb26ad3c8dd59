//! Classes of links: what both ends make of them, and what the packets bear.

mod common;

use common::{LOOPBACK, Node, Pair, any_port, drive};
use std::net::Ipv6Addr;
use towpath_proto::Side;
use towpath_transport::{
    ChannelId, Class, ConnectError, Endpoint, EndpointConfig, Event, Fallback, LinkError, LinkId,
    Nanos, RoceUdp, SendOptions, UdpConfig,
};

fn up(event: &Event) -> Option<(LinkId, Class)> {
    match event {
        Event::Connected { link, peer, .. } | Event::Accepted { link, peer } => {
            Some((*link, peer.class))
        }
        _ => None,
    }
}

fn opened(event: &Event) -> Option<(LinkId, ChannelId)> {
    match event {
        Event::ChannelOpened { link, channel, .. } => Some((*link, *channel)),
        _ => None,
    }
}

/// Connects and opens a channel; says which.
fn join(client: &mut Node, server: &mut Node, class: Class) -> (LinkId, ChannelId, LinkId) {
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    client.endpoint.connect_as(addr, class).expect("room");
    let (ours, theirs) = drive(client, server, |client, server| {
        let waits = |node: &Node| node.events.iter().any(|event| up(event).is_some());
        (waits(client) && waits(server)).then(|| (client.take(up), server.take(up)))
    });
    let ((link, ours), (at_server, theirs)) = (ours.expect("up"), theirs.expect("up"));
    assert_eq!((ours, theirs), (class, class));
    client.endpoint.open_channel(link, true).expect("room");
    let (_, channel) = drive(client, server, |client, _| client.take(opened));
    (link, channel, at_server)
}

fn send(client: &mut Node, (link, channel): (LinkId, ChannelId), token: u64, len: usize) {
    let buf = client.endpoint.copy(&common::pattern(len, token)).expect("a buffer");
    let options = SendOptions::new().token(token);
    client.endpoint.send(link, channel, buf, options).expect("room");
}

#[test]
fn each_class_has_links_of_its_own_and_its_packets_bear_its_dscp() {
    let lone = || EndpointConfig::new().paths(1).fallback(Fallback::None);
    let server = lone().dscp(Class::Copper, 8);
    let (mut client, mut server) = (Node::new(lone()), Node::new(server));
    let mut queue_pairs = Vec::new();
    for (class, theirs) in [(Class::Gold, 46), (Class::Silver, 0), (Class::Copper, 8)] {
        let (link, channel, at_server) = join(&mut client, &mut server, class);
        send(&mut client, (link, channel), 1, 200_000);
        drive(&mut client, &mut server, |client, _| client.take_sent(1));
        let ours = client.endpoint.class_of(link).expect("it is up");
        assert_eq!((ours.class, ours.dscp), (class, class.dscp_default()));
        assert_eq!((ours.dscp_of_peer, ours.dscp_changed), (theirs, 0));
        let seen = server.endpoint.class_of(at_server).expect("it is up");
        assert_eq!((seen.dscp, seen.dscp_of_peer), (theirs, class.dscp_default()));
        assert_eq!((seen.dscp_changed, seen.dscp_seen), (0, None), "{class}");
        queue_pairs.extend(client.endpoint.paths(link).map(|path| path.qp_num));
    }
    queue_pairs.dedup();
    assert_eq!(queue_pairs.len(), 3, "{queue_pairs:?}");
}

/// Two ends whose HELLOs are handed over by hand.
fn by_hand(
    [one, two]: [&mut Endpoint<RoceUdp>; 2],
    class: Class,
    told: u8,
) -> Result<[LinkId; 2], LinkError> {
    let (mut ours, mine) = one.offer_as(class)?;
    let (theirs, other) = two.offer_as(class)?;
    ours.dscp = told;
    Ok([one.establish(mine, &theirs, Side::Client)?, two.establish(other, &ours, Side::Server)?])
}

#[test]
fn what_comes_in_under_another_dscp_is_counted_and_taken_on_ipv4_and_ipv6() {
    let ips = [LOOPBACK.into(), Ipv6Addr::LOCALHOST.into()];
    for ip in ips {
        let end = || Endpoint::udp(UdpConfig::new(ip), EndpointConfig::new());
        let (Ok(mut one), Ok(mut two)) = (end(), end()) else {
            println!("skipped: this machine has no loopback at {ip}");
            continue;
        };
        // What is told is not what is sent, as though something between rewrote it.
        let links = by_hand([&mut one, &mut two], Class::Gold, 10).expect("they fit");
        let channel = one.open_channel(links[0], true).expect("room");
        let mut received = 0;
        for turn in 0.. {
            assert!(turn < 500_000, "nothing came");
            let mut busy = one.turn(|one, event| {
                if let Event::ChannelOpened { .. } = event {
                    let buf = one.copy(b"marked").expect("a buffer");
                    one.send(links[0], channel, buf, SendOptions::new()).expect("room");
                }
            });
            busy |= two.turn(|_, event| received += u32::from(matches!(event, Event::Message(_))));
            if received == 1 {
                break;
            }
            if !busy {
                one.wait(Nanos::from_micros(100));
            }
        }
        let report = two.class_of(links[1]).expect("it is up");
        assert_eq!((report.dscp_of_peer, report.dscp_seen), (10, Some(46)), "{ip}");
        assert!(report.dscp_changed >= 2, "the OPEN and the message: {report:?}");
        let at_one = one.class_of(links[0]).expect("it is up");
        assert_eq!(at_one.dscp_changed, 0, "the other way the truth was told");
    }
}

#[test]
fn ends_that_speak_of_different_classes_do_not_join() {
    let end = || common::endpoint(EndpointConfig::new());
    let (mut one, mut two) = (end(), end());
    let (_, pending) = one.offer_as(Class::Gold).expect("room");
    let (hello, _kept) = two.offer().expect("room");
    let error = one.establish(pending, &hello, Side::Client).expect_err("they differ");
    assert_eq!(error, LinkError::Class { theirs: Class::Silver });
    assert_eq!(one.links().count(), 0);
}

fn class_refused(event: &Event) -> Option<Class> {
    match event {
        Event::ConnectFailed { error: ConnectError::Class { class, .. }, .. } => Some(*class),
        Event::ConnectFailed { error, .. } => panic!("{error}"),
        _ => None,
    }
}

#[test]
fn a_class_that_is_not_taken_is_refused_by_name() {
    let served = EndpointConfig::new().take_classes(&[Class::Silver, Class::Gold]);
    let (mut client, mut server) = (Node::new(EndpointConfig::new()), Node::new(served));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    client.endpoint.connect_as(addr, Class::Copper).expect("room");
    let refused = drive(&mut client, &mut server, |client, _| client.take(class_refused));
    assert_eq!(refused, Class::Copper);
    join(&mut client, &mut server, Class::Gold);
}

#[test]
fn a_class_whose_reader_stalls_holds_none_of_the_buffers_of_another() {
    let config = || EndpointConfig::new().receives_ready(64).quota_chunks(64).credit_total(64);
    let (mut client, mut server) = (Node::new(config()), Node::new(config()));
    let copper = join(&mut client, &mut server, Class::Copper);
    let gold = join(&mut client, &mut server, Class::Gold);
    // Nobody reads these.
    let len = 4096;
    (0..200).for_each(|token| send(&mut client, (copper.0, copper.1), token, len));
    let mut held = Vec::new();
    drive(&mut client, &mut server, |_, server| {
        held.extend(server.take_message());
        (held.len() == 64).then_some(())
    });
    for token in 1000..1200 {
        send(&mut client, (gold.0, gold.1), token, len);
        let message = drive(&mut client, &mut server, |_, server| server.take_message());
        assert_eq!(message.link(), gold.2, "message {token}");
        server.endpoint.release(message);
    }
    assert_eq!(server.endpoint.device().counters().no_recv_wqe, 0);
    assert_eq!(held.len(), 64, "what credit allowed");
}

#[test]
fn a_pair_without_a_word_of_class_is_silver() {
    let pair = Pair::new(EndpointConfig::new());
    let report = pair.client.endpoint.class_of(pair.client_link).expect("it is up");
    assert_eq!((report.class, report.dscp), (Class::Silver, 0));
}
