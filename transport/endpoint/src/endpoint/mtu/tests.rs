//! Ways that swallow long packets, over a virtual wire: a link goes on in packets that get through.

use super::*;
use crate::config::EndpointConfig;
use crate::event::Event;
use crate::payload::SendOptions;
use crate::setup::Offer;
use towpath_base::Nanos;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{ChannelId, Class, MtuPhase, Side};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};

type Host = Endpoint<RoceDevice<FaultLink<VirtualLink>>>;

/// BTH to ICRC of a packet of 1,024 bytes, and of none of 2,048.
const CARRIED: usize = 1_100;

/// A message takes no longer, whatever the way does.
const PATIENCE: Nanos = Nanos::from_millis(200);

struct Pair {
    world: World,
    hosts: [Host; 2],
    /// What happens to what the first host sends.
    way: FaultControl,
    link: LinkId,
    channel: Option<ChannelId>,
    told: Vec<(Mtu, Mtu, MtuReason)>,
}

impl Pair {
    fn new(seed: u64, plan: FaultPlan) -> Self {
        println!("seed {seed}");
        let world = World::new(seed);
        // Room for all that is sent: nothing but the length of a packet loses it.
        let (queue_bytes, rx_buffer_bytes) = (16 << 20, 16 << 20);
        let wire = LinkConfig { queue_bytes, rx_buffer_bytes, ..LinkConfig::default() };
        let (near, far) = world.link(&wire);
        let way = FaultControl::new(plan);
        let host = |link, at: u64, control: &FaultControl| {
            let link = FaultLink::new(link, seed ^ at, control.clone());
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed + at));
            let config = EndpointConfig::new().seed(seed + at);
            Endpoint::new(device, config).expect("an endpoint")
        };
        let mut near = host(near, 1, &way);
        let mut far = host(far, 2, &FaultControl::new(FaultPlan::none()));
        let to = far.device().local_addr();
        let asks = near.asks_by_other_means();
        let (hello, half) = near
            .offer_to(Offer { addr: to, class: Class::Silver, asks, secret: None })
            .expect("room");
        let (answer, other_half) = far.offer().expect("room");
        let link = near.establish(half, &answer, Side::Client).expect("they fit");
        far.establish(other_half, &hello, Side::Server).expect("they fit");
        assert_eq!(near.mtu_of(link), Some(Mtu::Mtu4096));
        near.open_channel(link, true).expect("room");
        let (hosts, told) = ([near, far], Vec::new());
        Self { world, hosts, way, link, channel: None, told }
    }

    /// Runs until the second host has had `count` more messages of 60,000 bytes.
    fn send(&mut self, count: usize) {
        let (mut sent, mut came) = (0, 0);
        let end = self.world.now() + PATIENCE.saturating_mul(count as u64);
        while came < count {
            assert!(self.world.now() < end, "{came} of {count} came; told {:?}", self.told);
            if let Some(channel) = self.channel.filter(|_| sent < count) {
                let near = &mut self.hosts[0];
                let payload = near.copy(&[7; 60_000]).expect("a buffer");
                near.send(self.link, channel, payload, SendOptions::new()).expect("room");
                sent += 1;
            }
            for host in &mut self.hosts {
                host.turn(|host, event| match event {
                    Event::ChannelOpened { channel, by_peer: false, .. } => {
                        self.channel = Some(channel);
                    }
                    Event::Message(message) => {
                        assert_eq!(message.to_vec(), [7; 60_000]);
                        host.release(message);
                        came += 1;
                    }
                    Event::PathMtuChanged { from, to, why, .. } => self.told.push((from, to, why)),
                    Event::LinkDown { reason, .. } => panic!("down: {reason:?}"),
                    _ => {}
                });
            }
            self.world.advance_to(self.world.now() + Nanos::from_micros(50));
        }
    }

    fn found(&self) -> (Mtu, MtuPhase) {
        let path = self.hosts[0].paths(self.link).next().expect("a path");
        (path.facts.mtu, path.facts.mtu_phase)
    }
}

#[test]
fn a_link_whose_way_swallows_what_was_agreed_on_works_from_the_beginning() {
    let mut pair = Pair::new(3, FaultPlan::none().drop_longer_than(Some(CARRIED)));
    pair.send(60);
    let stats = pair.hosts[0].stats_of_all_links();
    assert_eq!((stats.rtos, stats.chunks_retransmitted), (0, 0), "nothing waited for it");
    while pair.told.is_empty() {
        pair.send(1);
    }
    assert_eq!(pair.told, [(Mtu::Mtu4096, Mtu::Mtu1024, MtuReason::Swallowed)]);
    assert_eq!(pair.found(), (Mtu::Mtu1024, MtuPhase::Complete));
}

#[test]
fn a_way_that_carries_what_was_agreed_on_is_used_so() {
    let mut pair = Pair::new(4, FaultPlan::none());
    pair.send(10);
    assert_eq!((pair.found(), pair.told.len()), ((Mtu::Mtu4096, MtuPhase::Complete), 0));
}

#[test]
fn a_way_that_shrinks_and_grows_under_a_transfer_is_followed() {
    let mut pair = Pair::new(5, FaultPlan::none());
    pair.send(20);
    pair.way.set_transmit(FaultPlan::none().drop_longer_than(Some(CARRIED)));
    pair.send(60);
    assert_eq!(pair.told, [(Mtu::Mtu4096, Mtu::Mtu1024, MtuReason::Swallowed)]);
    pair.way.set_transmit(FaultPlan::none());
    let end = pair.world.now() + Nanos::from_secs(2);
    while pair.world.now() < end {
        pair.send(5);
        pair.world.advance_to(pair.world.now() + Nanos::from_millis(20));
    }
    assert_eq!(pair.found(), (Mtu::Mtu4096, MtuPhase::Complete));
    assert_eq!(pair.told.last().map(|last| last.2), Some(MtuReason::Probed));
}

#[test]
fn loss_of_a_third_of_all_packets_is_not_taken_for_a_narrow_way() {
    let mut pair = Pair::new(6, FaultPlan::none());
    pair.send(5);
    pair.way.set_transmit(FaultPlan::none().drop(0.3));
    let end = pair.world.now() + Nanos::from_secs(2);
    let near = &mut pair.hosts[0];
    let channel = pair.channel.expect("it is open");
    for _ in 0..20 {
        let payload = near.copy(&[7; 60_000]).expect("a buffer");
        near.send(pair.link, channel, payload, SendOptions::new()).expect("room");
    }
    while pair.world.now() < end {
        for host in &mut pair.hosts {
            host.turn(|host, event| match event {
                Event::Message(message) => host.release(message),
                Event::PathMtuChanged { from, to, .. } => panic!("from {from} to {to}"),
                _ => {}
            });
        }
        pair.world.advance_to(pair.world.now() + Nanos::from_micros(50));
    }
    assert_eq!(pair.found().0, Mtu::Mtu4096);
}
