//! Threads without Towpath: each has a userspace NIC and a queue pair of RC of its own.
//!
//! A NIC in userspace belongs to one thread, as a queue pair does to who posts to it. The server
//! has one NIC and one thread for all.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use towpath_base::serial::Psn;
use towpath_lab::studies::StudyError;
use towpath_transport::{Device, EndpointConfig, Nanos, Region, RoceUdp, UdpConfig, roce_udp};
use towpath_verbs::{
    Access, Connect, CqNum, MrKeys, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr, SendOp, SendWr,
    SgList, Sge, VerbError, Wc, WcStatus,
};

/// Packets taken in at a time.
const BUDGET: usize = 256;

/// Completions taken at a time.
const BATCH: usize = 64;

/// How long a thread waits before it looks whether the measurement is over.
const WAIT: Nanos = Nanos::from_millis(5);

/// One end: a NIC with its memory and its queue pairs.
struct End {
    device: RoceUdp,
    cq: CqNum,
    memory: Region,
    keys: MrKeys,
    qps: Vec<QpNum>,
    wcs: Vec<Wc>,
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StudyError {
    StudyError::run("raw queue pairs", cause)
}

impl End {
    fn new(qps: usize, bytes: usize, depth: usize) -> Result<Self, StudyError> {
        let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
        let config = EndpointConfig::new().links_max(qps);
        let mut device = roce_udp(udp, &config).map_err(failed)?;
        let memory = Region::new(bytes).map_err(failed)?;
        let keys = device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).map_err(failed)?;
        let cq = device.create_cq((2 * qps * depth) as u32).map_err(failed)?;
        let init = QpInit::new(QpType::Rc, cq).depth(depth as u32, depth as u32);
        let qps = (0..qps).map(|_| device.create_qp(&init).map_err(failed));
        let qps = qps.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { device, cq, memory, keys, qps, wcs: vec![Wc::default(); BATCH] })
    }

    /// Joins a queue pair of this end to one of a peer.
    fn connect(&mut self, place: usize, peer: &Self, peer_place: usize) -> Result<(), StudyError> {
        let dest = peer.device.local_addr();
        let to = Connect {
            dest,
            dest_qp_num: peer.qps[peer_place],
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: self.device.path_mtu(Some(dest)).mtu,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        self.device.connect_qp(self.qps[place], &to).map_err(failed)
    }

    fn list(&self) -> SgList {
        let (addr, length) = (self.memory.addr(), self.memory.byte_len() as u32);
        SgList::one(Sge { addr, length, lkey: self.keys.lkey })
    }

    fn post_recv(&mut self, place: usize) -> Result<(), VerbError> {
        let wr = RecvWr { wr_id: place as u64, sg_list: self.list() };
        self.device.post_recv(self.qps[place], &[wr]).map_err(|refused| refused.error)
    }

    fn post_send(&mut self) -> Result<(), VerbError> {
        let wr = SendWr::new(0, SendOp::Send, self.list());
        self.device.post_send(self.qps[0], &[wr]).map_err(|refused| refused.error)
    }

    /// Drives the NIC, and hands each completion to `done`; false when one has failed.
    fn turn(
        &mut self,
        mut done: impl FnMut(&mut Self, u64) -> Result<(), VerbError>,
    ) -> Result<bool, VerbError> {
        let moved = self.device.progress(BUDGET);
        let mut wcs = std::mem::take(&mut self.wcs);
        let count = self.device.poll_cq(self.cq, &mut wcs);
        let is_well = wcs[..count].iter().all(|wc| wc.status == WcStatus::Success);
        let taken = wcs[..count].iter().try_for_each(|wc| done(self, wc.wr_id));
        self.wcs = wcs;
        taken?;
        if moved + count == 0 {
            let timeout = self.device.next_timeout().since(self.device.now());
            self.device.wait(timeout.min(WAIT));
        }
        Ok(is_well)
    }
}

/// A queue pair for each thread, and the server's end of all.
pub(super) struct RawThreads {
    clients: Vec<End>,
    server: End,
    depth: usize,
}

impl RawThreads {
    /// For so many threads with messages of so many bytes, `depth` under way at each.
    ///
    /// # Errors
    /// [`StudyError::Run`] with what was refused.
    pub(super) fn new(threads: usize, bytes: usize, depth: usize) -> Result<Self, StudyError> {
        let mut server = End::new(threads, bytes, depth)?;
        let mut clients = Vec::new();
        for place in 0..threads {
            let mut client = End::new(1, bytes, depth)?;
            client.connect(0, &server, place)?;
            server.connect(place, &client, 0)?;
            for _ in 0..depth {
                server.post_recv(place).map_err(failed)?;
            }
            clients.push(client);
        }
        Ok(Self { clients, server, depth })
    }

    /// Payload bits in a second that come to the server in `span`, after a fifth of it went before.
    ///
    /// # Errors
    /// [`StudyError::Run`] when a queue pair has failed.
    pub(super) fn throughput(self, bytes: usize, span: Duration) -> Result<f64, StudyError> {
        let Self { clients, mut server, depth } = self;
        let (seen, over, broken) =
            (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let goes_on = || !over.load(Ordering::Relaxed) && !broken.load(Ordering::Relaxed);
        let rate = thread::scope(|scope| {
            let (seen, broken, goes_on) = (&seen, &broken, &goes_on);
            scope.spawn(move || {
                while goes_on() {
                    let turned = server.turn(|server, place| {
                        seen.fetch_add(bytes as u64, Ordering::Relaxed);
                        server.post_recv(place as usize)
                    });
                    broken.fetch_or(!matches!(turned, Ok(true)), Ordering::Relaxed);
                }
            });
            for mut client in clients {
                scope.spawn(move || {
                    let posted = (0..depth).try_for_each(|_| client.post_send());
                    broken.fetch_or(posted.is_err(), Ordering::Relaxed);
                    while goes_on() {
                        let turned = client.turn(|client, _| client.post_send());
                        broken.fetch_or(!matches!(turned, Ok(true)), Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(span / 5);
            let (before, began) = (seen.load(Ordering::Relaxed), Instant::now());
            thread::sleep(span);
            let bits = (seen.load(Ordering::Relaxed) - before) as f64 * 8.0;
            let rate = bits / began.elapsed().as_secs_f64();
            over.store(true, Ordering::Relaxed);
            rate
        });
        if broken.load(Ordering::Relaxed) {
            return Err(failed("a queue pair has failed"));
        }
        Ok(rate)
    }
}
