//! Who was refused for want of room is told once when there is room again.

mod common;

use common::{LOOPBACK, Node, Pair, any_port, drive, join, payload};
use std::thread;
use std::time::Duration;
use towpath_base::Nanos;
use towpath_handle::EndpointHandle;
use towpath_transport::{AllocError, EndpointConfig, Event, SendOptions, SubmitError, UdpConfig};

const SENDS_MAX: u64 = 4;

fn few() -> EndpointConfig {
    EndpointConfig::new().links_max(1).tune_links(|link| link.sends_max(SENDS_MAX as usize))
}

fn writable(event: &Event) -> Option<()> {
    matches!(event, Event::Writable { .. }).then_some(())
}

fn buffer_free(event: &Event) -> Option<usize> {
    match event {
        Event::BufferFree { bytes } => Some(*bytes),
        _ => None,
    }
}

fn turn_often(node: &mut Node) {
    for _ in 0..4 {
        node.turn();
    }
}

#[test]
fn a_link_that_refused_a_message_tells_once_that_it_has_room() {
    let (mut client, mut server) = (Node::new(few()), Node::new(few()));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let joined = join(&mut client, &mut server, addr);
    let try_send = |client: &mut Node, token| {
        let payload = payload(&client.endpoint, b"abc");
        let options = SendOptions::new().token(token);
        client.endpoint.send(joined.link, joined.channel, payload, options)
    };
    for round in 0..3 {
        for token in 0..SENDS_MAX {
            try_send(&mut client, token).expect("room");
        }
        for _ in 0..2 {
            let refused = try_send(&mut client, 8).expect_err("it is full");
            assert_eq!(refused.error, SubmitError::Full);
        }
        assert!(client.take(writable).is_none(), "there is no room yet");
        drive(&mut client, &mut server, |client, _| client.take(writable));
        try_send(&mut client, SENDS_MAX).expect("room");
        for token in 0..=SENDS_MAX {
            drive(&mut client, &mut server, |client, _| client.take_sent(token));
        }
        client.turn();
        assert!(client.take(writable).is_none(), "round {round}: told once");
        server.events.clear();
    }
    // Nothing was refused: nothing is told.
    try_send(&mut client, 1).expect("room");
    drive(&mut client, &mut server, |client, _| client.take_sent(1));
    client.turn();
    assert!(client.take(writable).is_none());
}

#[test]
fn an_endpoint_without_a_free_buffer_tells_once_that_one_came_back() {
    let mut pair = Pair::new(few().send_pools(&[(256, 1), (4096, 2)]));
    let endpoint = &pair.client.endpoint;
    let bufs = [3_000, 4_000].map(|len| endpoint.alloc(len).expect("a free buffer"));
    let short = endpoint.alloc(100).expect("a free buffer");
    for bytes in [4_000, 3_000, 2_000] {
        assert_eq!(endpoint.alloc(bytes).expect_err("all are out"), AllocError::AllOut { bytes });
        endpoint.want_buffer(bytes);
    }
    let too_long = endpoint.alloc(5_000).expect_err("none is so long");
    assert!(matches!(too_long, AllocError::TooLong { .. }));
    drop(short);
    turn_often(&mut pair.client);
    assert_eq!(pair.client.take(buffer_free), None, "the buffer that came back is too short");
    // The wait ends when another thread drops one, however long it was to be.
    let dropping = thread::spawn(move || drop(bufs));
    while pair.client.events.is_empty() {
        pair.client.turn();
        pair.client.endpoint.wait(Nanos::from_secs(3600));
    }
    dropping.join().expect("two drops");
    assert_eq!(pair.client.take(buffer_free), Some(2_000));
    turn_often(&mut pair.client);
    assert_eq!(pair.client.take(buffer_free), None, "told once");
    let all: Vec<_> = (0..2).map(|_| pair.client.endpoint.alloc(4_000).expect("free")).collect();
    drop(all);
    turn_often(&mut pair.client);
    assert_eq!(pair.client.take(buffer_free), None, "nothing was refused");
}

#[test]
fn a_handle_waits_for_a_buffer_until_another_thread_gives_one_back() {
    let config = EndpointConfig::new().links_max(1).send_pools(&[(4096, 1)]);
    let handle = EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), config);
    let handle = handle.expect("loopback UDP");
    let out = handle.alloc(1).expect("a free buffer");
    let refused = handle.alloc_timeout(1, Duration::from_millis(1));
    assert_eq!(refused.expect_err("it is out"), AllocError::AllOut { bytes: 1 });
    let other = handle.clone();
    let waiting = thread::spawn(move || other.copy_timeout(b"abc", Duration::from_secs(3600)));
    thread::yield_now();
    drop(out);
    let buf = waiting.join().expect("no panic").expect("the buffer came back");
    assert_eq!(&buf[..], b"abc");
    handle.shutdown();
}

#[test]
fn handles_get_all_of_their_messages_through_a_link_that_takes_few_at_a_time() {
    let spawn = || {
        let made = EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), few());
        made.expect("loopback UDP")
    };
    let (server, client) = (spawn(), spawn());
    let addr = server.listen(any_port()).expect("a free port");
    let long = Duration::from_secs(60);
    let link = client.connect(addr).expect("it listens");
    let theirs = server.accept(long).expect("a client");
    let channels: Vec<_> = (0..3).map(|_| link.open_channel(true).expect("room")).collect();
    let threads: Vec<_> = channels
        .into_iter()
        .map(|channel| {
            thread::spawn(move || {
                let tickets: Vec<_> = (0..50)
                    .map(|_| channel.copy(b"abc").expect("a free buffer"))
                    .map(|buf| channel.send(buf, SendOptions::new()).expect("taken"))
                    .collect();
                tickets.iter().filter(|ticket| matches!(ticket.wait(long), Ok(Some(_)))).count()
            })
        })
        .collect();
    let mut taken = Vec::new();
    for _ in 0..3 {
        let channel = theirs.accept_channel(long).expect("a channel");
        taken.push(thread::spawn(move || (0..50).filter(|_| channel.recv(long).is_ok()).count()));
    }
    for thread in threads.into_iter().chain(taken) {
        assert_eq!(thread.join().expect("no panic"), 50);
    }
}
