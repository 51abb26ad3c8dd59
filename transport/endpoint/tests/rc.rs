//! Links over RC: by policy, where there is no UC, and what becomes of them when RC gives up.

mod common;

use common::{LONG, Node, Pair, any_port, drive, pattern};
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{DownReason, Outcome, Side};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};
use towpath_transport::{Carrier, CarrierChoice, Endpoint, EndpointConfig, Event, SendOptions};

type Device = RoceDevice<FaultLink<VirtualLink>>;

fn over(choice: CarrierChoice) -> EndpointConfig {
    EndpointConfig::new().carrier(choice).connect_timeout(LONG)
}

/// Messages over RC on real sockets; chunks taken for lost, and timeouts.
fn over_real_sockets() -> (u64, u64) {
    let mut pair = Pair::new(over(CarrierChoice::Rc));
    let channel = pair.open(true);
    for (token, len) in [(1, 1), (2, 100_000), (3, 3_000_000)] {
        let bytes = pattern(len, token);
        pair.send(channel, &bytes, token);
        let mut got = Vec::new();
        pair.until(|_, server| {
            while let Some(place) = server
                .events
                .iter()
                .position(|event| matches!(event, Event::Message(_) | Event::StreamChunk { .. }))
            {
                match server.events.remove(place) {
                    Event::Message(message) => got.extend(message.to_vec()),
                    Event::StreamChunk { chunk, .. } => got.extend_from_slice(&chunk),
                    _ => {}
                }
            }
            (got.len() == len).then_some(())
        });
        assert!(got == bytes, "message {token}");
        let (outcome, _) = pair.until(|client, _| client.take_sent(token));
        assert_eq!(outcome, Outcome::Delivered);
    }
    let stats = pair.client.endpoint.stats(pair.client_link).expect("it is up");
    assert_eq!(stats.violations, 0, "{stats:?}");
    (stats.losses_by_gap, stats.rtos)
}

#[test]
fn messages_come_back_over_rc_on_real_sockets() {
    // A host that lets this thread wait makes acks late, but not in each of so many runs.
    assert!((0..10).any(|_| over_real_sockets() == (0, 0)), "RC loses nothing");
}

#[test]
fn a_server_that_leaves_the_choice_open_follows_and_one_that_insists_refuses() {
    let pair = Pair::with(over(CarrierChoice::Rc), over(CarrierChoice::Auto));
    assert_eq!(pair.client.endpoint.carrier(), Carrier::Rc);
    let mut client = Node::new(over(CarrierChoice::Rc));
    let mut server = Node::new(over(CarrierChoice::Uc));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    client.endpoint.connect(addr).expect("room for a connection");
    let told = drive(&mut client, &mut server, |client, server| {
        let theirs = server.take(|event| match event {
            Event::AcceptFailed { error, .. } => Some(error.to_string()),
            _ => None,
        });
        let ours = |client: &mut Node| {
            client.take(|event| match event {
                Event::ConnectFailed { error, .. } => Some(error.to_string()),
                _ => None,
            })
        };
        if let Some(theirs) = theirs {
            assert!(theirs.contains("RC") && theirs.contains("UC"), "{theirs}");
        }
        ours(client)
    });
    assert!(told.contains("carrier"), "{told}");
}

/// Two ends in virtual time, over RC.
struct Lab {
    world: World,
    ends: [Endpoint<Device>; 2],
    links: [towpath_transport::LinkId; 2],
    controls: [FaultControl; 2],
    /// Until then a host has no processor.
    away_until: [Time; 2],
}

/// With a peer that is away for `late` when its half is to be joined.
fn lab_with(seed: u64, shared: bool, late: Nanos) -> Lab {
    let world = World::new(seed);
    let (near, far) = world.link(&LinkConfig::default());
    let controls = [(); 2].map(|()| FaultControl::new(FaultPlan::none()));
    let config = EndpointConfig::new()
        .carrier(CarrierChoice::Rc)
        .shared_receiving(shared)
        .quota_chunks(32)
        .credit_total(64)
        .links_max(1)
        .send_pools(&[(64 << 10, 64)]);
    let end = |link, number: u64, control: &FaultControl| {
        let link = FaultLink::new(link, seed ^ number, control.clone());
        let device = RoceDevice::new(link, RoceConfig::default().seed(seed << 1 | number));
        Endpoint::new(device, config.clone().seed(seed << 9 | number)).expect("an endpoint")
    };
    let mut ends = [end(near, 0, &controls[0]), end(far, 1, &controls[1])];
    let [near, far] = &mut ends;
    let (near_hello, near_half) = near.offer().expect("room");
    let (far_hello, far_half) = far.offer().expect("room");
    let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");
    let end = world.now() + late;
    let is_late = late > Nanos::ZERO;
    if is_late {
        far.open_channel(far_link, true).expect("room");
    }
    while world.now() < end {
        far.turn(|_, event| assert!(!matches!(event, Event::LinkDown { .. }), "{event:?}"));
        world.advance_to(world.now() + Nanos::from_millis(1));
    }
    let near_link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
    let mut lab =
        Lab { world, ends, links: [near_link, far_link], controls, away_until: [Time::ZERO; 2] };
    if is_late {
        lab.until_open();
    }
    lab
}

fn lab(seed: u64, shared: bool) -> Lab {
    lab_with(seed, shared, Nanos::ZERO)
}

impl Lab {
    /// Turns both until `on_event` says that it is done; true unless nothing happened up to `end`.
    fn run(
        &mut self,
        end: Time,
        mut on_event: impl FnMut(usize, &mut Endpoint<Device>, Event) -> bool,
    ) -> bool {
        let mut done = false;
        while !done {
            let mut busy = false;
            for (number, endpoint) in self.ends.iter_mut().enumerate() {
                if self.world.now() < self.away_until[number] {
                    continue;
                }
                busy |= endpoint.turn(|at, event| done |= on_event(number, at, event));
            }
            if busy {
                continue;
            }
            let due = |number: usize| {
                let (end, away_until) = (&self.ends[number], self.away_until[number]);
                let held = end.device().link().next_release().unwrap_or(Time::NEVER);
                let is_away = self.world.now() < away_until;
                if is_away { away_until } else { held.min(end.next_timeout()) }
            };
            let travels = self.world.next_event_time().unwrap_or(Time::NEVER);
            let next = due(0).min(due(1)).min(travels);
            if next > end {
                return false;
            }
            self.world.advance_to(next.max(self.world.now() + Nanos(1)));
        }
        true
    }

    fn open(&mut self) -> towpath_proto::ChannelId {
        let channel = self.ends[0].open_channel(self.links[0], true).expect("room");
        self.until_open();
        channel
    }

    fn until_open(&mut self) {
        let (mut ends, limit) = (0, self.world.now() + Nanos::from_secs(60));
        assert!(self.run(limit, |_, _, event| {
            ends += u32::from(matches!(event, Event::ChannelOpened { .. }));
            ends == 2
        }));
    }
}

/// What a host may be away for and come back to its links.
const AWAY: Nanos = Nanos::from_secs(5);

/// Has one end send while `who` is away for a while; how the messages ended, and why the link did.
fn sent_while_away(seed: u64, shared: bool, who: usize) -> (Vec<Outcome>, Option<DownReason>) {
    let mut lab = lab(seed, shared);
    let (channel, link) = (lab.open(), lab.links[0]);
    for token in 0..40 {
        let buf = lab.ends[0].copy(&pattern(30_000, token)).expect("a free buffer");
        let sent = lab.ends[0].send(link, channel, buf, SendOptions::new().token(token));
        sent.expect("an open channel");
    }
    lab.ends[0].turn(|_, _| {});
    lab.away_until[who] = lab.world.now() + AWAY;
    let (mut outcomes, mut down) = (Vec::new(), None);
    let limit = lab.world.now() + LONG;
    lab.run(limit, |_, _, event| {
        match event {
            Event::Sent { outcome, .. } => outcomes.push(outcome),
            Event::LinkDown { reason, .. } => down = Some(reason),
            _ => {}
        }
        outcomes.len() == 40 || down.is_some()
    });
    (outcomes, down)
}

#[test]
fn a_host_that_is_away_for_seconds_costs_no_message() {
    for (seed, shared) in [(1, true), (2, false)] {
        for who in 0..2 {
            let (outcomes, down) = sent_while_away(seed, shared, who);
            assert_eq!(down, None, "seed {seed}: host {who} away, {outcomes:?}");
            assert_eq!(outcomes, [Outcome::Delivered; 40], "seed {seed}: host {who} away");
        }
    }
}

#[test]
fn a_peer_that_joins_its_half_seconds_late_is_waited_for() {
    for (seed, shared) in [(1, true), (2, false)] {
        let mut lab = lab_with(seed, shared, AWAY);
        lab.open();
    }
}

#[test]
fn rc_makes_good_what_the_wire_loses_and_the_link_sends_nothing_again() {
    for (seed, shared) in [(1, true), (2, false), (3, true)] {
        let mut lab = lab(seed, shared);
        let channel = lab.open();
        let us = Nanos::from_micros;
        let plan = FaultPlan::none().drop(0.01).duplicate(0.01, us(100)).reorder(0.01, 4, us(50));
        lab.controls.iter().for_each(|control| control.set_receive(plan.clone()));
        let link = lab.links[0];
        let (mut next, mut delivered, mut received) = (0u64, 0, Vec::new());
        let send = |at: &mut Endpoint<Device>, token: u64| {
            let bytes = pattern(1_000 + 997 * token as usize % 50_000, token);
            let buf = at.copy(&bytes).expect("a free buffer");
            at.send(link, channel, buf, SendOptions::new().token(token)).expect("open");
        };
        while next < 16 {
            send(&mut lab.ends[0], next);
            next += 1;
        }
        let all = 200;
        assert!(
            lab.run(Time(60_000_000_000), |_, at, event| {
                match event {
                    Event::Sent { outcome, .. } => {
                        assert_eq!(outcome, Outcome::Delivered);
                        delivered += 1;
                        if next < all {
                            send(at, next);
                            next += 1;
                        }
                    }
                    Event::Message(message) => {
                        let token = received.len() as u64;
                        let bytes = pattern(1_000 + 997 * token as usize % 50_000, token);
                        assert!(message.to_vec() == bytes, "seed {seed}: message {token}");
                        received.push(token);
                    }
                    Event::LinkDown { reason, .. } => panic!("seed {seed}: {reason:?}"),
                    _ => {}
                }
                delivered == all && received.len() as u64 == all
            }),
            "seed {seed}: stuck with {delivered} delivered of {all}"
        );
        let stats = lab.ends[0].stats(link).expect("it is up");
        assert_eq!((stats.chunks_retransmitted, stats.rtos), (0, 0), "seed {seed}: {stats:?}");
        assert_eq!(lab.ends[1].stats(lab.links[1]).expect("up").chunks_duplicate, 0);
    }
}

#[test]
fn a_queue_pair_that_gives_up_ends_its_link_with_every_message_and_buffer() {
    for (seed, shared) in [(1, true), (2, false)] {
        let mut lab = lab(seed, shared);
        let channel = lab.open();
        lab.controls.iter().for_each(|c| c.set_receive(FaultPlan::none().black_hole(true)));
        let link = lab.links[0];
        for token in 0..40 {
            let buf = lab.ends[0].copy(&pattern(30_000, token)).expect("a free buffer");
            let sent = lab.ends[0].send(link, channel, buf, SendOptions::new().token(token));
            sent.expect("an open channel");
        }
        let (mut outcomes, mut down) = (0, None);
        // Before the silence that ends any link.
        assert!(lab.run(Time(9_000_000_000), |number, _, event| {
            match event {
                Event::Sent { outcome, .. } => {
                    assert_ne!(outcome, Outcome::Delivered);
                    outcomes += 1;
                }
                Event::LinkDown { reason, .. } if number == 0 => down = Some(reason),
                _ => {}
            }
            down.is_some()
        }));
        assert_eq!((outcomes, down), (40, Some(DownReason::PathsFailed)), "seed {seed}");
        for _ in 0..4 {
            lab.ends[0].turn(|_, _| {});
        }
        let census = lab.ends[0].buffers();
        assert_eq!(census.send_free, census.send_all, "seed {seed}");
        assert_eq!(census.recv_free + census.recv_posted, census.recv_all, "seed {seed}");
    }
}
