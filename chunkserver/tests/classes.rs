//! Classes on one server: interference control takes from Copper what Gold's reads need.

mod common;

use common::{Client, Running, config, pattern};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::Output;
use towpath_fastpath::StorageRequest;
use towpath_fastpath::control::InterferenceInfo;
use towpath_transport::{Class, RoceUdp};

const ROUNDS: usize = 2_000;

fn interference(client: &mut Client<RoceUdp>) -> Option<InterferenceInfo> {
    let op = client.chunks.start_request(&mut client.endpoint, &StorageRequest::Info);
    let Ok(Output::Info(info)) = client.wait(op) else { panic!("the state was due") };
    info.interference.map(|found| *found)
}

/// Reads as Gold while Copper writes, until `is_enough`.
fn read_beside_writes(
    config: &DaemonConfig,
    is_enough: impl Fn(&InterferenceInfo) -> bool,
) -> Option<InterferenceInfo> {
    let server = Running::start(config);
    let mut gold = Client::connect_as(server.addr, Class::Gold);
    let mut copper = Client::connect_as(server.addr, Class::Copper);
    let (read, written) = (ChunkId(1), ChunkId(2));
    gold.create(read, None).expect("a fresh name");
    gold.write(read, 0, &pattern(4096, 1)).expect("there is room");
    copper.create(written, None).expect("a fresh name");
    for round in 0..ROUNDS {
        let bytes = pattern(100_000, round as u64);
        copper.write(written, 0, &bytes).expect("it waits for tokens, and is done then");
        for _ in 0..8 {
            let found = gold.read(read, 0, 4096).expect("it is there");
            assert!(found == pattern(4096, 1));
        }
        let found = interference(&mut gold)?;
        if is_enough(&found) {
            return Some(found);
        }
    }
    panic!("nothing came of it in {ROUNDS} rounds");
}

#[test]
fn reads_that_miss_their_target_bind_coppers_writes_and_nothing_is_lost_of_them() {
    let dir = tempfile::tempdir().expect("room for a directory");
    // No read is as fast.
    let config =
        config(&dir.path().join("store")).with(|config| config.qos.interference_mean_us = 1);
    let found = read_beside_writes(&config, |found| found.copper_rate.is_some());
    let found = found.expect("it is controlled");
    assert!(found.cuts > 0 && found.slow_windows > 0 && found.seen_mean_ns > 1000, "{found:?}");
    assert_eq!(found.silver_rate, None, "it did not write");
}

#[test]
fn without_a_target_there_is_no_control_and_with_a_loose_one_nobody_is_bound() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let free = config(&dir.path().join("free"));
    assert_eq!(read_beside_writes(&free, |_| true), None);
    let loose = config(&dir.path().join("loose"))
        .with(|config| config.qos.interference_mean_us = 60_000_000);
    let found = read_beside_writes(&loose, |found| found.windows > 5).expect("it is controlled");
    assert_eq!((found.cuts, found.copper_rate), (0, None), "{found:?}");
}
