//! A server's device, with clients that the test drives by hand.

use super::*;
use crate::limits::RAW_SLEEP_MAX;
use crate::store::{Evict, Table};
use crate::wire::{Ask, Request};
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::SharedMemory;
use towpath_transport::UdpConfig;
use towpath_verbs::{
    Connect, LinkCaps, LinkCounters, Mtu, PacketLink, QpInit, RcAttr, RxPacket, SgList, Sge,
    TxPacket,
};

/// Far longer than anything takes.
const SOON: Duration = Duration::from_secs(60);

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A link whose packets hold 1,024 bytes, as far as it tells.
struct Narrow(UdpLink);

impl PacketLink for Narrow {
    fn caps(&self) -> LinkCaps {
        LinkCaps { packet_bytes_max: 1100, ..self.0.caps() }
    }

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn now(&self) -> Time {
        self.0.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.0.source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        self.0.transmit(packets)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.0.receive(budget, sink)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.0.wait(timeout)
    }

    fn counters(&self) -> LinkCounters {
        self.0.counters()
    }
}

fn link() -> UdpLink {
    UdpLink::bind(UdpConfig::new(LOCAL)).expect("a free port")
}

/// A client: a queue pair, and a connection.
struct Sender {
    device: RoceDevice<UdpLink>,
    qp: QpNum,
    memory: SharedMemory,
    lkey: u32,
    server: End,
    _stream: TcpStream,
}

impl Sender {
    fn join(port: &mut Port<RoceDevice<Narrow>>, listener: &TcpListener) -> Self {
        let kind = port.kind;
        let mut device = RoceDevice::new(link(), RoceConfig::default().seed(7));
        let memory = SharedMemory::new(8192).expect("memory");
        let keys = device.reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL);
        let cq = device.create_cq(64).expect("room");
        let qp = device.create_qp(&QpInit::new(kind.qp_type(), cq)).expect("room");
        let addr = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(addr).expect("it listens");
        let (theirs, _) = listener.accept().expect("one");
        theirs.set_nonblocking(true).expect("a socket");
        let hello = End {
            kind,
            mtu: Mtu::Mtu4096,
            qp_num: qp,
            psn: Psn::new(0),
            qkey: 3,
            message_bytes_max: 4096,
            under_way: 4,
            addr: device.local_addr(),
            number: 0,
            grant: None,
        };
        assert!(port.counters.connect());
        port.doors.inbox.put(Joined { stream: theirs, hello });
        port.look(&mut Work::default());
        let mut told = [0; crate::raw::HELLO_BYTES];
        stream.read_exact(&mut told).expect("a welcome");
        let server = End::parse(&told).expect("a welcome");
        let connect = Connect {
            dest: server.addr,
            dest_qp_num: server.qp_num,
            rq_psn: server.psn,
            sq_psn: hello.psn,
            // To datagrams a server's is no bound.
            path_mtu: if kind == RawKind::Ud { Mtu::Mtu4096 } else { server.mtu },
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        device.connect_qp(qp, &connect).expect("it is in INIT");
        let lkey = keys.expect("room").lkey;
        Self { device, qp, memory, lkey, server, _stream: stream }
    }

    fn send(&mut self, message: &[u8]) {
        self.memory.write(0, message).expect("room");
        let (addr, length) = (self.memory.addr(), message.len() as u32);
        let list = SgList::one(Sge { addr, length, lkey: self.lkey });
        let End { qp_num: remote_qpn, qkey: remote_qkey, addr: dest, .. } = self.server;
        let wr = match self.server.kind {
            RawKind::Ud => {
                let imm_data = self.server.number;
                let to = UdAddress { dest, remote_qpn, remote_qkey };
                SendWr::new(1, SendOp::SendWithImm { imm_data }, list).to(to)
            }
            RawKind::Rc | RawKind::Uc => SendWr::new(1, SendOp::Send, list),
        };
        self.device.post_send(self.qp, &[wr]).expect("room");
        self.device.progress(0);
    }

    fn ask(&mut self, sequence: u64, ask: Ask<'_>) {
        let mut request = Vec::new();
        Request { client: 5, sequence, ask }.emit(&mut request);
        self.send(&request);
    }
}

/// A port for so many clients, their listener, and what is served.
fn port_of(kind: RawKind, peers_max: usize) -> (Port<RoceDevice<Narrow>>, TcpListener, Service) {
    let device = RoceDevice::new(Narrow(link()), RoceConfig::default());
    let (counters, raw) = (Arc::new(Counters::new(1_000)), Arc::default());
    let config = RawConfig::new(kind);
    let made = Port::new(device, &config, (&counters, &raw), None, (peers_max, 1));
    let port = made.expect("a device");
    let listener = TcpListener::bind((LOCAL, 0)).expect("a free port");
    (port, listener, Service::new(Arc::new(Table::new(1 << 30, Evict::Never))))
}

fn port() -> (Port<RoceDevice<Narrow>>, TcpListener, Service) {
    port_of(RawKind::Ud, 10)
}

/// Takes packets in until so many more completions were made.
fn progress_until(port: &mut Port<RoceDevice<Narrow>>, more: u64, mut act: impl FnMut()) {
    let made = |port: &Port<RoceDevice<Narrow>>| port.device.completions_made().expect("counted");
    let (before, begin) = (made(port), Instant::now());
    act();
    while made(port) < before + more {
        assert!(begin.elapsed() < SOON, "they never came");
        port.device.wait(RAW_SLEEP_MAX);
        port.device.progress(RAW_PROGRESS_BUDGET);
    }
}

/// Gathers until that is so.
fn gather_until(
    port: &mut Port<RoceDevice<Narrow>>,
    mut is_so: impl FnMut(&mut Port<RoceDevice<Narrow>>, &mut Work) -> bool,
) {
    let (begin, mut work) = (Instant::now(), Work::default());
    loop {
        port.gather(&mut work);
        if is_so(port, &mut work) {
            return;
        }
        assert!(begin.elapsed() < SOON, "it never came");
        port.device.wait(RAW_SLEEP_MAX);
    }
}

/// Whether each slot is posted: then there is no room for one more.
fn all_are_posted(port: &mut Port<RoceDevice<Narrow>>) -> bool {
    let Some(Datagrams { qp, slots, .. }) = &port.datagrams else { return false };
    port.device.post_recv(*qp, &[slots.recv(Id::recv(0, 0), 0)]).is_err()
}

#[test]
fn a_datagram_that_is_too_long_is_dropped_and_no_client_is_let_go() {
    let (mut port, listener, _) = port();
    let mut sender = Sender::join(&mut port, &listener);
    sender.send(&[7; 1025]);
    gather_until(&mut port, |port, work| {
        assert!(work.is_empty(), "it is no request");
        port.raw.counted().oversized == 1 || port.datagrams.as_ref().is_some_and(|d| d.is_broken)
    });
    port.look(&mut Work::default());
    assert_eq!((port.peers.len(), port.raw.counted().failed), (1, 0));
    assert!(all_are_posted(&mut port), "its slot receives again");
}

#[test]
fn a_request_of_a_queue_pair_that_was_made_anew_gives_no_slot_back() {
    let (mut port, listener, service) = port();
    let mut sender = Sender::join(&mut port, &listener);
    sender.ask(1, Ask::Ping);
    gather_until(&mut port, |port, work| {
        if work.is_empty() {
            return false;
        }
        // Another thread mends it while this one carries the request out.
        port.datagrams.as_mut().expect("it is of UD").is_broken = true;
        port.look(&mut Work::default());
        let made = port.datagrams.as_ref().expect("it is of UD").qp;
        let (counters, raw) = (Arc::clone(&port.counters), Arc::clone(&port.raw));
        work.answer(&service, (&counters, &raw), Time::ZERO);
        port.reply(work);
        port.look(&mut Work::default());
        let datagrams = port.datagrams.as_ref().expect("it is of UD");
        assert_eq!((datagrams.qp, datagrams.is_broken), (made, false), "it was broken again");
        true
    });
    assert!(all_are_posted(&mut port));
}

#[test]
fn a_client_stays_known_when_it_reads_beside_its_changes() {
    let (mut port, listener, service) = port();
    let mut sender = Sender::join(&mut port, &listener);
    assert!(service.sessions().meet(5, Time::ZERO).is_some());
    // Both are to be taken in together.
    progress_until(&mut port, 2, || {
        sender.ask(1, Ask::Incr { key: b"n", by: 1 });
        sender.ask(2, Ask::Get { key: b"n" });
    });
    let mut work = Work::default();
    port.gather(&mut work);
    assert_eq!(work.items.len(), 2);
    let (counters, raw) = (Arc::clone(&port.counters), Arc::clone(&port.raw));
    work.answer(&service, (&counters, &raw), Time::ZERO);
    port.reply(&mut work);
    assert!(port.peers.iter().all(|(_, peer)| peer.caller.is_known()));
}

/// Asks, and sees that the request is taken in.
fn is_served(port: &mut Port<RoceDevice<Narrow>>, sender: &mut Sender) {
    sender.ask(1, Ask::Ping);
    gather_until(port, |_, work| !work.is_empty());
}

#[test]
fn what_clients_that_went_have_left_does_not_fill_the_completion_queue() {
    let (mut port, listener, _) = port_of(RawKind::Uc, 2);
    for _ in 0..50 {
        let mut sender = Sender::join(&mut port, &listener);
        // All that it may have under way, of which nothing is looked at while it is there.
        let each = RAW_SLOTS_PER_REQUEST * u32::from(port.under_way);
        progress_until(&mut port, each.into(), || {
            (0..each).for_each(|n| sender.ask(n.into(), Ask::Ping));
        });
        drop(sender);
        let begin = Instant::now();
        while !port.peers.is_empty() {
            assert!(begin.elapsed() < SOON, "it never went");
            port.look(&mut Work::default());
        }
    }
    assert_eq!(port.device.poll_async_event(), None, "it overflowed");
    let mut sender = Sender::join(&mut port, &listener);
    is_served(&mut port, &mut sender);
    assert_eq!(port.raw.counted().failed, 0);
}

#[test]
fn a_completion_queue_that_failed_is_made_anew_and_clients_are_served_again() {
    let (mut port, listener, _) = port_of(RawKind::Uc, 1);
    // More clients than it has room for.
    port.peers_max = 10;
    let each = RAW_SLOTS_PER_REQUEST * u32::from(port.under_way);
    let mut senders: Vec<_> = (0..5).map(|_| Sender::join(&mut port, &listener)).collect();
    let begin = Instant::now();
    for sender in &mut senders {
        (0..each).for_each(|n| sender.ask(n.into(), Ask::Ping));
    }
    while !port.peers.is_empty() {
        assert!(begin.elapsed() < SOON, "it never overflowed");
        port.device.wait(RAW_SLEEP_MAX);
        port.device.progress(RAW_PROGRESS_BUDGET);
        port.look(&mut Work::default());
    }
    assert_eq!(port.raw.counted().failed, 5);
    let mut sender = Sender::join(&mut port, &listener);
    is_served(&mut port, &mut sender);
}
