//! What a server tells a client that did not ask: it arrives, is bounded, and disturbs nothing.

mod common;

use common::{World, pattern};
use towpath_rpc::limits::{PUSH_BODY_BYTES_MAX, PUSHES_KEPT_MAX, PUSHES_MAX};
use towpath_rpc::{
    Header, Incoming, Kind, NoBuffer, Outgoing, Push, PushError, RpcServer, ServerConfig, Status,
};
use towpath_transport::{
    ChannelId, EndpointConfig, Event, LinkId, Message, Nanos, SendOptions, SubmitError, Time,
};

/// A world, and where its server pushes to: the channel over which a request came.
fn world(config: EndpointConfig) -> (World, (LinkId, ChannelId)) {
    let mut world = World::new(config, RpcServer::new(ServerConfig::new()));
    let deadline = world.soon();
    world.call(9, b"hello", &[], deadline);
    let request = world.request();
    let (responder, message) = request.into_message();
    assert_eq!(responder.channel(), message.channel());
    let to = (responder.link(), responder.channel());
    world.server.release(message);
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    let completion = world.completion();
    world.client.release(completion.result.expect("a response").into_message());
    world.until(|world| (world.serving.under_way() == 0).then_some(()));
    (world, to)
}

fn push(
    world: &mut World,
    to: (LinkId, ChannelId),
    body: &[u8],
    deadline: Time,
) -> Result<(), PushError> {
    world.serving.push(&mut world.server, to, 3, body, deadline)
}

/// Neither end holds a buffer, a message or credit.
fn nothing_is_left(world: &mut World) {
    world.until(|world| {
        let far = world.server.links().next()?;
        let census = world.server.link_census(far)?;
        let near = world.client.link_census(world.link)?;
        let buffers = world.server.buffers();
        let idle = (census.sends, near.incoming, near.credit_held) == (0, 0, 0);
        (idle && buffers.send_free == buffers.send_all).then_some(())
    });
}

#[test]
fn a_push_arrives_as_it_was_sent_and_its_buffers_go_back() {
    let (mut world, to) = world(EndpointConfig::new());
    for len in [0, 1, 48, PUSH_BODY_BYTES_MAX] {
        let body = pattern(len, len as u64);
        let deadline = world.soon();
        world.serving.push(&mut world.server, to, len as u16, &body, deadline).expect("room");
        let got = world.until(|world| world.rpc.next_push());
        assert_eq!(got, Push { method: len as u16, body });
        assert_eq!(world.rpc.next_push(), None);
        nothing_is_left(&mut world);
    }
    assert_eq!((world.rpc.stats().pushes, world.serving.stats().pushes), (4, 4));
    let (client, server) = (world.rpc.stats(), world.serving.stats());
    assert_eq!((client.malformed, client.late, server.pushes_given_up), (0, 0, 0));
}

#[test]
fn requests_are_served_while_pushes_come_and_each_outcome_goes_to_its_own_message() {
    let (mut world, to) = world(EndpointConfig::new());
    for round in 0..200_u64 {
        let deadline = world.soon();
        world.call(1, b"body", &[], deadline);
        push(&mut world, to, &round.to_le_bytes(), deadline).expect("room");
        let request = world.request();
        let (responder, message) = request.into_message();
        world.server.release(message);
        let got = world.until(|world| world.rpc.next_push());
        assert_eq!(got.body, round.to_le_bytes());
        world.until(|world| world.server.is_idle(to.0).then_some(()));
        // The outcome of the push has ended no request.
        assert_eq!(world.serving.under_way(), 1);
        let response = Outgoing::with_body(&world.server, b"answer").expect("a buffer");
        world.serving.respond(&mut world.server, responder, Status::OK, response);
        let response = world.completion().result.expect("a response");
        assert_eq!(response.body(), b"answer");
        world.client.release(response.into_message());
        world.until(|world| (world.serving.under_way() == 0).then_some(()));
    }
    nothing_is_left(&mut world);
    let stats = world.serving.stats();
    assert_eq!((stats.pushes, stats.pushes_given_up, stats.responses_given_up), (200, 0, 0));
}

#[test]
fn the_sent_event_of_a_message_that_is_no_push_is_given_back() {
    let (mut world, to) = world(EndpointConfig::new());
    let payload = world.server.copy(b"the application's own").expect("a buffer");
    let options = SendOptions::new().token(u64::MAX - 1);
    world.server.send(to.0, to.1, payload, options).expect("room");
    let mut seen = false;
    for _ in 0..1000 {
        let World { server, serving, .. } = &mut world;
        server.turn(|server, event| {
            let other = serving.on_event(server, event);
            seen |= matches!(other, Some(Incoming::Other(Event::Sent { .. })));
        });
        world.turn_client();
        world.pass(Nanos::from_micros(10));
    }
    assert!(seen);
    assert_eq!(world.rpc.stats().malformed, 1);
}

#[test]
fn of_pushes_that_nobody_takes_the_newest_stay_and_the_others_are_counted() {
    let (mut world, to) = world(EndpointConfig::new());
    let all = 3 * PUSHES_KEPT_MAX as u64;
    for number in 0..all {
        let deadline = world.soon();
        push(&mut world, to, &number.to_le_bytes(), deadline).expect("room");
        world.until(|world| (world.rpc.stats().pushes == number + 1).then_some(()));
        world.until(|world| world.server.is_idle(to.0).then_some(()));
    }
    let kept: Vec<u64> = std::iter::from_fn(|| world.rpc.next_push())
        .map(|push| u64::from_le_bytes(push.body.try_into().expect("8 bytes")))
        .collect();
    assert_eq!(kept, (2 * PUSHES_KEPT_MAX as u64..all).collect::<Vec<_>>());
    assert_eq!(world.rpc.stats().pushes_dropped, 2 * PUSHES_KEPT_MAX as u64);
    nothing_is_left(&mut world);
}

/// Uses up what credit the server has on the channel: the client keeps what arrives.
fn use_credit_up(world: &mut World, to: (LinkId, ChannelId)) -> Vec<Message> {
    let mut kept = Vec::new();
    loop {
        let payload = world.server.copy(b"keep me").expect("a buffer");
        let deadline = world.server.now() + Nanos::from_millis(20);
        let options = SendOptions::new().deadline(deadline);
        world.server.send(to.0, to.1, payload, options).expect("room");
        let before = kept.len();
        while !world.server.is_idle(to.0) {
            world.client.turn(|_, event| match event {
                Event::Message(message) => kept.push(message),
                other => drop(other),
            });
            world.server.turn(|_, event| drop(event));
            world.pass(Nanos::from_micros(100));
        }
        if kept.len() == before {
            return kept;
        }
    }
}

#[test]
fn a_channel_without_credit_takes_a_few_pushes_and_gives_them_up_in_time() {
    let (mut world, to) = world(EndpointConfig::new().quota_chunks(2));
    let kept = use_credit_up(&mut world, to);
    let buffers = world.server.buffers();
    for round in 1..=10 {
        let deadline = world.server.now() + Nanos::from_millis(50);
        for _ in 0..PUSHES_MAX {
            push(&mut world, to, b"body", deadline).expect("room");
        }
        for _ in 0..100 {
            let full = PushError::Full { max: PUSHES_MAX };
            assert_eq!(push(&mut world, to, b"body", deadline), Err(full));
        }
        let out = buffers.send_free - world.server.buffers().send_free;
        assert_eq!(out, PUSHES_MAX, "one buffer each");
        world.until(|world| (world.server.now() >= deadline).then_some(()));
        let given_up = round * PUSHES_MAX as u64;
        world.until(|world| (world.serving.stats().pushes_given_up == given_up).then_some(()));
        assert!(world.server.now() < deadline + Nanos::from_millis(5), "at the deadline");
        assert_eq!(world.server.buffers().send_free, buffers.send_free);
    }
    assert_eq!(world.serving.stats().pushes_refused, 1000);
    assert_eq!(world.rpc.stats().pushes, 0, "none has come");
    for message in kept {
        world.client.release(message);
    }
    let deadline = world.soon();
    push(&mut world, to, b"after", deadline).expect("room");
    assert_eq!(world.until(|world| world.rpc.next_push()).body, b"after");
    nothing_is_left(&mut world);
}

#[test]
fn one_channel_that_is_full_takes_nothing_from_another() {
    let (mut world, to) = world(EndpointConfig::new());
    let deadline = world.soon();
    for _ in 0..PUSHES_MAX {
        push(&mut world, to, b"body", deadline).expect("room");
    }
    let second = world.client.open_channel(world.link, false).expect("room for a channel");
    world.until(|world| (world.rpc.stats().pushes == PUSHES_MAX as u64).then_some(()));
    world.until(|world| world.server.is_idle(to.0).then_some(()));
    for _ in 0..PUSHES_MAX {
        push(&mut world, to, b"body", deadline).expect("room");
    }
    push(&mut world, (to.0, second), b"body", deadline).expect("room");
    assert!(push(&mut world, to, b"body", deadline).is_err());
}

#[test]
fn what_cannot_be_pushed_is_refused_with_the_reason() {
    let (mut world, to) = world(EndpointConfig::new());
    let (now, deadline) = (world.server.now(), world.soon());
    let long = vec![0; PUSH_BODY_BYTES_MAX + 1];
    let too_long = PushError::TooLong { bytes: long.len(), max: PUSH_BODY_BYTES_MAX };
    assert_eq!(push(&mut world, to, &long, deadline), Err(too_long));
    assert_eq!(push(&mut world, to, b"body", now), Err(PushError::Expired));
    let mut buffers = Vec::new();
    while let Ok(buf) = world.server.alloc(100) {
        buffers.push(buf);
    }
    let refused = push(&mut world, to, b"body", deadline);
    assert!(matches!(refused, Err(PushError::NoBuffer(NoBuffer { .. }))), "{refused:?}");
    drop(buffers);
    world.client.close(world.link);
    world.until(|world| world.server.links().next().is_none().then_some(()));
    let gone = push(&mut world, to, b"body", deadline);
    assert_eq!(gone, Err(PushError::Submit(SubmitError::NoSuchLink)));
    assert_eq!((world.serving.stats().pushes, world.serving.stats().pushes_refused), (0, 4));
}

#[test]
fn pushes_end_with_their_channel_and_their_link() {
    for whole_link in [false, true] {
        let (mut world, to) = world(EndpointConfig::new().quota_chunks(2));
        let _kept = use_credit_up(&mut world, to);
        let free = world.server.buffers().send_free;
        let deadline = world.server.now() + Nanos::from_millis(50);
        for _ in 0..PUSHES_MAX {
            push(&mut world, to, b"body", deadline).expect("room");
        }
        // Both end when what was sent has its outcome.
        if whole_link {
            world.server.close(to.0);
        } else {
            world.client.close_channel(world.link, world.channel).expect("it is open");
        }
        let all = PUSHES_MAX as u64;
        world.until(|world| (world.serving.stats().pushes_given_up == all).then_some(()));
        assert_eq!(world.server.buffers().send_free, free);
        let later = world.soon();
        let is_gone = |error: &PushError| matches!(error, PushError::Submit(_));
        world.until(|world| push(world, to, b"body", later).err().filter(is_gone));
    }
}

/// Sends a message of the rpc layer's own from one end, as no end of ours does.
fn send_raw(world: &mut World, from_server: Option<(LinkId, ChannelId)>, bytes: &[u8]) {
    let (end, (link, channel)) = match from_server {
        Some(to) => (&mut world.server, to),
        None => (&mut world.client, (world.link, world.channel)),
    };
    let payload = end.copy(bytes).expect("a buffer");
    end.send(link, channel, payload, SendOptions::new()).expect("room");
}

#[test]
fn malformed_pushes_and_pushes_to_a_server_are_counted_and_answered_by_nobody() {
    let (mut world, to) = world(EndpointConfig::new());
    let sound = Header {
        kind: Kind::Push,
        method: 1,
        status: Status::OK,
        inline: false,
        request: 0,
        body_len: 0,
        data_len: 0,
        timeout_us: 0,
    };
    let long = PUSH_BODY_BYTES_MAX as u32 + 1;
    let malformed = [
        (Header { status: Status(1), ..sound }, 0),
        (Header { request: 1, ..sound }, 0),
        (Header { timeout_us: 1, ..sound }, 0),
        (Header { data_len: 1, ..sound }, 1),
        (Header { body_len: long, ..sound }, long),
        // The lengths do not add up.
        (Header { body_len: 1, ..sound }, 0),
        (sound, 1),
    ];
    for (count, (header, rest)) in malformed.into_iter().enumerate() {
        let bytes = [&header.emit()[..], &vec![0; rest as usize]].concat();
        send_raw(&mut world, Some(to), &bytes);
        send_raw(&mut world, None, &bytes);
        let count = count as u64 + 1;
        world.until(|world| (world.rpc.stats().malformed == count).then_some(()));
        world.until(|world| (world.serving.stats().malformed == count).then_some(()));
    }
    // One that is too long to be held whole.
    let whole = world.client.whole_bytes_max(world.link).expect("the link") as usize;
    let bytes = [&sound.emit()[..], &vec![0; whole]].concat();
    send_raw(&mut world, Some(to), &bytes);
    let count = malformed.len() as u64 + 1;
    world.until(|world| (world.rpc.stats().malformed == count).then_some(()));
    assert_eq!((world.rpc.next_push(), world.rpc.stats().pushes), (None, 0));
    send_raw(&mut world, None, &sound.emit());
    world.until(|world| (world.serving.stats().malformed == count).then_some(()));
    nothing_is_left(&mut world);
    // The server has said nothing back but its first response.
    assert_eq!((world.serving.stats().responses, world.rpc.stats().late), (1, 0));
    assert!(world.requests.is_empty() && world.cancelled.is_empty());
}
