//! The thread-safe face: many threads, one worker at each end.

mod common;

use common::{LOOPBACK, any_port, pattern};
use std::time::Duration;
use towpath_base::Nanos;
use towpath_device_roce::udp::UdpConfig;
use towpath_handle::{
    ChannelHandle, CompletionQueue, EndpointHandle, Incoming, LinkHandle, RecvError, WaitError,
};
use towpath_proto::{DownReason, Outcome};
use towpath_transport::{
    ChannelError, CloseReason, EndpointConfig, OpenError, SendOptions, SubmitError,
};

/// Long enough for a loaded machine; nothing here waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

fn spawn(config: EndpointConfig) -> EndpointHandle {
    let config = config.connect_timeout(LONG);
    EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), config).expect("loopback UDP")
}

fn pair() -> (EndpointHandle, EndpointHandle, LinkHandle, LinkHandle) {
    pair_with(EndpointConfig::new())
}

fn pair_with(config: EndpointConfig) -> (EndpointHandle, EndpointHandle, LinkHandle, LinkHandle) {
    let (client, server) = (spawn(config.clone()), spawn(config));
    let addr = server.listen(any_port()).expect("a free port");
    let near = client.connect(addr).expect("it listens");
    let far = server.accept(LONG).expect("a link");
    (client, server, near, far)
}

fn channel(near: &LinkHandle, far: &LinkHandle, ordered: bool) -> (ChannelHandle, ChannelHandle) {
    let mine = near.open_channel(ordered).expect("room for a channel");
    let theirs = far.accept_channel(LONG).expect("a channel");
    assert_eq!((mine.id(), theirs.is_ordered()), (theirs.id(), ordered));
    (mine, theirs)
}

fn take(channel: &ChannelHandle) -> Vec<u8> {
    match channel.recv(LONG) {
        Ok(Incoming::Message(message)) => message.to_vec(),
        other => panic!("no message but {other:?}"),
    }
}

#[test]
fn threads_share_a_link_and_each_gets_its_own_answers() {
    let (_client, _server, near, far) = pair();
    let threads: Vec<_> = (0..3)
        .map(|thread: u64| {
            let (mine, theirs) = channel(&near, &far, thread.is_multiple_of(2));
            let echo = std::thread::spawn(move || {
                for _ in 0..50 {
                    let bytes = take(&theirs);
                    let buf = theirs.copy(&bytes).expect("a free buffer");
                    drop(theirs.send(buf, SendOptions::new()));
                }
            });
            let asking = std::thread::spawn(move || {
                for round in 0..50 {
                    let bytes = pattern(1 + round as usize * 37, thread * 1000 + round);
                    let buf = mine.copy(&bytes).expect("a free buffer");
                    let ticket = mine.send(buf, SendOptions::new().token(round)).expect("taken");
                    let sent = ticket.wait(LONG).expect("it was taken").expect("an outcome");
                    assert_eq!((sent.token, sent.outcome), (round, Outcome::Delivered));
                    assert!(take(&mine) == bytes, "thread {thread} round {round}");
                }
            });
            (echo, asking)
        })
        .collect();
    for (echo, asking) in threads {
        asking.join().expect("the asking thread");
        echo.join().expect("the echo thread");
    }
}

#[test]
fn closing_is_seen_at_the_other_end_after_everything_that_was_sent() {
    let (client, _server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, true);
    drop(mine.send(mine.copy(b"last words").expect("a free buffer"), SendOptions::new()));
    near.close();
    assert_eq!(take(&theirs), b"last words");
    assert_eq!(theirs.recv(LONG).err(), Some(RecvError::Down(DownReason::Goodbye)));
    let gone = far.accept_channel(LONG).err();
    assert_eq!(gone, Some(WaitError::Down(DownReason::Goodbye)));
    assert_eq!(far.down(), Some(DownReason::Goodbye));
    client.shutdown();
    let late = mine.send(theirs.copy(b"late").expect("a free buffer"), SendOptions::new());
    let rejected = late.expect_err("nobody is there");
    assert_eq!(rejected.error, SubmitError::ShutDown);
    assert_eq!(rejected.payload.byte_len(), 4);
}

#[test]
fn a_worker_ends_when_its_last_handle_is_dropped_and_its_peer_hears_of_it() {
    let (client, server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, true);
    drop((client, near, mine));
    // The channel is closed before the link, but the word of both may be taken in together.
    let ended = theirs.recv(LONG).err();
    let by_peer = RecvError::Closed(CloseReason::Peer);
    let goodbye = RecvError::Down(DownReason::Goodbye);
    assert!(ended == Some(by_peer) || ended == Some(goodbye), "{ended:?}");
    assert!(far.accept_channel(LONG).is_err());
    assert_eq!(far.down(), Some(DownReason::Goodbye));
    server.shutdown();
}

#[test]
fn what_arrives_is_kept_until_it_is_taken_and_a_timeout_says_so() {
    let (_client, _server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, true);
    assert_eq!(theirs.recv(Duration::from_millis(1)).err(), Some(RecvError::Timeout));
    let tickets: Vec<_> = (0..300u32)
        .map(|i| {
            let buf = mine.copy(&i.to_le_bytes()).expect("a buffer");
            mine.send(buf, SendOptions::new()).expect("taken")
        })
        .collect();
    for i in 0..300u32 {
        assert_eq!(take(&theirs), i.to_le_bytes());
    }
    for ticket in tickets {
        let sent = ticket.wait(LONG).expect("it was taken").expect("an outcome");
        assert_eq!(sent.outcome, Outcome::Delivered);
    }
    let stats = near.stats().expect("it is up");
    assert_eq!(stats.messages_delivered, 300);
}

#[test]
fn a_worker_that_always_blocks_is_woken_by_each_post() {
    // Each round would take a second if a ring were lost.
    const ROUNDS: u32 = 2000;
    let (_client, _server, near, far) = pair_with(EndpointConfig::new().spin(Nanos::ZERO));
    let (mine, theirs) = channel(&near, &far, true);
    let echo = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            let bytes = take(&theirs);
            drop(theirs.send(theirs.copy(&bytes).expect("a free buffer"), SendOptions::new()));
        }
        theirs
    });
    for round in 0..ROUNDS {
        drop(
            mine.send(mine.copy(&round.to_le_bytes()).expect("a free buffer"), SendOptions::new()),
        );
        assert_eq!(take(&mine), round.to_le_bytes());
    }
    drop(echo.join().expect("the echo thread"));
}

#[test]
fn who_floods_a_channel_that_nobody_reads_leaves_the_others_alone() {
    let (_client, _server, near, far) = pair();
    let (flooded, unread) = channel(&near, &far, true);
    let (mine, theirs) = channel(&near, &far, true);
    let completions = CompletionQueue::new(100_000);
    let mut posted = 0;
    let full = loop {
        let buf = flooded.copy(&[7; 500]).expect("a free buffer");
        match flooded.post(buf, SendOptions::new(), &completions) {
            Ok(()) => posted += 1,
            Err(rejected) => break rejected,
        }
    };
    assert_eq!((full.error, full.payload.byte_len()), (SubmitError::QueueFull, 500));
    for round in 0..100u32 {
        drop(
            mine.send(mine.copy(&round.to_le_bytes()).expect("a free buffer"), SendOptions::new()),
        );
        assert_eq!(take(&theirs), round.to_le_bytes());
    }
    // And nothing of the flood is lost, once it is read.
    (0..posted).for_each(|_| assert_eq!(take(&unread), [7; 500]));
    for _ in 0..posted {
        let sent = completions.wait(LONG).expect("an outcome").expect("it was taken");
        assert_eq!(sent.outcome, Outcome::Delivered);
    }
    assert_eq!(completions.under_way(), 0);
}

#[test]
fn a_completion_queue_takes_no_more_than_it_holds() {
    let (_client, _server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, false);
    let completions = CompletionQueue::new(2);
    let post = |word: u64| {
        let buf = mine.copy(&word.to_le_bytes()).expect("a free buffer");
        mine.post(buf, SendOptions::new().token(word), &completions)
    };
    assert!(post(0).is_ok() && post(1).is_ok());
    let full = SubmitError::CompletionsFull { depth: 2 };
    assert_eq!(post(2).expect_err("no place").error, full);
    let sent = completions.wait(LONG).expect("an outcome").expect("it was taken");
    assert!(sent.token < 2 && post(3).is_ok());
    (0..3).for_each(|_| drop(take(&theirs)));
}

#[test]
fn a_thread_that_dies_with_a_handle_leaves_the_others_alone_and_its_channel_is_closed() {
    let (_client, _server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, true);
    let (other, unread) = channel(&near, &far, true);
    let dies = std::thread::spawn(move || {
        for _ in 0..10 {
            drop(
                other.send(other.copy(b"then it died").expect("a free buffer"), SendOptions::new()),
            );
        }
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(dies.join().is_err());
    drop(mine.send(mine.copy(b"alive").expect("a free buffer"), SendOptions::new()));
    assert_eq!(take(&theirs), b"alive");
    (0..10).for_each(|_| assert_eq!(take(&unread), b"then it died"));
    assert_eq!(unread.recv(LONG).err(), Some(RecvError::Closed(CloseReason::Peer)));
}

#[test]
fn channels_whose_handles_were_dropped_leave_room_for_others() {
    let config = EndpointConfig::new().tune_links(|link| link.channels_max(2));
    let (_client, _server, near, far) = pair_with(config);
    let (mine, theirs) = channel(&near, &far, true);
    let clone = mine.clone();
    for round in 0..50u32 {
        // The place of the one before is free once the peer has heard that it is closed.
        let open = || match near.open_channel(true) {
            // At this end, and at the other.
            Err(
                ChannelError::Link(OpenError::TooMany)
                | ChannelError::Closed(CloseReason::Refused(_)),
            ) => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
            opened => Some(opened.expect("a channel")),
        };
        let other = (0..60_000).find_map(|_| open()).expect("the place is free some time");
        drop(other.send(other.copy(&round.to_le_bytes()).expect("a buffer"), SendOptions::new()));
        drop(other);
        let unread = far.accept_channel(LONG).expect("a channel");
        assert_eq!(take(&unread), round.to_le_bytes());
        assert_eq!(unread.recv(LONG).err(), Some(RecvError::Closed(CloseReason::Peer)));
    }
    drop(mine);
    drop(clone.send(clone.copy(b"a clone").expect("a free buffer"), SendOptions::new()));
    assert_eq!(take(&theirs), b"a clone", "it is open while one handle is left");
}

#[test]
fn a_channel_that_nobody_accepts_is_closed() {
    let (_client, _server, near, far) = pair();
    let mine = near.open_channel(true).expect("room for a channel");
    drop(far);
    assert_eq!(mine.recv(LONG).err(), Some(RecvError::Closed(CloseReason::Peer)));
}

#[test]
fn messages_that_a_link_has_no_room_for_go_in_turn_as_others_end() {
    let config = EndpointConfig::new().tune_links(|link| link.sends_max(3));
    let (_client, _server, near, far) = pair_with(config);
    let channels: Vec<_> = (0..20).map(|_| channel(&near, &far, true)).collect();
    let completions = CompletionQueue::new(2000);
    for round in 0..50u32 {
        for (mine, _) in &channels {
            let buf = mine.copy(&round.to_le_bytes()).expect("a free buffer");
            mine.post(buf, SendOptions::new(), &completions).expect("room in its queue");
        }
    }
    for (_, theirs) in &channels {
        (0..50u32).for_each(|round| assert_eq!(take(theirs), round.to_le_bytes()));
    }
    for _ in 0..1000 {
        let sent = completions.wait(LONG).expect("an outcome").expect("it was taken");
        assert_eq!(sent.outcome, Outcome::Delivered);
    }
}
