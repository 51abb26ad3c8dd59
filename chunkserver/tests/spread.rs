//! Files over several servers, which are stopped, killed and started again.

mod common;
#[path = "spread/exchanged.rs"]
mod exchanged;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{LONG, Process, Running, config, flip_where, pattern};
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_ec::ShardSet;
use towpath_fastpath::{ChunkId, Clear, Client, ClientConfig, Pending};
use towpath_spread::{
    Layout, LayoutError, Node, NodeState, Notice, PartError, Policy, PutOptions, RepairOptions,
    Scrubbed, Servers, SpreadError,
};
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
        // Each server of a stripe has links to all others.
        config(&folder).with(|config| {
            config.network.listen = listen;
            config.store.capacity_bytes = capacity_bytes;
            config.network.links_max = 32;
        })
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

/// A repair of these parts as well.
fn also(found: &Scrubbed) -> RepairOptions {
    RepairOptions::new().scrubbed(found)
}

/// A repair that may use these servers.
fn onto(servers: &[SocketAddr]) -> RepairOptions {
    RepairOptions::new().replacements(servers)
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
    for policy in [
        "flat:1",
        "flat:3",
        "ring:3",
        "ring:5",
        "tree:4",
        "rs:3+2",
        "rs:2+0",
        "rs:1+1",
        "rs:3+2,triec",
        "rs:2+1,triec",
    ] {
        for len in [0, 1, 4_096, 8_192, 24_576, 24_577, 100_000] {
            let bytes = pattern(len, len as u64);
            let layout = put(&servers, &fleet, &options(policy), &bytes);
            assert_eq!(layout.bytes, len as u64);
            assert!(get(&servers, &layout).expect("it is whole") == bytes, "{policy} {len}");
            let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
            assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0), "{policy} {len}");
            assert_eq!(servers.remove(&layout).expect("a layout"), []);
            let states = servers.stat(&layout).expect("a layout");
            assert!(states.iter().all(|state| *state == NodeState::Missing), "{states:?}");
        }
    }
}

/// What each has under way is more than the credit of a link, and all go through all servers.
#[test]
fn rings_through_the_servers_of_each_other_do_not_wait_in_a_circle() {
    let fleet = Fleet::new(3);
    let options = PutOptions::new("ring:3".parse().expect("a policy"));
    std::thread::scope(|scope| {
        for first in [0, 1, 2, 0, 1, 2] {
            let mut places = fleet.places.clone();
            places.rotate_left(first);
            scope.spawn(move || {
                let servers = Servers::new(ClientConfig::new().timeout(LONG))
                    .late_after(Duration::from_secs(5))
                    .on_notice(|notice| {
                        // A busy machine may be quiet for long, and that alone is nothing.
                        let is_direct = matches!(notice, Notice::Direct { .. });
                        assert!(!is_direct, "{notice}");
                    });
                let bytes = pattern(3 << 20, first as u64);
                let layout = servers.put(&places, &options, &mut &bytes[..], |_| {});
                let layout = layout.expect("it is stored");
                assert!(get(&servers, &layout).expect("it is whole") == bytes);
            });
        }
    });
}

#[test]
fn a_copy_that_no_write_waits_for_is_whole_by_the_layout_or_after_a_repair() {
    let mut fleet = Fleet::new(3);
    let bytes = pattern(300_000, 5);
    for policy in ["ring:3,ack:2", "tree:3,ack:1"] {
        let whole = put(&servers(), &fleet, &options(policy), &bytes);
        assert!(whole.nodes.iter().all(|node| node.version.is_some()), "{policy}");
        fleet.stop([2]);
        let behind = put(&servers(), &fleet, &options(policy), &bytes);
        let are_whole = |node: &Node| node.version.is_some();
        assert_eq!(behind.nodes.iter().map(are_whole).collect::<Vec<_>>(), [true, true, false]);
        fleet.start([2]);
        let repaired = servers().repair(&behind, &RepairOptions::new(), |_| {});
        let repaired = repaired.expect("two are whole").layout;
        fleet.stop([0, 1]);
        // What it lacks is not read of it, though its server is there.
        assert!(get(&servers(), &behind).is_err(), "{policy}");
        for layout in [&whole, &repaired] {
            assert!(get(&servers(), layout).expect("its copy is whole") == bytes, "{policy}");
        }
        fleet.start([1]);
        // No unit has gone along them: the copies go to the others.
        let behind = put(&servers(), &fleet, &options(policy), &bytes);
        assert_eq!(behind.nodes.iter().map(are_whole).collect::<Vec<_>>(), [false, true, true]);
        assert!(get(&servers(), &behind).expect("two are whole") == bytes, "{policy}");
        fleet.start([0]);
    }
}

#[test]
fn a_file_is_read_whichever_servers_are_gone_and_made_whole_again() {
    let seed = 7;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut fleet = Fleet::new(6);
    let bytes = pattern(200_000, seed);
    let layouts: Vec<Layout> = ["rs:3+2", "flat:3", "ring:4", "rs:3+2,triec"]
        .map(|policy| put(&servers(), &fleet, &options(policy), &bytes))
        .into();
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
    // Servers that have a part already are no replacements.
    for others in [&[], &fleet.places[..5]] {
        let absent = servers.repair(&layouts[0], &onto(others), |_| {});
        assert!(matches!(absent, Err(SpreadError::NoServer { part: 1, .. })), "{absent:?}");
    }
    for (layout, replacement) in layouts.iter().zip([5, 3]) {
        let repaired = servers.repair(layout, &onto(&fleet.places), |_| {});
        let repaired = repaired.expect("enough is left");
        assert_eq!(repaired.parts.iter().collect::<Vec<_>>(), [1]);
        assert_eq!(repaired.layout.nodes[1].server, fleet.places[replacement]);
        assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
        let scrubbed = servers.scrub(&repaired.layout, |_| {}).expect("a layout");
        assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0));
        let again = servers.repair(&repaired.layout, &RepairOptions::new(), |_| {}).expect("whole");
        assert_eq!((again.parts, again.bytes_read, again.bytes_written), (ShardSet::NONE, 0, 0));
    }
}

#[test]
fn a_replacement_has_several_parts_only_where_that_is_asked_for() {
    let mut fleet = Fleet::new(5);
    let bytes = pattern(50_000, 20);
    let layout = put(&servers(), &fleet, &options("rs:2+2"), &bytes);
    fleet.stop([0, 2]);
    let servers = servers();
    let instead = onto(&fleet.places[4..]);
    let refused = servers.repair(&layout, &instead, |_| {});
    assert!(matches!(refused, Err(SpreadError::NoServer { part: 2, .. })), "{refused:?}");
    let repaired = servers.repair(&layout, &instead.share_replacements(true), |_| {});
    let repaired = repaired.expect("two are left");
    let at = [0, 2].map(|part| repaired.layout.nodes[part].server);
    assert_eq!(at, [fleet.places[4]; 2]);
    assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
    let states = servers.stat(&repaired.layout).expect("a layout");
    assert_eq!(states, [NodeState::Whole; 4]);
}

/// Changes a part, as somebody does who knows nothing of its file; gives the version that it has
/// then.
fn change(layout: &Layout, part: usize, change: impl FnOnce(&Client, ChunkId)) -> u64 {
    let Node { server, chunk, .. } = layout.nodes[part];
    let client = Client::connect(server, ClientConfig::new()).expect("it runs");
    change(&client, chunk);
    let version = client.stat(chunk).wait().expect("it is there").version;
    client.close();
    version
}

#[test]
fn a_part_that_was_changed_counts_as_lost_and_is_mended_where_it_is() {
    let fleet = Fleet::new(3);
    let servers = servers();
    let bytes = pattern(50_000, 3);
    let layout = put(&servers, &fleet, &options("rs:2+1"), &bytes);
    let write = |client: &Client, chunk| client.write(chunk, 0, vec![1; 4_096]).wait();
    change(&layout, 0, |client, chunk| write(client, chunk).expect("it is open to all"));
    let states = servers.stat(&layout).expect("a layout");
    assert!(matches!(states[0], NodeState::Changed(_)), "{states:?}");
    assert!(get(&servers, &layout).expect("the others are enough") == bytes);
    let repaired = servers.repair(&layout, &RepairOptions::new(), |_| {}).expect("it is enough");
    assert_eq!((repaired.mended, repaired.parts), (ShardSet::from_bits(1), ShardSet::NONE));
    assert_eq!((repaired.replaced, repaired.made), (vec![], vec![]));
    let (before, after) = (layout.nodes[0], repaired.layout.nodes[0]);
    assert_eq!((after.server, after.chunk), (before.server, before.chunk));
    assert!(after.version > before.version && repaired.layout.generation == 1);
    assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
    assert!(get(&servers, &layout).expect("the others are enough") == bytes, "as before");
}

type ChangeIt<'a> = dyn Fn(&Client, ChunkId) -> Pending<()> + 'a;

/// Of a part of which little differs, little moves, whatever it is.
#[test]
fn a_part_is_brought_up_to_date_by_the_slices_that_differ() {
    let fleet = Fleet::new(5);
    let servers = servers();
    let bytes = pattern(400_000, 16);
    for (policy, sources, patient) in [("flat:3", 1, 1), ("rs:3+2", 3, 0), ("rs:3+2", 3, 4)] {
        let mut layout = put(&servers, &fleet, &options(policy), &bytes);
        let first = layout.nodes[patient];
        let mut part = Vec::new();
        change(&layout, patient, |client, chunk| {
            let byte_len = client.stat(chunk).wait().expect("it is there").byte_len;
            part = (0..byte_len / 4_096)
                .flat_map(|slice| client.read(chunk, slice * 4_096, 4_096).wait().expect("whole"))
                .collect();
        });
        let end = part.len() as u64;
        let same = part[..4_096].to_vec();
        // What is done to it, and how many slices differ then.
        let changes: [(&ChangeIt<'_>, u64); 6] = [
            (&|client, chunk| client.write(chunk, 8_192, vec![1; 4_096]), 1),
            (&|client, chunk| client.write(chunk, 4_095, vec![0xa5, 0x5a]), 2),
            (&|client, chunk| client.clear(chunk, cut(end - 8_193)), 3),
            (&|client, chunk| client.clear(chunk, cut(0)), end / 4_096),
            (&|client, chunk| client.write(chunk, end, vec![1; 10_000]), 0),
            (&|client, chunk| client.write(chunk, 0, same.clone()), 0),
        ];
        for (number, (change_it, slices)) in changes.into_iter().enumerate() {
            let told = format!("{policy}, part {patient}, change {number}");
            change(&layout, patient, |client, chunk| {
                change_it(client, chunk).wait().expect("open");
            });
            let repaired = servers.repair(&layout, &onto(&[]).by_client(true), |_| {}).expect("2");
            assert_eq!(repaired.mended, [patient].into_iter().collect(), "{told}");
            assert_eq!(repaired.bytes_written, slices * 4_096, "{told}");
            assert_eq!(repaired.bytes_read, sources * slices * 4_096, "{told}");
            let all = layout.nodes.len() as u64 * (end / 4_096) * 4;
            assert!((1..=all).contains(&repaired.bytes_compared), "{told}: {repaired:?}");
            layout = repaired.layout;
            assert_eq!(layout.nodes[patient].chunk, first.chunk);
            assert!(get(&servers, &layout).expect("it is whole") == bytes, "{told}");
            let found = servers.scrub_by_reading(&layout, |_| {}).expect("a layout");
            assert_eq!((found.bad, found.torn), (ShardSet::NONE, 0), "{told}");
        }
    }
}

fn cut(byte_len: u64) -> Clear {
    Clear::Truncate { byte_len }
}

/// A slice that its disk has lost, of each kind of policy.
#[test]
fn a_damaged_slice_is_mended_alone() {
    let fleet = Fleet::new(3);
    let servers = servers();
    for policy in ["flat:2", "rs:2+1"] {
        let bytes = pattern(300_000, 17);
        let layout = put(&servers, &fleet, &options(policy), &bytes);
        // Of the first part it is the sixth slice under one, and the fourth under the other.
        let disk = fleet.folders.path().join("0").join("disk");
        flip_where(&disk, &bytes[5 * 4_096..][..4_096]);
        let found = servers.scrub(&layout, |_| {}).expect("a layout");
        assert_eq!((found.bad, found.torn), (ShardSet::from_bits(1), 0), "{policy}");
        let repaired = servers.repair(&layout, &also(&found), |_| {}).expect("enough");
        assert_eq!((repaired.mended, repaired.bytes_written), (found.bad, 4_096), "{policy}");
        let found = servers.scrub(&repaired.layout, |_| {}).expect("a layout");
        assert_eq!((found.bad, found.torn), (ShardSet::NONE, 0), "{policy}");
        assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
        assert_eq!(servers.remove(&repaired.layout).expect("a layout"), []);
    }
}

/// One part is lost, and another one changes again while the first one is made anew.
#[test]
fn what_others_change_meanwhile_is_not_overwritten_and_nothing_is_left() {
    let fleet = Fleet::new(3);
    let servers = servers();
    let bytes = pattern(50_000, 18);
    let layout = put(&servers, &fleet, &options("flat:3"), &bytes);
    let theirs = vec![7; 4_096];
    let write = |client: &Client, chunk| client.write(chunk, 0, theirs.clone()).wait();
    change(&layout, 2, |client, chunk| write(client, chunk).expect("it is open to all"));
    assert_eq!(servers.discard(&layout.nodes[1..2]), []);
    let mut version = 0;
    let repaired = servers.repair(&layout, &RepairOptions::new(), |_| {
        version = change(&layout, 2, |client, chunk| write(client, chunk).expect("open"));
    });
    let Err(SpreadError::NotMade { server, source }) = repaired else { panic!("{repaired:?}") };
    assert_eq!(server, fleet.places[2]);
    assert!(matches!(*source, PartError::OtherVersion { found, .. } if found == version));
    change(&layout, 2, |client, chunk| {
        assert_eq!(client.read(chunk, 0, 4_096).wait().expect("it is there"), theirs);
    });
    let client = Client::connect(fleet.places[1], ClientConfig::new()).expect("it runs");
    let left = client.list_page(None).wait().expect("it lists").chunks;
    assert_eq!(left.len(), 1, "what says that the file is closed: {left:?}");
    client.close();
    assert!(get(&servers, &layout).expect("one is enough") == bytes);
}

/// Checksums tell nothing of such a part.
#[test]
fn a_scrub_finds_each_part_that_has_wrong_bytes_with_right_checksums() {
    let fleet = Fleet::new(5);
    let servers = servers();
    let bytes = pattern(300_000, 19);
    for policy in ["flat:3", "rs:3+2", "flat:2", "rs:2+1"] {
        let mut layout = put(&servers, &fleet, &options(policy), &bytes);
        let parts = layout.nodes.len();
        let others_agree = parts > layout.policy.enough() + 1;
        for part in 0..parts {
            let write = |client: &Client, chunk| client.write(chunk, 12_300, vec![part as u8]);
            let version = change(&layout, part, |client, chunk| {
                write(client, chunk).wait().expect("it is open to all");
            });
            let mut wrong = layout.clone();
            wrong.nodes[part].version = Some(version);
            let found = servers.scrub(&wrong, |_| {}).expect("a layout");
            let expected = match others_agree {
                true => ([part].into_iter().collect(), 0),
                false => (ShardSet::NONE, 1),
            };
            assert_eq!((found.bad, found.torn), expected, "{policy}, part {part}");
            let read = servers.scrub_by_reading(&wrong, |_| {}).expect("a layout");
            assert_eq!((read.bad, read.torn, read.stripes), (found.bad, found.torn, found.stripes));
            assert_eq!((found.bytes_read * 1_024, found.uncompared), (read.bytes_read, 0));
            // Where nothing tells the wrong one, its version in the layout before does.
            let by = if others_agree { &wrong } else { &layout };
            let repaired = servers.repair(by, &also(&found), |_| {}).expect("enough");
            assert_eq!(repaired.bytes_written, 4_096, "{policy}, part {part}");
            layout = repaired.layout;
            let found = servers.scrub(&layout, |_| {}).expect("a layout");
            assert_eq!((found.bad, found.torn), (ShardSet::NONE, 0), "{policy}, part {part}");
        }
        assert!(get(&servers, &layout).expect("it is whole") == bytes);
    }
}

/// A layout that says what cannot be, such as one that somebody has written.
#[test]
fn a_layout_of_another_file_is_not_taken_for_whole() {
    let fleet = Fleet::new(2);
    let servers = servers();
    let layout = put(&servers, &fleet, &options("flat:2"), &pattern(50_000, 8));
    let longer = Layout { bytes: 60_000, ..layout.clone() };
    let states = servers.stat(&longer).expect("a layout");
    assert_eq!(states, [NodeState::OtherLength(53_248); 2]);
    let last = Layout { generation: u64::MAX, ..layout };
    let repaired =
        servers.repair(&last, &RepairOptions::new().anew(ShardSet::from_bits(1)), |_| {});
    let is_told = matches!(repaired, Err(SpreadError::Layout(LayoutError::Generation)));
    assert!(is_told, "{repaired:?}");
}

/// Each of two servers has lost another slice: neither part is whole, and the file is.
#[test]
fn parts_with_damage_in_different_places_are_made_of_each_other() {
    let fleet = Fleet::new(2);
    let bytes = pattern(50_000, 10);
    let layout = put(&servers(), &fleet, &options("flat:2"), &bytes);
    for (number, slice) in [(0, 1), (1, 5)] {
        let disk = fleet.folders.path().join(number.to_string()).join("disk");
        flip_where(&disk, &bytes[slice * 4_096..][..4_096]);
    }
    let servers = servers();
    assert!(get(&servers, &layout).expect("each has what the other lost") == bytes);
    let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
    assert_eq!(scrubbed.bad, ShardSet::from_bits(3));
    assert_eq!((scrubbed.torn, scrubbed.uncompared), (0, 2), "{scrubbed:?}");
    let repaired = servers.repair(&layout, &also(&scrubbed), |_| {}).expect("it can be read");
    assert_eq!((repaired.parts, repaired.mended), (ShardSet::from_bits(3), ShardSet::NONE));
    assert_eq!(repaired.replaced, layout.nodes);
    assert!(get(&servers, &layout).expect("nothing is deleted yet") == bytes);
    assert_eq!(servers.discard(&repaired.replaced), []);
    assert_eq!(servers.stat(&layout).expect("a layout"), [NodeState::Missing; 2]);
    let scrubbed = servers.scrub(&repaired.layout, |_| {}).expect("a layout");
    assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0));
    assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
}

#[test]
fn damage_of_all_copies_in_one_place_is_told_with_its_place() {
    let fleet = Fleet::new(2);
    let bytes = pattern(50_000, 11);
    let layout = put(&servers(), &fleet, &options("flat:2"), &bytes);
    for number in 0..2 {
        let disk = fleet.folders.path().join(number.to_string()).join("disk");
        flip_where(&disk, &bytes[5 * 4_096..][..4_096]);
    }
    let read = get(&servers(), &layout);
    // The stripe has two slices.
    let is_told =
        matches!(read, Err(SpreadError::Unreadable { offset: 16_384, read: 0, needed: 1, .. }));
    assert!(is_told, "{read:?}");
}

#[test]
fn a_file_is_not_stored_where_one_server_would_have_two_parts() {
    let fleet = Fleet::new(2);
    let (servers, bytes) = (servers(), pattern(10_000, 12));
    let twice = [fleet.places[0], fleet.places[1], fleet.places[0]];
    let stored = servers.put(&twice, &options("flat:3"), &mut &bytes[..], |_| {});
    assert!(matches!(stored, Err(SpreadError::SameServer { .. })), "{stored:?}");
    let stored = servers.put(&twice, &options("flat:2"), &mut &bytes[..], |_| {});
    assert!(stored.is_ok(), "a server beyond those that are needed is left alone: {stored:?}");
}

#[test]
fn what_cannot_be_stored_is_refused_and_leaves_nothing() {
    let fleet = Fleet::new(2);
    let (servers, bytes) = (servers(), pattern(10_000, 13));
    let put = |options: PutOptions| servers.put(&fleet.places, &options, &mut &bytes[..], |_| {});
    for least in [0, 3] {
        let stored = put(options("flat:2").least(least));
        let is_told = matches!(stored, Err(SpreadError::Least { min: 1, max: 2, .. }));
        assert!(is_told, "{stored:?}");
    }
    let stored = put(options("flat:2").unit_bytes(8 << 20));
    let is_told = matches!(stored, Err(SpreadError::Unit { unit_bytes: 0x80_0000, .. }));
    assert!(is_told, "{stored:?}");
    let client = Client::connect(fleet.places[0], ClientConfig::new()).expect("it runs");
    assert_eq!(client.info().wait().expect("it runs").chunks, 0);
    client.close();
}

/// A source that ends, and has a server hang.
struct Hangs<'a>(&'a Process);

impl Read for Hangs<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.signal("STOP");
        Ok(0)
    }
}

/// One of two servers has finished its part, and the other one may have.
#[test]
fn a_put_that_cannot_take_back_what_it_may_have_finished_names_it() {
    let fleet = Fleet::new(0);
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let processes: Vec<Process> =
        (0..2).map(|number| Process::start(&fleet.config(number, any))).collect();
    let places: Vec<SocketAddr> = processes.iter().map(|process| process.addr).collect();
    let config = ClientConfig::new().timeout(Nanos::from_secs(5)).patience(Nanos::ZERO);
    let servers = Servers::new(config);
    let both = options("flat:2").least(2);
    let stored = servers.put(&places, &both, &mut Hangs(&processes[0]), |_| {});
    processes[0].signal("CONT");
    let Err(SpreadError::Left { left, source }) = stored else { panic!("{stored:?}") };
    assert!(matches!(*source, SpreadError::TooFew { whole: 1, needed: 2, .. }), "{source}");
    assert!(matches!(left[..], [Node { server, .. }] if server == places[0]), "{left:?}");
    assert_eq!(self::servers().discard(&left), []);
    for server in places {
        let client = Client::connect(server, ClientConfig::new()).expect("it runs");
        assert_eq!(client.info().wait().expect("it runs").chunks, 0);
        client.close();
    }
}

/// What is enough to begin with is not always enough to the end.
#[test]
fn a_server_that_was_not_waited_for_is_used_where_the_others_are_not_enough() {
    let fleet = Fleet::new(2);
    let bytes = pattern(50_000, 15);
    let layout = put(&servers(), &fleet, &options("flat:2"), &bytes);
    for (number, slice) in [(0, 1), (1, 5)] {
        let disk = fleet.folders.path().join(number.to_string()).join("disk");
        flip_where(&disk, &bytes[slice * 4_096..][..4_096]);
    }
    for _ in 0..5 {
        // One of them comes first, and neither has all of it.
        let servers = servers().late_after(Duration::ZERO);
        assert!(get(&servers, &layout).expect("each has what the other lost") == bytes);
    }
}

/// A server hangs while a file is read: the rest of it comes from the others, and what hangs is
/// asked last.
#[test]
fn a_server_that_hangs_is_read_around() {
    let fleet = Fleet::new(0);
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let processes: Vec<Process> =
        (0..3).map(|number| Process::start(&fleet.config(number, any))).collect();
    let places: Vec<SocketAddr> = processes.iter().map(|process| process.addr).collect();
    let servers = Servers::new(ClientConfig::new().timeout(LONG).depth(32))
        .late_after(Duration::from_millis(50));
    let bytes = pattern(1 << 20, 14);
    let stored = servers.put(&places, &options("rs:2+1"), &mut &bytes[..], |_| {});
    let layout = stored.expect("all are there");
    let mut read = Vec::new();
    // Before the first stripe is written, others are on their way already.
    let got = servers.get(&layout, &mut read, |done| {
        if done == 16_384 {
            processes[0].signal("STOP");
        }
    });
    let got = got.expect("two are enough");
    assert!(read == bytes && got.late.contains(0) && got.decoded > 0, "{got:?}");
    // It hangs from the beginning.
    let again = get(&servers, &layout).expect("two are enough");
    processes[0].signal("CONT");
    assert!(again == bytes);
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
        let stripes = scrubbed.stripes;
        assert!(stripes >= 4 && scrubbed.uncompared == 0, "{scrubbed:?}");
        // All that the last stripe has of a data part may be zeros, in both files.
        let are_torn = |scrubbed: &Scrubbed| (stripes - 1..=stripes).contains(&scrubbed.torn);
        match policy {
            // Two agree, and the third is wrong.
            "flat:3" => assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::from_bits(2), 0)),
            _ => assert!(scrubbed.bad.is_empty() && are_torn(&scrubbed), "{scrubbed:?}"),
        }
        // Two copies are compared without the third; of a code nothing is left over.
        mixed.nodes[2].version = None;
        let scrubbed = servers.scrub(&mixed, |_| {}).expect("a layout");
        let compared = if policy == "flat:3" { (stripes, 0) } else { (0, stripes) };
        assert_eq!((scrubbed.stripes, scrubbed.uncompared), compared);
        assert_eq!(scrubbed.bad, ShardSet::from_bits(4));
        assert!(if policy == "flat:3" { are_torn(&scrubbed) } else { scrubbed.torn == 0 });
    }
}

#[test]
fn a_put_that_may_miss_servers_says_which_and_others_leave_nothing() {
    let mut fleet = Fleet::new(4);
    fleet.stop([2]);
    let (servers, bytes) = (servers(), pattern(60_000, 6));
    let all = options("rs:2+2").least(4);
    let whole = servers.put(&fleet.places, &all, &mut &bytes[..], |_| {});
    assert!(matches!(whole, Err(SpreadError::TooFew { whole: 3, needed: 4, .. })), "{whole:?}");
    let client = Client::connect(fleet.places[0], ClientConfig::new()).expect("it runs");
    assert_eq!(client.info().wait().expect("it runs").chunks, 0, "nothing is left of it");
    client.close();
    // Without `least` as many as are enough to read it.
    let options = options("rs:2+2");
    let layout = put(&servers, &fleet, &options, &bytes);
    let versions: Vec<bool> = layout.nodes.iter().map(|node| node.version.is_some()).collect();
    assert_eq!(versions, [true, true, false, true]);
    assert!(get(&servers, &layout).expect("it is enough") == bytes);
    fleet.start([2]);
    let servers = self::servers();
    let repaired = servers.repair(&layout, &RepairOptions::new(), |_| {}).expect("it is enough");
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
    // Long, as the machine may be busy: servers that are killed close their links or refuse them.
    let client = ClientConfig::new().timeout(Nanos::from_secs(10)).depth(32);
    let servers = Servers::new(client).late_after(Duration::from_millis(300));
    let mut files: Vec<(Layout, Vec<u8>)> = Vec::new();
    let mut killed = Vec::new();
    for round in 0..100 {
        let mut victim = None;
        if [20, 40, 60].contains(&round) {
            let left: Vec<usize> = (0..9).filter(|number| !killed.contains(number)).collect();
            let number = left[prng.below(left.len() as u64) as usize];
            victim = processes[number].take();
            killed.push(number);
        }
        let bytes = pattern(1 + prng.below(300_000) as usize, round);
        // Dropping a process kills it: in the middle of a put, or once of a get.
        let stored = servers.put(&places, &options, &mut &bytes[..], |_| {
            if round != 40 {
                victim = None;
            }
        });
        let layout = stored.unwrap_or_else(|error| panic!("round {round}: {error}"));
        files.push((layout, bytes));
        let at =
            if round == 40 { files.len() - 1 } else { prng.below(files.len() as u64) as usize };
        let (layout, bytes) = &files[at];
        let mut read = Vec::new();
        let got = servers.get(layout, &mut read, |_| victim = None);
        let got = got.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(read == *bytes && got.bytes == bytes.len() as u64, "round {round}");
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
        let repaired =
            servers.repair(layout, &RepairOptions::new(), |_| {}).expect("six are whole");
        made += repaired.parts.len();
        *layout = repaired.layout;
        let scrubbed = servers.scrub(layout, |_| {}).expect("a layout");
        assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0));
        assert!(get(&servers, layout).expect("all are whole") == *bytes);
    }
    println!("{made} parts were made anew");
    assert!(made >= 40, "files were stored while three were gone");
}

#[test]
fn the_network_carries_each_byte_as_often_as_the_policy_says() {
    let bytes = pattern(8 << 20, 9);
    for (policy, times) in [
        ("flat:1", 1.0),
        ("flat:3", 3.0),
        ("ring:3", 3.0),
        ("tree:3", 3.0),
        ("rs:8+3", 1.375),
        ("rs:8+3,triec", 4.0),
    ] {
        let mut fleet = Fleet::new(11);
        let options = PutOptions::new(policy.parse().expect("a policy"));
        put(&servers(), &fleet, &options, &bytes);
        let running = fleet.running.drain();
        // Each byte counts where it was taken in, once, whatever was lost and sent again.
        let taken = running.map(|(_, server)| server.stop().stats.links.bytes_received);
        let found = taken.sum::<u64>() as f64 / bytes.len() as f64;
        assert!((found / times - 1.0).abs() < 0.02, "{policy}: {found} for {times}");
    }
}
