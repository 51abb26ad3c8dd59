//! Requests that break the format, sent by hand: typed refusals, and a server that goes on.

mod common;

use common::{Server, pattern};
use prost::Message;
use std::net::Ipv4Addr;
use towpath_base::Prng;
use towpath_fastpath::control::{CreateRequest, InfoRequest, Name};
use towpath_fastpath::slice::writer_crcs;
use towpath_fastpath::wire::{PROTOCOL, Why, WriteHeader, emit_crcs};
use towpath_fastpath::{ChunkId, ErrorReply, Method};
use towpath_rpc::{Call, Outgoing, Parcel, RpcClient, Status};
use towpath_transport::{Endpoint, EndpointConfig, Event, Nanos, RoceUdp, UdpConfig};

const CHUNK: ChunkId = ChunkId(5);

/// A client that sends whatever it is told.
struct Raw {
    endpoint: Endpoint<RoceUdp>,
    rpc: RpcClient,
}

impl Raw {
    fn connect(server: &Server) -> Self {
        let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
        let mut endpoint =
            Endpoint::udp(udp, EndpointConfig::new().app_protocol(PROTOCOL)).expect("loopback UDP");
        endpoint.connect(server.addr).expect("room for a connection");
        let mut rpc = None;
        while rpc.is_none() {
            let busy = endpoint.turn(|endpoint, event| match event {
                Event::Connected { link, .. } => {
                    endpoint.open_channel(link, false).expect("room for a channel");
                }
                Event::ChannelOpened { link, channel, .. } => {
                    rpc = Some(RpcClient::new(link, channel));
                }
                other => panic!("{other:?}"),
            });
            if !busy {
                endpoint.wait(Nanos::from_micros(100));
            }
        }
        Self { endpoint, rpc: rpc.expect("a channel") }
    }

    fn call(&mut self, method: u16, body: &[u8], data: &[u8]) -> Parcel {
        let Self { endpoint, rpc } = self;
        let mut out = Outgoing::new(endpoint, body.len(), data.len()).expect("a buffer");
        out.extend(body).expect("room");
        if !data.is_empty() {
            out.set_data(endpoint.copy(data).expect("a buffer"));
        }
        let deadline = endpoint.now() + Nanos::from_secs(20);
        rpc.call(endpoint, Call { method, token: 0, deadline, ask_fate: false }, out)
            .expect("room");
        endpoint.flush();
        loop {
            if let Some(completion) = rpc.poll() {
                return completion.result.expect("a response");
            }
            rpc.expire(endpoint);
            if !endpoint.turn(|endpoint, event| drop(rpc.on_event(endpoint, event))) {
                endpoint.wait(Nanos::from_micros(100));
            }
        }
    }

    fn error(&mut self, method: Method, body: &[u8], data: &[u8]) -> ErrorReply {
        let reply = self.call(method as u16, body, data);
        assert_eq!(reply.header().status, Status::APPLICATION);
        ErrorReply::parse(reply.body()).expect("an error reply")
    }

    fn create(&mut self) {
        let body = CreateRequest { chunk: Name::from(CHUNK), ..CreateRequest::default() };
        let reply = self.call(Method::Create as u16, &body.encode_to_vec(), &[]);
        assert_eq!(reply.header().status, Status::OK);
    }
}

fn write_body(offset: u64, data: &[u8]) -> Vec<u8> {
    let header =
        WriteHeader { chunk: CHUNK, offset, length: data.len() as u32, ..WriteHeader::default() };
    [&header.emit()[..], &emit_crcs(&writer_crcs(CHUNK, offset, data))].concat()
}

#[test]
fn what_breaks_the_format_is_refused_with_the_rule_it_breaks() {
    let server = Server::start();
    let mut raw = Raw::connect(&server);
    raw.create();
    let bad = |why| ErrorReply::BadRequest { why };
    let data = pattern(10_000, 1);
    let body = write_body(5, &data);
    assert_eq!(raw.error(Method::Write, &body, &data[1..]), bad(Why::Lengths));
    assert_eq!(raw.error(Method::Write, &body, &[]), bad(Why::Lengths));
    assert_eq!(raw.error(Method::Write, &body[..body.len() - 1], &data), bad(Why::Lengths));
    assert_eq!(raw.error(Method::Write, &body[..20], &data), bad(Why::Header));
    assert_eq!(raw.error(Method::Write, &[], &data), bad(Why::Header));
    assert_eq!(raw.error(Method::Read, &body, &[]), bad(Why::Header));
    assert_eq!(raw.error(Method::Stat, &[0xff; 9], &[]), bad(Why::Protobuf));
    assert_eq!(raw.error(Method::Info, &[], &data), bad(Why::Lengths));
    assert_eq!(raw.call(99, &[], &[]).header().status, Status::UNSUPPORTED);
    assert_eq!(raw.call(0, &[], &[]).header().status, Status::UNSUPPORTED);
    // And the same request, whole, is served.
    assert_eq!(raw.call(Method::Write as u16, &body, &data).header().status, Status::OK);
}

#[test]
fn data_that_was_changed_behind_its_checksums_is_refused_by_slice() {
    let seed = 51;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let server = Server::start();
    let mut raw = Raw::connect(&server);
    raw.create();
    for _ in 0..200 {
        let offset = prng.below(20_000);
        let mut data = pattern(prng.between(1, 80_000) as usize, offset);
        let body = write_body(offset, &data);
        let at = prng.below(data.len() as u64);
        data[at as usize] ^= 1 << prng.below(8);
        let slice = (offset + at) / 4096;
        let wanted = ErrorReply::WireCorrupt { chunk: CHUNK, slice };
        assert_eq!(raw.error(Method::Write, &body, &data), wanted);
    }
}

#[test]
fn mutated_requests_leave_the_server_answering() {
    let seed = 52;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let server = Server::start();
    let mut raw = Raw::connect(&server);
    raw.create();
    let data = pattern(5000, 2);
    let mut refused = 0;
    for _ in 0..3000 {
        let method = prng.below(23) as u16;
        let mut body = match prng.below(3) {
            0 => write_body(prng.below(9000), &data),
            1 => CreateRequest {
                chunk: Name::from(CHUNK),
                limit_bytes: Some(7),
                unfinished: true,
                resident: true,
                stamp: 9,
                chain: 3,
            }
            .encode_to_vec(),
            _ => pattern(prng.below(100) as usize, 3),
        };
        for _ in 0..prng.below(3) {
            if !body.is_empty() {
                let at = prng.below(body.len() as u64) as usize;
                body[at] = prng.next_u32() as u8;
            }
        }
        let with_data = if prng.chance(0.5) { &data[..] } else { &[] };
        let reply = raw.call(method, &body, with_data);
        refused += usize::from(reply.header().status != Status::OK);
        raw.endpoint.release(reply.into_message());
    }
    assert!(refused > 1000, "only {refused} were refused");
    let reply = raw.call(Method::Info as u16, &InfoRequest {}.encode_to_vec(), &[]);
    assert_eq!(reply.header().status, Status::OK);
}
