//! Handles on tokio: futures that are dropped, links that end, and many tasks that wait.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use towpath::{
    ChannelHandle, DownReason, EndpointConfig, EndpointHandle, GrantChange, Incoming, LinkHandle,
    OpOptions, OpOutcome, Outcome, RecvError, Rights, SendOptions, SharedMemory, UdpConfig,
    WaitError,
};

/// Long enough for a loaded machine; nothing here waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

fn runtimes() -> [Runtime; 2] {
    let one = Builder::new_current_thread().enable_time().build();
    let two = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    [one, two].map(|runtime| runtime.expect("a runtime"))
}

fn endpoint() -> EndpointHandle {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let config = EndpointConfig::new().connect_timeout(LONG);
    EndpointHandle::spawn_udp(udp, config).expect("loopback UDP")
}

async fn listening() -> (EndpointHandle, SocketAddr) {
    let server = endpoint();
    let addr = server.listen_async((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a free port");
    (server, addr)
}

/// Two ends of a link; they last as long as their endpoints.
async fn pair() -> ((EndpointHandle, LinkHandle), (EndpointHandle, LinkHandle)) {
    let (server, addr) = listening().await;
    let client = endpoint();
    let near = client.connect_async(addr).await.expect("it listens");
    let far = server.accept_async().await.expect("a link");
    ((client, near), (server, far))
}

async fn channel(near: &LinkHandle, far: &LinkHandle) -> (ChannelHandle, ChannelHandle) {
    let mine = near.open_channel_async(true).await.expect("room for a channel");
    (mine, far.accept_channel_async().await.expect("a channel"))
}

fn number(incoming: Result<Incoming, RecvError>) -> u64 {
    match incoming {
        Ok(Incoming::Message(message)) => {
            u64::from_le_bytes(message.to_vec()[..].try_into().expect("eight bytes"))
        }
        other => panic!("a message was due, not {other:?}"),
    }
}

async fn send(channel: &ChannelHandle, number: u64) {
    let message = channel.copy_async(&number.to_le_bytes()).await.expect("it fits");
    drop(channel.send_async(message, SendOptions::new()).await.expect("an open channel"));
}

#[test]
fn futures_that_are_dropped_while_messages_come_lose_none() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let ((_client, near), (_server, far)) = pair().await;
            let (mine, theirs) = channel(&near, &far).await;
            tokio::spawn(async move {
                for number in 0..2_000 {
                    send(&mine, number).await;
                    yield_now().await;
                }
                // Until the other end has let go of the channel.
                assert!(mine.recv_async().await.is_err());
            });
            let (mut next, mut dropped) = (0, 0);
            while next < 2_000 {
                match timeout(Duration::from_micros(next % 50), theirs.recv_async()).await {
                    Ok(incoming) => {
                        assert_eq!(number(incoming), next);
                        next += 1;
                    }
                    Err(_) => dropped += 1,
                }
            }
            println!("{dropped} were dropped");
        });
    }
}

#[test]
fn many_tasks_that_wait_on_one_channel_get_each_message_once() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let ((_client, near), (_server, far)) = pair().await;
            let (mine, theirs) = channel(&near, &far).await;
            let mut waiting = JoinSet::new();
            for _ in 0..64 {
                let theirs = theirs.clone();
                waiting.spawn(async move {
                    let mut got = Vec::new();
                    loop {
                        match theirs.recv_async().await {
                            Err(_) => return got,
                            incoming => got.push(number(incoming)),
                        }
                    }
                });
            }
            drop(theirs);
            for number in 0..3_000 {
                send(&mine, number).await;
            }
            mine.close();
            let mut got = Vec::new();
            while let Some(part) = waiting.join_next().await {
                got.extend(part.expect("no panic"));
            }
            got.sort_unstable();
            assert!(got.into_iter().eq(0..3_000));
        });
    }
}

#[test]
fn who_waits_hears_of_the_end_of_a_link_and_of_an_endpoint() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let ((client, near), (server, far)) = pair().await;
            let (mine, theirs) = channel(&near, &far).await;
            let accepting = tokio::spawn(async move { server.accept_async().await.err() });
            let opened = tokio::spawn(async move { far.accept_channel_async().await.err() });
            let receiving = tokio::spawn(async move { theirs.recv_async().await.err() });
            yield_now().await;
            near.close();
            let goodbye = DownReason::Goodbye;
            assert_eq!(receiving.await.expect("no panic"), Some(RecvError::Down(goodbye)));
            assert_eq!(opened.await.expect("no panic"), Some(WaitError::Down(goodbye)));
            assert!(!accepting.is_finished());
            accepting.abort();
            let late = tokio::spawn(async move { mine.recv_async().await.err() });
            assert_eq!(late.await.expect("no panic"), Some(RecvError::Down(DownReason::Local)));
            let accepting = tokio::spawn({
                let client = client.clone();
                async move { client.accept_async().await.err() }
            });
            yield_now().await;
            // The call that joins the worker's thread blocks.
            tokio::task::spawn_blocking(|| client.shutdown()).await.expect("no panic");
            assert_eq!(accepting.await.expect("no panic"), Some(WaitError::ShutDown));
        });
    }
}

#[test]
fn a_link_whose_future_was_dropped_is_closed() {
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let (server, addr) = listening().await;
        let client = endpoint();
        for round in 0..20 {
            // Dropped at some point between the asking and the answer.
            let span = Duration::from_micros(200 * round);
            let link = timeout(span, client.connect_async(addr)).await;
            let theirs = server.accept_async().await.expect("a link");
            if let Ok(link) = link {
                link.expect("it listens").close();
            }
            let end = timeout(LONG, theirs.accept_channel_async()).await.expect("it is closed");
            assert_eq!(end.err(), Some(WaitError::Down(DownReason::Goodbye)));
        }
    });
}

#[test]
fn one_sided_operations_and_outcomes_are_awaited() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let ((client, near), (_server, far)) = pair().await;
            let memory = SharedMemory::new(4096).expect("memory for a test");
            far.grant_async(&memory, 0..64, Rights::ALL).await.expect("room");
            let Ok(GrantChange::Granted(grant)) = near.recv_grant_async().await else {
                panic!("a grant was due")
            };
            let mut adding = JoinSet::new();
            for _ in 0..64 {
                let near = near.clone();
                adding.spawn(async move {
                    for _ in 0..20 {
                        let done = near.fetch_add(grant.id, 8, 1, OpOptions::new()).await;
                        assert_eq!(done.outcome, Ok(OpOutcome::Executed));
                    }
                });
            }
            while let Some(done) = adding.join_next().await {
                done.expect("no panic");
            }
            assert_eq!(memory.word(8).expect("aligned").load(Ordering::SeqCst), 64 * 20);
            let buf = client.alloc_async(64).await.expect("it fits");
            let read = near.read(grant.id, 0, 16, buf, OpOptions::new()).await;
            assert_eq!(read.buf.expect("it comes back")[8..], u64::to_ne_bytes(64 * 20));

            let (mine, _theirs) = channel(&near, &far).await;
            let message = mine.copy_async(b"hello").await.expect("it fits");
            let ticket = mine.send_async(message, SendOptions::new()).await.expect("open");
            assert_eq!(ticket.await.expect("it was taken").outcome, Outcome::Delivered);
            // One that is given up has its outcome all the same.
            let message = mine.copy_async(b"never mind").await.expect("it fits");
            let mut ticket = mine.send_async(message, SendOptions::new()).await.expect("open");
            let early = timeout(Duration::ZERO, &mut ticket).await;
            ticket.cancel();
            if early.is_err() {
                ticket.await.expect("it was taken");
            }
        });
    }
}
