//! Peers that fail are on the blacklist, for a while, and others are chosen meanwhile.

mod common;

use common::{Node, Pair, any_port, drive};
use std::net::TcpListener;
use towpath_base::Nanos;
use towpath_transport::{EndpointConfig, EndpointHandle, Event, ListedFor, UdpConfig};

fn short() -> EndpointConfig {
    EndpointConfig::new().blacklist_span(Nanos::from_millis(30))
}

#[test]
fn a_peer_that_cannot_be_connected_to_is_listed_until_its_time_is_over() {
    let nobody = TcpListener::bind(any_port()).and_then(|socket| socket.local_addr());
    let nobody = nobody.expect("a free port");
    let (mut client, mut bystander) = (Node::new(short()), Node::new(short()));
    let alive = bystander.endpoint.listen(any_port()).expect("a free port");
    let list = client.endpoint.blacklist().clone();
    assert_eq!(list.first_choice(&[nobody, alive]), Some(0), "nothing is known yet");
    client.endpoint.connect(nobody).expect("room");
    drive(&mut client, &mut bystander, |client, _| {
        client.take(|event| matches!(event, Event::ConnectFailed { .. }).then_some(()))
    });
    assert_eq!(list.listings()[0].reason, ListedFor::ConnectFailed);
    assert_eq!(list.first_choice(&[nobody, alive]), Some(1));
    drive(&mut client, &mut bystander, |_, _| (!list.is_listed(nobody)).then_some(()));
    assert_eq!(list.first_choice(&[nobody, alive]), Some(0));
}

#[test]
fn a_peer_whose_link_is_lost_is_listed_and_one_that_leaves_in_order_is_not() {
    let end = |event: &Event| matches!(event, Event::LinkDown { .. }).then_some(());
    let mut pair = Pair::new(short());
    pair.server.endpoint.close(pair.server_link);
    pair.until(|client, _| client.take(end));
    assert!(pair.client.endpoint.blacklist().listings().is_empty());

    let Pair { mut client, server, .. } = Pair::new(short());
    drop(server);
    let mut bystander = Node::new(short());
    drive(&mut client, &mut bystander, |client, _| client.take(end));
    let listed = client.endpoint.blacklist().listings();
    assert_eq!(
        listed.iter().map(|listing| listing.reason).collect::<Vec<_>>(),
        [ListedFor::LinkLost]
    );
    client.endpoint.pardon_peer(listed[0].addr);
    assert!(!client.endpoint.blacklist().is_listed(listed[0].addr));
    client.endpoint.list_peer(listed[0].addr);
    assert_eq!(client.endpoint.blacklist().listings()[0].reason, ListedFor::Asked);
}

#[test]
fn a_handle_shows_the_list_of_its_endpoint() {
    let nobody = TcpListener::bind(any_port()).and_then(|socket| socket.local_addr());
    let nobody = nobody.expect("a free port");
    let config = EndpointConfig::new().blacklist_span(Nanos::from_secs(60));
    let handle = EndpointHandle::spawn_udp(UdpConfig::new(common::LOOPBACK.into()), config);
    let handle = handle.expect("an endpoint");
    assert!(handle.connect(nobody).is_err(), "nobody listens there");
    assert!(handle.blacklist().is_listed(nobody));
}
