//! Making our half of a link: queue pairs, buffers, and the HELLO that tells of them.

use super::Endpoint;
use super::establish::check_app;
use crate::asks::Asks;
use crate::carrier::{CarrierChoice, Fallback, carrier_for, has, qp_type};
use crate::class::ClassReport;
use crate::config::Sizes;
use crate::conn::{Conn, Control, NO_QP, PendingLink, Phase};
use crate::error::LinkError;
use crate::ids::LinkId;
use crate::setup::Offer;
use smallvec::SmallVec;
use std::iter;
use std::net::IpAddr;
use towpath_memory::{PAGE_BYTES, Region};
use towpath_proto::limits::{COPIED_BYTES_MAX, NICS_MAX, PATHS_MAX};
use towpath_proto::wire::Hello;
use towpath_proto::{Carrier, Class};
use towpath_secure::{KnownSecret, Role};
use towpath_verbs::{Device, Mtu};

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
        let secret = self.vouched()?;
        self.offer_asking(self.asks_by_other_means(), class, (self.plan.mtu, false), secret)
    }

    /// As [`offer`](Self::offer), for a link that gets a stream of bytes beside its queue pairs, as
    /// the set-up connection is one: it may ride on that, or fall back to it. Hand it to
    /// [`establish_on_stream`](Self::establish_on_stream).
    ///
    /// # Errors
    /// [`LinkError`]: no room, no memory, or the device refused.
    pub fn offer_on_stream(&mut self) -> Result<(Hello, PendingLink), LinkError> {
        let class = self.config.class.own;
        let secret = self.vouched()?;
        self.offer_asking(self.asks_by_other_means(), class, (self.plan.mtu, true), secret)
    }

    /// What HELLOs are sealed with that travel in another way than over TCP. Which end is the
    /// client is not known yet, so they bear the tag of one.
    fn vouched(&self) -> Result<Option<(KnownSecret, Role)>, LinkError> {
        let Some(secure) = &self.config.secure else { return Ok(None) };
        let known = secure.vouched().ok_or(LinkError::NoSecret)?;
        Ok(Some((known, Role::Client)))
    }

    fn has_further_nics(&self) -> bool {
        self.device.nic_addr(1).is_some()
    }

    /// What a link asks for whose HELLOs travel in another way than over TCP: what was chosen, for
    /// nobody asks again with less there.
    pub(super) fn asks_by_other_means(&self) -> Asks {
        let config = &self.config;
        let paths = if config.carriers.has_paths { config.sizes.paths } else { 1 };
        let fallback =
            if config.carriers.has_fallback { config.sizes.fallback } else { Fallback::None };
        Asks { carrier: self.plan.carrier, paths, fallback, further_nics: self.has_further_nics() }
    }

    /// What a link to a peer asks for at first.
    pub(super) fn asks(&self, peer: IpAddr) -> Asks {
        let Sizes { paths, fallback, .. } = self.config.sizes;
        Asks {
            carrier: self.carrier_to(peer).0,
            paths,
            fallback,
            further_nics: self.has_further_nics(),
        }
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

    /// Makes a half for a link to a peer at `dest` that gets its set-up connection.
    pub(super) fn offer_to(
        &mut self,
        Offer { addr: dest, class, asks, secret }: Offer,
    ) -> Result<(Hello, PendingLink), LinkError> {
        let mtu = match asks.carrier {
            // Its system cuts what it sends as it finds right.
            Carrier::Tcp => self.plan.mtu,
            _ => self.mtu_to_ask_for(dest)?,
        };
        let secret = secret.map(|known| (known, Role::Client));
        self.offer_asking(asks, class, (mtu, true), secret)
    }

    /// A half that answers a peer's, of its class and with as many paths: where the choice is left
    /// to the device, it rides on what the peer's does, and it falls back to what the peer's does.
    pub(super) fn answer(
        &mut self,
        peer: &Hello,
        from: IpAddr,
    ) -> Result<(Hello, PendingLink), LinkError> {
        let secret = self.secret_of(peer)?;
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
        // One that tells of no further NIC may not know what that is.
        let further_nics = peer.nics() > 1 && self.has_further_nics();
        let asks = Asks { carrier, paths, fallback, further_nics };
        self.offer_asking(asks, peer.class, (mtu, true), secret)
    }

    /// What the HELLO of a client is sealed with, and ours is to be.
    fn secret_of(&self, peer: &Hello) -> Result<Option<(KnownSecret, Role)>, LinkError> {
        match &self.config.secure {
            None if peer.seal.is_some() => Err(LinkError::Sealed),
            None => Ok(None),
            Some(secure) => Ok(Some((secure.admit(peer, self.device.now())?, Role::Server))),
        }
    }

    /// Makes a half. Without a stream beside it there is nothing to fall back to but queue pairs.
    fn offer_asking(
        &mut self,
        Asks { carrier, paths, fallback, further_nics }: Asks,
        class: Class,
        (mtu, has_stream): (Mtu, bool),
        secret: Option<(KnownSecret, Role)>,
    ) -> Result<(Hello, PendingLink), LinkError> {
        let below = fallback.below(carrier).iter().copied();
        let below = below.filter(|&carrier| has_stream || carrier != Carrier::Tcp);
        let count = if carrier == Carrier::Tcp { 1 } else { paths };
        let all = iter::repeat_n(carrier, count.min(PATHS_MAX - below.clone().count()));
        let all: SmallVec<[Carrier; PATHS_MAX]> = all.chain(below).collect();
        // Buffers before new memory.
        self.rx.take_released(&mut self.links);
        let links_max = self.config.sizes.links_max;
        let id = self.links.vacant().ok_or(LinkError::Full { links_max })?;
        let (control, pool) = Control::new()?;
        let report = ClassReport::new(class, self.config.class.dscp(class));
        let mut conn = Conn::new(id, report, control);
        let qp_paths = all.iter().filter(|&&carrier| qp_type(carrier).is_some()).count();
        let receives = self.rx.receives_of(&mut self.device, class, qp_paths)?;
        let copied_bytes = match secret {
            None => COPIED_BYTES_MAX,
            // All of a chunk is.
            Some(_) => (self.config.sizes.chunk_bytes_max as usize).next_multiple_of(PAGE_BYTES),
        };
        let queues = &self.driver.queues;
        let receives = (receives, copied_bytes);
        let made = conn.make_qps(&mut self.device, queues, (&all, &pool), receives);
        self.links.insert(conn);
        match made.and_then(|()| self.make_hello((id, class), &all, (mtu, further_nics), secret)) {
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
        self.withdraw_half(pending.id);
    }

    pub(super) fn withdraw_half(&mut self, id: LinkId) {
        if self.links.find(id).is_some_and(|conn| conn.phase == Phase::Offered) {
            self.begin_draining(id.index);
            self.end_link(id);
        }
    }

    /// Fills the queues of a half that is made, and describes it.
    fn make_hello(
        &mut self,
        (id, class): (LinkId, Class),
        carriers: &[Carrier],
        (mtu, further_nics): (Mtu, bool),
        secret: Option<(KnownSecret, Role)>,
    ) -> Result<Hello, LinkError> {
        self.rx.fill_link(&mut self.device, &mut self.links, (id, class))?;
        let (window_bytes, identity) =
            (self.window_bytes(self.links.up_count() + 1), &mut self.identity);
        let conn = self.links.find_mut(id).ok_or(LinkError::NotPending)?;
        let qp_nums = conn.paths.iter().map(|path| path.qp_num).chain(iter::repeat(NO_QP));
        let described = carriers.iter().zip(qp_nums);
        let paths =
            described.map(|(&carrier, qp_num)| identity.describe(qp_num, carrier)).collect();
        let (caps, sizes) = (self.device.caps(), &self.config.sizes);
        let mut hello = Hello {
            instance: identity.instance,
            class,
            dscp: self.config.class.dscp(class),
            addr: self.device.local_addr(),
            further_addrs: (1..NICS_MAX)
                .filter(|_| further_nics)
                .map_while(|nic| self.device.nic_addr(nic))
                .collect(),
            mtu,
            cuts_each_send: caps.cuts_each_send,
            omits_icrc: self.plan.omits_icrc,
            chunk_bytes_max: sizes.chunk_bytes_max,
            charge_bytes: caps.rx_charge_bytes,
            window_bytes,
            path_chunks: sizes.path_chunks(conn.qp_paths(), self.plan.receiving),
            control: identity.describe(conn.control.qp_num, carriers[0]),
            paths,
            app: self.config.app,
            seal: None,
        };
        if let (Some((known, side)), Some(secure)) = (secret, &self.config.secure) {
            secure.sign(&known, side, &mut hello)?;
            conn.agreed.secret = Some(known);
        }
        conn.agreed.hello = Some(hello.clone());
        self.links.touch(id.index);
        self.post_receives();
        Ok(hello)
    }
}
