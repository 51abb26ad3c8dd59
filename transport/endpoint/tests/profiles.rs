//! The profiles of the configuration are what their documentation says, and carry messages.

mod common;

use common::{LONG, Pair, pattern};
use towpath_transport::{EndpointConfig, Outcome};

/// A link between two endpoints of this profile, and some messages of up to `longest` bytes.
fn carry(config: EndpointConfig, longest: usize) -> Pair {
    let mut pair = Pair::new(config.connect_timeout(LONG));
    let channel = pair.open(true);
    let whole = pair.server.endpoint.whole_bytes_max(pair.server_link).expect("it is up");
    assert!(whole as usize >= longest, "{whole}");
    for (len, token) in [1, 100, 5_000, 16 << 10, longest].into_iter().zip(0..) {
        // In segments of what the shortest of the long pools holds.
        let bytes = pattern(len, token);
        let mut segments = bytes.chunks(len.div_ceil(4).max(100)).map(|part| {
            let mut buf = pair.client.endpoint.alloc(part.len()).expect("a free buffer");
            buf.extend(part).expect("it fits");
            buf
        });
        let mut payload = towpath_transport::Payload::new(segments.next().expect("a byte"));
        segments.for_each(|buf| payload.push(buf).expect("at most four segments"));
        let options = towpath_transport::SendOptions::new().token(token);
        pair.client.endpoint.send(pair.client_link, channel, payload, options).expect("room");
        let message = pair.until(|_, server| server.take_message());
        assert!(message.to_vec() == bytes, "{len} bytes");
        pair.server.endpoint.release(message);
        let (outcome, _) = pair.until(|client, _| client.take_sent(token));
        assert_eq!(outcome, Outcome::Delivered);
    }
    pair
}

#[test]
fn long_messages_may_fill_the_large_pools_for_throughput() {
    let pair = carry(EndpointConfig::throughput(), 252 << 10);
    let held: Vec<_> =
        (0..128).map(|_| pair.client.endpoint.alloc(1 << 20).expect("a free buffer")).collect();
    assert_eq!(held.len(), 128);
    let usage = pair.client.endpoint.link_usage(pair.client_link).expect("it is up");
    assert_eq!((usage.credit_given, usage.credit_given_max), (512, 8192));
}

#[test]
fn the_profile_for_latency_carries_messages() {
    carry(EndpointConfig::latency(), 252 << 10);
}

#[test]
fn a_thousand_links_fit_the_profile_for_many() {
    let pair = carry(EndpointConfig::many_links(), 128 << 10);
    let endpoint = &pair.server.endpoint;
    assert_eq!(endpoint.plan().links_max, 1024);
    let usage = endpoint.link_usage(pair.server_link).expect("it is up");
    assert_eq!((usage.credit_given, usage.credit_given_max), (16, 256));
}

#[test]
fn the_profile_for_small_memory_takes_no_more_than_it_says() {
    let pair = carry(EndpointConfig::small_memory(), 64 << 10);
    let usage = pair.server.endpoint.usage();
    // What is posted for one link with what one poll takes in, and what was held.
    assert!(usage.receive_buffers * (16 << 10) <= 4 << 20, "{usage:?}");
    assert_eq!(usage.send_buffers_max, 256 + 64 + 32);
    let whole = pair.server.endpoint.whole_bytes_max(pair.server_link).expect("it is up");
    assert_eq!(whole, 96 << 10);
}
