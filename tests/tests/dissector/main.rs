//! Dissectors that no one here wrote read what the userspace NIC sends, in every mode.
//!
//! Wireshark names each packet and looks for faults in its structure; Scapy computes its ICRC.
//! Both are programs of their own: `cargo xtask dissect` installs them and runs this. Scapy has no
//! ICRC for IPv6, and Wireshark checks none: there the kernel's rxe judges, in the virtual machine.

mod readers;
mod record;
#[path = "../rig/mod.rs"]
mod rig;
mod traffic;

use record::Recorder;
use std::net::IpAddr;
use towpath_verbs::{Mtu, QpType};
use traffic::Expected;

const V4: [IpAddr; 2] = [IpAddr::V4(ip4(1)), IpAddr::V4(ip4(2))];
const V6: [IpAddr; 2] = [IpAddr::V6(ip6(1)), IpAddr::V6(ip6(2))];

const fn ip4(last: u8) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::new(10, 0, 0, last)
}

const fn ip6(last: u16) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

/// Sends in every mode between `ips`; each frame must be read as what it is.
fn every_mode(ips: [IpAddr; 2]) {
    let mut recorder = Recorder::new(ips);
    let mut expected = Vec::new();
    for mtu in Mtu::ALL {
        recorder.rig.mtu = mtu;
        for qp_type in [QpType::Uc, QpType::Rc] {
            expected.extend(traffic::connected(&mut recorder.rig, qp_type));
        }
        expected.extend(traffic::refusals(&mut recorder.rig));
    }
    expected.extend(traffic::datagrams(&mut recorder.rig));
    let capture = recorder.finish();
    let frames = readers::dissect(capture.path());
    let number = |index: usize| index + 1;
    for (index, (frame, wanted)) in frames.iter().zip(&expected).enumerate() {
        assert_eq!(frame.fault, "", "frame {}: {frame:?}", number(index));
        assert_eq!(&frame.content, wanted, "frame {}", number(index));
    }
    assert_eq!(frames.len(), expected.len());
    println!("{} frames", frames.len());
    if ips[0].is_ipv4() {
        assert_eq!(readers::wrong_icrcs(capture.path()), [0; 0]);
    }
}

#[test]
#[ignore = "needs tshark and scapy: cargo xtask dissect"]
fn every_packet_over_ipv4_is_read_as_what_it_is_and_its_icrc_is_right() {
    every_mode(V4);
}

#[test]
#[ignore = "needs tshark and scapy: cargo xtask dissect"]
fn every_packet_over_ipv6_is_read_as_what_it_is() {
    every_mode(V6);
}

/// Retries, sequence NAKs, READs asked for again: which come is chance, but each is sound.
#[test]
#[ignore = "needs tshark and scapy: cargo xtask dissect"]
fn what_is_sent_after_losses_is_sound() {
    let mut recorder = Recorder::new(V4);
    recorder.lose(0.05);
    traffic::connected(&mut recorder.rig, QpType::Rc);
    let capture = recorder.finish();
    let frames = readers::dissect(capture.path());
    for (index, frame) in frames.iter().enumerate() {
        assert_eq!(frame.fault, "", "frame {}: {frame:?}", index + 1);
    }
    let naks = frames.iter().filter(|frame| frame.content.syndrome == Some(traffic::NAK_SEQUENCE));
    assert!(naks.count() > 0, "no loss was told of");
    assert_eq!(readers::wrong_icrcs(capture.path()), [0; 0]);
    println!("{} frames", frames.len());
}

/// The readers can find fault.
#[test]
#[ignore = "needs tshark and scapy: cargo xtask dissect"]
fn a_packet_that_was_damaged_is_told_of() {
    let mut recorder = Recorder::new(V4);
    let expected: Vec<Expected> = traffic::connected(&mut recorder.rig, QpType::Uc);
    let capture = recorder.finish();
    let mut bytes = std::fs::read(capture.path()).expect("a capture");
    // The opcode of the first frame: behind the heads of file, record, Ethernet, IPv4 and UDP.
    bytes[24 + 16 + 14 + 20 + 8] = 0x2a;
    std::fs::write(capture.path(), bytes).expect("the same file");
    let frames = readers::dissect(capture.path());
    assert_ne!(frames[0].content, expected[0]);
    assert_eq!(readers::wrong_icrcs(capture.path()), [1]);
}
