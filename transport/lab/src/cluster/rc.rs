//! The opponent: the same flows over reliable connected queue pairs, as `ib_send_bw` would.
//!
//! Reliability is the device's: Go-Back-N, no congestion control but what the queues of the
//! network give. A flow is a queue pair that keeps some SENDs under way, each from and to the
//! same piece of memory; it counts what the device says is done. WRITEs would carry addresses of
//! this process, and a seed would not give the same packets twice. Queue pairs of other classes
//! than the default one have the DSCP of theirs.

use super::flow::{FlowCount, FlowPlan, Load};
use super::measure::{Moment, Window};
use super::record::Answer;
use super::run::{Machine, MachineLoop};
use crate::failure::Cause;
use std::collections::VecDeque;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Prng, Time};
use towpath_memory::Region;
use towpath_proto::{Class, LinkStats};
use towpath_sim::World;
use towpath_verbs::{
    Access, Connect, CqNum, Device, MrKeys, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr,
    SendOp, SendWr, SgList, Sge, VerbError, Wc, WcStatus, tclass_of,
};

/// Completions taken at a time.
const BATCH: usize = 64;

/// What the word of a receive work request has beside its flow's number.
const RECEIVE: u64 = 1 << 63;

/// Packets taken in at a time.
const BUDGET: usize = 256;

/// One flow: its queue pair at the sender.
struct RcFlow {
    plan: FlowPlan,
    count: FlowCount,
    qp: QpNum,
    reader_qp: QpNum,
    /// The queue pair has given up.
    is_broken: bool,
    /// When the messages that are under way were sent.
    sent_at: VecDeque<Time>,
    /// Its messages that were answered, where somebody wants to know.
    answers: Option<Vec<Answer>>,
}

impl RcFlow {
    fn on_done(&mut self, number: usize, now: Time) {
        self.count.delivered += 1;
        self.count.read += 1;
        self.count.bytes += u64::from(self.plan.message_bytes);
        // Work requests of a queue pair complete in order.
        if let Some(sent_at) = self.sent_at.pop_front()
            && let Some(answers) = &mut self.answers
        {
            answers.push(Answer { flow: number, sent_at, answered_at: now });
        }
    }

    fn is_due(&self, now: Time) -> bool {
        let Load::Closed { depth } = self.plan.load else { return false };
        let under_way = self.count.sent - self.count.delivered;
        let is_on = (self.plan.start..self.plan.stop).contains(&now) && !self.is_broken;
        is_on && under_way < u64::from(depth)
    }
}

struct RcHost<D> {
    device: D,
    cq: CqNum,
    memory: Region,
    keys: MrKeys,
    sends: Vec<usize>,
    wcs: Vec<Wc>,
}

impl<D: Device<Memory = Region>> RcHost<D> {
    fn new(mut device: D, message_bytes_max: u32) -> Result<Self, VerbError> {
        let memory = Region::new(message_bytes_max as usize)
            .map_err(|_| VerbError::OutOfResources(towpath_verbs::Verb::RegMr))?;
        let keys = device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL)?;
        let cq = device.create_cq(1 << 14)?;
        Ok(Self { device, cq, memory, keys, sends: Vec::new(), wcs: vec![Wc::default(); BATCH] })
    }

    fn qp(&mut self, sends: u32, receives: u32) -> Result<QpNum, VerbError> {
        self.device.create_qp(&QpInit::new(QpType::Rc, self.cq).depth(sends, receives))
    }

    fn sge(&self, length: u32) -> SgList {
        SgList::one(Sge { addr: self.memory.addr(), length, lkey: self.keys.lkey })
    }

    fn recv_wr(&self, number: usize, plan: &FlowPlan) -> RecvWr {
        RecvWr { wr_id: number as u64 | RECEIVE, sg_list: self.sge(plan.message_bytes) }
    }

    fn take_completions(&mut self, flows: &mut [RcFlow]) -> usize {
        let now = self.device.now();
        let count = self.device.poll_cq(self.cq, &mut self.wcs);
        for wc in &self.wcs[..count] {
            let number = (wc.wr_id & !RECEIVE) as usize;
            let flow = &mut flows[number];
            if wc.wr_id & RECEIVE != 0 {
                let again = self.recv_wr(number, &flow.plan);
                flow.is_broken |= self.device.post_recv(flow.reader_qp, &[again]).is_err();
            } else if wc.status == WcStatus::Success {
                flow.on_done(number, now);
            } else {
                flow.is_broken = true;
            }
        }
        count
    }

    fn post_what_is_due(&mut self, flows: &mut [RcFlow]) {
        let now = self.device.now();
        for &number in &self.sends {
            let flow = &mut flows[number];
            while flow.is_due(now) {
                let sg_list = self.sge(flow.plan.message_bytes);
                let wr = SendWr::new(number as u64, SendOp::Send, sg_list);
                if self.device.post_send(flow.qp, &[wr]).is_err() {
                    flow.is_broken = true;
                    break;
                }
                flow.count.sent += 1;
                flow.sent_at.push_back(now);
            }
        }
    }
}

impl<D: Device<Memory = Region>> Machine for RcHost<D> {
    type Shared = Vec<RcFlow>;

    fn turn(&mut self, flows: &mut Vec<RcFlow>) {
        loop {
            self.post_what_is_due(flows);
            let moved = self.device.progress(BUDGET);
            if moved + self.take_completions(flows) == 0 {
                return;
            }
        }
    }

    fn next_time(&self, now: Time, flows: &Vec<RcFlow>) -> Time {
        let starts = self.sends.iter().map(|&flow| flows[flow].plan.start).filter(|at| *at > now);
        starts.fold(self.device.next_timeout(), Time::min)
    }
}

/// Many hosts in one world whose devices make them reliable.
pub struct RcCluster<D: Device<Memory = Region>> {
    runner: MachineLoop<RcHost<D>>,
    prng: Prng,
}

impl<D: Device<Memory = Region>> RcCluster<D> {
    /// Hosts on `devices`, which lie on the hosts of `world` in their order. Messages will be of
    /// at most `message_bytes_max`.
    ///
    /// # Errors
    /// [`Cause::Verb`].
    pub fn new(world: World, devices: Vec<D>, message_bytes_max: u32) -> Result<Self, Cause> {
        let prng = Prng::new(world.next_seed());
        let hosts = devices.into_iter().map(|device| RcHost::new(device, message_bytes_max));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { runner: MachineLoop::new(world, hosts, Vec::new()), prng })
    }

    /// Adds a flow of SENDs over a queue pair of its own; open loads send nothing.
    ///
    /// # Errors
    /// [`Cause::Verb`].
    pub fn add_flow(&mut self, plan: FlowPlan, mtu: Mtu, rc: RcAttr) -> Result<usize, Cause> {
        let depth = plan.under_way_max();
        let number = self.runner.shared.len();
        let sender = self.runner.machine_mut(plan.from);
        let (near, near_addr) = (sender.qp(depth, 1)?, sender.device.local_addr());
        sender.sends.push(number);
        let reader = self.runner.machine_mut(plan.to);
        let (far, far_addr) = (reader.qp(1, depth)?, reader.device.local_addr());
        let [near_psn, far_psn] = [(); 2].map(|()| Psn::new(self.prng.next_u32()));
        let source_port = self.prng.next_u32() as u16;
        let is_default = plan.class == Class::default();
        let tclass = if is_default { 0 } else { tclass_of(plan.class.dscp_default()) };
        let connect = |dest, dest_qp_num, rq_psn, sq_psn| Connect {
            dest,
            dest_qp_num,
            rq_psn,
            sq_psn,
            path_mtu: mtu,
            source_port,
            tclass,
            rc,
        };
        let to_far = connect(far_addr, far, far_psn, near_psn);
        self.runner.machine_mut(plan.from).device.connect_qp(near, &to_far)?;
        let to_near = connect(near_addr, near, near_psn, far_psn);
        let reader = self.runner.machine_mut(plan.to);
        reader.device.connect_qp(far, &to_near)?;
        let receive = reader.recv_wr(number, &plan);
        for _ in 0..depth {
            reader.device.post_recv(far, &[receive]).map_err(|refused| refused.error)?;
        }
        self.runner.shared.push(RcFlow {
            plan,
            count: FlowCount::default(),
            qp: near,
            reader_qp: far,
            is_broken: false,
            sent_at: VecDeque::with_capacity(depth as usize),
            answers: None,
        });
        Ok(number)
    }

    /// Writes down every answer of a flow from now on.
    pub fn record(&mut self, flow: usize) {
        self.runner.shared[flow].answers.get_or_insert_default();
    }

    /// What was written down of a flow.
    #[must_use]
    pub fn answers(&self, flow: usize) -> &[Answer] {
        self.runner.shared[flow].answers.as_deref().unwrap_or_default()
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        self.runner.world()
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.world().now()
    }

    /// Flows whose queue pairs have given up.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.runner.shared.iter().filter(|flow| flow.is_broken).count()
    }

    /// What is counted now.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let flows = self.runner.shared.iter().map(|flow| flow.count).collect();
        Moment::new(self.now(), flows, LinkStats::default())
    }

    /// What was done since a moment of this cluster; what the devices sent again does not show.
    #[must_use]
    pub fn since(&self, begin: &Moment) -> Window {
        Window::between(begin, &self.moment())
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Nanos) {
        let end = self.now() + span;
        self.runner.run_until(end);
    }
}
