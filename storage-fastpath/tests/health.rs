//! What a client sees of a server and a network that are not well.

mod common;

use common::{Direct, Server};
use std::sync::atomic::Ordering;
use std::time::Duration;
use towpath_fastpath::StorageRequest;
use towpath_fastpath::health::Cause;
use towpath_fastpath::{ChunkId, HealthConfig, HealthEvent, HealthMonitor, HealthState, Output};
use towpath_transport::Nanos;

const CHUNK: ChunkId = ChunkId(5);

#[test]
fn a_server_that_stalls_shows_as_slow_and_as_good_again_when_it_answers() {
    let server = Server::start();
    let slow_after = Nanos::from_millis(50);
    let health = HealthConfig::new().slow_after(slow_after).window(Nanos::from_millis(10));
    let mut client = Direct::with(server.addr, |client| client.timeout(Nanos::from_secs(60)));
    client.monitor = HealthMonitor::new(health);
    client.create(CHUNK).expect("a new chunk");
    // On a machine that is busy with other things that may have been slow as well.
    while client.monitor.poll_event().is_some() {}
    let told = |client: &mut Direct| client.monitor.links().next().expect("it is up").slow;
    let before = told(&mut client);
    server.stall(true);
    let mischief = server.mischief.clone();
    let waker = std::thread::spawn(move || {
        // So long that the client comes by meanwhile on any machine.
        std::thread::sleep(Duration::from_secs(2));
        mischief.stall.store(false, Ordering::Relaxed);
    });
    client.write(CHUNK, 0, b"slowly").expect("it is done in the end");
    waker.join().expect("it ends");
    let slow: Vec<_> = std::iter::from_fn(|| client.monitor.poll_event())
        .filter_map(|event| match event {
            HealthEvent::SlowIo { age, .. } => Some(age),
            _ => None,
        })
        .collect();
    assert!(slow.len() == 1 && slow[0] >= slow_after, "told once, while it waited: {slow:?}");
    assert_eq!(told(&mut client), before + 1);
    let stat = |client: &mut Direct| {
        client.ask(|client, endpoint| {
            client.start_request(endpoint, &StorageRequest::Stat { chunk: CHUNK })
        })
    };
    let state = |client: &mut Direct| client.monitor.links().next().map(|link| link.state);
    assert_eq!(state(&mut client), Some(HealthState::Degraded(Cause::SlowIo)));
    while state(&mut client) != Some(HealthState::Good) {
        stat(&mut client).expect("it answers");
    }
    let told: Vec<_> = std::iter::from_fn(|| client.monitor.poll_event()).collect();
    assert!(matches!(told.last(), Some(HealthEvent::Recovered { .. })), "{told:?}");
    let told = client
        .ask(|client, endpoint| {
            client.start_request(endpoint, &StorageRequest::Health { times: false })
        })
        .expect("it answers");
    assert!(matches!(told, Output::Health(told) if told.slow == 3), "as the server has it");
}
