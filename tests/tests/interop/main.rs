//! Towpath's NIC in userspace and the kernel's rxe, each with the other, in the virtual machine:
//! every verb in messages of all lengths, and a reliable link. What the cable does to packets is
//! told by the name of a test, and done by whoever runs it.

#[path = "../exchange/mod.rs"]
mod exchange;
mod raw;
#[path = "../rig/mod.rs"]
mod rig;

use exchange::{Load, exchange_of};
use rig::Interop;
use towpath_verbs::{Either, Mtu, QpType};

/// Each way, over both kinds of IP, in small and large packets. True says that long messages shall
/// go too. They take most of the time, so it does in two pairings only, which differ in all three.
fn for_every_pairing(mut test: impl FnMut(&mut rig::Rig<rig::EitherNic>, bool)) {
    let interop = Interop::from_environment();
    for nic_first in [true, false] {
        for ipv6 in [false, true] {
            for mtu in [Mtu::Mtu1024, Mtu::Mtu4096] {
                let way = if nic_first { "to the kernel" } else { "from the kernel" };
                println!("{way}, IPv{}, MTU {mtu}", if ipv6 { 6 } else { 4 });
                let rig = interop.rig(nic_first, ipv6, mtu);
                let long = ipv6 == (mtu == Mtu::Mtu4096) && nic_first != ipv6;
                test(&mut rig.with_memory(raw::WINDOW_BYTES), long);
            }
        }
    }
}

mod clean_cable {
    use super::*;

    #[test]
    #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
    fn every_verb_moves_messages_of_all_lengths() {
        for_every_pairing(|rig, long| {
            for qp_type in [QpType::Uc, QpType::Rc] {
                raw::every_verb(rig, qp_type, &raw::LENGTHS);
                if long {
                    raw::every_verb(rig, qp_type, &raw::LONG_LENGTHS);
                }
            }
            raw::atomics(rig);
        });
    }

    #[test]
    #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
    fn datagrams_of_all_lengths_arrive() {
        for_every_pairing(|rig, _| assert_eq!(raw::datagrams(rig), 0, "lost"));
    }

    #[test]
    #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
    fn links_move_messages_of_all_lengths() {
        over_all_links(3);
    }
}

mod bad_cable {
    use super::*;

    #[test]
    #[ignore = "needs the kernel's rxe, and packets lost: cargo xtask vm-test"]
    fn on_rc_every_verb_moves_messages_of_all_lengths() {
        for_every_pairing(|rig, long| {
            raw::every_verb(rig, QpType::Rc, &raw::LENGTHS);
            if long {
                raw::every_verb(rig, QpType::Rc, &raw::LONG_UNDER_LOSS);
            }
            raw::atomics(rig);
        });
    }

    #[test]
    #[ignore = "needs the kernel's rxe, and packets lost: cargo xtask vm-test"]
    fn on_uc_what_arrives_is_whole() {
        let mut lost = 0;
        for_every_pairing(|rig, _| lost += raw::lossy_sends(rig));
        assert!(lost > 0, "the cable is good");
    }

    #[test]
    #[ignore = "needs the kernel's rxe, and packets lost: cargo xtask vm-test"]
    fn datagrams_that_arrive_are_whole() {
        let mut lost = 0;
        for_every_pairing(|rig, _| lost += raw::datagrams(rig));
        assert!(lost > 0, "the cable is good");
    }

    #[test]
    #[ignore = "needs the kernel's rxe, and packets lost: cargo xtask vm-test"]
    fn links_move_messages_of_all_lengths() {
        assert!(over_all_links(5) > 0, "the cable is good");
    }
}

/// Links over both kinds of IP, in small and large packets, with messages of up to 16 MiB.
fn over_all_links(seed: u64) -> u64 {
    let mut again = 0;
    for ipv6 in [false, true] {
        again += over_links(seed, ipv6, &Load::small().mtu_max(Mtu::Mtu1024));
        again += over_links(seed + 1, ipv6, &Load::large());
    }
    again
}

/// A link between both, over which both send; returns how many chunks were sent again.
fn over_links(seed: u64, ipv6: bool, load: &Load) -> u64 {
    let ends = Interop::from_environment().ends(true, ipv6);
    let hosts = exchange_of(seed, ends, load);
    for host in &hosts {
        let name = match host.device() {
            Either::Left(_) => "userspace NIC",
            Either::Right(_) => "kernel",
        };
        println!("{name}: {:?}", host.stats());
    }
    hosts.iter().map(|host| host.stats().chunks_retransmitted).sum()
}
