//! Which links leave the ICRC out of their packets.

mod common;

use common::{Pair, pattern};
use towpath_proto::Outcome;
use towpath_transport::{CarrierChoice, EndpointConfig, Icrc, Payload, SendOptions};

fn config() -> EndpointConfig {
    EndpointConfig::new().links_max(1)
}

/// Whether both ends say that their link goes without, on which a message went each way.
fn goes_without(client: EndpointConfig, server: EndpointConfig) -> bool {
    let mut pair = Pair::with(client, server);
    let channel = pair.open(true);
    let bytes = pattern(50_000, 3);
    let options = SendOptions::new().token(1);
    let copy = pair.client.endpoint.copy(&bytes).expect("a free buffer");
    let sent = pair.client.endpoint.send(pair.client_link, channel, Payload::new(copy), options);
    sent.expect("room");
    let message = pair.until(|_, server| server.take_message());
    assert!(message.to_vec() == bytes);
    assert_eq!(pair.until(|client, _| client.take_sent(1)).0, Outcome::Delivered);
    pair.server.endpoint.release(message);
    let back = Payload::new(pair.server.endpoint.copy(&bytes).expect("a free buffer"));
    pair.server.endpoint.send(pair.server_link, channel, back, options).expect("room");
    let message = pair.until(|client, _| client.take_message());
    assert!(message.to_vec() == bytes);
    pair.client.endpoint.release(message);
    let near = pair.client.endpoint.omits_icrc(pair.client_link).expect("it is up");
    let far = pair.server.endpoint.omits_icrc(pair.server_link).expect("it is up");
    assert_eq!(near, far);
    near
}

#[test]
fn a_link_goes_without_if_both_ends_would() {
    assert!(goes_without(config(), config()));
    let always = || config().icrc(Icrc::Always);
    assert!(!goes_without(always(), config()));
    assert!(!goes_without(config(), always()));
}

#[test]
fn an_end_that_sends_bodies_without_checksums_keeps_the_icrc_both_ways() {
    assert!(!goes_without(config().payload_crc(false), config()));
    assert!(!goes_without(config(), config().payload_crc(false)));
}

/// What rides on RC has an ICRC all the same: a queue pair of RC refuses to go without.
#[test]
fn links_over_rc_and_tcp_work_whatever_was_agreed_on() {
    for carrier in [CarrierChoice::Rc, CarrierChoice::Tcp] {
        goes_without(config().carrier(carrier), config().carrier(carrier));
    }
}
