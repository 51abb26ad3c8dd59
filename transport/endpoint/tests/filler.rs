//! Filler: chunks that follow each other leave as one run of full packets, and arrive without it.

mod common;

use common::{Pair, pattern};
use towpath_proto::Outcome;
use towpath_transport::{EndpointConfig, SendOptions};

const MESSAGES: u64 = 16;
const BYTES: usize = 64 << 10;

#[test]
fn messages_that_end_in_a_short_packet_leave_in_few_runs_and_arrive_as_they_were() {
    let mut pair = Pair::new(EndpointConfig::new().links_max(1));
    let channel = pair.open(true);
    let link = pair.client_link;
    let bytes = pattern(BYTES, 3);
    let frozen = pair.client.endpoint.copy(&bytes).expect("a free buffer").freeze();
    let before = pair.client.endpoint.device().link().udp_counters();
    for token in 0..MESSAGES {
        let options = SendOptions::new().token(token);
        pair.client.endpoint.send(link, channel, frozen.clone(), options).expect("room for it");
    }
    for token in 0..MESSAGES {
        let message = pair.until(|_, server| server.take_message());
        assert_eq!(message.to_vec(), bytes);
        pair.server.endpoint.release(message);
        let (outcome, _) = pair.until(|client, _| client.take_sent(token));
        assert_eq!(outcome, Outcome::Delivered);
    }
    let link = pair.client.endpoint.device().link();
    let runs = link.udp_counters().messages_sent - before.messages_sent;
    if link.segmentation() {
        // Cut at each short packet there would be two for each message and more.
        assert!(runs < MESSAGES * 2, "{runs} runs for {MESSAGES} messages");
    }
}
