//! Handles as futures, in virtual time: what wakes them, and what becomes of what they wait for.

use crate::rig::{Lab, NOW, Woken, finish, lab, take};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use towpath_base::Prng;
use towpath_handle::{ChannelHandle, CompletionQueue, Incoming, RecvError, WaitError};
use towpath_proto::{CloseReason, DownReason, Outcome};
use towpath_transport::{AllocError, ChannelError, SendOptions, SubmitError};

/// A future with a waker of its own, polled by hand.
struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    woken: Arc<Woken>,
}

impl<'a, T> Task<'a, T> {
    fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self { future: Box::pin(future), woken: Arc::default() }
    }

    fn poll(&mut self) -> Option<T> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.take()
    }
}

fn bytes(incoming: Result<Incoming, RecvError>) -> Vec<u8> {
    match incoming {
        Ok(Incoming::Message(message)) => message.to_vec(),
        other => panic!("a message was due, not {other:?}"),
    }
}

fn fill(channel: &ChannelHandle) {
    let done = CompletionQueue::new(1000);
    while channel.post(channel.copy(b"fills").expect("a buffer"), SendOptions::new(), &done).is_ok()
    {
    }
}

fn send(lab: &mut Lab, channel: &ChannelHandle, number: u32) {
    let message = channel.copy(&number.to_le_bytes()).expect("a buffer");
    let ticket = finish(lab, channel.send_async(message, SendOptions::new().token(7)));
    let sent = finish(lab, ticket.expect("an open channel")).expect("it was taken");
    assert_eq!((sent.token, sent.outcome), (7, Outcome::Delivered));
}

#[test]
fn channels_are_opened_and_messages_go_both_ways_without_a_thread_that_blocks() {
    let mut lab = lab();
    let (near, far) = (lab.near.link.clone(), lab.far.link.clone());
    let mine = finish(&mut lab, near.open_channel_async(true)).expect("room");
    let theirs = finish(&mut lab, far.accept_channel_async()).expect("a channel");
    send(&mut lab, &mine, 5);
    assert_eq!(bytes(finish(&mut lab, theirs.recv_async())), 5u32.to_le_bytes());
    let done = CompletionQueue::new(1);
    theirs.post(theirs.copy(b"back").expect("a buffer"), SendOptions::new(), &done).expect("room");
    assert_eq!(bytes(finish(&mut lab, mine.recv_async())), b"back");
    let sent = finish(&mut lab, done.wait_async()).expect("it was taken");
    assert_eq!((sent.outcome, done.under_way()), (Outcome::Delivered, 0));
    let stats = finish(&mut lab, near.stats_async()).expect("it is up");
    assert_eq!(stats.messages_delivered, 1);
}

#[test]
fn what_a_future_was_woken_for_goes_to_the_next_one_if_it_is_dropped() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let mut waiting: Vec<_> = (0..3).map(|_| Task::new(theirs.recv_async())).collect();
    assert!(waiting.iter_mut().all(|task| task.poll().is_none()));
    send(&mut lab, &mine, 1);
    let woken: Vec<_> = waiting.iter().map(Task::is_woken).collect();
    assert_eq!(woken, [true, false, false], "one message, one of them");
    drop(waiting.remove(0));
    assert!(waiting[0].is_woken() && !waiting[1].is_woken());
    assert_eq!(bytes(waiting[0].poll().expect("it is there")), 1u32.to_le_bytes());
    // One that was never told takes nothing with it, and one that was told twice has one message.
    drop(waiting.remove(0));
    assert!(!waiting[0].is_woken());
    send(&mut lab, &mine, 2);
    send(&mut lab, &mine, 3);
    assert_eq!(bytes(waiting[0].poll().expect("it is there")), 2u32.to_le_bytes());
    drop(waiting);
    assert_eq!(take(&theirs), 3u32.to_le_bytes());
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Timeout));
}

#[test]
fn many_that_wait_get_each_message_once_however_many_of_them_are_dropped() {
    let seed = 0x5eed_0f27;
    println!("seed {seed:#x}");
    let mut prng = Prng::new(seed);
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let mut waiting: Vec<_> = (0..200).map(|_| Task::new(theirs.recv_async())).collect();
    assert!(waiting.iter_mut().all(|task| task.poll().is_none()));
    let (mut sent, mut got) = (0u32, Vec::new());
    while !waiting.is_empty() {
        for _ in 0..prng.below(4) {
            send(&mut lab, &mine, sent);
            sent += 1;
        }
        if prng.below(3) == 0 {
            drop(waiting.swap_remove(prng.below(waiting.len() as u64) as usize));
        }
        // Only those that were woken are polled, as executors do.
        waiting.retain_mut(|task| match task.is_woken().then(|| task.poll()).flatten() {
            Some(incoming) => {
                got.push(bytes(incoming));
                false
            }
            None => true,
        });
        // Nobody sleeps while there is something.
        assert!(waiting.is_empty() || theirs.recv(NOW).is_err(), "seed {seed:#x}");
    }
    got.extend((got.len() as u32..sent).map(|_| take(&theirs)));
    got.sort_unstable_by_key(|bytes| u32::from_le_bytes(bytes[..].try_into().expect("four")));
    assert!(got.into_iter().eq((0..sent).map(|number| number.to_le_bytes().to_vec())));
}

#[test]
fn a_message_waits_for_room_and_one_that_is_dropped_is_not_sent() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    fill(&mine);
    let send = |bytes: &[u8]| {
        let message = mine.copy(bytes).expect("a buffer");
        Task::new(mine.send_async(message, SendOptions::new()))
    };
    let (mut dropped, mut kept) = (send(b"dropped"), send(b"kept"));
    let mut writable = Task::new(mine.writable_async());
    assert!(dropped.poll().is_none() && kept.poll().is_none() && writable.poll().is_none());
    lab.near.worker.turn();
    assert!(dropped.is_woken());
    drop(dropped);
    assert!(kept.is_woken());
    let ticket = kept.poll().expect("room").expect("an open channel");
    assert!(writable.is_woken() && writable.poll().is_some());
    let mut last = Vec::new();
    while last != b"kept" {
        lab.run();
        last = take(&theirs);
        assert_ne!(last, b"dropped");
    }
    let sent = finish(&mut lab, ticket).expect("it was taken");
    assert_eq!(sent.outcome, Outcome::Delivered);
    assert_eq!(theirs.recv(NOW).err(), Some(RecvError::Timeout));
}

#[test]
fn the_end_of_a_channel_and_of_a_link_is_told_to_all_who_wait() {
    let mut lab = lab();
    let (mine, theirs) = lab.channel();
    let (near, far) = (lab.near.link.clone(), lab.far.link.clone());
    let mut waiting: Vec<_> = (0..3).map(|_| Task::new(theirs.recv_async())).collect();
    assert!(waiting.iter_mut().all(|task| task.poll().is_none()));
    drop(mine);
    lab.run();
    for task in &mut waiting {
        assert!(task.is_woken());
        let end = task.poll().expect("the end").err();
        assert_eq!(end, Some(RecvError::Closed(CloseReason::Peer)));
    }
    let (mine, _theirs) = lab.channel();
    fill(&mine);
    let message = mine.copy(b"late").expect("a buffer");
    let mut sending = Task::new(mine.send_async(message, SendOptions::new()));
    let mut opened = Task::new(near.accept_channel_async());
    let mut receiving = Task::new(mine.recv_async());
    assert!(sending.poll().is_none() && opened.poll().is_none() && receiving.poll().is_none());
    far.close();
    lab.run();
    assert!(sending.is_woken() && opened.is_woken() && receiving.is_woken());
    let rejected = sending.poll().expect("decided").expect_err("it is closed");
    assert_eq!((rejected.error, rejected.payload.byte_len()), (SubmitError::NotOpen(mine.id()), 4));
    let goodbye = Some(WaitError::Down(DownReason::Goodbye));
    assert_eq!(opened.poll().expect("the end").err(), goodbye);
    let down = receiving.poll().expect("the end").err();
    assert_eq!(down, Some(RecvError::Down(DownReason::Goodbye)));
}

#[test]
fn the_end_of_a_worker_is_told_to_all_who_wait() {
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let near = lab.near.link.clone();
    fill(&mine);
    let message = mine.copy(b"late").expect("a buffer");
    let mut sending = Task::new(mine.send_async(message, SendOptions::new()));
    let mut opening = Task::new(near.open_channel_async(true));
    let mut accepting = Task::new(lab.near.handle.accept_async());
    let mut receiving = Task::new(mine.recv_async());
    assert!(sending.poll().is_none() && opening.poll().is_none());
    assert!(accepting.poll().is_none() && receiving.poll().is_none());
    drop(lab.near.worker);
    assert!(sending.is_woken() && opening.is_woken());
    assert!(accepting.is_woken() && receiving.is_woken());
    let rejected = sending.poll().expect("decided").expect_err("nobody takes it");
    assert_eq!(rejected.error, SubmitError::ShutDown);
    assert_eq!(opening.poll().expect("the end").err(), Some(ChannelError::ShutDown));
    assert_eq!(accepting.poll().expect("the end").err(), Some(WaitError::ShutDown));
    assert!(receiving.poll().expect("the end").is_err());
}

#[test]
fn a_channel_that_nobody_waits_for_any_more_is_closed() {
    let mut lab = lab();
    let (near, far) = (lab.near.link.clone(), lab.far.link.clone());
    // Dropped before the worker has looked, and when the answer is there.
    for is_answered in [false, true] {
        let mut opening = Task::new(near.open_channel_async(true));
        assert!(opening.poll().is_none());
        if is_answered {
            lab.run();
            assert!(opening.is_woken());
        }
        drop(opening);
        lab.run();
        let theirs = far.accept_channel(NOW).expect("it was open for a moment");
        let end = theirs.recv(NOW).err();
        assert_eq!(end, Some(RecvError::Closed(CloseReason::Peer)));
    }
}

#[test]
fn a_buffer_that_comes_back_wakes_who_waits_for_one() {
    let lab = lab();
    let handle = &lab.near.handle;
    let mut all: Vec<_> = std::iter::from_fn(|| handle.alloc(2000).ok()).collect();
    // Two in one task, of which one is dropped, and one that wants what never was.
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut kept = pin!(handle.copy_async(b"kept"));
    assert!(kept.as_mut().poll(&mut cx).is_ready(), "shorter ones are not out");
    let mut kept = pin!(handle.alloc_async(2000));
    {
        let mut dropped = pin!(handle.alloc_async(2000));
        assert!(dropped.as_mut().poll(&mut cx).is_pending());
        assert!(kept.as_mut().poll(&mut cx).is_pending());
    }
    let never = AllocError::TooLong { bytes: 5000, max: 4096 };
    assert_eq!(Task::new(handle.alloc_async(5000)).poll().expect("at once").err(), Some(never));
    assert!(!woken.take());
    all.pop();
    assert!(woken.take() && kept.as_mut().poll(&mut cx).is_ready());
}
