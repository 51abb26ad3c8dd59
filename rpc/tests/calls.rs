//! Requests and responses between two endpoints: what arrives, and what is known when none does.

mod common;

use common::{World, pattern};
use towpath_base::Prng;
use towpath_rpc::{
    Completion, Fate, Header, Kind, Outgoing, RpcError, RpcServer, ServerConfig, Status,
};
use towpath_transport::{EndpointConfig, Nanos, SendOptions, Time};

fn world() -> World {
    World::new(EndpointConfig::new(), RpcServer::new(ServerConfig::new()))
}

/// Body and data lengths around what changes the way they go.
const SHAPES: [(usize, usize); 9] = [
    (0, 0),
    (1, 0),
    (100, 1),
    (0, 4095),
    (8, 4096),
    (300, 4097),
    (5000, 0),
    (9000, 70_000),
    (60_000, 100_000),
];

#[test]
fn body_and_data_arrive_as_they_were_sent_both_ways() {
    let mut world = world();
    for (round, &(body, data)) in SHAPES.iter().enumerate() {
        let (body, data) = (pattern(body, 1), pattern(data, 2));
        let deadline = world.soon();
        world.call(round as u16, &body, &data, deadline);
        let request = world.request();
        assert_eq!(request.method(), round as u16);
        assert_eq!(request.body(), body);
        assert_eq!(request.data_len(), data.len());
        let mut got = Vec::new();
        for (offset, piece) in request.data_pieces() {
            assert_eq!(offset, got.len());
            let place = piece.as_ptr() as usize;
            let aligned = data.len() < 4096 || place.is_multiple_of(4096);
            assert!(aligned, "a page of data or more lands page-aligned");
            got.extend_from_slice(piece);
        }
        assert_eq!(got, data);
        let (responder, pieces) = request.into_data();
        let mut back = Outgoing::new(&world.server, body.len(), data.len()).expect("a buffer");
        back.extend(&body).expect("room");
        let copied: Vec<u8> = pieces.into_vec().iter().flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(copied, data);
        if !copied.is_empty() {
            back.set_data(world.server.copy(&copied).expect("a buffer"));
        }
        world.serving.respond(&mut world.server, responder, Status(77), back);
        let Completion { result, token, .. } = world.completion();
        let response = result.expect("a response");
        assert_eq!(token, round as u64);
        assert_eq!(response.header().status, Status(77));
        assert_eq!(response.body(), body);
        let got: Vec<u8> = response.data_pieces().flat_map(|(_, piece)| piece.to_vec()).collect();
        assert_eq!(got, data);
        world.client.release(response.into_message());
    }
    world.until(|world| (world.serving.under_way() == 0).then_some(()));
}

#[test]
fn a_request_without_a_response_times_out_and_the_server_is_told() {
    let mut world = world();
    let deadline = world.deadline_in_millis(30);
    world.call(1, b"body", &[], deadline);
    let request = world.request();
    let Completion { result, .. } = world.completion();
    // Delivered, and then silence: nobody knows.
    assert_eq!(result.expect_err("no response"), RpcError::TimedOut { fate: Fate::Unknown });
    world.until(|world| (world.serving.stats().cancelled == 1).then_some(()));
    let (responder, _) = request.into_message();
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    assert_eq!(world.serving.stats().responses_dropped, 1);
    assert_eq!((world.serving.under_way(), world.rpc.under_way()), (0, 0));
}

#[test]
fn a_response_that_crosses_the_cancel_is_counted_as_late() {
    let mut world = world();
    world.ask_fate = false;
    let deadline = world.soon();
    let id = world.call(1, b"body", &[], deadline);
    let request = world.request();
    world.until(|world| world.client.is_idle(world.link).then_some(()));
    world.rpc.cancel(&mut world.client, id);
    let (responder, _) = request.into_message();
    // The server answers before it has taken the cancel in.
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    world.server.flush();
    let Completion { result, .. } = world.completion();
    assert_eq!(result.expect_err("cancelled"), RpcError::Cancelled { fate: Fate::Unknown });
    world.until(|world| (world.rpc.stats().late >= 1).then_some(()));
}

#[test]
fn a_request_that_was_never_sent_times_out_as_not_done() {
    // A server that keeps what arrives has credit for two chunks: the rest stays here.
    let config = EndpointConfig::new().quota_chunks(2);
    let mut world = World::new(config, RpcServer::new(ServerConfig::new()));
    let deadline = world.deadline_in_millis(100);
    for method in 0..20 {
        world.call(method, b"body", &[], deadline);
    }
    world.until(|world| (world.completions.len() == 20).then_some(()));
    let (mut undone, mut unknown) = (Vec::new(), 0);
    for Completion { token, result, .. } in world.completions.drain(..) {
        match result.expect_err("no response") {
            RpcError::TimedOut { fate: Fate::DidNotHappen } => undone.push(token),
            RpcError::TimedOut { fate: Fate::Unknown } => unknown += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(undone.len() >= 10 && unknown >= 1, "{} not done, {unknown} unknown", undone.len());
    // What was called not done is never seen, not even when there is credit again.
    let mut seen: Vec<u16> = Vec::new();
    for _ in 0..2000 {
        for request in world.requests.drain(..) {
            seen.push(request.method());
            let (responder, message) = request.into_message();
            world.server.release(message);
            world.serving.abandon(&mut world.server, responder, Fate::Unknown);
        }
        world.turn();
    }
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|method| !undone.contains(&u64::from(*method))), "{seen:?}");
}

#[test]
fn a_silent_peer_does_not_hold_a_timeout_back() {
    let mut world = world();
    let deadline = world.deadline_in_millis(20);
    world.call(1, b"body", &[], deadline);
    // The server's endpoint is never turned: no ack, no answer to the abandonment.
    let result = loop {
        world.turn_client();
        if let Some(completion) = world.completions.pop() {
            break completion.result;
        }
        world.pass(Nanos::from_micros(200));
    };
    assert_eq!(result.expect_err("no response"), RpcError::TimedOut { fate: Fate::Unknown });
}

#[test]
fn a_link_that_goes_down_ends_every_request() {
    let mut world = world();
    let deadline = world.soon();
    for method in 0..5 {
        world.call(method, b"body", &[], deadline);
    }
    world.until(|world| (world.requests.len() == 5).then_some(()));
    let link = world.server.links().next().expect("the link");
    world.server.close(link);
    world.until(|world| (world.completions.len() == 5).then_some(()));
    for Completion { result, .. } in &world.completions {
        let error = result.as_ref().expect_err("no response");
        assert!(matches!(error, RpcError::PeerGone { fate: Fate::Unknown }), "{error:?}");
    }
    assert!(world.rpc.is_down());
    // The requests' places are free, and an answer to a link that is gone is dropped.
    world.until(|world| (world.serving.under_way() == 0).then_some(()));
    let (responder, _) = world.requests.pop().expect("five").into_message();
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    assert_eq!(world.serving.stats().responses_dropped, 1);
}

#[test]
fn requests_beyond_the_limit_are_told_busy() {
    let config = ServerConfig::new().requests_max(4);
    let mut world = World::new(EndpointConfig::new(), RpcServer::new(config));
    let deadline = world.soon();
    for method in 0..7 {
        world.call(method, &[], &[], deadline);
    }
    world.until(|world| (world.completions.len() == 3).then_some(()));
    assert!(world.completions.drain(..).all(|completion| {
        completion.result.is_ok_and(|response| response.header().status == Status::BUSY)
    }));
    assert_eq!(world.requests.len(), 4);
    // Each place that is free again takes one more.
    let (responder, _) = world.request().into_message();
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    world.completion();
    world.until(|world| (world.serving.under_way() == 3).then_some(()));
    world.call(9, &[], &[], deadline);
    world.until(|world| world.requests.iter().any(|request| request.method() == 9).then_some(()));
}

#[test]
fn a_request_too_long_to_be_held_whole_is_told_so() {
    let mut world = world();
    let whole = world.client.whole_bytes_max(world.link).expect("the link") as usize;
    assert_eq!(world.rpc.request_bytes_max(&world.client), whole - 32);
    let data_len = (whole as u32).next_multiple_of(4096);
    let header = Header {
        kind: Kind::Request,
        method: 5,
        status: Status::OK,
        inline: false,
        request: 1 << 40,
        body_len: 0,
        data_len,
        timeout_us: 0,
    };
    let mut bytes = header.emit().to_vec();
    bytes.resize(32 + data_len as usize, 7);
    let payload = world.client.copy(&bytes).expect("a buffer");
    let options = SendOptions::new();
    world.client.send(world.link, world.channel, payload, options).expect("room");
    world.until(|world| (world.serving.stats().too_long == 1).then_some(()));
    // The client never made this request: its refusal counts as late.
    world.until(|world| (world.rpc.stats().late >= 1).then_some(()));
    let deadline = world.soon();
    world.call(6, b"next", &[], deadline);
    assert_eq!(world.request().body(), b"next");
}

#[test]
fn a_hostile_peer_leaves_the_server_serving_and_its_memory_flat() {
    let seed = 5;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut world = world();
    let mut sent = 0;
    while sent < 3000 {
        while world.client.is_idle(world.link) || sent % 32 != 0 {
            let header = Header {
                kind: Kind::Request,
                method: 1,
                status: Status::OK,
                inline: true,
                request: prng.next_u64(),
                body_len: prng.below(64) as u32,
                data_len: prng.between(1, 64) as u32,
                timeout_us: 0,
            };
            let mut bytes = header.emit().to_vec();
            bytes.extend(pattern((header.body_len + header.data_len) as usize, sent));
            for _ in 0..prng.below(4) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.next_u32() as u8;
            }
            if prng.chance(0.2) {
                bytes.truncate(prng.between(1, bytes.len() as u64) as usize);
            }
            let payload = world.client.copy(&bytes).expect("a buffer");
            let sending = world.client.send(world.link, world.channel, payload, SendOptions::new());
            sending.expect("room");
            sent += 1;
            if sent % 32 == 0 {
                break;
            }
        }
        world.turn();
        for request in world.requests.drain(..) {
            let (responder, message) = request.into_message();
            world.server.release(message);
            world.serving.respond_status(&mut world.server, responder, Status::UNSUPPORTED);
        }
    }
    let deadline = world.soon();
    world.call(2, b"honest", &[], deadline);
    let request = world.until(|world| {
        let at = world.requests.iter().position(|request| request.body() == b"honest")?;
        Some(world.requests.swap_remove(at))
    });
    let (responder, message) = request.into_message();
    world.server.release(message);
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    let completion = world.completion();
    completion.result.expect("the honest request was served");
    world.until(|world| world.client.is_idle(world.link).then_some(()));
    for request in std::mem::take(&mut world.requests) {
        let (responder, _) = request.into_message();
        world.serving.abandon(&mut world.server, responder, Fate::Unknown);
    }
    let stats = world.serving.stats();
    assert!(stats.malformed > 500 && stats.requests > 500, "{stats:?}");
    world.until(|world| (world.serving.under_way() == 0).then_some(()));
    world.until(|world| {
        let now = world.server.buffers();
        let held = now.recv_all - now.recv_posted - now.recv_free;
        (now.send_free == now.send_all && held == 0).then_some(())
    });
}

#[test]
fn a_request_without_a_deadline_has_the_default_one_at_the_server() {
    let mut world = world();
    world.call(1, &[], &[], Time::NEVER);
    let before = world.server.now();
    let request = world.request();
    assert!(request.deadline() > before && request.deadline() < Time::NEVER);
}

#[test]
fn a_server_grants_no_more_time_than_its_limit() {
    let mut world = world();
    let deadline = world.server.now() + Nanos::from_secs(70 * 60);
    world.call(1, &[], &[], deadline);
    let request = world.request();
    let granted = request.deadline().since(world.server.now());
    assert!(granted <= towpath_rpc::limits::TIMEOUT_MAX, "{granted:?}");
}

#[test]
fn the_age_of_a_request_that_is_excused_counts_from_there() {
    let mut world = world();
    let deadline = world.soon();
    world.call(1, &[], &[], deadline);
    let (responder, _) = world.request().into_data();
    let slow = |world: &mut World| {
        world.pass(Nanos::from_millis(60));
        world.turn_server();
        let (now, mut told) = (world.server.now(), Vec::new());
        world.serving.note_slow(now, Nanos::from_millis(100), |_, age, first| {
            told.push((age >= Nanos::from_millis(100), first));
        });
        told
    };
    assert_eq!(slow(&mut world), []);
    world.serving.excuse(&responder, world.server.now());
    assert_eq!(slow(&mut world), [], "120 ms old, and 60 since");
    assert_eq!(slow(&mut world), [(true, true)]);
    assert_eq!(slow(&mut world), [(true, false)], "told once");
    world.serving.excuse(&responder, Time::NEVER);
    assert_eq!(slow(&mut world), []);
}
