//! Peers that fail are on the blacklist, for a while, and others are chosen meanwhile.

mod common;

use common::{Node, Pair, any_port, drive, nobody};
use towpath_base::Nanos;
use towpath_transport::{EndpointConfig, Event, ListedFor};

/// Whoever is listed stays so while the test lasts.
fn long() -> EndpointConfig {
    EndpointConfig::new().blacklist_span(Nanos::from_secs(600))
}

#[test]
fn a_peer_that_cannot_be_connected_to_is_listed_until_its_time_is_over() {
    let nobody = nobody();
    let (mut client, mut bystander) = (Node::new(long()), Node::new(long()));
    let alive = bystander.endpoint.listen(any_port()).expect("a free port");
    let list = client.endpoint.blacklist().clone();
    assert_eq!(list.first_choice(&[nobody, alive]), Some(0), "nothing is known yet");
    client.endpoint.connect(nobody).expect("room");
    drive(&mut client, &mut bystander, |client, _| {
        client.take(|event| matches!(event, Event::ConnectFailed { .. }).then_some(()))
    });
    assert_eq!(list.listings()[0].reason, ListedFor::ConnectFailed);
    assert_eq!(list.first_choice(&[nobody, alive]), Some(1));

    let mut client = Node::new(EndpointConfig::new().blacklist_span(Nanos::from_millis(30)));
    let list = client.endpoint.blacklist().clone();
    client.endpoint.connect(nobody).expect("room");
    drive(&mut client, &mut bystander, |client, _| {
        client.take(|event| matches!(event, Event::ConnectFailed { .. }).then_some(()))
    });
    drive(&mut client, &mut bystander, |_, _| (!list.is_listed(nobody)).then_some(()));
    assert_eq!(list.first_choice(&[nobody, alive]), Some(0));
}

#[test]
fn a_peer_whose_link_is_lost_is_listed_and_one_that_leaves_in_order_is_not() {
    let end = |event: &Event| matches!(event, Event::LinkDown { .. }).then_some(());
    let mut pair = Pair::new(long());
    pair.server.endpoint.close(pair.server_link);
    pair.until(|client, _| client.take(end));
    assert!(pair.client.endpoint.blacklist().listings().is_empty());

    let Pair { mut client, server, .. } = Pair::new(long());
    drop(server);
    let mut bystander = Node::new(long());
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
