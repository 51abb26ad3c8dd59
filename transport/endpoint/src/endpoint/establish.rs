//! Joining our half of a link with the peer's.

use super::Endpoint;
use crate::carrier::Fallback;
use crate::conn::{Conn, PendingLink, Phase};
use crate::error::LinkError;
use crate::event::Peer;
use crate::ids::LinkId;
use crate::limits::WINDOW_UNBOUNDED_BYTES;
use crate::secure::{LinkSeal, sealed_bytes};
use crate::tcp::ByteStream;
use crate::workers::Member;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use towpath_memory::Region;
use towpath_proto::limits::{HEADER_BYTES, NICS_MAX};
use towpath_proto::wire::{AppProtocol, Hello, HelloPath};
use towpath_proto::{Carrier, Link, PacketSizes, PeerParams, Rails, Side};
use towpath_verbs::{Device, DeviceCaps, Mtu, RcAttr, VerbError};

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
        self.establish_half(pending.id, peer, side, (None, false))?;
        Ok(pending.id)
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
        self.establish_half(pending.id, peer, side, (None, true))?;
        self.give_stream(pending.id, stream, (Vec::new(), false));
        Ok(pending.id)
    }

    /// With the address that the HELLOs came over, and whether there is a stream.
    pub(super) fn establish_half(
        &mut self,
        id: LinkId,
        peer: &Hello,
        side: Side,
        setup: (Option<SocketAddr>, bool),
    ) -> Result<(), LinkError> {
        let joined = self.join_half(id, peer, side, setup);
        match joined {
            Ok(()) => self.share_window(),
            Err(_) => self.withdraw_half(id),
        }
        joined
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
        check_limits(&ours, peer, mtu)?;
        if !has_stream && ours.paths.iter().any(|path| path.carrier == Carrier::Tcp) {
            return Err(LinkError::NoStream);
        }
        if ours.paths.iter().any(|path| path.carrier != Carrier::Tcp) {
            self.check_way(peer.addr, mtu)?;
        }
        let Self { links, device, config, sleep, identity, tx, .. } = self;
        let conn = links.find_mut(id).ok_or(LinkError::NotPending)?;
        let (known, at) = (conn.agreed.secret.as_ref(), (config.secure.as_ref(), device.now()));
        let is_vouched = setup_addr.is_none();
        let seal = LinkSeal::of_link(known, (&ours, peer), (side, is_vouched), at)?;
        conn.seal = seal.map(Box::new);
        let (instance, device_addr, class) = (peer.instance, peer.addr, peer.class);
        conn.agreed.peer = Some(Peer { instance, device_addr, setup_addr, class });
        conn.agreed.dialled = setup_addr.filter(|_| side == Side::Client);
        conn.agreed.mtu = Some(mtu);
        conn.agreed.omits_icrc = ours.omits_icrc && peer.omits_icrc;
        conn.class.dscp_of_peer = peer.dscp;
        let rails = Rails::new(ours.nics(), peer.nics());
        conn.agreed.rails = Some((rails, side));
        conn.agreed.further_addrs = peer.further_addrs.clone();
        let source_ports = told_ports(device, &ours);
        for (index, path) in conn.paths.iter_mut().enumerate() {
            path.source_port = rails.first_port(side, index, source_ports);
        }
        connect_qps(device, conn, (&ours, peer), config.rc_of(Fallback::of(&ours)))?;
        let pair = |(mine, theirs): (&HelloPath, &HelloPath)| (mine.generation, theirs.generation);
        let params = PeerParams {
            mtu,
            chunk_bytes_max: peer.chunk_bytes_max.min(config.sizes.chunk_bytes_max)
                - sealed_bytes(config.secure.as_ref()),
            charge_bytes: peer.charge_bytes,
            window_bytes: peer.window_bytes,
            path_chunks: peer.path_chunks,
            generations: ours.paths.iter().zip(&peer.paths).map(pair).collect(),
            carriers: ours.paths.iter().map(|path| path.carrier).collect(),
            control_generations: (ours.control.generation, peer.control.generation),
        };
        let own_carrier = |path: &&HelloPath| path.carrier == ours.control.carrier;
        let paths = ours.paths.iter().filter(own_carrier).count();
        let config = config.link_config(side, device.caps(), (paths, source_ports));
        let config = config.seed(link_seed(&ours)).checks_address(setup_addr.is_some());
        let config = config.rails(rails);
        let config = config.packet_sizes(packet_sizes(device.caps(), peer));
        let mut link = Link::new(config, params, device.now());
        link.set_away(sleep.absence());
        conn.link = Some(link);
        conn.seat = identity.member.as_ref().map(Member::seat);
        conn.phase = Phase::Up;
        tx.order.joined(ours.class);
        links.touch(id.index);
        Ok(())
    }
}

/// Joins our queue pairs with the peer's.
fn connect_qps<D: Device>(
    device: &mut D,
    conn: &Conn,
    (ours, peer): (&Hello, &Hello),
    rc: RcAttr,
) -> Result<(), VerbError> {
    let pairs = iter::once((&ours.control, &peer.control));
    for (index, (mine, theirs)) in pairs.chain(ours.paths.iter().zip(&peer.paths)).enumerate() {
        // The control queue pair takes the first path's way; a stream has none.
        let path = index.saturating_sub(1);
        if path < conn.paths.len() && mine.carrier != Carrier::Tcp {
            let way = (path, mine.carrier, rc);
            conn.connect_qp(device, way, (mine.qp_num, mine.psn), (theirs.qp_num, theirs.psn))?;
        }
    }
    Ok(())
}

/// The source ports of the NICs that our HELLO tells of.
fn told_ports<D: Device>(device: &D, ours: &Hello) -> u16 {
    let all = (0..NICS_MAX).take_while(|&nic| device.nic_addr(nic).is_some()).count().max(1);
    device.caps().source_ports / all as u16 * ours.nics() as u16
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
    let mut addrs = iter::once(peer.addr).chain(peer.further_addrs.iter().copied());
    if let Some(theirs) = addrs.find(|&addr| has_queue_pairs && !is_of_one_host(addr)) {
        return Err(LinkError::Address { theirs });
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
