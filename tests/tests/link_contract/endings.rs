//! How links end, and begin again.

use crate::pair::{Maker, Pair, config, pattern};
use towpath_base::Nanos;
use towpath_memory::Region;
use towpath_proto::{DownReason, Outcome};
use towpath_transport::{Event, LinkId, SendOptions};
use towpath_verbs::Device;

/// How long a silent peer is waited for: long enough for a machine that is busy with other things.
const PATIENCE: Nanos = Nanos::from_secs(5);

fn down(of: LinkId) -> impl Fn(&Event) -> Option<DownReason> {
    move |event| match event {
        Event::LinkDown { link, reason } if *link == of => Some(*reason),
        _ => None,
    }
}

pub(crate) fn goodbye<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    let channel = pair.open(false);
    for token in 0..20 {
        pair.send(channel, &pattern(20_000, token), SendOptions::new().token(token));
    }
    for token in 0..20 {
        let (outcome, _) = pair.until(|pair| {
            while pair.far().take_message().is_some() {}
            pair.near.take_sent(token)
        });
        assert_eq!(outcome, Outcome::Delivered);
    }
    let (near_link, far_link) = (pair.near.link(), pair.far().link());
    pair.near.endpoint.close(near_link);
    assert_eq!(pair.until(|pair| pair.near.take(down(near_link))), DownReason::Local);
    assert_eq!(pair.until(|pair| pair.far().take(down(far_link))), DownReason::Goodbye);
    pair.until(|pair| {
        (pair.near.buffers_are_home() && pair.far().buffers_are_home()).then_some(())
    });
    assert!(pair.near.endpoint.open_channel(near_link, true).is_err(), "it is gone");
}

pub(crate) fn death<D: Device<Memory = Region>>(maker: Maker<D>) {
    let patient = config().tune_links(|link| link.peer_timeout(PATIENCE));
    let mut pair = Pair::with(maker, patient);
    let channel = pair.open(true);
    pair.send(channel, b"before", SendOptions::new().token(1));
    assert_eq!(pair.until(|pair| pair.near.take_sent(1)).0, Outcome::Delivered);
    pair.far = None;
    pair.send(channel, &pattern(100_000, 2), SendOptions::new().token(2));
    let (outcome, payload) = pair.until(|pair| pair.near.take_sent(2));
    assert_eq!(outcome, Outcome::Unknown);
    drop(payload);
    let link = pair.near.link();
    let reason = pair.until(|pair| pair.near.take(down(link)));
    assert!(matches!(reason, DownReason::Silent(_)), "{reason:?}");
    pair.until(|pair| pair.near.buffers_are_home().then_some(()));
}

pub(crate) fn restart<D: Device<Memory = Region>>(maker: Maker<D>) {
    let patient = config().links_max(4).tune_links(|link| link.peer_timeout(PATIENCE));
    let mut pair = Pair::with(maker, patient);
    let mut old = Vec::new();
    for life in 0..3u64 {
        // Nobody has missed the earlier life yet, and its links are no matter of this one's.
        assert_eq!(pair.near.endpoint.links().count(), old.len() + 1, "life {life}");
        let channel = pair.open(true);
        let bytes = pattern(3_000, life);
        pair.send(channel, &bytes, SendOptions::new().token(life));
        let message = pair.until(|pair| pair.far().take_message());
        assert!(message.to_vec() == bytes, "life {life}");
        drop(message);
        assert_eq!(pair.until(|pair| pair.near.take_sent(life)).0, Outcome::Delivered);
        // It dies with a message under way.
        old.push(pair.near.link());
        pair.send(channel, &pattern(200_000, 9), SendOptions::new().token(100 + life));
        pair.far = None;
        pair.start_far();
    }
    for (life, link) in old.into_iter().enumerate() {
        let reason = pair.until(|pair| pair.near.take(down(link)));
        assert!(matches!(reason, DownReason::Silent(_)), "life {life}: {reason:?}");
        let (outcome, _) = pair.near.take_sent(100 + life as u64).expect("it ended with its link");
        assert_ne!(outcome, Outcome::Delivered, "life {life}");
    }
    assert!(pair.far().take_message().is_none(), "nothing of an earlier life");
}
