//! Two endpoints in virtual time, on one wire with faults.

use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::Side;
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};
use towpath_transport::{Endpoint, EndpointConfig, Event, LinkId};

pub(crate) type Device = RoceDevice<FaultLink<VirtualLink>>;

/// Virtual time after which a run that is not done has failed.
const END: Time = Time(120_000_000_000);

pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) near: Endpoint<Device>,
    pub(crate) far: Endpoint<Device>,
    pub(crate) near_link: LinkId,
    pub(crate) far_link: LinkId,
}

impl Lab {
    /// Two endpoints like this with a link between them; what both receive meets the faults.
    pub(crate) fn new(seed: u64, plan: &FaultPlan, config: &EndpointConfig) -> Self {
        let world = World::new(seed);
        let (a, b) = world.link(&LinkConfig::default());
        let end = |link, salt| {
            let link = FaultLink::new(link, world.next_seed(), FaultControl::new(plan.clone()));
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed ^ salt));
            Endpoint::new(device, config.clone().seed(seed ^ salt << 8)).expect("a small endpoint")
        };
        let (mut near, mut far) = (end(a, 1), end(b, 2));
        let (near_hello, near_half) = near.offer().expect("room");
        let (far_hello, far_half) = far.offer().expect("room");
        let near_link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
        let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");
        Self { world, near, far, near_link, far_link }
    }

    /// Turns both ends as time goes on, until `on_event` says that it is done. The first argument
    /// says whether the event is of the near end.
    pub(crate) fn run(
        &mut self,
        mut on_event: impl FnMut(bool, &mut Endpoint<Device>, Event) -> bool,
    ) {
        let mut done = false;
        while !done {
            let mut busy = self.near.turn(|at, event| done |= on_event(true, at, event));
            busy |= self.far.turn(|at, event| done |= on_event(false, at, event));
            if !busy {
                self.pass();
            }
        }
    }

    /// Lets time go on to what comes next.
    pub(crate) fn pass(&mut self) {
        let held = |end: &Endpoint<Device>| end.device().link().next_release();
        let times = [held(&self.near), held(&self.far), self.world.next_event_time()];
        let timers = self.near.next_timeout().min(self.far.next_timeout());
        let next = times.into_iter().flatten().fold(timers, Time::min);
        let ends = [(&self.near, self.near_link), (&self.far, self.far_link)];
        let state = ends.map(|(end, link)| (end.stats(link), end.lane(link)));
        assert!(next < END, "nothing more happens, or not in time: {state:#?}");
        self.world.advance_to(next.max(self.world.now() + Nanos(1)));
    }
}
