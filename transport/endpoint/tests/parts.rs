//! Pieces that come in parts, where a link holds as many receive buffers as it may.

use towpath_base::{Nanos, Time};
use towpath_cc::{ControllerConfig, FixedWindowConfig};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{Outcome, Side};
use towpath_sim::{LinkConfig, VirtualLink, World};
use towpath_transport::{ChannelId, Endpoint, EndpointConfig, Event, Payload, SendOptions};

type Device = RoceDevice<VirtualLink>;

/// Bytes of each message: a packet, and little more. The end of one shares its packet with the
/// beginning of the next.
const LEN: usize = 4_600;

/// How long all messages may take. Timeouts for each of them would take ten times as long.
const LONG: Time = Time(200_000_000);

fn end(link: VirtualLink, seed: u64, config: EndpointConfig) -> Endpoint<Device> {
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
    Endpoint::new(device, config.seed(seed ^ 0x100)).expect("a small endpoint")
}

#[test]
fn pieces_become_whole_at_once_although_their_ends_come_with_what_has_no_buffer() {
    // Chunks of one packet, and a single buffer that the link may hold.
    let window = FixedWindowConfig::new(16 << 10).expect("a window");
    let config = EndpointConfig::new()
        .tune_links(move |link| link.controller(ControllerConfig::Fixed(window)))
        .quota_chunks(64)
        .credit_total(64)
        .links_max(1)
        .receive_buffers_max(2)
        .send_pools(&[(8 << 10, 80)]);
    let world = World::new(1);
    let (a, b) = world.link(&LinkConfig::default());
    let (mut near, mut far) = (end(a, 1, config.clone()), end(b, 2, config));
    let (near_hello, near_half) = near.offer().expect("room");
    let (far_hello, far_half) = far.offer().expect("room");
    let link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
    let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");
    let channel = near.open_channel(link, false).expect("room");
    let send = |at: &mut Endpoint<Device>, channel: ChannelId, token: u64| {
        let buf = at.copy(&[token as u8; LEN]).expect("a free buffer");
        let options = SendOptions::new().token(token);
        at.send(link, channel, Payload::from(buf), options).expect("an open channel");
    };
    let (mut next, mut delivered, mut seen) = (0, 0, 0);
    while delivered < 400 || seen < 400 {
        let mut busy = near.turn(|at, event| match event {
            Event::ChannelOpened { .. } => {
                (0..60).for_each(|token| send(at, channel, token));
                next = 60;
            }
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                delivered += 1;
                if next < 400 {
                    send(at, channel, next);
                    next += 1;
                }
            }
            _ => {}
        });
        busy |= far.turn(|at, event| {
            if let Event::Message(message) = event {
                let bytes = message.to_vec();
                assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]));
                seen += 1;
                at.release(message);
            }
        });
        if !busy {
            let timers = near.next_timeout().min(far.next_timeout());
            let next = world.next_event_time().into_iter().fold(timers, Time::min);
            let stats = (near.stats(link), far.stats(far_link), far.endpoint_stats());
            assert!(next < LONG, "{seen} came: {stats:#?}");
            world.advance_to(next.max(world.now() + Nanos(1)));
        }
    }
    assert!(far.endpoint_stats().over_share > 0);
    far.turn(|_, _| {});
    let census = far.buffers();
    assert_eq!(census.recv_posted + census.recv_free, census.recv_all);
}
