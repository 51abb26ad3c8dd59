//! One-sided operations by messages, with peers that break the rules.

use super::*;
use crate::config::EndpointConfig;
use crate::endpoint::joined::{End, Joined, joined};
use crate::event::Event;
use towpath_proto::{DownReason, GrantId, Rights};
use towpath_sim::World;

struct Lab {
    world: World,
    near: End,
    far: End,
    link: LinkId,
    far_link: LinkId,
    memory: SharedMemory,
    grant: GrantId,
}

impl Lab {
    /// The far end has granted a page, and the near end has asked for something once.
    fn new() -> Self {
        let pair = joined(&EndpointConfig::new().links_max(1).lanes_by_messages(true));
        let Joined { world, near, mut far, near_link: link, far_link } = pair;
        let memory = SharedMemory::new(4096).expect("memory for a test");
        let grant = far.grant(far_link, &memory, 8..4096, Rights::READ).expect("room");
        let mut lab = Self { world, near, far, link, far_link, memory, grant };
        lab.until(|event| matches!(event, Event::Granted { .. }));
        let place = crate::lane::Place { link, grant, offset: 0 };
        let buf = lab.near.alloc(8).expect("a free buffer");
        lab.near.read(place, 8, buf, crate::lane::OpOptions::new()).expect("allowed");
        lab.until(|event| matches!(event, Event::OpDone { .. }));
        lab
    }

    fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Event {
        for _ in 0..10_000 {
            let mut found = None;
            for end in [&mut self.near, &mut self.far] {
                end.turn(|_, event| found = found.take().or(Some(event).filter(&is_it)));
            }
            if let Some(event) = found {
                return event;
            }
            self.world.advance_to(self.world.now() + towpath_base::Nanos::from_micros(10));
        }
        panic!("it does not come");
    }

    /// Says something on the channel of the lane that the application of no end could say.
    fn say(&mut self, bytes: &[u8]) {
        let lane = self.near.links.find(self.link).and_then(|conn| conn.lane.as_ref());
        let (channel, _) = lane.and_then(|lane| lane.talk.ours).expect("it was opened");
        let buf = self.near.copy(bytes).expect("a free buffer");
        self.near.send_unseen(self.link, channel, buf, SendOptions::new()).expect("there is room");
    }
}

#[test]
fn what_is_no_request_ends_the_link_and_is_counted() {
    let request =
        LaneRequest { number: 9, kind: OpKind::Read, grant: GrantId(1), offset: 0, length: 8 };
    let mut unknown = request.emit();
    unknown[0] = 77;
    for bytes in [&[1; 7][..], &request.emit()[..39], &[0; 40], &unknown] {
        let mut lab = Lab::new();
        lab.say(bytes);
        let event = lab.until(|event| matches!(event, Event::LinkDown { .. }));
        let Event::LinkDown { link, reason } = event else { unreachable!() };
        assert_eq!((link, reason), (lab.far_link, DownReason::Local));
        assert_eq!(lab.far.endpoint_stats().lane_breaches, 1);
    }
}

#[test]
fn an_answer_to_what_nobody_asked_for_ends_the_link() {
    let mut lab = Lab::new();
    // The far end answers a request that the near end did not note.
    let kind = OpKind::Read;
    let request = LaneRequest { number: 9, kind, grant: GrantId(1), offset: 0, length: 8 };
    lab.say(&request.emit());
    let event = lab.until(|event| matches!(event, Event::LinkDown { .. }));
    assert!(matches!(event, Event::LinkDown { link, .. } if link == lab.link));
    assert_eq!(lab.near.endpoint_stats().lane_breaches, 1);
}

/// Requests that are never answered, as far as the peer can tell.
fn ask_in_vain(lab: &mut Lab, count: usize) -> Vec<Event> {
    let lane = lab.near.links.lane_mut(lab.link).expect("it is joined");
    let (channel, _) = lane.talk.ours.take().expect("it was opened");
    let kind = OpKind::Read;
    let (mut sent, mut kept, mut quiet) = (0, Vec::new(), 0);
    while quiet < 2_000 {
        while sent < count && lab.near.links.up(lab.link).is_some_and(|state| state.has_room()) {
            let number = sent as u64;
            let request = LaneRequest { number, kind, grant: lab.grant, offset: 0, length: 8 };
            let buf = lab.near.copy(&request.emit()).expect("a free buffer");
            lab.near.send_unseen(lab.link, channel, buf, SendOptions::new());
            sent += 1;
        }
        let near = lab.near.turn(|_, event| kept.push(event));
        quiet = if near | lab.far.turn(|_, _| {}) { 0 } else { quiet + 1 };
        lab.world.advance_to(lab.world.now() + towpath_base::Nanos::from_micros(10));
    }
    kept
}

#[test]
fn a_peer_that_takes_no_answers_holds_its_share_of_the_buffers_and_not_for_ever() {
    let mut lab = Lab::new();
    // The answers come as messages of the application, which keeps them and so gives no credit.
    let kept = ask_in_vain(&mut lab, 3 * LANE_BUFS);
    let bufs = lab.far.lanes.bufs.clone().expect("it has answered");
    let (held, free) = (bufs.held_by(lab.far_link.index()), bufs.free());
    assert!(held > LANE_BUFS / 4 && free > LANE_BUFS / 2, "{held} held, {free} free");
    lab.world.advance_to(lab.world.now() + LANE_ANSWER_WAIT);
    let is_over = |lab: &Lab| {
        let lane = lab.far.links.find(lab.far_link).and_then(|conn| conn.lane.as_ref());
        lane.is_some_and(|lane| lane.talk.theirs.is_none() && lane.talk.waiting.is_empty())
    };
    for _ in 0..10_000 {
        lab.near.turn(|_, event| drop(event));
        lab.far.turn(|_, _| {});
        lab.world.advance_to(lab.world.now() + towpath_base::Nanos::from_micros(100));
    }
    assert!(is_over(&lab), "its channel is closed");
    assert_eq!((bufs.free(), bufs.held_by(lab.far_link.index())), (LANE_BUFS, 0));
    assert_eq!(lab.far.endpoint_stats().lane_breaches, 0);
    drop(kept);
}

#[test]
fn a_lane_where_nothing_is_granted_gets_no_channel_and_nothing_at_the_device() {
    let pair = joined(&EndpointConfig::new().links_max(1).lanes_by_messages(true));
    let Joined { world, mut near, mut far, near_link, far_link } = pair;
    let state = near.links.up(near_link).expect("it is up");
    let channel = state.open_lane_channel().expect("room");
    near.links.touch(near_link.index);
    let mut refused = None;
    for _ in 0..10_000 {
        near.turn(|_, event| refused = refused.take().or(Some(event)));
        far.turn(|_, event| panic!("its application hears of nothing: {event:?}"));
        world.advance_to(world.now() + towpath_base::Nanos::from_micros(10));
    }
    let Some(Event::ChannelClosed { channel: closed, reason, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((closed, reason), (channel, towpath_proto::CloseReason::Refused(3)));
    assert!(far.lane(far_link).is_none(), "nothing was made for it");
}

#[test]
fn operations_that_the_peer_refuses_end_as_not_executed() {
    let mut lab = Lab::new();
    // As a peer does that has taken back all it had granted, before this end hears of it.
    let lane = lab.far.links.lane_mut(lab.far_link).expect("it has granted");
    lane.grants.clear();
    let theirs = lane.talk.theirs.expect("it was opened");
    lab.far.links.up(lab.far_link).expect("up").close_channel(theirs).expect("it is open");
    lab.far.links.touch(lab.far_link.index);
    let place = crate::lane::Place { link: lab.link, grant: lab.grant, offset: 0 };
    let mut refused = 0;
    for _ in 0..3 {
        let buf = lab.near.alloc(8).expect("a free buffer");
        lab.near.read(place, 8, buf, crate::lane::OpOptions::new()).expect("allowed");
        let event = lab.until(|event| matches!(event, Event::OpDone { .. }));
        let Event::OpDone { outcome, .. } = event else { unreachable!() };
        refused += usize::from(outcome == towpath_proto::OpOutcome::NotExecuted);
    }
    assert_eq!(refused, 3);
}

#[test]
fn a_lane_has_credit_where_the_application_has_opened_all_channels() {
    let config = EndpointConfig::new().links_max(1).lanes_by_messages(true);
    let pair = joined(&config.quota_chunks(8).credit_total(16));
    let Joined { world, mut near, mut far, near_link: link, far_link } = pair;
    for _ in 0..2 {
        near.open_channel(link, false).expect("credit for two");
    }
    assert!(near.open_channel(link, false).is_err());
    let memory = SharedMemory::new(4096).expect("memory for a test");
    let grant = far.grant(far_link, &memory, 0..64, Rights::READ).expect("room");
    let mut lab = Lab { world, near, far, link, far_link, memory, grant };
    lab.until(|event| matches!(event, Event::Granted { .. }));
    let place = crate::lane::Place { link, grant, offset: 0 };
    let buf = lab.near.alloc(8).expect("a free buffer");
    lab.near.read(place, 8, buf, crate::lane::OpOptions::new()).expect("allowed");
    let event = lab.until(|event| matches!(event, Event::OpDone { .. }));
    let executed = towpath_proto::OpOutcome::Executed;
    assert!(matches!(event, Event::OpDone { outcome, .. } if outcome == executed), "{event:?}");
}

#[test]
fn a_request_reaches_what_was_granted_and_nothing_beside_it() {
    let lab = Lab::new();
    let lane = lab.far.links.find(lab.far_link).and_then(|conn| conn.lane.as_ref());
    let lane = lane.expect("it was made");
    let reach = |kind, grant, offset, length| {
        let request = LaneRequest { number: 0, kind, grant, offset, length };
        lane.reach(&request).map(|(memory, at)| (memory.addr() - lab.memory.addr(), at))
    };
    let read = |offset, length| reach(OpKind::Read, lab.grant, offset, length);
    assert_eq!(read(0, 8), Some((0, 8)));
    assert_eq!(read(4087, 1), Some((0, 4095)));
    for (offset, length) in [(4088, 1), (4087, 2), (0, 4089), (u32::MAX, 1), (u32::MAX, 9)] {
        assert_eq!(read(offset, length), None, "{offset} {length}");
    }
    assert_eq!(reach(OpKind::Read, GrantId(lab.grant.0 + 1), 0, 8), None);
    for kind in [
        OpKind::Write,
        OpKind::WriteWord { value: 1 },
        OpKind::FetchAdd { add: 1 },
        OpKind::CmpSwap { compare: 0, swap: 1 },
    ] {
        assert_eq!(reach(kind, lab.grant, 0, 8), None, "{kind:?} of what may be read");
    }
}
