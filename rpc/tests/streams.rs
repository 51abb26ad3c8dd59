//! Requests that are handed over before all of their data is here.

mod common;

use common::{World, pattern};
use std::collections::HashMap;
use towpath_base::Prng;
use towpath_rpc::{
    Completion, Fate, Head, Incoming, RequestKey, RpcError, RpcServer, ServerConfig, Status,
    Streamed,
};
use towpath_transport::{EndpointConfig, Nanos};

/// A request that has begun, and what came of it.
struct Open {
    head: Head,
    data: Vec<u8>,
    filled: usize,
}

/// What a server saw of streamed requests.
#[derive(Default)]
struct Seen {
    open: HashMap<RequestKey, Open>,
    whole: Vec<Open>,
    broken: usize,
    /// Refuse what begins.
    refuses: bool,
    /// Requests that came all at once.
    at_once: usize,
    /// Of a request whose beginning was taken elsewhere: bytes that are missing, and that came.
    late: Option<(usize, usize)>,
}

fn world() -> World {
    world_of(EndpointConfig::new())
}

fn world_of(config: EndpointConfig) -> World {
    let config = config.pieces_as_they_come(true);
    let mut world = World::new(config, RpcServer::new(ServerConfig::new().streams(true)));
    world.rpc.set_longest_request(2 << 20);
    world
}

impl Seen {
    fn turn(&mut self, world: &mut World) {
        let World { server, serving, .. } = world;
        server.turn(|server, event| {
            let mut next = serving.on_event(server, event);
            while let Some(incoming) = next {
                match incoming {
                    Incoming::Streamed(streamed) => self.take(streamed),
                    Incoming::Request(request) => {
                        self.at_once += 1;
                        let (responder, message) = request.into_message();
                        server.release(message);
                        serving.respond_status(server, responder, Status::OK);
                    }
                    Incoming::Cancelled { .. } | Incoming::Other(_) => {}
                }
                next = serving.next_incoming();
            }
        });
        if self.refuses {
            for (_, open) in self.open.drain() {
                let responder = open.head.into_responder();
                serving.respond_status(server, responder, Status(77));
            }
            server.flush();
        }
        world.turn_client();
    }

    fn take(&mut self, streamed: Streamed) {
        match streamed {
            Streamed::Begun(head) => {
                let data = vec![0; head.data_len()];
                let key = head.request_key();
                let open = Open { head, data, filled: 0 };
                assert!(self.open.insert(key, open).is_none());
            }
            Streamed::Data { piece, .. } if self.late.is_some() => {
                self.late.iter_mut().for_each(|(_, came)| *came += piece.len());
            }
            Streamed::Whole { .. } if self.late.is_some() => {}
            Streamed::Data { request, offset, piece } => {
                let open = self.open.get_mut(&request).expect("the head comes first");
                open.data[offset..offset + piece.len()].copy_from_slice(&piece);
                open.filled += piece.len();
            }
            Streamed::Whole { request } => {
                let open = self.open.remove(&request).expect("it has begun");
                assert_eq!(open.filled, open.data.len());
                self.whole.push(open);
            }
            Streamed::Broken { request } => {
                self.open.remove(&request).expect("it has begun");
                self.broken += 1;
            }
        }
    }

    fn until(&mut self, world: &mut World, mut done: impl FnMut(&Self, &World) -> bool) {
        for _ in 0..100_000 {
            self.turn(world);
            if done(self, world) {
                return;
            }
            world.pass(Nanos(2_000));
        }
        panic!("not done: {} open, {} whole", self.open.len(), self.whole.len());
    }
}

#[test]
fn data_comes_before_the_request_is_whole_and_is_what_was_sent() {
    let mut prng = Prng::new(1);
    let (mut world, mut seen) = (world(), Seen::default());
    for round in 0..40 {
        let body = pattern(prng.between(0, 2_000) as usize, round);
        let data = pattern(prng.between(100_000, 1 << 20) as usize, round + 100);
        let deadline = world.soon();
        world.call(round as u16, &body, &data, deadline);
        seen.until(&mut world, |seen, _| !seen.whole.is_empty());
        let open = seen.whole.pop().expect("just found");
        assert_eq!((open.head.method(), open.head.body()), (round as u16, &body[..]));
        assert!(open.data == data, "round {round}");
        world.serving.respond_status(&mut world.server, open.head.into_responder(), Status::OK);
        seen.until(&mut world, |_, world| !world.completions.is_empty());
        let Completion { result, .. } = world.completions.pop().expect("just found");
        world.client.release(result.expect("a response").into_message());
    }
    seen.until(&mut world, |_, world| world.serving.under_way() == 0);
}

#[test]
fn what_a_client_gives_up_breaks_and_leaves_nothing_behind() {
    let (mut world, mut seen) = (world(), Seen::default());
    let deadline = world.soon();
    let id = world.call(1, b"body", &pattern(1_000_000, 1), deadline);
    seen.until(&mut world, |seen, _| seen.open.values().any(|open| open.filled > 0));
    world.rpc.cancel(&mut world.client, id);
    seen.until(&mut world, |_, world| !world.completions.is_empty());
    let Completion { result, .. } = world.completions.pop().expect("just found");
    let error = result.expect_err("cancelled");
    assert_eq!(error, RpcError::Cancelled { fate: Fate::DidNotHappen });
    assert_eq!((seen.broken, seen.open.len(), seen.whole.len()), (1, 0, 0));
    assert_eq!((world.serving.under_way(), world.serving.stats().broken), (0, 1));
}

#[test]
fn a_refusal_goes_out_before_the_data_is_here_and_stops_the_rest() {
    let (mut world, mut seen) = (world(), Seen { refuses: true, ..Seen::default() });
    let data = pattern(1_000_000, 1);
    let deadline = world.soon();
    world.call(1, b"body", &data, deadline);
    seen.until(&mut world, |_, world| !world.completions.is_empty());
    let Completion { result, .. } = world.completions.pop().expect("just found");
    let response = result.expect("a response");
    assert_eq!(response.header().status, Status(77));
    world.client.release(response.into_message());
    seen.until(&mut world, |_, world| world.client.is_idle(world.link));
    let received = world.server.stats_of_all_links().bytes_received;
    assert!(received < data.len() as u64 / 2, "{received} bytes came after all");
    assert_eq!((seen.whole.len(), world.serving.under_way()), (0, 0));
    // And the link goes on.
    world.call(2, b"body", b"data", deadline);
    seen.until(&mut world, |_, world| !world.completions.is_empty());
    assert_eq!(seen.at_once, 1);
}

#[test]
fn a_piece_that_is_shared_lies_where_it_landed_and_holds_its_credit() {
    let mut world = world_of(EndpointConfig::new().quota_chunks(8));
    let deadline = world.soon();
    let data = pattern(1_000_000, 3);
    world.call(1, b"body", &data, deadline);
    let mut held = Vec::new();
    let (mut heard, mut last) = (0, 0);
    // Until the client has no credit left: nothing is given back.
    while heard == 0 || heard != last {
        last = heard;
        for _ in 0..200 {
            let World { server, serving, .. } = &mut world;
            server.turn(|server, event| {
                let mut next = serving.on_event(server, event);
                while let Some(incoming) = next {
                    if let Incoming::Streamed(Streamed::Data { piece, offset, .. }) = incoming {
                        heard += piece.len();
                        let place = piece.as_ptr();
                        let (piece, frozen) = piece.share();
                        let frozen = frozen.expect("data has a segment of its own");
                        assert_eq!((frozen.as_ptr(), piece.as_ptr()), (place, place));
                        assert!(data[offset..].starts_with(&frozen), "at {offset}");
                        held.push(frozen);
                    }
                    next = serving.next_incoming();
                }
            });
            world.turn_client();
            world.pass(Nanos(20_000));
        }
    }
    assert!(heard < data.len(), "pieces that are kept stop their sender");
    drop(held);
    let mut seen = Seen { late: Some((data.len() - heard, 0)), ..Seen::default() };
    seen.until(&mut world, |seen, _| seen.late.is_none_or(|(wanted, came)| wanted == came));
}
