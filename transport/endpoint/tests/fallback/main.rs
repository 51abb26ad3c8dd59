//! Clients write and read while what their links ride on fails and comes back, on real sockets.

#![allow(unreachable_pub, reason = "the parts of one test")]

mod hole;
mod rig;
mod store;

use hole::{RECEIVED_ALL, RECEIVED_UC, SENT_ALL, SENT_UC};
use rig::{BYTES_MAX, Client, Rig};
use store::{Asker, Request};
use towpath_base::{Nanos, Prng};
use towpath_sim::FaultPlan;
use towpath_transport::Carrier::{Rc, Tcp, Uc};

fn any(asker: &mut Asker) -> Option<Request> {
    Some(asker.ask(BYTES_MAX))
}

/// Lets clients work until each has had so many more answers, and `more` holds.
fn work(rig: &mut Rig, operations: u64, more: impl Fn(&Client) -> bool) {
    let goals: Vec<u64> = rig.clients.iter().map(|c| c.asker.answered + operations).collect();
    rig.run(any, |clients| {
        let reached = |(client, &goal): (&Client, &u64)| client.asker.answered >= goal;
        clients.iter().zip(&goals).all(reached) && clients.iter().all(&more)
    });
}

#[test]
fn clients_work_on_while_udp_is_swallowed_and_are_back_on_uc_when_it_is_not() {
    let seed = 1;
    println!("seed {seed}");
    let mut rig = Rig::new(seed, 3);
    work(&mut rig, 50, |client| client.carrier() == Some(Uc));
    // UC alone: RC takes over.
    rig.clients.iter().for_each(|client| client.hole.set(SENT_UC | RECEIVED_UC));
    work(&mut rig, 100, |client| client.carrier() == Some(Rc));
    rig.clients.iter().for_each(|client| client.hole.set(0));
    work(&mut rig, 100, |client| client.carrier() == Some(Uc));
    // Everything: TCP is left.
    rig.clients.iter().for_each(|client| client.hole.set(SENT_ALL | RECEIVED_ALL));
    work(&mut rig, 100, |client| client.carrier() == Some(Tcp));
    rig.clients.iter().for_each(|client| client.hole.set(0));
    work(&mut rig, 100, |client| client.carrier() == Some(Uc));
    for client in &rig.clients {
        println!("{:?}", client.rides);
        assert!(client.rides.contains(&Tcp), "{:?}", client.rides);
    }
    assert!(rig.server_rides.contains(&Tcp) && rig.server_rides.contains(&Rc));
    rig.check();
}

/// Draws what befalls a client next.
fn befall(client: &Client, prng: &mut Prng) {
    let us = Nanos::from_micros;
    let plan = FaultPlan::none()
        .drop(0.01)
        .duplicate(0.01, us(500))
        .reorder(0.01, 8, us(200))
        .corrupt(0.005)
        .late(0.005, us(100), us(20_000));
    let holes = [
        0,
        0,
        SENT_UC | RECEIVED_UC,
        SENT_UC,
        RECEIVED_UC,
        SENT_ALL | RECEIVED_ALL,
        SENT_ALL,
        RECEIVED_ALL,
    ];
    client.hole.set(holes[prng.below(holes.len() as u64) as usize]);
    let plan = if prng.chance(0.5) { plan } else { FaultPlan::none() };
    client.faults.set_transmit(plan.clone());
    client.faults.set_receive(plan);
}

/// Clients work through `operations` each, and something befalls each after every `every` of its
/// own.
fn soak(seed: u64, clients: u64, operations: u64, every: u64) {
    println!("seed {seed}");
    let mut rig = Rig::new(seed, clients);
    let mut prng = Prng::new(seed);
    let mut next = vec![0; clients as usize];
    rig.run(any, |clients| {
        for (client, next) in clients.iter().zip(&mut next) {
            if client.asker.answered >= *next {
                *next = client.asker.answered + prng.between(every / 2, 2 * every);
                befall(client, &mut prng);
            }
        }
        clients.iter().all(|client| client.asker.answered >= operations)
    });
    for client in &rig.clients {
        client.hole.set(0);
        client.faults.set_transmit(FaultPlan::none());
        client.faults.set_receive(FaultPlan::none());
    }
    work(&mut rig, 20, |client| client.carrier() == Some(Uc));
    rig.check();
    let count = |carrier| {
        let rides = rig.clients.iter().flat_map(|client| &client.rides);
        rides.filter(|&&ride| ride == carrier).count()
    };
    let rides = [Uc, Rc, Tcp].map(count);
    println!(
        "clients came to UC, RC, TCP {rides:?} times; the server's {}",
        rig.server_rides.len()
    );
    assert!(rides[0] > 0 && rides[2] > 0);
}

#[test]
fn nothing_is_lost_or_done_twice_while_carriers_come_and_go() {
    soak(2, 4, 800, 100);
}

/// A million operations: `cargo test --release -p towpath-transport --test fallback -- --ignored`.
#[test]
#[ignore = "minutes"]
fn a_million_operations_of_sixteen_clients_while_carriers_come_and_go() {
    soak(3, 16, 62_500, 2_000);
}
