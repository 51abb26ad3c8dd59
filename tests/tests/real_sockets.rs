//! The same promises over real UDP sockets on loopback, with the buffers of a fresh machine.

mod exchange;

use exchange::exchange;
use std::net::Ipv4Addr;
use towpath_base::Nanos;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};

fn plan(loss: f64) -> FaultPlan {
    let us = Nanos::from_micros;
    FaultPlan::none()
        .drop(loss)
        .duplicate(0.01, us(500))
        .reorder(0.01, 8, us(200))
        .corrupt(0.005)
        .late(0.005, us(100), us(20_000))
}

fn device(number: u64, seed: u64, control: &FaultControl) -> RoceDevice<FaultLink<UdpLink>> {
    // Without the privilege to pass the system's limits: the stock buffers.
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into()).force_buffers(false);
    let link = UdpLink::bind(udp).expect("loopback UDP");
    let link = FaultLink::new(link, seed ^ number, control.clone());
    RoceDevice::new(link, RoceConfig::default().seed(seed << 1 | number))
}

fn over_sockets(seed: u64, loss: f64) {
    let controls = [(); 2].map(|()| FaultControl::new(plan(loss)));
    let [near, far] = &controls;
    let hosts = exchange(seed, [device(0, seed, near), device(1, seed, far)]);
    for host in &hosts {
        assert_eq!(host.device().counters().no_recv_wqe, 0);
    }
    let faults = near.counters().plus(far.counters());
    let each = [faults.dropped_random, faults.duplicated, faults.reordered, faults.corrupted];
    assert!(each.iter().all(|&count| count > 0), "{faults:?}");
    println!("{faults:?}");
}

#[test]
fn messages_over_sockets_that_lose_one_in_a_hundred_come_once_and_intact() {
    over_sockets(1, 0.01);
}

#[test]
fn messages_over_sockets_that_lose_one_in_twenty_come_once_and_intact() {
    over_sockets(2, 0.05);
}
