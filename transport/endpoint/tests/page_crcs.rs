//! Messages whose sender knows the CRC32C of their pages.

mod common;

use common::{Pair, pattern};
use towpath_base::crc::crc32c;
use towpath_proto::{ChannelId, Outcome};
use towpath_transport::{CarrierChoice, EndpointConfig, PageCrcs, Payload};

const PAGE: usize = 4096;

/// Messages of 60 pages after which the window lets chunks be longer than a page, by far.
const ROUNDS: usize = 40;

fn opened() -> (Pair, ChannelId) {
    let mut pair = Pair::new(EndpointConfig::new().links_max(1).payload_crc(true));
    let channel = pair.open(true);
    (pair, channel)
}

/// Sends a head of `head` bytes, and data with the CRCs of its first `known` pages, each of which
/// `change` has seen. Returns how many chunks the server has refused so far.
fn exchange(
    (pair, channel): &mut (Pair, ChannelId),
    [head, data, known]: [usize; 3],
    change: fn(&mut u32),
) -> u64 {
    let bytes = pattern(head + data, (head + data) as u64);
    let crcs = bytes[head..].chunks_exact(PAGE).take(known).map(crc32c);
    let crcs: PageCrcs = crcs.map(|mut crc| (change(&mut crc), crc).1).collect();
    let copy = |bytes: &[u8]| pair.client.endpoint.copy(bytes).expect("a free buffer");
    let mut message = Payload::new(copy(&bytes[..head]));
    message.push_with_crcs(copy(&bytes[head..]), crcs).expect("room for two segments");
    pair.send_payload(*channel, message.page_aligned(), 1);
    let message = pair.until(|_, server| server.take_message());
    assert!(message.to_vec() == bytes, "{head} and {data}");
    pair.server.endpoint.release(message);
    assert_eq!(pair.until(|client, _| client.take_sent(1)).0, Outcome::Delivered);
    pair.server.endpoint.stats(pair.server_link).expect("it is up").payloads_bad
}

#[test]
fn chunks_have_the_checksum_of_their_bytes_where_that_follows_from_those_of_pages() {
    let mut pair = opened();
    for _ in 0..ROUNDS {
        assert_eq!(exchange(&mut pair, [64, 60 * PAGE, 60], |_| {}), 0);
    }
    for head in [64, 300, 600, 5000] {
        for (data, known) in [(100, 0), (PAGE, 1), (3 * PAGE + 9, 3), (60 * PAGE, 60), (40_000, 4)]
        {
            let lengths = [head, data, known];
            assert_eq!(exchange(&mut pair, lengths, |_| {}), 0, "{lengths:?}");
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "CRCs are those of the pages"))]
fn a_wrong_checksum_of_a_page_is_found_or_costs_one_more_transmission() {
    let mut pair = opened();
    let mut wrong = (0..ROUNDS).map(|_| exchange(&mut pair, [64, 60 * PAGE, 60], |crc| *crc ^= 1));
    assert!(wrong.any(|refused| refused > 0), "a chunk was sent with what its sender knew");
}

/// Sends data behind a head, and returns of how many of its pages the receiver knew the CRC: those
/// that it did were right.
fn known_pages((pair, channel): &mut (Pair, ChannelId), [head, data]: [usize; 2]) -> usize {
    let bytes = pattern(head + data, (head * data) as u64);
    let copy = |bytes: &[u8]| pair.client.endpoint.copy(bytes).expect("a free buffer");
    let mut message = Payload::new(copy(&bytes[..head]));
    message.push(copy(&bytes[head..])).expect("room for two segments");
    pair.send_payload(*channel, message.page_aligned(), 1);
    let message = pair.until(|_, server| server.take_message());
    assert!(message.to_vec() == bytes, "{head} and {data}");
    let mut known = 0;
    for chunk in message.chunks() {
        let crcs = chunk.page_crcs();
        assert!(crcs.is_empty() || crcs.len() == chunk.len() / PAGE, "of all pages or of none");
        let pages = chunk.chunks_exact(PAGE).map(crc32c);
        assert!(pages.zip(crcs).all(|(page, crc)| page == *crc), "{head} and {data}");
        known += crcs.len();
    }
    pair.server.endpoint.release(message);
    assert_eq!(pair.until(|client, _| client.take_sent(1)).0, Outcome::Delivered);
    known
}

#[test]
fn the_receiver_knows_the_crcs_of_pages_that_it_has_checked() {
    let over_tcp = EndpointConfig::new().links_max(1).carrier(CarrierChoice::Tcp);
    for config in [EndpointConfig::new().links_max(1), over_tcp] {
        let mut pair = Pair::new(config.payload_crc(true));
        let channel = pair.open(true);
        let mut pair = (pair, channel);
        // At first pieces come in parts.
        for _ in 0..ROUNDS {
            known_pages(&mut pair, [64, 60 * PAGE]);
        }
        // Buffers come round, and with them what was known of what lay there before.
        for round in 0..100 {
            for (head, pages, more) in [(64, 1, 0), (300, 16, 100), (64, 0, 500), (64, 60, 9)] {
                let known = known_pages(&mut pair, [head, pages * PAGE + more]);
                assert_eq!(known, pages, "round {round}: {head}, {pages}, {more}");
            }
        }
    }
}

#[test]
fn of_what_came_without_a_checksum_no_page_is_known() {
    let config = EndpointConfig::new().links_max(1).payload_crc(false);
    let mut pair = Pair::new(config);
    let channel = pair.open(true);
    assert_eq!(known_pages(&mut (pair, channel), [64, 16 * PAGE]), 0);
}
