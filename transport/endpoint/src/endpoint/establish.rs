//! Joining our half of a link with the peer's.

use super::Endpoint;
use crate::carrier::Fallback;
use crate::conn::{PendingLink, Phase};
use crate::error::LinkError;
use crate::event::Peer;
use crate::ids::LinkId;
use crate::limits::WINDOW_UNBOUNDED_BYTES;
use crate::tcp::ByteStream;
use crate::workers::Member;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use towpath_memory::Region;
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::wire::{AppProtocol, Hello, HelloPath};
use towpath_proto::{Carrier, Link, PacketSizes, PeerParams, Side};
use towpath_verbs::{Connect, Device, DeviceCaps, Mtu, VerbError};

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// A link's share of what the device can hold, when there are `links` of them.
    pub(super) fn window_bytes(&self, links: usize) -> u64 {
        match self.plan.window_bytes {
            Some(bytes) => bytes / links.max(1) as u64,
            None => WINDOW_UNBOUNDED_BYTES,
        }
    }

    /// Shares the device's receive buffer among the links that are up.
    pub(super) fn share_window(&mut self) {
        let share = self.window_bytes(self.links.up_count());
        for conn in self.links.iter_mut().filter(|conn| conn.phase == Phase::Up) {
            if let Some(link) = &mut conn.link {
                link.set_receive_window(share);
            }
        }
    }

    /// Joins our half with the peer's. `side` decides who opens channels with even numbers:
    /// one end is the client, the other the server.
    ///
    /// Other links stay as they are, whatever `peer` says of its address and instance: that a peer
    /// is gone shows in its set-up connection, or in its silence.
    ///
    /// # Errors
    /// [`LinkError`]; our half is withdrawn.
    pub fn establish(
        &mut self,
        pending: PendingLink,
        peer: &Hello,
        side: Side,
    ) -> Result<LinkId, LinkError> {
        self.establish_from(pending, peer, side, (None, false))
    }

    /// As [`establish`](Self::establish), for a half that
    /// [`offer_on_stream`](Self::offer_on_stream) made: `stream` leads to the peer, and carries
    /// nothing yet.
    ///
    /// # Errors
    /// [`LinkError`]; our half is withdrawn.
    pub fn establish_on_stream(
        &mut self,
        pending: PendingLink,
        peer: &Hello,
        side: Side,
        stream: impl ByteStream + 'static,
    ) -> Result<LinkId, LinkError> {
        let link = self.establish_from(pending, peer, side, (None, true))?;
        // A link that has no path for it does without.
        drop(self.give_stream(link, stream, (Vec::new(), false)));
        Ok(link)
    }

    /// With the address that the HELLOs came over, and whether there is a stream.
    pub(super) fn establish_from(
        &mut self,
        pending: PendingLink,
        peer: &Hello,
        side: Side,
        setup: (Option<SocketAddr>, bool),
    ) -> Result<LinkId, LinkError> {
        let id = pending.id;
        match self.join_half(id, peer, side, setup) {
            Ok(()) => {
                self.share_window();
                Ok(id)
            }
            Err(error) => {
                self.withdraw(pending);
                Err(error)
            }
        }
    }

    fn join_half(
        &mut self,
        id: LinkId,
        peer: &Hello,
        side: Side,
        (setup_addr, has_stream): (Option<SocketAddr>, bool),
    ) -> Result<(), LinkError> {
        let conn = self.links.find(id).filter(|conn| conn.phase == Phase::Offered);
        let ours = conn.and_then(|conn| conn.agreed.hello.clone()).ok_or(LinkError::NotPending)?;
        let mtu = ours.mtu.min(peer.mtu);
        let omits_icrc = ours.omits_icrc && peer.omits_icrc;
        check_limits(&ours, peer, mtu)?;
        if !has_stream && ours.paths.iter().any(|path| path.carrier == Carrier::Tcp) {
            return Err(LinkError::NoStream);
        }
        if ours.paths.iter().any(|path| path.carrier != Carrier::Tcp) {
            self.check_way(peer.addr, mtu)?;
        }
        self.connect_qps((&ours, peer), mtu, omits_icrc)?;
        let now = self.device.now();
        let pair = |(mine, theirs): (&HelloPath, &HelloPath)| (mine.generation, theirs.generation);
        let params = PeerParams {
            mtu,
            chunk_bytes_max: peer.chunk_bytes_max.min(self.config.sizes.chunk_bytes_max),
            charge_bytes: peer.charge_bytes,
            window_bytes: peer.window_bytes,
            path_chunks: peer.path_chunks,
            generations: ours.paths.iter().zip(&peer.paths).map(pair).collect(),
            carriers: ours.paths.iter().map(|path| path.carrier).collect(),
            control_generations: (ours.control.generation, peer.control.generation),
        };
        let own_carrier = |path: &&HelloPath| path.carrier == ours.control.carrier;
        let paths = ours.paths.iter().filter(own_carrier).count();
        let config = self.config.link_config(side, self.device.caps(), paths);
        let config = config.seed(link_seed(&ours)).checks_address(setup_addr.is_some());
        let config = config.packet_sizes(packet_sizes(self.device.caps(), peer));
        let mut link = Link::new(config, params, now);
        link.set_away(self.sleep.absence());
        let ports: Vec<u16> = (0..ours.paths.len()).map(|path| self.source_port_of(path)).collect();
        let seat = self.identity.member.as_ref().map(Member::seat);
        if let Some(conn) = self.links.find_mut(id) {
            conn.seat = seat;
            for (path, port) in conn.paths.iter_mut().zip(ports) {
                path.source_port = port;
            }
            conn.link = Some(link);
            conn.agreed.mtu = Some(mtu);
            conn.agreed.omits_icrc = omits_icrc;
            conn.phase = Phase::Up;
            self.tx.order.joined(ours.class);
            let (instance, device_addr, class) = (peer.instance, peer.addr, peer.class);
            conn.class.dscp_of_peer = peer.dscp;
            conn.agreed.dialled = setup_addr.filter(|_| side == Side::Client);
            conn.agreed.peer = Some(Peer { instance, device_addr, setup_addr, class });
        }
        self.links.touch(id.index);
        Ok(())
    }

    /// Joins our queue pairs with the peer's.
    fn connect_qps(
        &mut self,
        (ours, peer): (&Hello, &Hello),
        mtu: Mtu,
        omits_icrc: bool,
    ) -> Result<(), VerbError> {
        let rc = self.config.rc_of(Fallback::of(ours));
        let pairs = iter::once((&ours.control, &peer.control));
        for (index, (mine, theirs)) in pairs.chain(ours.paths.iter().zip(&peer.paths)).enumerate() {
            if mine.carrier == Carrier::Tcp {
                continue;
            }
            // The control queue pair takes the first path's way.
            let source_port = self.source_port_of(index.saturating_sub(1));
            let connect = Connect {
                dest: peer.addr,
                dest_qp_num: theirs.qp_num,
                rq_psn: theirs.psn,
                sq_psn: mine.psn,
                path_mtu: mtu,
                source_port,
                tclass: self.config.class.tclass(ours.class),
                rc,
            };
            if omits_icrc && mine.carrier == Carrier::Uc {
                self.device.omit_icrc(mine.qp_num)?;
            }
            self.device.connect_qp(mine.qp_num, &connect)?;
        }
        Ok(())
    }

    /// Which source port a path begins with.
    fn source_port_of(&self, path: usize) -> u16 {
        path as u16 % self.device.caps().source_ports.max(1)
    }
}

/// Links two endpoints that are both here, the first as the client; gives the link of each.
#[cfg(any(test, feature = "mem"))]
pub(crate) fn join<D: Device<Memory = Region>>(
    near: &mut Endpoint<D>,
    far: &mut Endpoint<D>,
) -> Result<(LinkId, LinkId), LinkError> {
    let (near_hello, near_half) = near.offer()?;
    let (far_hello, far_half) = far.offer()?;
    let near_link = near.establish(near_half, &far_hello, Side::Client)?;
    let far_link = far.establish(far_half, &near_hello, Side::Server)?;
    Ok((near_link, far_link))
}

/// Random because generation and instance are, and the same whenever they are.
fn link_seed(ours: &Hello) -> u64 {
    ours.instance ^ u64::from(ours.control.generation) << 32
}

pub(super) fn check_app(ours: AppProtocol, peer: &Hello) -> Result<(), LinkError> {
    if ours == peer.app { Ok(()) } else { Err(LinkError::App { theirs: peer.app, ours }) }
}

/// Whether a packet can be sent to an address, and to one host alone.
fn is_of_one_host(addr: SocketAddr) -> bool {
    let ip = addr.ip().to_canonical();
    let broadcast = IpAddr::V4(Ipv4Addr::BROADCAST);
    addr.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && ip != broadcast
}

fn is_v4(addr: SocketAddr) -> bool {
    addr.ip().to_canonical().is_ipv4()
}

fn check_limits(ours: &Hello, peer: &Hello, mtu: Mtu) -> Result<(), LinkError> {
    check_app(ours.app, peer)?;
    let has_queue_pairs = ours.paths.iter().any(|path| path.carrier != Carrier::Tcp);
    if has_queue_pairs && !is_of_one_host(peer.addr) {
        return Err(LinkError::Address { theirs: peer.addr });
    }
    if has_queue_pairs && is_v4(peer.addr) != is_v4(ours.addr) {
        return Err(LinkError::Family { theirs: peer.addr, ours: ours.addr });
    }
    if ours.class != peer.class {
        return Err(LinkError::Class { theirs: peer.class });
    }
    if ours.paths.len() != peer.paths.len() {
        return Err(LinkError::Paths { theirs: peer.paths.len(), ours: ours.paths.len() });
    }
    let pairs = iter::once((&ours.control, &peer.control));
    for (mine, theirs) in pairs.chain(ours.paths.iter().zip(&peer.paths)) {
        if mine.carrier != theirs.carrier {
            return Err(LinkError::Carrier { theirs: theirs.carrier, ours: mine.carrier });
        }
    }
    let needed = mtu.bytes() - HEADER_BYTES as u32;
    if peer.chunk_bytes_max.min(ours.chunk_bytes_max) < needed {
        return Err(LinkError::ChunkBytes { theirs: peer.chunk_bytes_max, needed });
    }
    Ok(())
}

/// How a link goes on where a path carries less than what was agreed on.
fn packet_sizes(caps: &DeviceCaps, peer: &Hello) -> PacketSizes {
    match caps.cuts_each_send && peer.cuts_each_send {
        _ if caps.delivers_intact => PacketSizes::Fixed,
        true => PacketSizes::Cut,
        false => PacketSizes::Lone,
    }
}
