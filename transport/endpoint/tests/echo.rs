//! Messages of every size there and back over loopback UDP.

mod common;

use common::{Pair, pattern};
use towpath_proto::Outcome;
use towpath_transport::EndpointConfig;

#[test]
fn a_small_message_arrives_whole_and_its_buffer_comes_back() {
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(true);
    pair.send(channel, b"hello", 7);
    let message = pair.until(|_, server| server.take_message());
    assert_eq!(message.as_slice(), Some(&b"hello"[..]));
    let (outcome, payload) = pair.until(|client, _| client.take_sent(7));
    assert_eq!(outcome, Outcome::Delivered);
    assert_eq!(&payload.segments()[0][..], b"hello");
    drop((message, payload));
    let _ = pattern(1, 1);
}
