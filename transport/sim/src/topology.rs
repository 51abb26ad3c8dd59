//! Whole fabrics: one switch, leaves and spines, two pods.
//!
//! All are made of [`World::add_switch`], [`World::add_host`] and [`World::connect`], and so can
//! any other be. Hosts that differ are given one by one: [`Star::build_with`] and its like ask for
//! the configuration of each.

use crate::world::{CableConfig, HostConfig, HostId, LinkId, SwitchConfig, SwitchId, World};
use towpath_base::Nanos;

/// What was built.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    /// The hosts, leaf by leaf.
    pub hosts: Vec<HostId>,
    /// The switches that hosts are on.
    pub leaves: Vec<SwitchId>,
    /// The switches between leaves, pod by pod.
    pub spines: Vec<SwitchId>,
    /// The switches between pods.
    pub cores: Vec<SwitchId>,
    /// The cables between leaves and spines, leaf by leaf, forth from the leaf to the spine.
    pub uplinks: Vec<LinkId>,
    /// The cables between spines and cores, spine by spine, forth from the spine to the core.
    pub core_links: Vec<LinkId>,
}

/// Hosts on one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Star {
    /// How many hosts.
    pub hosts: usize,
    /// What each host is like.
    pub host: HostConfig,
    /// What the switch is like.
    pub switch: SwitchConfig,
}

/// Leaf switches with hosts, each connected to each spine switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// How many leaves.
    pub leaves: usize,
    /// How many hosts on each.
    pub hosts_per_leaf: usize,
    /// How many spines: so many equal paths lead from leaf to leaf.
    pub spines: usize,
    /// What each host is like.
    pub host: HostConfig,
    /// What each switch is like.
    pub switch: SwitchConfig,
    /// The cables between leaves and spines.
    pub uplink: CableConfig,
}

/// Two fabrics of leaves and spines, alike, joined by core switches, each connected to each spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoPods {
    /// What each pod is like.
    pub pod: LeafSpine,
    /// How many cores.
    pub cores: usize,
    /// What each core is like.
    pub core: SwitchConfig,
    /// The cables between spines and cores.
    pub core_link: CableConfig,
}

impl Default for Star {
    fn default() -> Self {
        Self { hosts: 2, host: HostConfig::default(), switch: SwitchConfig::default() }
    }
}

impl Default for LeafSpine {
    /// 4 leaves with 8 hosts and 4 spines, all at 100 Gb/s: what leaves can send up is half of
    /// what their hosts can send.
    fn default() -> Self {
        Self {
            leaves: 4,
            hosts_per_leaf: 8,
            spines: 4,
            host: HostConfig::default(),
            switch: SwitchConfig::default(),
            uplink: CableConfig::default(),
        }
    }
}

impl Default for TwoPods {
    /// Two pods as [`LeafSpine`] has them, 2 cores, and 20 us of 400 Gb/s cable to them.
    fn default() -> Self {
        Self {
            pod: LeafSpine::default(),
            cores: 2,
            core: SwitchConfig::default(),
            core_link: CableConfig {
                rate_bits_per_s: 400_000_000_000,
                delay: Nanos::from_micros(20),
                ..CableConfig::default()
            },
        }
    }
}

impl Star {
    /// Builds it.
    #[must_use]
    pub fn build(&self, world: &World) -> Fabric {
        self.build_with(world, |_| self.host)
    }

    /// Builds it with a host of its own kind for each number from 0.
    #[must_use]
    pub fn build_with(&self, world: &World, host: impl FnMut(usize) -> HostConfig) -> Fabric {
        let mut fabric = Fabric::default();
        fabric.add_leaf(world, &self.switch, self.hosts, host);
        fabric
    }
}

impl LeafSpine {
    /// Builds it.
    #[must_use]
    pub fn build(&self, world: &World) -> Fabric {
        self.build_with(world, |_| self.host)
    }

    /// Builds it with a host of its own kind for each number from 0, leaf by leaf.
    #[must_use]
    pub fn build_with(&self, world: &World, host: impl FnMut(usize) -> HostConfig) -> Fabric {
        let mut fabric = Fabric::default();
        fabric.add_pod(world, self, host);
        fabric
    }
}

impl TwoPods {
    /// Builds it.
    #[must_use]
    pub fn build(&self, world: &World) -> Fabric {
        self.build_with(world, |_| self.pod.host)
    }

    /// Builds it with a host of its own kind for each number from 0, pod by pod and leaf by leaf.
    #[must_use]
    pub fn build_with(&self, world: &World, mut host: impl FnMut(usize) -> HostConfig) -> Fabric {
        let mut fabric = Fabric::default();
        fabric.add_pod(world, &self.pod, &mut host);
        fabric.add_pod(world, &self.pod, &mut host);
        fabric.cores = (0..self.cores).map(|_| world.add_switch(&self.core)).collect();
        for spine in &fabric.spines {
            for core in &fabric.cores {
                fabric.core_links.push(world.connect(*spine, *core, &self.core_link));
            }
        }
        fabric
    }
}

impl Fabric {
    fn add_pod(
        &mut self,
        world: &World,
        pod: &LeafSpine,
        mut host: impl FnMut(usize) -> HostConfig,
    ) {
        let first_leaf = self.leaves.len();
        for _ in 0..pod.leaves {
            self.add_leaf(world, &pod.switch, pod.hosts_per_leaf, &mut host);
        }
        let spines: Vec<SwitchId> =
            (0..pod.spines).map(|_| world.add_switch(&pod.switch)).collect();
        for leaf in &self.leaves[first_leaf..] {
            for spine in &spines {
                self.uplinks.push(world.connect(*leaf, *spine, &pod.uplink));
            }
        }
        self.spines.extend(spines);
    }

    fn add_leaf(
        &mut self,
        world: &World,
        switch: &SwitchConfig,
        hosts: usize,
        mut host: impl FnMut(usize) -> HostConfig,
    ) {
        let leaf = world.add_switch(switch);
        for _ in 0..hosts {
            let config = host(self.hosts.len());
            self.hosts.push(world.add_host(leaf, &config));
        }
        self.leaves.push(leaf);
    }
}
