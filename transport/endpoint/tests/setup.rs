//! Set-up over TCP: versions, hostile bytes, limits, peers that go away.

mod common;

use common::{LONG, Node, Pair, any_port, drive, endpoint, join, nobody, pattern};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use towpath_base::{Nanos, Prng};
use towpath_proto::wire::{Hello, HelloError, Refusal, Welcome};
use towpath_proto::{DownReason, Side};
use towpath_transport::{
    AcceptError, Carrier, CarrierChoice, ConnectError, EndpointConfig, Event, Fallback, LinkError,
    ListenError,
};

/// For conversations that shall end by the clock.
fn quick() -> EndpointConfig {
    EndpointConfig::new().connect_timeout(Nanos::from_millis(300))
}

/// For those that shall not.
fn patient() -> EndpointConfig {
    EndpointConfig::new().connect_timeout(LONG)
}

fn connect_failed(event: &Event) -> Option<String> {
    match event {
        Event::ConnectFailed { error, .. } => Some(error.to_string()),
        _ => None,
    }
}

/// A HELLO that a peer could send.
fn hello_bytes() -> Vec<u8> {
    let mut other = endpoint(patient());
    let (hello, pending) = other.offer().expect("room");
    other.withdraw(pending);
    hello.emit()
}

/// Sends bytes to a listening endpoint and returns what it answers, and what it tells.
fn talk(node: &mut Node, addr: SocketAddr, bytes: &[u8]) -> (Vec<u8>, AcceptError) {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    // The endpoint may have refused already; then the rest of the bytes goes nowhere.
    let _ = stream.write_all(bytes);
    let error = loop {
        node.turn();
        let is = |event: &Event| matches!(event, Event::AcceptFailed { .. });
        if let Some(place) = node.events.iter().position(is)
            && let Event::AcceptFailed { error, .. } = node.events.remove(place)
        {
            break error;
        }
    };
    let reader = std::thread::spawn(move || {
        let mut answer = Vec::new();
        // A reset after the answer is as good as an end of file.
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    while !reader.is_finished() {
        node.turn();
    }
    (reader.join().expect("a reader"), error)
}

#[test]
fn applications_that_speak_different_protocols_are_refused_and_told_both_names() {
    let speaks = |name: &str| patient().app_protocol(name.parse().expect("a name"));
    for (ours, theirs) in [("echo/1", "storage/1"), ("", "storage/1"), ("echo/1", "")] {
        let (mut client, mut server) = (Node::new(speaks(ours)), Node::new(speaks(theirs)));
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        client.endpoint.connect(addr).expect("room");
        let error = drive(&mut client, &mut server, |client, _| client.take_failure());
        let text = error.to_string();
        assert!(matches!(error, ConnectError::App { .. }), "{text}");
        assert!(text.contains(ours) && text.contains(theirs), "{text}");
        let told = drive(&mut client, &mut server, |_, server| {
            server.take(|event| match event {
                Event::AcceptFailed { error, .. } => Some(error.to_string()),
                _ => None,
            })
        });
        assert!(told.contains(ours) && told.contains(theirs), "{told}");
        // Those who speak the same get in.
        let mut friend = Node::new(speaks(theirs));
        join(&mut friend, &mut server, addr);
    }
}

#[test]
fn a_device_address_that_is_not_of_one_host_is_refused() {
    let mut node = Node::new(patient());
    let addr = node.endpoint.listen(any_port()).expect("a free port");
    let Ok(Welcome::Hello(good)) = Welcome::parse(&hello_bytes()) else { panic!("a HELLO") };
    for named in [
        "127.0.0.1:0",
        "0.0.0.0:4791",
        "255.255.255.255:4791",
        "224.0.0.1:4791",
        "239.255.255.250:1900",
        "[::]:4791",
        "[ff02::1]:4791",
        "[::ffff:224.0.0.1]:4791",
        "[::ffff:255.255.255.255]:4791",
    ] {
        let hello = Hello { addr: named.parse().expect("an address"), ..good.clone() };
        let (answer, error) = talk(&mut node, addr, &hello.emit());
        assert_eq!(Welcome::parse(&answer), Ok(Welcome::Refused(Refusal::Address)), "{named}");
        assert!(matches!(error, AcceptError::Link(LinkError::Address { .. })), "{named}: {error}");
    }
    assert_eq!(node.endpoint.links().count(), 0);
}

#[test]
fn a_port_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind(any_port()).expect("a free port");
    let addr = taken.local_addr().expect("a bound address");
    let error = endpoint(patient()).listen(addr).expect_err("it is taken");
    assert!(matches!(error, ListenError::PortInUse(at) if at == addr));
    assert!(
        error.to_string().contains(&addr.port().to_string()) && error.to_string().contains("ss")
    );
}

#[test]
fn another_version_is_named_at_both_ends() {
    let mut node = Node::new(patient());
    let addr = node.endpoint.listen(any_port()).expect("a free port");
    let mut bytes = hello_bytes();
    for version in [2u16, 3, 4, 5, 7] {
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        let (answer, error) = talk(&mut node, addr, &bytes);
        let AcceptError::Hello(HelloError::Version(peer)) = error else { panic!("{error}") };
        assert_eq!(peer, version);
        assert_eq!(Welcome::parse(&answer), Ok(Welcome::Refused(Refusal::Version)));
    }

    let newer = TcpListener::bind(any_port()).expect("a free port");
    let addr = newer.local_addr().expect("a bound address");
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = newer.accept().expect("a connection");
        stream.write_all(&bytes).expect("an answer");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    node.endpoint.connect(addr).expect("room");
    let text = loop {
        node.turn();
        if let Some(text) = node.take(connect_failed) {
            break text;
        }
    };
    assert!(text.contains("version 7") && text.contains("version 6"), "{text}");
    drop(node);
    peer.join().expect("the peer read an end of file");
}

#[test]
fn hostile_bytes_are_answered_with_a_refusal_and_the_listener_goes_on() {
    let seed = 11;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut node = Node::new(quick());
    let addr = node.endpoint.listen(any_port()).expect("a free port");
    let good = hello_bytes();
    for round in 0..40 {
        let mut bytes = good.clone();
        if round % 4 == 0 {
            prng.fill(&mut bytes);
        } else {
            // Behind the version, so that it is another rule that is broken.
            let at = prng.between(12, bytes.len() as u64 - 1) as usize;
            bytes[at] ^= prng.between(1, 255) as u8;
        }
        let (answer, error) = talk(&mut node, addr, &bytes);
        let refused = Ok(Welcome::Refused(Refusal::Malformed));
        assert_eq!(Welcome::parse(&answer), refused, "round {round}: {error}");
    }
    let mut client = Node::new(patient());
    // The listener is as quick with this one, who may be too slow for it on a busy machine.
    let goes_on = (0..50).any(|_| {
        client.endpoint.connect(addr).expect("room");
        drive(&mut client, &mut node, |client, _| {
            client.take(|event| match event {
                Event::Connected { .. } => Some(true),
                Event::ConnectFailed { .. } => Some(false),
                _ => None,
            })
        })
    });
    assert!(goes_on);
}

#[test]
fn a_silent_peer_and_a_silent_server_time_out() {
    let mut node = Node::new(quick());
    let addr = node.endpoint.listen(any_port()).expect("a free port");
    let (answer, error) = talk(&mut node, addr, b"TOWPATH");
    assert!(matches!(error, AcceptError::Timeout(_)), "{error}");
    assert_eq!(Welcome::parse(&answer), Ok(Welcome::Refused(Refusal::Malformed)));
    let mute = TcpListener::bind(any_port()).expect("a free port");
    node.endpoint.connect(mute.local_addr().expect("an address")).expect("room");
    let text = loop {
        node.turn();
        if let Some(text) = node.take(connect_failed) {
            break text;
        }
    };
    assert!(text.contains("did not answer"), "{text}");
}

#[test]
fn nobody_listening_and_no_room_are_told_apart() {
    let mut server = Node::new(patient().links_max(1));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut first = Node::new(patient());
    first.endpoint.connect(addr).expect("room");
    let connected = |event: &Event| matches!(event, Event::Connected { .. }).then_some(());
    drive(&mut first, &mut server, |client, _| client.take(connected));
    let mut second = Node::new(patient());
    second.endpoint.connect(addr).expect("room");
    let error = drive(&mut second, &mut server, |client, _| client.take_failure());
    assert!(matches!(error, ConnectError::Full { addr: at } if at == addr), "{error}");
    assert!(error.to_string().contains("full"), "{error}");

    second.endpoint.connect(nobody()).expect("room");
    let text = drive(&mut second, &mut server, |client, _| client.take(connect_failed));
    assert!(text.contains("listening"), "{text}");
}

#[test]
fn ends_with_other_numbers_of_paths_do_not_join() {
    let (mut one, mut two) = (endpoint(patient()), endpoint(patient().paths(2)));
    let (hello, _kept) = two.offer().expect("room");
    let (_, pending) = one.offer().expect("room");
    let error = one.establish(pending, &hello, Side::Client).expect_err("they differ");
    assert_eq!(error, LinkError::Paths { theirs: 2, ours: 1 });
    assert_eq!(one.links().count(), 0);
}

#[test]
fn more_paths_than_the_server_takes_are_refused_with_how_many_it_does() {
    let mut server = Node::new(patient().paths(2));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut client = Node::new(patient().paths(3));
    client.endpoint.connect(addr).expect("room");
    let text = drive(&mut client, &mut server, |client, _| client.take(connect_failed));
    assert!(text.contains("2 paths"), "{text}");
    let told = |event: &Event| match event {
        Event::AcceptFailed { error, .. } => Some(error.to_string()),
        _ => None,
    };
    let text = drive(&mut client, &mut server, |_, server| server.take(told));
    assert!(text.contains("3 paths") && text.contains("2 at most"), "{text}");
    assert_eq!(client.endpoint.links().count() + server.endpoint.links().count(), 0);
}

#[test]
fn a_server_that_rides_on_something_else_says_so_and_not_that_there_are_too_many_paths() {
    for choice in [CarrierChoice::Rc, CarrierChoice::Tcp] {
        let mut server = Node::new(patient().carrier(choice));
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        let ours = patient().carrier(CarrierChoice::Uc).fallback(Fallback::Tcp);
        let mut client = Node::new(ours);
        client.endpoint.connect(addr).expect("room");
        let text = drive(&mut client, &mut server, |client, _| client.take(connect_failed));
        assert!(text.contains("carrier"), "{text}");
    }
}

/// What a client did not choose gives way to what the server has, whatever that is.
#[test]
fn a_link_has_what_both_ends_have() {
    let (all, tcp, none) = (Fallback::RcThenTcp, Fallback::Tcp, Fallback::None);
    let carriers = |node: &Node, link| -> Vec<Carrier> {
        node.endpoint.paths(link).map(|path| path.facts.carrier).collect()
    };
    let free = || patient().seed(7);
    let (uc, rc) = (Carrier::Uc, Carrier::Rc);
    let pod = "127.0.0.0/8=rc".parse().expect("a rule");
    let cases = [
        (free(), free(), vec![uc, uc, uc, uc, rc]),
        (free(), free().paths(2), vec![uc, uc, rc]),
        (free(), free().paths(1).fallback(none), vec![uc]),
        (free(), free().fallback(tcp), vec![uc, uc, uc, uc]),
        (free().paths(3).fallback(all), free().fallback(none), vec![uc; 3]),
        (free().paths(2).fallback(none), free(), vec![uc; 2]),
        (free().paths(2), free().carrier(CarrierChoice::Rc), vec![rc, rc]),
        (free(), free().carrier(CarrierChoice::Tcp), vec![]),
        (free().paths(1), free().carrier_rules(&[pod]), vec![rc]),
        (free().paths(1).carrier_rules(&[pod]), free(), vec![rc]),
    ];
    for (number, (of_client, of_server, expected)) in cases.into_iter().enumerate() {
        let mut server = Node::new(of_server);
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        // A link that is asked for again with less needs no second place.
        let mut client = Node::new(of_client.links_max(1));
        let joined = join(&mut client, &mut server, addr);
        let bytes = pattern(150_000, number as u64);
        joined.send(&mut client, &bytes);
        let message = drive(&mut client, &mut server, |_, server| server.take_message());
        assert_eq!(message.to_vec(), bytes, "case {number}");
        let has = [carriers(&client, joined.link), carriers(&server, joined.accepted)];
        assert_eq!(has, [expected.clone(), expected], "case {number}");
    }
}

#[test]
fn a_peer_that_is_dropped_is_noticed_and_one_that_leaves_says_goodbye() {
    let mut pair = Pair::new(patient());
    pair.open(true);
    drop(pair.server);
    let down = |event: &Event| match event {
        Event::LinkDown { reason, .. } => Some(*reason),
        _ => None,
    };
    let reason = loop {
        pair.client.turn();
        if let Some(reason) = pair.client.take(down) {
            break reason;
        }
    };
    assert_eq!(reason, DownReason::PeerGone);
    assert_eq!(pair.client.endpoint.links().count(), 0);

    let mut pair = Pair::new(patient());
    let channel = pair.open(true);
    pair.send(channel, b"counted", 1);
    pair.until(|client, _| client.take_sent(1));
    let while_up = pair.client.endpoint.stats(pair.client_link).expect("it is up");
    assert_eq!(pair.client.endpoint.stats_of_all_links(), while_up);
    pair.client.endpoint.close(pair.client_link);
    let reasons = pair.until(|client, server| {
        let both = |node: &Node| node.events.iter().any(|event| down(event).is_some());
        (both(client) && both(server)).then_some(())?;
        Some((client.take(down), server.take(down)))
    });
    assert_eq!(reasons, (Some(DownReason::Local), Some(DownReason::Goodbye)));
    assert_eq!(pair.client.endpoint.stats(pair.client_link), None);
    let sum = pair.client.endpoint.stats_of_all_links();
    assert_eq!((sum.chunks_sent, sum.messages_delivered), (while_up.chunks_sent, 1));
}

#[test]
fn links_come_and_go_without_using_anything_up() {
    let config = patient().links_max(2).credit_total(64).quota_chunks(32);
    let mut server = Node::new(config.clone());
    let mut client = Node::new(config);
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut all = 0;
    for round in 0..30 {
        client.endpoint.connect(addr).expect("room");
        let link = drive(&mut client, &mut server, |client, _| {
            client.take(|event| match event {
                Event::Connected { link, .. } => Some(*link),
                Event::ConnectFailed { error, .. } => panic!("round {round}: {error}"),
                _ => None,
            })
        });
        client.endpoint.close(link);
        let down = |event: &Event| matches!(event, Event::LinkDown { .. }).then_some(());
        drive(&mut client, &mut server, |client, _| client.take(down));
        drive(&mut client, &mut server, |_, server| server.take(down));
        drive(&mut client, &mut server, |client, server| {
            client.events.clear();
            server.events.clear();
            (server.endpoint.links().count() + client.endpoint.links().count() == 0).then_some(())
        });
        let census = server.endpoint.buffers();
        all = if round == 0 { census.recv_all } else { all };
        assert_eq!(census.recv_all, all, "round {round}: no buffers were added");
    }
}

/// The longest that an endpoint would sleep after a turn, of many: how far apart its wake-ups are.
fn longest_sleep(node: &mut Node) -> Nanos {
    let sleep = |node: &mut Node| {
        node.turn();
        node.endpoint.next_timeout().since(node.endpoint.now())
    };
    (0..100).map(|_| sleep(node)).max().expect("a hundred of them")
}

/// The last acks of the set-up, and timers of the links, are over some time.
fn settle(client: &mut Node, server: &mut Node) {
    drive(client, server, |client, server| {
        let shortest = longest_sleep(client).min(longest_sleep(server));
        (shortest >= Nanos::from_millis(500)).then_some(())
    });
}

#[test]
fn an_idle_endpoint_is_woken_by_news_and_not_by_a_clock() {
    let Pair { mut client, mut server, .. } = Pair::new(patient());
    client.endpoint.listen(any_port()).expect("a free port");
    settle(&mut client, &mut server);
    drive(&mut client, &mut server, |client, _| {
        (!client.endpoint.wait(Nanos::from_millis(1))).then_some(())
    });
}

/// Runs a test of what ends a wait until nothing else did: the clock of an endpoint does, too,
/// where the host lets it wait for a second, but not each time.
fn unless_the_clock_ends_it(test: impl Fn() -> Option<()>) {
    assert!((0..20).any(|_| test().is_some()), "the clock ended it");
}

/// Waits for news; none when it was the clock that came.
fn wait_for_news(server: &mut Node) -> Option<()> {
    server.endpoint.wait(Nanos::from_secs(60)).then_some(())
}

#[test]
fn a_peer_that_connects_ends_the_wait() {
    unless_the_clock_ends_it(connects);
}

fn connects() -> Option<()> {
    let mut server = Node::new(patient());
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    longest_sleep(&mut server);
    let mut peer = TcpStream::connect(addr).expect("it listens");
    wait_for_news(&mut server)?;
    server.turn();
    peer.write_all(&hello_bytes()).expect("it was accepted");
    let joined = |event: &Event| matches!(event, Event::Accepted { .. }).then_some(());
    while server.take(joined).is_none() {
        server.turn();
    }
    Some(())
}

#[test]
fn peers_that_connect_all_at_once_are_told_of_once_and_all_looked_at() {
    unless_the_clock_ends_it(connect_all_at_once);
}

fn connect_all_at_once() -> Option<()> {
    let mut server = Node::new(patient());
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    longest_sleep(&mut server);
    let peers = 40;
    // Their HELLOs have no end, so nothing that they say later brings the server back to them.
    for _ in 0..peers {
        let mut peer = TcpStream::connect(addr).expect("it listens");
        peer.write_all(&hello_bytes()[..20]).expect("room");
    }
    wait_for_news(&mut server)?;
    let mut failed = 0;
    let is_failure = |event: &Event| matches!(event, Event::AcceptFailed { .. }).then_some(());
    while failed < peers {
        server.turn();
        while server.take(is_failure).is_some() {
            failed += 1;
        }
        let sleep = server.endpoint.next_timeout().since(server.endpoint.now());
        assert!(failed == peers || sleep <= Nanos::from_millis(1), "{failed}, then {sleep}");
        server.endpoint.wait(sleep);
    }
    Some(())
}

#[test]
fn a_peer_that_is_gone_ends_the_wait_and_is_told_of_in_the_next_turn() {
    unless_the_clock_ends_it(is_gone);
}

fn is_gone() -> Option<()> {
    let Pair { mut client, mut server, .. } = Pair::new(patient());
    settle(&mut client, &mut server);
    longest_sleep(&mut server);
    drop(client);
    wait_for_news(&mut server)?;
    server.turn();
    let down = |event: &Event| match event {
        Event::LinkDown { reason, .. } => Some(*reason),
        _ => None,
    };
    assert_eq!(server.take(down), Some(DownReason::PeerGone));
    Some(())
}
