//! Channels: credit, messages given up, closing.

use crate::pair::{Maker, Pair, pattern};
use towpath_base::Nanos;
use towpath_memory::Region;
use towpath_proto::{ChannelId, CloseReason, Outcome};
use towpath_transport::{Event, Message, SendOptions};
use towpath_verbs::Device;

/// The quota of a channel, in pieces.
const QUOTA: usize = 16;

/// More messages than the quota on a channel whose reader keeps what comes.
fn stall<D: Device<Memory = Region>>(pair: &mut Pair<D>) -> (ChannelId, Vec<Message>) {
    let channel = pair.open(false);
    for token in 0..2 * QUOTA as u64 {
        pair.send(channel, &pattern(100, token), SendOptions::new().token(token));
    }
    let mut kept = Vec::new();
    pair.until(|pair| {
        kept.extend(std::iter::from_fn(|| pair.far().take_message()));
        (kept.len() == QUOTA).then_some(())
    });
    (channel, kept)
}

/// The reader goes on: all that was held up arrives.
fn go_on<D: Device<Memory = Region>>(pair: &mut Pair<D>, kept: Vec<Message>) {
    drop(kept);
    for token in 0..2 * QUOTA as u64 {
        let (outcome, _) = pair.until(|pair| {
            while pair.far().take_message().is_some() {}
            pair.near.take_sent(token)
        });
        assert_eq!(outcome, Outcome::Delivered, "message {token}");
    }
}

fn sends_one<D: Device<Memory = Region>>(pair: &mut Pair<D>, channel: ChannelId, token: u64) {
    let bytes = pattern(500, token);
    pair.send(channel, &bytes, SendOptions::new().token(token));
    let message = pair.until(|pair| pair.far().take_message());
    assert_eq!(message.channel(), channel);
    assert!(message.to_vec() == bytes, "message {token}");
    pair.far().endpoint.release(message);
    assert_eq!(pair.until(|pair| pair.near.take_sent(token)).0, Outcome::Delivered);
}

fn all_home<D: Device<Memory = Region>>(pair: &mut Pair<D>) {
    pair.until(|pair| {
        (pair.near.buffers_are_home() && pair.far().buffers_are_home()).then_some(())
    });
}

pub(crate) fn stalled<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let (_, kept) = stall(&mut pair);
    let free = pair.open(true);
    for token in 100..200 {
        sends_one(&mut pair, free, token);
    }
    assert!(pair.far().take_message().is_none(), "no more than the quota came");
    go_on(&mut pair, kept);
    all_home(&mut pair);
}

pub(crate) fn deadline<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let (channel, kept) = stall(&mut pair);
    let soon = pair.near.endpoint.now() + Nanos::from_millis(20);
    pair.send(channel, &pattern(3_000_000, 1), SendOptions::new().token(1_000).deadline(soon));
    let (outcome, payload) = pair.until(|pair| pair.near.take_sent(1_000));
    assert_eq!(outcome, Outcome::Abandoned);
    assert!(pair.near.endpoint.now() >= soon, "it had until then");
    assert_eq!(payload.byte_len(), 3_000_000, "its buffers are back");
    drop(payload);
    go_on(&mut pair, kept);
    let later = pair.near.endpoint.now() + Nanos::from_secs(3_600);
    pair.send(channel, b"in time", SendOptions::new().token(1_001).deadline(later));
    let message = pair.until(|pair| pair.far().take_message());
    assert_eq!(message.to_vec(), b"in time", "nothing came of the one that was given up");
    drop(message);
    assert_eq!(pair.until(|pair| pair.near.take_sent(1_001)).0, Outcome::Delivered);
    all_home(&mut pair);
}

pub(crate) fn cancel<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let (channel, kept) = stall(&mut pair);
    let send = pair.send(channel, &pattern(70_000, 1), SendOptions::new().token(1_000));
    pair.near.endpoint.cancel(send).expect("it has not ended");
    assert!(pair.near.endpoint.cancel(send).is_err(), "once is enough");
    let (outcome, payload) = pair.until(|pair| pair.near.take_sent(1_000));
    assert_eq!((outcome, payload.byte_len()), (Outcome::Abandoned, 70_000));
    drop(payload);
    go_on(&mut pair, kept);
    sends_one(&mut pair, channel, 1_001);
    all_home(&mut pair);
}

pub(crate) fn closed<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let (channel, other) = (pair.open(true), pair.open(true));
    for token in 0..10 {
        pair.send(channel, &pattern(1_000, token), SendOptions::new().token(token));
    }
    let link = pair.near.link();
    pair.near.endpoint.close_channel(link, channel).expect("it is open");
    let closed = |wanted: CloseReason| {
        move |event: &Event| match event {
            Event::ChannelClosed { channel: which, reason, .. } if *which == channel => {
                assert_eq!(*reason, wanted);
                Some(())
            }
            _ => None,
        }
    };
    pair.until(|pair| pair.near.take(closed(CloseReason::Local)));
    for token in 0..10 {
        assert!(pair.near.take_sent(token).is_some(), "message {token} had its outcome before");
    }
    pair.until(|pair| pair.far().take(closed(CloseReason::Peer)));
    while let Some(message) = pair.far().take_message() {
        pair.far().endpoint.release(message);
    }
    sends_one(&mut pair, other, 100);
    all_home(&mut pair);
}
