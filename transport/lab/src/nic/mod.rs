//! A model of network cards that make queue pairs reliable and control congestion themselves.
//!
//! It stands beside Towpath as the opponent, and runs no production code: what cards do in
//! hardware is in their settings here. A packet of the model is one packet of the simulated
//! network, of the length that a RoCE packet has; it carries no data. Processors take no time.
//!
//! A queue pair sends what its window, its rate and its repair allow. The queue pairs of a card
//! take turns, one packet each. The receiver acknowledges the last packet of a message and each
//! quarter of a window.
//!
//! | file | contents |
//! |---|---|
//! | `dcqcn` | the rate of a queue pair by marks of congestion |
//! | `frame` | what a packet carries |
//! | `sender`, `receiver` | the two halves of a queue pair |
//! | `host` | a card with its queue pairs |

mod dcqcn;
mod frame;
mod host;
mod receiver;
mod sender;

#[cfg(test)]
mod tests;

pub use dcqcn::{DcqcnConfig, DcqcnRate};

use crate::cluster::run::MachineLoop;
use crate::cluster::{FlowCount, FlowPlan, Moment, Window};
use host::NicHost;
use receiver::Receiver;
use sender::Sender;
use towpath_base::{Nanos, Time};
use towpath_proto::LinkStats;
use towpath_sim::{HostId, World};

/// Payload of a packet, in bytes.
const MTU_BYTES: u64 = 4_096;

/// Packets without an acknowledgement, at most.
const ACK_INTERVAL_PACKETS: u64 = 16;

/// What a card sends again when a packet is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// All from the lost packet on (Go-Back-N).
    Window,
    /// All from the first packet of its message on (Go-Back-0).
    Message,
    /// The lost packet alone; the receiver keeps what comes out of order.
    Packet,
}

/// The settings of a card's queue pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NicConfig {
    /// Packets under way at most.
    pub window_packets: u32,
    /// What is sent again when a packet is lost.
    pub repair: Repair,
    /// How long an acknowledgement may take.
    pub timeout: Nanos,
    /// The control of congestion; `None` for none.
    pub dcqcn: Option<DcqcnConfig>,
}

impl NicConfig {
    fn ack_interval(&self) -> u64 {
        u64::from(self.window_packets / 4).clamp(1, ACK_INTERVAL_PACKETS)
    }
}

/// Hosts with such cards in one world.
pub struct NicCluster {
    runner: MachineLoop<NicHost>,
}

impl NicCluster {
    /// Cards on the hosts of `world`, in their order, each with the bits a second of its port.
    #[must_use]
    pub fn new(world: World, cards: &[(NicConfig, u64)]) -> Self {
        let host = |(number, &(config, rate)): (usize, &(NicConfig, u64))| {
            NicHost::new(world.end(HostId(number as u32)), config, rate)
        };
        let hosts = cards.iter().enumerate().map(host).collect();
        Self { runner: MachineLoop::new(world, hosts, Vec::new()) }
    }

    /// Adds a flow over a queue pair of its own; of open loads nothing is sent.
    pub fn add_flow(&mut self, plan: FlowPlan) -> usize {
        let number = self.runner.shared.len();
        self.runner.shared.push(FlowCount::default());
        let (near, far) = (self.runner.machine(plan.from), self.runner.machine(plan.to));
        let (near_addr, far_addr) = (near.addr(), far.addr());
        let sender = Sender::new(plan, near.config, near.rate_bits_per_s);
        let receiver = Receiver::new(far.config);
        self.runner.machine_mut(plan.from).send_to(number, sender, far_addr);
        self.runner.machine_mut(plan.to).receive_from(number, receiver, near_addr);
        number
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

    /// Packets that were sent again, and all packets of data.
    #[must_use]
    pub fn resent(&self) -> (u64, u64) {
        self.runner
            .machines()
            .map(NicHost::resent)
            .fold((0, 0), |(again, all), (a, b)| (again + a, all + b))
    }

    /// What is counted now.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment::new(self.now(), self.runner.shared.clone(), LinkStats::default())
    }

    /// What was done since a moment of this cluster.
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
