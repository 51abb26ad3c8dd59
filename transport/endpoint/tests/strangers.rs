//! Strangers that connect: what they say and do touches nobody else's links.

mod common;

use common::{LONG, LOOPBACK, Node, Pair, any_port, drive, join};
use std::io::{ErrorKind, Write};
use std::net::{TcpStream, UdpSocket};
use towpath_base::{Nanos, Prng};
use towpath_device_roce::udp::UdpConfig;
use towpath_device_roce::{EngineThread, SharedDevice};
use towpath_proto::wire::Hello;
use towpath_transport::{
    AcceptError, ConnectError, Device, Endpoint, EndpointConfig, Event, LinkId, Region, RoceUdp,
    roce_udp,
};
use towpath_verbs::QpState;

fn patient() -> EndpointConfig {
    EndpointConfig::new().connect_timeout(LONG).tune_links(|link| link.peer_timeout(LONG))
}

/// Small enough that a thousand links are soon made.
fn small() -> EndpointConfig {
    patient().credit_total(64).quota_chunks(32).receives_ready(64)
}

fn failure(event: &Event) -> Option<String> {
    match event {
        Event::LinkDown { reason, .. } => Some(format!("{reason:?}")),
        _ => None,
    }
}

fn accepted(event: &Event) -> Option<LinkId> {
    match event {
        Event::Accepted { link, .. } => Some(*link),
        _ => None,
    }
}

/// What the client of a pair has said when its link was made, as its server sees it.
fn hello_of(node: &mut Node) -> Hello {
    let (hello, pending) = node.endpoint.offer().expect("room");
    node.endpoint.withdraw(pending);
    hello
}

#[test]
fn no_link_notices_hellos_that_name_its_address_and_instance_and_queue_pairs() {
    let seed = 20;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut pair = Pair::new(small().links_max(8));
    let channel = pair.open(true);
    let addr = pair.server.endpoint.listen(any_port()).expect("a free port");
    let theirs = hello_of(&mut pair.client);
    let up: Vec<_> = pair.client.endpoint.paths(pair.client_link).map(|path| path.qp_num).collect();
    let mut strangers = Vec::new();
    for round in 0..1000u64 {
        let mut hello = theirs.clone();
        // Sometimes all of it is the client's own.
        if prng.chance(0.8) {
            hello.instance ^= prng.next_u64();
        }
        if prng.chance(0.2) {
            hello.addr = pair.server.endpoint.device().local_addr();
        }
        for (path, qp_num) in hello.paths.iter_mut().zip(&up) {
            path.qp_num = *qp_num;
        }
        let mut stream = TcpStream::connect(addr).expect("it listens");
        stream.write_all(&hello.emit()).expect("room");
        strangers.push(stream);
        if strangers.len() > 4 {
            strangers.remove(prng.below(4) as usize);
        }
        pair.send(channel, &round.to_le_bytes(), round);
        let message = pair.until(|client, server| {
            assert_eq!(client.take(failure), None, "round {round}");
            server.take_message()
        });
        assert_eq!(message.to_vec(), round.to_le_bytes());
        drop(message);
        pair.until(|client, _| client.take_sent(round));
    }
    let down = |event: &Event| match event {
        Event::LinkDown { link, .. } => Some(*link),
        _ => None,
    };
    while let Some(link) = pair.server.take(down) {
        assert_ne!(link, pair.server_link);
    }
}

/// Two processes on a host with one NIC: their devices have one address.
fn two_behind_one_nic(config: &EndpointConfig) -> [Node<SharedDevice<RoceUdp>>; 2] {
    let nic = roce_udp(UdpConfig::new(LOOPBACK.into()), config).expect("loopback UDP");
    let (engine, nic) = EngineThread::spawn(nic).expect("a thread");
    // Their own turns drive it.
    engine.stop();
    [1, 2].map(|seed| {
        let endpoint = Endpoint::new(nic.clone(), config.clone().seed(seed));
        Node::on(endpoint.expect("an endpoint"))
    })
}

/// Sends a message on a link, and takes it.
fn exchange<C: Device<Memory = Region>, S: Device<Memory = Region>>(
    joined: &common::Joined,
    client: &mut Node<C>,
    server: &mut Node<S>,
    mark: u8,
) {
    joined.send(client, &[mark; 100]);
    let message = drive(client, server, |client, server| {
        assert_eq!(client.take(failure), None);
        server.take_message()
    });
    assert_eq!(message.to_vec(), [mark; 100]);
}

#[test]
fn two_clients_behind_one_device_address_both_keep_their_links() {
    let mut server = Node::new(small());
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let [mut one, mut two] = two_behind_one_nic(&small());
    let first = join(&mut one, &mut server, addr);
    let second = join(&mut two, &mut server, addr);
    for round in 0..3 {
        exchange(&first, &mut one, &mut server, round);
        exchange(&second, &mut two, &mut server, round);
    }
    assert_eq!(server.endpoint.links().count(), 2);
}

#[test]
fn a_client_of_two_servers_behind_one_device_address_keeps_both_links() {
    let [mut one, mut two] = two_behind_one_nic(&small());
    let mut client = Node::new(small());
    let addrs = [&mut one, &mut two].map(|server| server.endpoint.listen(any_port()));
    let [to_one, to_two] = addrs.map(|addr| addr.expect("a free port"));
    let first = join(&mut client, &mut one, to_one);
    let second = join(&mut client, &mut two, to_two);
    for round in 0..3 {
        exchange(&first, &mut client, &mut one, round);
        exchange(&second, &mut client, &mut two, round);
    }
    assert_eq!(client.endpoint.links().count(), 2);
}

#[test]
fn an_honest_peer_gets_in_beside_hundreds_that_never_finish_their_hello() {
    // None of them is given up for its age.
    let mut server = Node::new(small().connect_timeout(Nanos::from_secs(3600)));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut slow = Vec::new();
    let mut join_one = |server: &mut Node, round: u8| {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(addr).expect("it listens");
            stream.write_all(b"T").expect("room");
            slow.push(stream);
            server.turn();
        }
        let mut client = Node::new(small());
        join(&mut client, server, addr).send(&mut client, &[round]);
        let message = drive(&mut client, server, |_, server| server.take_message());
        assert_eq!(message.to_vec(), [round]);
    };
    (0..20).for_each(|round| join_one(&mut server, round));
    let gave_way = |event: &Event| match event {
        Event::AcceptFailed { error: AcceptError::GaveWay { .. }, .. } => Some(()),
        _ => None,
    };
    let count = std::iter::from_fn(|| server.take(gave_way)).count();
    assert!(count >= 400 - 256, "{count}");
}

#[test]
fn links_that_were_never_heard_of_give_their_places_to_honest_ones() {
    let mut server = Node::new(small().links_max(8));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    // It is idle all the time, but it was heard.
    let mut quiet = Node::new(small());
    let kept = join(&mut quiet, &mut server, addr);
    let hello = hello_of(&mut Node::new(small())).emit();
    let mut mute = Vec::new();
    for round in 0..12u8 {
        for _ in 0..4 {
            let mut stream = TcpStream::connect(addr).expect("it listens");
            stream.write_all(&hello).expect("room");
            mute.push(stream);
            server.turn();
            quiet.turn();
        }
        let mut client = Node::new(small());
        exchange(&join(&mut client, &mut server, addr), &mut client, &mut server, round);
    }
    assert!(server.endpoint.links().any(|link| link == kept.accepted));
    let gave_way = server.endpoint.endpoint_stats().links_gave_way;
    // Places for seven at a time; and honest ones leave by themselves.
    assert!(gave_way >= 48 - 7, "{gave_way}");
    exchange(&kept, &mut quiet, &mut server, 0);
}

#[test]
fn when_all_links_were_heard_a_newcomer_is_told_that_the_server_is_full() {
    let mut server = Node::new(small().links_max(2));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut guests = [(); 2].map(|()| Node::new(small()));
    let joined = guests.each_mut().map(|guest| join(guest, &mut server, addr));
    let mut late = Node::new(small());
    late.endpoint.connect(addr).expect("room");
    let error = drive(&mut late, &mut server, |late, _| late.take_failure());
    assert!(matches!(error, ConnectError::Full { .. }), "{error}");
    for (joined, guest) in joined.iter().zip(&mut guests) {
        exchange(joined, guest, &mut server, 0);
    }
}

#[test]
fn nothing_is_sent_to_an_address_that_a_hello_names_and_that_says_nothing() {
    let bystander = UdpSocket::bind(any_port()).expect("a free port");
    bystander.set_nonblocking(true).expect("a socket");
    let brief = Nanos::from_millis(300);
    let config = small().links_max(16).tune_links(move |link| link.peer_timeout(brief));
    let mut server = Node::new(config.clone());
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut hello = hello_of(&mut Node::new(config));
    hello.addr = bystander.local_addr().expect("a bound address");
    let mut strangers = Vec::new();
    for _ in 0..11 {
        let mut stream = TcpStream::connect(addr).expect("it listens");
        stream.write_all(&hello.emit()).expect("room");
        strangers.push(stream);
    }
    let mut ended = 0;
    while ended < strangers.len() {
        if !server.turn() {
            server.endpoint.wait(Nanos::from_millis(1));
        }
        // What its application wants to send has to wait as well.
        while let Some(link) = server.take(accepted) {
            server.endpoint.open_channel(link, true).expect("a fresh link has room");
        }
        while server.take(failure).is_some() {
            ended += 1;
        }
    }
    let heard = bystander.recv(&mut [0; 2048]).map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::WouldBlock));
}

/// The most receives that one turn uses, unless configured otherwise.
const TAKEN_IN_A_TURN: usize = 64;

#[test]
fn links_that_hold_all_receive_buffers_do_not_starve_others() {
    let config = || {
        let config = patient().links_max(6).quota_chunks(256).credit_total(256);
        config.receives_ready(64).receive_buffers_max(64)
    };
    let mut server = Node::new(config());
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut honest = Node::new(config());
    let good = join(&mut honest, &mut server, addr);
    let (mut held, mut greedy) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let mut client = Node::new(config());
        let joined = join(&mut client, &mut server, addr);
        for _ in 0..256 {
            joined.send(&mut client, &[9; 600]);
        }
        greedy.push(client);
    }
    // Until no more is taken in.
    let mut idle = 0;
    while idle < 2_000 {
        for client in &mut greedy {
            client.turn();
        }
        server.turn();
        idle += 1;
        while let Some(message) = server.take_message() {
            held.push(message);
            idle = 0;
        }
        server.endpoint.wait(Nanos::from_micros(20));
    }
    let usage = server.endpoint.usage();
    // What the last turn took in, of what is sent again and again, is posted in the next.
    let posted = usage.receives_posted + TAKEN_IN_A_TURN;
    assert!(posted >= usage.receives_wanted, "{} held, {usage:?}", held.len());
    assert!(server.endpoint.endpoint_stats().over_share > 0);
    good.send(&mut honest, &[5; 600]);
    drive(&mut honest, &mut server, |_, server| server.take_message());
    // A newcomer finds room as well.
    let mut late = Node::new(config());
    let joined = join(&mut late, &mut server, addr);
    joined.send(&mut late, &[5; 600]);
    drive(&mut late, &mut server, |_, server| server.take_message());
}

#[test]
fn an_endpoint_that_is_dropped_leaves_no_queue_pair_behind_on_a_device_that_others_have() {
    let mut server = Node::new(small());
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let [mut one, two] = two_behind_one_nic(&small());
    let joined = join(&mut one, &mut server, addr);
    let paths: Vec<_> = one.endpoint.paths(joined.link).collect();
    let states = || paths.iter().map(|path| two.endpoint.device().qp_state(path.qp_num));
    assert!(states().all(|state| state == Ok(QpState::Rts)));
    // What it sends is under way: its buffers go back to nobody's pool while the device has them.
    joined.send(&mut one, &[1; 40_000]);
    one.endpoint.flush();
    drop(one);
    assert!(states().all(|state| state.is_err()));
}
