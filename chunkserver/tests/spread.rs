//! Files over several servers, which are stopped, killed and started again.

mod common;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{Process, Running, config, pattern};
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_ec::ShardSet;
use towpath_fastpath::{Client, ClientConfig};
use towpath_spread::{Layout, NodeState, Policy, PutOptions, Servers, SpreadError};
use towpath_transport::Nanos;

/// Several servers, each with a folder of its own.
struct Fleet {
    folders: TempDir,
    places: Vec<SocketAddr>,
    running: HashMap<usize, Running>,
}

impl Fleet {
    fn new(count: usize) -> Self {
        let folders = tempfile::tempdir().expect("room for a folder");
        let (places, running) = (Vec::new(), HashMap::new());
        let mut fleet = Self { folders, places, running };
        for number in 0..count {
            let server = fleet.begin(number, (Ipv4Addr::LOCALHOST, 0).into());
            fleet.places.push(server.addr);
            fleet.running.insert(number, server);
        }
        fleet
    }

    fn config(&self, number: usize, listen: SocketAddr) -> DaemonConfig {
        let capacity_bytes = 64 << 20;
        let folder = self.folders.path().join(number.to_string());
        DaemonConfig { listen, capacity_bytes, ..config(&folder) }
    }

    fn begin(&self, number: usize, listen: SocketAddr) -> Running {
        Running::start(&self.config(number, listen))
    }

    fn stop(&mut self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            self.running.remove(&number);
        }
    }

    fn start(&mut self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            let server = self.begin(number, self.places[number]);
            self.running.insert(number, server);
        }
    }
}

/// Clients of servers that give up soon: a test stops servers.
fn servers() -> Servers {
    Servers::new(ClientConfig::new().timeout(Nanos::from_secs(20)).depth(32))
        .late_after(Duration::from_secs(5))
}

fn options(policy: &str) -> PutOptions {
    PutOptions::new(policy.parse().expect("a policy")).unit_bytes(8_192)
}

fn put(servers: &Servers, fleet: &Fleet, options: &PutOptions, bytes: &[u8]) -> Layout {
    servers.put(&fleet.places, options, &mut &bytes[..], |_| {}).expect("it is stored")
}

fn get(servers: &Servers, layout: &Layout) -> Result<Vec<u8>, SpreadError> {
    let mut read = Vec::new();
    servers.get(layout, &mut read, |_| {}).map(|_| read)
}

#[test]
fn files_of_all_lengths_come_back_under_each_policy() {
    let fleet = Fleet::new(5);
    let servers = servers();
    for policy in ["flat:1", "flat:3", "rs:3+2", "rs:2+0", "rs:1+1"] {
        for len in [0, 1, 4_096, 8_192, 24_576, 24_577, 100_000] {
            let bytes = pattern(len, len as u64);
            let layout = put(&servers, &fleet, &options(policy), &bytes);
            assert_eq!(layout.bytes, len as u64);
            assert!(get(&servers, &layout).expect("it is whole") == bytes, "{policy} {len}");
            let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
            assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0), "{policy} {len}");
            assert_eq!(servers.remove(&layout).expect("a layout"), 0);
            let states = servers.stat(&layout).expect("a layout");
            assert!(states.iter().all(|state| *state == NodeState::Missing), "{states:?}");
        }
    }
}

#[test]
fn a_file_is_read_whichever_servers_are_gone_and_made_whole_again() {
    let seed = 7;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut fleet = Fleet::new(5);
    let bytes = pattern(200_000, seed);
    let layouts: Vec<Layout> =
        ["rs:3+2", "flat:3"].map(|policy| put(&servers(), &fleet, &options(policy), &bytes)).into();
    for round in 0..4 {
        let first = prng.below(5) as usize;
        let second = (first + 1 + prng.below(4) as usize) % 5;
        fleet.stop([first, second]);
        let servers = servers();
        for layout in &layouts {
            assert!(get(&servers, layout).expect("enough is left") == bytes, "round {round}");
        }
        fleet.start([first, second]);
    }
    fleet.stop([0, 1, 2]);
    let coded = get(&servers(), &layouts[0]);
    assert!(matches!(coded, Err(SpreadError::TooFew { whole: 2, needed: 3, .. })), "{coded:?}");
    let copies = get(&servers(), &layouts[1]);
    assert!(matches!(copies, Err(SpreadError::TooFew { whole: 0, needed: 1, .. })), "{copies:?}");
    fleet.start([0, 2]);
    let servers = servers();
    let absent = servers.repair(&layouts[0], ShardSet::NONE, &[], |_| {});
    assert!(matches!(absent, Err(SpreadError::NoServer { part: 1, .. })), "{absent:?}");
    for layout in &layouts {
        let repaired = servers.repair(layout, ShardSet::NONE, &fleet.places[3..4], |_| {});
        let repaired = repaired.expect("enough is left");
        assert_eq!(repaired.parts.iter().collect::<Vec<_>>(), [1]);
        assert_eq!(repaired.layout.nodes[1].server, fleet.places[3]);
        assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
        let scrubbed = servers.scrub(&repaired.layout, |_| {}).expect("a layout");
        assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0));
        let again = servers.repair(&repaired.layout, ShardSet::NONE, &[], |_| {}).expect("whole");
        assert_eq!((again.parts, again.bytes_read, again.bytes_written), (ShardSet::NONE, 0, 0));
    }
}

#[test]
fn a_part_that_was_changed_counts_as_lost_and_is_replaced() {
    let fleet = Fleet::new(3);
    let servers = servers();
    let bytes = pattern(50_000, 3);
    let layout = put(&servers, &fleet, &options("rs:2+1"), &bytes);
    let client = Client::connect(fleet.places[0], ClientConfig::new()).expect("it runs");
    client.write(layout.nodes[0].chunk, 0, vec![1; 4_096]).wait().expect("it is open to all");
    client.close();
    let states = servers.stat(&layout).expect("a layout");
    assert!(matches!(states[0], NodeState::Changed(_)), "{states:?}");
    assert!(get(&servers, &layout).expect("the others are enough") == bytes);
    let repaired = servers.repair(&layout, ShardSet::NONE, &[], |_| {}).expect("it is enough");
    assert_eq!(repaired.layout.nodes[0].server, fleet.places[0]);
    assert_ne!(repaired.layout.nodes[0].chunk, layout.nodes[0].chunk);
    assert_eq!(repaired.bytes_read, 2 * repaired.bytes_written);
    assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
    let states = servers.stat(&layout).expect("a layout");
    assert_eq!(states[0], NodeState::Missing, "what was replaced is deleted");
}

/// Parts that are whole, each by itself, and not of one file.
#[test]
fn a_scrub_finds_parts_that_do_not_belong_together() {
    let fleet = Fleet::new(3);
    let servers = servers();
    for policy in ["rs:2+1", "flat:3"] {
        let one = put(&servers, &fleet, &options(policy), &pattern(50_000, 4));
        let other = put(&servers, &fleet, &options(policy), &pattern(50_000, 5));
        let mut mixed = one.clone();
        mixed.nodes[1] = other.nodes[1];
        let scrubbed = servers.scrub(&mixed, |_| {}).expect("a layout");
        assert_eq!(scrubbed.bad, ShardSet::NONE);
        // All that the last stripe has of a data part may be zeros, in both files.
        let (stripes, torn) = (scrubbed.stripes, scrubbed.torn);
        assert!(stripes >= 4 && torn >= stripes - 1, "{scrubbed:?}");
    }
}

#[test]
fn a_put_that_may_miss_servers_says_which_and_others_leave_nothing() {
    let mut fleet = Fleet::new(4);
    fleet.stop([2]);
    let (servers, bytes) = (servers(), pattern(60_000, 6));
    let whole = servers.put(&fleet.places, &options("rs:2+2"), &mut &bytes[..], |_| {});
    assert!(matches!(whole, Err(SpreadError::TooFew { whole: 3, needed: 4, .. })), "{whole:?}");
    let client = Client::connect(fleet.places[0], ClientConfig::new()).expect("it runs");
    assert_eq!(client.info().wait().expect("it runs").chunks, 0, "nothing is left of it");
    client.close();
    let options = options("rs:2+2").least(3);
    let layout = put(&servers, &fleet, &options, &bytes);
    let versions: Vec<bool> = layout.nodes.iter().map(|node| node.version.is_some()).collect();
    assert_eq!(versions, [true, true, false, true]);
    assert!(get(&servers, &layout).expect("it is enough") == bytes);
    fleet.start([2]);
    let servers = self::servers();
    let repaired = servers.repair(&layout, ShardSet::NONE, &[], |_| {}).expect("it is enough");
    assert!(repaired.layout.nodes.iter().all(|node| node.version.is_some()));
    let few = servers.put(&fleet.places[..3], &options, &mut &bytes[..], |_| {});
    assert!(matches!(few, Err(SpreadError::ServerCount { needed: 4, given: 3 })), "{few:?}");
}

#[test]
fn the_shape_of_a_policy_says_how_many_bytes_are_stored() {
    let policy: Policy = "rs:6+3".parse().expect("a policy");
    assert_eq!((policy.parts(), policy.enough()), (9, 6));
    let policy: Policy = "flat:3".parse().expect("a policy");
    assert_eq!((policy.parts(), policy.enough()), (3, 1));
}

/// Nine processes, of which three are killed while files are stored and read.
#[test]
fn what_was_stored_is_read_whichever_three_of_nine_servers_are_killed() {
    let seed = 9;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let fleet = Fleet::new(0);
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let mut processes: Vec<Option<Process>> =
        (0..9).map(|number| Some(Process::start(&fleet.config(number, any)))).collect();
    let places: Vec<SocketAddr> = processes.iter().flatten().map(|process| process.addr).collect();
    let options = options("rs:6+3").unit_bytes(16_384).least(6);
    let client = ClientConfig::new().timeout(Nanos::from_secs(2)).depth(32);
    let servers = Servers::new(client).late_after(Duration::from_millis(300));
    let mut files: Vec<(Layout, Vec<u8>)> = Vec::new();
    let mut killed = Vec::new();
    for round in 0..100 {
        if [20, 40, 60].contains(&round) {
            let left: Vec<usize> = (0..9).filter(|number| !killed.contains(number)).collect();
            let number = left[prng.below(left.len() as u64) as usize];
            let Some(process) = processes[number].take() else { continue };
            // Whatever is under way: dropping it kills the process.
            drop(process);
            killed.push(number);
        }
        let bytes = pattern(prng.below(300_000) as usize, round);
        let stored = servers.put(&places, &options, &mut &bytes[..], |_| {});
        let layout = stored.unwrap_or_else(|error| panic!("round {round}: {error}"));
        files.push((layout, bytes));
        let (layout, bytes) = &files[prng.below(files.len() as u64) as usize];
        let read = get(&servers, layout).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(read == *bytes, "round {round}");
    }
    for (layout, bytes) in &files {
        assert!(get(&servers, layout).expect("six are left") == *bytes);
    }
    for number in &killed {
        processes[*number] = Some(Process::start(&fleet.config(*number, places[*number])));
    }
    let servers = self::servers();
    let mut made = 0;
    for (layout, bytes) in &mut files {
        let repaired = servers.repair(layout, ShardSet::NONE, &[], |_| {}).expect("six are whole");
        made += repaired.parts.len();
        *layout = repaired.layout;
        let scrubbed = servers.scrub(layout, |_| {}).expect("a layout");
        assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0));
        assert!(get(&servers, layout).expect("all are whole") == *bytes);
    }
    println!("{made} parts were made anew");
    assert!(made >= 40, "files were stored while three were gone");
}
