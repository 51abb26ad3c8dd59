//! The thread-safe face: many threads, one worker at each end.

mod common;

use common::{LOOPBACK, any_port, pattern};
use std::time::Duration;
use towpath_device_roce::udp::UdpConfig;
use towpath_proto::{DownReason, Outcome};
use towpath_transport::{
    ChannelHandle, EndpointConfig, EndpointHandle, Incoming, LinkHandle, RecvError, SendOptions,
    SubmitError,
};

/// Long enough for a loaded machine; nothing here waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

fn spawn() -> EndpointHandle {
    let config = EndpointConfig::new();
    EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), config).expect("loopback UDP")
}

fn pair() -> (EndpointHandle, EndpointHandle, LinkHandle, LinkHandle) {
    let (client, server) = (spawn(), spawn());
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
                    theirs.send(buf, SendOptions::new());
                }
            });
            let asking = std::thread::spawn(move || {
                for round in 0..50 {
                    let bytes = pattern(1 + round as usize * 37, thread * 1000 + round);
                    let buf = mine.copy(&bytes).expect("a free buffer");
                    let ticket = mine.send(buf, SendOptions::new().token(round));
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
    mine.send(mine.copy(b"last words").expect("a free buffer"), SendOptions::new());
    near.close();
    assert_eq!(take(&theirs), b"last words");
    assert_eq!(theirs.recv(LONG).err(), Some(RecvError::Closed));
    assert!(far.accept_channel(LONG).is_none());
    assert_eq!(far.down(), Some(DownReason::Goodbye));
    client.shutdown();
    let late = mine.send(theirs.copy(b"late").expect("a free buffer"), SendOptions::new());
    let rejected = late.wait(LONG).expect_err("nobody is there");
    assert_eq!(rejected.error, SubmitError::ShutDown);
    assert_eq!(rejected.payload.byte_len(), 4);
}

#[test]
fn a_worker_ends_when_its_last_handle_is_dropped_and_its_peer_hears_of_it() {
    let (client, server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, true);
    drop((client, near, mine));
    assert_eq!(theirs.recv(LONG).err(), Some(RecvError::Closed));
    assert_eq!(far.down(), Some(DownReason::Goodbye));
    server.shutdown();
}

#[test]
fn what_arrives_is_kept_until_it_is_taken_and_a_timeout_says_so() {
    let (_client, _server, near, far) = pair();
    let (mine, theirs) = channel(&near, &far, true);
    assert_eq!(theirs.recv(Duration::from_millis(1)).err(), Some(RecvError::Timeout));
    let tickets: Vec<_> = (0..300u32)
        .map(|i| mine.send(mine.copy(&i.to_le_bytes()).expect("a buffer"), SendOptions::new()))
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
