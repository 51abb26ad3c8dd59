//! One-sided operations go on while what their link rides on is swallowed and comes back.

mod common;

use common::{LONG, LOOPBACK, Node, any_port, drive, join};
use std::sync::atomic::Ordering;
use towpath_base::Nanos;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::{Hole, HoleControl, Services, Swallows};
use towpath_transport::{
    Carrier, Endpoint, EndpointConfig, Event, Fallback, LinkId, OpOptions, OpOutcome, Place,
    Rights, SharedMemory,
};

type HoleNode = Node<RoceDevice<Hole<UdpLink>>>;

/// A carrier that is silent for so long is left, and a worse one is kept for so long at least.
const CARRIER_SPAN: Nanos = Nanos::from_millis(30);

fn node(seed: u64, hole: &HoleControl) -> HoleNode {
    let udp = UdpConfig::new(LOOPBACK.into()).force_buffers(false);
    let link = Hole::new(UdpLink::bind(udp).expect("loopback UDP"), hole.clone());
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
    let config = EndpointConfig::new()
        .links_max(1)
        .fallback(Fallback::Tcp)
        .tune_links(|link| link.fallback(CARRIER_SPAN, CARRIER_SPAN).peer_timeout(LONG))
        .connect_timeout(LONG)
        .seed(seed);
    Node::on(Endpoint::new(device, config).expect("an endpoint"))
}

/// Adds of the near end, and what came of them.
#[derive(Debug, Default)]
struct Adds {
    under_way: u64,
    executed: u64,
    unknown: u64,
}

impl Adds {
    /// Keeps some under way, and takes what has ended.
    fn step(&mut self, near: &mut HoleNode, place: Place) {
        for event in near.events.drain(..) {
            match event {
                Event::OpDone { outcome: OpOutcome::Executed, .. } => self.executed += 1,
                Event::OpDone { outcome: OpOutcome::Unknown, .. } => self.unknown += 1,
                Event::OpDone { outcome, .. } => panic!("{outcome:?}"),
                Event::LinkDown { reason, .. } => panic!("{reason:?}"),
                _ => continue,
            }
            self.under_way = self.under_way.saturating_sub(1);
        }
        while self.under_way < 8 {
            near.endpoint.fetch_add(place, 1, OpOptions::new()).expect("allowed, and room");
            self.under_way += 1;
        }
    }

    /// Goes on until the link rides on `carrier`, operations go by messages or not as said, and
    /// some more were executed.
    fn until(
        &mut self,
        (near, far): (&mut HoleNode, &mut HoleNode),
        (link, place): (LinkId, Place),
        (carrier, by_messages): (Carrier, bool),
    ) {
        let mut since = None;
        drive(near, far, |near, far| {
            self.step(near, place);
            far.events.clear();
            let way = near.endpoint.lane(link).map(|lane| lane.is_by_messages);
            let is_there = near.endpoint.carrier_of(link) == Some(carrier);
            if !is_there || way != Some(by_messages) {
                since = None;
                return None;
            }
            let from = *since.get_or_insert(self.executed);
            (self.executed >= from + 50).then_some(())
        });
    }
}

#[test]
fn operations_go_by_messages_over_tcp_while_udp_is_swallowed_and_by_a_queue_pair_again_after() {
    let hole = HoleControl::default();
    let (mut near, mut far) = (node(1, &hole), node(2, &HoleControl::default()));
    let addr = far.endpoint.listen(any_port()).expect("a free port");
    let joined = join(&mut near, &mut far, addr);
    let memory = SharedMemory::new(4096).expect("memory for a test");
    far.endpoint.grant(joined.accepted, &memory, 0..4096, Rights::ALL).expect("room");
    let grant = drive(&mut near, &mut far, |near, _| {
        near.take(|event| match event {
            Event::Granted { grant, .. } => Some(*grant),
            _ => None,
        })
    });
    let place = Place { link: joined.link, grant: grant.id, offset: 8 };
    let at = (joined.link, place);
    let mut adds = Adds::default();
    for _ in 0..2 {
        adds.until((&mut near, &mut far), at, (Carrier::Uc, false));
        hole.set(Swallows::both(Services::All));
        adds.until((&mut near, &mut far), at, (Carrier::Tcp, true));
        hole.set(Swallows::both(Services::None));
        adds.until((&mut near, &mut far), at, (Carrier::Uc, false));
    }
    drive(&mut near, &mut far, |near, _| {
        for event in near.events.drain(..) {
            if let Event::OpDone { outcome, .. } = event {
                adds.executed += u64::from(outcome == OpOutcome::Executed);
                adds.unknown += u64::from(outcome == OpOutcome::Unknown);
                adds.under_way -= 1;
            }
        }
        (adds.under_way == 0).then_some(())
    });
    let word = memory.word(8).expect("aligned").load(Ordering::SeqCst);
    assert!((adds.executed..=adds.executed + adds.unknown).contains(&word), "{word} {adds:?}");
    let served = far.endpoint.served(joined.accepted).expect("counted on each way");
    assert_eq!(served.atomics, word, "by queue pairs and by messages together");
    assert!(adds.unknown <= 64, "only what a queue pair had when it was lost: {adds:?}");
}
