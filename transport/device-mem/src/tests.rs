//! What is this device's own: threads, blocking, and ends that go away. What it shares with other
//! devices is tested for all of them together (`tests/device_contract`).

use crate::MemDevice;
use std::thread;
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_memory::{Pool, Region, SharedMemory};
use towpath_verbs::{
    Access, AsyncEvent, Connect, CqNum, Device, Mtu, PdNum, QpInit, QpNum, QpState, QpType, RcAttr,
    RecvWr, SendOp, SendWr, SgList, Sge, Wc, WcOpcode,
};

/// Receives that each end has posted.
const DEPTH: u64 = 64;
const MESSAGE_BYTES: u64 = 64;

/// A device with a queue pair; messages land in slots, and leave from behind them.
struct End {
    device: MemDevice,
    cq: CqNum,
    qp: QpNum,
    memory: SharedMemory,
    lkey: u32,
}

impl End {
    fn new(mut device: MemDevice) -> Self {
        let memory = Region::new(1 << 16).expect("memory for a test");
        let memory = SharedMemory::from_region(memory).expect("the only handle");
        let lkey = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
            .expect("room")
            .lkey;
        let cq = device.create_cq(1024).expect("room");
        let qp = device
            .create_qp(&QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL))
            .expect("room");
        Self { device, cq, qp, memory, lkey }
    }

    fn connect(&mut self, to: &Self) {
        let connect = Connect {
            dest: to.device.local_addr(),
            dest_qp_num: to.qp,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: Mtu::Mtu4096,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        self.device.connect_qp(self.qp, &connect).expect("it is in INIT");
    }

    fn slot(&self, slot: u64) -> SgList {
        let addr = self.memory.addr() + slot * MESSAGE_BYTES;
        SgList::one(Sge { addr, length: MESSAGE_BYTES as u32, lkey: self.lkey })
    }

    fn recv(&mut self, wr_id: u64) {
        let wr = RecvWr { wr_id, sg_list: self.slot(wr_id % DEPTH) };
        self.device.post_recv(self.qp, &[wr]).expect("room for a receive");
    }

    fn send(&mut self, wr_id: u64) {
        let at = (DEPTH * MESSAGE_BYTES) as usize;
        self.memory.write(at, &wr_id.to_le_bytes()).expect("within the window");
        let wr = SendWr::new(wr_id, SendOp::Send, self.slot(DEPTH));
        self.device.post_send(self.qp, &[wr]).expect("a connected queue pair");
    }

    fn number_in(&self, wr_id: u64) -> u64 {
        let mut bytes = [0; 8];
        let at = (wr_id % DEPTH * MESSAGE_BYTES) as usize;
        self.memory.read(at, &mut bytes).expect("within the window");
        u64::from_le_bytes(bytes)
    }

    fn poll(&mut self) -> Vec<Wc> {
        let mut out = [Wc::default(); 16];
        let count = self.device.poll_cq(self.cq, &mut out);
        out[..count].to_vec()
    }

    /// Sends as many messages as it gets back, never more than half of the receives ahead of what
    /// came in: so, with the peer doing the same, each finds a receive.
    fn play(&mut self, messages: u64) {
        let (mut sent, mut received, mut back) = (0, 0, 0);
        while received < messages || back < messages {
            while sent < messages && sent < received + DEPTH / 2 {
                self.send(sent);
                sent += 1;
            }
            for wc in self.poll() {
                if wc.opcode == WcOpcode::Recv {
                    assert_eq!((wc.wr_id, self.number_in(wc.wr_id)), (received, received));
                    self.recv(received + DEPTH);
                    received += 1;
                } else {
                    assert_eq!(wc.wr_id, back);
                    back += 1;
                }
            }
            if sent == received + DEPTH / 2 {
                self.device.wait(Nanos::from_secs(10));
            }
        }
    }
}

#[test]
fn a_device_that_goes_away_gives_up_what_was_posted_to_it() {
    let (mut device, _peer) = MemDevice::pair();
    let pool = Pool::with_count(64, 2).expect("memory for a test");
    let lkey = device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL).expect("room").lkey;
    let (cq, srq) = (device.create_cq(8).expect("room"), device.create_srq(8).expect("room"));
    let qp = device.create_qp(&QpInit::new(QpType::Uc, cq)).expect("room");
    let lent = [(); 2].map(|()| pool.take().expect("a pool of two").lend());
    let [own, shared] = [0, 1].map(|index| {
        let sg_list = SgList::one(lent[index].sge(lkey, 0, 64));
        RecvWr { wr_id: 1, sg_list }
    });
    device.post_recv(qp, &[own]).expect("room for a receive");
    device.post_srq_recv(srq, &[shared]).expect("room for a receive");
    let lent = lent.map(|lent| lent.reclaim().expect_err("it is posted"));
    drop(device);
    assert!(lent.map(|lent| lent.reclaim().is_ok()).iter().all(|&is_back| is_back));
}

fn pair() -> (End, End) {
    let (a, b) = MemDevice::pair();
    let (mut a, mut b) = (End::new(a), End::new(b));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

#[test]
fn two_threads_exchange_messages_in_order_without_loss_and_wake_each_other() {
    let (mut a, mut b) = pair();
    for end in [&mut a, &mut b] {
        (0..DEPTH).for_each(|wr_id| end.recv(wr_id));
    }
    thread::scope(|scope| {
        scope.spawn(|| a.play(20_000));
        b.play(20_000);
    });
    for end in [&a, &b] {
        let counters = end.device.counters();
        assert_eq!((counters.messages_sent, counters.messages_received), (20_000, 20_000));
        assert_eq!(counters.messages_dropped(), 0);
    }
}

/// The numbers of the receives that `of` took, in order, for four messages from `from`.
fn taken(from: &mut End, of: &mut End) -> Vec<u64> {
    for wr_id in 0..4 {
        from.send(wr_id);
    }
    of.poll().iter().filter(|wc| wc.opcode == WcOpcode::Recv).map(|wc| wc.wr_id).collect()
}

#[test]
fn a_shared_receive_queue_hands_out_the_newest_and_one_of_a_queue_pair_the_oldest() {
    let (mut a, mut b) = pair();
    (0..4).for_each(|wr_id| b.recv(wr_id));
    assert_eq!(taken(&mut a, &mut b), [0, 1, 2, 3]);
    let srq = b.device.create_srq(4).expect("room");
    b.qp = b
        .device
        .create_qp(&QpInit::new(QpType::Uc, b.cq).access(Access::REMOTE_ALL).srq(srq))
        .expect("room");
    b.connect(&a);
    a.qp = a
        .device
        .create_qp(&QpInit::new(QpType::Uc, a.cq).access(Access::REMOTE_ALL))
        .expect("room");
    a.connect(&b);
    for wr_id in 0..6 {
        let wr = RecvWr { wr_id, sg_list: b.slot(wr_id) };
        let posted = b.device.post_srq_recv(srq, &[wr]).is_ok();
        assert_eq!(posted, wr_id < 4, "it has room for four");
    }
    assert_eq!(taken(&mut a, &mut b), [3, 2, 1, 0]);
    assert_eq!([b.number_in(3), b.number_in(0)], [0, 3], "and that is where they are");
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_at_once_when_something_is_there() {
    let (mut a, mut b) = pair();
    assert!(!b.device.wait(Nanos::from_micros(10)));
    b.recv(0);
    a.send(7);
    assert!(b.device.wait(Nanos::from_secs(3600)));
    assert_eq!(b.number_in(0), 7);
}

#[test]
fn what_is_sent_to_a_device_that_is_gone_is_lost_silently_and_touches_nothing() {
    let (mut a, mut b) = pair();
    b.recv(0);
    let End { device, memory, .. } = b;
    drop(device);
    a.send(7);
    assert_eq!(a.poll().len(), 1);
    let mut bytes = [0xff; 8];
    memory.read(0, &mut bytes).expect("within the window");
    assert_eq!(bytes, [0; 8]);
}

#[test]
fn the_numbers_of_drops_tell_their_reasons() {
    let (mut a, mut b) = pair();
    a.send(0);
    b.device.destroy_qp(b.qp).expect("it is there");
    a.send(1);
    let counters = b.device.counters();
    assert_eq!((counters.no_recv_wqe, counters.unknown_qp, counters.messages_dropped()), (1, 1, 2));
}

#[test]
fn a_queue_pair_that_failed_at_the_peers_hands_can_be_reset_at_once() {
    let (mut a, mut b) = pair();
    b.recv(0);
    b.device.dereg_mr(b.lkey).expect("it is registered");
    a.send(0);
    b.device.modify_qp(b.qp, QpState::Reset).expect("any state may be reset");
    assert_eq!(b.device.qp_state(b.qp), Ok(QpState::Reset));
    assert_eq!(b.device.poll_async_event(), Some(AsyncEvent::QpFatal(b.qp)));
    b.device.modify_qp(b.qp, QpState::Init).expect("it was reset");
    b.connect(&a);
}
