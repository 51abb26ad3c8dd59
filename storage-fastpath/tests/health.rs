//! What a client sees of a server and a network that are not well.

mod common;

use common::Server;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towpath_fastpath::health::Cause;
use towpath_fastpath::{
    BlockingClient, ChunkId, ClientConfig, HealthConfig, HealthEvent, HealthState,
};
use towpath_transport::Nanos;

const CHUNK: ChunkId = ChunkId(5);

#[test]
fn a_server_that_stalls_shows_as_slow_and_as_good_again_when_it_answers() {
    let server = Server::start();
    let slow_after = Nanos::from_millis(50);
    let health = HealthConfig::new().slow_after(slow_after).window(Nanos::from_millis(10));
    let config = ClientConfig::new().timeout(Nanos::from_secs(60)).health(health);
    let mut client = BlockingClient::connect(server.addr, config).expect("it listens");
    client.create(CHUNK, None).expect("a new chunk");
    // On a machine that is busy with other things that may have been slow as well.
    while client.health().poll_event().is_some() {}
    let told = |client: &mut BlockingClient| client.health().links().next().expect("it is up").slow;
    let before = told(&mut client);
    server.stall(true);
    let mischief = server.mischief.clone();
    let waker = std::thread::spawn(move || {
        // So long that the client comes by meanwhile on any machine.
        std::thread::sleep(Duration::from_secs(2));
        mischief.stall.store(false, Ordering::Relaxed);
    });
    client.write_once(CHUNK, 0, b"slowly").expect("it is done in the end");
    waker.join().expect("it ends");
    let slow: Vec<_> = std::iter::from_fn(|| client.health().poll_event())
        .filter_map(|event| match event {
            HealthEvent::SlowIo { age, .. } => Some(age),
            _ => None,
        })
        .collect();
    assert!(slow.len() == 1 && slow[0] >= slow_after, "told once, while it waited: {slow:?}");
    assert_eq!(told(&mut client), before + 1);
    let state = |client: &mut BlockingClient| client.health().links().next().map(|link| link.state);
    assert_eq!(state(&mut client), Some(HealthState::Degraded(Cause::SlowIo)));
    while state(&mut client) != Some(HealthState::Good) {
        client.stat(CHUNK).expect("it answers");
    }
    let told: Vec<_> = std::iter::from_fn(|| client.health().poll_event()).collect();
    assert!(matches!(told.last(), Some(HealthEvent::Recovered { .. })), "{told:?}");
    assert_eq!(client.server_health().expect("it answers").slow, 3, "as the server has it");
}
