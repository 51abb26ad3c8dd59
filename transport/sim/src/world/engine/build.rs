//! Laying cables, setting up switches and hosts.

use super::Engine;
use crate::limits::{CLASSES, HOSTS_MAX, SOURCE_PORTS_MAX};
use crate::world::change::Health;
use crate::world::config::{
    CableConfig, HostConfig, HostDelay, LinkConfig, SwitchConfig, Timestamps,
};
use crate::world::host::{Berth, Host, HostParts};
use crate::world::ids::{HostId, LinkId, Node, SwitchId, WireId};
use crate::world::queue::Ingress;
use crate::world::routes::Hop;
use crate::world::switch::Switch;
use crate::world::turns::QueueConfig;
use crate::world::wire::{Wire, WireConfig};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use towpath_base::Nanos;
use towpath_verbs::{LinkCaps, QpShare};

/// The port of hosts whose addresses are the world's own: that of RoCEv2.
const UDP_PORT: u16 = 4791;
/// The first address of such a host less one: 10.0.0.0.
const ADDRESS_BASE: u32 = 10 << 24;

impl Engine {
    /// Lays a cable between two new hosts.
    pub(in crate::world) fn lay_link(&mut self, config: &LinkConfig) -> [HostId; 2] {
        let wire_config = WireConfig {
            rate_bits_per_s: config.rate_bits_per_s,
            delay: config.delay,
            queue_bytes: config.queue_bytes,
            overhead_bytes: config.overhead_bytes,
            ecn: None,
            queues: [QueueConfig::default(); CLASSES],
        };
        let caps = LinkCaps {
            packet_bytes_max: config.packet_bytes_max,
            source_ports: config.source_ports.min(SOURCE_PORTS_MAX),
            rx_buffer_bytes: Some(config.rx_buffer_bytes),
            rx_charge_bytes: config.rx_charge_bytes,
            delay_noise: Nanos::ZERO,
            foreign_peers: false,
            qp_share: QpShare::ALL,
        };
        let ends = [0, 1].map(|end| HostId((self.hosts.len() + end) as u32));
        let link = self.lay_cable(ends.map(Node::Host), [wire_config; 2]);
        for (addr, wire) in config.addrs.into_iter().zip([link.forth(), link.back()]) {
            let parts = HostParts {
                addr,
                caps,
                wire,
                is_patient: false,
                delays: [HostDelay::default(); 2],
                timestamps: Timestamps::Wire,
                send_times: Timestamps::Software,
                rx_buffer_bytes: config.rx_buffer_bytes,
                seed: self.next_seed(),
            };
            self.hosts.push(Host::new(&parts));
            self.berths.push(Berth::of_link(wire));
        }
        ends
    }

    pub(in crate::world) fn add_switch(&mut self, config: &SwitchConfig) -> SwitchId {
        let id = SwitchId(self.switches.len() as u32);
        let salt = self.next_seed();
        self.switches.push(Switch { config: *config, salt, health: Health::Up, has_hosts: false });
        self.routes = None;
        id
    }

    /// Adds a host to a switch; `None` when there are no more addresses.
    pub(in crate::world) fn add_host(
        &mut self,
        leaf: SwitchId,
        config: &HostConfig,
    ) -> Option<HostId> {
        if self.addressed.len() >= HOSTS_MAX {
            return None;
        }
        let id = HostId(self.hosts.len() as u32);
        let uplink = WireConfig {
            rate_bits_per_s: config.rate_bits_per_s,
            delay: config.delay,
            queue_bytes: config.nic_queue_bytes,
            overhead_bytes: config.overhead_bytes,
            ecn: None,
            queues: config.nic_queues,
        };
        let downlink = self.behind(leaf, uplink);
        let link = self.lay_cable([Node::Host(id), Node::Switch(leaf)], [uplink, downlink]);
        let ip = Ipv4Addr::from(ADDRESS_BASE + 1 + self.addressed.len() as u32);
        if config.heeds_pauses {
            self.pause_on_demand(link.forth(), leaf);
        }
        let parts = HostParts {
            addr: SocketAddr::new(IpAddr::V4(ip), UDP_PORT),
            caps: LinkCaps {
                packet_bytes_max: config.packet_bytes_max,
                source_ports: config.source_ports.min(SOURCE_PORTS_MAX),
                rx_buffer_bytes: Some(config.rx_buffer_bytes),
                rx_charge_bytes: config.rx_charge_bytes,
                delay_noise: config.delay_noise,
                foreign_peers: false,
                qp_share: QpShare::ALL,
            },
            wire: link.forth(),
            is_patient: true,
            delays: [config.tx_delay, config.rx_delay],
            timestamps: config.timestamps,
            send_times: config.send_times,
            rx_buffer_bytes: config.rx_buffer_bytes,
            seed: self.next_seed(),
        };
        self.wires[link.forth().index()].is_prompt = config.tx_delay == HostDelay::default();
        self.addressed.push(id.0);
        self.hosts.push(Host::new(&parts));
        self.berths.push(Berth { leaf: leaf.0, wire: link.back() });
        self.switches[leaf.index()].has_hosts = true;
        self.routes = None;
        Some(id)
    }

    pub(in crate::world) fn connect(
        &mut self,
        ends: [SwitchId; 2],
        config: &CableConfig,
    ) -> LinkId {
        let way = WireConfig {
            rate_bits_per_s: config.rate_bits_per_s,
            delay: config.delay,
            queue_bytes: 0,
            overhead_bytes: config.overhead_bytes,
            ecn: None,
            queues: [QueueConfig::default(); CLASSES],
        };
        let link = self.lay_cable(ends.map(Node::Switch), ends.map(|end| self.behind(end, way)));
        if config.heeds_pauses {
            self.pause_on_demand(link.forth(), ends[1]);
            self.pause_on_demand(link.back(), ends[0]);
        }
        self.hops.push(Hop { from: ends[0].0, to: ends[1].0, wire: link.forth() });
        self.hops.push(Hop { from: ends[1].0, to: ends[0].0, wire: link.back() });
        self.routes = None;
        link
    }

    /// The host that has an address, as far as packets from `host` get.
    pub(super) fn host_at(&self, host: HostId, addr: SocketAddr) -> Option<u32> {
        match self.wires[self.hosts[host.index()].wire.index()].to {
            Node::Host(peer) => self.host(peer).is_at(addr).then_some(peer.0),
            Node::Switch(_) => {
                let (IpAddr::V4(ip), UDP_PORT) = (addr.ip(), addr.port()) else { return None };
                let index = u32::from(ip).checked_sub(ADDRESS_BASE + 1)?;
                self.addressed.get(index as usize).copied()
            }
        }
    }

    /// Has a switch pause a wire that leads to it, where it does so.
    fn pause_on_demand(&mut self, wire: WireId, switch: SwitchId) {
        let pfc = self.switches[switch.index()].config.pfc;
        self.wires[wire.index()].ingress = pfc.map(|pfc| Box::new(Ingress::new(pfc)));
    }

    /// A wire with the queues that a switch puts in front of it.
    fn behind(&self, switch: SwitchId, wire: WireConfig) -> WireConfig {
        let config = &self.switches[switch.index()].config;
        let SwitchConfig { port_buffer_bytes: queue_bytes, ecn, queues, .. } = *config;
        WireConfig { queue_bytes, ecn, queues, ..wire }
    }

    /// Lays a cable; each end has a configuration for the wire away from it.
    fn lay_cable(&mut self, [near, far]: [Node; 2], configs: [WireConfig; 2]) -> LinkId {
        let forth = WireId(self.wires.len() as u32);
        for (config, ends) in configs.into_iter().zip([[near, far], [far, near]]) {
            let mut wire = Wire::new(&config, ends, self.next_seed());
            if let Node::Switch(switch) = ends[0] {
                wire.is_watched = self.switches[switch.index()].config.pfc.is_some();
            }
            self.wires.push(wire);
        }
        forth.link()
    }
}
