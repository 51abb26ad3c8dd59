//! Nothing goes to an address before something has come from there.

use super::*;
use crate::Carrier;
use Carrier::{Tcp, Uc};

const SERVER: usize = 1;

fn checked(config: LinkConfig) -> LinkConfig {
    let short = Nanos::from_millis(20);
    config.checks_address(true).fallback(short, short)
}

/// What the server has sent on UC: chunks, and acks on the control queue pair.
fn sent_by_server(wire: &Wire) -> usize {
    let trace = wire.trace.as_ref().expect("it is kept");
    let on_uc = |&&(_, at, path, _): &&(Time, usize, PathId, _)| {
        let carrier = wire.ends[at].link.paths().nth(usize::from(path.0)).map(|path| path.carrier);
        at == SERVER && carrier == Some(Uc)
    };
    let acks = wire.flight.values().filter(|(to, frame)| *to == 0 && is_ack(frame));
    trace.iter().filter(on_uc).count() + acks.count()
}

fn is_ack(frame: &wire::Frame) -> bool {
    matches!(frame, wire::Frame::Ack(bytes) if !bytes.is_empty())
}

#[test]
fn a_server_sends_nothing_to_a_peer_that_never_comes_and_gives_it_up() {
    for paths in [1, 4] {
        let mut wire = Wire::with_paths(1, Faults::default(), paths, checked);
        wire.trace = Some(Vec::new());
        wire.ends[SERVER].link.open_channel(true).unwrap();
        wire.away_until[0] = Time::NEVER;
        wire.run_until(|wire| wire.ends[SERVER].down.is_some());
        assert!(matches!(wire.ends[SERVER].down, Some(DownReason::Silent(_))));
        assert_eq!((sent_by_server(&wire), wire.flight.len()), (0, 0), "{paths} paths");
    }
}

#[test]
fn a_server_that_speaks_first_is_let_by_the_greeting_of_its_client() {
    for seed in 0..20 {
        println!("seed {seed}");
        let faults = Faults { drop: 0.3, ..Faults::default() };
        let mut wire = Wire::new(seed, faults, checked);
        let channel = wire.open_channel(SERVER, true);
        wire.ends[SERVER].send(channel, 1, vec![7; 30_000], Time::NEVER);
        wire.run_until(Wire::settled);
        assert_eq!(wire.ends[0].received, [vec![7; 30_000]]);
        assert_eq!(wire.ends[SERVER].link.unheard_since(), None);
    }
}

#[test]
fn a_chunk_of_another_generation_shows_nothing() {
    let mut wire = Wire::new(1, Faults::default(), checked);
    wire.trace = Some(Vec::new());
    wire.turn(0);
    let (_, (_, frame)) = wire.flight.pop_first().expect("the greeting");
    let wire::Frame::Chunk { path, header, payload } = frame else { panic!("a chunk") };
    let mut forged = crate::wire::ChunkHeader::parse(&header).unwrap();
    forged.generation ^= 1;
    let mut bytes = header;
    forged.emit(&mut bytes);
    wire.deliver(SERVER, wire::Frame::Chunk { path, header: bytes, payload });
    wire.ends[SERVER].link.open_channel(true).unwrap();
    wire.turn(SERVER);
    assert_eq!(sent_by_server(&wire), 0);
    wire.deliver(SERVER, wire::Frame::Chunk { path, header, payload: Vec::new() });
    wire.turn(SERVER);
    assert!(sent_by_server(&wire) > 0);
}

#[test]
fn what_comes_over_tcp_shows_no_address_and_the_link_works_over_tcp() {
    let mut wire = Wire::with_carriers(3, Faults::default(), &[Uc, Tcp], checked);
    wire.trace = Some(Vec::new());
    // UC does not reach the server: path 0, and acks.
    wire.holes = [0, 1];
    let channel = wire.open_channel(0, true);
    for (at, token) in [(0, 1), (SERVER, 2)] {
        wire.ends[at].send(channel, token, vec![at as u8; 50_000], Time::NEVER);
    }
    wire.run_until(|wire| wire.ends.iter().all(|end| end.received.len() == 1));
    wire.run_for(Nanos::from_secs(1));
    assert_eq!((wire.ends[SERVER].link.carrier(), sent_by_server(&wire)), (Tcp, 0));
    // When UC gets through it is taken again, by both.
    wire.holes = [0, 0];
    wire.run_until(|wire| wire.ends.iter().all(|end| end.link.carrier() == Uc));
    assert!(sent_by_server(&wire) > 0);
}

#[test]
fn who_gives_way_is_down_at_once_for_silence() {
    let mut wire = Wire::new(1, Faults::default(), checked);
    let link = &mut wire.ends[SERVER].link;
    assert_eq!(link.unheard_since(), Some(Time::ZERO));
    link.give_way(Time::ZERO + Nanos::from_millis(7));
    wire.ends[SERVER].take_events();
    assert_eq!(wire.ends[SERVER].down, Some(DownReason::Silent(Nanos::from_millis(7))));
}

#[test]
fn a_server_answers_over_tcp_a_client_that_goes_there_early() {
    let tune = |config: LinkConfig| {
        let after = if config.side == crate::Side::Client { 20 } else { 250 };
        config.checks_address(true).fallback(Nanos::from_millis(after), Nanos::from_millis(20))
    };
    let seed = 3;
    println!("seed {seed}");
    for fails_at_once in [false, true] {
        let mut wire = Wire::with_carriers(seed, Faults::default(), &[Uc, Tcp], tune);
        wire.trace = Some(Vec::new());
        // UC does not reach the server.
        wire.holes = [0, 1];
        if fails_at_once {
            wire.ends[0].link.path_failed(Time::ZERO, PathId(0));
        }
        let channel = wire.open_channel(0, true);
        wire.ends[SERVER].send(channel, 2, vec![2; 50_000], Time::NEVER);
        wire.run_until(|wire| wire.ends[0].received.len() == 1);
        assert_eq!((wire.ends[SERVER].link.carrier(), sent_by_server(&wire)), (Tcp, 0));
    }
}
