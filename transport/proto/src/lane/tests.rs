//! The lane by itself: grants, lives, and what becomes of operations.

use super::*;
use crate::config::{LinkConfig, PeerParams, Side};
use crate::flow::Flow;
use crate::limits::{LANE_GRANTS_MAX, LANE_RETRY_FIRST, LANE_RETRY_LONGEST};
use alloc::vec;
use alloc::vec::Vec;
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_verbs::{Mtu, QpNum, SendOp};

/// The key of memory that the peer grants.
const RKEY: u32 = 9;

fn half(qp_num: u32) -> LaneHalf {
    LaneHalf { qp_num: QpNum(qp_num), psn: Psn::new(1), rd_atomic: 4 }
}

fn way(qp_num: u32) -> LaneWay {
    LaneWay::QueuePair(half(qp_num))
}

/// A lane whose peer has granted 4,096 bytes as number 1, with a queue pair that is joined.
fn joined() -> Lane {
    let mut lane = Lane::new();
    assert!(lane.on_grant(1 | 7 << 29, (0x1000, 4096), RKEY));
    let grant = Grant { id: GrantId(1), byte_len: 4096, rights: Rights::ALL };
    assert_eq!(lane.poll_event(), Some(LaneEvent::Granted(grant)));
    join(&mut lane, 1);
    lane
}

fn peer() -> PeerParams {
    PeerParams {
        mtu: Mtu::Mtu4096,
        chunk_bytes_max: 4096,
        charge_bytes: 0,
        window_bytes: 1 << 20,
        path_chunks: 64,
        generations: vec![(1, 2)],
        carriers: vec![crate::Carrier::Uc],
        control_generations: (3, 4),
    }
}

fn join(lane: &mut Lane, life: u32) {
    lane.on_told(Time::ZERO, life, way(20 + life));
    assert_eq!(lane.poll_step(Time(u64::MAX - 1)), Some(LaneStep::Make));
    assert_eq!(lane.on_made(way(10)), Some(life));
    lane.on_told_acked(life);
    let step = LaneStep::Join { theirs: half(20 + life), rd_atomic: 4 };
    assert_eq!(lane.poll_step(Time::ZERO), Some(step));
}

fn request(kind: OpKind, token: u64) -> OpRequest {
    let length = if matches!(kind, OpKind::Read | OpKind::Write) { 64 } else { 8 };
    OpRequest { kind, grant: GrantId(1), offset: 8, length, token, ..OpRequest::default() }
}

fn posted(lane: &mut Lane) -> Vec<OpPost> {
    core::iter::from_fn(|| lane.poll_op(Time(1), |_| Ok(()))).collect()
}

fn ended(lane: &mut Lane) -> Vec<(u64, OpOutcome)> {
    core::iter::from_fn(|| lane.poll_event())
        .map(|event| match event {
            LaneEvent::OpDone { token, outcome, .. } => (token, outcome),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn an_operation_is_posted_at_the_address_of_its_grant() {
    let mut lane = joined();
    let key = lane.submit(&request(OpKind::FetchAdd { add: 5 }, 1)).unwrap();
    let [post] = posted(&mut lane)[..] else { panic!("one") };
    let remote = towpath_verbs::RemoteAddr { addr: 0x1008, rkey: 9 };
    assert_eq!((post.key, post.op), (key, SendOp::FetchAdd { remote, add: 5 }));
    lane.on_op_done(key, OpEnd::Done);
    assert_eq!(ended(&mut lane), [(1, OpOutcome::Executed)]);
    assert_eq!(lane.live(), 0);
}

#[test]
fn no_more_are_posted_that_are_answered_than_both_ends_keep() {
    let mut lane = joined();
    for token in 0..10 {
        lane.submit(&request(OpKind::Read, token)).unwrap();
    }
    let first = posted(&mut lane);
    assert_eq!(first.len(), 4);
    lane.on_op_done(first[0].key, OpEnd::Done);
    assert_eq!(posted(&mut lane).len(), 1);
}

#[test]
fn what_is_lost_goes_again_in_its_order_but_for_atomics() {
    let mut lane = joined();
    let kinds = [
        OpKind::Write,
        OpKind::FetchAdd { add: 1 },
        OpKind::WriteWord { value: 3 },
        OpKind::Read,
        OpKind::CmpSwap { compare: 1, swap: 2 },
    ];
    for (kind, token) in kinds.into_iter().zip(0..) {
        lane.submit(&request(kind, token)).unwrap();
    }
    let keys: Vec<_> = posted(&mut lane).iter().map(|post| post.key).collect();
    assert_eq!(keys.len(), 5);
    lane.submit(&request(OpKind::Read, 9)).unwrap();
    lane.on_failed(Time(5));
    for &key in &keys {
        lane.on_op_done(key, OpEnd::Lost);
    }
    assert_eq!(ended(&mut lane), [(1, OpOutcome::Unknown), (4, OpOutcome::Unknown)]);
    assert_eq!(posted(&mut lane), [], "not before the peer has shown that its half is gone");
    join(&mut lane, 2);
    let again: Vec<_> = posted(&mut lane).iter().map(|post| post.kind).collect();
    assert_eq!(again, [kinds[0], kinds[2], OpKind::Read, OpKind::Read]);
}

#[test]
fn what_is_lost_twice_goes_before_what_was_asked_for_later() {
    let mut lane = joined();
    for token in 0..6 {
        lane.submit(&request(OpKind::Read, token)).unwrap();
    }
    let tokens =
        |posts: &[OpPost]| -> Vec<usize> { posts.iter().map(|post| post.key.index()).collect() };
    // Four at a time: two have never been posted when those are lost, in whatever order.
    let first = posted(&mut lane);
    assert_eq!(tokens(&first), [0, 1, 2, 3]);
    lane.on_failed(Time(5));
    for post in first.iter().rev() {
        lane.on_op_done(post.key, OpEnd::Lost);
    }
    join(&mut lane, 2);
    let one = lane.poll_op(Time(6), |_| Ok(())).expect("it goes again");
    assert_eq!(one.key, first[0].key);
    lane.on_failed(Time(7));
    lane.on_op_done(one.key, OpEnd::Lost);
    join(&mut lane, 3);
    assert_eq!(tokens(&posted(&mut lane)), [0, 1, 2, 3]);
}

#[test]
fn a_write_that_was_lost_and_is_then_denied_may_have_happened() {
    let mut lane = joined();
    let keys = [OpKind::Write, OpKind::WriteWord { value: 3 }, OpKind::Read]
        .map(|kind| lane.submit(&request(kind, 1)).unwrap());
    assert_eq!(posted(&mut lane).len(), 3);
    lane.on_failed(Time(5));
    for &key in &keys {
        lane.on_op_done(key, OpEnd::Lost);
    }
    join(&mut lane, 2);
    let again = lane.poll_op(Time(6), |_| Ok(())).expect("it goes again");
    lane.on_op_done(again.key, OpEnd::Refused);
    assert_eq!(ended(&mut lane), [(1, OpOutcome::Unknown)], "a word, or a part of a range");
    assert!(lane.on_revoke(1));
    assert_eq!(lane.poll_event(), Some(LaneEvent::Revoked(GrantId(1))));
    assert_eq!(posted(&mut lane), []);
    let denied = OpOutcome::Denied(Denied::Revoked);
    assert_eq!(ended(&mut lane), [(1, OpOutcome::Unknown), (1, denied)], "a READ changes nothing");
}

#[test]
fn a_refusal_denies_one_and_loses_those_behind_it() {
    let mut lane = joined();
    let [refused, behind] =
        [1, 2].map(|token| lane.submit(&request(OpKind::FetchAdd { add: 1 }, token)).unwrap());
    assert_eq!(posted(&mut lane).len(), 2);
    lane.on_op_done(refused, OpEnd::Refused);
    lane.on_op_done(behind, OpEnd::Lost);
    let denied = OpOutcome::Denied(Denied::Device);
    assert_eq!(ended(&mut lane), [(1, denied), (2, OpOutcome::Unknown)]);
}

#[test]
fn what_is_late_ends_as_what_it_was() {
    let mut lane = joined();
    let late = |kind, token| OpRequest { deadline: Time(100), ..request(kind, token) };
    let posted_one = lane.submit(&late(OpKind::Write, 1)).unwrap();
    assert_eq!(posted(&mut lane).len(), 1);
    lane.on_failed(Time(50));
    lane.on_op_done(posted_one, OpEnd::Lost);
    lane.submit(&late(OpKind::Write, 2)).unwrap();
    lane.submit(&late(OpKind::Read, 3)).unwrap();
    assert_eq!(lane.due(), Time(50), "the queue pair is made anew at once");
    lane.on_timeout(Time(100));
    let unknown = (1, OpOutcome::Unknown);
    assert_eq!(
        ended(&mut lane),
        [unknown, (2, OpOutcome::NotExecuted), (3, OpOutcome::NotExecuted)]
    );
}

#[test]
fn what_is_posted_ends_with_the_link_when_the_device_has_let_go() {
    let mut lane = joined();
    let key = lane.submit(&request(OpKind::FetchAdd { add: 1 }, 1)).unwrap();
    assert_eq!(posted(&mut lane).len(), 1);
    lane.submit(&request(OpKind::Write, 2)).unwrap();
    lane.end_all();
    assert_eq!(ended(&mut lane), [(2, OpOutcome::NotExecuted)]);
    lane.on_op_done(key, OpEnd::Lost);
    assert_eq!(ended(&mut lane), [(1, OpOutcome::Unknown)]);
}

#[test]
fn a_revocation_that_comes_first_is_remembered_and_floods_are_refused() {
    let mut lane = joined();
    assert!(lane.on_revoke(7));
    assert!(lane.on_grant(7, (0, 64), RKEY), "what was revoked is not told");
    assert_eq!(lane.poll_event(), None);
    assert!(!lane.on_grant(1, (0, 64), RKEY), "a number is used once");
    assert!(!lane.on_grant(8, (u64::MAX, 64), RKEY), "beyond all memory");
    assert!(!lane.on_grant(9, (0, 0), RKEY), "of no bytes");
    for id in 0..LANE_GRANTS_MAX as u32 {
        assert!(lane.on_revoke(100 + id));
    }
    assert!(!lane.on_revoke(99));
    lane.submit(&request(OpKind::Read, 1)).unwrap();
    assert!(lane.on_revoke(1));
    assert_eq!(lane.poll_event(), Some(LaneEvent::Revoked(GrantId(1))));
    assert_eq!(posted(&mut lane), []);
    assert_eq!(ended(&mut lane), [(1, OpOutcome::Denied(Denied::Revoked))]);
    assert_eq!(lane.submit(&request(OpKind::Read, 1)), Err(OpError::NoSuchGrant));
}

#[test]
fn both_ends_come_to_the_same_life_whoever_fails() {
    let (mut a, mut b) = (Lane::new(), Lane::new());
    let now = Time::ZERO;
    let make = |lane: &mut Lane, at| {
        assert_eq!(lane.poll_step(at), Some(LaneStep::Make));
        lane.on_made(way(1)).expect("it was asked for")
    };
    a.grant(now, Rights::ALL).unwrap();
    assert!(b.on_grant(1 | 7 << 29, (0x1000, 4096), RKEY));
    let first = make(&mut a, now);
    assert_eq!(first, 1);
    b.on_told(now, first, way(1));
    assert_eq!(make(&mut b, now), 1);
    assert!(matches!(b.poll_step(now), Some(LaneStep::Join { .. })));
    a.on_told(now, 1, way(1));
    assert!(matches!(a.poll_step(now), Some(LaneStep::Join { .. })));
    // Both fail at once, and tell each other.
    assert!(a.on_failed(now) && b.on_failed(now) && !a.on_failed(now));
    let (of_a, of_b) = (make(&mut a, now), make(&mut b, now));
    assert_eq!((of_a, of_b), (2, 2));
    a.on_told(now, of_b, way(1));
    a.on_told(now, 1, way(9));
    b.on_told(now, of_a, way(1));
    assert!(matches!(a.poll_step(now), Some(LaneStep::Join { .. })));
    assert!(matches!(b.poll_step(now), Some(LaneStep::Join { .. })));
    // Those who fail again and again wait.
    let mut at = now;
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert!(a.on_failed(at));
        waits.push(a.due().since(at));
        at = a.due();
        make(&mut a, at);
    }
    assert_eq!(waits[0], LANE_RETRY_FIRST, "the first failure was not waited for");
    assert!(waits.is_sorted() && waits[11] == LANE_RETRY_LONGEST, "{waits:?}");
    assert!(waits[1] > Nanos::ZERO);
}

#[test]
fn without_a_queue_pair_at_either_end_operations_go_by_messages_and_nothing_holds_them_back() {
    for (ours, theirs) in [
        (LaneWay::Messages, way(20)),
        (way(10), LaneWay::Messages),
        (LaneWay::Messages, LaneWay::Messages),
    ] {
        let mut lane = joined();
        lane.on_failed(Time(1));
        lane.on_told(Time(1), 2, theirs);
        assert_eq!(lane.poll_step(Time(u64::MAX - 1)), Some(LaneStep::Make));
        assert_eq!(lane.on_made(ours), Some(2));
        assert_eq!(lane.poll_step(Time(2)), None, "there is nothing to connect");
        assert!(!lane.is_by_messages(), "the peer does not know yet");
        lane.on_told_acked(2);
        assert!(lane.is_by_messages());
        for token in 0..10 {
            lane.submit(&request(OpKind::Read, token)).unwrap();
        }
        let all = posted(&mut lane);
        assert_eq!(all.len(), 10);
        assert_eq!((all[0].grant, all[0].offset), (GrantId(1), 8));
        for post in &all {
            lane.on_op_done(post.key, OpEnd::Done);
        }
        assert_eq!(ended(&mut lane).len(), 10);
    }
}

#[test]
fn a_lane_that_went_by_messages_gets_a_queue_pair_again_when_its_driver_says_so() {
    let mut lane = joined();
    lane.renew(Time(1));
    assert_eq!(lane.poll_step(Time(1)), None, "it has one");
    lane.on_failed(Time(1));
    lane.on_told(Time(1), 2, way(20));
    assert_eq!(lane.poll_step(Time(u64::MAX - 1)), Some(LaneStep::Make));
    assert_eq!(lane.on_made(LaneWay::Messages), Some(2));
    assert_eq!(lane.poll_step(Time(2)), None);
    lane.on_told_acked(2);
    lane.renew(Time(3));
    assert!(!lane.is_by_messages());
    join(&mut lane, 3);
    lane.submit(&request(OpKind::Read, 1)).unwrap();
    assert_eq!(posted(&mut lane).len(), 1);
}

#[test]
fn operations_are_counted_by_how_they_end_and_refusals_beside_them() {
    let mut lane = joined();
    let add = |token| request(OpKind::FetchAdd { add: 1 }, token);
    for token in 0..4 {
        lane.submit(&add(token)).expect("room");
    }
    let keys: Vec<OpKey> = posted(&mut lane).iter().map(|post| post.key).collect();
    for (&key, end) in keys.iter().zip([OpEnd::Done, OpEnd::Refused, OpEnd::Lost, OpEnd::Done]) {
        lane.on_op_done(key, end);
    }
    lane.submit(&OpRequest { deadline: Time(3), ..add(4) }).expect("room");
    lane.on_timeout(Time(3));
    assert!(lane.submit(&OpRequest { grant: GrantId(2), ..add(5) }).is_err());
    assert!(lane.submit(&OpRequest { offset: 4096, ..add(6) }).is_err());
    let counts = OpCounts { executed: 2, denied: 1, not_executed: 1, unknown: 1, refused: 2 };
    assert_eq!(lane.counts(), counts);
    assert_eq!(ended(&mut lane).len(), 5, "each is told once, refusals are not");
}

#[test]
fn grants_that_overtake_the_revocations_that_made_room_for_them_are_known() {
    let mut grants = Grants::default();
    let all = LANE_GRANTS_MAX as u32;
    (1..=all).for_each(|id| assert!(grants.on_grant(id | 1 << 29, (0x1000, 8), RKEY).is_ok()));
    // Its owner has revoked as many before; a correct peer is never so far ahead.
    let window = crate::limits::CONTROL_WINDOW as u32;
    for id in all + 1..=all + window {
        assert!(grants.on_grant(id | 1 << 29, (0x1000, 8), RKEY).is_ok(), "grant {id}");
    }
    assert!(grants.on_grant((all + window + 1) | 1 << 29, (0x1000, 8), RKEY).is_err());
    (1..=window).for_each(|id| assert_eq!(grants.on_revoke(id), Ok(true)));
}

#[test]
fn operations_that_the_peer_refuses_end_as_not_executed_unless_they_may_have_been() {
    let mut lane = joined();
    let write = lane.submit(&request(OpKind::Write, 1)).unwrap();
    assert_eq!(posted(&mut lane).len(), 1);
    lane.on_op_done(write, OpEnd::Lost);
    lane.submit(&request(OpKind::Read, 2)).unwrap();
    lane.submit(&request(OpKind::FetchAdd { add: 1 }, 3)).unwrap();
    lane.refuse();
    let mut ended = ended(&mut lane);
    ended.sort_by_key(|&(token, _)| token);
    let not = OpOutcome::NotExecuted;
    assert_eq!(ended, [(1, OpOutcome::Unknown), (2, not), (3, not)]);
    assert!(posted(&mut lane).is_empty());
}

#[test]
fn what_a_peer_says_of_a_lane_makes_nothing_before_something_is_granted() {
    let mut lane = Lane::new();
    lane.on_told(Time::ZERO, 1, way(21));
    assert_eq!((lane.poll_step(Time(1)), lane.due()), (None, Time::NEVER));
    assert!(lane.on_grant(1 | 7 << 29, (0x1000, 4096), RKEY));
    assert_eq!(lane.poll_step(Time(1)), Some(LaneStep::Make));
}

/// WRITEs that are posted at once where chunks have so many bytes under way.
fn posted_beside(beside_bytes: u64) -> usize {
    let mut lane = joined();
    let config = LinkConfig::new(Side::Client).controller("fixed:1440B".parse().unwrap());
    let mut flow = Flow::new(&config, &peer(), Time::ZERO);
    flow.in_flight_bytes = beside_bytes;
    for token in 0..20 {
        lane.submit(&request(OpKind::Write, token)).unwrap();
    }
    core::iter::from_fn(|| lane.poll_op(Time(1), |charge| flow.post_operation(Time(1), charge)))
        .count()
}

#[test]
fn operations_and_chunks_of_a_link_share_one_window_and_neither_takes_all_of_it() {
    // Each counts its 64 bytes and a header's 80.
    assert_eq!([0, 288, 1_440, u64::MAX].map(posted_beside), [10, 8, 5, 5]);
}
