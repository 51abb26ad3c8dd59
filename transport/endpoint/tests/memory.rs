//! Receive memory comes back after a burst. One test alone: it looks at the process.

mod common;

use common::{Pair, drive};
use towpath_base::Nanos;
use towpath_transport::{ChannelId, EndpointConfig, Message, SendOptions};

const CHANNELS: usize = 12;
const QUOTA: usize = 128;
const CHUNK_BYTES: usize = 32 << 10;
/// A message of one chunk, which fills its packets.
const MESSAGE_BYTES: usize = CHUNK_BYTES - 64;

fn config() -> EndpointConfig {
    EndpointConfig::new()
        .links_max(1)
        // A window that starts small cuts messages into more pieces than the quota has.
        .controller("fixed:1MiB".parse().expect("a controller"))
        .chunk_bytes_max(CHUNK_BYTES as u32)
        .quota_chunks(QUOTA as u32)
        .credit_total((CHANNELS * QUOTA) as u32)
        .receives_ready(64)
        .send_pools(&[(CHUNK_BYTES, 64)])
        .memory_quiet(Nanos::from_millis(20))
}

/// What the process has in memory.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells it");
    let pages: usize = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("pages");
    pages * 4096
}

/// Fills the whole quota of the channels; nobody reads.
fn fill(pair: &mut Pair, channels: &[ChannelId]) -> Vec<Message> {
    let bytes = vec![7; MESSAGE_BYTES];
    let (link, count) = (pair.client_link, channels.len() * QUOTA);
    let (mut sent, mut kept) = (0, Vec::new());
    drive(&mut pair.client, &mut pair.server, |client, server| {
        client.events.clear();
        while sent < count
            && let Ok(buf) = client.endpoint.copy(&bytes)
        {
            let channel = channels[sent / QUOTA];
            let options = SendOptions::new();
            client.endpoint.send(link, channel, buf, options).expect("room");
            sent += 1;
        }
        while let Some(message) = server.take_message() {
            kept.push(message);
        }
        (kept.len() == count).then_some(())
    });
    kept
}

#[test]
fn memory_that_a_burst_took_goes_back_but_for_what_one_stalled_reader_holds() {
    let mut pair = Pair::new(config());
    let channels: Vec<_> = (0..CHANNELS).map(|_| pair.open(false)).collect();
    let before = resident_bytes();
    let stalled = fill(&mut pair, &channels[..1]);
    let burst = fill(&mut pair, &channels[1..]);
    let peak = resident_bytes();
    let burst_bytes = burst.len() * CHUNK_BYTES;
    assert!(peak > before + burst_bytes / 2, "{before} to {peak} for {burst_bytes} in buffers");
    let usage = pair.server.endpoint.usage();
    assert_eq!(usage.receive_buffers_returned, 0, "all were in use a moment ago");

    drop(burst);
    // Posted, held, and a lot in reserve.
    let needed = usage.receives_wanted + stalled.len() + 64;
    let surplus = usage.receive_buffers - needed;
    assert!(surplus > (CHANNELS - 2) * QUOTA - 100, "{usage:?}");
    let after = pair.until(|_, server| {
        let usage = server.endpoint.usage();
        (usage.receive_buffers_returned >= surplus).then_some(usage)
    });
    assert!(after.receive_buffers_returned <= after.receive_buffers - stalled.len());
    let left = resident_bytes();
    assert!(left < peak - burst_bytes / 2, "{before}, at the peak {peak}, then {left}");

    // What went back is used again.
    assert_eq!(stalled[0].to_vec(), vec![7; MESSAGE_BYTES]);
    let again = fill(&mut pair, &channels[1..3]);
    assert!(again.iter().all(|message| message.to_vec() == vec![7; MESSAGE_BYTES]));
    assert!(pair.server.endpoint.usage().receive_buffers_returned < after.receive_buffers_returned);
}
