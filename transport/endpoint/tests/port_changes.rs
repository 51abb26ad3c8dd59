//! How a path that dies goes on from another source port: the verbs that the endpoints call for it,
//! on a device that can change the port of a running queue pair, one that cannot, and one that says
//! that it can.

mod recorded;

use recorded::{Call, Manner, Recorded};
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{ChannelId, Outcome, PathState, Side};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, World};
use towpath_transport::{Endpoint, EndpointConfig, Event, Fallback, LinkId, SendOptions};

const PATHS: usize = 4;

/// The path that dies: its port swallows what the near end sends.
const DYING: usize = 2;

struct Lab {
    world: World,
    ends: [Endpoint<Recorded>; 2],
    links: [LinkId; 2],
    faults: FaultControl,
    channel: Option<ChannelId>,
    under_way: usize,
    /// When the next messages go.
    send_at: Time,
}

impl Lab {
    fn new(seed: u64, manner: Manner) -> Self {
        println!("seed {seed}, {manner:?}");
        let world = World::new(seed);
        let (a, b) = world.link(&LinkConfig::default());
        let faults = FaultControl::new(FaultPlan::none());
        let config = EndpointConfig::new().paths(PATHS).fallback(Fallback::None).links_max(1);
        let end = |link, number: u64, faults: FaultControl| {
            let link = FaultLink::new(link, seed ^ number, faults);
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed << 1 | number));
            let device = Recorded::new(device, manner);
            // No path is held back, so that each has its say.
            let config = config.clone().tune_links(|link| link.spare_paths(0));
            Endpoint::new(device, config.seed(seed << 9 | number)).expect("an endpoint")
        };
        let mut near = end(a, 0, faults.clone());
        let mut far = end(b, 1, FaultControl::new(FaultPlan::none()));
        let (near_hello, near_half) = near.offer().expect("room");
        let (far_hello, far_half) = far.offer().expect("room");
        let near_link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
        let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");
        near.open_channel(near_link, true).expect("room");
        let links = [near_link, far_link];
        let (ends, send_at) = ([near, far], Time::ZERO);
        let mut lab = Self { world, ends, links, faults, channel: None, under_way: 0, send_at };
        lab.run(Nanos::from_millis(50));
        lab
    }

    /// Lets so much time pass, in which the near end sends a few messages every millisecond.
    fn run(&mut self, span: Nanos) {
        let end = self.world.now() + span;
        while self.world.now() < end {
            let Self { world, ends: [near, far], links, channel, under_way, send_at, .. } = self;
            let mut busy = near.turn(|_, event| match event {
                Event::ChannelOpened { channel: opened, .. } => *channel = Some(opened),
                Event::Sent { outcome, .. } => {
                    assert_eq!(outcome, Outcome::Delivered);
                    *under_way -= 1;
                }
                Event::LinkDown { reason, .. } => panic!("the link goes on: {reason:?}"),
                _ => {}
            });
            busy |= far.turn(|endpoint, event| match event {
                Event::Message(message) => endpoint.release(message),
                Event::LinkDown { reason, .. } => panic!("the link goes on: {reason:?}"),
                _ => {}
            });
            while let Some(channel) = *channel
                && world.now() >= *send_at
                && *under_way < 64
            {
                if under_way.is_multiple_of(8) {
                    *send_at = world.now() + Nanos::from_millis(1);
                }
                let buf = near.copy(&[7; 3_000]).expect("a free buffer");
                near.send(links[0], channel, buf, SendOptions::new()).expect("an open channel");
                (*under_way, busy) = (*under_way + 1, true);
            }
            if !busy {
                let held = |end: &Endpoint<Recorded>| end.device().inner().link().next_release();
                let times = [held(near), held(far), world.next_event_time()];
                let timers = near.next_timeout().min(far.next_timeout());
                let next = times.into_iter().flatten().fold(timers, Time::min).min(end);
                let next = if *send_at > world.now() { next.min(*send_at) } else { next };
                world.advance_to(next.max(world.now() + Nanos(1)));
            }
        }
    }

    /// The dying path at an end: its state, its port, and how often its queue pair was replaced.
    fn path(&self, at: usize) -> (PathState, u16, u32) {
        let path = self.ends[at].paths(self.links[at]).nth(DYING).expect("it is there");
        (path.facts.state, path.source_port, path.facts.renewals)
    }

    /// Waits until that path is good again on another port.
    fn until_good(&mut self) -> u16 {
        let end = self.world.now() + Nanos::from_secs(10);
        while self.world.now() < end {
            self.run(Nanos::from_millis(10));
            if let (PathState::Good, port, _) = self.path(0)
                && usize::from(port) != DYING
            {
                return port;
            }
        }
        panic!("it stays {:?}", self.path(0));
    }

    /// What both ends called since the last look.
    fn calls(&self) -> [Vec<Call>; 2] {
        [0, 1].map(|at| self.ends[at].device().take_calls())
    }

    /// The dying path dies; the queue pair of each end that it is on.
    fn kill(&self, before: &[Vec<Call>; 2]) -> [towpath_verbs::QpNum; 2] {
        let on_port = |calls: &Vec<Call>| {
            let found = calls.iter().find_map(|call| match *call {
                Call::Connect(qp, port) if usize::from(port) == DYING => Some(qp),
                _ => None,
            });
            found.expect("each path has a port of its own")
        };
        let dying = DYING as u16;
        self.faults.set_transmit(FaultPlan::none().black_hole_ports(dying..dying + 1));
        [on_port(&before[0]), on_port(&before[1])]
    }
}

/// The sequence that replaces a queue pair: the old one goes first, and another one leaves from
/// `port`.
fn is_replaced(calls: &[Call], old: towpath_verbs::QpNum, port: u16) {
    let [Call::Destroy(gone), Call::Create(made), Call::Connect(joined, from)] = *calls else {
        panic!("one is destroyed, one made, and that joined: {calls:?}");
    };
    assert_eq!((gone, joined, from), (old, made, port));
}

#[test]
fn a_device_that_can_changes_the_port_and_keeps_the_queue_pair() {
    for seed in 1..6 {
        let mut lab = Lab::new(seed, Manner::Live);
        let [near, _] = lab.kill(&lab.calls());
        let port = lab.until_good();
        let calls = lab.calls();
        assert_eq!(calls, [vec![Call::SetPort(near, port)], vec![]]);
        assert!(usize::from(port) >= PATHS, "a port that no path took: {port}");
        assert_eq!(lab.path(0).2, 0);
    }
}

#[test]
fn a_device_that_cannot_gets_a_queue_pair_in_the_place_of_the_old_one_at_both_ends() {
    for seed in 11..16 {
        let mut lab = Lab::new(seed, Manner::Kept);
        let before = lab.calls();
        let alive = lab.ends.each_ref().map(|end| end.device().queue_pairs());
        let [near, far] = lab.kill(&before);
        let port = lab.until_good();
        let calls = lab.calls();
        is_replaced(&calls[0], near, port);
        is_replaced(&calls[1], far, DYING as u16);
        assert!(usize::from(port) >= PATHS, "a port that no path took: {port}");
        let now = lab.ends.each_ref().map(|end| end.device().queue_pairs());
        assert_eq!(now, alive, "as many as before");
        assert_eq!([lab.path(0).2, lab.path(1).2], [1, 1]);
        // The old port is nobody's, and the wire may have it back: nothing changes for that.
        lab.faults.set_transmit(FaultPlan::none());
        lab.run(Nanos::from_secs(3));
        assert_eq!(lab.calls(), [vec![], vec![]]);
    }
}

#[test]
fn a_device_that_refuses_what_it_said_it_could_is_asked_once() {
    for seed in 21..24 {
        let mut lab = Lab::new(seed, Manner::Refuses);
        let [near, far] = lab.kill(&lab.calls());
        lab.run(Nanos::from_secs(5));
        let [ours, theirs] = lab.calls();
        let (first, rest) = ours.split_first().expect("it was asked");
        assert!(matches!(*first, Call::SetPort(qp, _) if qp == near), "{first:?}");
        let (state, port, _) = lab.path(0);
        assert_eq!(state, PathState::Good);
        is_replaced(rest, near, port);
        is_replaced(&theirs, far, DYING as u16);
    }
}
