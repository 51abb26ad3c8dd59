//! Making the two halves of a link, and joining them.

use super::Endpoint;
use crate::away::Away;
use crate::carrier::{CarrierChoice, Fallback, has, qp_type};
use crate::class::ClassReport;
use crate::control::{Control, NO_QP};
use crate::error::LinkError;
use crate::event::{LinkId, Peer};
use crate::limits::{CONTROL_RECVS, CONTROL_SENDS, PACKS, WINDOW_UNBOUNDED_BYTES};
use crate::links::{Conn, Path, Phase};
use crate::pack::Packs;
use crate::recv::Home;
use crate::tcp::ByteStream;
use crate::tx::{TxQueue, TxSlots};
use crate::workers::Member;
use std::net::SocketAddr;
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_memory::{Pool, Region};
use towpath_proto::limits::{HEADER_BYTES, PATHS_MAX};
use towpath_proto::wire::{Hello, HelloPath};
use towpath_proto::{Carrier, ChannelId, Class, Link, PeerParams, Side};
use towpath_verbs::{Access, Connect, Device, Mtu, QpInit, QpNum, QpType, VerbError};

/// Our half of a link that waits for the peer's HELLO. Hand it to
/// [`Endpoint::establish`] or [`Endpoint::withdraw`]; dropping it keeps its place taken.
#[derive(Debug)]
#[must_use = "a pending link holds its place until it is established or withdrawn"]
pub struct PendingLink {
    id: LinkId,
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Makes our half of a link: queue pairs, buffers, and the HELLO that tells the peer of them.
    /// TCP set-up ([`connect`](Self::connect), [`listen`](Self::listen)) does this by itself; call
    /// it where HELLOs travel in another way, as between two endpoints in virtual time.
    ///
    /// # Errors
    /// [`LinkError`]: no room, no memory, or the device refused.
    pub fn offer(&mut self) -> Result<(Hello, PendingLink), LinkError> {
        self.offer_as(self.config.class.own)
    }

    /// The same for a link of a class of its own choice.
    ///
    /// # Errors
    /// As [`offer`](Self::offer).
    pub fn offer_as(&mut self, class: Class) -> Result<(Hello, PendingLink), LinkError> {
        // Without a set-up connection there is nothing to fall back to but queue pairs.
        let below = self.config.fallback.below(self.plan.carrier);
        let queue_pairs: Vec<Carrier> =
            below.iter().copied().filter(|&carrier| carrier != Carrier::Tcp).collect();
        self.offer_over(class, self.plan.carrier, &queue_pairs)
    }

    /// As [`offer`](Self::offer), for a link that gets a stream of bytes beside its queue pairs, as
    /// the set-up connection is one: it may ride on that, or fall back to it. Hand it to
    /// [`establish_on_stream`](Self::establish_on_stream).
    ///
    /// # Errors
    /// [`LinkError`]: no room, no memory, or the device refused.
    pub fn offer_on_stream(&mut self) -> Result<(Hello, PendingLink), LinkError> {
        self.offer_on_stream_as(self.config.class.own)
    }

    /// The same for a link of a class of its own choice.
    pub(crate) fn offer_on_stream_as(
        &mut self,
        class: Class,
    ) -> Result<(Hello, PendingLink), LinkError> {
        self.offer_over(class, self.plan.carrier, self.config.fallback.below(self.plan.carrier))
    }

    /// A half that answers a peer's, of its class: where the choice is left to the device, it rides
    /// on what the peer's does, and it falls back to what the peer's does.
    pub(crate) fn answer(&mut self, peer: &Hello) -> Result<(Hello, PendingLink), LinkError> {
        if !self.config.class.takes(peer.class) {
            return Err(LinkError::Class { theirs: peer.class });
        }
        let wanted = peer.control.carrier;
        let is_free = self.config.carrier == CarrierChoice::Auto;
        let follows = is_free && has(wanted, &self.device.caps().verbs);
        let carrier = if follows { wanted } else { self.plan.carrier };
        let fallback = Fallback::of(peer);
        if fallback == Fallback::RcThenTcp && self.config.fallback != fallback {
            return Err(LinkError::Fallback);
        }
        self.offer_over(peer.class, carrier, fallback.below(carrier))
    }

    fn offer_over(
        &mut self,
        class: Class,
        carrier: Carrier,
        below: &[Carrier],
    ) -> Result<(Hello, PendingLink), LinkError> {
        let links_max = self.config.links_max;
        let id = self.links.vacant().ok_or(LinkError::Full { links_max })?;
        let (control, pool) = Control::new()?;
        let report = ClassReport::new(class, self.config.class.dscp(class));
        self.links.insert(Conn::new(id, report, control));
        let made = self.make_half(id, class, (carrier, below), &pool);
        match made {
            Ok(hello) => Ok((hello, PendingLink { id })),
            Err(error) => {
                self.begin_draining(id.index);
                self.end_link(id);
                Err(error)
            }
        }
    }

    /// Gives a half up that [`offer`](Self::offer) made.
    pub fn withdraw(&mut self, pending: PendingLink) {
        if self.links.find(pending.id).is_some_and(|conn| conn.phase == Phase::Offered) {
            self.begin_draining(pending.id.index);
            self.end_link(pending.id);
        }
    }

    fn make_half(
        &mut self,
        id: LinkId,
        class: Class,
        (carrier, below): (Carrier, &[Carrier]),
        control_pool: &Pool,
    ) -> Result<Hello, LinkError> {
        let mut control_qp = NO_QP;
        let mut paths = Vec::new();
        if let Some(qp_type) = qp_type(carrier) {
            control_qp = self.make_control(id, qp_type, control_pool)?;
        }
        let count = if carrier == Carrier::Tcp { 1 } else { self.config.paths };
        let count = count.min(PATHS_MAX - below.len());
        let all = std::iter::repeat_n(carrier, count).chain(below.iter().copied());
        self.make_headers(id, all.clone().filter(|&carrier| qp_type(carrier).is_some()).count())?;
        for (path, carrier) in all.enumerate() {
            let mut qp_num = NO_QP;
            if let Some(qp_type) = qp_type(carrier) {
                qp_num = self.make_path((id, class), carrier, qp_type)?;
                self.links.add_qp(qp_num, id.index, path as u8);
            }
            paths.push(self.describe(qp_num, carrier));
        }
        self.make_receives(id, class)?;
        let hello = Hello {
            instance: self.instance,
            class,
            dscp: self.config.class.dscp(class),
            addr: self.device.local_addr(),
            mtu: self.plan.mtu,
            chunk_bytes_max: self.config.chunk_bytes_max,
            charge_bytes: self.device.caps().rx_charge_bytes,
            window_bytes: self.window_bytes(self.links.up_count() + 1),
            path_chunks: self.config.path_chunks(self.shared.is_some()),
            control: self.describe(control_qp, carrier),
            paths,
        };
        let conn = self.links.find_mut(id).ok_or(LinkError::NotPending)?;
        conn.hello = Some(hello.clone());
        self.links.touch(id.index);
        self.post_receives();
        Ok(hello)
    }

    fn make_control(
        &mut self,
        id: LinkId,
        qp_type: QpType,
        pool: &Pool,
    ) -> Result<QpNum, LinkError> {
        let control_lkey = self.register_for(id, pool.region())?;
        let init =
            QpInit::new(qp_type, self.control_cq).depth(CONTROL_SENDS as u32, CONTROL_RECVS as u32);
        let control_qp = self.device.create_qp(&init)?;
        let conn = self.links.find_mut(id).ok_or(LinkError::NotPending)?;
        conn.control.set_lkey(control_lkey);
        conn.control.qp_num = control_qp;
        for slot in Control::recv_slots() {
            conn.control_repost.extend(conn.control.lend_recv(id.index, slot));
        }
        Ok(control_qp)
    }

    fn register_for(&mut self, id: LinkId, region: &Region) -> Result<u32, LinkError> {
        let lkey = self.device.reg_mr(region, Access::LOCAL)?.lkey;
        if let Some(conn) = self.links.find_mut(id) {
            conn.lkeys.push(lkey);
        }
        Ok(lkey)
    }

    /// Makes the headers of what so many paths may have posted.
    fn make_headers(&mut self, id: LinkId, paths: usize) -> Result<(), LinkError> {
        if paths == 0 {
            return Ok(());
        }
        let (mut slots, pool) = TxSlots::new(paths * self.config.send_queue_depth as usize)?;
        slots.set_lkey(self.register_for(id, pool.region())?);
        let (mut packs, pool) = Packs::new(PACKS, self.plan.mtu.bytes() as usize)?;
        packs.set_lkey(self.register_for(id, pool.region())?);
        slots.packs = packs;
        self.links.find_mut(id).ok_or(LinkError::NotPending)?.tx_slots = slots;
        Ok(())
    }

    fn make_path(
        &mut self,
        (id, class): (LinkId, Class),
        carrier: Carrier,
        qp_type: QpType,
    ) -> Result<QpNum, LinkError> {
        let qp_num = self.create_path_qp(class, qp_type)?;
        let path = Path {
            carrier,
            qp_num,
            source_port: 0,
            tx: TxQueue::new(self.config.send_queue_depth),
            posted: 0,
            repost: Vec::new(),
            batch: None,
            unfilled_bytes: 0,
            has_failed: false,
            psn: Psn::new(0),
        };
        self.links.find_mut(id).ok_or(LinkError::NotPending)?.paths.push(path);
        Ok(qp_num)
    }

    pub(super) fn create_path_qp(
        &mut self,
        class: Class,
        qp_type: QpType,
    ) -> Result<QpNum, VerbError> {
        let mut init = QpInit::new(qp_type, self.cq)
            .depth(self.config.path_sends() as u32, self.config.receives_per_path() as u32);
        if let Some(shared) = &mut self.shared {
            init.srq = Some(shared.make(&mut self.device, class)?);
        }
        self.device.create_qp(&init)
    }

    /// Gets the receives that a new link adds, and queues them for posting.
    fn make_receives(&mut self, id: LinkId, class: Class) -> Result<(), LinkError> {
        if let Some(shared) = &self.shared {
            // Where held buffers are replaced they are no part of what is there.
            let counts = |conn: &Conn| if self.config.is_overbooked() { 0 } else { conn.held };
            let held: usize = self.links.of_class(class).map(counts).sum();
            let target = self.shared_target(class);
            let have = shared.of(class).map_or(0, |s| s.posted + s.repost.len()) + held;
            let missing = target.saturating_sub(have);
            self.recv.reserve(&mut self.device, missing)?;
            if let Some(queue) = self.shared.as_mut().and_then(|shared| shared.of_mut(class)) {
                queue.target = target;
            }
            for _ in 0..missing {
                let Some(slot) = self.recv.take_free(class, None) else { break };
                self.repost(slot);
            }
            return Ok(());
        }
        let per_path = self.config.receives_per_path();
        // What the other links may still need stays theirs.
        let spare = self.config.spare_receives();
        let others =
            self.links.iter().filter(|conn| conn.id != id && conn.phase != Phase::Draining);
        let theirs: usize = others.map(|conn| spare.saturating_sub(conn.held)).sum();
        self.recv.reserve(&mut self.device, self.config.receives_of_link() + theirs)?;
        let count = self.links.find(id).map_or(0, |conn| conn.paths.len());
        for path in 0..count as u8 {
            let home = Home { link: id, path, channel: ChannelId(0) };
            for _ in 0..per_path {
                let Some(slot) = self.recv.take_free(class, Some(home)) else { break };
                self.repost(slot);
            }
        }
        Ok(())
    }

    /// What all links of a class that are there need to have posted.
    pub(super) fn shared_target(&self, class: Class) -> usize {
        let links = self.links.of_class(class).filter(|conn| conn.phase != Phase::Draining).count();
        if links == 0 {
            return 0;
        }
        links * self.config.receives_per_link() + self.config.receive_reserve()
    }

    pub(super) fn describe(&mut self, qp_num: QpNum, carrier: Carrier) -> HelloPath {
        let psn = Psn::new(self.prng.next_u32());
        let generation = self.prng.next_u32();
        HelloPath { carrier, qp_num, psn, generation }
    }

    /// A link's share of what the device can hold, when there are `links` of them.
    fn window_bytes(&self, links: usize) -> u64 {
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
    /// A link to the same device address with another instance id is ended: that peer is gone.
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
        drop(self.give_stream(link, stream, Vec::new()));
        Ok(link)
    }

    /// With the address that the HELLOs came over, and whether there is a stream.
    pub(crate) fn establish_from(
        &mut self,
        pending: PendingLink,
        peer: &Hello,
        side: Side,
        setup: (Option<SocketAddr>, bool),
    ) -> Result<LinkId, LinkError> {
        let id = pending.id;
        match self.join(id, peer, side, setup) {
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

    fn join(
        &mut self,
        id: LinkId,
        peer: &Hello,
        side: Side,
        (setup_addr, has_stream): (Option<SocketAddr>, bool),
    ) -> Result<(), LinkError> {
        let conn = self.links.find(id).filter(|conn| conn.phase == Phase::Offered);
        let ours = conn.and_then(|conn| conn.hello.clone()).ok_or(LinkError::NotPending)?;
        let mtu = ours.mtu.min(peer.mtu);
        check_limits(&ours, peer, mtu)?;
        if !has_stream && ours.paths.iter().any(|path| path.carrier == Carrier::Tcp) {
            return Err(LinkError::NoStream);
        }
        let rc = self.config.rc_of(Fallback::of(&ours));
        let pairs = std::iter::once((&ours.control, &peer.control));
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
            self.device.connect_qp(mine.qp_num, &connect)?;
        }
        let now = self.device.now();
        self.supersede(peer);
        let pair = |(mine, theirs): (&HelloPath, &HelloPath)| (mine.generation, theirs.generation);
        let params = PeerParams {
            mtu,
            chunk_bytes_max: peer.chunk_bytes_max.min(self.config.chunk_bytes_max),
            charge_bytes: peer.charge_bytes,
            window_bytes: peer.window_bytes,
            path_chunks: peer.path_chunks,
            generations: ours.paths.iter().zip(&peer.paths).map(pair).collect(),
            carriers: ours.paths.iter().map(|path| path.carrier).collect(),
            control_generations: (ours.control.generation, peer.control.generation),
        };
        let fill = self.filler.as_ref().map(|filler| filler.of_link(mtu, params.chunk_bytes_max));
        let config = self.config.link_config(side, self.device.caps());
        let mut link = Link::new(config.seed(link_seed(&ours)), params, now);
        link.set_away(self.away.as_ref().map_or(Nanos::ZERO, Away::told));
        let ports: Vec<u16> = (0..ours.paths.len()).map(|path| self.source_port_of(path)).collect();
        let seat = self.member.as_ref().map(Member::seat);
        if let Some(conn) = self.links.find_mut(id) {
            conn.seat = seat;
            for (path, port) in conn.paths.iter_mut().zip(ports) {
                path.source_port = port;
            }
            conn.link = Some(link);
            conn.tx_slots.packs.limit(mtu.bytes() as usize);
            conn.mtu = Some(mtu);
            conn.fill = fill;
            conn.phase = Phase::Up;
            self.order.joined(ours.class);
            let (instance, device_addr, class) = (peer.instance, peer.addr, peer.class);
            conn.class.dscp_of_peer = peer.dscp;
            conn.dialled = setup_addr.filter(|_| side == Side::Client);
            conn.peer = Some(Peer { instance, device_addr, setup_addr, class });
        }
        self.links.touch(id.index);
        Ok(())
    }

    /// Which source port a path begins with.
    fn source_port_of(&self, path: usize) -> u16 {
        path as u16 % self.device.caps().source_ports.max(1)
    }

    /// The same device address in another life: what was linked to the earlier one is dead.
    fn supersede(&mut self, peer: &Hello) {
        let earlier =
            |other: &Peer| other.device_addr == peer.addr && other.instance != peer.instance;
        let mut dead = smallvec::SmallVec::<[u16; 4]>::new();
        for conn in self.links.iter_mut().filter(|c| c.peer.as_ref().is_some_and(earlier)) {
            if let Some(link) = conn.link.as_mut().filter(|link| !link.is_down()) {
                link.peer_gone();
                dead.push(conn.id.index);
            }
        }
        self.stats.links_superseded += dead.len() as u64;
        dead.into_iter().for_each(|index| self.links.touch(index));
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

fn check_limits(ours: &Hello, peer: &Hello, mtu: Mtu) -> Result<(), LinkError> {
    if ours.class != peer.class {
        return Err(LinkError::Class { theirs: peer.class });
    }
    if ours.paths.len() != peer.paths.len() {
        return Err(LinkError::Paths { theirs: peer.paths.len(), ours: ours.paths.len() });
    }
    let pairs = std::iter::once((&ours.control, &peer.control));
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
