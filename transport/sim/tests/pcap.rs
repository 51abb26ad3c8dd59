//! The capture file says what the link carried.

mod common;

use common::{Bench, packets};
use core::net::{Ipv6Addr, SocketAddr};
use std::io;
use towpath_base::Time;
use towpath_sim::{LinkConfig, PcapLink, World};
use towpath_verbs::{PacketLink, TxPacket};

/// The one's complement sum that a correct checksum makes 0xffff.
fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The records of a capture: seconds, nanoseconds, frame.
fn records(file: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut rest = &file[24..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let end = 16 + u32_at(rest, 8) as usize;
        assert_eq!(u32_at(rest, 8), u32_at(rest, 12));
        records.push((u32_at(rest, 0), u32_at(rest, 4), rest[16..end].to_vec()));
        rest = &rest[end..];
    }
    records
}

#[test]
fn the_head_is_that_of_an_ethernet_capture_in_nanoseconds() {
    let link = PcapLink::new(Bench::default().link(), Vec::new()).expect("a Vec takes all");
    let (_, file) = link.finish().expect("a Vec takes all");
    let golden =
        [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0d, 0, 1, 0, 1, 0, 0, 0];
    assert_eq!(file, golden);
}

#[test]
fn an_ipv4_packet_is_written_with_its_addresses_and_a_right_header_checksum() {
    let bench = Bench::default();
    bench.go_to(Time(5_000_000_042));
    let mut link = PcapLink::new(bench.link(), Vec::new()).expect("a Vec takes all");
    let mut packet = TxPacket::new(common::peer(), 3, 0x68);
    packet.push(b"front");
    packet.push(b"back");
    assert_eq!(link.transmit(&[packet]), 1);
    let (_, file) = link.finish().expect("a Vec takes all");
    let [(seconds, nanoseconds, frame)] = &records(&file)[..] else { panic!("one record") };
    assert_eq!((*seconds, *nanoseconds), (5, 42));
    let golden = [
        0x02, 0, 10, 0, 0, 2, 0x02, 0, 10, 0, 0, 1, 0x08, 0, // Ethernet
        0x45, 0x68, 0, 37, 0, 0, 0x40, 0, 64, 17, 0x26, 0x5e, 10, 0, 0, 1, 10, 0, 0,
        2, // IPv4
        0xc3, 0x53, 0x12, 0xb7, 0, 17, 0, 0, // UDP
    ];
    assert_eq!(frame[..golden.len()], golden);
    assert_eq!(&frame[golden.len()..], b"frontback");
    assert_eq!(ones_sum(&frame[14..34]), 0xffff);
}

#[test]
fn an_ipv6_packet_is_written_at_both_ends_with_a_right_udp_checksum() {
    let end = |last| SocketAddr::from((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last), 4_791));
    let world = World::new(1);
    let config = LinkConfig { addrs: [end(1), end(2)], ..LinkConfig::default() };
    let (near, far) = world.link(&config);
    let mut near = PcapLink::new(near, Vec::new()).expect("a Vec takes all");
    let mut far = PcapLink::new(far, Vec::new()).expect("a Vec takes all");
    let mut packet = TxPacket::new(end(2), 1, 0);
    packet.push(b"odd");
    near.transmit(&[packet]);
    world.advance_to(Time(1_000_000));
    assert_eq!(far.receive(9, &mut |packet| assert_eq!(packet.bytes, b"odd")), 1);
    let files = [near.finish(), far.finish()].map(|done| done.expect("a Vec takes all").1);
    let [sent, received] = files.map(|file| records(&file).remove(0));
    assert_eq!(sent.2, received.2);
    assert!(received.1 > sent.1, "stamped with the arrival");
    let frame = &sent.2;
    assert_eq!(frame[12..14], [0x86, 0xdd]);
    assert_eq!((frame[14] >> 4, frame.len()), (6, 14 + 40 + 8 + 3));
    let pseudo = [&frame[22..54], &[0, 0, 0, 11, 0, 0, 0, 17], &frame[54..]].concat();
    assert_eq!(ones_sum(&pseudo), 0xffff);
}

#[test]
fn only_what_the_link_takes_is_written() {
    let bench = Bench::default();
    bench.0.borrow_mut().takes = [2].into();
    let mut link = PcapLink::new(bench.link(), Vec::new()).expect("a Vec takes all");
    let bytes = common::numbered(0..5);
    assert_eq!(link.transmit(&packets(&bytes, 1)), 2);
    let (_, file) = link.finish().expect("a Vec takes all");
    assert_eq!(records(&file).len(), 2);
}

#[test]
fn a_failed_write_ends_the_recording_and_not_the_traffic() {
    /// Has room for the head of the file and no more.
    struct Full(usize);
    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.checked_sub(bytes.len());
            self.0 = room.ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let bench = Bench::default();
    let mut link = PcapLink::new(bench.link(), Full(24)).expect("the head fits");
    let bytes = common::numbered(0..5);
    assert_eq!(link.transmit(&packets(&bytes, 1)), 5);
    assert_eq!(bench.sent_numbers().len(), 5);
    assert_eq!(link.error().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
    assert!(link.finish().is_err());
    assert!(PcapLink::new(bench.link(), Full(23)).is_err());
}
