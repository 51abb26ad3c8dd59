//! Two joined devices of one kind, each with a completion queue and a window of memory.

use towpath_base::serial::Psn;
use towpath_device_mem::MemDevice;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, Window};
use towpath_sim::{LinkConfig, World};
use towpath_verbs::{
    Access, Connect, CqNum, Device, MrKeys, Mtu, QpInit, QpNum, QpType, RcAttr, RecvWr, RemoteAddr,
    SGE_MAX, SendOp, SendWr, SgList, Sge, Wc, WcStatus,
};

pub(crate) const MEMORY_BYTES: usize = 1 << 19;

/// A device and what a test uses of it.
pub(crate) struct End<D> {
    pub(crate) device: D,
    pub(crate) cq: CqNum,
    pub(crate) memory: Window,
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
const BY_THE_BOOK: Manner = Manner {
    too_long: WcStatus::LocLenErr,
    too_long_is_fatal: false,
    datagram_too_long: WcStatus::LocLenErr,
    memory_gone: WcStatus::LocProtErr,
    rounds_up: false,
};

/// Both ends of a wire, and how what was posted gets across.
pub(crate) struct Rig<D> {
    pub(crate) a: End<D>,
    pub(crate) b: End<D>,
    pub(crate) manner: Manner,
    advance: Box<dyn FnMut() -> bool>,
}

pub(crate) fn mem() -> Rig<MemDevice> {
    let (a, b) = MemDevice::pair();
    let (a, b) = (End::new(a), End::new(b));
    Rig { a, b, manner: BY_THE_BOOK, advance: Box::new(|| false) }
}

pub(crate) fn roce() -> Rig<RoceDevice<towpath_sim::VirtualLink>> {
    let world = World::new(1);
    let (a, b) = world.link(&LinkConfig::default());
    let device = |link, seed| RoceDevice::new(link, RoceConfig::default().seed(seed));
    let (a, b) = (End::new(device(a, 1)), End::new(device(b, 2)));
    let advance = move || match world.next_event_time() {
        Some(time) => {
            world.advance_to(time);
            true
        }
        None => false,
    };
    Rig { a, b, manner: BY_THE_BOOK, advance: Box::new(advance) }
}

/// The two devices that `TOWPATH_VERBS_PAIR` names, as `rxe0,rxe1`.
#[cfg(feature = "verbs")]
pub(crate) fn verbs() -> Rig<towpath_device_verbs::VerbsDevice> {
    use towpath_device_verbs::{Target, VerbsDevice};
    let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("TOWPATH_VERBS_PAIR names two devices");
    let (a, b) = pair.split_once(',').expect("two names with a comma between them");
    let open = |name: &str| VerbsDevice::open(&Target::new().device(name));
    let names = [a.to_owned(), b.to_owned()];
    let (a, b) = (open(a).expect("it opens"), open(b).expect("it opens"));
    let advance = move || {
        wait_until_quiet(&names);
        false
    };
    // As the kernel's rxe does it: one word for all trouble with receives, which ends the queue
    // pair.
    let manner = Manner {
        too_long: WcStatus::LocQpOpErr,
        too_long_is_fatal: true,
        datagram_too_long: WcStatus::LocQpOpErr,
        memory_gone: WcStatus::LocQpOpErr,
        rounds_up: true,
    };
    Rig { a: End::new(a), b: End::new(b), manner, advance: Box::new(advance) }
}

/// Hardware does not say when it is done: nothing has moved for a while.
#[cfg(feature = "verbs")]
fn wait_until_quiet(names: &[String]) {
    let packets = || -> Vec<Option<String>> {
        let of = |name: &String, counter| {
            let path = format!("/sys/class/infiniband/{name}/ports/1/hw_counters/{counter}");
            std::fs::read_to_string(path).ok()
        };
        names.iter().flat_map(|name| [of(name, "sent_pkts"), of(name, "rcvd_pkts")]).collect()
    };
    let (mut before, mut quiet) = (packets(), 0);
    while quiet < 4 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let now = packets();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}

impl<D: Device<Memory = Region>> End<D> {
    fn new(mut device: D) -> Self {
        let memory = Region::new(MEMORY_BYTES).expect("memory for a test");
        let memory = memory.into_window().expect("the only handle");
        let keys = device.reg_mr(memory.region(), Access::REMOTE_WRITE).expect("room");
        let cq = device.create_cq(256).expect("room");
        Self { device, cq, memory, keys }
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        let addr = self.memory.region().addr() + at as u64;
        Sge { addr, length: len as u32, lkey: self.keys.lkey }
    }

    pub(crate) fn list(&self, at: usize, len: usize) -> SgList {
        SgList::one(self.sge(at, len))
    }

    /// The same bytes in as many pieces as a list takes, of uneven lengths, with an empty one.
    pub(crate) fn in_pieces(&self, at: usize, len: usize) -> SgList {
        let (first, second) = (len / 5, len / 3);
        let rest = len - first - second;
        let pieces: [Sge; SGE_MAX] = [
            self.sge(at, first),
            self.sge(at, 0),
            self.sge(at + first, second),
            self.sge(at + first + second, rest),
        ];
        SgList::new(&pieces).expect("as many as it takes")
    }

    pub(crate) fn remote(&self, at: usize) -> RemoteAddr {
        RemoteAddr { addr: self.memory.region().addr() + at as u64, rkey: self.keys.rkey }
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
        }
        out
    }

    pub(crate) fn create(&mut self, init: &QpInit) -> QpNum {
        self.device.create_qp(init).expect("room for a queue pair")
    }
}

impl<D: Device<Memory = Region>> Rig<D> {
    /// A connected pair of UC queue pairs.
    pub(crate) fn uc(&mut self) -> (QpNum, QpNum) {
        let (a, b) = (QpInit::new(QpType::Uc, self.a.cq), QpInit::new(QpType::Uc, self.b.cq));
        self.pair_of(&a, &b)
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
        let to = |dest, dest_qp_num| Connect {
            dest,
            dest_qp_num,
            rq_psn: Psn::new(7),
            sq_psn: Psn::new(7),
            path_mtu: Mtu::Mtu1024,
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
