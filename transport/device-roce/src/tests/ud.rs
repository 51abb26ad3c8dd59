//! Datagrams.

use super::*;

const QKEY: u32 = 0x1111_2222;

fn datagram_pair(a: &str, b: &str) -> Pair {
    let (mut a, mut b) = (End::new(a), End::new(b));
    let connect = Connect {
        sq_psn: Psn::new(5),
        path_mtu: Mtu::Mtu4096,
        source_port: 1,
        tclass: 0x4b,
        ..connect_to(a.device.local_addr(), QpNum(0))
    };
    let create = |end: &mut End| {
        let init = QpInit::new(QpType::Ud, end.cq).access(Access::REMOTE_ALL).qkey(QKEY);
        let qp = end.device.create_qp(&init).unwrap();
        end.device.connect_qp(qp, &connect).unwrap();
        qp
    };
    let (a_qp, b_qp) = (create(&mut a), create(&mut b));
    Pair { a, b, a_qp, b_qp }
}

fn send(pair: &mut Pair, len: usize, remote_qkey: u32) -> Result<(), BadWr> {
    pair.a.memory.write(0, &pattern(len)).unwrap();
    let ud = UdAddress { dest: pair.b.device.local_addr(), remote_qpn: pair.b_qp, remote_qkey };
    let op = SendOp::SendWithImm { imm_data: 3 };
    let wr = SendWr::new(1, op, pair.a.list(0, len)).to(ud);
    pair.a.device.post_send(pair.a_qp, &[wr])
}

#[test]
fn a_datagram_lands_behind_its_routing_header_and_names_its_sender() {
    for (a, b) in [("10.0.0.1:4791", "10.0.0.2:4791"), ("[fd00::1]:4791", "[fd00::2]:4791")] {
        for len in [0, 1, 513, 4096] {
            let mut pair = datagram_pair(a, b);
            pair.b.recv(pair.b_qp, 8, 0, 40 + len);
            send(&mut pair, len, QKEY).unwrap();
            pair.run();
            let wc = pair.b.completions()[0];
            assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 40 + len as u32));
            assert_eq!((wc.src_qp, wc.imm_data), (pair.a_qp, Some(3)));
            let from = pair.a.device.link().source_addr(1);
            assert_eq!(wc.src_addr, Some(from));
            assert_eq!(pair.b.bytes(40, len), pattern(len));
            let grh = pair.b.bytes(0, 40);
            match from.ip() {
                std::net::IpAddr::V4(ip) => {
                    assert_eq!((&grh[20..22], &grh[32..36]), (&[0x45, 0x4b][..], &ip.octets()[..]));
                }
                std::net::IpAddr::V6(ip) => {
                    assert_eq!((&grh[..2], &grh[8..24]), (&[0x64, 0xb0][..], &ip.octets()[..]));
                }
            }
        }
    }
}

#[test]
fn a_datagram_needs_its_key_its_room_and_a_receive() {
    let mut pair = datagram_pair("10.0.0.1:4791", "10.0.0.2:4791");
    send(&mut pair, 100, QKEY).unwrap();
    pair.run();
    assert_eq!(pair.b.counters().no_recv_wqe, 1);
    pair.b.recv(pair.b_qp, 1, 0, 139);
    send(&mut pair, 100, QKEY ^ 1).unwrap();
    pair.run();
    assert_eq!((pair.b.counters().bad_qkey, pair.b.completions()), (1, vec![]));
    send(&mut pair, 100, QKEY).unwrap();
    pair.run();
    assert_eq!(pair.b.completions()[0].status, WcStatus::LocLenErr);
}

#[test]
fn a_datagram_is_one_packet_and_has_an_address() {
    let mut pair = datagram_pair("10.0.0.1:4791", "10.0.0.2:4791");
    let too_long = send(&mut pair, 4097, QKEY).unwrap_err();
    assert_eq!(too_long.error, VerbError::BadArgument(Verb::PostSend));
    let wr = SendWr::new(1, SendOp::Send, pair.a.list(0, 1));
    let nowhere = pair.a.device.post_send(pair.a_qp, &[wr]).unwrap_err();
    assert_eq!(nowhere.error, VerbError::BadArgument(Verb::PostSend));
    let write = SendOp::Write { remote: RemoteAddr::default() };
    let wr = SendWr::new(1, write, pair.a.list(0, 1));
    let error = pair.a.device.post_send(pair.a_qp, &[wr]).unwrap_err().error;
    assert_eq!(error, VerbError::Unsupported(Verb::PostSend));
}

#[test]
fn one_queue_pair_reaches_many_destinations_in_one_batch() {
    let mut pair = datagram_pair("10.0.0.1:4791", "10.0.0.2:4791");
    let init = QpInit::new(QpType::Ud, pair.b.cq).access(Access::REMOTE_ALL).qkey(QKEY);
    let other = pair.b.device.create_qp(&init).unwrap();
    let connect = connect_to(pair.b.device.local_addr(), QpNum(0));
    pair.b.device.connect_qp(other, &connect).unwrap();
    let dest = pair.b.device.local_addr();
    let elsewhere = "10.0.0.9:1".parse().unwrap();
    let places = [(dest, pair.b_qp), (elsewhere, pair.b_qp), (dest, other), (dest, pair.b_qp)];
    for (i, (dest, remote_qpn)) in places.into_iter().enumerate() {
        let ud = UdAddress { dest, remote_qpn, remote_qkey: QKEY };
        let wr = SendWr::new(i as u64, SendOp::Send, pair.a.list(0, i)).to(ud);
        pair.a.device.post_send(pair.a_qp, &[wr]).unwrap();
        pair.b.recv(remote_qpn, i as u64, 4096 * i, 100);
    }
    pair.a.device.progress(0);
    let mut sent = std::mem::take(&mut pair.a.device.link_mut().sent);
    assert_eq!(sent.remove(1).dest, elsewhere);
    pair.deliver(sent);
    assert_eq!(pair.b.received(), [(0, 40), (2, 42), (1, 43)]);
}
