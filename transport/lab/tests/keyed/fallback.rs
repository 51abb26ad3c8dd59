//! Clients write and read while what their links ride on fails and comes back, on real sockets.

use crate::model::Broken;
use crate::rig::{DEADLINE, Rig};
use crate::soak::SoakPlan;
use towpath_sim::{Services, Swallows};
use towpath_transport::Carrier::{Rc, Tcp, Uc};

#[test]
fn clients_work_on_while_udp_is_swallowed_and_are_back_on_uc_when_it_is_not() -> Result<(), Broken>
{
    let seed = 1;
    println!("seed {seed}");
    let mut rig = Rig::new(seed, 3);
    let swallow = |rig: &Rig, services| {
        rig.clients().iter().for_each(|client| client.weather.hole.set(Swallows::both(services)));
    };
    rig.work(50, Uc)?;
    swallow(&rig, Services::Uc);
    rig.work(100, Rc)?;
    swallow(&rig, Services::None);
    rig.work(100, Uc)?;
    swallow(&rig, Services::All);
    rig.work(100, Tcp)?;
    swallow(&rig, Services::None);
    rig.work(100, Uc)?;
    for client in rig.clients() {
        println!("{}", client.rides);
        assert!(client.rides.to(Tcp) > 0, "{}", client.rides);
    }
    assert!(rig.server_rides_to(Tcp) > 0 && rig.server_rides_to(Rc) > 0);
    SoakPlan { seed, operations: 0, every: 1, deadline: DEADLINE }.run(&mut rig, |_| {})?;
    Ok(())
}

/// So many clients work through `operations` each, and something befalls each after about every
/// `every` of its own.
fn soak(clients: u64, plan: SoakPlan) -> Result<(), Broken> {
    println!("seed {}, {clients} clients, {} operations each", plan.seed, plan.operations);
    let mut rig = Rig::new(plan.seed, clients);
    let tally = plan.run(&mut rig, |so_far| {
        println!(
            "{} operations in {}, longest {}, {}",
            so_far.operations, so_far.took, so_far.longest, so_far.clients
        );
    })?;
    println!("{tally}");
    assert!(tally.operations > clients * plan.operations);
    assert!(tally.clients.to(Tcp) > 0 && tally.clients.to(Uc) > 0, "{}", tally.clients);
    assert!(tally.befallen.holes() > 0 && tally.faults.dropped_random > 0);
    Ok(())
}

#[test]
fn nothing_is_lost_or_done_twice_while_carriers_come_and_go() -> Result<(), Broken> {
    soak(16, SoakPlan { seed: 2, operations: 640, every: 100, deadline: DEADLINE })
}

/// `cargo test --release -p towpath-lab --test keyed fallback -- --ignored --nocapture`.
#[test]
#[ignore = "minutes"]
fn a_million_operations_of_sixteen_clients_while_carriers_come_and_go() -> Result<(), Broken> {
    soak(16, SoakPlan { seed: 3, operations: 62_500, every: 500, deadline: DEADLINE })
}
