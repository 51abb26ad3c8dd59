//! Many hosts in one world: endpoints, the flows between them, and what came of each.
//!
//! A cluster turns only the hosts that have something to do: those that something came in for,
//! and those whose timer is due. All of it is single-threaded and the same for the same seed.
//! Each message is checked as it is read: whole, intact, in order, once.
//!
//! | file | contents |
//! |---|---|
//! | `flow` | what one application sends another, and what came of it |
//! | `host` | one host: its endpoint, and the applications on it |
//! | `measure` | the difference between two moments: goodput, fairness, repair |
//! | `pattern` | the bytes of messages |
//! | `rc` | the same flows over RC, as the opponent |
//! | `record` | single messages and paths that moved, written down where somebody asks |
//! | `samples` | many measured values, and what can be said of them |
//! | `run` | the loop, and the timers of hosts |

mod flow;
mod host;
mod measure;
mod pattern;
mod rc;
mod record;
pub mod run;
mod samples;

#[cfg(test)]
mod tests;

pub use flow::{FlowCount, FlowPlan, Load};
pub use measure::{Moment, Window, jain};
pub use rc::RcCluster;
pub use record::{Answer, PathMove, Record};
pub use samples::Samples;

use crate::failure::Cause;
use flow::Flow;
use host::{Host, Shared};
use pattern::Pattern;
use run::MachineLoop;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Prng, Time};
use towpath_memory::Region;
use towpath_proto::{Class, Outcome, Side};
use towpath_sim::World;
use towpath_study::RunEnd;
use towpath_transport::{Endpoint, EndpointConfig, LinkId};
use towpath_verbs::Device;

/// Troubles that are kept; the first ones tell all that there is to tell.
const TROUBLES_MAX: usize = 16;

/// How often it is looked whether all is settled.
const SETTLE_EACH: Nanos = Nanos::from_micros(100);

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In which flow, as far as it is of one.
    pub flow: Option<usize>,
    /// What.
    pub kind: TroubleKind,
}

/// What must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleKind {
    /// What was read is not the message that was due, or not at that place of it.
    Content {
        /// Messages read before.
        message: u64,
        /// Where in the message.
        offset: usize,
    },
    /// At the end not as many messages were delivered, and read, as were sent.
    Unsettled {
        /// Messages that were sent.
        sent: u64,
        /// Messages of which the sender was told that they are delivered.
        delivered: u64,
        /// Messages that were read.
        read: u64,
    },
    /// A message ended in another way than delivered.
    Outcome {
        /// How.
        outcome: Outcome,
    },
    /// An endpoint refused a message.
    Refused,
    /// Something came on a channel that no flow has.
    Stray {
        /// Where.
        host: usize,
    },
    /// A link or a channel ended.
    Down {
        /// Where.
        host: usize,
    },
    /// A host does not come to rest at one instant.
    Restless {
        /// Which.
        host: usize,
    },
    /// An endpoint counted what must not be: refused or failed work requests, violations.
    Counted {
        /// Where.
        host: usize,
        /// What it counted.
        what: String,
    },
}

/// Many hosts in one world.
pub struct Cluster<D: Device<Memory = Region>> {
    runner: MachineLoop<Host<D>>,
    /// The links between hosts, by the pair that opened and took them and by class.
    links: BTreeMap<(usize, usize, Class), (LinkId, LinkId)>,
    prng: Prng,
}

impl<D: Device<Memory = Region>> Cluster<D> {
    /// Hosts on `devices`, which lie on the hosts of `world` in their order. No two have anything
    /// to do with each other yet. Messages will be of at most `message_bytes_max`.
    ///
    /// # Errors
    /// [`Cause::Endpoint`].
    pub fn new(
        world: World,
        devices: Vec<D>,
        message_bytes_max: u32,
        endpoint_of: impl Fn(usize) -> EndpointConfig,
    ) -> Result<Self, Cause> {
        let mut prng = Prng::new(world.next_seed());
        let mut hosts = Vec::with_capacity(devices.len());
        for (number, device) in devices.into_iter().enumerate() {
            let config = endpoint_of(number).seed(prng.next_u64());
            hosts.push(Host::new(number, Endpoint::new(device, config)?));
        }
        let pattern = Pattern::new(prng.next_u64(), message_bytes_max);
        let shared = Shared { flows: Vec::new(), pattern, troubles: Vec::new(), record: None };
        Ok(Self { runner: MachineLoop::new(world, hosts, shared), links: BTreeMap::new(), prng })
    }

    /// A host that was turned is turned again no sooner than this: what one turn of a real loop
    /// takes. Default 1 ns.
    #[must_use]
    pub fn pause(mut self, span: Nanos) -> Self {
        self.runner.set_pause(span);
        self
    }

    /// Each device is on so many hosts of the world, one behind the other, which are its NICs.
    #[must_use]
    pub fn nics(mut self, nics: u32) -> Self {
        self.runner.set_nics(nics);
        self
    }

    /// Adds a flow, with a link between its hosts if they have none of its class; returns its
    /// number. Its channel is opened over the fabric, so it sends a round trip after its start at
    /// the soonest.
    ///
    /// # Errors
    /// [`Cause::Link`], [`Cause::Channel`].
    pub fn add_flow(&mut self, plan: FlowPlan) -> Result<usize, Cause> {
        let (near, far) = self.link_between(plan.from, plan.to, plan.class)?;
        let number = self.runner.shared.flows.len();
        let sender = self.runner.machine_mut(plan.from);
        let channel = sender.endpoint.open_channel(near, true)?;
        sender.route(near, channel, number);
        sender.sends.push(number);
        self.runner.machine_mut(plan.to).route(far, channel, number);
        let flow = Flow::new(plan, (near, channel), number, self.prng.next_u64());
        self.runner.shared.flows.push(flow);
        Ok(number)
    }

    /// Adds a flow that has no channel of its own but that of flow `other`, whose hosts and class
    /// it has whatever the plan says; returns its number. Messages of both come in the order in
    /// which they are sent. To be added before anything is sent.
    ///
    /// # Panics
    /// When there is no flow `other`, or it has sent something.
    pub fn add_flow_beside(&mut self, other: usize, plan: FlowPlan) -> usize {
        let flows = &mut self.runner.shared.flows;
        let number = flows.len();
        let (owner, is_open) = (flows[other].owner, flows[other].is_open);
        let of_owner = &mut flows[owner];
        assert_eq!(of_owner.count.sent, 0, "nobody knows the order of what was sent before");
        of_owner.line.get_or_insert_default();
        let FlowPlan { from, to, class, .. } = of_owner.plan;
        let at = (of_owner.link, of_owner.channel);
        let plan = FlowPlan { from, to, class, ..plan };
        let mut flow = Flow::new(plan, at, owner, self.prng.next_u64());
        flow.is_open = is_open;
        flows.push(flow);
        self.runner.machine_mut(from).sends.push(number);
        number
    }

    fn link_between(
        &mut self,
        from: usize,
        to: usize,
        class: Class,
    ) -> Result<(LinkId, LinkId), Cause> {
        if let Some(&pair) = self.links.get(&(from, to, class)) {
            return Ok(pair);
        }
        let runner = &mut self.runner;
        let (near_hello, near_half) = runner.machine_mut(from).endpoint.offer_as(class)?;
        let (far_hello, far_half) = runner.machine_mut(to).endpoint.offer_as(class)?;
        let near =
            runner.machine_mut(from).endpoint.establish(near_half, &far_hello, Side::Client)?;
        let far = runner.machine_mut(to).endpoint.establish(far_half, &near_hello, Side::Server)?;
        self.links.insert((from, to, class), (near, far));
        Ok((near, far))
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        self.runner.world()
    }

    /// The endpoint of a host, for its counters.
    ///
    /// # Panics
    /// When there is no such host.
    #[must_use]
    pub fn endpoint(&self, host: usize) -> &Endpoint<D> {
        &self.runner.machine(host).endpoint
    }

    /// The link that flows of a class between two hosts go over, at the sender's end and at the
    /// reader's.
    #[must_use]
    pub fn link(&self, from: usize, to: usize, class: Class) -> Option<(LinkId, LinkId)> {
        self.links.get(&(from, to, class)).copied()
    }

    /// The flows in the order in which they were added: their plans and what came of them.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = (&FlowPlan, &FlowCount)> {
        self.runner.shared.flows.iter().map(|flow| (&flow.plan, &flow.count))
    }

    /// Everything that went wrong so far; the first of it if it is much.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = self.runner.shared.troubles.clone();
        for host in self.runner.machines() {
            let (stats, links) =
                (host.endpoint.endpoint_stats(), host.endpoint.stats_of_all_links());
            let posts = stats.send_errors + stats.posts_refused + stats.strays + stats.recv_errors;
            if posts + links.violations > 0 {
                let what = format!("{stats:?}, {} violations", links.violations);
                troubles.push(Trouble {
                    flow: None,
                    kind: TroubleKind::Counted { host: host.number, what },
                });
            }
        }
        troubles.truncate(TROUBLES_MAX);
        troubles
    }

    /// What a run of it ends with.
    #[must_use]
    pub fn end(&self) -> RunEnd {
        self.end_of("")
    }

    /// What a run ends with of which the cluster is the part `name`.
    #[must_use]
    pub fn end_of(&self, name: &'static str) -> RunEnd {
        let troubles = self.troubles().iter().map(|trouble| format!("{trouble:?}")).collect();
        RunEnd { traces: vec![(name, self.world().trace_hash())], troubles }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.world().now()
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Nanos) {
        self.run_until(self.now() + span);
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: Time) {
        self.runner.run_until(end);
    }

    /// Ends all flows, and gives what is under way until `limit` from now to come. Then as many
    /// messages must have been delivered and read as were sent, or [`troubles`](Self::troubles)
    /// tells of it.
    pub fn settle(&mut self, limit: Nanos) {
        let end = self.now() + limit;
        self.runner.shared.flows.iter_mut().for_each(|flow| flow.plan.stop = Time::ZERO);
        while self.now() < end && !self.runner.shared.flows.iter().all(Flow::is_settled) {
            self.run_for(SETTLE_EACH.min(end.since(self.now())));
        }
        for number in 0..self.runner.shared.flows.len() {
            let flow = &self.runner.shared.flows[number];
            let FlowCount { sent, delivered, read, .. } = flow.count;
            if !flow.is_settled() {
                let kind = TroubleKind::Unsettled { sent, delivered, read };
                self.runner.shared.report(Some(number), kind);
            }
        }
    }
}
