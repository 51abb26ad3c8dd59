//! `UdpLink`: a `PacketLink` over UDP sockets.

use super::coalescing::Coalescing;
use super::config::{TimestampSource, UdpConfig};
use super::counters::UdpCounters;
use super::error::{UdpError, UdpStep};
use super::group::Member;
use super::limits::{DELAY_NOISE, HANDED_BYTES_MAX, HANDED_PACKETS_MAX, NICS_MAX, STAMPS_RECENT};
use super::mmsg::SendBatch;
use super::probe::{self, Probe};
use super::rx::Receiver;
use super::setup::{
    bind_at, bind_receiver, configure, configure_receiver, grow_buffer, ignore, inspect_error,
    local_addr, open_card, share_port, with_port,
};
use super::stamps::{SendTimes, Stamps};
use super::steering::Steering;
use super::sys;
use super::tx::{Counts, Outlet, Sender};
use super::way;
use core::ffi::c_int;
use core::hint::cold_path;
use core::net::SocketAddr;
use core::task::Waker;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;
use towpath_verbs::{
    IpMtu, LinkCaps, LinkCounters, PacketLink, QpShare, RxPacket, SHARES_MAX, TxPacket,
};
use towpath_wake::Bell;

/// What the system takes for no file.
const NO_FILE: c_int = -1;

/// A wire over UDP sockets of one local address, which several links may
/// [have together](Self::bind_group).
///
/// One socket receives and is source port 0; further source ports are sockets that only send. On an
/// address of loopback source port 0 is such a socket, too: there no firewall has to see answers
/// come from where it saw questions go to, and a socket that only sends can be connected, which
/// saves looking the way up for each send.
/// Packets of one size to one place leave as one message that the kernel or the NIC cuts up, and
/// come in as one message that is cut up here; where the kernel refuses either, packets go one
/// by one. While only short packets come in, each alone, the kernel cuts up what comes: a packet is
/// then received by a shorter call. No call blocks; an idle owner waits on
/// [`readable_fd`](Self::readable_fd).
///
/// `packets_dropped` is the kernel's count, in which a run that is dropped whole is one.
/// `rx_charge_bytes` holds for senders set up as this end is, on the same kernel; a message is
/// then a run, or each packet where this end does not offload. What comes after short packets is
/// charged by the packet until the first long one is looked at: as much as is advertised then takes
/// nine tenths of the buffer in packets of 4 KiB, but more than there is in packets of less than
/// 2 KiB, should all of it come before that.
pub struct UdpLink {
    socket: UdpSocket,
    local_addr: SocketAddr,
    /// By source port.
    source_addrs: Vec<SocketAddr>,
    clock: Clock,
    sender: Sender,
    receiver: Receiver,
    counts: Counts,
    probe: Probe,
    /// The interface that has our address, where one has.
    interface: Option<IpMtu>,
    coalescing: bool,
    foreign_peers: bool,
    rx_buffer_bytes: u64,
    bell: Bell,
    stamps: Stamps,
    steering: Steering,
    /// None of a link that has its port to itself.
    member: Option<Member>,
    /// What else ends a wait; below zero when there is nothing.
    watched: c_int,
    /// An epoll instance tells of packets, too.
    is_in_epoll: bool,
}

/// What a link gets of those on its port.
struct Place {
    steering: Steering,
    member: Option<Member>,
    probe: Probe,
    interface: Option<IpMtu>,
    clock: Clock,
}

impl UdpLink {
    /// Opens the sockets that `config` asks for.
    ///
    /// # Errors
    /// [`UdpError`]: the port is in use, the address is not of this host, or the system refuses.
    pub fn bind(config: UdpConfig) -> Result<Self, UdpError> {
        let mut links = Self::bind_group(config, 1)?;
        links.pop().ok_or(UdpError::Group { wanted: 0, max: usize::from(SHARES_MAX) })
    }

    /// Opens `count` links on one port, 1 to [`SHARES_MAX`], each for a device of its own on a
    /// thread of its own. Packets find theirs by the queue pair that they are for: of the numbers
    /// that [`LinkCaps::qp_share`] says. What the links share is not touched while the kernel
    /// brings each packet to the right one; see [`steering`](Self::steering).
    ///
    /// No other process may have the port, also where that would share it.
    ///
    /// # Errors
    /// [`UdpError`]: as [`bind`](Self::bind), and [`UdpError::Group`].
    pub fn bind_group(config: UdpConfig, count: usize) -> Result<Vec<Self>, UdpError> {
        Self::bind_group_by(config, count, &Clock::start())
    }

    /// Groups of `count` links on each of several NICs, all with one clock.
    ///
    /// # Errors
    /// As of [`bind_group`](Self::bind_group), and [`UdpError::Nics`].
    pub(crate) fn bind_nics(nics: &[UdpConfig], count: usize) -> Result<Vec<Vec<Self>>, UdpError> {
        let is_fit = |(place, nic): (usize, &UdpConfig)| {
            let is_twice = nics[..place].iter().any(|other| other.ip == nic.ip);
            let is_alike = nic.ip.is_ipv4() == nics[0].ip.is_ipv4()
                && nic.source_ports == nics[0].source_ports;
            is_alike && !is_twice
        };
        if !(1..=NICS_MAX).contains(&nics.len()) || !nics.iter().enumerate().all(is_fit) {
            return Err(UdpError::Nics);
        }
        let clock = Clock::start();
        nics.iter().map(|nic| Self::bind_group_by(nic.clone(), count, &clock)).collect()
    }

    fn bind_group_by(
        config: UdpConfig,
        count: usize,
        clock: &Clock,
    ) -> Result<Vec<Self>, UdpError> {
        if !config.further.is_empty() {
            return Err(UdpError::Nics);
        }
        if config.ip.is_unspecified() {
            return Err(UdpError::Unspecified(config.ip));
        }
        let shares: Vec<QpShare> = match u8::try_from(count) {
            Ok(count) => (0..count).filter_map(|index| QpShare::new(index, count)).collect(),
            Err(_) => Vec::new(),
        };
        if shares.is_empty() {
            return Err(UdpError::Group { wanted: count, max: usize::from(SHARES_MAX) });
        }
        let first = bind_receiver(&config)?;
        let addr = local_addr(&first, with_port(&config, 0))?;
        let interface = way::interface(&first, addr)?;
        way::check(addr, interface)?;
        let (receivers, steering) = share_port(first, addr, &shares, &config)?;
        let at = |source| UdpError::at(UdpStep::Share, addr, source);
        let bell = || Bell::new().map_err(|error| UdpError::at(UdpStep::Configure, addr, error));
        let bells = shares.iter().map(|_| bell()).collect::<Result<Vec<_>, _>>()?;
        let mut members = match count {
            1 => Vec::new(),
            _ => Member::all(&shares, &receivers, bells.iter().map(Bell::waker)).map_err(at)?,
        }
        .into_iter();
        let probe = Probe::run(addr, &mut SendBatch::new());
        // One clock, since packets that are handed over bring their time with them.
        let link = |(receiver, bell)| {
            let (member, clock) = (members.next(), clock.clone());
            let place = Place { steering, member, probe, interface, clock };
            Self::open(&config, receiver, addr, bell, place)
        };
        receivers.into_iter().zip(bells).map(link).collect()
    }

    /// A link that receives on `socket`, which is bound.
    fn open(
        config: &UdpConfig,
        socket: UdpSocket,
        addr: SocketAddr,
        bell: Bell,
        place: Place,
    ) -> Result<Self, UdpError> {
        let Place { steering, member, probe, interface, clock } = place;
        let segments_max = if config.segments() { probe.segments_max } else { 0 };
        configure(&socket, addr, segments_max > 0)?;
        let (mut outlets, mut source_addrs) = (Vec::new(), Vec::new());
        for index in 0..config.source_ports {
            let (outlet, addr) = if index == 0 && !config.connects() {
                let same = socket.try_clone().map_err(|source| inspect_error(addr, source))?;
                (Outlet::new(same, false), addr)
            } else {
                let any_port = with_port(config, 0);
                let socket = bind_at(any_port)?;
                configure(&socket, any_port, segments_max > 0)?;
                // It only sends: what strangers send to it is dropped early.
                ignore(sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 0));
                let addr = local_addr(&socket, any_port)?;
                (Outlet::new(socket, config.connects()), addr)
            };
            grow_buffer(outlet.socket.as_fd(), config, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
            outlets.push(outlet);
            source_addrs.push(addr);
        }
        let is_told = config.timestamps != TimestampSource::Call;
        let card = interface.filter(|_| is_told).and_then(|of| open_card(&socket, of, config));
        let (coalescing, granted_bytes) =
            configure_receiver(&socket, addr, config, card.is_some())?;
        let with_times = config.timestamps == TimestampSource::Kernel;
        let is_stamped = is_told
            && outlets.iter().zip(0..).all(|(outlet, port)| {
                let receives = port == 0 && !config.connects();
                sys::tell_times(outlet.socket.as_fd(), receives, card.is_some()).is_ok()
            });
        let stamps = Stamps::new(is_stamped, card.clone(), outlets.len());
        Ok(Self {
            socket,
            local_addr: addr,
            source_addrs,
            clock,
            sender: Sender::new(outlets, segments_max, stamps.by_card()),
            receiver: Receiver::new(Coalescing::new(coalescing, with_times), card),
            counts: Counts::default(),
            probe,
            interface,
            coalescing,
            foreign_peers: config.foreign_peers,
            rx_buffer_bytes: probe::rx_buffer_bytes(granted_bytes, addr),
            bell,
            stamps,
            steering,
            member,
            watched: NO_FILE,
            is_in_epoll: false,
        })
    }

    /// The descriptor that is readable when packets wait in the kernel. Packets that an earlier
    /// [`receive`](PacketLink::receive) left over for want of budget do not show here, so wait
    /// only after a receive that handed on less than its budget; nor do those that other links of
    /// a group handed over, for which there is the [waker](PacketLink::waker).
    #[must_use]
    pub fn readable_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Blocks until packets wait in the kernel, the [waker](PacketLink::waker) is used, the
    /// [watched file](PacketLink::watch_file) has something, or `timeout` has passed; false in the
    /// last case. The note at
    /// [`readable_fd`](Self::readable_fd) holds.
    #[must_use]
    pub fn wait_readable(&mut self, timeout: Duration) -> bool {
        let files = [self.socket.as_raw_fd(), self.bell.as_fd().as_raw_fd(), self.watched];
        let [readable, rung, watched] = sys::wait_readable(files, timeout);
        if self.stamps.may_come() {
            // A stamp that is late ends waits until it is taken.
            self.look_for_stamps();
        }
        readable | (rung && self.bell.clear()) | watched
    }

    /// The counters that only this kind of link has.
    #[must_use]
    pub fn udp_counters(&self) -> UdpCounters {
        let mut counters = self.counts.udp;
        if let Some(member) = &self.member {
            counters.handed_over = member.handed_over;
            counters.handed_over_lost = member.handed_over_lost;
            counters.taken_over = member.taken_over;
        }
        counters
    }

    /// What is known of when packets leave.
    #[must_use]
    pub fn send_times(&self) -> SendTimes {
        self.stamps.times()
    }

    /// Sends a few short packets to itself that all ask when they leave: what is then known. For
    /// who has sent nothing yet, and receives nothing.
    #[must_use]
    pub fn measure_send_times(&mut self) -> SendTimes {
        let bytes = [0; 64];
        let mut packet = TxPacket::new(self.local_addr, 0, 0);
        packet.push(&bytes);
        for _ in 0..STAMPS_RECENT {
            self.stamps.want();
            self.transmit(&[packet]);
            self.receive(1, &mut |_| {});
        }
        self.send_times()
    }

    /// Sends packets, and asks the kernel when the last one leaves. The stamp is there when the
    /// call returns, unless the packet still waits for the interface.
    #[cold]
    fn transmit_asking(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let began = self.clock.now();
        let (taken, asked) =
            self.sender.transmit_asking(self.local_addr, packets, &mut self.counts);
        let ended = self.clock.now();
        match asked {
            Some(source_port) => {
                self.stamps.asked(source_port, (began, ended));
                self.look_for_stamps();
            }
            None => self.stamps.not_asked(ended),
        }
        taken
    }

    /// Looks for the stamp that was asked for, or empties the error queue of what is late: of the
    /// socket that receives it ends waits.
    #[cold]
    fn look_for_stamps(&mut self) {
        let source_port = self.stamps.awaited_at().unwrap_or(0);
        let Some(socket) = self.sender.socket(source_port) else { return };
        let times = (self.clock.now(), &self.clock);
        self.stamps.look(socket, source_port, times, &mut self.counts.udp);
    }

    /// How packets come to this link, where others have its port too.
    #[must_use]
    pub fn steering(&self) -> Steering {
        self.steering
    }

    /// Whether runs of packets leave in one piece: false where that was not asked for, or the
    /// kernel has refused it.
    #[must_use]
    pub fn segmentation(&self) -> bool {
        self.sender.segmentation()
    }

    /// Whether runs of packets come in in one piece, where not only short packets come alone.
    #[must_use]
    pub fn coalescing(&self) -> bool {
        self.coalescing
    }
}

#[cfg(test)]
impl UdpLink {
    /// Packets of one run.
    pub(super) fn segments_max(&self) -> usize {
        self.probe.segments_max
    }

    /// Whether the kernel is told not to coalesce, for the time being.
    pub(super) fn is_coalescing_paused(&self) -> bool {
        self.receiver.is_coalescing_paused()
    }

    /// Where the socket of a source port is connected to.
    pub(super) fn connected_to(&self, source_port: usize) -> Option<SocketAddr> {
        self.sender.connected_to(source_port)
    }

    /// Has the kernel refuse offload from now on, as a device without checksums would.
    pub(super) fn break_segmentation(&self) {
        self.sender.break_segmentation();
    }
}

impl AsFd for UdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable_fd()
    }
}

impl core::fmt::Debug for UdpLink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UdpLink")
            .field("local_addr", &self.local_addr)
            .field("source_addrs", &self.source_addrs)
            .finish_non_exhaustive()
    }
}

impl PacketLink for UdpLink {
    fn caps(&self) -> LinkCaps {
        let mut rx_buffer_bytes = self.rx_buffer_bytes;
        let mut rx_charge_bytes =
            self.probe.rx_charge_bytes(self.sender.segmentation(), self.coalescing);
        if matches!(self.steering, Steering::HandedOver { .. }) {
            // Each packet takes the room of a longest one in the queue by which it may come.
            let room = (HANDED_PACKETS_MAX * HANDED_BYTES_MAX) as u64;
            rx_buffer_bytes = rx_buffer_bytes.min(room);
            rx_charge_bytes = rx_charge_bytes.max(HANDED_BYTES_MAX as u32);
        }
        LinkCaps {
            packet_bytes_max: way::packet_bytes_max(self.local_addr, self.interface),
            source_ports: self.sender.source_ports() as u16,
            rx_buffer_bytes: Some(rx_buffer_bytes),
            rx_charge_bytes,
            delay_noise: DELAY_NOISE,
            foreign_peers: self.foreign_peers,
            qp_share: self.member.as_ref().map_or(QpShare::ALL, Member::share),
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// # Panics
    /// With an index that is not below [`LinkCaps::source_ports`].
    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.source_addrs[usize::from(source_port)]
    }

    fn ip_mtu(&self, dest: Option<SocketAddr>) -> Option<IpMtu> {
        let Some(dest) = dest else { return self.interface };
        // Without a route nothing gets there, however short.
        let bytes = way::route_bytes(self.local_addr, dest).ok()?;
        Some(IpMtu { bytes, interface: self.interface.and_then(|mtu| mtu.interface) })
    }

    fn packets_too_long(&self) -> u64 {
        self.counts.udp.too_long
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        if self.stamps.is_wanted() {
            return self.transmit_asking(packets);
        }
        self.stamps.pass();
        self.sender.transmit(self.local_addr, packets, &mut self.counts)
    }

    fn left_at(&mut self) -> Time {
        self.stamps.left_at(self.clock.now())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        if self.stamps.may_come() {
            cold_path();
            if self.stamps.is_time_to_look() {
                self.look_for_stamps();
            }
        }
        let Self { receiver, socket, counts, .. } = self;
        let place = (&self.clock, self.local_addr);
        let mut receive = |budget, sink: &mut dyn FnMut(RxPacket<'_>)| {
            receiver.receive(socket, place, budget, counts, sink)
        };
        let Some(member) = &mut self.member else { return receive(budget, sink) };
        cold_path();
        member.receive(place.1, budget, sink, receive)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        if self.receiver.holds_packets() || self.member.as_ref().is_some_and(Member::has_parcels) {
            return true;
        }
        if self.is_in_epoll && timeout == Nanos::ZERO {
            // Packets that are there already end the wait for the epoll instance.
            return self.bell.clear();
        }
        self.wait_readable(timeout.into())
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.bell.waker())
    }

    fn look_at_each_tclass(&mut self) {
        self.receiver.look_at_each_tclass(&self.socket, self.local_addr);
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.watched = file;
        true
    }

    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        let files = [self.socket.as_raw_fd(), self.bell.as_fd().as_raw_fd()];
        self.is_in_epoll = files.into_iter().all(|file| sys::add_to_epoll(epoll, file).is_ok());
        self.is_in_epoll
    }

    fn counters(&self) -> LinkCounters {
        let mut counters = self.counts.link;
        // Asked for, not told with each packet that comes after a drop: such a packet could not be
        // received by the shortest call.
        if let Ok(memory) = sys::receive_memory(self.socket.as_fd()) {
            counters.packets_dropped += u64::from(memory.drops);
        }
        counters.packets_dropped += self.member.as_ref().map_or(0, |m| m.handed_over_lost);
        counters
    }
}
