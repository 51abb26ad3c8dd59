//! Lost parts that servers make anew among themselves, one after the other adding its own.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{LONG, Process, Running, config, pattern};
use tempfile::TempDir;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_ec::{Code, Decoder, Factor, Shape, ShardSet};
use towpath_fastpath::cap::{Capability, Denied, Grant, KeyRing, Rights, Scope};
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, ErrorKind, ErrorReply, Helper, NewChunk, Rebuild, Rebuilt,
    StorageRequest, Terms,
};
use towpath_spread::{
    Layout, PartError, PutOptions, RepairOptions, Repaired, Servers, SpreadError,
};
use towpath_transport::Nanos;

const UNIT: usize = 16 << 10;

fn server(folders: &TempDir, number: usize, listen: SocketAddr) -> DaemonConfig {
    let folder = folders.path().join(number.to_string());
    config(&folder).with(|config| {
        config.network.listen = listen;
        config.store.capacity_bytes = 64 << 20;
        config.network.links_max = 32;
    })
}

/// Servers in this process.
struct Fleet {
    folders: TempDir,
    places: Vec<SocketAddr>,
    running: Vec<Option<Running>>,
}

impl Fleet {
    fn new(count: usize) -> Self {
        Self::keeping(count, 0)
    }

    /// Servers that keep reservations, of so many operations a second.
    fn keeping(count: usize, qos_iops: u32) -> Self {
        let folders = tempfile::tempdir().expect("room for a folder");
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        let config = |number| {
            server(&folders, number, anywhere).with(|config| config.qos.qos_iops = qos_iops)
        };
        let start = |number| Running::start(&config(number));
        let running: Vec<Running> = (0..count).map(start).collect();
        let places = running.iter().map(|server| server.addr).collect();
        Self { folders, places, running: running.into_iter().map(Some).collect() }
    }

    fn stop(&mut self, number: usize) {
        self.running[number].take().map(Running::stop);
    }

    fn start(&mut self, number: usize) {
        let config = server(&self.folders, number, self.places[number]);
        self.running[number] = Some(Running::start(&config));
    }
}

fn servers() -> Servers {
    Servers::new(ClientConfig::new().timeout(Nanos::from_secs(20)).depth(32))
        .late_after(Duration::from_secs(5))
}

fn options(policy: &str) -> PutOptions {
    PutOptions::new(policy.parse().expect("a policy")).unit_bytes(UNIT as u32)
}

fn put(servers: &Servers, places: &[SocketAddr], policy: &str, bytes: &[u8]) -> Layout {
    servers.put(places, &options(policy), &mut &bytes[..], |_| {}).expect("it is stored")
}

fn get(servers: &Servers, layout: &Layout) -> Result<Vec<u8>, SpreadError> {
    let mut read = Vec::new();
    servers.get(layout, &mut read, |_| {}).map(|_| read)
}

fn onto(place: SocketAddr) -> RepairOptions {
    RepairOptions::new().replacements(&[place])
}

fn client(place: SocketAddr) -> Client {
    Client::connect(place, ClientConfig::new().timeout(LONG).depth(32)).expect("a server")
}

/// The bytes of a part, as its server has them.
fn part(layout: &Layout, part: usize) -> Vec<u8> {
    let node = layout.nodes[part];
    let client = client(node.server);
    let byte_len = client.stat(node.chunk).wait().expect("it is there").byte_len as usize;
    let pieces = (0..byte_len).step_by(UNIT);
    let read = |from: usize| client.read(node.chunk, from as u64, UNIT.min(byte_len - from));
    pieces.flat_map(|from| read(from).wait().expect("it is there")).collect()
}

fn is_by_servers(repaired: &Repaired) -> bool {
    let moved = repaired.bytes_passed_on > 0 && repaired.bytes_read == 0;
    assert_eq!(moved, repaired.not_by_servers.is_none(), "{repaired:?}");
    moved
}

#[test]
fn every_lost_part_comes_back_as_it_was_without_passing_through_the_client() {
    for policy in ["rs:3+2", "rs:6+3", "rs:1+1", "rs:3+2,triec", "flat:3"] {
        let parts = policy.parse::<towpath_spread::Policy>().expect("a policy").parts();
        let mut fleet = Fleet::new(parts + 1);
        let bytes = pattern(7 * UNIT + 5_000, parts as u64);
        let mut layout = put(&servers(), &fleet.places[..parts], policy, &bytes);
        for lost in 0..parts {
            let before = part(&layout, lost);
            let gone = layout.nodes[lost].server;
            let number = fleet.places.iter().position(|place| *place == gone).expect("it is one");
            let spare = fleet
                .places
                .iter()
                .find(|place| !layout.nodes.iter().any(|node| node.server == **place));
            let spare = *spare.expect("one has no part");
            fleet.stop(number);
            let servers = servers();
            let repaired = servers.repair(&layout, &onto(spare), |_| {}).expect("enough are there");
            assert!(is_by_servers(&repaired), "{policy} {lost}: {:?}", repaired.not_by_servers);
            assert_eq!(repaired.parts.iter().collect::<Vec<_>>(), [lost]);
            layout = repaired.layout;
            assert_eq!(layout.nodes[lost].server, spare);
            assert!(part(&layout, lost) == before, "{policy} {lost}");
            let scrubbed = servers.scrub(&layout, |_| {}).expect("a layout");
            assert_eq!((scrubbed.bad, scrubbed.torn), (ShardSet::NONE, 0), "{policy} {lost}");
            assert!(get(&servers, &layout).expect("it is whole") == bytes);
            fleet.start(number);
        }
    }
}

#[test]
fn as_many_parts_as_may_be_lost_come_back_together() {
    let mut fleet = Fleet::new(7);
    let bytes = pattern(20 * UNIT + 1, 5);
    let layout = put(&servers(), &fleet.places[..5], "rs:3+2", &bytes);
    let before = [1, 3].map(|lost| part(&layout, lost));
    [1, 3].into_iter().for_each(|lost| fleet.stop(lost));
    let servers = servers();
    let options = RepairOptions::new().replacements(&fleet.places[5..]);
    let repaired = servers.repair(&layout, &options, |_| {}).expect("three are enough");
    assert!(is_by_servers(&repaired), "{:?}", repaired.not_by_servers);
    for (lost, before) in [1, 3].into_iter().zip(before) {
        assert!(part(&repaired.layout, lost) == before);
    }
    let parts = [0, 4].into_iter().collect();
    let by_client = RepairOptions::new().anew(parts).by_client(true);
    let again = servers.repair(&repaired.layout, &by_client, |_| {}).expect("all are there");
    assert_eq!((again.parts, again.bytes_passed_on), (parts, 0), "this time by the client");
    assert!(again.bytes_read > 0);
    assert!(get(&servers, &again.layout).expect("it is whole") == bytes);
}

#[test]
fn a_part_of_which_most_differs_is_made_anew_and_one_of_which_little_does_is_mended() {
    let fleet = Fleet::new(5);
    let bytes = pattern(20 * UNIT, 11);
    let layout = put(&servers(), &fleet.places, "rs:3+2", &bytes);
    let (before, node) = (part(&layout, 1), layout.nodes[1]);
    let other = client(node.server);
    for (units, is_anew) in [(1, false), (4, true)] {
        other.write(node.chunk, 0, vec![7; units * UNIT]).wait().expect("it is there");
        let repaired = servers().repair(&layout, &RepairOptions::new(), |_| {});
        let repaired = repaired.expect("the others are whole");
        assert_eq!(repaired.bytes_passed_on > 0, is_anew, "{repaired:?}");
        assert_eq!((repaired.parts.contains(1), repaired.mended.contains(1)), (is_anew, !is_anew));
        assert!(part(&repaired.layout, 1) == before);
    }
}

#[test]
fn one_parts_worth_of_bytes_comes_to_the_target_and_to_each_that_passes_it_on() {
    let mut fleet = Fleet::new(6);
    // 2 MiB of each part, in the units of every day.
    let options = PutOptions::new("rs:3+2".parse().expect("a policy"));
    let bytes = pattern(6 << 20, 6);
    let put = servers().put(&fleet.places[..5], &options, &mut &bytes[..], |_| {});
    let layout = put.expect("it is stored");
    // What the servers count begins here.
    for number in 0..6 {
        fleet.stop(number);
        if number != 2 {
            fleet.start(number);
        }
    }
    let repaired = servers().repair(&layout, &onto(fleet.places[5]), |_| {});
    let repaired = repaired.expect("three are enough");
    assert!(is_by_servers(&repaired), "{:?}", repaired.not_by_servers);
    let came = fleet.running.into_iter().map(|server| {
        let stats = server.map(Running::stop)?.stats;
        Some(stats.links.bytes_received as f64 / f64::from(2 << 20))
    });
    let came: Vec<Option<f64>> = came.collect();
    println!("bytes that came, for each that was rebuilt: {came:?}");
    let near = |at: usize, expected: f64| {
        let came = came[at].expect("it served");
        assert!((expected..expected + 0.02).contains(&came), "{at}: {came}");
    };
    // Parts 0, 1 and 3 help, in this order; the others hear of the scrub alone.
    [(0, 0.0), (1, 1.0), (3, 1.0), (4, 0.0), (5, 1.0)].into_iter().for_each(|(at, e)| near(at, e));
}

#[test]
fn a_helper_that_dies_in_the_middle_ends_it_and_the_part_is_made_of_others() {
    let folders = tempfile::tempdir().expect("room for a folder");
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let of = |number: usize| Process::start(&server(&folders, number, anywhere));
    let mut processes: Vec<Process> = (0..6).map(of).collect();
    let places: Vec<SocketAddr> = processes.iter().map(|server| server.addr).collect();
    let bytes = pattern(300 * UNIT, 7);
    let layout = put(&servers(), &places[..5], "rs:3+2", &bytes);
    let before = part(&layout, 0);
    drop(processes.remove(0));
    // In their order the helpers are 1, 2 and 3.
    let mut helper = Some(processes.remove(1));
    let servers = servers();
    let repaired = servers.repair(&layout, &onto(places[5]), |_| drop(helper.take()));
    let repaired = repaired.expect("three are left");
    assert!(helper.is_none(), "it was killed");
    assert!(!is_by_servers(&repaired));
    assert!(part(&repaired.layout, 0) == before);
    assert!(get(&servers, &repaired.layout).expect("it is whole") == bytes);
}

#[test]
fn what_somebody_writes_meanwhile_is_not_mixed_with_what_was_there() {
    let mut fleet = Fleet::new(6);
    let bytes = pattern(300 * UNIT, 8);
    let layout = put(&servers(), &fleet.places[..5], "rs:3+2", &bytes);
    let before = part(&layout, 0);
    fleet.stop(0);
    let node = layout.nodes[2];
    let other = client(node.server);
    let mut writes = Some(|| other.write(node.chunk, 0, pattern(UNIT, 9)).wait());
    let repaired = servers().repair(&layout, &onto(fleet.places[5]), |_| {
        writes.take().into_iter().for_each(|write| write().expect("it is there"));
    });
    let repaired = repaired.expect("three are left");
    let why = repaired.not_by_servers.as_ref().expect("a helper has another version");
    println!("{why}");
    assert!(part(&repaired.layout, 0) == before, "made of those that are as they were");
}

#[test]
fn what_does_not_belong_together_is_found_by_sketches() {
    let mut fleet = Fleet::new(6);
    let bytes = pattern(20 * UNIT, 10);
    let mut layout = put(&servers(), &fleet.places[..5], "rs:3+2", &bytes);
    // A helper that does not give what it was given, though its version is right.
    let node = &mut layout.nodes[2];
    let liar = client(node.server);
    liar.write(node.chunk, 3 * UNIT as u64, vec![7; 4_096]).wait().expect("it is there");
    node.version = Some(liar.stat(node.chunk).wait().expect("it is there").version);
    fleet.stop(0);
    // Nor does what the client makes of them, and nothing tells which of the four is wrong.
    let repaired = servers().repair(&layout, &onto(fleet.places[5]), |_| {});
    assert!(matches!(repaired, Err(SpreadError::Unlike)), "{repaired:?}");
}

/// Writes to a part where it is, and has the layout say that it is whole.
fn make_odd(layout: &mut Layout, part: usize) {
    let node = &mut layout.nodes[part];
    let client = client(node.server);
    client.write(node.chunk, 2 * UNIT as u64, vec![7; 4_096]).wait().expect("it is there");
    node.version = Some(client.stat(node.chunk).wait().expect("it is there").version);
}

#[test]
fn a_part_that_a_scrub_has_found_wrong_is_not_used_to_make_others() {
    let mut fleet = Fleet::new(9);
    let bytes = pattern(20 * UNIT, 11);
    let mut layout = put(&servers(), &fleet.places[..6], "rs:3+3", &bytes);
    let before = [0, 3].map(|number| part(&layout, number));
    make_odd(&mut layout, 0);
    fleet.stop(3);
    let found = servers().scrub(&layout, |_| {}).expect("a layout");
    assert_eq!((found.bad, found.odd), (ShardSet::from_bits(0b1001), ShardSet::from_bits(1)));
    let options = onto(fleet.places[6]).scrubbed(&found).by_client(true);
    let repaired = servers().repair(&layout, &options, |_| {}).expect("four are there");
    assert_eq!((repaired.parts, repaired.mended), ([3].into_iter().collect(), found.odd));
    for (number, before) in [0, 3].into_iter().zip(before) {
        assert!(part(&repaired.layout, number) == before, "part {number}");
    }
    // Now what is left of them is not enough without it.
    let mut layout = repaired.layout;
    make_odd(&mut layout, 0);
    let found = servers().scrub(&layout, |_| {}).expect("a layout");
    assert_eq!((found.bad, found.odd), (ShardSet::from_bits(1), ShardSet::from_bits(1)));
    [1, 2, 6].into_iter().for_each(|number| fleet.stop(number));
    let options = options.scrubbed(&found).replacements(&fleet.places[7..]);
    let options = options.share_replacements(true);
    let repaired = servers().repair(&layout, &options, |_| {});
    let Err(SpreadError::TooFew { whole: 2, needed: 3, source, .. }) = repaired else {
        panic!("{repaired:?}")
    };
    assert!(matches!(*source, PartError::Wrong), "{source:?}");
}

/// Parts of one stripe in chunks of servers, and the plan to make one of them anew.
struct Stripe {
    fleet: Fleet,
    clients: Vec<Client>,
    data: Vec<Vec<u8>>,
    helpers: Vec<Helper>,
    target: Rebuilt,
}

const CHUNK: ChunkId = ChunkId(0xec);
const RANGE: u32 = 40 << 10;

impl Stripe {
    /// The first data part is lost; one server more has the chunk for it.
    fn new() -> Self {
        Self::on(Fleet::new(4), None)
    }

    fn on(fleet: Fleet, grant: Option<Grant>) -> Self {
        let connect = |place: &SocketAddr| {
            let config = ClientConfig::new().timeout(LONG);
            let config = match grant {
                Some(grant) => config.capability(grant),
                None => config,
            };
            Client::connect(*place, config).expect("a server")
        };
        let clients: Vec<Client> = fleet.places.iter().map(connect).collect();
        let shape = Shape::new(3, 2).expect("a shape");
        let code = Code::new(shape);
        let mut parts: Vec<Vec<u8>> = (0..3).map(|of| pattern(RANGE as usize, of)).collect();
        parts.extend(vec![vec![0; RANGE as usize]; 2]);
        let (data, parity) = parts.split_at_mut(3);
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(&data, &mut parity).expect("equal lengths");
        let sources: ShardSet = [1, 2, 4].into_iter().collect();
        let lost = [0].into_iter().collect();
        let decoder = Decoder::new(&code, sources, lost).expect("enough are there");
        let kind = NewChunk { chain: 2, ..NewChunk::default() };
        clients[3].create(CHUNK, None, kind).wait().expect("it is new");
        let helper = |(at, source): (usize, usize)| {
            let client = &clients[at];
            client.create(CHUNK, None, NewChunk::default()).wait().expect("it is new");
            client.write(CHUNK, 4_096, parts[source].clone()).wait().expect("it is there");
            Helper {
                server: fleet.places[at],
                chunk: CHUNK,
                version: client.stat(CHUNK).wait().expect("it is there").version,
                coefficient: decoder.coefficient(0, source),
            }
        };
        let helpers: Vec<Helper> = sources.iter().enumerate().map(helper).collect();
        let target = Rebuilt {
            server: fleet.places[3],
            chunk: CHUNK,
            offset: 4_096,
            length: RANGE,
            terms: Terms { chain: 2, ..Terms::default() },
        };
        Self { fleet, clients, data: parts, helpers, target }
    }

    fn version(&self) -> u64 {
        self.clients[3].stat(CHUNK).wait().expect("it is there").version
    }

    fn rebuild_by(&self, client: &Client) -> Result<u64, ErrorKind> {
        let plan = Rebuild::new(&self.helpers, self.target).expect("a plan");
        client.rebuild(plan).wait().map_err(|error| error.kind)
    }

    fn rebuild(&self) -> Result<u64, ErrorKind> {
        self.rebuild_by(&self.clients[0])
    }

    /// How it is refused; nothing was written.
    fn refused(&self, with: impl FnOnce(&mut Vec<Helper>, &mut Rebuilt)) -> ErrorReply {
        let before = self.version();
        let (mut helpers, mut target) = (self.helpers.clone(), self.target);
        with(&mut helpers, &mut target);
        let plan = Rebuild::new(&helpers, target).expect("a plan");
        let refused = self.clients[0].rebuild(plan).wait().map_err(|error| error.kind);
        assert_eq!(self.version(), before, "{refused:?}");
        common::refusal(refused)
    }
}

#[test]
fn a_server_that_is_not_as_the_plan_says_refuses_it_by_name_and_nothing_is_written() {
    let stripe = Stripe::new();
    let of_rank = |rank, code| ErrorReply::ReplicaRefused { rank, code };
    let other = stripe.helpers[0].version + 1;
    for rank in 0..3 {
        let refused = stripe.refused(|helpers, _| helpers[rank].version = other + rank as u64);
        let expected = match rank {
            0 => ErrorReply::OtherVersion { version: stripe.helpers[0].version },
            rank => of_rank(rank as u64, 19),
        };
        assert_eq!(refused, expected);
        let absent = ChunkId(9);
        let refused = stripe.refused(|helpers, _| helpers[rank].chunk = absent);
        let expected = match rank {
            0 => ErrorReply::NoSuchChunk { chunk: absent },
            rank => of_rank(rank as u64, 1),
        };
        assert_eq!(refused, expected);
    }
    assert_eq!(stripe.refused(|_, target| target.chunk = ChunkId(9)), of_rank(3, 1));
    let refused = stripe.refused(|_, target| target.terms.chain = 1);
    assert_eq!(refused, ErrorReply::OtherChain { chunk: CHUNK, chain: 2 });
    // No part has such bytes. All are asked at once, and the first refusal is told.
    let refused = stripe.refused(|_, target| target.offset += 4_096);
    let by_helper = matches!(refused, ErrorReply::ReplicaRefused { code: 3, .. });
    assert!(by_helper || matches!(refused, ErrorReply::PastEnd { .. }), "{refused}");
    let nobody = "127.0.0.1:9".parse().expect("an address");
    for rank in 1..3 {
        let refused = stripe.refused(|helpers, _| helpers[rank].server = nobody);
        assert_eq!(refused, of_rank(rank as u64, 0));
    }
    stripe.rebuild().expect("all are as it says");
    let read = stripe.clients[3].read(CHUNK, 4_096, RANGE as usize).wait().expect("it is there");
    assert!(read == stripe.data[0]);
}

/// Tokens that whoever named no tenant has used at each server. One is for a request that makes
/// them pay what they owe.
fn used(places: &[SocketAddr]) -> Vec<u64> {
    let of = |place: &SocketAddr| {
        let client = client(*place);
        let refused = client.delete(ChunkId(0xdead)).wait();
        assert!(refused.is_err(), "there is no such chunk");
        let reply = client.qos().wait().expect("it keeps reservations");
        let mut tenants = reply.tenants.iter().filter(|tenant| tenant.name == "others");
        tenants.next().map_or(0, |others| others.used_reserved + others.used_pooled)
    };
    places.iter().map(of).collect()
}

/// More tokens than anybody uses here.
const PLENTY: u32 = 10_000_000;

#[test]
fn who_has_a_range_made_anew_pays_for_what_is_read_and_for_what_is_made_of_it() {
    let stripe = Stripe::on(Fleet::keeping(4, PLENTY), None);
    let before = used(&stripe.fleet.places);
    stripe.rebuild().expect("all is as the plan says");
    let after = used(&stripe.fleet.places);
    let cost = before.iter().zip(after).map(|(before, after)| after - before - 1);
    let (cost, tokens) = (cost.collect::<Vec<_>>(), u64::from(RANGE) / 4096);
    assert_eq!(cost, [2 * tokens, 2 * tokens, 2 * tokens, tokens], "three help, one writes");
}

#[test]
fn data_parts_that_are_added_to_a_parity_part_are_paid_as_they_were_read() {
    let fleet = Fleet::keeping(3, PLENTY);
    let stripes = 4;
    let bytes = pattern(2 * UNIT * stripes, 5);
    put(&servers(), &fleet.places, "rs:2+1,triec", &bytes);
    let mut used = used(&fleet.places);
    used.sort_unstable();
    // All three make, write and finish a part; the one with parity adds two to make its own.
    assert_eq!(used[1], used[0]);
    assert_eq!(used[2] - used[0], (bytes.len() / 4096) as u64, "{used:?}");
}

#[test]
fn a_sum_does_not_overwrite_what_was_written_since_the_version_that_it_is_meant_for() {
    let mut stripe = Stripe::new();
    let before = stripe.version();
    stripe.target.terms.version = Some(before);
    let newer = stripe.clients[3].on_chain(2);
    newer.write(CHUNK, 8_192, vec![9; 4_096]).wait().expect("it is there");
    let refused = stripe.refused(|_, _| {});
    assert_eq!(refused, ErrorReply::ReplicaRefused { rank: 3, code: 19 });
    stripe.target.terms.version = Some(stripe.version());
    let made = stripe.rebuild().expect("nobody has changed it since");
    assert_eq!(made, stripe.version());
}

#[test]
fn a_coefficient_that_is_wrong_makes_another_sum() {
    let mut stripe = Stripe::new();
    stripe.helpers[1].coefficient ^= 1;
    stripe.rebuild().expect("no server can know");
    let read = stripe.clients[3].read(CHUNK, 4_096, RANGE as usize).wait().expect("it is there");
    let mut expected = stripe.data[0].clone();
    Factor::new(1).add_to(&stripe.data[2], &mut expected).expect("equal lengths");
    assert!(read == expected);
}

/// Whether an error says that the server of that rank does not answer, or cannot be reached.
fn is_told_of(error: ErrorKind, of: u64) -> bool {
    match error {
        ErrorKind::Refused(
            ErrorReply::ReplicaLost { rank } | ErrorReply::ReplicaRefused { rank, code: 0 },
        ) => rank == of,
        _ => false,
    }
}

#[test]
fn whoever_asks_is_told_in_time_of_a_server_that_hangs_or_is_gone() {
    let folders = tempfile::tempdir().expect("room for a folder");
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let of = |number: usize| Process::start(&server(&folders, number, anywhere));
    let mut processes: Vec<Process> = (0..3).map(of).collect();
    let places: Vec<SocketAddr> = processes.iter().map(|server| server.addr).collect();
    let hasty = ClientConfig::new().timeout(Nanos::from_secs(4));
    let client = Client::connect(places[0], hasty).expect("a server");
    let mut helpers = Vec::new();
    for place in &places[..2] {
        let mut own = common::Client::connect(*place);
        own.create(CHUNK, None).expect("it is new");
        own.write(CHUNK, 0, &pattern(UNIT, 1)).expect("it is there");
        let version = own.stat(CHUNK).expect("it is there").1;
        helpers.push(Helper { server: *place, chunk: CHUNK, version, coefficient: 3 });
    }
    common::Client::connect(places[2]).create(CHUNK, None).expect("it is new");
    let (offset, length, terms) = (0, UNIT as u32, Terms::default());
    let target = Rebuilt { server: places[2], chunk: CHUNK, offset, length, terms };
    let plan = Rebuild::new(&helpers, target).expect("a plan");
    client.rebuild(plan.clone()).wait().expect("all are there");
    for hanging in [1, 2] {
        processes[hanging].signal("STOP");
        let error = client.rebuild(plan.clone()).wait().expect_err("one hangs").kind;
        assert!(is_told_of(error, hanging as u64), "{error:?}");
        processes[hanging].signal("CONT");
    }
    processes.truncate(2);
    let error = client.rebuild(plan.clone()).wait().expect_err("one is gone").kind;
    assert!(is_told_of(error, 2), "{error:?}");
}

fn keys() -> String {
    KeyRing::line(1, &[1; 32])
}

#[test]
fn each_server_asks_for_leave_to_read_its_part_and_the_target_for_leave_to_write() {
    let folders = tempfile::tempdir().expect("room for a folder");
    let key_file = folders.path().join("keys");
    std::fs::write(&key_file, keys()).expect("written");
    let start = |number| {
        let config = server(&folders, number, (Ipv4Addr::LOCALHOST, 0).into());
        Running::start(&config.with(|config| config.service.key_file = Some(key_file.clone())))
    };
    let running: Vec<Running> = (0..4).map(start).collect();
    let places: Vec<SocketAddr> = running.iter().map(|server| server.addr).collect();
    let fleet = Fleet { folders, places, running: running.into_iter().map(Some).collect() };
    let grant = |rights| {
        let capability =
            Capability { rights, scope: Scope::chunk(CHUNK.0), ..Capability::everything() };
        KeyRing::parse(&keys()).expect("a key").mint(capability).expect("a grant")
    };
    let stripe = Stripe::on(fleet, Some(grant(Capability::everything().rights)));
    let first = stripe.fleet.places[0];
    let by = |rights| {
        let config = ClientConfig::new().timeout(LONG).capability(grant(rights));
        Client::connect(first, config).expect("a server")
    };
    let refused = |client: &Client| common::refusal(stripe.rebuild_by(client));
    let denied = ErrorReply::Denied { why: Denied::Rights };
    assert_eq!(refused(&by(Rights::WRITE)), denied, "the first may not read");
    let at_target = ErrorReply::ReplicaRefused { rank: 3, code: denied.code() };
    assert_eq!(refused(&by(Rights::READ)), at_target);
    let mut nobody = common::Client::connect(first);
    let plan = Rebuild::new(&stripe.helpers, stripe.target).expect("a plan");
    let op = nobody.chunks.start_request(
        &mut nobody.endpoint,
        &StorageRequest::Rebuild { plan: plan.clone(), crcs: Vec::new() },
    );
    let missing = common::refusal(nobody.wait(op).map(drop));
    assert_eq!(missing, ErrorReply::Denied { why: Denied::Missing });
    stripe.rebuild_by(&by(Rights::READ | Rights::WRITE)).expect("it is allowed");
    let read = stripe.clients[3].read(CHUNK, 4_096, RANGE as usize).wait().expect("it is there");
    assert!(read == stripe.data[0]);
}
