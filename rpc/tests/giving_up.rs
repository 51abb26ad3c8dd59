//! Requests that are given up: both ends let go, and the caller learns what became of them.

mod common;

use common::{World, pattern};
use towpath_rpc::limits::{FATES_MAX, OUTCOME_GRACE};
use towpath_rpc::{
    Call, Completion, Fate, Header, Kind, Outgoing, RpcError, RpcServer, ServerConfig, Status,
};
use towpath_transport::{EndpointConfig, Nanos, SendOptions};

fn world() -> World {
    World::new(EndpointConfig::new(), RpcServer::new(ServerConfig::new()))
}

/// Waits until both ends hold nothing: no request, no send buffer, no receive buffer, no credit.
fn nothing_is_left(world: &mut World) {
    world.completions.clear();
    world.until(|world| {
        let quiet = world.rpc.held() == 0 && world.serving.under_way() == 0;
        let far = world.server.links().next()?;
        let idle = world.client.is_idle(world.link) && world.server.is_idle(far);
        (quiet && idle).then_some(())
    });
    for _ in 0..20 {
        world.turn();
    }
    let far = world.server.links().next().expect("the link is up");
    for (endpoint, link) in [(&world.client, world.link), (&world.server, far)] {
        let buffers = endpoint.buffers();
        assert_eq!(buffers.send_free, buffers.send_all, "{buffers:?}");
        assert_eq!(buffers.recv_all, buffers.recv_free + buffers.recv_posted, "{buffers:?}");
        let census = endpoint.link_census(link).expect("the link is up");
        assert_eq!((census.sends, census.incoming, census.credit_held), (0, 0, 0), "{census:?}");
    }
}

/// The link carries requests as before.
fn still_serves(world: &mut World) {
    let deadline = world.soon();
    world.call(77, b"next", &[], deadline);
    let request = world.request();
    assert_eq!(request.body(), b"next");
    let (responder, message) = request.into_message();
    world.server.release(message);
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    let completion = world.until(|world| world.completions.pop());
    world.client.release(completion.result.expect("a response").into_message());
}

fn error_of(world: &mut World) -> RpcError {
    world.completion().result.expect_err("it was given up")
}

#[test]
fn what_the_service_had_not_begun_did_not_happen_and_its_data_is_free_at_once() {
    let mut world = world();
    let deadline = world.soon();
    let id = world.call(1, b"body", &pattern(70_000, 1), deadline);
    let request = world.request();
    let key = world.until(|world| {
        world.rpc.cancel(&mut world.client, id);
        world.cancelled.pop()
    });
    let (responder, pieces) = request.into_data();
    assert_eq!(responder.request_key(), key);
    drop(pieces);
    world.serving.abandon(&mut world.server, responder, Fate::DidNotHappen);
    assert_eq!(error_of(&mut world), RpcError::Cancelled { fate: Fate::DidNotHappen });
    assert_eq!(world.serving.stats().cancelled_unbegun, 1);
    assert_eq!(world.rpc.stats().not_happened, 1);
    nothing_is_left(&mut world);
    still_serves(&mut world);
}

#[test]
fn what_the_service_finishes_after_all_is_known_to_have_happened() {
    for (status, noted, fate) in [
        (Status::OK, None, Fate::Happened),
        (Status::UNSUPPORTED, None, Fate::DidNotHappen),
        (Status::APPLICATION, None, Fate::Unknown),
        (Status::APPLICATION, Some(Fate::DidNotHappen), Fate::DidNotHappen),
    ] {
        let mut world = world();
        let deadline = world.deadline_in_millis(20);
        world.call(1, b"body", &[], deadline);
        let request = world.request();
        world.until(|world| world.cancelled.pop());
        let (responder, message) = request.into_message();
        world.server.release(message);
        if let Some(noted) = noted {
            world.serving.set_fate(&responder, noted);
        }
        world.serving.respond_status(&mut world.server, responder, status);
        assert_eq!(error_of(&mut world), RpcError::TimedOut { fate }, "{status:?}");
        nothing_is_left(&mut world);
        still_serves(&mut world);
    }
}

#[test]
fn a_response_on_its_way_is_given_up_and_the_server_says_that_it_was_done() {
    let mut world = world();
    let deadline = world.soon();
    let id = world.call(1, b"body", &[], deadline);
    let request = world.request();
    let (responder, message) = request.into_message();
    world.server.release(message);
    // So long that it cannot be whole at once: the server does not see acks while we cancel.
    let mut out = Outgoing::new(&world.server, 0, 200_000).expect("a buffer");
    out.set_data(world.server.copy(&pattern(200_000, 3)).expect("a buffer"));
    world.serving.respond(&mut world.server, responder, Status::OK, out);
    world.rpc.cancel(&mut world.client, id);
    let Completion { result, .. } = world.completion();
    match result {
        // The response may be quicker than the cancel.
        Ok(response) => world.client.release(response.into_message()),
        Err(error) => assert_eq!(error, RpcError::Cancelled { fate: Fate::Happened }),
    }
    nothing_is_left(&mut world);
    still_serves(&mut world);
}

#[test]
fn a_fate_is_remembered_until_its_client_asks() {
    let mut world = world();
    let deadline = world.deadline_in_millis(60);
    world.call(1, b"body", &[], deadline);
    let request = world.request();
    // The server sees the end of the time first, and ends the request by itself.
    let (responder, message) = request.into_message();
    world.server.release(message);
    world.serving.abandon(&mut world.server, responder, Fate::Happened);
    assert_eq!((world.serving.under_way(), world.serving.fates_kept()), (0, 1));
    assert_eq!(error_of(&mut world), RpcError::TimedOut { fate: Fate::Happened });
    assert_eq!(world.serving.stats().cancels_late, 1);
    nothing_is_left(&mut world);
}

#[test]
fn a_caller_that_does_not_ask_has_its_completion_at_once_and_the_server_is_told_all_the_same() {
    let mut world = world();
    world.ask_fate = false;
    let deadline = world.soon();
    let id = world.call(1, b"body", &[], deadline);
    // Not even sent: the completion is there before anything was turned.
    world.rpc.cancel(&mut world.client, id);
    let completion = world.rpc.poll().expect("at once");
    assert!(matches!(completion.result, Err(RpcError::Cancelled { .. })));
    let id = world.call(2, b"body", &[], deadline);
    let request = world.request();
    world.rpc.cancel(&mut world.client, id);
    assert!(world.rpc.poll().is_some(), "at once");
    assert_eq!(world.rpc.under_way(), 0);
    world.until(|world| world.cancelled.pop());
    let (responder, message) = request.into_message();
    world.server.release(message);
    world.serving.abandon(&mut world.server, responder, Fate::DidNotHappen);
    nothing_is_left(&mut world);
    assert!(world.completions.is_empty() && world.rpc.poll().is_none(), "one completion each");
    still_serves(&mut world);
}

#[test]
fn a_server_that_never_answers_holds_nobody_longer_than_the_grace() {
    let mut world = world();
    let deadline = world.deadline_in_millis(20);
    world.call(1, b"body", &[], deadline);
    let request = world.request();
    assert_eq!(error_of(&mut world), RpcError::TimedOut { fate: Fate::Unknown });
    assert!(world.client.now() >= deadline + OUTCOME_GRACE, "it was given the time to say");
    assert_eq!(world.rpc.held(), 0);
    // And then it answers after all.
    let (responder, message) = request.into_message();
    world.server.release(message);
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    world.until(|world| (world.rpc.stats().late == 1).then_some(()));
    nothing_is_left(&mut world);
    still_serves(&mut world);
}

/// Sends a message of the rpc layer's own, as no client of ours does.
fn send_raw(world: &mut World, kind: Kind, request: u64, status: Status) {
    let header = Header {
        kind,
        method: 1,
        status,
        inline: false,
        request,
        body_len: 0,
        data_len: 0,
        timeout_us: 0,
    };
    let payload = world.client.copy(&header.emit()).expect("a buffer");
    let sent = world.client.send(world.link, world.channel, payload, SendOptions::new());
    sent.expect("room");
}

#[test]
fn cancels_of_what_is_unknown_and_cancels_that_come_twice_change_nothing() {
    let mut world = world();
    for request in 0..200 {
        send_raw(&mut world, Kind::Cancel, request << 16, Status::OK);
    }
    world.until(|world| (world.serving.stats().cancels_late == 200).then_some(()));
    // Each is answered with a fate that nobody here waits for.
    world.until(|world| (world.rpc.stats().late == 200).then_some(()));
    let deadline = world.soon();
    world.call(1, b"body", &[], deadline);
    let request = world.request();
    for _ in 0..5 {
        send_raw(&mut world, Kind::Cancel, request.id(), Status::OK);
    }
    world.until(|world| (world.serving.stats().cancels_late == 204).then_some(()));
    assert_eq!((world.serving.stats().cancelled, world.cancelled.len()), (1, 1));
    let (responder, message) = request.into_message();
    world.server.release(message);
    world.serving.respond_status(&mut world.server, responder, Status::OK);
    // One fate, for which the client never asked: the request still waits, and times out.
    world.until(|world| (world.rpc.stats().late == 201).then_some(()));
    assert_eq!(world.rpc.under_way(), 1);
    for kind in [Kind::Fate, Kind::Response] {
        send_raw(&mut world, kind, 5, Status(1));
    }
    world.until(|world| (world.serving.stats().malformed == 2).then_some(()));
    still_serves(&mut world);
}

#[test]
fn fates_that_nobody_asks_for_are_bounded_and_go_with_their_link() {
    let mut world = world();
    world.ask_fate = false;
    let deadline = world.soon();
    let mut ended = 0;
    while ended < FATES_MAX + 100 {
        for _ in 0..100 {
            let mut out = Outgoing::new(&world.client, 0, 0).expect("a buffer");
            out.extend(b"x").expect("room");
            let call = Call { method: 1, token: 0, deadline, ask_fate: false };
            world.rpc.call(&mut world.client, call, out).expect("room");
        }
        world.until(|world| (world.requests.len() == 100).then_some(()));
        for request in std::mem::take(&mut world.requests) {
            let (responder, message) = request.into_message();
            world.server.release(message);
            world.serving.abandon(&mut world.server, responder, Fate::Happened);
            ended += 1;
        }
        // Forgotten by the client, without a word to the server.
        world.rpc = towpath_rpc::RpcClient::new(world.link, world.channel);
    }
    assert_eq!(world.serving.fates_kept(), FATES_MAX);
    world.client.close(world.link);
    world.until(|world| (world.serving.fates_kept() == 0).then_some(()));
    world.client.wait(Nanos::ZERO);
}
