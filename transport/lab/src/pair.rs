//! Two hosts in one world, and the loop that drives them.

use crate::app::App;
use crate::device::{LabDevice, SharedLink};
use crate::failure::{Cause, Failure, HostState, Scene};
use crate::limits::{STEPS_MAX, TRACE_TAIL, TURNS_PER_INSTANT_MAX, WAIT_MAX};
use crate::oracle::{Oracle, Violation};
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceCounters};
use towpath_proto::{LinkStats, Side};
use towpath_sim::world::{CableConfig, HostConfig, SwitchConfig};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, HostId, LinkConfig, VirtualLink, World};
use towpath_transport::keys::Refusals;
use towpath_transport::{Endpoint, EndpointConfig, LinkId};

/// What two hosts are like.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Where everything random comes from.
    pub seed: u64,
    /// The wire between them.
    pub wire: LinkConfig,
    /// With spines they hang on two leaf switches that so many spine switches join, in place of
    /// the wire: it is cut into four hops, each with its rate, a quarter of its delay and its
    /// queue. The hosts then have IPv4 addresses of the world's choice.
    pub spines: u32,
    /// Their endpoints; `seed` is set for each life.
    pub endpoint: EndpointConfig,
    /// A host looks at its device no sooner than this after the last time something happened.
    pub pause: Nanos,
}

/// Something that a scenario wants to happen at a time.
#[derive(Clone, Debug)]
pub enum Happening {
    /// Other faults for what a host receives.
    Faults(FaultPlan),
    /// What a host sends from these source ports is swallowed, and from no others.
    Holes(Vec<u16>),
    /// A host gets no CPU until then.
    Stall(Time),
    /// An application stops reading until then.
    StopReading(Time),
    /// Nothing, but time does not jump past it.
    Wake,
}

/// One host.
pub struct PairHost {
    /// Its endpoint.
    pub endpoint: Endpoint<LabDevice>,
    /// Its application.
    pub app: App,
    /// The faults of its end of the wire.
    pub control: FaultControl,
    link: SharedLink,
    current: Option<LinkId>,
    stalled_until: Time,
    /// Counters of devices that died with their hosts.
    buried: Buried,
}

#[derive(Clone, Copy, Default)]
struct Buried {
    no_recv_wqe: u64,
}

/// Two hosts on one wire in one world.
pub struct Pair {
    world: World,
    hosts: [PairHost; 2],
    /// What must hold.
    pub oracle: Oracle,
    config: PairConfig,
    life: u32,
    lives: u32,
    agenda: BTreeMap<(Time, u64), (usize, Happening)>,
    agenda_sequence: u64,
    woken: Vec<HostId>,
    steps: u64,
    totals: LinkStats,
    seals: Seals,
}

/// What the seals of links did that were closed or died, both ends together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seals {
    /// What they refused.
    pub refused: Refusals,
    /// How often keys rolled over.
    pub roll_overs: u64,
}

impl Pair {
    /// Two fresh hosts that know nothing of each other.
    ///
    /// # Errors
    /// [`Failure`] when an endpoint cannot be made.
    pub fn new(config: PairConfig) -> Result<Self, Failure> {
        let world = World::new(config.seed);
        world.keep_trace(TRACE_TAIL);
        let (near, far) = lay(&world, &config);
        let host = |end, number: u8| {
            let control = FaultControl::new(FaultPlan::none());
            let faulty = FaultLink::new(end, world.next_seed(), control.clone());
            let link = SharedLink::new(faulty);
            let endpoint = make_endpoint(&config, &world, &link)?;
            let app = App::new(number, config.seed);
            let (current, stalled_until) = (None, Time::ZERO);
            let buried = Buried::default();
            Ok::<_, Cause>(PairHost {
                endpoint,
                app,
                control,
                link,
                current,
                stalled_until,
                buried,
            })
        };
        let made = [host(near, 0), host(far, 1)];
        let hosts = match made {
            [Ok(near), Ok(far)] => [near, far],
            [Err(cause), _] | [_, Err(cause)] => {
                return Err(Failure { cause, at: world.now(), scene: Box::default() });
            }
        };
        Ok(Self {
            world,
            hosts,
            oracle: Oracle::new(),
            config,
            life: 0,
            lives: 0,
            agenda: BTreeMap::new(),
            agenda_sequence: 0,
            woken: Vec::new(),
            steps: 0,
            totals: LinkStats::default(),
            seals: Seals::default(),
        })
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A host.
    #[must_use]
    pub fn host(&self, host: usize) -> &PairHost {
        &self.hosts[host]
    }

    /// A host, to give its application something to do.
    pub fn host_mut(&mut self, host: usize) -> &mut PairHost {
        &mut self.hosts[host]
    }

    /// The life of the link that is on, from 0.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The link of a host that is on.
    #[must_use]
    pub fn link(&self, host: usize) -> Option<LinkId> {
        self.hosts[host].current
    }

    /// Steps so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The counters of all links that were closed or died, both ends together.
    #[must_use]
    pub fn totals(&self) -> LinkStats {
        self.totals
    }

    /// What the seals of these links did, where they are sealed.
    #[must_use]
    pub fn seals(&self) -> Seals {
        self.seals
    }

    /// A failure now.
    #[must_use]
    pub fn failure(&self, cause: impl Into<Cause>) -> Failure {
        let state = |host: &PairHost| HostState {
            unsent: host.app.unsent(),
            in_doubt: host.app.in_doubt(),
            link: host.current.and_then(|link| host.endpoint.stats(link)),
            device: host.endpoint.device().counters(),
            faults: host.control.counters(),
            buffers: host.endpoint.buffers(),
        };
        let scene = Scene {
            trace: self.world.recent_trace(),
            unsettled: self.oracle.unsettled(self.life),
            hosts: self.hosts.iter().map(state).collect(),
        };
        Failure { cause: cause.into(), at: self.world.now(), scene: Box::new(scene) }
    }

    /// Joins the hosts by a new link, whose HELLOs meet no fault.
    ///
    /// # Errors
    /// [`Failure`] when one refuses.
    pub fn join(&mut self) -> Result<(), Failure> {
        let [near, far] = &mut self.hosts;
        let joined = (|| {
            let (near_hello, near_half) = near.endpoint.offer()?;
            let (far_hello, far_half) = far.endpoint.offer()?;
            Ok::<_, towpath_transport::LinkError>((
                near.endpoint.establish(near_half, &far_hello, Side::Client)?,
                far.endpoint.establish(far_half, &near_hello, Side::Server)?,
            ))
        })();
        let (near_link, far_link) = joined.map_err(|error| self.failure(error))?;
        self.life = self.lives;
        self.lives += 1;
        for (host, link) in self.hosts.iter_mut().zip([near_link, far_link]) {
            host.current = Some(link);
            host.app.begin_life(link, self.life);
        }
        Ok(())
    }

    /// A host dies and comes back at once: its memory is gone, its device has the same queue
    /// pairs as before, and the wire is as it was.
    ///
    /// # Errors
    /// [`Failure`] when an endpoint cannot be made.
    pub fn restart(&mut self, host: usize) -> Result<(), Failure> {
        self.count(host);
        let endpoint = make_endpoint(&self.config, &self.world, &self.hosts[host].link);
        let endpoint = endpoint.map_err(|cause| self.failure(cause))?;
        let host_of = &mut self.hosts[host];
        host_of.buried.no_recv_wqe += host_of.endpoint.device().counters().no_recv_wqe;
        // What the application held goes with it.
        host_of.app = App::new(host as u8, self.config.seed);
        host_of.endpoint = endpoint;
        host_of.current = None;
        Ok(())
    }

    /// Takes the counters of a host's link in, before it is gone.
    pub fn count(&mut self, host: usize) {
        let Some(link) = self.hosts[host].current else { return };
        let Some(stats) = self.hosts[host].endpoint.stats(link) else { return };
        self.totals += stats;
        if let Some(security) = self.hosts[host].endpoint.security(link) {
            self.seals.refused.add(security.refusals);
            self.seals.roll_overs += security.state.epoch;
        }
        if stats.violations > 0 {
            self.oracle.report(Violation::Rules { host, stats: Box::new(stats) });
        }
    }

    /// The counters of a host's device, as far as they tell of this life of it.
    #[must_use]
    pub fn device_counters(&self, host: usize) -> RoceCounters {
        let host = &self.hosts[host];
        let counters = host.endpoint.device().counters();
        let no_recv_wqe = counters.no_recv_wqe + host.buried.no_recv_wqe;
        RoceCounters { no_recv_wqe, ..counters }
    }

    /// Lets something happen at a time.
    pub fn schedule(&mut self, at: Time, host: usize, what: Happening) {
        self.agenda.insert((at, self.agenda_sequence), (host, what));
        self.agenda_sequence += 1;
    }

    /// Nothing that was scheduled happens any more.
    pub fn clear_agenda(&mut self) {
        self.agenda.clear();
    }

    fn let_happen(&mut self) {
        let now = self.world.now();
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let (host, what) = entry.remove();
            let host = &mut self.hosts[host];
            match what {
                Happening::Faults(plan) => host.control.set_receive(plan),
                Happening::Holes(ports) => {
                    host.control.set_transmit(FaultPlan::none().black_hole_ports(ports));
                }
                Happening::Stall(until) => host.stalled_until = host.stalled_until.max(until),
                Happening::StopReading(until) => host.app.stop_reading_until(until),
                Happening::Wake => {}
            }
        }
    }

    /// Lets both hosts do all they can now.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        for number in 0..2 {
            let PairHost { endpoint, app, stalled_until, .. } = &mut self.hosts[number];
            if *stalled_until > now {
                continue;
            }
            let mut turns = 0;
            loop {
                let mut busy = endpoint.poll() > 0;
                while let Some(event) = endpoint.next_event() {
                    busy = true;
                    app.on_event(endpoint, event, &mut self.oracle);
                }
                app.act(endpoint, &mut self.oracle);
                endpoint.flush();
                if !busy {
                    break;
                }
                turns += 1;
                if turns == TURNS_PER_INSTANT_MAX {
                    return Err(self.failure(Cause::Restless(number)));
                }
            }
        }
        Ok(())
    }

    /// When something is due beside packets that come in.
    fn next_time(&self) -> Time {
        let agenda = self.agenda.first_key_value().map_or(Time::NEVER, |(key, _)| key.0);
        let now = self.world.now();
        let of_host = |host: &PairHost| {
            if host.stalled_until > now {
                return host.stalled_until;
            }
            let held = host.link.link().next_release().unwrap_or(Time::NEVER);
            held.min(host.endpoint.next_timeout()).min(host.app.next_time(now))
        };
        self.hosts.iter().map(of_host).fold(agenda, Time::min)
    }

    /// Drives both until `done`.
    ///
    /// # Errors
    /// [`Failure`] as soon as a promise is broken, nothing is due any more, or it takes too long.
    pub fn run_until(
        &mut self,
        what: &'static str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        let end = self.world.now() + WAIT_MAX;
        loop {
            self.let_happen();
            self.turn()?;
            if !self.oracle.violations().is_empty() {
                return Err(self.failure(Cause::Broken(self.oracle.violations().to_vec())));
            }
            if done(self) {
                return Ok(());
            }
            self.steps += 1;
            let (next, pause_ends) = (self.next_time(), self.world.now() + self.config.pause);
            if !self.advance(next.min(end)) && next == Time::NEVER {
                return Err(self.failure(Cause::Dead(what)));
            }
            if self.steps > STEPS_MAX || self.world.now() >= end {
                return Err(self.failure(Cause::Endless(what)));
            }
            self.world.advance_to(pause_ends);
            self.advance(self.world.now());
        }
    }

    /// Goes on to `limit`, or to where a host has something to do; false in the first case.
    fn advance(&mut self, limit: Time) -> bool {
        // Both are looked at in any case.
        self.woken.clear();
        self.world.advance_to_next(limit, &mut self.woken)
    }

    /// Drives both for `span`.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run_for(&mut self, span: Nanos) -> Result<(), Failure> {
        let end = self.world.now() + span;
        self.schedule(end, 0, Happening::Wake);
        self.run_until("time passes", |pair| pair.world.now() >= end)
    }
}

/// The two ends, on a wire or on leaf switches.
fn lay(world: &World, config: &PairConfig) -> (VirtualLink, VirtualLink) {
    let wire = &config.wire;
    if config.spines == 0 {
        return world.link(wire);
    }
    let delay = Nanos(wire.delay.0 / 4);
    let (rate_bits_per_s, overhead_bytes) = (wire.rate_bits_per_s, wire.overhead_bytes);
    let switch = SwitchConfig { port_buffer_bytes: wire.queue_bytes, ..SwitchConfig::default() };
    let host = HostConfig {
        rate_bits_per_s,
        delay,
        overhead_bytes,
        source_ports: wire.source_ports,
        packet_bytes_max: wire.packet_bytes_max,
        rx_buffer_bytes: wire.rx_buffer_bytes,
        rx_charge_bytes: wire.rx_charge_bytes,
        ..HostConfig::default()
    };
    let leaves = [(); 2].map(|()| world.add_switch(&switch));
    for _ in 0..config.spines {
        let spine = world.add_switch(&switch);
        for leaf in leaves {
            let cable =
                CableConfig { rate_bits_per_s, delay, overhead_bytes, ..CableConfig::default() };
            world.connect(leaf, spine, &cable);
        }
    }
    let [near, far] = leaves.map(|leaf| world.end(world.add_host(leaf, &host)));
    (near, far)
}

/// An endpoint in its next life: the same queue pair numbers, another instance, other generations.
fn make_endpoint(
    config: &PairConfig,
    world: &World,
    link: &SharedLink,
) -> Result<Endpoint<LabDevice>, Cause> {
    let roce = RoceConfig::default().seed(config.seed).qp_max(64);
    let device = LabDevice::new(link.clone(), roce, config.seed as u32);
    Ok(Endpoint::new(device, config.endpoint.clone().seed(world.next_seed()))?)
}
