//! Making our half of a link: queue pairs, buffers, and the HELLO that tells of them.

use super::Endpoint;
use super::establish::check_app;
use crate::asks::Asks;
use crate::carrier::{CarrierChoice, Fallback, carrier_for, has, qp_type};
use crate::class::ClassReport;
use crate::config::Sizes;
use crate::conn::{
    Company, Conn, Control, NO_QP, Path, PendingLink, Phase, RecvQueue, TxQueue, TxSlots,
};
use crate::error::LinkError;
use crate::ids::LinkId;
use crate::limits::{COMPANY, CONTROL_RECVS, CONTROL_SENDS};
use smallvec::SmallVec;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use towpath_base::serial::Psn;
use towpath_memory::{Pool, Region};
use towpath_proto::limits::PATHS_MAX;
use towpath_proto::wire::Hello;
use towpath_proto::{Carrier, Class};
use towpath_verbs::{Access, Device, Mtu, PdNum, QpInit, QpNum, QpType, VerbError};

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
        let asks = self.asks_by_other_means();
        let below = asks.fallback.below(asks.carrier);
        let queue_pairs: Vec<Carrier> =
            below.iter().copied().filter(|&carrier| carrier != Carrier::Tcp).collect();
        self.offer_over(class, asks.carrier, asks.paths, &queue_pairs, self.plan.mtu)
    }

    /// As [`offer`](Self::offer), for a link that gets a stream of bytes beside its queue pairs, as
    /// the set-up connection is one: it may ride on that, or fall back to it. Hand it to
    /// [`establish_on_stream`](Self::establish_on_stream).
    ///
    /// # Errors
    /// [`LinkError`]: no room, no memory, or the device refused.
    pub fn offer_on_stream(&mut self) -> Result<(Hello, PendingLink), LinkError> {
        let asks = self.asks_by_other_means();
        self.offer_asking(asks, self.config.class.own, self.plan.mtu)
    }

    /// What a link asks for whose HELLOs travel in another way than over TCP: what was chosen, for
    /// nobody asks again with less there.
    pub(super) fn asks_by_other_means(&self) -> Asks {
        let config = &self.config;
        let paths = if config.carriers.has_paths { config.sizes.paths } else { 1 };
        let fallback =
            if config.carriers.has_fallback { config.sizes.fallback } else { Fallback::None };
        Asks { carrier: self.plan.carrier, paths, fallback }
    }

    /// What a link to a peer asks for at first.
    pub(crate) fn asks(&self, peer: IpAddr) -> Asks {
        let Sizes { paths, fallback, .. } = self.config.sizes;
        Asks { carrier: self.carrier_to(peer).0, paths, fallback }
    }

    /// What carries links to a peer, and whether the peer may choose something else.
    fn carrier_to(&self, peer: IpAddr) -> (Carrier, bool) {
        let verbs = &self.device.caps().verbs;
        let choice =
            carrier_for(&self.config.carriers.rules, peer).unwrap_or(self.config.carriers.choice);
        // A rule that the device cannot keep is refused when the endpoint is made.
        let carrier = choice.settle(verbs).unwrap_or(self.plan.carrier);
        (carrier, choice == CarrierChoice::Auto)
    }

    /// The same for a link of a class of its own choice that asks for this, to a peer at `dest`.
    pub(crate) fn offer_to(
        &mut self,
        dest: SocketAddr,
        class: Class,
        asks: Asks,
    ) -> Result<(Hello, PendingLink), LinkError> {
        let mtu = match asks.carrier {
            // Its system cuts what it sends as it finds right.
            Carrier::Tcp => self.plan.mtu,
            _ => self.mtu_to_ask_for(dest)?,
        };
        self.offer_asking(asks, class, mtu)
    }

    fn offer_asking(
        &mut self,
        asks: Asks,
        class: Class,
        mtu: Mtu,
    ) -> Result<(Hello, PendingLink), LinkError> {
        let below = asks.fallback.below(asks.carrier);
        self.offer_over(class, asks.carrier, asks.paths, below, mtu)
    }

    /// A half that answers a peer's, of its class and with as many paths: where the choice is left
    /// to the device, it rides on what the peer's does, and it falls back to what the peer's does.
    pub(crate) fn answer(
        &mut self,
        peer: &Hello,
        from: IpAddr,
    ) -> Result<(Hello, PendingLink), LinkError> {
        check_app(self.config.app, peer)?;
        if !self.config.class.takes(peer.class) {
            return Err(LinkError::Class { theirs: peer.class });
        }
        let wanted = peer.control.carrier;
        let (ours, is_free) = self.carrier_to(from);
        let follows = is_free && has(wanted, &self.device.caps().verbs);
        let carrier = if follows { wanted } else { ours };
        if carrier != wanted {
            return Err(LinkError::Carrier { theirs: wanted, ours: carrier });
        }
        let fallback = Fallback::of(peer);
        if fallback > self.config.sizes.fallback {
            let ours = self.config.sizes.fallback;
            return Err(LinkError::Fallback { theirs: fallback, ours });
        }
        let below = fallback.below(carrier);
        let paths = peer.paths.len().saturating_sub(below.len()).max(1);
        if paths > self.config.sizes.paths {
            return Err(LinkError::TooManyPaths { wanted: paths, most: self.config.sizes.paths });
        }
        let mtu = self.mtu_towards(peer.addr);
        self.offer_over(peer.class, carrier, paths, below, mtu)
    }

    fn offer_over(
        &mut self,
        class: Class,
        carrier: Carrier,
        paths: usize,
        below: &[Carrier],
        mtu: Mtu,
    ) -> Result<(Hello, PendingLink), LinkError> {
        // Buffers before new memory.
        self.rx.take_released(&mut self.links);
        let links_max = self.config.sizes.links_max;
        let id = self.links.vacant().ok_or(LinkError::Full { links_max })?;
        let (control, pool) = Control::new()?;
        let report = ClassReport::new(class, self.config.class.dscp(class));
        self.links.insert(Conn::new(id, report, control));
        let count = if carrier == Carrier::Tcp { 1 } else { paths };
        let all = iter::repeat_n(carrier, count.min(PATHS_MAX - below.len()));
        let all: SmallVec<[Carrier; PATHS_MAX]> = all.chain(below.iter().copied()).collect();
        let made = self.make_half(id, class, (carrier, &all), mtu, &pool);
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
        (carrier, all): (Carrier, &[Carrier]),
        mtu: Mtu,
        control_pool: &Pool,
    ) -> Result<Hello, LinkError> {
        let mut control_qp = NO_QP;
        let mut paths = Vec::new();
        if let Some(qp_type) = qp_type(carrier) {
            control_qp = self.make_control(id, qp_type, control_pool)?;
        }
        let qp_paths = all.iter().filter(|&&carrier| qp_type(carrier).is_some()).count();
        self.make_headers(id, qp_paths)?;
        for (path, &carrier) in all.iter().enumerate() {
            let mut qp_num = NO_QP;
            if let Some(qp_type) = qp_type(carrier) {
                qp_num = self.make_path((id, class), carrier, (qp_type, qp_paths))?;
                self.links.add_qp(qp_num, id.index, path as u8);
            }
            paths.push(self.identity.describe(qp_num, carrier));
        }
        self.rx.fill_link(&mut self.device, &mut self.links, (id, class))?;
        let hello = Hello {
            instance: self.identity.instance,
            class,
            dscp: self.config.class.dscp(class),
            addr: self.device.local_addr(),
            mtu,
            cuts_each_send: self.device.caps().cuts_each_send,
            omits_icrc: self.plan.omits_icrc,
            chunk_bytes_max: self.config.sizes.chunk_bytes_max,
            charge_bytes: self.device.caps().rx_charge_bytes,
            window_bytes: self.window_bytes(self.links.up_count() + 1),
            path_chunks: self.config.sizes.path_chunks(qp_paths.max(1), self.plan.receiving),
            control: self.identity.describe(control_qp, carrier),
            paths,
            app: self.config.app,
        };
        let conn = self.links.find_mut(id).ok_or(LinkError::NotPending)?;
        conn.agreed.hello = Some(hello.clone());
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
        let init = QpInit::new(qp_type, self.driver.control_cq)
            .depth(CONTROL_SENDS as u32, CONTROL_RECVS as u32);
        let control_qp = self.device.create_qp(&init)?;
        let conn = self.links.find_mut(id).ok_or(LinkError::NotPending)?;
        conn.control.set_lkey(control_lkey);
        conn.control.qp_num = control_qp;
        conn.control.fill(id.index);
        Ok(control_qp)
    }

    fn register_for(&mut self, id: LinkId, region: &Region) -> Result<u32, LinkError> {
        let lkey = self.device.reg_mr(PdNum::DEFAULT, region, Access::LOCAL)?.lkey;
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
        let (mut slots, pool) = TxSlots::new(paths * self.config.sizes.send_queue_depth as usize)?;
        slots.set_lkey(self.register_for(id, pool.region())?);
        let (mut company, pool) = Company::new(COMPANY)?;
        company.set_lkey(self.register_for(id, pool.region())?);
        slots.company = company;
        self.links.find_mut(id).ok_or(LinkError::NotPending)?.tx_slots = slots;
        Ok(())
    }

    fn make_path(
        &mut self,
        (id, class): (LinkId, Class),
        carrier: Carrier,
        (qp_type, paths): (QpType, usize),
    ) -> Result<QpNum, LinkError> {
        let qp_num = self.create_path_qp(class, qp_type, paths)?;
        let path = Path {
            carrier,
            qp_num,
            source_port: 0,
            tx: TxQueue::new(self.config.sizes.send_queue_depth),
            recvs: RecvQueue::default(),
            batch: None,
            has_failed: false,
            psn: Psn::new(0),
        };
        self.links.find_mut(id).ok_or(LinkError::NotPending)?.paths.push(path);
        Ok(qp_num)
    }

    /// For one of so many paths with a queue pair.
    pub(super) fn create_path_qp(
        &mut self,
        class: Class,
        qp_type: QpType,
        paths: usize,
    ) -> Result<QpNum, VerbError> {
        let mut init = QpInit::new(qp_type, self.driver.cq)
            .max_send_sge(self.device.caps().send_sge_max)
            .depth(
                self.config.sizes.path_sends() as u32,
                self.config.sizes.receives_per_path(paths) as u32,
            );
        init.srq = self.rx.shared_queue(&mut self.device, class)?;
        self.device.create_qp(&init)
    }
}
