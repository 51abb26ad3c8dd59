//! Back-pressure: what each signal says, and waiting for several things at once.

use crate::rig::{NOW, Woken, lab, take};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use towpath_handle::{CompletionQueue, Incoming, RecvError, WaitError};
use towpath_proto::{CloseReason, DownReason, Outcome};
use towpath_transport::{AllocError, SendOptions, SubmitError};

#[test]
fn a_buffer_that_never_fits_is_told_from_one_that_is_out() {
    let lab = lab();
    let handle = &lab.near.handle;
    let never = AllocError::TooLong { bytes: 4097, max: 4096 };
    assert_eq!(handle.alloc(4097).err(), Some(never));
    assert_eq!(handle.copy(&[0; 4097]).err(), Some(never));
    let all: Vec<_> = std::iter::from_fn(|| handle.alloc(2000).ok()).collect();
    assert_eq!(handle.alloc(2000).err(), Some(AllocError::AllOut { bytes: 2000 }));
    assert_eq!(handle.alloc(4097).err(), Some(never), "whether others are out or not");
    drop(all);
    assert!(handle.alloc(2000).is_ok());
    let endpoint = lab.near.worker.endpoint();
    assert_eq!(endpoint.copy(&[0; 4097]).err(), Some(never));
}

#[test]
fn a_completion_queue_without_a_place_refuses_before_anything_is_sent() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let done = CompletionQueue::new(2);
    let post = || mine.post(mine.copy(b"one").expect("a buffer"), SendOptions::new(), &done);
    assert!(post().is_ok() && post().is_ok());
    lab.run();
    let full = SubmitError::CompletionsFull { depth: 2 };
    assert_eq!(post().expect_err("two wait to be taken").error, full);
    lab.run();
    assert_eq!((take(&theirs), take(&theirs)), (b"one".to_vec(), b"one".to_vec()));
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Timeout), "the third was not sent");
    assert!(done.poll().is_some() && post().is_ok());
}

#[test]
fn one_task_waits_for_messages_and_outcomes_at_once() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let done = CompletionQueue::new(1000);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let cx = &mut Context::from_waker(&waker);
    let (mut message, mut outcome) = (pin!(mine.recv_async()), pin!(done.wait_async()));
    assert!(message.as_mut().poll(cx).is_pending() && outcome.as_mut().poll(cx).is_pending());
    mine.post(mine.copy(b"ask").expect("a buffer"), SendOptions::new(), &done).expect("room");
    lab.run();
    assert!(woken.take() && message.as_mut().poll(cx).is_pending(), "nothing was answered");
    let Poll::Ready(sent) = outcome.poll(cx) else { panic!("it has its outcome") };
    assert_eq!(sent.expect("taken").outcome, Outcome::Delivered);
    assert_eq!(take(&theirs), b"ask");
    let answer = theirs.copy(b"answer").expect("a buffer");
    let ticket = theirs.send(answer, SendOptions::new()).expect("taken");
    let mut ticket = pin!(ticket);
    assert!(ticket.as_mut().poll(cx).is_pending());
    lab.run();
    assert!(woken.take());
    let Poll::Ready(Ok(Incoming::Message(answer))) = message.poll(cx) else { panic!("answered") };
    assert_eq!(answer.to_vec(), b"answer");
    assert!(ticket.poll(cx).is_ready());
}

#[test]
fn a_channel_is_writable_again_when_its_queue_is_served() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let done = CompletionQueue::new(1000);
    let is_writable = || {
        let cx = &mut Context::from_waker(Waker::noop());
        pin!(mine.writable_async()).poll(cx).is_ready()
    };
    assert!(is_writable(), "its queue is empty");
    let post = || mine.post(mine.copy(b"fills").expect("a buffer"), SendOptions::new(), &done);
    let mut posted = 0;
    loop {
        match post() {
            Ok(()) => posted += 1,
            Err(rejected) if rejected.error == SubmitError::QueueFull => break,
            Err(rejected) => panic!("{rejected}"),
        }
    }
    assert_eq!((posted, is_writable()), (256, false));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let cx = &mut Context::from_waker(&waker);
    let mut writable = pin!(mine.writable_async());
    assert!(writable.as_mut().poll(cx).is_pending());
    lab.run();
    assert!(woken.take() && writable.poll(cx).is_ready(), "the link has taken some");
    while post().is_ok() {
        lab.near.worker.turn();
    }
    assert!(!is_writable(), "an old word about room does not count");
    assert_eq!(take(&theirs), b"fills");
    mine.close();
    assert!(is_writable(), "a post is decided at once");
    assert!(matches!(post().expect_err("closed").error, SubmitError::NotOpen(_)));
}

#[test]
fn nothing_yet_is_told_from_nothing_any_more() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    assert_eq!(lab.far.handle.accept(NOW).err(), Some(WaitError::Timeout));
    assert_eq!(lab.far.link.accept_channel(NOW).err(), Some(WaitError::Timeout));
    assert_eq!(mine.recv(NOW).err(), Some(RecvError::Timeout));
    lab.near.link.close();
    lab.run();
    let goodbye = Some(WaitError::Down(DownReason::Goodbye));
    assert_eq!(lab.far.link.accept_channel(NOW).err(), goodbye);
    assert_eq!(mine.recv(NOW).err(), Some(RecvError::Down(DownReason::Local)));
    drop(lab.far.worker);
    assert_eq!(lab.far.handle.accept(NOW).err(), Some(WaitError::ShutDown));
}

#[test]
fn a_channel_that_was_closed_is_told_from_a_link_that_is_down_and_from_a_panic() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let (left, lost) = lab.channel();
    mine.close();
    lab.run();
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Closed(CloseReason::Peer)));
    assert_eq!(mine.recv(NOW).err(), Some(RecvError::Closed(CloseReason::Local)));
    // Unwinding drops the worker as it stands.
    let (near, handle) = (lab.near.worker, lab.near.handle);
    let dying = AssertUnwindSafe(|| {
        let _near = near;
        resume_unwind(Box::new("on purpose"));
    });
    catch_unwind(dying).expect_err("it dies");
    assert_eq!(left.recv(NOW).err(), Some(RecvError::Panicked));
    assert_eq!(handle.accept(NOW).err(), Some(WaitError::Panicked));
    drop(lab.far.worker);
    assert_eq!(lost.recv(NOW).err(), Some(RecvError::Down(DownReason::Local)));
}
