//! One contract, held by the device that cuts packets and by the one that does not.

use super::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, World};
use towpath_verbs::*;

const MEMORY_BYTES: usize = 1 << 17;

/// Two ends whose messages a test moves by hand.
#[derive(Default)]
struct Wire {
    under_way: [VecDeque<(SocketAddr, Vec<u8>)>; 2],
    arrived: [VecDeque<(SocketAddr, Vec<u8>)>; 2],
    sent: Vec<(u32, u64)>,
    is_full: bool,
    now: Time,
}

struct WireEnd {
    wire: Rc<RefCell<Wire>>,
    end: usize,
}

fn addr(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + end as u8], 4791))
}

impl TrainLink for WireEnd {
    fn caps(&self) -> LinkCaps {
        LinkCaps {
            packet_bytes_max: 4200,
            source_ports: 4,
            rx_buffer_bytes: None,
            rx_charge_bytes: 0,
            delay_noise: Nanos::ZERO,
            foreign_peers: false,
            qp_share: QpShare::ALL,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        addr(self.end)
    }

    fn now(&self) -> Time {
        self.wire.borrow().now
    }

    fn send_train(&mut self, train: &TxTrain<'_>) -> bool {
        let mut wire = self.wire.borrow_mut();
        if wire.is_full {
            return false;
        }
        wire.under_way[1 - self.end].push_back((addr(self.end), train.bytes.to_vec()));
        wire.sent.push((train.packets, train.byte_len));
        true
    }

    fn receive_trains(&mut self, budget: usize, sink: &mut dyn FnMut(RxTrain<'_>)) -> usize {
        for count in 0..budget {
            let arrived = self.wire.borrow_mut().arrived[self.end].pop_front();
            let Some((source, bytes)) = arrived else { return count };
            let timestamp = self.now();
            let byte_len = bytes.len() as u64;
            let (bytes, dest, tclass) = (&bytes[..], addr(self.end), 0);
            let (packets, token, is_damaged) = (1, 0, false);
            sink(RxTrain {
                source,
                dest,
                tclass,
                packets,
                byte_len,
                token,
                bytes,
                is_damaged,
                timestamp,
            });
        }
        budget
    }
}

/// A device with one completion queue and one open region.
struct End<D> {
    device: D,
    cq: CqNum,
    memory: SharedMemory,
    lkey: u32,
    qp: QpNum,
}

impl<D: Device<Memory = Region>> End<D> {
    fn new(mut device: D, srq: bool) -> (Self, Option<SrqNum>) {
        let memory = SharedMemory::new(MEMORY_BYTES).unwrap();
        let lkey = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
            .unwrap()
            .lkey;
        let cq = device.create_cq(64).unwrap();
        let srq = srq.then(|| device.create_srq(64).unwrap());
        let mut init = QpInit::new(QpType::Uc, cq).depth(16, 16);
        init.srq = srq;
        let qp = device.create_qp(&init).unwrap();
        (Self { device, cq, memory, lkey, qp }, srq)
    }

    fn list(&self, at: usize, len: usize) -> SgList {
        let addr = self.memory.addr() + at as u64;
        SgList::one(Sge { addr, length: len as u32, lkey: self.lkey })
    }

    fn recv(&mut self, wr_id: u64, at: usize, len: usize) {
        let sg_list = self.list(at, len);
        self.device.post_recv(self.qp, &[RecvWr { wr_id, sg_list }]).unwrap();
    }

    fn completions(&mut self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 128];
        let count = self.device.poll_cq(self.cq, &mut out);
        out.truncate(count);
        out
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes).unwrap();
        bytes
    }
}

/// Two joined queue pairs and what moves their messages.
struct Rig<D> {
    a: End<D>,
    b: End<D>,
    srq: Option<SrqNum>,
    /// Brings what was sent to the other end; `true` loses it.
    carry: Box<dyn FnMut(bool)>,
}

impl<D: Device<Memory = Region>> Rig<D> {
    fn new(a: D, b: D, srq: bool, carry: Box<dyn FnMut(bool)>) -> Self {
        let (mut a, _) = End::new(a, false);
        let (mut b, srq) = End::new(b, srq);
        let connect = |dest, dest_qp_num| Connect {
            dest,
            dest_qp_num,
            rq_psn: Psn::new(5),
            sq_psn: Psn::new(5),
            path_mtu: Mtu::Mtu1024,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        let to_b = connect(b.device.local_addr(), b.qp);
        let to_a = connect(a.device.local_addr(), a.qp);
        a.device.connect_qp(a.qp, &to_b).unwrap();
        b.device.connect_qp(b.qp, &to_a).unwrap();
        Self { a, b, srq, carry }
    }

    /// Sends `len` bytes of value `fill` as the next message.
    fn send(&mut self, wr_id: u64, fill: u8, len: usize) {
        self.a.memory.write(0, &vec![fill; len]).unwrap();
        let op = SendOp::SendWithImm { imm_data: u32::from(fill) };
        let wr = SendWr::new(wr_id, op, self.a.list(0, len));
        self.a.device.post_send(self.a.qp, &[wr]).unwrap();
        while self.a.device.progress(0) > 0 {}
    }

    fn deliver(&mut self, lose: bool) {
        (self.carry)(lose);
        while self.b.device.progress(64) > 0 {}
    }
}

fn wr_rig(srq: bool) -> Rig<WrDevice<WireEnd>> {
    let wire = Rc::new(RefCell::new(Wire::default()));
    let end = |end| WrDevice::new(WireEnd { wire: Rc::clone(&wire), end }, 3);
    let (a, b) = (end(0), end(1));
    let carry = move |lose: bool| {
        let mut wire = wire.borrow_mut();
        wire.now += Nanos(1_000_000);
        for end in 0..2 {
            let moved = std::mem::take(&mut wire.under_way[end]);
            if !lose {
                wire.arrived[end].extend(moved);
            }
        }
    };
    Rig::new(a, b, srq, Box::new(carry))
}

fn roce_rig(srq: bool) -> Rig<RoceDevice<FaultLink<towpath_sim::VirtualLink>>> {
    let world = World::new(1);
    let (a, b) = world.link(&LinkConfig::default());
    let control = FaultControl::new(FaultPlan::none());
    let far = FaultControl::new(FaultPlan::none());
    let a = FaultLink::new(a, 1, control);
    let b = FaultLink::new(b, 2, far.clone());
    let config = || RoceConfig::default().qp_max(64);
    let (a, b) = (RoceDevice::new(a, config()), RoceDevice::new(b, config()));
    let carry = move |lose: bool| {
        far.set_receive(FaultPlan::none().black_hole(lose));
        let later = world.now() + Nanos(1_000_000);
        world.advance_to(later);
    };
    Rig::new(a, b, srq, Box::new(carry))
}

/// Both levels, by name.
macro_rules! on_both {
    ($test:ident) => {
        $test("work requests", wr_rig(false), wr_rig(true));
        $test("packets", roce_rig(false), roce_rig(true));
    };
}

#[test]
fn messages_come_whole_in_order_with_immediate_and_time() {
    fn check<D: Device<Memory = Region>>(level: &str, own: Rig<D>, shared: Rig<D>) {
        for mut rig in [own, shared] {
            let lens = [0, 1, 1024, 1025, 50_000];
            for (number, len) in lens.into_iter().enumerate() {
                let before = rig.b.device.now();
                match rig.srq {
                    Some(srq) => {
                        let sg_list = rig.b.list(0, 50_000);
                        let wr = RecvWr { wr_id: number as u64, sg_list };
                        rig.b.device.post_srq_recv(srq, &[wr]).unwrap();
                    }
                    None => rig.b.recv(number as u64, 0, 50_000),
                }
                rig.send(9, number as u8 + 1, len);
                let sent = rig.a.completions();
                assert_eq!((sent.len(), sent[0].wr_id, sent[0].opcode), (1, 9, WcOpcode::Send));
                rig.deliver(false);
                let came = rig.b.completions();
                assert_eq!(came.len(), 1, "{level}: message {number}");
                let wc = came[0];
                assert_eq!((wc.wr_id, wc.byte_len), (number as u64, len as u32), "{level}");
                assert_eq!((wc.status, wc.opcode), (WcStatus::Success, WcOpcode::Recv));
                assert_eq!(wc.imm_data, Some(number as u32 + 1), "{level}");
                assert!(wc.timestamp > Some(before), "{level}");
                assert_eq!(rig.b.bytes(0, len), vec![number as u8 + 1; len], "{level}");
            }
        }
    }
    on_both!(check);
}

#[test]
fn a_lost_message_is_silent_and_takes_no_receive_with_it() {
    fn check<D: Device<Memory = Region>>(level: &str, mut rig: Rig<D>, _: Rig<D>) {
        rig.b.recv(1, 0, 4096);
        rig.send(0, 1, 3000);
        rig.deliver(true);
        assert_eq!(rig.b.completions(), [], "{level}");
        rig.send(0, 2, 2000);
        rig.deliver(false);
        let came = rig.b.completions();
        assert_eq!((came.len(), came[0].wr_id, came[0].byte_len), (1, 1, 2000), "{level}");
    }
    on_both!(check);
}

#[test]
fn without_a_receive_a_message_is_dropped_and_the_next_one_served() {
    fn check<D: Device<Memory = Region>>(level: &str, own: Rig<D>, shared: Rig<D>) {
        for mut rig in [own, shared] {
            rig.send(0, 1, 3000);
            rig.deliver(false);
            assert_eq!(rig.b.completions(), [], "{level}");
            let wr = RecvWr { wr_id: 7, sg_list: rig.b.list(0, 4096) };
            match rig.srq {
                Some(srq) => rig.b.device.post_srq_recv(srq, &[wr]).unwrap(),
                None => rig.b.device.post_recv(rig.b.qp, &[wr]).unwrap(),
            }
            rig.send(0, 2, 3000);
            rig.deliver(false);
            let came = rig.b.completions();
            assert_eq!((came.len(), came[0].wr_id), (1, 7), "{level}");
        }
    }
    on_both!(check);
}

#[test]
fn a_message_longer_than_its_receive_completes_in_error_and_the_queue_pair_stays_up() {
    fn check<D: Device<Memory = Region>>(level: &str, mut rig: Rig<D>, _: Rig<D>) {
        rig.b.recv(1, 0, 2999);
        rig.b.recv(2, 8192, 3000);
        (0..2).for_each(|_| rig.send(0, 1, 3000));
        rig.deliver(false);
        let came: Vec<_> = rig.b.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(came, [(1, WcStatus::LocLenErr), (2, WcStatus::Success)], "{level}");
        assert_eq!(rig.b.bytes(2999, 1), [0], "{level}: nothing behind the receive");
        assert_eq!(rig.b.device.qp_state(rig.b.qp), Ok(QpState::Rts));
    }
    on_both!(check);
}

#[test]
fn posting_needs_a_connected_queue_pair_room_and_memory() {
    fn check<D: Device<Memory = Region>>(level: &str, mut rig: Rig<D>, _: Rig<D>) {
        let (qp, fresh) = (rig.a.qp, rig.a.device.create_qp(&QpInit::new(QpType::Uc, rig.a.cq)));
        let good = SendWr::new(1, SendOp::Send, rig.a.list(0, 10));
        let outside = SendWr { sg_list: rig.a.list(MEMORY_BYTES - 9, 10), ..good };
        let read = SendWr { op: SendOp::Read { remote: RemoteAddr::default() }, ..good };
        let refused = |index, error| Err(BadWr { index, error });
        let verb = Verb::PostSend;
        let post = |rig: &mut Rig<D>, qp, wrs: &[SendWr]| rig.a.device.post_send(qp, wrs);
        let bad_memory = refused(1, VerbError::BadMemory(verb));
        assert_eq!(post(&mut rig, qp, &[good, outside]), bad_memory, "{level}");
        assert_eq!(post(&mut rig, qp, &[read]), refused(0, VerbError::Unsupported(verb)));
        let state = refused(0, VerbError::WrongState(verb));
        assert_eq!(post(&mut rig, fresh.unwrap(), &[good]), state);
        let full = refused(15, VerbError::QueueFull(verb));
        assert_eq!(post(&mut rig, qp, &[good; 16]), full, "{level}: one is posted already");
        while rig.a.device.progress(0) > 0 {}
        assert_eq!(rig.a.completions().len(), 16);
        assert_eq!(post(&mut rig, qp, &[good.unsignaled(), good]), Ok(()));
        while rig.a.device.progress(0) > 0 {}
        assert_eq!(rig.a.completions().len(), 1, "{level}: unsignaled ones are silent");
    }
    on_both!(check);
}

#[test]
fn error_and_destruction_flush_and_late_messages_find_nobody() {
    fn check<D: Device<Memory = Region>>(level: &str, first: Rig<D>, second: Rig<D>) {
        for (mut rig, destroy) in [(first, false), (second, true)] {
            let srq = rig.srq;
            if srq.is_none() {
                (10..13).for_each(|wr_id| rig.b.recv(wr_id, 0, 100));
            }
            rig.send(0, 1, 50);
            let wr = SendWr::new(20, SendOp::Send, rig.b.list(0, 1)).unsignaled();
            rig.b.device.post_send(rig.b.qp, &[wr]).unwrap();
            if destroy {
                rig.b.device.destroy_qp(rig.b.qp).unwrap();
            } else {
                rig.b.device.modify_qp(rig.b.qp, QpState::Err).unwrap();
            }
            let flushed = rig.b.completions();
            assert!(flushed.iter().all(|wc| wc.status == WcStatus::WrFlushErr), "{level}");
            let ids: Vec<_> = flushed.iter().map(|wc| wc.wr_id).collect();
            let expected: &[u64] = if srq.is_none() { &[20, 10, 11, 12] } else { &[20] };
            assert_eq!(ids, expected, "{level}");
            rig.deliver(false);
            assert_eq!(rig.b.completions(), [], "{level}: the message found nobody");
        }
    }
    on_both!(check);
}

#[test]
fn an_overflowing_completion_queue_takes_its_queue_pairs_down_and_says_so() {
    fn check<D: Device<Memory = Region>>(level: &str, mut rig: Rig<D>, _: Rig<D>) {
        (0..64).for_each(|_| rig.send(1, 1, 1));
        assert_eq!(rig.a.device.qp_state(rig.a.qp), Ok(QpState::Rts), "{level}");
        rig.send(1, 1, 1);
        assert_eq!(rig.a.device.qp_state(rig.a.qp), Ok(QpState::Err), "{level}");
        assert_eq!(rig.a.device.poll_async_event(), Some(AsyncEvent::CqError(rig.a.cq)));
        assert_eq!(rig.a.device.poll_async_event(), Some(AsyncEvent::QpFatal(rig.a.qp)));
        assert_eq!(rig.a.completions().len(), 64, "{level}: what fitted is there");
    }
    on_both!(check);
}

#[test]
fn a_message_counts_the_packets_that_it_would_be_cut_into() {
    let mut rig = wr_rig(false);
    for (len, packets, bytes) in [(0, 1, 20), (1, 1, 24), (1024, 1, 1044), (1025, 2, 1064)] {
        rig.send(0, 1, len);
        let wire = rig.a.device.link().wire.borrow();
        assert_eq!(wire.sent.last(), Some(&(packets, bytes)), "{len} bytes");
    }
}

#[test]
fn what_the_link_has_no_room_for_waits_in_order() {
    let mut rig = wr_rig(false);
    (0..3).for_each(|wr_id| rig.b.recv(wr_id, 0, 100));
    rig.a.device.link().wire.borrow_mut().is_full = true;
    (0..3).for_each(|wr_id| rig.send(wr_id, 1 + wr_id as u8, 10));
    assert_eq!(rig.a.completions(), []);
    rig.a.device.link().wire.borrow_mut().is_full = false;
    while rig.a.device.progress(0) > 0 {}
    rig.deliver(false);
    let came: Vec<_> = rig.b.completions().iter().map(|wc| wc.imm_data).collect();
    assert_eq!(came, [Some(1), Some(2), Some(3)]);
}
