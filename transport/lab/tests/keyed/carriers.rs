//! Carriers that come and go under clients that write and read, in virtual time.

use crate::client::Client;
use crate::model::Broken;
use crate::soak::{Rig, SoakPlan};
use crate::tally::Tally;
use crate::world::{KeyedConfig, KeyedDevice, KeyedWorld};
use towpath_base::Nanos;
use towpath_proto::Carrier::{Rc, Tcp, Uc};
use towpath_proto::PathState;
use towpath_sim::{FaultPlan, Services, Swallows};
use towpath_transport::{EndpointConfig, Fallback};

/// An operation that takes longer than this hangs: carriers are tried one after the other, and
/// what is sent on the last of them waits for its round trip.
const DEADLINE: Nanos = Nanos::from_secs(1);

/// A carrier that is silent for so long is left, and a worse one is kept for so long at least.
const CARRIER_SPAN: Nanos = Nanos::from_millis(30);

fn config(seed: u64, paths: usize) -> KeyedConfig {
    let endpoint = EndpointConfig::new()
        .fallback(Fallback::RcThenTcp)
        .paths(paths)
        .tune_links(|link| link.fallback(CARRIER_SPAN, CARRIER_SPAN))
        .quota_chunks(16)
        .credit_total(16)
        .links_max(16)
        .send_pools(&[(64, 1024), (16 << 10, 512)]);
    KeyedConfig { seed, clients: 16, endpoint, deadline: DEADLINE }
}

fn soak(seed: u64, paths: usize, operations: u64, every: u64) -> (Tally, u64) {
    println!("seed {seed}, {paths} paths, {operations} operations of each client");
    let mut world = KeyedWorld::new(&config(seed, paths)).expect("hosts that are joined");
    let plan = SoakPlan { seed, operations, every, deadline: DEADLINE };
    let tally = plan.run(&mut world, |so_far| {
        println!(
            "{} operations in {}, longest {}, {}",
            so_far.operations, so_far.took, so_far.longest, so_far.clients
        );
    });
    let tally = tally.unwrap_or_else(|broken| panic!("seed {seed}, {paths} paths: {broken}"));
    println!("{tally}");
    (tally, world.trace_hash())
}

#[test]
fn nothing_is_lost_or_done_twice_while_carriers_come_and_go() {
    for (seed, paths) in [(1, 1), (2, 4)] {
        let (tally, _) = soak(seed, paths, 320, 50);
        for to in [Uc, Rc, Tcp] {
            assert!(tally.clients.to(to) > 0 && tally.server.to(to) > 0, "{to}");
        }
    }
}

#[test]
fn queue_pairs_in_error_are_made_anew_and_links_come_back_to_them() -> Result<(), Broken> {
    for (seed, shared, paths) in [(4, false, 1), (5, true, 1), (6, false, 3), (7, true, 3)] {
        println!("seed {seed}, {paths} paths, a shared receive queue: {shared}");
        let mut config = config(seed, paths);
        config.clients = 3;
        config.endpoint = config.endpoint.shared_receiving(shared);
        let mut world = KeyedWorld::new(&config).expect("hosts that are joined");
        run(&mut world, 5)?;
        for broken in [[Uc].as_slice(), &[Rc], &[Uc, Rc], &[Uc]] {
            for number in 0..world.count() {
                let client = world.client(number);
                client.work_to(client.answered() + 1_000);
                broken.iter().for_each(|&carrier| client.break_carrier(carrier));
            }
            run(&mut world, 1_500)?;
            for number in 0..world.count() {
                let client = world.client(number);
                client.rest();
                assert_eq!(client.carrier(), Some(Uc), "seed {seed}, broken: {broken:?}");
                let (link, _) = client.at().expect("it is up");
                // What is on a carrier that nobody rides on waits to be probed.
                let paths = client.endpoint.paths(link).filter(|path| path.facts.carrier == Uc);
                let states: Vec<_> = paths.map(|path| path.facts.state).collect();
                assert_eq!(states, vec![PathState::Good; states.len()], "{broken:?}");
            }
        }
        let plan = SoakPlan { seed, operations: 0, every: 1 << 40, deadline: DEADLINE };
        let tally = plan.run(&mut world, |_| {})?;
        println!("{tally}");
        // That of RC alone is not noticed, for nothing is sent there, until UC breaks as well.
        let expected = 3 * 2 * (3 * paths as u64 + 1);
        assert_eq!(tally.links.paths_renewed, expected, "each at both ends");
    }
    Ok(())
}

#[test]
fn packets_lost_cost_no_carrier_until_they_are_too_many_for_long() -> Result<(), Broken> {
    let (seed, ms) = (9, Nanos::from_millis);
    println!("seed {seed}");
    let mut config = config(seed, 1);
    (config.clients, config.deadline) = (3, Nanos::from_secs(10));
    // So long that a third of the packets, lost both ways, hardly makes a silence by chance.
    config.endpoint = config.endpoint.tune_links(move |link| link.fallback(ms(200), ms(400)));
    let mut world = KeyedWorld::new(&config).expect("hosts that are joined");
    let lose = |world: &mut KeyedWorld, loss| {
        for number in 0..world.count() {
            let client = world.client(number);
            client.work_to(u64::MAX);
            client.weather.faults.set_transmit(FaultPlan::none().drop(loss));
            client.weather.faults.set_receive(FaultPlan::none().drop(loss));
        }
    };
    for loss in [0.01, 0.05, 0.1] {
        lose(&mut world, loss);
        run(&mut world, 600)?;
        let falls = |number| world.client(number).rides.falls();
        assert_eq!([0, 1, 2].map(falls), [0; 3], "{loss} of all packets, both ways");
    }
    lose(&mut world, 0.35);
    run(&mut world, 2_000)?;
    for number in 0..world.count() {
        let rides = world.client(number).rides;
        assert!(rides.to(Tcp) > 0 && rides.to(Rc) == 0, "client {number}: {rides}");
    }
    for number in 0..world.count() {
        let client = world.client(number);
        client.rest();
        client.weather.clear();
    }
    run(&mut world, 6_000)?;
    for number in 0..world.count() {
        let client = world.client(number);
        assert_eq!(client.carrier(), Some(Uc), "client {number}");
    }
    Ok(())
}

/// Lets a world go on for so many milliseconds.
fn run(world: &mut KeyedWorld, ms: u64) -> Result<(), Broken> {
    let until = world.server().endpoint.now() + Nanos::from_millis(ms);
    while world.server().endpoint.now() < until {
        world.step()?;
    }
    Ok(())
}

/// What befalls carriers comes at random moments, in either direction or in both; each operation
/// is done once and answered, and all links come back.
#[test]
fn a_hundred_seeds_of_carriers_that_come_and_go_do_each_operation_once() {
    let mut falls = [0, 0];
    for seed in 100..200 {
        let mut config = config(seed, 1 + seed as usize % 4);
        config.clients = 2;
        let mut world = KeyedWorld::new(&config).expect("hosts that are joined");
        let plan = SoakPlan { seed, operations: 60, every: 15, deadline: DEADLINE };
        let tally = plan.run(&mut world, |_| {});
        let tally = tally.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        falls[0] += tally.clients.falls();
        falls[1] += tally.server.falls();
    }
    assert!(falls.into_iter().all(|falls| falls > 50), "of clients and of the server: {falls:?}");
}

/// What UDP does on the way of a client, with the spans that links have by default.
#[derive(Clone, Copy, Debug)]
enum Udp {
    /// No packet of this side comes through.
    FromUs,
    /// None of the server's does.
    ToUs,
    Neither,
}

impl Udp {
    fn block(self, client: &Client<KeyedDevice>) {
        let all = Services::All;
        client.weather.hole.set(match self {
            Self::FromUs => Swallows { sent: all, ..Swallows::default() },
            Self::ToUs => Swallows { received: all, ..Swallows::default() },
            Self::Neither => Swallows::both(all),
        });
    }
}

/// A world with one client and the defaults of programs; an operation may wait for `deadline`.
fn of_defaults(seed: u64, deadline: Nanos) -> KeyedWorld {
    println!("seed {seed}");
    let mut config = config(seed, 4);
    (config.clients, config.deadline) = (1, deadline);
    config.endpoint = config.endpoint.tune_links(|link| link);
    KeyedWorld::new(&config).expect("hosts that are joined")
}

/// The longest that an operation waits at a change of carrier: 500 ms until a carrier counts as
/// silent, as much for each that is asked after it, and as much again where the answer has to find
/// its way as well.
const CHANGE: Nanos = Nanos::from_secs(3);

#[test]
fn udp_that_is_blocked_from_the_start_leaves_a_link_on_tcp() -> Result<(), Broken> {
    for (seed, udp) in [(21, Udp::FromUs), (22, Udp::ToUs), (23, Udp::Neither)] {
        let mut world = of_defaults(seed, CHANGE);
        let client = world.client(0);
        udp.block(client);
        client.work_to(200);
        run(&mut world, 4_000)?;
        let client = world.client(0);
        assert!(client.is_done() && client.answered() == 200, "{udp:?}");
        let rides = client.rides;
        // Each end decides for what it sends.
        let (ours, theirs) = (rides.to(Tcp), world.server().rides.to(Tcp));
        assert!(ours + theirs > 0, "{udp:?}: {rides}");
    }
    Ok(())
}

#[test]
fn udp_that_is_gone_for_20_s_is_ridden_on_again_soon_after_it_is_back() -> Result<(), Broken> {
    for (seed, udp) in [(31, Udp::FromUs), (32, Udp::ToUs), (33, Udp::Neither)] {
        let mut world = of_defaults(seed, CHANGE);
        world.client(0).work_to(u64::MAX);
        run(&mut world, 300)?;
        assert_eq!(world.client(0).carrier(), Some(Uc), "{udp:?}");
        udp.block(world.client(0));
        run(&mut world, 20_000)?;
        let (before, falls) = (world.client(0).answered(), world.client(0).rides.falls());
        assert!(falls + world.server().rides.falls() > 0, "{udp:?}");
        world.client(0).weather.clear();
        run(&mut world, 3_000)?;
        let client = world.client(0);
        assert_eq!(client.carrier(), Some(Uc), "{udp:?}: {}", client.rides);
        assert!(client.answered() > before, "{udp:?}: it never stood still");
        assert!(world.server().is_on(Uc), "{udp:?}");
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let runs = [7, 7, 8].map(|seed| {
        let (tally, hash) = soak(seed, 2, 100, 20);
        (hash, tally.links, tally.clients, tally.longest)
    });
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0].0, runs[2].0);
}

/// `cargo test --release -p towpath-lab --test keyed carriers -- --ignored --nocapture`.
#[test]
#[ignore = "minutes"]
fn a_million_operations_of_sixteen_clients_while_carriers_come_and_go() {
    let (tally, _) = soak(3, 1, 62_500, 1_000);
    assert!(tally.operations > 1_000_000);
}
