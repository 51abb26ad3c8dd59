//! Bytes of files on several servers changed where they are, while servers are stopped, and by
//! several clients at a time.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{Running, config, pattern};
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_ec::ShardSet;
use towpath_fastpath::{Client, ClientConfig};
use towpath_spread::{
    ChangeError, Layout, NodeState, PutOptions, RepairOptions, Servers, SpreadError,
};
use towpath_transport::Nanos;

struct Fleet {
    folders: TempDir,
    places: Vec<SocketAddr>,
    running: Vec<Option<Running>>,
}

impl Fleet {
    fn new(count: usize) -> Self {
        let folders = tempfile::tempdir().expect("room for a folder");
        let mut fleet = Self { folders, places: Vec::new(), running: Vec::new() };
        for number in 0..count {
            let server = fleet.begin(number, (Ipv4Addr::LOCALHOST, 0).into());
            fleet.places.push(server.addr);
            fleet.running.push(Some(server));
        }
        fleet
    }

    fn begin(&self, number: usize, listen: SocketAddr) -> Running {
        let folder = self.folders.path().join(number.to_string());
        let capacity_bytes = 64 << 20;
        Running::start(&config(&folder).with(|config| {
            config.network.listen = listen;
            config.store.capacity_bytes = capacity_bytes;
            config.network.links_max = 32;
        }))
    }

    fn stop(&mut self, number: usize) {
        self.running[number] = None;
    }

    fn start(&mut self, number: usize) {
        self.running[number] = Some(self.begin(number, self.places[number]));
    }

    fn put(&self, policy: &str, bytes: &[u8]) -> Layout {
        let options = PutOptions::new(policy.parse().expect("a policy")).unit_bytes(8_192);
        servers().put(&self.places, &options, &mut &bytes[..], |_| {}).expect("it is stored")
    }
}

fn servers() -> Servers {
    Servers::new(ClientConfig::new().timeout(Nanos::from_secs(20)).depth(32))
        .late_after(Duration::from_secs(5))
}

fn get(layout: &Layout) -> Result<Vec<u8>, SpreadError> {
    let mut read = Vec::new();
    servers().get(layout, &mut read, |_| {}).map(|_| read)
}

/// Whether all parts are there and belong together.
fn fits(layout: &Layout) -> bool {
    let found = servers().scrub(layout, |_| {}).expect("a layout");
    (found.bad, found.torn) == (ShardSet::NONE, 0)
}

#[test]
fn what_is_changed_is_read_by_the_layout_before_under_each_policy() {
    let (fleet, seed) = (Fleet::new(5), 70);
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for policy in ["rs:3+2", "rs:2+1", "rs:2+0", "rs:1+1", "rs:3+2,triec", "flat:3", "ring:3"] {
        let mut bytes = pattern(70_000, 1);
        let layout = fleet.put(policy, &bytes);
        let own = servers();
        for len in [1, 100, 4_096, 30_000, 70_000] {
            let offset = prng.below((bytes.len() - len + 1) as u64);
            let new = pattern(len, prng.next_u64());
            let changed = own.write_at(&layout, offset, &new).expect("it is changed");
            assert_eq!((changed.bytes, changed.conflicts), (len as u64, 0));
            bytes[offset as usize..][..len].copy_from_slice(&new);
            assert!(get(&layout).expect("it is whole") == bytes, "{policy}, {len} at {offset}");
        }
        assert!(fits(&layout), "{policy}");
        assert!(
            servers()
                .stat(&layout)
                .expect("it is there")
                .iter()
                .all(|state| { *state == NodeState::Whole })
        );
        let beyond = own.write_at(&layout, 69_999, b"12");
        let Err(SpreadError::Change { done: 0, source: ChangeError::Beyond { bytes } }) = beyond
        else {
            panic!("{beyond:?}");
        };
        assert_eq!(bytes, 70_000);
        assert_eq!(own.remove(&layout).expect("a layout"), []);
        for server in &fleet.places {
            let client = Client::connect(*server, ClientConfig::new()).expect("it is there");
            assert_eq!(client.list_page(None).wait().expect("it lists").chunks, [], "{policy}");
        }
    }
}

#[test]
fn what_is_changed_is_read_whichever_servers_are_gone() {
    let mut fleet = Fleet::new(4);
    let mut bytes = pattern(50_000, 2);
    let layout = fleet.put("rs:2+2", &bytes);
    servers().write_at(&layout, 7_000, &pattern(3_000, 3)).expect("it is changed");
    bytes[7_000..10_000].copy_from_slice(&pattern(3_000, 3));
    for gone in [[0, 1], [1, 3], [2, 3], [0, 2]] {
        gone.iter().for_each(|server| fleet.stop(*server));
        assert!(get(&layout).expect("two are enough") == bytes, "{gone:?}");
        let refused = servers().write_at(&layout, 0, b"no");
        let is_missing = matches!(
            refused,
            Err(SpreadError::Change { done: 0, source: ChangeError::Missing { .. } })
        );
        assert!(is_missing, "{refused:?}");
        gone.iter().for_each(|server| fleet.start(*server));
    }
    assert!(fits(&layout));
}

#[test]
fn a_repair_keeps_what_was_changed_and_ends_changes_by_the_layout_before() {
    let mut fleet = Fleet::new(5);
    let mut bytes = pattern(50_000, 4);
    let layout = fleet.put("rs:2+2", &bytes);
    servers().write_at(&layout, 20_000, &pattern(500, 5)).expect("it is changed");
    bytes[20_000..20_500].copy_from_slice(&pattern(500, 5));
    fleet.stop(3);
    let options = RepairOptions::new().replacements(&fleet.places[4..]);
    let repaired = servers().repair(&layout, &options, |_| {}).expect("three are enough");
    assert_eq!(repaired.parts, [3].into_iter().collect());
    assert_eq!(repaired.layout.generation, 1);
    fleet.start(3);
    let refused = servers().write_at(&layout, 0, b"no");
    let is_repaired =
        matches!(refused, Err(SpreadError::Change { done: 0, source: ChangeError::Repaired }));
    assert!(is_repaired, "{refused:?}");
    servers().write_at(&repaired.layout, 3, b"yes").expect("it is changed");
    bytes[3..6].copy_from_slice(b"yes");
    assert!(get(&repaired.layout).expect("it is whole") == bytes);
    assert_eq!(servers().discard(&repaired.replaced), []);
    assert!(fits(&repaired.layout));
    assert!(get(&repaired.layout).expect("it is whole") == bytes);
}

/// Somebody changes the file by the layout before, as a part is brought up to date.
#[test]
fn nothing_is_changed_by_the_layout_before_once_a_part_is_written_to_for_a_repair() {
    let fleet = Fleet::new(4);
    let mut bytes = pattern(50_000, 8);
    let layout = fleet.put("rs:2+2", &bytes);
    let node = layout.nodes[0];
    let client = Client::connect(node.server, ClientConfig::new()).expect("it is there");
    client.write(node.chunk, 0, vec![1; 4_096]).wait().expect("it is open to all");
    let mut refused = Vec::new();
    let repaired = servers().repair(&layout, &RepairOptions::new(), |_| {
        refused.push(servers().write_at(&layout, 9_000, b"no"));
    });
    let repaired = repaired.expect("three are enough");
    assert_eq!(repaired.mended, ShardSet::from_bits(1));
    let is_refused = |refused: &Result<_, _>| {
        let why = ChangeError::Repaired.to_string();
        refused.as_ref().is_err_and(|error: &SpreadError| error.to_string().contains(&why))
    };
    assert!(!refused.is_empty() && refused.iter().all(is_refused), "{refused:?}");
    servers().write_at(&repaired.layout, 9_000, b"yes").expect("it is changed");
    bytes[9_000..9_003].copy_from_slice(b"yes");
    assert!(get(&repaired.layout).expect("it is whole") == bytes);
    assert!(fits(&repaired.layout));
}

/// A sink in which each piece that comes has somebody change the file.
struct Changing<'a> {
    layout: &'a Layout,
    own: Servers,
    read: Vec<u8>,
    changes: u64,
}

impl std::io::Write for Changing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.read.extend_from_slice(bytes);
        self.own.write_at(self.layout, 0, &[self.changes as u8]).expect("it is changed");
        self.changes += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_long_file_is_read_to_its_end_however_often_others_change_it() {
    let fleet = Fleet::new(3);
    let bytes = pattern(400 * 16_384, 9);
    let layout = fleet.put("rs:2+1", &bytes);
    let mut sink = Changing { layout: &layout, own: servers(), read: Vec::new(), changes: 0 };
    let got = servers().get(&layout, &mut sink, |_| {}).expect("it is whole");
    assert_eq!((got.bytes, sink.changes), (bytes.len() as u64, 400));
    assert!(sink.read[1..] == bytes[1..]);
}

#[test]
fn a_scrub_does_not_take_what_others_change_meanwhile_for_damage() {
    let fleet = Fleet::new(3);
    let layout = fleet.put("rs:2+1", &pattern(20 << 20, 10));
    let mut windows = 0;
    let found = servers().scrub(&layout, |_| {
        windows += 1;
        servers().write_at(&layout, 19 << 20, &[windows]).expect("it is changed");
    });
    let found = found.expect("a layout");
    assert!(windows > 1, "{windows} windows");
    assert_eq!((found.bad, found.torn, found.uncompared), (ShardSet::NONE, 0, 0));
}

/// Damages each slice of a disk that begins so.
fn damage(disk: &std::path::Path, begin: &[u8]) {
    let mut bytes = std::fs::read(disk).expect("it is there");
    let mut damaged = 0;
    for page in bytes.chunks_mut(4_096).filter(|page| page.starts_with(begin)) {
        page[100] ^= 1;
        damaged += 1;
    }
    assert!(damaged > 0, "nothing begins so");
    std::fs::write(disk, bytes).expect("it is written");
}

#[test]
fn a_server_that_has_lost_what_it_remembers_of_changes_is_given_another_part() {
    let mut fleet = Fleet::new(4);
    let mut bytes = pattern(50_000, 11);
    let layout = fleet.put("rs:2+2", &bytes);
    servers().write_at(&layout, 5, b"first").expect("it is changed");
    bytes[5..10].copy_from_slice(b"first");
    fleet.stop(3);
    damage(&fleet.folders.path().join("3").join("disk"), b"towpupd1");
    fleet.start(3);
    let refused = servers().write_at(&layout, 5, b"no");
    let is_missing =
        matches!(refused, Err(SpreadError::Change { source: ChangeError::Missing { .. }, .. }));
    assert!(is_missing, "{refused:?}");
    assert!(get(&layout).expect("it is whole") == bytes);
    let repaired = servers().repair(&layout, &RepairOptions::new(), |_| {}).expect("all are there");
    assert_eq!(repaired.parts, [3].into_iter().collect());
    servers().write_at(&repaired.layout, 5, b"again").expect("it is changed");
    bytes[5..10].copy_from_slice(b"again");
    assert_eq!(servers().discard(&repaired.replaced), []);
    assert!(get(&repaired.layout).expect("it is whole") == bytes);
    assert!(fits(&repaired.layout));
}

#[test]
fn several_who_change_a_stripe_at_a_time_come_one_after_the_other() {
    let fleet = Fleet::new(3);
    let layout = fleet.put("rs:2+1", &pattern(16_384, 6));
    let conflicts: u64 = std::thread::scope(|scope| {
        let writers = (0..3_u8).map(|writer| {
            let layout = &layout;
            scope.spawn(move || {
                let own = servers();
                let change = |round: u8| {
                    let new = [writer << 6 | round; 9_000];
                    let changed = own.write_at(layout, 4_000, &new);
                    changed.expect("it is changed").conflicts
                };
                (0..12).map(change).sum::<u64>()
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum()
    });
    println!("{conflicts} conflicts");
    let read = get(&layout).expect("it is whole");
    // Two pieces, each of one writer.
    let values: Vec<u8> = [&read[4_000..8_192], &read[8_192..13_000]]
        .iter()
        .flat_map(|piece| {
            let mut values = piece.to_vec();
            values.dedup();
            values
        })
        .collect();
    assert!(values.iter().all(|value| value & 63 == 11) && values.len() <= 2, "{values:?}");
    assert!(fits(&layout));
}
