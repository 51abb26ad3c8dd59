//! Several NICs of a host as the one link of a device.

use crate::udp::sys::add_to_epoll;
use crate::udp::{UdpConfig, UdpError, UdpLink};
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_verbs::{IpMtu, LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};
use towpath_wake::AnyOf;

/// What the system takes for no file.
const NO_FILE: c_int = -1;

/// Packet links of one kind, each on a NIC of its own, as one.
///
/// The source ports of the first link come first, then those of the second: so a packet's source
/// port says by which NIC it leaves. What comes in by any of them is taken in. With one link it is
/// that link, at the cost of a comparison for each batch.
pub struct Bundle<L> {
    first: L,
    further: Vec<L>,
    /// Of each NIC.
    source_ports: u16,
    /// Which NIC is looked at first.
    turn: usize,
    /// By which NIC packets left last.
    last: usize,
    /// Packets with the source ports of their own links.
    batch: Vec<TxPacket<'static>>,
    /// What ends a wait of the first link for the others, where they have files.
    others: Option<AnyOf>,
}

impl<L> From<L> for Bundle<L> {
    /// One NIC.
    fn from(first: L) -> Self {
        let (further, batch) = (Vec::new(), Vec::new());
        Self { first, further, source_ports: 0, turn: 0, last: 0, batch, others: None }
    }
}

impl<L: PacketLink> Bundle<L> {
    /// All of these, whose clocks show the same time.
    ///
    /// # Errors
    /// When the system has no file to give, on which to wait for several.
    ///
    /// # Panics
    /// When addresses are of both families, or links differ in how many source ports they have:
    /// who makes links has both in hand.
    pub fn of(first: L, further: Vec<L>) -> io::Result<Self> {
        let (source_ports, is_v4) = (first.caps().source_ports, first.local_addr().is_ipv4());
        for link in &further {
            assert_eq!(link.local_addr().is_ipv4(), is_v4, "addresses of one family");
            assert_eq!(link.caps().source_ports, source_ports, "as many source ports each");
        }
        let mut bundle = Self { source_ports, further, ..Self::from(first) };
        bundle.listen(NO_FILE)?;
        Ok(bundle)
    }

    /// Lets the files of the other links, and a watched one, end a wait of the first link. False
    /// where links have none.
    fn listen(&mut self, watched: c_int) -> io::Result<bool> {
        if self.further.is_empty() {
            return Ok(self.first.watch_file(watched));
        }
        let others = AnyOf::new()?;
        let epoll = others.as_fd().as_raw_fd();
        if !self.further.iter_mut().all(|link| link.add_to_epoll(epoll)) {
            return Ok(false);
        }
        if watched > NO_FILE {
            add_to_epoll(epoll, watched)?;
        }
        let is_watched = self.first.watch_file(epoll);
        self.others = Some(others);
        Ok(is_watched)
    }

    fn all(&self) -> impl Iterator<Item = &L> {
        std::iter::once(&self.first).chain(&self.further)
    }

    fn link_mut(&mut self, nic: usize) -> &mut L {
        match nic.checked_sub(1) {
            None => &mut self.first,
            Some(place) => &mut self.further[place],
        }
    }

    /// The link of the first NIC, to look at it.
    #[must_use]
    pub fn first(&self) -> &L {
        &self.first
    }

    /// The same, to ask it for something.
    pub fn first_mut(&mut self) -> &mut L {
        &mut self.first
    }

    fn nic(&self, nic: usize) -> Option<&L> {
        self.all().nth(nic)
    }

    /// Each run of packets of one NIC leaves by its link.
    #[inline(never)]
    fn transmit_by_several(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let ports = self.source_ports;
        let nic_of = |packet: &TxPacket<'_>| packet.source_port / ports;
        let mut done = 0;
        while let Some(packet) = packets.get(done) {
            let nic = nic_of(packet);
            let run = packets[done..].iter().take_while(|packet| nic_of(packet) == nic);
            let mut batch = recycle(std::mem::take(&mut self.batch));
            batch.extend(run.map(|packet| {
                let mut own = *packet;
                own.source_port -= nic * ports;
                own
            }));
            self.last = usize::from(nic);
            let taken = self.link_mut(self.last).transmit(&batch);
            let is_full = taken < batch.len();
            self.batch = recycle(batch);
            done += taken;
            if is_full {
                break;
            }
        }
        done
    }

    /// Each NIC has its part of the budget, and what the one before left of its own.
    #[inline(never)]
    fn receive_by_several(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let count = self.further.len() + 1;
        let mut received = 0;
        for place in 0..count {
            let part = (budget - received).div_ceil(count - place);
            if part > 0 {
                let nic = (self.turn + place) % count;
                received += self.link_mut(nic).receive(part, sink).min(part);
            }
        }
        self.turn = (self.turn + 1) % count;
        received
    }
}

impl Bundle<UdpLink> {
    /// Links on the local addresses of all NICs that `config` names.
    ///
    /// # Errors
    /// As of [`bind`](Self::bind).
    pub fn bind_one(config: &UdpConfig) -> Result<Self, UdpError> {
        Self::bind(config, 1)?.pop().ok_or(UdpError::Nics)
    }

    /// Links on the local addresses of all NICs that `config` names, for each of `count` workers:
    /// as [`UdpLink::bind_group`] does it for one.
    ///
    /// # Errors
    /// As of [`UdpLink::bind_group`], and [`UdpError::Nics`].
    pub fn bind(config: &UdpConfig, count: usize) -> Result<Vec<Self>, UdpError> {
        let of_nics = UdpLink::bind_nics(&config.each_nic(), count)?;
        let mut of_nics: Vec<_> = of_nics.into_iter().map(Vec::into_iter).collect();
        let of_worker = |_| {
            let mut links = of_nics.iter_mut().filter_map(Iterator::next);
            let first = links.next().ok_or(UdpError::Nics)?;
            let addr = first.local_addr();
            Self::of(first, links.collect()).map_err(|error| UdpError::of_file(addr, error))
        };
        (0..count).map(of_worker).collect()
    }
}

/// The empty vector with its allocation, for packets of another lifetime: collecting an emptied
/// vector's own iterator reuses its memory.
pub(crate) fn recycle(mut packets: Vec<TxPacket<'_>>) -> Vec<TxPacket<'static>> {
    packets.clear();
    packets.into_iter().map_while(|_| None).collect()
}

impl<L: PacketLink> PacketLink for Bundle<L> {
    fn caps(&self) -> LinkCaps {
        let mut caps = self.first.caps();
        for further in self.further.iter().map(PacketLink::caps) {
            caps.packet_bytes_max = caps.packet_bytes_max.min(further.packet_bytes_max);
            caps.source_ports += further.source_ports;
            // All that peers send may come by one of them.
            let bounds = [caps.rx_buffer_bytes, further.rx_buffer_bytes];
            caps.rx_buffer_bytes = bounds.into_iter().flatten().min();
            caps.rx_charge_bytes = caps.rx_charge_bytes.max(further.rx_charge_bytes);
            caps.delay_noise = caps.delay_noise.max(further.delay_noise);
        }
        caps
    }

    fn local_addr(&self) -> SocketAddr {
        self.first.local_addr()
    }

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.nic(nic).map(PacketLink::local_addr)
    }

    fn now(&self) -> Time {
        self.first.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        if self.further.is_empty() {
            return self.first.source_addr(source_port);
        }
        let (nic, port) = (source_port / self.source_ports, source_port % self.source_ports);
        self.nic(nic.into()).unwrap_or(&self.first).source_addr(port)
    }

    fn ip_mtu(&self, dest: Option<SocketAddr>) -> Option<IpMtu> {
        self.first.ip_mtu(dest)
    }

    fn packets_too_long(&self) -> u64 {
        self.all().map(PacketLink::packets_too_long).sum()
    }

    #[inline]
    fn left_at(&mut self) -> Time {
        self.link_mut(self.last).left_at()
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        match self.further.is_empty() {
            true => self.first.transmit(packets),
            false => self.transmit_by_several(packets),
        }
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        match self.further.is_empty() {
            true => self.first.receive(budget, sink),
            false => self.receive_by_several(budget, sink),
        }
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        // What the others hold already shows in no file.
        let has_some = self.further.iter_mut().any(|link| link.wait(Nanos::ZERO));
        has_some || self.first.wait(timeout)
    }

    fn waker(&self) -> Option<Waker> {
        self.first.waker()
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        // Without another file to wait on it stays as it was.
        self.listen(file).unwrap_or(false)
    }

    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        let others = self.others.as_ref().map(|others| others.as_fd().as_raw_fd());
        let has_others = match others {
            Some(others) => add_to_epoll(epoll, others).is_ok(),
            None => self.further.is_empty(),
        };
        has_others && self.first.add_to_epoll(epoll)
    }

    fn look_at_each_tclass(&mut self) {
        self.first.look_at_each_tclass();
        self.further.iter_mut().for_each(PacketLink::look_at_each_tclass);
    }

    fn counters(&self) -> LinkCounters {
        let add = |sum: LinkCounters, link: LinkCounters| LinkCounters {
            packets_sent: sum.packets_sent + link.packets_sent,
            bytes_sent: sum.bytes_sent + link.bytes_sent,
            packets_received: sum.packets_received + link.packets_received,
            bytes_received: sum.bytes_received + link.bytes_received,
            packets_dropped: sum.packets_dropped + link.packets_dropped,
            send_errors: sum.send_errors + link.send_errors,
        };
        self.all().map(PacketLink::counters).fold(LinkCounters::default(), add)
    }
}
