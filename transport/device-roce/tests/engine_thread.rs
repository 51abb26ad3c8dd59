//! Peers are served while the application that owns the memory does nothing.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use towpath_base::serial::Psn;
use towpath_device_roce::udp::{PortChoice, UdpConfig, UdpLink};
use towpath_device_roce::{EngineOptions, EngineThread, RoceConfig, RoceDevice, SharedDevice};
use towpath_memory::{Pool, Region, SharedMemory};
use towpath_verbs::{
    Access, Connect, CqNum, Device, MrKeys, Mtu, PdNum, QpInit, QpNum, QpState, QpType, RcAttr,
    RecvWr, RemoteAddr, SendOp, SendWr, SgList, Sge, Wc, WcStatus,
};
use towpath_wake::AnyOf;

const MEMORY_BYTES: usize = 1 << 20;
/// Long enough for a loaded machine.
const WAIT: Duration = Duration::from_secs(60);

struct End<D> {
    device: D,
    cq: CqNum,
    qp: QpNum,
    memory: SharedMemory,
    keys: MrKeys,
}

impl<D: Device<Memory = Region>> End<D> {
    fn new(mut device: D) -> Self {
        let memory = SharedMemory::new(MEMORY_BYTES).unwrap();
        let keys = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::REMOTE_ALL)
            .unwrap();
        let cq = device.create_cq(1024).unwrap();
        let qp = device.create_qp(&QpInit::new(QpType::Rc, cq).access(Access::REMOTE_ALL)).unwrap();
        Self { device, cq, qp, memory, keys }
    }

    fn connect(&mut self, dest: SocketAddr, dest_qp_num: QpNum) {
        // A peer that has no processor for seconds is not given up: 2.1 s, eight times.
        self.connect_with(dest, dest_qp_num, RcAttr { timeout: 19, ..RcAttr::default() });
    }

    fn connect_with(&mut self, dest: SocketAddr, dest_qp_num: QpNum, rc: RcAttr) {
        let connect = Connect {
            dest,
            dest_qp_num,
            rq_psn: Psn::new(3),
            sq_psn: Psn::new(3),
            path_mtu: Mtu::Mtu1024,
            source_port: 0,
            tclass: 0,
            rc,
        };
        self.device.connect_qp(self.qp, &connect).unwrap();
    }

    fn post_recv(&mut self, wr_id: u64) {
        let wr = RecvWr { wr_id, sg_list: SgList::default() };
        self.device.post_recv(self.qp, &[wr]).unwrap();
    }

    fn remote(&self, at: u64) -> RemoteAddr {
        RemoteAddr { addr: self.memory.addr() + at, rkey: self.keys.rkey }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, at: u64, length: u32) {
        let addr = self.memory.addr() + at;
        let list = SgList::one(Sge { addr, length, lkey: self.keys.lkey });
        self.device.post_send(self.qp, &[SendWr::new(wr_id, op, list)]).unwrap();
    }

    /// Waits for a completion of `wr_id`; `drives` says whether the device needs us for it.
    fn completes(&mut self, wr_id: u64, drives: bool) {
        let start = Instant::now();
        let mut wc = [Wc::default()];
        while self.device.poll_cq(self.cq, &mut wc) == 0 {
            if !drives || self.device.progress(64) == 0 {
                self.device.wait(towpath_base::Nanos::from_millis(1));
            }
            assert!(start.elapsed() < WAIT, "work request {wr_id} does not complete");
        }
        assert_eq!((wc[0].wr_id, wc[0].status), (wr_id, WcStatus::Success));
    }
}

fn device() -> RoceDevice<UdpLink> {
    let link = UdpLink::bind(UdpConfig::new("127.0.0.1".parse().unwrap())).expect("loopback");
    RoceDevice::new(link, RoceConfig::default())
}

fn served() -> (EngineThread, End<SharedDevice<RoceDevice<UdpLink>>>) {
    let (thread, shared) = EngineThread::spawn(device()).unwrap();
    (thread, End::new(shared))
}

#[test]
fn one_sided_requests_are_served_while_their_target_sleeps() {
    let (thread, mut b) = served();
    let mut a = End::new(device());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let bytes: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    a.memory.write(0, &bytes).unwrap();
    // From here on nobody touches B but its thread.
    let (target, counter) = (b.remote(4096), b.remote(8));
    a.post(1, SendOp::Write { remote: target }, 0, 100_000);
    a.completes(1, true);
    a.post(2, SendOp::Read { remote: target }, 200_000, 100_000);
    a.completes(2, true);
    let mut got = vec![0; 100_000];
    a.memory.read(200_000, &mut got).unwrap();
    assert_eq!(got, bytes);
    for round in 0..20 {
        a.post(3, SendOp::FetchAdd { remote: counter, add: 2 }, 0, 8);
        a.completes(3, true);
        let mut was = [0; 8];
        a.memory.read(0, &mut was).unwrap();
        assert_eq!(u64::from_ne_bytes(was), 2 * round);
    }
    thread.stop();
    // The device is still there, and driven by hand.
    let counters = b.device.with(|device| device.counters());
    assert!(counters.messages_received >= 22, "a long READ is several requests: {counters:?}");
    b.post(4, SendOp::Write { remote: a.remote(0) }, 0, 10);
    let start = Instant::now();
    let mut wc = [Wc::default()];
    while b.device.poll_cq(b.cq, &mut wc) == 0 {
        b.device.progress(64);
        a.device.progress(64);
        assert!(start.elapsed() < WAIT);
    }
}

#[test]
fn two_served_devices_work_without_their_applications_calling_progress() {
    let ((a_thread, mut a), (b_thread, mut b)) = (served(), served());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let posting = b.remote(0);
    for round in 0..200 {
        a.post(round, SendOp::FetchAdd { remote: posting, add: 1 }, 64, 8);
        a.completes(round, false);
    }
    let mut word = [0; 8];
    b.memory.read(0, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 200);
    drop(a_thread);
    drop(b_thread);
}

#[test]
fn waiting_ends_when_a_peer_is_given_up() {
    let (_thread, mut a) = served();
    // Nobody is there.
    let gone = device().local_addr();
    let rc = RcAttr { timeout: 8, retry_cnt: 2, ..RcAttr::default() };
    a.connect_with(gone, QpNum(17), rc);
    a.post(1, SendOp::Write { remote: RemoteAddr { addr: 0, rkey: 0 } }, 0, 10);
    let mut wc = [Wc::default()];
    while a.device.poll_cq(a.cq, &mut wc) == 0 {
        assert!(a.device.wait(WAIT.into()), "it slept through the completion");
    }
    assert_eq!(wc[0].status, WcStatus::RetryExcErr);
}

#[test]
fn waiting_ends_when_another_thread_makes_completions() {
    let (_thread, mut a) = served();
    a.post_recv(1);
    let mut wc = [Wc::default()];
    assert_eq!(a.device.poll_cq(a.cq, &mut wc), 0);
    let (mut other, qp) = (a.device.clone(), a.qp);
    let failing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        other.modify_qp(qp, QpState::Err).unwrap();
    });
    assert!(a.device.wait(WAIT.into()), "it slept through the completion");
    assert_eq!(a.device.poll_cq(a.cq, &mut wc), 1);
    failing.join().unwrap();
}

#[test]
fn waiting_ends_for_what_came_between_the_polls_of_two_queues() {
    let (_thread, mut a) = served();
    a.post_recv(1);
    let other_cq = a.device.create_cq(1).unwrap();
    let mut wc = [Wc::default()];
    assert_eq!(a.device.poll_cq(a.cq, &mut wc), 0);
    a.device.clone().modify_qp(a.qp, QpState::Err).unwrap();
    assert_eq!(a.device.poll_cq(other_cq, &mut wc), 0);
    assert!(a.device.wait(WAIT.into()), "it slept through the completion");
    assert_eq!(a.device.poll_cq(a.cq, &mut wc), 1);
}

#[test]
fn the_thread_has_its_turn_whoever_polls() {
    let ((_a_thread, mut a), (_b_thread, mut b)) = (served(), served());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let (remote, done) = (b.remote(0), AtomicBool::new(false));
    let idle = a.device.create_cq(1).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut device = a.device.clone();
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    device.poll_cq(idle, &mut [Wc::default()]);
                }
            });
        }
        let worked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            for round in 0..20 {
                a.post(round, SendOp::FetchAdd { remote, add: 1 }, 64, 8);
                a.completes(round, false);
            }
        }));
        done.store(true, Ordering::Relaxed);
        assert!(worked.is_ok());
    });
}

/// Who tries all the time gets the buffer back when the thread is done with it, and sees then what
/// the thread has written, whether or not he has polled the completion.
#[test]
fn nobody_gets_a_buffer_back_while_the_thread_writes_it() {
    const BYTES: usize = 100_000;
    let (thread, mut b) = served();
    let mut a = End::new(device());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let pool = Pool::with_count(BYTES, 1).unwrap();
    let lkey = b.device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL).unwrap().lkey;
    for round in 1..=20 {
        let mut buf = pool.take().expect("it came back");
        buf.set_len(BYTES).unwrap();
        buf.fill(0);
        let mut lent = buf.lend();
        let sg_list = SgList::one(lent.sge(lkey, 0, BYTES));
        b.device.post_recv(b.qp, &[RecvWr { wr_id: 1, sg_list }]).unwrap();
        a.memory.write(0, &[round; BYTES]).unwrap();
        a.post(2, SendOp::Send, 0, BYTES as u32);
        let start = Instant::now();
        let buf = loop {
            a.device.progress(64);
            match lent.reclaim() {
                Ok(buf) => break buf,
                Err(still) => lent = still,
            }
            assert!(start.elapsed() < WAIT, "the message does not arrive");
        };
        assert!(buf.iter().all(|&byte| byte == round), "round {round}");
        b.completes(1, false);
        a.completes(2, true);
    }
    thread.stop();
}

#[test]
fn several_threads_share_one_served_device() {
    let (_thread, b) = served();
    let (_other, a) = served();
    let (mut a, mut b) = (a, b);
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let (remote, addr, lkey) = (b.remote(0), a.memory.addr(), a.keys.lkey);
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let (mut device, qp) = (a.device.clone(), a.qp);
            scope.spawn(move || {
                for _ in 0..20 {
                    let sge = Sge { addr: addr + worker * 8, length: 8, lkey };
                    let op = SendOp::FetchAdd { remote, add: 1 };
                    let wr = SendWr::new(worker, op, SgList::one(sge));
                    device.post_send(qp, &[wr]).unwrap();
                }
            });
        }
    });
    for _ in 0..80 {
        let start = Instant::now();
        let mut wc = [Wc::default()];
        while a.device.poll_cq(a.cq, &mut wc) == 0 {
            a.device.wait(towpath_base::Nanos::from_millis(1));
            assert!(start.elapsed() < WAIT);
        }
        assert_eq!(wc[0].status, WcStatus::Success);
    }
    let mut word = [0; 8];
    b.memory.read(0, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 80);
}

#[test]
fn a_wait_outlasts_what_peers_read_and_ends_when_it_is_woken() {
    let (_thread, mut b) = served();
    let mut a = End::new(device());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let (target, counter) = (b.remote(4096), b.remote(8));
    let (done, waits) = (AtomicBool::new(false), AtomicU32::new(0));
    let waker = b.device.waker().expect("it can be woken");
    std::thread::scope(|scope| {
        let (done, waits) = (&done, &waits);
        let owner = scope.spawn(move || {
            while !done.load(Ordering::SeqCst) {
                assert_eq!(b.device.poll_cq(b.cq, &mut [Wc::default()]), 0);
                waits.fetch_add(1, Ordering::SeqCst);
                assert!(b.device.wait(WAIT.into()), "nobody woke it");
            }
        });
        for round in 0..200 {
            a.post(2 * round, SendOp::Read { remote: target }, 8192, 5000);
            a.completes(2 * round, true);
            a.post(2 * round + 1, SendOp::FetchAdd { remote: counter, add: 1 }, 0, 8);
            a.completes(2 * round + 1, true);
        }
        done.store(true, Ordering::SeqCst);
        waker.wake();
        owner.join().unwrap();
    });
    assert!(waits.load(Ordering::SeqCst) <= 1, "{waits:?} waits for 400 requests");
}

#[test]
fn packets_of_peers_that_complete_nothing_do_not_keep_an_application_busy() {
    let (thread, mut b) = served();
    let mut a = End::new(device());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let target = b.remote(4096);
    for round in 0..200 {
        a.post(round, SendOp::Read { remote: target }, 8192, 5000);
        let mut wc = [Wc::default()];
        while a.device.poll_cq(a.cq, &mut wc) == 0 {
            a.device.progress(64);
            assert_eq!(b.device.progress(64), 0, "nothing is completed here");
        }
        assert_eq!(wc[0].status, WcStatus::Success);
    }
    // Without the thread it is all that moves them.
    thread.stop();
    a.post(200, SendOp::Read { remote: target }, 8192, 5000);
    let (mut wc, mut moved) = ([Wc::default()], 0);
    while a.device.poll_cq(a.cq, &mut wc) == 0 {
        a.device.progress(64);
        moved += b.device.progress(64);
    }
    assert!(moved > 0);
}

#[test]
fn its_files_tell_of_completions_and_not_of_what_peers_read() {
    let (_thread, mut b) = served();
    let mut a = End::new(device());
    a.connect(b.device.local_addr(), b.qp);
    b.connect(a.device.local_addr(), a.qp);
    let files = AnyOf::new().unwrap();
    assert!(b.device.add_to_epoll(files.as_fd().as_raw_fd()));
    b.post_recv(1);
    let mut wc = [Wc::default()];
    for _ in 0..3 {
        assert_eq!(b.device.poll_cq(b.cq, &mut wc), 0);
        assert!(!b.device.wait(towpath_base::Nanos::ZERO), "nothing has happened");
        a.post(1, SendOp::Read { remote: b.remote(0) }, 0, 100);
        a.completes(1, true);
        assert!(!files.is_ready(), "a READ completes nothing here");
    }
    a.post(2, SendOp::Send, 0, 0);
    a.completes(2, true);
    // The peer is answered before the completion is told.
    let start = Instant::now();
    while !files.is_ready() {
        assert!(start.elapsed() < WAIT, "nobody tells of the completion");
        std::thread::yield_now();
    }
    assert!(b.device.wait(towpath_base::Nanos::ZERO));
    assert_eq!(b.device.poll_cq(b.cq, &mut wc), 1);
    assert!(!files.is_ready(), "it is taken");
}

#[test]
fn a_watched_file_ends_each_wait_until_it_is_read() {
    let (_thread, mut a) = served();
    let (near, far) = UnixStream::pair().unwrap();
    assert!(a.device.watch_file(near.as_raw_fd()));
    assert!(!a.device.wait(towpath_base::Nanos::ZERO));
    (&far).write_all(b"new").unwrap();
    assert!(a.device.wait(WAIT.into()) && a.device.wait(WAIT.into()));
    (&near).read_exact(&mut [0; 3]).unwrap();
    assert!(!a.device.wait(towpath_base::Nanos::ZERO));
}

#[test]
fn the_thread_ends_with_the_last_handle_of_its_device() {
    let device = SharedDevice::spawn(device(), EngineOptions::new()).unwrap();
    let (addr, clone) = (device.local_addr(), device.clone());
    let config = || UdpConfig::new(addr.ip()).port(PortChoice::Exact(addr.port()));
    drop(device);
    assert!(UdpLink::bind(config()).is_err(), "its socket is open");
    drop(clone);
    assert!(UdpLink::bind(config()).is_ok(), "its socket is closed");
}
