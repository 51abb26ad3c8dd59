//! For tests: two endpoints with one link between them, on a simulated network that loses nothing.

use super::{Endpoint, join};
use crate::config::EndpointConfig;
use crate::ids::LinkId;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::{LinkConfig, VirtualLink, World};

pub(super) type End = Endpoint<RoceDevice<VirtualLink>>;

pub(super) struct Joined {
    pub world: World,
    pub near: End,
    pub far: End,
    /// The link, as `near` names it.
    pub near_link: LinkId,
    /// The same link, as `far` names it.
    pub far_link: LinkId,
}

/// Both ends are of `config`, but for the seed.
pub(super) fn joined(config: &EndpointConfig) -> Joined {
    let world = World::new(1);
    let (near, far) = world.link(&LinkConfig::default());
    let end = |link, seed| {
        let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
        Endpoint::new(device, config.clone().seed(seed)).expect("an endpoint")
    };
    let (mut near, mut far) = (end(near, 1), end(far, 2));
    let (near_link, far_link) = join(&mut near, &mut far).expect("they fit");
    Joined { world, near, far, near_link, far_link }
}
