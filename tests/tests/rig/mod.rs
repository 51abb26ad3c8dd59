//! Two joined devices, each with a completion queue and a window of memory.

#![allow(dead_code, reason = "each program of tests uses its part")]

#[cfg(feature = "verbs")]
mod kernel;

use towpath_base::serial::Psn;
use towpath_device_mem::MemDevice;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_sim::{LinkConfig, World};
use towpath_verbs::{
    Access, Connect, CqNum, Device, MrKeys, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr,
    RemoteAddr, SGE_DEFAULT, SendOp, SendWr, SgList, Sge, Wc, WcStatus,
};

pub(crate) const MEMORY_BYTES: usize = 1 << 19;

/// A device and what a test uses of it.
pub(crate) struct End<D> {
    pub(crate) device: D,
    pub(crate) cq: CqNum,
    pub(crate) memory: SharedMemory,
    pub(crate) keys: MrKeys,
}

/// What devices do in their own ways.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// How a receive ends whose UC message was longer.
    pub(crate) too_long: WcStatus,
    /// And whether its queue pair ends with it.
    pub(crate) too_long_is_fatal: bool,
    /// How a receive ends whose datagram was longer.
    pub(crate) datagram_too_long: WcStatus,
    /// How a receive ends whose memory is not registered any more.
    pub(crate) memory_gone: WcStatus,
    /// A completion queue may hold more than was asked for.
    pub(crate) rounds_up: bool,
}

/// What the specification says, or suggests, and the devices of this workspace do.
pub(crate) const BY_THE_BOOK: Manner = Manner {
    too_long: WcStatus::LocLenErr,
    too_long_is_fatal: false,
    datagram_too_long: WcStatus::LocLenErr,
    memory_gone: WcStatus::LocProtErr,
    rounds_up: false,
};

/// As the kernel's rxe does it: one word for all trouble with receives, which ends the queue pair.
pub(crate) const LIKE_RXE: Manner = Manner {
    too_long: WcStatus::LocQpOpErr,
    too_long_is_fatal: true,
    datagram_too_long: WcStatus::LocQpOpErr,
    memory_gone: WcStatus::LocQpOpErr,
    rounds_up: true,
};

/// Both ends of a wire, and how what was posted gets across.
pub(crate) struct Rig<D> {
    pub(crate) a: End<D>,
    pub(crate) b: End<D>,
    /// Of b, which most tests receive on.
    pub(crate) manner: Manner,
    /// Of the queue pairs that it connects.
    pub(crate) mtu: Mtu,
    /// Lets time pass; false when nothing is on its way any more.
    pub(crate) advance: Box<dyn FnMut() -> bool>,
}

pub(crate) fn mem() -> Rig<MemDevice> {
    let (a, b) = MemDevice::pair();
    Rig::new(a, b, BY_THE_BOOK, || false)
}

pub(crate) fn roce() -> Rig<RoceDevice<towpath_sim::VirtualLink>> {
    let world = World::new(1);
    let (a, b) = world.link(&LinkConfig::default());
    let device = |link, seed| RoceDevice::new(link, RoceConfig::default().seed(seed));
    let (a, b) = (device(a, 1), device(b, 2));
    let advance = move || match world.next_event_time() {
        Some(time) => {
            world.advance_to(time);
            true
        }
        None => false,
    };
    Rig::new(a, b, BY_THE_BOOK, advance)
}

#[cfg(feature = "verbs")]
#[allow(unused_imports, reason = "each program of tests uses its part")]
pub(crate) use kernel::*;

impl<D: Device<Memory = Region>> End<D> {
    fn new(mut device: D) -> Self {
        let memory = Region::new(MEMORY_BYTES).expect("memory for a test");
        let memory = SharedMemory::from_region(memory).expect("the only handle");
        let keys = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::REMOTE_ALL)
            .expect("room");
        let cq = device.create_cq(256).expect("room");
        Self { device, cq, memory, keys }
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        let addr = self.memory.addr() + at as u64;
        Sge { addr, length: len as u32, lkey: self.keys.lkey }
    }

    pub(crate) fn list(&self, at: usize, len: usize) -> SgList {
        SgList::one(self.sge(at, len))
    }

    /// The same bytes in as many pieces as a list takes, of uneven lengths, with an empty one.
    pub(crate) fn in_pieces(&self, at: usize, len: usize) -> SgList {
        let (first, second) = (len / 5, len / 3);
        let rest = len - first - second;
        let pieces: [Sge; SGE_DEFAULT] = [
            self.sge(at, first),
            self.sge(at, 0),
            self.sge(at + first, second),
            self.sge(at + first + second, rest),
        ];
        SgList::new(&pieces).expect("as many as it takes")
    }

    pub(crate) fn remote(&self, at: usize) -> RemoteAddr {
        RemoteAddr { addr: self.memory.addr() + at as u64, rkey: self.keys.rkey }
    }

    pub(crate) fn fill(&mut self, at: usize, len: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; len];
        towpath_base::Prng::new(seed).fill(&mut bytes);
        self.memory.write(at, &bytes).expect("within the window");
        bytes
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes).expect("within the window");
        bytes
    }

    pub(crate) fn recv(&mut self, qp: QpNum, wr_id: u64, at: usize, len: usize) {
        let sg_list = self.list(at, len);
        self.device.post_recv(qp, &[RecvWr { wr_id, sg_list }]).expect("room for a receive");
    }

    pub(crate) fn send(&mut self, qp: QpNum, wr_id: u64, op: SendOp, len: usize) {
        let wr = SendWr::new(wr_id, op, self.list(0, len));
        self.device.post_send(qp, &[wr]).expect("room for a send");
    }

    /// All completions, with what only one kind of device says left out.
    pub(crate) fn completions(&mut self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 512];
        let count = self.device.poll_cq(self.cq, &mut out);
        out.truncate(count);
        for wc in &mut out {
            assert!(wc.timestamp.is_none() || self.device.caps().timestamps);
            wc.timestamp = None;
            wc.tclass = None;
        }
        out
    }

    pub(crate) fn create(&mut self, init: &QpInit) -> QpNum {
        self.device.create_qp(init).expect("room for a queue pair")
    }
}

impl<D: Device<Memory = Region>> Rig<D> {
    pub(crate) fn new(a: D, b: D, manner: Manner, advance: impl FnMut() -> bool + 'static) -> Self {
        let (a, b) = (End::new(a), End::new(b));
        Self { a, b, manner, mtu: Mtu::Mtu1024, advance: Box::new(advance) }
    }

    /// With windows of other sizes.
    pub(crate) fn with_memory(mut self, bytes: usize) -> Self {
        for end in [&mut self.a, &mut self.b] {
            let memory = Region::new(bytes).expect("memory for a test");
            end.memory = SharedMemory::from_region(memory).expect("the only handle");
            let keys = end.device.reg_shared_mr(
                PdNum::DEFAULT,
                &end.memory,
                end.memory.whole(),
                Access::REMOTE_ALL,
            );
            end.keys = keys.expect("room");
        }
        self
    }

    /// A connected pair of UC queue pairs.
    pub(crate) fn uc(&mut self) -> (QpNum, QpNum) {
        let (a, b) = (
            QpInit::new(QpType::Uc, self.a.cq).access(Access::REMOTE_ALL),
            QpInit::new(QpType::Uc, self.b.cq).access(Access::REMOTE_ALL),
        );
        self.pair_of(&a, &b)
    }

    /// A pair of UD queue pairs, ready to send.
    pub(crate) fn datagrams(&mut self, qkey: u32) -> (QpNum, QpNum) {
        let path_mtu = self.mtu;
        let ready = |end: &mut End<D>| {
            let qp =
                end.create(&QpInit::new(QpType::Ud, end.cq).access(Access::REMOTE_ALL).qkey(qkey));
            let connect = Connect {
                dest: end.device.local_addr(),
                dest_qp_num: QpNum(0),
                rq_psn: Psn::new(0),
                sq_psn: Psn::new(0),
                path_mtu,
                source_port: 0,
                tclass: 0,
                rc: RcAttr::default(),
            };
            end.device.connect_qp(qp, &connect).expect("it was in INIT");
            qp
        };
        (ready(&mut self.a), ready(&mut self.b))
    }

    pub(crate) fn pair_of(&mut self, a: &QpInit, b: &QpInit) -> (QpNum, QpNum) {
        let (a, b) = (self.a.create(a), self.b.create(b));
        self.connect(a, b);
        (a, b)
    }

    pub(crate) fn connect(&mut self, a: QpNum, b: QpNum) {
        self.connect_from(a, b, 0);
    }

    /// With packets that leave from this one of the source ports, both ways.
    pub(crate) fn connect_from(&mut self, a: QpNum, b: QpNum, source_port: u16) {
        let path_mtu = self.mtu;
        let to = |dest, dest_qp_num| Connect {
            dest,
            dest_qp_num,
            rq_psn: Psn::new(7),
            sq_psn: Psn::new(7),
            path_mtu,
            source_port,
            tclass: 0,
            rc: RcAttr::default(),
        };
        let (a_addr, b_addr) = (self.a.device.local_addr(), self.b.device.local_addr());
        self.a.device.connect_qp(a, &to(b_addr, b)).expect("it was in INIT");
        self.b.device.connect_qp(b, &to(a_addr, a)).expect("it was in INIT");
    }

    /// Lets everything that was posted get across.
    pub(crate) fn run(&mut self) {
        loop {
            while self.a.device.progress(64) + self.b.device.progress(64) > 0 {}
            if !(self.advance)() {
                return;
            }
        }
    }
}
