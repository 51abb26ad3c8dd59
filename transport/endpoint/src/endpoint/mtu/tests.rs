//! Ways that swallow long packets: the link ends with that reason, and the next one is narrower.

use super::*;
use crate::config::EndpointConfig;
use crate::payload::SendOptions;
use towpath_base::Nanos;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{DownReason, Side};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};

type Host = Endpoint<RoceDevice<FaultLink<VirtualLink>>>;

/// BTH to ICRC of a packet of 1,024 bytes, and of none of 2,048.
const CARRIED: usize = 1_100;

/// How long a link has to find out, with a second to spare.
const PATIENCE: Nanos = Nanos::from_secs(4);

struct Pair {
    world: World,
    hosts: [Host; 2],
    seed: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let world = World::new(seed);
        let (near, far) = world.link(&LinkConfig::default());
        let host = |link, at: u64, plan: FaultPlan| {
            let link = FaultLink::new(link, seed ^ at, FaultControl::new(plan));
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed + at));
            let config = EndpointConfig::new().links_max(8).seed(seed + at);
            Endpoint::new(device, config).expect("an endpoint")
        };
        let narrow = FaultPlan::none().drop_longer_than(Some(CARRIED));
        Self { world, hosts: [host(near, 1, narrow), host(far, 2, FaultPlan::none())], seed }
    }

    /// Sets up a link as the side that connects and the side that answers do, and sends a message
    /// of several packets; the MTU, and how it ended.
    fn send(&mut self) -> (Mtu, Result<(), DownReason>) {
        let [near, far] = &mut self.hosts;
        let (hello, half) =
            near.offer_to(far.device().local_addr(), towpath_proto::Class::Silver).expect("room");
        let (answer, other_half) = far.offer().expect("room");
        let link = near.establish(half, &answer, Side::Client).expect("they fit");
        far.establish(other_half, &hello, Side::Server).expect("they fit");
        let mtu = near.mtu_of(link).expect("it is up");
        assert_eq!(mtu, hello.mtu);
        near.open_channel(link, true).expect("room");
        let end = self.world.now() + PATIENCE;
        let mut told = None;
        while self.world.now() < end {
            let mut outcome = None;
            for host in &mut self.hosts {
                host.turn(|host, event| match event {
                    Event::ChannelOpened { link, channel, by_peer: false, .. } => {
                        let payload = host.copy(&[7; 20_000]).expect("a buffer");
                        host.send(link, channel, payload, SendOptions::new()).expect("room");
                    }
                    Event::Message(message) => {
                        assert_eq!(message.to_vec(), [7; 20_000]);
                        host.release(message);
                        outcome = Some(Ok(()));
                    }
                    Event::LongPacketsLost { mtu, next, .. } => told = Some((mtu, next)),
                    Event::LinkDown { reason, .. } => outcome = Some(Err(reason)),
                    _ => {}
                });
            }
            if let Some(outcome) = outcome {
                if outcome.is_err() {
                    let next = Mtu::at_most(mtu.bytes() / 2).expect("there is one");
                    assert_eq!(told, Some((mtu, next)), "seed {}", self.seed);
                }
                return (mtu, outcome);
            }
            self.world.advance_to(self.world.now() + Nanos::from_micros(200));
        }
        panic!("seed {}: nothing was said in {PATIENCE}", self.seed);
    }
}

#[test]
fn each_link_over_a_way_that_swallows_says_so_and_the_next_is_narrower_until_one_fits() {
    let mut pair = Pair::new(3);
    let lost = |mtu| (mtu, Err(DownReason::LongPacketsLost { mtu }));
    assert_eq!(pair.send(), lost(Mtu::Mtu4096));
    assert_eq!(pair.send(), lost(Mtu::Mtu2048));
    assert_eq!(pair.send(), (Mtu::Mtu1024, Ok(())));
    assert!(pair.world.now() < Time::ZERO + PATIENCE + PATIENCE);
}
