//! A worker without a thread: one thread drives it, the peer and the applications, in virtual time.

mod futures;
mod giving_up;
mod lane;
mod pressure;
mod rig;
mod unseen;

use rig::{NOW, lab};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use towpath_handle::{CompletionQueue, Incoming, Opening, RecvError};
use towpath_proto::{CloseReason, Outcome};
use towpath_transport::{ChannelError, SendOptions, SubmitError};

#[test]
fn nothing_moves_but_in_turns_and_then_all_arrives_in_order() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let done = CompletionQueue::new(300);
    for number in 0..100u32 {
        let buf = mine.copy(&number.to_le_bytes()).expect("a buffer");
        mine.post(buf, SendOptions::new().token(number.into()), &done).expect("room");
    }
    assert!(done.poll().is_none() && done.under_way() == 100, "nobody has had a turn");
    lab.run();
    for number in 0..100u32 {
        let sent = done.poll().expect("an outcome").expect("it was taken");
        assert_eq!((sent.token, sent.outcome), (number.into(), Outcome::Delivered));
        match theirs.recv(NOW) {
            Ok(Incoming::Message(message)) => assert_eq!(message.to_vec(), number.to_le_bytes()),
            other => panic!("message {number} was due, not {other:?}"),
        }
    }
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Timeout));
}

#[test]
fn what_somebody_posted_who_dies_arrives_and_then_the_channel_is_closed() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let done = CompletionQueue::new(100);
    let dying = AssertUnwindSafe(|| {
        let held = mine;
        for _ in 0..100 {
            let last = held.copy(b"last").expect("a buffer");
            held.post(last, SendOptions::new(), &done).expect("room");
        }
        resume_unwind(Box::new("on purpose"));
    });
    catch_unwind(dying).expect_err("it dies");
    lab.run();
    for _ in 0..100 {
        assert!(matches!(theirs.recv(NOW), Ok(Incoming::Message(_))));
        assert!(matches!(done.poll(), Some(Ok(sent)) if sent.outcome == Outcome::Delivered));
    }
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Closed(CloseReason::Peer)));
}

#[test]
fn a_worker_that_is_gone_refuses_what_is_posted_and_what_waits() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let done = CompletionQueue::new(8);
    mine.post(mine.copy(b"waits").expect("a buffer"), SendOptions::new(), &done).expect("room");
    drop(lab.near.worker);
    let waited = done.poll().expect("an answer").expect_err("nobody took it");
    assert_eq!(waited.error, SubmitError::ShutDown);
    let late = mine.copy(b"late").expect("a buffer");
    let refused = mine.post(late, SendOptions::new(), &done).expect_err("nobody takes it");
    assert_eq!(refused.error, SubmitError::ShutDown);
    assert!(lab.near.link.begin_open(true).poll().is_err());
}

#[test]
fn a_worker_that_is_gone_leaves_nobody_waiting_who_was_not_served_yet() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let done = CompletionQueue::new(200);
    let first = mine.copy(b"first").expect("a buffer");
    let ticket = mine.send(first, SendOptions::new()).expect("taken");
    // More than a link takes of one channel at a time: the rest waits where nobody lists it.
    for _ in 0..150 {
        let buf = mine.copy(b"waits").expect("a buffer");
        mine.post(buf, SendOptions::new(), &done).expect("room");
    }
    for _ in 0..100 {
        lab.near.worker.turn();
    }
    let opening = lab.near.link.begin_open(true);
    drop(lab.near.worker);
    assert!(opening.poll().is_err(), "nobody will answer");
    let (mut refused, mut told, mut unknown) = (0, 0, 0);
    while let Some(outcome) = done.poll() {
        match outcome {
            Err(rejected) => {
                assert_eq!(rejected.error, SubmitError::ShutDown);
                refused += 1;
            }
            Ok(sent) => {
                // What its link had and had not begun to send was abandoned.
                assert_ne!(sent.outcome, Outcome::Delivered, "nobody acknowledged it");
                assert_eq!(sent.payload.byte_len(), 5, "its buffer comes back");
                unknown += u32::from(sent.outcome == Outcome::Unknown);
                told += 1;
            }
        }
    }
    assert!(refused > 0 && unknown > 0, "{refused} refused, {unknown} unknown");
    assert_eq!((refused + told, done.under_way()), (150, 0));
    assert_eq!(
        ticket.wait(NOW).expect("it was taken").expect("an outcome").outcome,
        Outcome::Unknown
    );
}

#[test]
fn a_worker_that_has_no_turn_blocks_nobody() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let openings: Vec<_> = (0..3_000).map(|_| lab.near.link.begin_open(true)).collect();
    for weight in 1..3_000 {
        mine.set_weight(weight);
    }
    let busy = |opening: &&Opening| matches!(opening.poll(), Err(ChannelError::Busy));
    assert_eq!(openings.iter().filter(busy).count(), 3_000 - 1_024);
    for _ in 0..3_000 {
        lab.near.link.close();
    }
    drop(lab.near.worker);
    assert!(openings.iter().take(1_024).all(|opening| opening.poll().is_err()));
    mine.set_weight(1);
    assert!(matches!(lab.near.link.begin_open(true).poll(), Err(ChannelError::ShutDown)));
}

#[test]
fn a_worker_is_over_when_its_last_handle_is_gone() {
    let mut lab = lab();
    lab.run();
    assert!(!lab.near.worker.is_over());
    drop((lab.near.handle, lab.near.link));
    lab.near.worker.turn();
    assert!(lab.near.worker.is_over());
}
