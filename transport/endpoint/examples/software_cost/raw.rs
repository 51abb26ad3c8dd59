//! The same bytes by verbs alone, in a work request for each chunk of the case.

use crate::case::{Case, Cost};
use std::error::Error;
use std::time::Instant;
use towpath_base::serial::Psn;
use towpath_device_mem::MemDevice;
use towpath_memory::{Lent, Pool};
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr, SendOp,
    SendWr, SgList, Sge, SrqNum, Wc, WcStatus,
};

const HEADER_BYTES: usize = 64;
/// As the endpoint does: one completion tells of so many sends.
const SIGNAL_EVERY: usize = 16;
/// Sends of one turn: about what a link's window of 512 KiB lets go, and no more than a batch.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_MAX: usize = 128;
/// Receives that are posted, as many as a link's default credit needs.
const RECEIVES: usize = 512;

/// Two devices with a queue pair, and everything posted between them.
pub(crate) struct Raw {
    sender: MemDevice,
    receiver: MemDevice,
    qp: QpNum,
    cqs: (CqNum, CqNum),
    srq: SrqNum,
    sends: Vec<SendWr>,
    next: usize,
    receives: Vec<RecvWr>,
    batch: usize,
    wcs: Vec<Wc>,
    repost: Vec<RecvWr>,
    /// What the work requests name.
    _lent: Vec<Lent>,
}

/// Buffers that stay posted for good.
struct Buffers {
    pool: Pool,
    lkey: u32,
}

impl Buffers {
    fn new(device: &mut MemDevice, bytes: usize, count: usize) -> Result<Self, Box<dyn Error>> {
        let pool = Pool::with_count(bytes, count)?;
        let lkey = device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL)?.lkey;
        Ok(Self { pool, lkey })
    }

    fn take(&self, bytes: usize, kept: &mut Vec<Lent>) -> Sge {
        let lent = self.pool.take().expect("as many as were made").lend();
        let sge = lent.sge(self.lkey, 0, bytes);
        kept.push(lent);
        sge
    }
}

impl Raw {
    pub(crate) fn new(case: &Case) -> Result<Self, Box<dyn Error>> {
        let (mut sender, mut receiver) = MemDevice::pair();
        let cqs = (sender.create_cq(4096)?, receiver.create_cq(4096)?);
        let srq = receiver.create_srq(RECEIVES as u32)?;
        let qp = sender.create_qp(&QpInit::new(QpType::Uc, cqs.0))?;
        let peer = receiver.create_qp(&QpInit::new(QpType::Uc, cqs.1).srq(srq))?;
        for (device, qp, dest, dest_qp_num) in [
            (&mut sender, qp, receiver.local_addr(), peer),
            (&mut receiver, peer, sender_addr(), qp),
        ] {
            connect(device, qp, dest, dest_qp_num)?;
        }
        let bytes = case.chunk_bytes as usize;
        let sends_count = case.depth * case.chunks_of_message as usize;
        let mut lent = Vec::new();
        let headers = Buffers::new(&mut sender, HEADER_BYTES, sends_count)?;
        // The chunks of a message lie behind each other, as a link cuts them.
        let messages = Buffers::new(&mut sender, case.message_bytes(), case.depth)?;
        let mut sends = Vec::new();
        for _ in 0..case.depth {
            let message = messages.take(case.message_bytes(), &mut lent);
            for chunk in 0..u64::from(case.chunks_of_message) {
                let header = headers.take(HEADER_BYTES, &mut lent);
                let addr = message.addr + chunk * bytes as u64;
                let list = SgList::two(header, Sge { addr, length: bytes as u32, ..message });
                sends.push(SendWr::new(0, SendOp::Send, list).unsignaled());
            }
        }
        let headers = Buffers::new(&mut receiver, HEADER_BYTES, RECEIVES)?;
        let payloads = Buffers::new(&mut receiver, (56 << 10).max(bytes), RECEIVES)?;
        let mut receive = |wr_id| {
            let header = headers.take(HEADER_BYTES, &mut lent);
            let sg_list = SgList::two(header, payloads.take(bytes, &mut lent));
            RecvWr { wr_id, sg_list }
        };
        let receives: Vec<RecvWr> = (0..RECEIVES as u64).map(&mut receive).collect();
        receiver.post_srq_recv(srq, &receives)?;
        // A power of two, as the number of sends is: so all of them take turns.
        let batch = (BATCH_BYTES / (bytes + HEADER_BYTES)).min(BATCH_MAX).min(sends_count);
        let batch = 1 << batch.ilog2();
        let (next, wcs, repost) = (0, vec![Wc::default(); BATCH_MAX], Vec::new());
        Ok(Self {
            sender,
            receiver,
            qp,
            cqs,
            srq,
            sends,
            next,
            receives,
            batch,
            wcs,
            repost,
            _lent: lent,
        })
    }

    /// Sends `chunks`, and receives them.
    pub(crate) fn run(&mut self, chunks: u64) -> Cost {
        let (mut done, mut cost) = (0, Cost::default());
        while done < chunks {
            let start = Instant::now();
            self.send();
            let sent = Instant::now();
            done += self.receive();
            cost.sender_ns += (sent - start).as_nanos() as f64;
            cost.receiver_ns += sent.elapsed().as_nanos() as f64;
        }
        let done = done as f64;
        Cost { sender_ns: cost.sender_ns / done, receiver_ns: cost.receiver_ns / done }
    }

    fn send(&mut self) {
        let sends_count = self.sends.len();
        let batch = &mut self.sends[self.next..self.next + self.batch];
        self.next = (self.next + self.batch) % sends_count;
        for (wr, place) in batch.iter_mut().zip(1..) {
            wr.wr_id = place as u64;
            wr.flags.signaled = place % SIGNAL_EVERY == 0 || place == self.batch;
        }
        self.sender.post_send(self.qp, batch).expect("a running queue pair");
        let completed = self.sender.poll_cq(self.cqs.0, &mut self.wcs);
        assert_eq!(self.wcs[completed - 1].wr_id, self.batch as u64);
    }

    fn receive(&mut self) -> u64 {
        let count = self.receiver.poll_cq(self.cqs.1, &mut self.wcs);
        for wc in &self.wcs[..count] {
            assert_eq!(wc.status, WcStatus::Success);
            self.repost.push(self.receives[wc.wr_id as usize]);
        }
        self.receiver.post_srq_recv(self.srq, &self.repost).expect("room for what was taken");
        self.repost.clear();
        count as u64
    }
}

/// The first device of every pair has the same address.
fn sender_addr() -> std::net::SocketAddr {
    MemDevice::pair().0.local_addr()
}

fn connect(
    device: &mut MemDevice,
    qp: QpNum,
    dest: std::net::SocketAddr,
    dest_qp_num: QpNum,
) -> Result<(), Box<dyn Error>> {
    let connect = Connect {
        dest,
        dest_qp_num,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: Mtu::Mtu4096,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    };
    Ok(device.connect_qp(qp, &connect)?)
}
