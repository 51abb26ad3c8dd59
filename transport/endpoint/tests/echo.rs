//! Messages of every size there and back over loopback UDP.

mod common;

use common::{Pair, pattern, payload};
use towpath_base::Prng;
use towpath_proto::Outcome;
use towpath_transport::{EndpointConfig, Event, SendOptions};

/// Sizes around what changes the way a message goes: a packet, a chunk, a pool's buffer.
const SIZES: [usize; 14] =
    [1, 63, 64, 65, 255, 4_031, 4_032, 4_033, 57_343, 57_344, 57_345, 65_536, 200_000, 250_000];

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order_on_an_ordered_channel() {
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(true);
    for (token, &size) in SIZES.iter().enumerate() {
        let payload = payload(&pair.client.endpoint, &pattern(size, token as u64)).page_aligned();
        pair.send_payload(channel, payload, token as u64);
    }
    for (token, &size) in SIZES.iter().enumerate() {
        let message = pair.until(|_, server| server.take_message());
        assert_eq!(message.len(), size);
        assert!(message.to_vec() == pattern(size, token as u64), "{size} bytes came back changed");
        // Short ones may have shared a packet.
        let is_aligned = |part: &[u8]| (part.as_ptr() as usize).is_multiple_of(4096);
        assert!(message.parts().all(|part| part.len() <= 512 || is_aligned(part)), "page-aligned");
        pair.server.endpoint.release(message);
    }
    for token in 0..SIZES.len() as u64 {
        let (outcome, payload) = pair.until(|client, _| client.take_sent(token));
        assert_eq!(outcome, Outcome::Delivered);
        assert_eq!(payload.byte_len(), SIZES[token as usize], "the buffers come back");
    }
}

#[test]
fn what_is_echoed_on_an_unordered_channel_is_what_was_sent() {
    let seed = 7;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(false);
    let sizes: Vec<usize> = (0..200).map(|_| prng.between(8, 30_000) as usize).collect();
    let (mut sent, mut echoed) = (0, 0);
    while echoed < sizes.len() {
        while sent < sizes.len() && sent - echoed < 32 {
            let mut bytes = pattern(sizes[sent], sent as u64);
            bytes[..8].copy_from_slice(&(sent as u64).to_le_bytes());
            pair.send(channel, &bytes, sent as u64);
            sent += 1;
        }
        let link = pair.server_link;
        let back = pair.until(|client, server| {
            while let Some(message) = server.take_message() {
                let answer = payload(&server.endpoint, &message.to_vec());
                server.endpoint.send(link, channel, answer, SendOptions::new()).expect("room");
            }
            client.take_message()
        });
        let bytes = back.to_vec();
        let index = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        let mut wanted = pattern(sizes[index], index as u64);
        wanted[..8].copy_from_slice(&(index as u64).to_le_bytes());
        assert!(bytes == wanted, "message {index} came back changed");
        echoed += 1;
    }
}

#[test]
fn a_message_of_16_mib_is_streamed_in_order_and_whole() {
    const SEGMENT: usize = 4 << 20;
    let config = EndpointConfig::new().send_pools(&[(SEGMENT, 4)]);
    let mut pair = Pair::new(config);
    let channel = pair.open(true);
    let bytes = pattern(4 * SEGMENT, 3);
    let mut payload = None;
    for part in bytes.chunks(SEGMENT) {
        let buf = pair.client.endpoint.copy(part).expect("a free buffer");
        match &mut payload {
            None => payload = Some(towpath_transport::Payload::new(buf)),
            Some(payload) => payload.push(buf).expect("four segments"),
        }
    }
    let payload = payload.expect("four segments");
    let options = SendOptions::new().token(1);
    pair.client.endpoint.send(pair.client_link, channel, payload, options).expect("room");
    let mut got = Vec::with_capacity(bytes.len());
    pair.until(|_, server| {
        let mut ended = false;
        for event in server.events.drain(..) {
            if let Event::StreamChunk { chunk, message_len, end, .. } = event {
                assert_eq!(message_len as usize, bytes.len());
                assert_eq!(chunk.offset() as usize, got.len(), "in order");
                got.extend_from_slice(&chunk);
                server.endpoint.release_chunk(chunk);
                ended |= end;
            }
        }
        ended.then_some(())
    });
    assert!(got == bytes, "the stream differs from what was sent");
    let (outcome, _) = pair.until(|client, _| client.take_sent(1));
    assert_eq!(outcome, Outcome::Delivered);
}

#[test]
fn a_receive_queue_for_each_queue_pair_does_as_well_as_a_shared_one() {
    let mut pair = Pair::new(EndpointConfig::new().shared_receiving(false));
    let channel = pair.open(true);
    for round in 0..200 {
        pair.send(channel, &pattern(3_000, round), round);
        let message = pair.until(|_, server| server.take_message());
        assert!(message.to_vec() == pattern(3_000, round));
        assert_eq!(pair.until(|client, _| client.take_sent(round)).0, Outcome::Delivered);
    }
}
